"""The official JavaScript client, through a load balancer, sees what the Python one sees."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.support.processes import Deployment, environment, processes
from tests.support.proxy import proxy_over
from tests.support.rpc import Event, answer_in, answer_of, state_of
from tests.system.conftest import Gates

pytestmark = [pytest.mark.requires("redis-server"), pytest.mark.requires("node")]


@pytest_asyncio.fixture(scope="module", loop_scope="session", params=["JSONRPC", "HTTP+JSON"])
async def said(
    request: pytest.FixtureRequest, deployed: Deployment, gates: Gates, js_clients: Path
) -> AsyncIterator[dict[str, Any]]:
    """What the script printed: what the client saw in each scenario."""
    with processes(js_clients) as running:
        async with proxy_over(deployed.ports) as proxy:
            command = ("node", "client.mjs", proxy.url, str(gates.folder), request.param)
            script = running.start(*command, name="js", environ=environment(), cwd=js_clients)
            assert await script.ended() == 0, script.output
            assert min(proxy.served.values()) > 0
        yield json.loads(script.output)


def stream_of(events: list[dict[str, Any]]) -> list[Event]:
    return [Event("", event) for event in events]


def test_it_speaks_1_0(said: dict[str, Any]) -> None:
    assert said["version"] == "1.0"


def test_it_uses_the_binding_that_was_asked_for(said: dict[str, Any]) -> None:
    assert ("Rest" in said["transport"]) is (said["asked"] == "HTTP+JSON")


def test_a_blocking_send(said: dict[str, Any]) -> None:
    task = said["blocking"]["task"]
    assert (state_of(task), answer_of(task)) == ("COMPLETED", "hello")


def test_a_send_that_returns_immediately(said: dict[str, Any]) -> None:
    assert state_of(said["immediate"]["task"]) == "SUBMITTED"


def test_a_stream(said: dict[str, Any]) -> None:
    events = stream_of(said["stream"])
    assert events[0].kind == "task"
    numbers = [event.text.split()[0] for event in events if event.text]
    assert numbers == [str(number) for number in range(20)]
    assert events[-1].state == "COMPLETED"


def test_a_subscription_mid_way(said: dict[str, Any]) -> None:
    events = stream_of(said["subscribe"])
    assert answer_of(events[0].data["task"]) == "0 1 2 "
    assert [event.text for event in events if event.text] == ["3 ", "4 ", "5 "]
    assert answer_in(events) == "0 1 2 3 4 5 "
    assert events[-1].state == "COMPLETED"


def test_a_cancel(said: dict[str, Any]) -> None:
    assert state_of(said["cancel"]["canceled"]) == "CANCELED"
    assert state_of(said["cancel"]["events"][-1]) == "CANCELED"
    assert said["cancel"]["again"] == "TaskNotCancelableError"


def test_pages(said: dict[str, Any]) -> None:
    pages = said["pages"]["pages"]
    assert [page["totalSize"] for page in pages] == [5, 5, 5]
    found = [task["id"] for page in pages for task in page.get("tasks", ())]
    assert found == said["pages"]["sent"][::-1]


def test_a_follow_up_and_its_history(said: dict[str, Any]) -> None:
    asked, answer = said["followUp"]["asked"]["task"], said["followUp"]["answer"]["task"]
    assert state_of(asked) == "INPUT_REQUIRED"
    assert (answer["id"], state_of(answer), answer_of(answer)) == (asked["id"], "COMPLETED", "this")
    for name, texts in (("whole", ["ask", "What more?", "echo this"]), ("last", ["echo this"])):
        history = said["followUp"][name]["history"]
        assert [message["parts"][0]["text"] for message in history] == texts


def test_an_answer_that_is_a_message(said: dict[str, Any]) -> None:
    assert said["message"]["sent"]["message"]["parts"][0]["text"] == "just this"
    (event,) = said["message"]["streamed"]
    assert event["message"]["parts"][0]["text"] == "and this"


def test_errors(said: dict[str, Any]) -> None:
    assert said["errors"] == {
        "getAbsent": "TaskNotFoundError",
        "cancelAbsent": "TaskNotFoundError",
        "sendToAbsent": "TaskNotFoundError",
        "subscribeToAbsent": "TaskNotFoundError",
        "sendToEnded": "UnsupportedOperationError",
        "subscribeToEnded": "UnsupportedOperationError",
        "cancelEnded": "TaskNotCancelableError",
        "tooLargeAPage": "RequestMalformedError",
    }
