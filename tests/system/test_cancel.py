"""CancelTask over processes: whoever runs a task, and however it is with him, it ends as told.

The first terminal event wins, for ever; those who cancel at once are told the same.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any

import pytest
import pytest_asyncio
from redis.asyncio import Redis

from switchroom.settings import Settings
from switchroom.store.keys import Keys
from tests.support.processes import Deployment, Process, deployment
from tests.support.rpc import Rpc, answer_in, answer_of, ended, ends_in, message, state_of, until
from tests.support.wait import wait_until
from tests.system.conftest import AGENT, CARD, Gates, looking_away, stored

pytestmark = pytest.mark.requires("redis-server")

# A renewal every 2 s. One gateway waits for less than that, the other for longer than any test.
SETTINGS = {"LEASE": "6", "CANCEL_WAIT": "1", "CANCEL_GRACE": "0.3", "DRAIN": "1"}
NOT_CANCELABLE = -32002


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def running(
    tmp_path_factory: pytest.TempPathFactory, gates: Gates
) -> AsyncIterator[Deployment]:
    with deployment(
        tmp_path_factory.mktemp("cancel"),
        agent=AGENT,
        environ={"TEST_GATES": str(gates.folder)},
        CARD=CARD,
        **SETTINGS,
    ) as made:
        await made.start(gateways=1, workers=2)
        await made.start(gateways=1, CANCEL_WAIT="60")
        yield made


@pytest.fixture(autouse=True)
async def healed(running: Deployment) -> None:
    """Whom the last test killed is replaced."""
    await running.replace_the_dead()


@pytest.fixture
async def one(running: Deployment, healed: None) -> AsyncIterator[Rpc]:
    async with Rpc(running.gateways[0].url) as client:
        yield client


@pytest.fixture
async def other(running: Deployment, healed: None) -> AsyncIterator[Rpc]:
    async with Rpc(running.gateways[1].url) as client:
        yield client


async def cancel(client: Rpc, task_id: str) -> Any:
    return await client.call("CancelTask", {"id": task_id})


async def held(running: Deployment, client: Rpc, gates: Gates, text: str) -> tuple[str, Process]:
    """A task that a worker runs, and the worker."""
    task_id = (await client.send(text, now=True))["task"]["id"]
    return task_id, running.worker(await gates.begun(task_id))


async def test_it_reaches_a_silent_run_in_another_process_within_a_second(
    running: Deployment, one: Rpc, other: Rpc, gates: Gates, gate: str
) -> None:
    async with one.stream("SendStreamingMessage", {"message": message(f"gate {gate} 3")}) as events:
        seen = await until(events, "2 ")
        task_id = seen[0].task_id
        asked = time.time()  # of the machine that Redis is on, too
        canceled = await cancel(one, task_id)
        seen += [event async for event in events]
    assert state_of(canceled) == "CANCELED" and answer_of(canceled) == "0 1 2 "
    assert ends_in(seen) == ["CANCELED"]
    at = datetime.fromisoformat(canceled["status"]["timestamp"]).timestamp()
    assert at < asked + 1
    # Its own worker has done it: no gateway had to take the task away.
    assert await stored(running, task_id, "fence") == [1]
    assert gates.cancelled(task_id) == [await gates.begun(task_id)]
    assert await other.get(task_id) == canceled


async def test_a_task_that_nobody_runs_yet_is_cancelled_at_once(
    running: Deployment, one: Rpc, gates: Gates
) -> None:
    with looking_away(running.workers):
        task_id = (await one.send("echo never", now=True))["task"]["id"]
        canceled = await cancel(one, task_id)
        assert state_of(canceled) == "CANCELED"
        behind = (await one.send("echo behind it", now=True))["task"]["id"]
    # They come to it as they come to the next, and find nothing to do.
    assert answer_of(await ended(one, behind)) == "behind it"
    assert await nobody_knows(running, task_id)
    assert gates.runs(task_id) == []
    assert await one.get(task_id) == canceled


async def nobody_knows(running: Deployment, task_id: str) -> bool:
    """Waits until no queue has the task's run."""
    queue = Keys(Settings().prefix, Settings().queue).queue.queue
    async with Redis.from_url(running.redis_url) as redis:

        async def gone() -> bool:
            return await redis.zscore(queue, f"run:{task_id}:1") is None

        return await wait_until(gone, what="its run has left the queue")


async def test_a_dead_workers_task_is_ended_by_the_gateway(
    running: Deployment, one: Rpc, gates: Gates, gate: str
) -> None:
    task_id, dead = await held(running, one, gates, f"gate {gate} 1")
    await dead.kill()
    canceled = await cancel(one, task_id)
    assert state_of(canceled) == "CANCELED"
    assert len(gates.runs(task_id)) == 1
    assert await one.get(task_id) == canceled


async def test_a_deaf_worker_does_not_hold_it_up_and_finds_out_when_it_wakes(
    running: Deployment, one: Rpc, gates: Gates, gate: str
) -> None:
    async with one.stream("SendStreamingMessage", {"message": message(f"gate {gate} 3")}) as events:
        seen = await until(events, "2 ")
        task_id = seen[0].task_id
        deaf = running.worker(await gates.begun(task_id))
        with looking_away([deaf]):
            canceled = await cancel(one, task_id)
            seen += [event async for event in events]
    assert state_of(canceled) == "CANCELED"
    assert ends_in(seen) == ["CANCELED"]
    await wait_until(lambda: gates.cancelled(task_id) == [deaf.pid], what="it was cancelled")
    assert await nobody_knows(running, task_id)
    assert await one.get(task_id) == canceled


async def test_an_agent_that_swallows_it_writes_nothing_after_its_grace(
    running: Deployment, one: Rpc, gates: Gates, gate: str
) -> None:
    task_id, worker = await held(running, one, gates, f"deaf {gate}")
    canceled = await cancel(one, task_id)
    assert state_of(canceled) == "CANCELED" and answer_of(canceled) == "0 "
    # Its place in the worker is free, though it is still there.
    assert await nobody_knows(running, task_id)
    gates.open(gate)
    await worker.said(f"task {task_id}: the agent does not end after it was cancelled")
    await wait_until(lambda: gates.ended(task_id) == [worker.pid], what="it has ended after all")
    assert await one.get(task_id) == canceled


@pytest.mark.parametrize("late", range(6))
async def test_of_an_end_and_a_cancel_at_the_same_time_one_wins(
    running: Deployment, one: Rpc, other: Rpc, gates: Gates, gate: str, late: int
) -> None:
    """late: how many calls the cancel comes after the word that lets the agent end."""
    async with one.stream("SendStreamingMessage", {"message": message(f"gate {gate} 3")}) as events:
        seen = await until(events, "2 ")
        task_id = seen[0].task_id
        gates.open(gate)
        for _ in range(late):
            await other.get(task_id)
        answer = (await other.post("CancelTask", {"id": task_id})).json()
        seen += [event async for event in events]
    task = await one.get(task_id)
    if "result" in answer:
        assert answer["result"] == task
        assert ends_in(seen) == ["CANCELED"] == [state_of(task)]
    else:
        assert answer["error"]["code"] == NOT_CANCELABLE
        assert ends_in(seen) == ["COMPLETED"] == [state_of(task)]
    assert answer_of(task) == answer_in(seen)


async def test_who_cancels_at_the_same_time_is_told_the_same(
    running: Deployment, one: Rpc, other: Rpc, gates: Gates, gate: str
) -> None:
    task_id, deaf = await held(running, one, gates, f"gate {gate} 1")
    whole = asyncio.create_task(one.whole_stream("SubscribeToTask", {"id": task_id}))
    with looking_away([deaf]):  # so that they all wait for it, and all take the task from it
        answers = await asyncio.gather(*(cancel(client, task_id) for client in (one, other) * 4))
        events = await whole
    assert ends_in(events) == ["CANCELED"]
    task = await one.get(task_id)
    assert state_of(task) == "CANCELED"
    assert answers == [task] * 8
    assert await one.error("CancelTask", {"id": task_id}) == NOT_CANCELABLE


async def test_a_message_that_is_lost_costs_one_renewal(
    running: Deployment, other: Rpc, gates: Gates, gate: str
) -> None:
    task_id, worker = await held(running, other, gates, f"gate {gate} 1")
    with looking_away([worker]):
        assert await listeners_killed(running) == len(running.workers)
        canceled = asyncio.create_task(cancel(other, task_id))
        await wait_until(lambda: asked_for(running, task_id), what="the cancel is asked for")
    assert state_of(await canceled) == "CANCELED"
    assert gates.cancelled(task_id) == [worker.pid]
    # It was the renewal that told it: no gateway took the task away, and no other worker.
    assert await stored(running, task_id, "fence", "attempt") == [1, 1]


async def listeners_killed(running: Deployment) -> int:
    """Breaks the connection of everyone who listens for cancels; how many did."""
    control = Keys(Settings().prefix, Settings().queue).control
    async with Redis.from_url(running.redis_url) as redis:
        ((_, listening),) = await redis.pubsub_numsub(control)
        await redis.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
        return int(listening)


async def asked_for(running: Deployment, task_id: str) -> bool:
    async with Redis.from_url(running.redis_url) as redis:
        key = Keys(Settings().prefix, Settings().queue).task(task_id)
        return bool(await redis.hexists(key, "cancel"))
