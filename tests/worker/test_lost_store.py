"""Redis forgets what it knew, or part of it, while agents run. Their workers know better."""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from contextlib import suppress

import pytest

from switchroom.agent import Event, Run
from switchroom.protocol.model import Json
from switchroom.store.commit import StoreUnavailable
from switchroom.store.leased import LeasedJob
from switchroom.store.scripts import command
from switchroom.worker.reconcile import Reconciler
from tests.support.acts import due, visible
from tests.support.faults import Cut, How
from tests.support.house import Gateway, House, WorkerOf, message, text
from tests.support.wait import wait_until

WORKING, COMPLETED = "TASK_STATE_WORKING", "TASK_STATE_COMPLETED"
CANCELED = "TASK_STATE_CANCELED"
RUNS = 20
QUICK = {"lease": 1.5, "redis_timeout": 1}


class Silent:
    """An agent that says `a`, and then nothing until the test lets it."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.runs: Counter[str] = Counter()
        self.attempts: set[int] = set()

    async def __call__(self, run: Run) -> Event:
        self.runs[run.text] += 1
        self.attempts.add(run.attempt)
        await self.go.wait()
        return run.artifact("answer", run.text)


async def begun(house: House, gateway: Gateway, agent: Silent) -> dict[str, Json]:
    """Runs that have begun, by what was asked, and the params of their sends."""
    sends = {f"{n}": message(f"{n}", returnImmediately=True) for n in range(RUNS)}
    answers = await asyncio.gather(*(gateway.call("SendMessage", p) for p in sends.values()))
    await wait_until(lambda: len(agent.runs) == RUNS, what="all have begun")
    tasks = {words: answer["task"] for words, answer in zip(sends, answers, strict=True)}
    for task in tasks.values():
        await house.state(task["id"], WORKING)
        task["params"] = sends[task["history"][0]["parts"][0]["text"]]
    return tasks


async def one_begun(house: House, gateway: Gateway, agent: Silent) -> Json:
    """A task whose run has begun."""
    task: Json = await gateway.send("hi", returnImmediately=True)
    await house.state(task["id"], WORKING)
    await wait_until(lambda: agent.runs, what="it has begun")
    return task


async def all_held(gateway: Gateway) -> bool:
    keys = gateway.store.keys.queue
    found = await gateway.store.queue_commit(
        command("ZCARD", keys.queue), command("ZCARD", keys.running)
    )
    return found == [RUNS, RUNS]


def counting(worker: WorkerOf) -> list[str]:
    """The turns that the worker takes from now on."""
    taken: list[str] = []
    work = worker.leased._work

    async def noting(job: LeasedJob) -> None:
        taken.append(job.task_id)
        await work(job)

    worker.leased._work = noting  # type: ignore[method-assign]
    return taken


async def end_well(house: House, gateway: Gateway, agent: Silent, tasks: dict[str, Json]) -> None:
    """Each has run once, in one attempt, to its end."""
    agent.go.set()
    for words, task in tasks.items():
        await house.state(task["id"], COMPLETED)
        assert text(await gateway.get(task["id"])) == words
    assert agent.attempts == {1}
    assert agent.runs == dict.fromkeys(tasks, 1)


async def test_a_redis_of_the_queue_alone_loses_everything(house: House) -> None:
    """Whoever queues the turns anew meanwhile: a repeated send, the reconciler."""
    apart = {"queue_url": f"fake://{uuid.uuid4().hex}", **QUICK}
    agent = Silent()
    gateway = await house.gateway(**apart)
    await house.worker(agent, **apart, concurrency=RUNS)  # it has no place for any other
    tasks = await begun(house, gateway, agent)
    idle = Silent()
    other = await house.worker(idle, **apart)
    await wait_until(lambda: hasattr(other, "leased"), what="another worker is up")
    taken = counting(other)
    await gateway.store.queue_commit(command("FLUSHALL"))
    again = [task["params"] for task in tasks.values()][: RUNS // 2]
    answers = await asyncio.gather(*(gateway.call("SendMessage", params) for params in again))
    assert {a["task"]["id"] for a in answers} <= {task["id"] for task in tasks.values()}
    await wait_until(lambda: len(taken) == len(again), what="the other has taken what was queued")
    await due(gateway.store, *(task["id"] for task in tasks.values()))
    await Reconciler(gateway.store, house.settings).look()
    await wait_until(lambda: all_held(gateway), what="each worker has put its own jobs back")
    await end_well(house, gateway, agent, tasks)
    assert idle.runs == {}


async def test_the_one_redis_loses_everything(house: House) -> None:
    agent = Silent()
    gateway = await house.gateway(**QUICK)
    await house.worker(agent, **QUICK)
    tasks = await begun(house, gateway, agent)
    await gateway.store.commit(command("FLUSHALL"))

    async def found(task_id: str) -> bool:
        return await visible(gateway.store, task_id, owner="/alice") is not None

    # Though their agents are silent.
    for task in tasks.values():
        await wait_until(lambda i=task["id"]: found(i), what="the task is there again")  # type: ignore[misc]
        assert (await gateway.get(task["id"]))["status"]["state"] == WORKING
    await wait_until(lambda: all_held(gateway), what="their jobs are there again")
    listed = (await gateway.list(pageSize=100))["tasks"]
    assert {task["id"] for task in listed} == {task["id"] for task in tasks.values()}
    await end_well(house, gateway, agent, tasks)
    await gateway.store.commit(
        command("SET", gateway.store.keys.cursor_secret, gateway.store.lists.secret)
    )


async def test_a_cancel_finds_a_run_whose_task_was_lost(house: House) -> None:
    agent = Silent()
    gateway = await house.gateway(**QUICK)
    await house.worker(agent, **QUICK)
    task = await one_begun(house, gateway, agent)
    await gateway.store.commit(command("DEL", *gateway.store.keys.of_task(task["id"])))

    async def there() -> bool:
        return await gateway.store.tasks.read(task["id"]) is not None

    await wait_until(there, what="the task is there again")
    canceled = await gateway.call("CancelTask", {"id": task["id"]})
    assert canceled["status"]["state"] == CANCELED


async def test_a_cancel_that_an_older_save_knows_is_carried_out(house: House) -> None:
    """The store went back to where the turn had not begun, and somebody asks for its end."""
    agent = Silent()
    gateway = await house.gateway(**QUICK)
    await house.worker(agent, **QUICK)
    task = await one_begun(house, gateway, agent)
    key = gateway.store.keys.task(task["id"])
    await gateway.store.commit(command("HSET", key, "fence", 0, "run", "", "n", 0, "cancel", 1))
    await house.state(task["id"], CANCELED)
    assert agent.attempts == {1}


async def test_what_no_queue_knows_of_a_dead_workers_runs_is_found_the_second_time(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = Silent(), Silent()
    gateway = await house.gateway()
    worker = await house.worker(first)
    task = await gateway.send("hi", returnImmediately=True)
    await wait_until(lambda: first.runs, what="it has begun")
    await worker.kill()
    keys, job = gateway.store.keys.queue, f"run:{task['id']}:1"
    await gateway.store.commit(
        command("DEL", keys.queue, keys.running, f"arq:job:{job}", f"arq:in-progress:{job}")
    )
    reconciler = Reconciler(gateway.store, house.settings)
    depths = []
    for _ in range(2):
        await due(gateway.store, task["id"])
        await reconciler.look()
        depths.append(await gateway.store.queue.depth())
    assert depths == [0, 1], "the first time its worker may still put it back"
    second.go.set()
    await house.worker(second)
    await house.state(task["id"], COMPLETED)
    assert second.attempts == {2}
    first.go.set()


@pytest.mark.parametrize("how", ["before", "between", "lost"])
async def test_putting_a_job_back_cut_at_any_step(house: House, how: How) -> None:
    agent = Silent()
    gateway = await house.gateway()
    worker = await house.worker(agent, lease=0.9, redis_timeout=0.8)
    task = await gateway.send("hi", returnImmediately=True)
    await wait_until(lambda: agent.runs, what="it has begun")
    keys, job = gateway.store.keys.queue, f"run:{task['id']}:1"
    lost = (keys.queue, keys.running, f"arq:job:{job}", f"arq:in-progress:{job}")

    async def held() -> bool:
        found = await gateway.store.commit(*(command("EXISTS", key) for key in lost))
        return found == [1, 1, 1, 1] and job in worker.leased.owned

    # The first is the renewal that finds it gone, the second what puts it back.
    for at in (1, 2):
        await gateway.store.commit(command("DEL", *lost))
        cut = Cut(worker.store.leases, at=at, how=how)
        await wait_until(lambda c=cut: c.hit, what="it was cut")  # type: ignore[misc]
        await wait_until(held, what="it holds its job again")
        cut.heal()
    agent.go.set()
    await house.state(task["id"], COMPLETED)
    assert agent.attempts == {1}


@pytest.mark.parametrize("how", ["before", "between", "lost"])
async def test_the_reconcilers_two_looks_cut_at_any_step(house: House, how: How) -> None:
    held = Silent()
    gateway = await house.gateway()
    store, elsewhere = gateway.store, (await house.gateway()).store
    reconciler = Reconciler(elsewhere, house.settings)
    worker = await house.worker(held)
    task = await gateway.send("hi", returnImmediately=True)
    await wait_until(lambda: held.runs, what="it has begun")
    await worker.kill()
    keys, job = store.keys.queue, f"run:{task['id']}:1"
    for at in range(1, 20):
        await store.commit(command("DEL", keys.queue, keys.running, f"arq:job:{job}"))
        await store.commit(command("ZADD", store.keys.open, 1, task["id"]))
        cut, looks = Cut(elsewhere.commit, at=at, how=how), 0
        while await store.queue.is_queued([(task["id"], 1)]) != [True]:
            looks += 1
            with suppress(StoreUnavailable):
                await reconciler.look()
            await due(store, task["id"])
        cut.heal()
        assert 2 <= looks <= 4
        if not cut.hit:
            break
    else:
        raise AssertionError("it never passed uncut")
    held.go.set()
