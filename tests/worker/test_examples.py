"""The agents of `examples/` do what they say, and their cards are valid."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from examples import conformance, echo, scripted
from switchroom.agent import Agent, Run, check_agent
from switchroom.protocol.card import AgentCard
from switchroom.protocol.lifecycle import fold
from switchroom.protocol.model import Json
from switchroom.worker.drive import drive

EXAMPLES = Path(scripted.__file__).parent


async def converse(agent: Agent, text: str, *, message_id: str = "m") -> tuple[list[Json], Json]:
    """The events of one turn, and the task they leave (or the Message)."""
    message = {"messageId": message_id, "role": "ROLE_USER", "parts": [{"text": text}]}
    task: Json = {
        "id": "t",
        "contextId": "c",
        "status": {"state": "TASK_STATE_WORKING"},
        "history": [message],
    }
    run = Run(json.loads(json.dumps(task)), message)
    events = [event async for event in drive(agent, run)]
    if "message" in events[0]:
        return events, events[0]["message"]
    for event in events:
        fold(task, json.loads(json.dumps(event)))
    return events, task


def state(task: Json) -> str:
    return str(task["status"]["state"]).removeprefix("TASK_STATE_")


def texts(task: Json) -> list[str]:
    return [part["text"] for artifact in task["artifacts"] for part in artifact["parts"]]


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The durations that the examples sleep for, without sleeping."""
    durations: list[float] = []
    real = asyncio.sleep

    async def sleep(duration: float) -> None:
        durations.append(duration)
        await real(0)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    return durations


@pytest.mark.parametrize("name", ["echo", "scripted", "conformance"])
def test_each_has_a_valid_card_beside_it(name: str) -> None:
    found = json.loads((EXAMPLES / f"{name}.json").read_text())
    # Where it is served is for the server to say.
    served = {"url": "http://x", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
    card = {**found, "supportedInterfaces": [served]}
    assert AgentCard.model_validate(card).to_dict() == card
    assert card["capabilities"] == {"streaming": True, "pushNotifications": False}


@pytest.mark.parametrize("example", [echo, scripted, conformance])
def test_each_is_an_agent(example: Any) -> None:
    check_agent(example.agent)


async def test_echo_streams_the_words_back(slept: list[float]) -> None:
    _, task = await converse(echo.agent, "one two  three")
    assert texts(task) == ["one ", "two ", "three "]
    assert state(task) == "COMPLETED"


@pytest.mark.parametrize("text", ["x", "two  words ", "", "stream 3", "ünï ✓"])
async def test_scripted_echoes_exactly(text: str) -> None:
    events, task = await converse(scripted.agent, f"echo {text}")
    assert texts(task) == [text]
    assert state(task) == "COMPLETED"
    assert len(events) == 2, "one artifact, then completed"


async def test_scripted_echoes_what_it_does_not_know() -> None:
    _, task = await converse(scripted.agent, "Good morning")
    assert texts(task) == ["Good morning"]


async def test_scripted_streams_numbered_chunks_of_one_artifact(slept: list[float]) -> None:
    events, task = await converse(scripted.agent, "stream 5 2 10.5")
    chunks = [event["artifactUpdate"] for event in events if "artifactUpdate" in event]
    assert [chunk.get("append", False) for chunk in chunks] == [False] + [True] * 5
    assert [chunk.get("lastChunk", False) for chunk in chunks] == [False] * 5 + [True]
    assert [text.split()[0] for text in texts(task)] == ["0", "1", "2", "3", "4"]
    assert len(task["artifacts"]) == 1
    assert slept == [0.0105] + [0.002] * 4
    assert state(task) == "COMPLETED"


async def test_scripted_sleeps(slept: list[float]) -> None:
    events, task = await converse(scripted.agent, "sleep 250")
    assert (slept, len(events), state(task)) == ([0.25], 1, "COMPLETED")


@pytest.mark.parametrize(("verb", "ends"), [("fail", "FAILED"), ("ask", "INPUT_REQUIRED")])
async def test_scripted_ends_as_told(verb: str, ends: str) -> None:
    _, task = await converse(scripted.agent, verb)
    assert state(task) == ends


async def obey(prefix: str) -> tuple[list[Json], Json]:
    return await converse(conformance.agent, "TCK", message_id=f"{prefix}-5f3c")


@pytest.mark.parametrize(
    ("prefix", "parts"),
    [
        ("tck-artifact-text", [{"text": "Generated text content"}]),
        (
            "tck-artifact-file",
            [{"raw": "dGNr", "filename": "output.txt", "mediaType": "text/plain"}],
        ),
        (
            "tck-artifact-file-url",
            [
                {
                    "url": "https://example.com/output.txt",
                    "filename": "output.txt",
                    "mediaType": "text/plain",
                }
            ],
        ),
        ("tck-artifact-data", [{"data": {"key": "value", "count": 42}}]),
        ("tck-stream-001", [{"text": "Stream hello from TCK"}]),
        ("tck-stream-003", [{"text": "Stream task lifecycle"}]),
        ("tck-stream-ordering-001", [{"text": "Ordered output"}]),
        ("tck-stream-artifact-text", [{"text": "Streamed text content"}]),
        (
            "tck-stream-artifact-file",
            [{"raw": "dGNr", "filename": "output.txt", "mediaType": "text/plain"}],
        ),
        ("tck-stream-artifact-chunked", [{"text": "chunk-1 "}, {"text": "chunk-2"}]),
    ],
)
async def test_conformance_completes_with_one_artifact(prefix: str, parts: list[Json]) -> None:
    _, task = await obey(prefix)
    assert [artifact["parts"] for artifact in task["artifacts"]] == [parts]
    assert state(task) == "COMPLETED"


@pytest.mark.parametrize("prefix", ["tck-complete-task", "tck-dm-test-001", "tck-send-003"])
async def test_conformance_completes_with_a_greeting(prefix: str) -> None:
    _, task = await obey(prefix)
    assert state(task) == "COMPLETED"
    assert task["status"]["message"]["parts"] == [{"text": "Hello from TCK"}]


@pytest.mark.parametrize(
    ("prefix", "ends"),
    [
        ("tck-input-required", "INPUT_REQUIRED"),
        ("tck-auth-required", "AUTH_REQUIRED"),
        ("tck-reject-task", "REJECTED"),
    ],
)
async def test_conformance_stops_where_the_prefix_says(prefix: str, ends: str) -> None:
    _, task = await obey(prefix)
    assert state(task) == ends


@pytest.mark.parametrize("prefix", ["tck-message-response", "tck-stream-002"])
async def test_conformance_answers_with_a_message(prefix: str) -> None:
    events, message = await obey(prefix)
    assert len(events) == 1
    assert message["role"] == "ROLE_AGENT"


async def test_conformance_works_for_a_moment_then_asks(slept: list[float]) -> None:
    events, task = await obey("test-message-id")
    assert state({"status": events[0]["statusUpdate"]["status"]}) == "WORKING"
    assert state(task) == "INPUT_REQUIRED"
    assert slept == [conformance.MOMENT]


async def test_conformance_delays_completion(slept: list[float]) -> None:
    _, task = await obey("tck-delayed-complete")
    assert (state(task), slept) == ("COMPLETED", [conformance.DELAY])


async def test_conformance_streams_for_five_seconds_to_be_subscribed_to_again(
    slept: list[float],
) -> None:
    _, task = await obey("test-resubscribe-message-id")
    assert state(task) == "COMPLETED"
    assert len(texts(task)) == len(slept)
    assert set(slept) == {0.4}
    assert sum(slept) >= 5
