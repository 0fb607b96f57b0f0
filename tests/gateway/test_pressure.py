"""Beyond what may wait, new work is refused before anything of it exists; all else goes on."""

from __future__ import annotations

import asyncio
import logging
import uuid
from datetime import timedelta

import pytest

from switchroom.agent import Event, Run
from switchroom.gateway.pressure import Pressure
from switchroom.protocol.errors import TaskNotFound, Unavailable
from switchroom.store import Store
from switchroom.store.commit import StoreUnavailable
from switchroom.store.queue import Backlog
from switchroom.store.scripts import command
from tests.support.house import Gateway, House, message
from tests.support.wait import wait_until

NO_LIMIT = timedelta(0)


class Queue:
    """A queue with this backlog; None: it does not answer."""

    def __init__(self, runs: int = 0, oldest: int = 0) -> None:
        self.is_now: Backlog | None = Backlog(runs, oldest)
        self.looks = 0

    async def backlog(self) -> Backlog:
        self.looks += 1
        if self.is_now is None:
            raise StoreUnavailable()
        return self.is_now


def pressure_of(
    queue: Queue, runs: int = 10, age: float = 0, now: list[float] | None = None
) -> Pressure:
    clock = now or [0.0]
    return Pressure(
        queue,  # type: ignore[arg-type]
        runs=runs,
        age=timedelta(seconds=age),
        clock=lambda: clock[0],
    )


class TestLevel:
    @pytest.mark.parametrize(
        ("runs", "oldest", "limit", "age", "level"),
        [
            (0, 0, 10, 0, 0),
            (9, 99_000, 10, 0, 0.9),
            (10, 1, 10, 0, 1),
            (10, 30_000, 0, 10, 3),
            (5, 30_000, 10, 60, 0.5),
            (5, 30_000, 10, 20, 1.5),
        ],
    )
    async def test_is_the_higher_share_of_the_two_limits(
        self, runs: int, oldest: int, limit: int, age: float, level: float
    ) -> None:
        pressure = pressure_of(Queue(runs, oldest), limit, age)
        await pressure.look()
        assert pressure.level == level

    async def test_is_open_before_the_first_look_and_once_the_last_is_old(self) -> None:
        now = [0.0]
        pressure = pressure_of(Queue(runs=100), now=now)
        assert pressure.level == 0
        await pressure.look()
        now[0] = 2.0
        assert pressure.level == 10
        now[0] = 2.1
        assert pressure.level == 0


class TestWatch:
    async def test_looks_on_while_the_queue_is_silent_and_after(self) -> None:
        queue = Queue(runs=10)
        pressure = pressure_of(queue)
        watch = asyncio.create_task(pressure.watch())
        await wait_until(lambda: pressure.level == 1, what="it has looked")
        queue.is_now, seen = None, queue.looks
        await wait_until(lambda: queue.looks > seen + 1, what="it asks a silent queue again")
        queue.is_now = Backlog(20, 0)
        await wait_until(lambda: pressure.level == 2, what="it sees what is there now")
        watch.cancel()

    async def test_without_limits_there_is_nothing_to_look_for(self) -> None:
        queue = Queue(runs=10)
        await pressure_of(queue, runs=0).watch()
        assert queue.looks == 0

    async def test_what_cannot_be_measured_limits_nothing(
        self, store: Store, caplog: pytest.LogCaptureFixture
    ) -> None:
        await store.queue_commit(command("SET", store.keys.queue.queue, "not a queue"))
        pressure = Pressure(store.queue, runs=1, age=NO_LIMIT)
        await pressure.watch()
        assert pressure.level == 0
        assert "The queue cannot be measured" in caplog.text
        await store.queue_commit(command("DEL", store.keys.queue.queue))

    async def test_says_once_that_work_is_refused_and_once_that_it_is_taken_again(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO, "switchroom.gateway")
        queue = Queue(runs=12, oldest=4000)
        pressure = pressure_of(queue)
        for runs in (12, 15, 9, 0):
            queue.is_now = Backlog(runs, 4000)
            await pressure.look()
        assert caplog.messages == [
            "12 runs wait, the first for 4.0 s: new work is refused",
            "9 runs wait: new work is taken again",
        ]


@pytest.mark.parametrize(
    ("runs", "oldest", "pause"), [(10, 0, 1), (20, 30_000, 15), (11, 400, 1), (100, 3_600_000, 60)]
)
async def test_clients_are_told_to_come_back_when_there_may_be_room(
    runs: int, oldest: int, pause: float
) -> None:
    pressure = pressure_of(Queue(runs, oldest))
    await pressure.look()
    assert pressure.refusal().retry_after == pause


async def agent(run: Run) -> Event:
    return run.ask("Which?") if run.text == "ask" else run.complete(run.text)


async def fill(gateway: Gateway, runs: int) -> None:
    """As many more runs wait as it takes for `runs` of them, and the gateway knows."""
    store = gateway.store
    missing = runs - (await store.queue.backlog()).runs
    await store.queue_commit(*(store.queue.enqueueing(uuid.uuid4().hex, 1) for _ in range(missing)))
    await gateway.handler.pressure.look()


async def every_key(store: Store) -> set[bytes]:
    (keys,) = await store.reads(command("KEYS", "*"))
    return set(keys)


class TestSends:
    async def test_beyond_the_limit_a_new_one_is_refused_and_leaves_nothing(
        self, house: House
    ) -> None:
        gateway = await house.gateway(waiting_limit=3)
        await fill(gateway, 3)
        before = await every_key(gateway.store)
        for method in ("SendMessage", "SendStreamingMessage"):
            with pytest.raises(Unavailable, match="send again later") as refused:
                await gateway.call(method, message("more"))
            assert refused.value.retry_after == 1
        assert await every_key(gateway.store) == before
        assert (await gateway.list())["totalSize"] == 0

    async def test_below_it_all_are_taken(self, house: House) -> None:
        gateway = await house.gateway(waiting_limit=3)
        await fill(gateway, 2)
        await gateway.send("more", returnImmediately=True)

    async def test_a_repeat_passes_up_to_twice_the_limit(self, house: House) -> None:
        gateway = await house.gateway(waiting_limit=3)
        first = message("first", returnImmediately=True)
        task = (await gateway.call("SendMessage", first))["task"]
        await fill(gateway, 4)
        assert (await gateway.call("SendMessage", first))["task"]["id"] == task["id"]
        with pytest.raises(Unavailable):
            await gateway.call("SendMessage", first, caller="bob")
        await fill(gateway, 6)
        with pytest.raises(Unavailable):
            await gateway.call("SendMessage", first)

    async def test_without_a_key_of_its_own_nothing_is_a_repeat_where_keys_make_it(
        self, house: House
    ) -> None:
        gateway = await house.gateway(waiting_limit=3, idempotency="header")
        first = message("first", returnImmediately=True)
        await gateway.call("SendMessage", first)
        keyed = message("keyed", returnImmediately=True)
        task = (await gateway.call("SendMessage", keyed, key="k"))["task"]
        await fill(gateway, 4)
        with pytest.raises(Unavailable):
            await gateway.call("SendMessage", first)
        assert (await gateway.call("SendMessage", keyed, key="k"))["task"]["id"] == task["id"]

    async def test_a_follow_up_passes_up_to_twice_the_limit(self, house: House) -> None:
        gateway = await house.gateway(waiting_limit=3)
        worker = await house.worker(agent)
        one, other = await gateway.send("ask"), await gateway.send("ask")
        await worker.drain()
        await fill(gateway, 4)
        await gateway.send("on", task=one["id"], returnImmediately=True)
        with pytest.raises(TaskNotFound):
            await gateway.send("on", task="absent")
        await fill(gateway, 6)
        with pytest.raises(Unavailable):
            await gateway.send("on", task=other["id"])
        assert await gateway.get(other["id"]) == other

    async def test_all_else_is_answered_however_much_waits(self, house: House) -> None:
        gateway = await house.gateway(waiting_limit=1)
        task_id = (await gateway.send("wait", returnImmediately=True))["id"]
        await fill(gateway, 5)
        assert (await gateway.get(task_id))["id"] == task_id
        assert (await gateway.list())["totalSize"] == 1
        async with gateway.subscribe(task_id) as stream:
            assert (await stream.next()).state == "TASK_STATE_SUBMITTED"
            await gateway.call("CancelTask", {"id": task_id})
            assert (await stream.rest())[-1].state == "TASK_STATE_CANCELED"

    async def test_when_nothing_waits_any_more_all_is_as_before(self, house: House) -> None:
        gateway = await house.gateway(waiting_limit=2)
        waiting = [await gateway.send("wait", returnImmediately=True) for _ in range(2)]
        await gateway.handler.pressure.look()
        with pytest.raises(Unavailable):
            await gateway.send("more")
        await house.worker(agent)
        for task in waiting:
            await house.state(task["id"], "TASK_STATE_COMPLETED")
        await gateway.handler.pressure.look()
        assert (await gateway.send("more"))["status"]["state"] == "TASK_STATE_COMPLETED"

    async def test_how_long_the_first_has_waited_counts_as_well(self, house: House) -> None:
        gateway = await house.gateway(waiting_limit=0, waiting_age=60)
        task = await gateway.send("wait", returnImmediately=True)
        queue = gateway.store.keys.queue.queue
        job, since = f"run:{task['id']}:1", gateway.store.clock.now()
        await gateway.store.queue_commit(command("ZADD", queue, since - 50_000, job))
        await gateway.handler.pressure.look()
        await gateway.send("more", returnImmediately=True)
        await gateway.store.queue_commit(command("ZADD", queue, since - 61_000, job))
        await gateway.handler.pressure.look()
        with pytest.raises(Unavailable):
            await gateway.send("more")
