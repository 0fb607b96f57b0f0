"""A worker process from its start to its end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from switchroom.agent import Event, Run
from switchroom.settings import Settings
from switchroom.store.connect import ServerError
from switchroom.store.scripts import Call, command
from switchroom.worker.main import serve
from tests.support.house import Gateway, House, quick, text
from tests.support.wait import wait_until

SUBMITTED, COMPLETED = "TASK_STATE_SUBMITTED", "TASK_STATE_COMPLETED"


async def agent(run: Run) -> AsyncIterator[Event]:
    yield run.text


async def test_a_worker_opens_a_store_of_its_own_and_closes_it(
    house: House, settings: Settings
) -> None:
    stop = asyncio.Event()
    serving = asyncio.create_task(serve(quick(settings), agent, stop=stop))
    gateway = await house.gateway()
    assert text(await gateway.send("hi")) == "hi"
    stop.set()
    await serving


async def test_a_gateway_and_a_worker_may_share_a_store(settings: Settings, house: House) -> None:
    gateway = await house.gateway()
    stop = asyncio.Event()
    serving = asyncio.create_task(serve(quick(settings), agent, store=gateway.store, stop=stop))
    assert text(await gateway.send("hi")) == "hi"
    stop.set()
    await serving
    task = await gateway.send("later", returnImmediately=True)  # the store is still open
    assert task["status"]["state"] == SUBMITTED


async def test_a_worker_that_is_stopped_at_once_stops(house: House) -> None:
    for _ in range(10):
        worker = await house.worker(agent)
        await worker.drain()


async def test_without_redis_a_worker_does_not_start() -> None:
    nobody = Settings(redis_url="redis://127.0.0.1:1")
    with pytest.raises(ServerError, match=r"127\.0\.0\.1:1 does not answer"):
        await serve(nobody, agent, stop=asyncio.Event())


async def test_a_worker_takes_as_much_as_it_may_and_no_more(house: House) -> None:
    go = asyncio.Event()
    begun: list[str] = []

    async def held(run: Run) -> str:
        begun.append(run.text)
        await go.wait()
        return ""

    worker = await house.worker(held, concurrency=3)
    gateway = await house.gateway()
    tasks = [await gateway.send(f"{n}", returnImmediately=True) for n in range(5)]
    await wait_until(lambda: len(begun) == 3, what="three run")
    assert len(worker.leased.owned) == 3 and len(worker.runner.active) == 3
    assert await gateway.store.queue.depth() == 5
    go.set()
    for task in tasks:
        await house.state(task["id"], COMPLETED)
    assert sorted(begun) == ["0", "1", "2", "3", "4"]


async def test_what_is_queued_is_begun_in_order(house: House) -> None:
    order: list[str] = []

    async def noting(run: Run) -> str:
        order.append(run.text)
        return ""

    gateway = await house.gateway()
    tasks = [await gateway.send(f"{n}", returnImmediately=True) for n in range(5)]
    await house.worker(noting, concurrency=1)
    await house.state(tasks[-1]["id"], COMPLETED)
    assert order == ["0", "1", "2", "3", "4"]


async def test_many_runs_on_two_workers_are_each_run_once(house: House) -> None:
    ran: list[str] = []

    async def counting(run: Run) -> str:
        ran.append(run.text)
        return run.text

    for _ in range(2):
        await house.worker(counting)
    gateways = [await house.gateway(), await house.gateway()]
    tasks = await asyncio.gather(*(gateways[n % 2].send(f"{n}") for n in range(100)))
    assert [text(task) for task in tasks] == [f"{n}" for n in range(100)]
    assert sorted(ran) == sorted(f"{n}" for n in range(100))

    async def empty() -> bool:
        return await gateways[0].store.queue.depth() == 0

    await wait_until(empty, what="the queue is empty")


async def test_what_is_on_its_way_to_a_worker_that_stops_is_not_lost(house: House) -> None:
    """SIGTERM comes while the answer to `take` does: the run it brings is finished or released."""
    ran: list[str] = []

    async def noting(run: Run) -> str:
        ran.append(run.text)
        return ""

    gateway = await house.gateway()
    worker = await house.worker(noting, drain=20)
    await wait_until(lambda: hasattr(worker, "leased"), what="the worker is up")
    taking, go_on = asyncio.Event(), asyncio.Event()
    lane: Any = worker.store.commit
    pipeline = lane._pipeline

    async def slow(calls: Sequence[Call]) -> list[Any]:
        answers: list[Any] = await pipeline(calls)
        if any(isinstance(a, list) and len(a) == 4 and a[2] for a in answers):
            taking.set()
            await go_on.wait()
        return answers

    lane._pipeline = slow
    task = await gateway.send("hi", returnImmediately=True)
    await taking.wait()
    draining = asyncio.create_task(worker.drain())
    await wait_until(lambda: not worker.leased.allow_pick_jobs, what="the worker drains")
    lane._pipeline = pipeline
    go_on.set()
    await draining
    assert ran == ["hi"]
    assert (await gateway.get(task["id"]))["status"]["state"] == COMPLETED


async def test_two_agents_on_one_redis_have_each_a_queue(house: House) -> None:
    async def named(run: Run) -> str:
        return "the other"

    await house.worker(agent)
    await house.worker(named, queue="other")
    here, there = await house.gateway(), await house.gateway(queue="other")
    assert text(await here.send("hi")) == "hi"
    assert text(await there.send("hi")) == "the other"
    await forget(there)


async def test_two_deployments_on_one_redis_never_meet(house: House) -> None:
    await house.worker(agent)
    here, there = await house.gateway(), await house.gateway(prefix="another")
    await here.send("hi")
    assert (await there.list())["tasks"] == []
    elsewhere = await there.send("hi", returnImmediately=True)
    assert elsewhere["status"]["state"] == SUBMITTED
    assert await there.store.queue.depth() == 1
    await forget(there)


async def forget(gateway: Gateway) -> None:
    """Deletes what may live for ever under names that the leak check does not know."""
    keys = gateway.store.keys
    names = (keys.open, keys.cursor_secret, keys.queue.queue, keys.queue.running)
    await gateway.store.commit(command("DEL", *names))
