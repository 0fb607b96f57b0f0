"""More work than the workers manage: new sends are refused, at every gateway and on every wire,
before a task exists; what has begun goes on, and afterwards all is as it was.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.support.processes import Deployment, deployment
from tests.support.rpc import Rpc, message, state_of
from tests.support.wait import wait_until
from tests.system.conftest import AGENT, CARD, Gates

pytestmark = pytest.mark.requires("redis-server")

LIMIT = 100
OLD_MESSAGE = {"messageId": "old", "role": "user", "parts": [{"kind": "text", "text": "hi"}]}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def limited(
    tmp_path_factory: pytest.TempPathFactory, gates: Gates
) -> AsyncIterator[Deployment]:
    """Two gateways and a worker that runs one at a time."""
    folder = tmp_path_factory.mktemp("limited")
    environ = {"TEST_GATES": str(gates.folder)}
    with deployment(
        folder, agent=AGENT, environ=environ, CARD=CARD, WAITING_LIMIT=str(LIMIT), CONCURRENCY="1"
    ) as running:
        await running.start(gateways=2, workers=1)
        yield running


async def refused(client: Rpc) -> bool:
    """Whether a send is; as a client would see it."""
    params = {"message": message("echo late"), "configuration": {"returnImmediately": True}}
    response = await client.post("SendMessage", params)
    if response.status_code == 200:
        return False
    assert response.status_code == 503
    assert int(response.headers["Retry-After"]) >= 1
    assert response.json()["error"]["code"] == -32043
    return True


async def test_new_sends_wait_outside_until_there_is_room(
    limited: Deployment, gates: Gates
) -> None:
    gate = gates.new()
    async with Rpc(limited.gateways[0].url) as one, Rpc(limited.gateways[1].url) as other:
        question = (await one.send("ask Which?"))["task"]
        assert state_of(question) == "INPUT_REQUIRED"
        first = {"message": message(f"gate {gate} 1"), "configuration": {"returnImmediately": True}}
        accepted = [(await one.call("SendMessage", first))["task"]["id"]]
        await asyncio.gather(*(one.send("echo soon", now=True) for _ in range(LIMIT)))
        await wait_until(lambda: refused(one), what="sends are refused")
        await wait_until(lambda: refused(other), what="the other gateway refuses as well")
        tasks = await other.call("ListTasks", {"pageSize": 1})

        await _refused_on_every_wire(one)
        again = await other.call("SendMessage", first)
        assert again["task"]["id"] == accepted[0]
        follow_up = await other.send("Paris", now=True, taskId=question["id"])
        assert follow_up["task"]["id"] == question["id"]
        assert state_of(await other.get(accepted[0])) in ("SUBMITTED", "WORKING")
        async with one.stream("SubscribeToTask", {"id": accepted[0]}) as events:
            assert (await anext(events)).kind == "task"
        # Nothing of all that was refused is there.
        after = await other.call("ListTasks", {"pageSize": 1})
        assert after["totalSize"] == tasks["totalSize"]

        gates.open(gate)
        await _all_have_ended(one)
        await wait_until(lambda: _taken(one), what="sends are taken again")
        await wait_until(lambda: _taken(other), what="the other gateway takes them as well")


async def _refused_on_every_wire(client: Rpc) -> None:
    send = {"message": message("echo late")}
    streamed = await client.post("SendStreamingMessage", send)
    assert streamed.status_code == 503
    for path in ("/message:send", "/message:stream"):
        response = await client.http.post(path, json=send)
        assert response.status_code == 503
        assert response.headers["Retry-After"]
    envelope = {"jsonrpc": "2.0", "id": 1, "params": {"message": OLD_MESSAGE}}
    old = {"A2A-Version": "0.3"}
    for method in ("message/send", "message/stream"):
        response = await client.http.post("/", json={**envelope, "method": method}, headers=old)
        assert response.status_code == 503
        assert response.headers["Retry-After"]


async def _all_have_ended(client: Rpc) -> None:
    async def ended() -> bool:
        open_ones = [
            await client.call("ListTasks", {"status": f"TASK_STATE_{state}", "pageSize": 1})
            for state in ("SUBMITTED", "WORKING")
        ]
        return not any(page["totalSize"] for page in open_ones)

    await wait_until(ended, what="all that was accepted has ended", within=60)


async def _taken(client: Rpc) -> bool:
    return not await refused(client)
