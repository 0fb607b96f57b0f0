"""The benchmark's own checks: it must not call perfect what is not."""

from __future__ import annotations

from typing import Any

import pytest

from switchroom.protocol.event import encode
from tests.bench.compare import table
from tests.bench.measure import milliseconds
from tests.bench.verify import Chunks, Wrong, check_echo

COMPLETED = {"statusUpdate": {"status": {"state": "TASK_STATE_COMPLETED"}}}
CLOSING = {"artifactUpdate": {"artifact": {"parts": [{"text": ""}]}, "lastChunk": True}}


def chunk(number: int) -> Any:
    return {"artifactUpdate": {"artifact": {"parts": [{"text": f"{number} 1000 chunk"}]}}}


def verdict(expected: int, *results: Any) -> list[str]:
    chunks = Chunks(expected)
    for result in results:
        chunks(encode({"jsonrpc": "2.0", "id": 1, "result": result}), 0.0)
    return chunks.verdict()


def test_all_chunks_in_order_then_completed_is_perfect() -> None:
    task = {"task": {"id": "t", "status": {"state": "TASK_STATE_SUBMITTED"}}}
    assert verdict(2, task, chunk(0), chunk(1), CLOSING, COMPLETED) == []


@pytest.mark.parametrize(
    ("results", "says"),
    [
        ([chunk(0), COMPLETED], "1 of 2 chunks"),
        ([chunk(0), chunk(0), chunk(1), COMPLETED], "chunk 0 where 1 was due"),
        ([chunk(1), chunk(0), COMPLETED], "chunk 1 where 0 was due"),
        ([chunk(0), chunk(1)], "ended in nothing"),
        ([chunk(0), chunk(1), {"message": {}}, COMPLETED], "unexpected"),
    ],
)
def test_loss_doubles_disorder_and_a_missing_end_are_faults(results: list[Any], says: str) -> None:
    assert says in " ".join(verdict(2, *results))


def test_an_error_in_a_stream_is_a_fault() -> None:
    chunks = Chunks(0)
    chunks(b'{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"no"}}', 0.0)
    assert "-32603" in " ".join(chunks.verdict())


@pytest.mark.parametrize(
    "task",
    [
        {"status": {"state": "TASK_STATE_FAILED"}},
        {"status": {"state": "TASK_STATE_COMPLETED"}},
        {"status": {"state": "TASK_STATE_COMPLETED"}, "artifacts": [{"parts": [{"text": "y"}]}]},
    ],
)
def test_an_echo_must_be_completed_and_exact(task: Any) -> None:
    with pytest.raises(Wrong):
        check_echo(task, "x")


def test_percentiles_are_of_the_durations_in_milliseconds() -> None:
    figures = milliseconds([n / 1000 for n in range(1, 101)])
    assert figures == {"p50": 51.0, "p90": 91.0, "p99": 100.0, "max": 100.0, "mean": 50.5}


def test_the_table_shows_medians_and_their_ratio() -> None:
    found = [
        {"server": name, "perfect": True, "server_cpu_us_per_op": cpu}
        for name, cpus in (("switchroom", (1.0, 2.0, 9.0)), ("sdk", (5.0, 6.0, 1.0)))
        for cpu in cpus
    ]
    lines = table("send-blocking", found).splitlines()
    assert lines[1].split() == ["send-blocking", "switchroom", "sdk"]
    assert lines[2].split()[-4:] == ["2.0", "5.0", "2.50", "x"]
    assert lines[-1].split() == ["perfect", "runs", "3", "of", "3", "3", "of", "3"]
