"""Tasks that nobody will run are found, and set going again. Time passes by changing scores."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from typing import Any

import pytest

from switchroom.agent import Event, Run
from switchroom.protocol.errors import Unavailable
from switchroom.protocol.model import TaskState
from switchroom.store import Store
from switchroom.store.commit import GroupCommit
from switchroom.store.scripts import Call, command
from switchroom.worker.reconcile import Reconciler
from tests.conftest import SOAK
from tests.support.acts import due, new_task, open_tasks
from tests.support.faults import Cut, How
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


class Counting:
    """Asks first, then answers; `runs` are the turns that it was begun for."""

    def __init__(self) -> None:
        self.runs: list[tuple[str, int]] = []

    async def __call__(self, run: Run) -> AsyncIterator[Event]:
        self.runs.append((run.task_id, run.turn))
        yield run.ask("Which?") if run.text == "ask" else run.text


apart_or_not = pytest.mark.parametrize("apart", [False, True], ids=["one-Redis", "two"])


def where(apart: bool) -> dict[str, Any]:
    """Where the queue is."""
    return {"queue_url": f"fake://{uuid.uuid4().hex}"} if apart else {}


async def look_twice(reconciler: Reconciler, store: Store) -> None:
    """An id that is absent is struck off the second time; what else there is, is looked after."""
    for _ in range(2):
        await due(store, *await open_tasks(store))
        await reconciler.look()


@apart_or_not
@pytest.mark.parametrize("follows_up", [False, True], ids=["first", "follow-up"])
async def test_a_gateway_may_die_between_any_two_commands_of_a_send(
    house: House, apart: bool, follows_up: bool
) -> None:
    """Nobody sends again. What was accepted runs, once; of the rest nothing is left."""
    counting, queue = Counting(), where(apart)
    gateway, other = await house.gateway(**queue), await house.gateway(**queue)
    store = gateway.store
    worker = await house.worker(counting, **queue)
    waiting = [(await gateway.send("ask"))["id"] for _ in range(20 if follows_up else 0)]
    await worker.drain()
    turn = 2 if follows_up else 1

    cuts = 0
    for lane in dict.fromkeys((store.commit, store.queue_commit)):
        at, hit = 1, True
        while hit:
            ways: list[tuple[How, int | None]] = [("before", None), ("lost", None)]
            while ways:
                how, sent = ways.pop()
                cut = Cut(lane, at=at, how=how, sent=sent)
                with contextlib.suppress(Unavailable):
                    more = {"task": waiting.pop()} if follows_up else {}
                    await gateway.send("hi", returnImmediately=True, **more)
                cut.heal()
                hit, cuts = cut.hit, cuts + cut.hit
                if how == "lost":  # now it is known how many commands there are
                    ways += [("between", sent) for sent in range(1, cut.calls)]
                if not hit:
                    break
            at += 1
    assert cuts >= (5 if apart else 4)

    await look_twice(Reconciler(other.store, house.settings), other.store)
    worker = await house.worker(counting, **queue)
    (keys,) = await store.commit(command("KEYS", store.keys.task("*")))
    tasks = {key.decode().split("{")[1].split("}")[0] for key in keys}
    assert set(await open_tasks(store)) == tasks
    accepted = [task_id for task_id in tasks if (await house.view(task_id)).turn == turn]
    assert accepted
    for task_id in accepted:
        await house.state(task_id, COMPLETED)
        assert counting.runs.count((task_id, turn)) == 1
    assert await store.queue.depth() == 0


@apart_or_not
@pytest.mark.parametrize("lost", ["the job", "its place", "both", "all"])
async def test_what_a_queue_loses_of_a_job_is_put_there_again(
    house: House, apart: bool, lost: str
) -> None:
    """Evicted, deleted or emptied: each task runs once."""
    counting, queue = Counting(), where(apart)
    gateway = await house.gateway(**queue)
    store, names = gateway.store, gateway.store.keys.queue
    ids = [(await gateway.send("hi", returnImmediately=True))["id"] for _ in range(3)]
    for task_id in ids:
        job = f"run:{task_id}:1"
        if lost in ("the job", "both", "all"):
            await store.queue_commit(command("DEL", f"arq:job:{job}"))
        if lost in ("its place", "both"):
            await store.queue_commit(command("ZREM", names.queue, job))
    if lost == "all":
        await store.queue_commit(command("DEL", names.queue, names.running))
    await due(store, *ids)
    await Reconciler(store, house.settings).look()
    await house.worker(counting, **queue)
    for task_id in ids:
        await house.state(task_id, COMPLETED)
    assert sorted(counting.runs) == sorted((task_id, 1) for task_id in ids)


@pytest.mark.parametrize(
    "store_url",
    [pytest.param("redis-server", marks=pytest.mark.requires("redis-server"))],
    indirect=True,
)
async def test_a_look_costs_as_much_as_there_is_open(house: House) -> None:
    """However much is stored: as many commands, as many bytes, as many keys that are touched."""
    gateway = await house.gateway()
    store = gateway.store
    reconciler = Reconciler(store, house.settings)

    async def store_more(count: int) -> None:
        async def one() -> None:
            await store.tasks.end(await new_task(store), TaskState.COMPLETED, force=False)

        for _ in range(count // 50):
            await asyncio.gather(*(one() for _ in range(50)))
        while ids := [task_id for task_id in await open_tasks(store) if task_id not in open_ids]:
            await due(store, *ids)
            await reconciler.look()

    async def touched() -> int:
        (text,) = await store.commit(command("INFO", "stats"))
        found = dict(line.split(":") for line in text.decode().split() if ":" in line)
        return int(found["keyspace_hits"]) + int(found["keyspace_misses"])

    async def cost() -> tuple[int, int, int]:
        commands, size = 0, 0

        def counted(lane: GroupCommit) -> None:
            send = lane._pipeline

            async def pipeline(calls: Sequence[Call]) -> list[Any]:
                nonlocal commands, size
                answers = await send(calls)
                commands += len(calls)
                size += len(repr(calls)) + len(repr(answers))
                return answers

            lane._pipeline = pipeline  # type: ignore[method-assign]
            undo.append(lambda: setattr(lane, "_pipeline", send))

        undo: list[Any] = []
        await due(store, *open_ids)
        before = await touched()
        for lane in dict.fromkeys((store.commit, store.reads, store.queue_commit)):
            counted(lane)
        assert await reconciler.look() == len(open_ids)
        for each in undo:
            each()
        return commands, size, await touched() - before

    open_ids = [(await gateway.send("hi", returnImmediately=True))["id"] for _ in range(10)]
    await store_more(50)
    little = await cost()
    await store_more(5_000 if SOAK else 250)
    assert await cost() == little
    assert little[0] <= 8 * len(open_ids)
