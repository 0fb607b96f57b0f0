"""A worker may be lost in any way, at any time: another goes on, and nothing is heard of the first.

Whichever way it is, the task's log is dense, the final Task holds the answer once, and a worker
that was only away is told so and goes on with other work.
"""

from __future__ import annotations

import asyncio
import dataclasses
import signal
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import datetime
from typing import Any

import pytest
import pytest_asyncio
from redis.asyncio import Redis

from switchroom.settings import Settings
from switchroom.store.keys import Keys
from tests.conftest import SOAK
from tests.support.link import link_to
from tests.support.processes import Deployment, Process, deployment
from tests.support.rpc import (
    Event,
    Rpc,
    answer_in,
    answer_of,
    ends_in,
    message,
    state_of,
    told_by,
    until,
)
from tests.support.wait import wait_until
from tests.system.conftest import AGENT, CARD, Gates, looking_away, stored

pytestmark = pytest.mark.requires("redis-server")

LEASE = 2
WHOLE = "0 1 2 3 4 5 "


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def mortals(
    tmp_path_factory: pytest.TempPathFactory, gates: Gates
) -> AsyncIterator[Deployment]:
    """A lease is what a loss costs, so it is short; the rest fits under it."""
    settings = {"LEASE": str(LEASE), "REDIS_TIMEOUT": "1", "RECONCILE_EVERY": "1", "DRAIN": "1"}
    with deployment(
        tmp_path_factory.mktemp("mortals"),
        agent=AGENT,
        environ={"TEST_GATES": str(gates.folder)},
        CARD=CARD,
        **settings,
    ) as running:
        await running.start(gateways=1, workers=2)
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
def params(gate: str) -> dict[str, Any]:
    """A send whose answer is 0 to 5; each attempt is held after 2 until its own gate is open."""
    return {"message": message(f"each {gate} 3")}


async def went_on(
    mortals: Deployment,
    client: Rpc,
    gates: Gates,
    events: list[Event],
    *,
    lost: float,
    answer: str = WHOLE,
) -> Any:
    """The task, begun again and completed: all that must be true of it, and of its whole stream.

    lost: when its worker was, by this machine's clock, as Redis's is.
    """
    task_id = events[0].task_id
    seqs = [int(event.id.partition(".")[0]) for event in events]
    assert seqs == [*range(seqs[0], seqs[0] + len(seqs))]
    assert ends_in(events) == ["COMPLETED"]
    (again,) = (event for event in events if event.told == "Attempt 2 of 3: begun again.")
    at = datetime.fromisoformat(again.data["statusUpdate"]["status"]["timestamp"])
    assert at.timestamp() < lost + LEASE + 5
    task = await client.get(task_id)
    # The lost attempt's chunks are replaced, for whoever saw them and in the Task.
    assert answer_of(task) == answer_in(events) == answer
    (_, first, lost), (_, second, other) = gates.runs(task_id)
    assert (first, second) == (1, 2) and lost != other
    assert await stored(mortals, task_id, "fence", "attempt") == [2, 2]
    return task


async def test_killed_another_goes_on(
    mortals: Deployment, one: Rpc, gates: Gates, gate: str, params: Any
) -> None:
    gates.open(f"{gate}-2")
    async with one.stream("SendStreamingMessage", params) as events:
        seen = await until(events, "2 ")
        await mortals.worker(await gates.begun(seen[0].task_id)).kill()
        lost = time.time()
        seen += [event async for event in events]
    await went_on(mortals, one, gates, seen, lost=lost)


async def test_asleep_past_its_lease_its_agent_is_cancelled_when_it_wakes(
    mortals: Deployment, one: Rpc, gates: Gates, gate: str, params: Any
) -> None:
    gates.open(f"{gate}-2")
    async with one.stream("SendStreamingMessage", params) as events:
        seen = await until(events, "2 ")
        task_id = seen[0].task_id
        sleeper = mortals.worker(await gates.begun(task_id))
        sleeper.send(signal.SIGSTOP)
        lost = time.time()
        try:
            seen += [event async for event in events]
        finally:
            sleeper.send(signal.SIGCONT)
    task = await went_on(mortals, one, gates, seen, lost=lost)
    # Nothing else would end it: the gate of its attempt stays closed.
    await wait_until(lambda: gates.cancelled(task_id) == [sleeper.pid], what="it was cancelled")
    assert await one.get(task_id) == task
    await is_well(mortals, sleeper, one, gates)


async def test_its_loop_blocked_past_its_lease_what_it_says_then_is_refused(
    mortals: Deployment, one: Rpc, gates: Gates, gate: str
) -> None:
    async with one.stream("SendStreamingMessage", {"message": message(f"block {gate}")}) as events:
        seen = await until(events, "0 ")
        task_id = seen[0].task_id
        blocked = mortals.worker(await gates.begun(task_id))
        gates.open(f"{gate}-go")
        lost = time.time()
        seen += await until(events, "0 ")
        # It wakes in the middle of its run, goes on with it, and says something, as the other does.
        gates.open(gate)
        await wait_until(lambda: gates.cancelled(task_id) == [blocked.pid], what="it was cancelled")
        gates.open(f"{gate}-end")
        seen += [event async for event in events]
    await went_on(mortals, one, gates, seen, lost=lost, answer="0 1 ")
    await is_well(mortals, blocked, one, gates)


async def test_cut_off_from_redis_it_stops_its_agent_by_itself(
    mortals: Deployment, one: Rpc, gates: Gates, gate: str
) -> None:
    others = list(mortals.workers)
    gates.open(f"{gate}-2")
    async with link_to(int(mortals.redis_url.rpartition(":")[2])) as link:
        await mortals.start(workers=1, REDIS_URL=link.url)
        hermit = mortals.workers[-1]
        async with AsyncExitStack() as open_:
            with looking_away(others):
                task_id = (await one.send(f"each {gate} 3", now=True))["task"]["id"]
                assert await gates.begun(task_id) == hermit.pid
                stream = one.stream("SubscribeToTask", {"id": task_id})
                events = await open_.enter_async_context(stream)
                seen = [await anext(events)]
                link.hold()
                lost = time.time()
            seen += [event async for event in events]
        task = await went_on(mortals, one, gates, seen, lost=lost)
        # It is still cut off: it cannot know, but neither can it prove that the run is its own.
        await wait_until(lambda: gates.cancelled(task_id) == [hermit.pid], what="it was cancelled")
        link.release()
        await is_well(mortals, hermit, one, gates)
        assert await one.get(task_id) == task
        assert await hermit.stop() == 0
    mortals.workers.remove(hermit)


async def is_well(mortals: Deployment, worker: Process, client: Rpc, gates: Gates) -> None:
    """It goes on with other work."""
    with looking_away([other for other in mortals.workers if other is not worker]):
        task = (await client.send("echo well"))["task"]
    assert answer_of(task) == "well"
    assert [pid for _, _, pid in gates.runs(task["id"])] == [worker.pid]


async def test_a_run_that_kills_its_worker_each_time_fails_in_the_end(
    mortals: Deployment, one: Rpc, gates: Gates
) -> None:
    task_id = (await one.send("die", now=True))["task"]["id"]

    async def over() -> Any:
        await mortals.replace_the_dead()
        task = await one.get(task_id)
        return task if state_of(task) == "FAILED" else None

    task = await wait_until(over, what="the task has failed", within=60)
    assert told_by(task) == "The task was begun 3 times, and its worker lost each time."
    assert [attempt for _, attempt, _ in gates.runs(task_id)] == [1, 2, 3]


async def test_an_agent_that_may_not_run_twice_fails_with_its_worker(
    mortals: Deployment, gates: Gates, gate: str
) -> None:
    environ = {**mortals.environ, "SWITCHROOM_QUEUE": "once"}
    apart = dataclasses.replace(
        mortals, agent=f"{AGENT}:once", environ=environ, gateways=[], workers=[]
    )
    await apart.start(gateways=1, workers=2)
    async with Rpc(apart.gateways[0].url) as client:
        waiting = asyncio.create_task(client.send(f"gate {gate} 1", contextId=gate))

        async def begun() -> Any:
            return (await client.call("ListTasks", {"contextId": gate}))["tasks"]

        (listed,) = await wait_until(begun, what="the task is listed")
        await apart.worker(await gates.begun(listed["id"])).kill()
        task = (await waiting)["task"]
    assert state_of(task) == "FAILED"
    assert told_by(task) == "The task was begun once, and its worker lost."
    assert len(gates.runs(task["id"])) == 1
    for process in (*apart.gateways, *apart.workers):
        if process.alive:
            await process.kill()


async def test_with_none_left_a_task_waits_for_the_next(
    mortals: Deployment, one: Rpc, gates: Gates, gate: str, params: Any
) -> None:
    await asyncio.gather(*(worker.kill() for worker in mortals.workers))
    gates.open(f"{gate}-1")
    async with one.stream("SendStreamingMessage", params) as events:
        seen = [await anext(events)]
        assert seen[0].state == "SUBMITTED"
        await mortals.replace_the_dead()
        seen += [event async for event in events]
    assert ends_in(seen) == ["COMPLETED"]
    assert answer_in(seen) == WHOLE
    assert len(gates.runs(seen[0].task_id)) == 1


async def test_a_run_that_is_well_is_run_once_however_many_leases_it_takes(
    mortals: Deployment, one: Rpc, gates: Gates, gate: str, params: Any
) -> None:
    leases = 60 if SOAK else 3
    async with one.stream("SendStreamingMessage", params) as events:
        seen = await until(events, "2 ")
        task_id = seen[0].task_id
        await outlives(mortals.redis_url, task_id, leases=leases)
        gates.open(f"{gate}-1")
        seen += [event async for event in events]
    assert ends_in(seen) == ["COMPLETED"]
    assert answer_in(seen) == answer_of(await one.get(task_id)) == WHOLE
    assert len(gates.runs(task_id)) == 1
    assert await stored(mortals, task_id, "fence", "attempt") == [1, 1]


async def outlives(url: str, task_id: str, *, leases: int) -> None:
    """Returns when the lease that the run holds began so many leases after this one."""
    queue = Keys(Settings().prefix, Settings().queue).queue.queue
    async with Redis.from_url(url) as redis:
        first = await redis.zscore(queue, f"run:{task_id}:1")

        async def later() -> bool:
            now = await redis.zscore(queue, f"run:{task_id}:1")
            return bool(now >= first + leases * LEASE * 1000)

        await wait_until(later, what=f"{leases} leases are over", within=20 + 2 * leases * LEASE)
