"""A gateway may be killed at any time: its clients ask another, and that is the same task."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import pytest_asyncio

from tests.support.processes import Deployment, deployment
from tests.support.rpc import Event, Rpc, answer_in, answer_of, ends_in, message, until
from tests.support.wait import wait_until
from tests.system.conftest import AGENT, CARD, Gates

pytestmark = pytest.mark.requires("redis-server")

WHOLE = "0 1 2 3 4 5 "


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def mortals(
    tmp_path_factory: pytest.TempPathFactory, gates: Gates
) -> AsyncIterator[Deployment]:
    folder = tmp_path_factory.mktemp("gateways")
    environ = {"TEST_GATES": str(gates.folder)}
    with deployment(folder, agent=AGENT, environ=environ, CARD=CARD) as running:
        await running.start(gateways=2, workers=1)
        yield running


@pytest.fixture(autouse=True)
async def healed(mortals: Deployment) -> None:
    """Whom the last test killed is replaced."""
    await mortals.replace_the_dead()


@pytest.fixture
async def one(mortals: Deployment, healed: None) -> AsyncIterator[Rpc]:
    async with Rpc(mortals.gateways[0].url) as client:
        yield client


@pytest.fixture
async def other(mortals: Deployment, healed: None) -> AsyncIterator[Rpc]:
    async with Rpc(mortals.gateways[1].url) as client:
        yield client


async def test_killed_its_clients_go_on_at_another(
    mortals: Deployment, one: Rpc, other: Rpc, gates: Gates, gate: str
) -> None:
    params = {"message": message(f"gate {gate} 3")}
    seen: list[Event] = []
    with pytest.raises(httpx.TransportError):
        async with one.stream("SendStreamingMessage", params) as events:
            seen = await until(events, "2 ")
            await mortals.gateways[0].kill()
            seen += [event async for event in events]
    gates.open(gate)
    position = seen[-1].id
    # It repeats its send: that is the same task, and the same stream going on.
    rest = await other.whole_stream("SendStreamingMessage", params, Last_Event_ID=position)
    assert answer_in(seen + rest) == WHOLE
    assert ends_in(seen + rest) == ["COMPLETED"]
    assert len(gates.runs(seen[0].task_id)) == 1


async def test_killed_a_blocking_send_may_be_repeated_at_another(
    mortals: Deployment, one: Rpc, other: Rpc, gates: Gates, gate: str
) -> None:
    params = {"message": message(f"gate {gate} 3", contextId=gate)}
    waiting = asyncio.create_task(one.post("SendMessage", params))

    async def listed() -> Any:
        return (await other.call("ListTasks", {"contextId": gate}))["tasks"]

    (task,) = await wait_until(listed, what="the task is listed")
    await mortals.gateways[0].kill()
    with pytest.raises(httpx.TransportError):
        await waiting
    gates.open(gate)
    again = await other.call("SendMessage", params)
    assert again["task"]["id"] == task["id"]
    assert answer_of(again["task"]) == WHOLE
    assert len(gates.runs(task["id"])) == 1
