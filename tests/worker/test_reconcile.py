"""Tasks that nobody will run are found, and set going again. Time passes by changing scores."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from typing import Any

import pytest

from switchroom.agent import Event, Run
from switchroom.protocol.errors import Unavailable
from switchroom.store import Store
from switchroom.store.scripts import Call, command
from switchroom.worker.reconcile import Reconciler
from tests.support.acts import due, open_tasks
from tests.support.faults import Cut
from tests.support.house import Gateway, House, message
from tests.support.wait import wait_until

SUBMITTED, WORKING = "TASK_STATE_SUBMITTED", "TASK_STATE_WORKING"
COMPLETED, FAILED = "TASK_STATE_COMPLETED", "TASK_STATE_FAILED"
CANCELED, ASKS = "TASK_STATE_CANCELED", "TASK_STATE_INPUT_REQUIRED"


async def agent(run: Run) -> AsyncIterator[Event]:
    if run.text == "ask":
        yield run.ask("Which?")
    else:
        yield run.text


async def forget_job(store: Store, task_id: str, turn: int = 1) -> None:
    """The queue's Redis has lost the job."""
    job = f"run:{task_id}:{turn}"
    queue = store.keys.queue
    await store.queue_commit(
        command("ZREM", queue.queue, job),
        command("ZREM", queue.running, job),
        command("DEL", f"arq:job:{job}", f"arq:in-progress:{job}"),
    )


@pytest.fixture
async def gateway(house: House) -> Gateway:
    return await house.gateway()


@pytest.fixture
async def reconciler(house: House, gateway: Gateway) -> Reconciler:
    return Reconciler(gateway.store, house.settings)


async def test_a_task_that_was_never_enqueued_is(
    house: House, gateway: Gateway, reconciler: Reconciler
) -> None:
    store = gateway.store
    pipeline = store.commit._pipeline

    async def accept_only(calls: Sequence[Call]) -> list[Any]:
        """The gateway dies between accept and enqueue."""
        if len(calls) > 2:
            await pipeline(calls[:-1])
            raise ConnectionError
        return await pipeline(calls)

    store.commit._pipeline = accept_only  # type: ignore[method-assign]
    with pytest.raises(Unavailable):
        await gateway.send("hi", returnImmediately=True)
    store.commit._pipeline = pipeline  # type: ignore[method-assign]
    (task_id,) = await open_tasks(store)
    assert await store.queue.depth() == 0

    assert await reconciler.look() == 0  # it is not due yet
    await due(store, task_id)
    assert await reconciler.look() == 1
    assert await store.queue.depth() == 1
    await house.worker(agent)
    await house.state(task_id, COMPLETED)


async def test_a_send_that_broke_off_before_its_task_leaves_an_id_that_goes_when_due_twice(
    gateway: Gateway, reconciler: Reconciler
) -> None:
    store = gateway.store
    cut = Cut(store.commit, at=2, how="between", sent=1)
    with pytest.raises(Unavailable):
        await gateway.call("SendMessage", message("hi"))
    cut.heal()
    (task_id,) = await open_tasks(store)
    await due(store, task_id)
    await reconciler.look()
    assert await store.queue.depth() == 0
    # An accept may still have been on its way. The second time, it was not.
    assert (await open_tasks(store))[task_id] > store.clock.now()
    await due(store, task_id)
    await reconciler.look()
    assert await open_tasks(store) == {}


async def test_an_id_whose_accept_came_late_stays(gateway: Gateway, reconciler: Reconciler) -> None:
    store = gateway.store
    params = message("hi", returnImmediately=True)
    cut = Cut(store.commit, at=2, how="between", sent=1)
    with pytest.raises(Unavailable):
        await gateway.call("SendMessage", params)
    cut.heal()
    (task_id,) = await open_tasks(store)
    await due(store, task_id)
    await reconciler.look()
    task = (await gateway.call("SendMessage", params))["task"]
    assert task["id"] == task_id
    await due(store, task_id)
    await reconciler.look()
    assert task_id in await open_tasks(store)


async def test_a_turn_whose_job_is_lost_runs_after_all(
    house: House, gateway: Gateway, reconciler: Reconciler
) -> None:
    worker = await house.worker(agent)
    task = await gateway.send("ask")
    await worker.drain()
    await gateway.send("on", task=task["id"], returnImmediately=True)
    await forget_job(gateway.store, task["id"], 2)
    await due(gateway.store, task["id"])
    await reconciler.look()
    await house.worker(agent)
    await house.state(task["id"], COMPLETED)


async def test_what_waits_in_the_queue_is_left_there(
    gateway: Gateway, reconciler: Reconciler
) -> None:
    store = gateway.store
    task = await gateway.send("hi", returnImmediately=True)
    await store.commit(command("PEXPIRE", store.keys.task(task["id"]), 60_000))
    await due(store, task["id"])
    await reconciler.look()
    assert await store.queue.depth() == 1
    assert (await open_tasks(store))[task["id"]] > store.clock.now()
    # However long it waits, it does not expire meanwhile.
    (left,) = await store.commit(command("PTTL", store.keys.task(task["id"])))
    assert left > 60_000


async def test_a_cancel_that_nobody_carried_out_is_carried_out(
    house: House, gateway: Gateway, reconciler: Reconciler
) -> None:
    store = gateway.store
    worker = await house.worker(agent)
    waiting = await gateway.send("ask")
    await worker.drain()
    queued = await gateway.send("hi", returnImmediately=True)
    for task in (waiting, queued):
        # The gateway died between the flag and the end.
        found, _ = await store.tasks.request_cancel(task["id"], owner="/alice")
        assert found == "idle"
    await due(store, waiting["id"], queued["id"])
    await reconciler.look()
    for task in (waiting, queued):
        assert (await gateway.get(task["id"]))["status"]["state"] == CANCELED


async def test_a_running_task_with_a_cancel_is_its_workers_to_end(
    house: House, gateway: Gateway, reconciler: Reconciler
) -> None:
    async def silent(run: Run) -> str:
        await asyncio.Event().wait()
        return ""

    await house.worker(silent)
    task = await gateway.send("hi", returnImmediately=True)
    await house.state(task["id"], WORKING)
    await gateway.store.commit(command("HSET", gateway.store.keys.task(task["id"]), "cancel", 1))
    await due(gateway.store, task["id"])
    await reconciler.look()
    assert (await gateway.get(task["id"]))["status"]["state"] == WORKING
    await gateway.call("CancelTask", {"id": task["id"]})


async def test_a_task_whose_user_never_answers_fails(house: House, gateway: Gateway) -> None:
    store = gateway.store
    await house.worker(agent)
    task = await gateway.send("ask")
    patient = Reconciler(store, house.settings)
    await due(store, task["id"])
    await patient.look()
    assert (await gateway.get(task["id"]))["status"]["state"] == ASKS
    deadline = (await house.view(task["id"])).ts + house.settings.interrupted_limit / timedelta(
        milliseconds=1
    )
    assert (await open_tasks(store))[task["id"]] == deadline
    limit = timedelta(milliseconds=1)
    hasty = Reconciler(store, house.settings.model_copy(update={"interrupted_limit": limit}))
    async with gateway.subscribe(task["id"]) as stream:
        await stream.next()

        async def failed() -> bool:
            await due(store, task["id"])
            await hasty.look()
            return (await house.view(task["id"])).state == FAILED

        await wait_until(failed, what="the deadline has passed")
        (end,) = await stream.rest()
    status = end.event["statusUpdate"]["status"]
    assert status["state"] == FAILED
    said = status["message"]
    assert said["parts"] == [{"text": "Nobody answered in time."}]
    assert (said["taskId"], said["contextId"]) == (task["id"], task["contextId"])


@pytest.mark.parametrize("words", ["hi", "ask"])
async def test_what_has_ended_is_struck_off(
    house: House, gateway: Gateway, reconciler: Reconciler, words: str
) -> None:
    await house.worker(agent)
    task = await gateway.send(words)
    if words == "ask":
        await gateway.call("CancelTask", {"id": task["id"]})
    assert [*await open_tasks(gateway.store)] == [task["id"]]
    await due(gateway.store, task["id"])
    await reconciler.look()
    assert await open_tasks(gateway.store) == {}


async def test_what_a_message_has_answered_is_struck_off(
    house: House, gateway: Gateway, reconciler: Reconciler
) -> None:
    async def replies(run: Run) -> Event:
        return run.reply("No task")

    await house.worker(replies)
    await gateway.call("SendMessage", message("hi"))
    (task_id,) = await open_tasks(gateway.store)
    await due(gateway.store, task_id)
    await reconciler.look()
    assert await open_tasks(gateway.store) == {}


async def test_somebody_who_speaks_of_a_task_meanwhile_is_heard(
    house: House, gateway: Gateway, reconciler: Reconciler
) -> None:
    """Between the reconciler's reading and its striking off, a send may announce the same id."""
    store = gateway.store
    await house.worker(agent)
    task = await gateway.send("hi")
    await due(store, task["id"])
    pipeline = store.reads._pipeline

    async def meanwhile(calls: Sequence[Call]) -> list[Any]:
        answer = await pipeline(calls)
        await store.commit(store.tasks.look_at(task["id"]))
        return answer

    store.reads._pipeline = meanwhile  # type: ignore[method-assign]
    try:
        await reconciler.look()
    finally:
        store.reads._pipeline = pipeline  # type: ignore[method-assign]
    assert task["id"] in await open_tasks(store)


async def test_more_than_one_looks_batch_is_looked_at(house: House, gateway: Gateway) -> None:
    store = gateway.store
    ids = [f"absent-{n}" for n in range(450)]
    await store.commit(*(command("ZADD", store.keys.open, "1.5", task_id) for task_id in ids))
    await house.worker(agent)

    async def none() -> bool:
        return await open_tasks(store) == {}

    await wait_until(none, what="every id was looked at")


async def test_one_worker_at_a_time_looks(house: House) -> None:
    looked: list[int] = []

    class Counting(Reconciler):
        async def look(self) -> int:
            looked.append(id(self))
            return 0

    one, two = await house.gateway(), await house.gateway()
    often = house.settings.model_copy(update={"reconcile_every": timedelta(milliseconds=20)})
    async with asyncio.TaskGroup() as group:
        running = [
            group.create_task(Counting(gateway.store, often).run()) for gateway in (one, two)
        ]
        await wait_until(lambda: len(looked) >= 5, what="one has looked five times")
        for task in running:
            task.cancel()
    assert len(set(looked)) == 1


async def test_a_lock_whose_holder_is_gone_passes_on(house: House) -> None:
    looked = asyncio.Event()

    class Signals(Reconciler):
        async def look(self) -> int:
            looked.set()
            return 0

    gateway = await house.gateway()
    often = house.settings.model_copy(update={"reconcile_every": timedelta(milliseconds=20)})
    store = gateway.store
    await store.commit(command("SET", store.keys.reconciler, "one that died", "PX", 100))
    async with asyncio.TaskGroup() as group:
        running = group.create_task(Signals(store, often).run())
        await looked.wait()
        running.cancel()


async def test_the_reconciler_outlives_its_own_failures(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    again = asyncio.Event()

    class Failing(Reconciler):
        looks = 0

        async def look(self) -> int:
            self.looks += 1
            if self.looks == 1:
                raise Unavailable
            if self.looks == 2:
                raise RuntimeError("a fault of ours")
            again.set()
            return 0

    gateway = await house.gateway()
    often = house.settings.model_copy(update={"reconcile_every": timedelta(milliseconds=20)})
    async with asyncio.TaskGroup() as group:
        running = group.create_task(Failing(gateway.store, often).run())
        await again.wait()
        running.cancel()
    assert "a fault of ours" in caplog.text


async def test_a_worker_reconciles_by_itself(house: House, gateway: Gateway) -> None:
    task = await gateway.send("hi", returnImmediately=True)
    await forget_job(gateway.store, task["id"])
    await due(gateway.store, task["id"])
    await house.worker(agent)
    await house.state(task["id"], COMPLETED)
