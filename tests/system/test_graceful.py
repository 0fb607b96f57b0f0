"""Told to stop, a process hands over what it has: nothing is lost, and nothing is done twice.

The lease is far longer than any test, so whatever goes on here goes on because it was handed over.
"""

from __future__ import annotations

import asyncio
import dataclasses
import re
import signal
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import datetime
from typing import Any

import httpx
import pytest
import pytest_asyncio

from tests.support.processes import Deployment, Process, deployment
from tests.support.rpc import (
    Rpc,
    answer_in,
    answer_of,
    ended,
    ends_in,
    message,
    state_of,
    until,
)
from tests.support.wait import wait_until
from tests.system.conftest import AGENT, CARD, Gates, stored

pytestmark = pytest.mark.requires("redis-server")

DRAIN = 2
SETTINGS = {"LEASE": "120", "DRAIN": str(DRAIN), "CANCEL_GRACE": "0.3", "CANCEL_WAIT": "1"}
WHOLE = "0 1 2 3 4 5 "


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def leavers(
    tmp_path_factory: pytest.TempPathFactory, gates: Gates
) -> AsyncIterator[Deployment]:
    with deployment(
        tmp_path_factory.mktemp("leavers"),
        agent=AGENT,
        environ={"TEST_GATES": str(gates.folder)},
        CARD=CARD,
        **SETTINGS,
    ) as running:
        await running.start(gateways=2, workers=2)
        yield running


@pytest.fixture(autouse=True)
async def healed(leavers: Deployment) -> None:
    """Who left in the last test is replaced."""
    await leavers.replace_the_dead()


@pytest.fixture
async def one(leavers: Deployment, healed: None) -> AsyncIterator[Rpc]:
    async with Rpc(leavers.gateways[0].url) as client:
        yield client


@pytest.fixture
async def other(leavers: Deployment, healed: None) -> AsyncIterator[Rpc]:
    async with Rpc(leavers.gateways[1].url) as client:
        yield client


@pytest.fixture
def params(gate: str) -> dict[str, Any]:
    """A send whose answer is 0 to 5, held after 2 until the gate is open."""
    return {"message": message(f"gate {gate} 3")}


class TestWorker:
    async def test_it_finishes_what_it_can_gives_back_the_rest_and_takes_nothing_new(
        self, leavers: Deployment, gates: Gates
    ) -> None:
        short, long = gates.new(), gates.new()
        environ = {**leavers.environ, "SWITCHROOM_QUEUE": "apart"}
        apart = dataclasses.replace(leavers, environ=environ, gateways=[], workers=[])
        await apart.start(gateways=1, workers=1, CONCURRENCY="2")
        (leaver,) = apart.workers
        async with Rpc(apart.gateways[0].url) as client:
            finished = (await client.send(f"gate {short} 1", now=True))["task"]["id"]
            released = (await client.send(f"gate {long} 1", now=True))["task"]["id"]
            for task_id in (finished, released):
                await gates.begun(task_id)
            waiting = (await client.send("echo waited", now=True))["task"]["id"]
            leaver.send(signal.SIGTERM)
            await leaver.said("draining: 2 runs in progress")
            gates.open(short)
            assert answer_of(await ended(client, finished)) == "0 1 "
            assert await leaver.ended() == 0
            # It had a place free, and took nothing.
            assert gates.runs(waiting) == []
            assert state_of(await client.get(released)) == "WORKING"
            # What was begun comes before what waits, also where one is run at a time.
            gates.open(long)
            await apart.start(workers=1, CONCURRENCY="1")
            tasks = [await ended(client, task_id) for task_id in (released, waiting)]
            assert [answer_of(task) for task in tasks] == ["0 1 ", "waited"]
            first, second = (task["status"]["timestamp"] for task in tasks)
            assert first <= second
            # Nothing went wrong with it, so no attempt is counted.
            assert [attempt for _, attempt, _ in gates.runs(released)] == [1, 1]
            assert len(gates.runs(finished)) == len(gates.runs(waiting)) == 1
        for process in (*apart.gateways, apart.workers[-1]):
            await process.kill()

    async def test_another_takes_what_it_gives_back_at_once(
        self, leavers: Deployment, one: Rpc, gates: Gates, gate: str, params: Any
    ) -> None:
        async with one.stream("SendStreamingMessage", params) as events:
            seen = await until(events, "2 ")
            task_id = seen[0].task_id
            leaver = leavers.worker(await gates.begun(task_id))
            assert await leaver.stop() == 0
            gates.open(gate)
            rest = [event async for event in events]
        assert ends_in(seen + rest) == ["COMPLETED"]
        assert answer_in(seen + rest) == answer_of(await one.get(task_id)) == WHOLE
        (_, *first), (_, *second) = gates.runs(task_id)
        assert first == [1, leaver.pid] and second[0] == 1 and second[1] != leaver.pid
        assert await stored(leavers, task_id, "attempt") == [1]
        # Both clocks are this machine's: the drain, and then a second.
        told = re.search(r"^(.+),(\d+) INFO .* draining: 1 runs", leaver.output, re.MULTILINE)
        assert told
        begun_again = datetime.fromisoformat(rest[0].data["statusUpdate"]["status"]["timestamp"])
        asked = datetime.fromisoformat(f"{told[1]}.{told[2]}").astimezone()
        assert (begun_again - asked).total_seconds() < DRAIN + 1

    async def test_an_agent_that_does_not_end_does_not_keep_it(
        self, leavers: Deployment, one: Rpc, gates: Gates, gate: str
    ) -> None:
        task_id = (await one.send(f"deaf {gate}", now=True))["task"]["id"]
        leaver = leavers.worker(await gates.begun(task_id))
        assert await leaver.stop() == 0
        assert "leaving without it" in leaver.output
        assert await gates.begun(task_id, 2) != leaver.pid
        gates.open(gate)
        assert answer_of(await ended(one, task_id)) == "0 late "


class TestGateway:
    async def test_it_ends_its_streams_and_answers_who_waits(
        self, leavers: Deployment, one: Rpc, other: Rpc, gates: Gates, gate: str, params: Any
    ) -> None:
        leaver = leavers.gateways[0]
        blocking = {"message": message(f"gate {gate} 1", contextId=gate)}
        waiting = asyncio.create_task(one.call("SendMessage", blocking))
        async with one.stream("SendStreamingMessage", params) as events:
            seen = await until(events, "2 ")
            await wait_until(lambda: listed(other, gate), what="the blocking send is under way")
            leaver.send(signal.SIGTERM)
            seen += [event async for event in events]  # a clean end, without an error
        assert ends_in(seen) == []
        task = (await waiting)["task"]
        assert state_of(task) in ("SUBMITTED", "WORKING")
        await never_ready(leaver)
        assert leaver.popen.returncode == 0
        assert "gateway stopped" in leaver.output
        gates.open(gate)
        # What was begun goes on, and is followed elsewhere.
        position = seen[-1].id
        subscribed = {"id": seen[0].task_id}
        rest = await other.whole_stream("SubscribeToTask", subscribed, Last_Event_ID=position)
        assert "task" not in [event.kind for event in rest]
        assert answer_in(seen + rest) == WHOLE
        assert ends_in(seen + rest) == ["COMPLETED"]
        assert answer_of(await ended(other, task["id"])) == "0 1 "
        # Whoever asks again elsewhere is told how that very task has ended.
        again = (await other.call("SendMessage", blocking))["task"]
        assert (again["id"], answer_of(again)) == (task["id"], "0 1 ")
        assert len(gates.runs(task["id"])) == 1


async def listed(client: Rpc, context: str) -> bool:
    return bool((await client.call("ListTasks", {"contextId": context}))["tasks"])


async def never_ready(gateway: Process) -> None:
    """Returns when the gateway has ended; until then nothing may send requests to it."""
    async with httpx.AsyncClient(base_url=gateway.url, verify=False) as http:

        async def over() -> bool:
            with suppress(httpx.TransportError):
                assert (await http.get("/readyz")).status_code == 503
            return not gateway.alive

        await wait_until(over, what="the gateway has ended", within=60)
