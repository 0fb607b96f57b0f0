"""The official clients of 0.3, Python's and JavaScript's, on each binding they have, through a load
balancer that gives each request to the next gateway: they see what the present ones see.
"""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import pytest_asyncio
from a2a.compat.v0_3 import types

from tests.support.processes import Deployment, environment, processes
from tests.support.proxy import proxy_over
from tests.system.conftest import Gates

pytestmark = pytest.mark.requires("redis-server")

PYTHON = Path(sys.prefix) / "sdk03" / "bin" / "python"
SCRIPT = Path(__file__).with_name("python03") / "client.py"
BINARY = base64.b64encode(bytes(range(256))).decode()


class Said(NamedTuple):
    """What a client saw in each scenario."""

    client: str
    transport: str
    seen: dict[str, Any]


@pytest_asyncio.fixture(
    scope="module",
    loop_scope="session",
    params=[
        pytest.param((client, transport), marks=pytest.mark.requires(capability))
        for client, capability in (("python", "sdk-0.3"), ("js", "node"))
        for transport in ("JSONRPC", "HTTP+JSON")
    ],
    ids=lambda param: "-".join(param),
)
async def said(
    request: pytest.FixtureRequest,
    deployed: Deployment,
    gates: Gates,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[Said]:
    client, transport = request.param
    folder = tmp_path_factory.mktemp(client)
    if client == "python":
        command, cwd = (str(PYTHON), str(SCRIPT)), folder
    else:
        command, cwd = ("node", "client03.mjs"), request.getfixturevalue("js_clients")
    with processes(folder) as running:
        async with proxy_over(deployed.ports) as proxy:
            given = (proxy.url, str(gates.folder), transport)
            script = running.start(*command, *given, name="old", environ=environment(), cwd=cwd)
            assert await script.ended() == 0, script.output
            assert min(proxy.served.values()) > 0
        yield Said(client, transport, json.loads(script.output))


def text_of(holder: dict[str, Any]) -> str:
    """The text of a Task's artifacts, or of a message."""
    held = holder.get("artifacts") or [holder]
    return "".join(part.get("text", "") for each in held for part in each["parts"])


def chunks_of(events: list[dict[str, Any]]) -> list[str]:
    return [text_of(event["artifact"]) for event in events if event["kind"] == "artifact-update"]


def test_it_uses_the_transport_that_was_asked_for(said: Said) -> None:
    assert ("Rest" in said.seen["transport"]) is (said.transport == "HTTP+JSON")


def test_a_blocking_send(said: Said) -> None:
    task = types.Task.model_validate(said.seen["blocking"])
    assert task.status.state == "completed"
    assert text_of(said.seen["blocking"]) == "hello"
    assert [text_of(message) for message in said.seen["blocking"]["history"]] == ["echo hello"]


def test_a_send_that_does_not_block(said: Said) -> None:
    assert said.seen["immediate"]["status"]["state"] == "submitted"


def test_a_stream(said: Said) -> None:
    events = said.seen["stream"]
    assert events[0]["kind"] == "task"
    numbers = [chunk.split()[0] for chunk in chunks_of(events) if chunk]
    assert numbers == [str(number) for number in range(20)]
    finals = [event["final"] for event in events if event["kind"] == "status-update"]
    assert finals[-1] is True
    assert not any(finals[:-1])
    assert events[-1]["status"]["state"] == "completed"


def test_a_resubscription_mid_way(said: Said) -> None:
    first, *rest = said.seen["resubscribe"]
    assert first["kind"] == "task"
    assert text_of(first) == "0 1 2 "
    assert "".join(chunks_of(rest)) == "3 4 5 "
    assert (rest[-1]["status"]["state"], rest[-1]["final"]) == ("completed", True)


def test_a_cancel(said: Said) -> None:
    seen = said.seen["cancel"]
    assert seen["canceled"]["status"]["state"] == "canceled"
    assert (seen["events"][-1]["status"]["state"], seen["events"][-1]["final"]) == (
        "canceled",
        True,
    )


def test_turns_and_their_history(said: Said) -> None:
    seen = said.seen["turns"]
    asked, streamed, answer = seen["asked"], seen["streamed"], seen["answer"]
    assert asked["status"]["state"] == "input-required"
    assert text_of(asked["status"]["message"]) == "What more?"
    assert streamed[0]["id"] == asked["id"]
    assert (streamed[-1]["status"]["state"], streamed[-1]["final"]) == ("input-required", True)
    assert (answer["id"], answer["status"]["state"]) == (asked["id"], "completed")
    whole = ["ask", "What more?", "ask", "What more?", "echo this"]
    for name, texts in (("whole", whole), ("last", whole[-1:]), ("zero", whole)):
        assert [text_of(message) for message in seen[name]["history"]] == texts


def test_an_answer_that_is_a_message(said: Said) -> None:
    assert text_of(said.seen["reply"]["sent"]) == "just this"
    assert said.seen["reply"]["sent"]["role"] == "agent"
    (event,) = said.seen["reply"]["streamed"]
    assert (event["kind"], text_of(event)) == ("message", "and this")


def test_a_failed_run(said: Said) -> None:
    status = said.seen["failed"]["status"]
    assert (status["state"], text_of(status["message"])) == ("failed", "Failed, as asked.")


def test_the_bytes_of_a_file_come_back_as_they_were(said: Said) -> None:
    """The two SDKs encode them differently over REST."""
    (_, part) = said.seen["file"]["history"][0]["parts"]
    assert part["file"]["bytes"] == BINARY
    assert part["file"]["mimeType"] == "image/png"
    if said.client == "python":
        assert part["metadata"] == {"of": "the part"}


def test_errors(said: Said) -> None:
    seen = {**said.seen["errors"], "cancelEnded": said.seen["cancel"]["again"]}
    match said.client, said.transport:
        case "python", "JSONRPC":
            absent, ended, uncancelable = -32001, -32004, -32002
        case "python", _:
            absent, ended, uncancelable = 404, 400, 400
            # Its REST client looks at the type of the answer before it looks at the status.
            assert seen.pop("resubscribeToAbsent") == 400
        case _:
            absent, ended, uncancelable = (
                "TaskNotFoundError",
                "UnsupportedOperationError",
                "TaskNotCancelableError",
            )
    assert {name: value for name, value in seen.items() if name.endswith("Absent")} == {
        name: absent for name in seen if name.endswith("Absent")
    }
    assert seen["sendToEnded"] == seen["streamToEnded"] == seen["resubscribeToEnded"] == ended
    assert seen["cancelEnded"] == uncancelable


def test_push_configs(said: Said) -> None:
    seen = said.seen["push"]
    first, second = seen["made"]
    assert first["taskId"] == seen["task"]
    config = {"id": "a", "url": "https://hooks.test/a", "token": "t"}
    for found in (first, seen["found"]):
        assert found["pushNotificationConfig"].items() >= config.items()
        assert found["pushNotificationConfig"]["authentication"]["schemes"] == ["Bearer"]
    assert second["pushNotificationConfig"]["id"] == "b"
    assert seen["absent"] in (-32001, 404, "TaskNotFoundError")
    if said.client == "js":
        assert [each["pushNotificationConfig"]["id"] for each in seen["left"]] == ["b"]
