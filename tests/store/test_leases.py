"""LeasedWorker: takes work, keeps it by its lease, loses it with it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from arq.constants import in_progress_key_prefix, job_key_prefix

from switchroom.settings import Settings
from switchroom.store import Store, leased
from switchroom.store.commit import StoreUnavailable
from switchroom.store.leased import JobOver, LeasedJob, LeasedWorker
from switchroom.store.scripts import command
from tests.support.acts import listed, new_id, new_task, settled, view_of_task
from tests.support.redis import running_server
from tests.support.wait import wait_until

FOR_EVER = 3_600.0
on_a_real_server = pytest.mark.parametrize(
    "store_url",
    [pytest.param("redis-server", marks=pytest.mark.requires("redis-server"))],
    indirect=True,
)
Handler = Callable[[LeasedJob], Awaitable[JobOver]]
Renewed = Callable[[Sequence[LeasedJob], Sequence[LeasedJob]], Awaitable[None]]


@pytest.fixture(autouse=True)
def only_the_bell_wakes(monkeypatch: pytest.MonkeyPatch) -> None:
    """An idle worker looks by itself now and then; here it must not, or it would hide a bell that
    does not ring.
    """
    monkeypatch.setattr(leased, "_IDLE", FOR_EVER)


class Work:
    """A handler that a test steers, and what it was given."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.jobs: list[LeasedJob] = []
        self.cancelled: list[str] = []
        self.over = JobOver()
        self.hold = asyncio.Event()
        self.hold.set()
        self.worker: LeasedWorker
        self.renewals: list[tuple[list[str], list[str]]] = []
        self.put_back = False

    async def __call__(self, job: LeasedJob) -> JobOver:
        self.jobs.append(job)
        try:
            await self.hold.wait()
        except asyncio.CancelledError:
            self.cancelled.append(job.task_id)
            raise
        return self.over

    async def renewed(self, held: Sequence[LeasedJob], gone: Sequence[LeasedJob]) -> None:
        self.renewals.append(([j.task_id for j in held], [j.task_id for j in gone]))
        if self.put_back:
            for job in gone:
                await self.worker.put_back(job)

    @property
    def tasks(self) -> list[str]:
        return [job.task_id for job in self.jobs]

    async def began(self, count: int = 1) -> None:
        await wait_until(lambda: len(self.jobs) >= count, what=f"{count} jobs have begun")

    async def idle(self) -> None:
        await wait_until(lambda: not self.worker.owned, what="the worker holds nothing")
        await settled(self.store)


@asynccontextmanager
async def working(
    store: Store,
    *,
    lease: float = FOR_EVER,
    concurrency: int = 10,
    handler: Handler | None = None,
    hold: bool = False,
    **options: Any,
) -> AsyncIterator[Work]:
    """A worker at work. At the end it must have let go of all it held."""
    work = Work(store)
    if hold:
        work.hold.clear()
    work.worker = store.queue.worker(
        handler or work,
        subscriber=store.queue_subscriber,
        lease=timedelta(seconds=lease),
        concurrency=concurrency,
        on_renewed=work.renewed,
        **options,
    )
    main = asyncio.create_task(work.worker.main())
    try:
        yield work
        assert not main.done(), "the worker stopped"
    finally:
        work.hold.set()
        await work.worker.drain(timedelta(seconds=20))
        main.cancel()
        await asyncio.wait([main])
        await work.worker.close()
        assert work.worker.owned == {}
    await settled(store)


async def lapse(store: Store, task_id: str) -> None:
    keys, job = store.keys.queue, f"run:{task_id}:1"
    await store.queue_commit(
        command("ZADD", keys.queue, "XX", 1, job),
        command("ZADD", keys.running, "XX", 1, job),
        command("DEL", in_progress_key_prefix + job),
        command("PUBLISH", keys.bell, "1"),
    )


async def taken_by_another(store: Store, task_id: str) -> str:
    """Another worker has the job, for a minute; returns the key that says so."""
    keys, job = store.keys.queue, f"run:{task_id}:1"
    key, ends = in_progress_key_prefix + job, store.queue_clock.now() + 60_000
    await store.queue_commit(
        command("SET", key, "another", "PX", 60_000),
        command("ZADD", keys.queue, ends, job),
        command("ZADD", keys.running, ends, job),
    )
    return key


async def nothing_left(store: Store) -> bool:
    (names,) = await store.queue_commit(command("KEYS", "*"))
    left = {name.decode() for name in names} - {store.keys.cursor_secret}
    return not left


class TestWork:
    async def test_a_job_is_done_and_leaves_nothing(self, store: Store) -> None:
        task_id = new_id()
        async with working(store) as work:
            await store.queue.enqueue(task_id, 2)
            await work.began()
            (job,) = work.jobs
            assert (job.task_id, job.turn, job.lost) == (task_id, 2, False)
            assert 0 < job.left <= FOR_EVER
            await work.idle()
        assert await nothing_left(store)

    async def test_what_waited_before_it_came_is_done_too(self, store: Store) -> None:
        made = {new_id() for _ in range(250)}
        for task_id in made:
            await store.queue.enqueue(task_id, 1)
        async with working(store, concurrency=30) as work:
            await work.began(250)
            assert set(work.tasks) == made and len(work.tasks) == 250
            await work.idle()
        assert await nothing_left(store)

    async def test_the_bell_wakes_it_each_time(self, store: Store) -> None:
        async with working(store) as work:
            for count in range(1, 20):
                await store.queue.enqueue(new_id(), 1)
                await work.began(count)
                await work.idle()

    async def test_no_more_at_once_than_it_may(self, store: Store) -> None:
        async with working(store, concurrency=3, hold=True) as work:
            for _ in range(7):
                await store.queue.enqueue(new_id(), 1)
            await work.began(3)
            assert len(work.worker.owned) == 3
            assert await store.queue.depth() == 7
            assert len(await listed(store, store.keys.queue.running)) == 3
            work.hold.set()
            await work.began(7)

    async def test_two_workers_share_and_never_the_same_job(
        self, store: Store, settings: Settings
    ) -> None:
        other = await Store.open(settings)
        async with working(store, concurrency=5) as one, working(other, concurrency=5) as two:
            for _ in range(100):
                await store.queue.enqueue(new_id(), 1)
            await wait_until(lambda: len(one.jobs) + len(two.jobs) >= 100, what="all have begun")
            assert len({*one.tasks, *two.tasks}) == 100
            assert len(one.jobs) + len(two.jobs) == 100
        await other.close()
        assert await nothing_left(store)

    async def test_a_job_may_come_back(self, store: Store) -> None:
        async with working(store) as work:
            work.over = JobOver(again=0.0)
            await store.queue.enqueue(new_id(), 1)
            await work.began(3)
            work.over = JobOver()
            await wait_until(lambda: nothing_but_health(store), what="it is done")
        assert len(set(work.tasks)) == 1

    async def test_or_later_and_before_whoever_waits(self, store: Store) -> None:
        first, second = new_id(), new_id()
        async with working(store, concurrency=1) as work:
            work.over = JobOver(again=600.0)
            await store.queue.enqueue(first, 1)
            await work.began()
            await work.idle()
            work.hold.clear()
            work.over = JobOver()
            await store.queue.enqueue(new_id(), 1)
            await work.began(2)
            await store.queue.enqueue(second, 1)
            await lapse(store, first)
            work.hold.set()
            await work.began(4)
            assert work.tasks[2:] == [first, second]

    async def test_when_its_time_comes_no_bell_is_needed(self, store: Store) -> None:
        """A job to be repeated, and one whose worker is dead."""
        task_id = new_id()
        async with working(store) as work:
            work.over = JobOver(again=0.05)
            await store.queue.enqueue(task_id, 1)
            await work.began(3)
            work.over = JobOver()
            await wait_until(lambda: nothing_but_health(store), what="it is done")
            lapsing, later = f"run:{new_id()}:1", store.queue_clock.now() + 100
            await store.queue_commit(
                command("SET", job_key_prefix + lapsing, b"{}", "PX", 60_000),
                command("ZADD", store.keys.queue.queue, later, lapsing),
                command("ZADD", store.keys.queue.running, later, lapsing),
                command("PUBLISH", store.keys.queue.bell, "1"),  # before its time
            )
            await wait_until(lambda: lapsing in {job.job_id for job in work.jobs}, what="taken")

    async def test_one_that_breaks_off_comes_back_after_a_while(
        self, store: Store, caplog: pytest.LogCaptureFixture
    ) -> None:
        task_id = new_id()

        async def fail(job: LeasedJob) -> JobOver:
            raise RuntimeError("no")

        async with working(store, handler=fail) as work:
            await store.queue.enqueue(task_id, 1)
            await wait_until(lambda: work.worker.jobs_failed, what="it has failed")
            await work.idle()
            (due,) = (await listed(store, store.keys.queue.running)).values()
            assert due > store.queue_clock.now()
            assert await store.queue.is_queued([(task_id, 1)]) == [True]
        assert f"task {task_id}: its run broke off" in caplog.text
        await store.queue_commit(command("DEL", job_key_prefix + f"run:{task_id}:1"))

    async def test_a_job_that_is_none_of_ours_is_dropped(
        self, store: Store, caplog: pytest.LogCaptureFixture
    ) -> None:
        good = new_id()
        async with working(store) as work:
            for name in (b"other", b"run:x", b"run::1", b"run:x:one", b"run:\xff:1"):
                await queue_blob(store, name, b'{"a":["x",1],"f":"run"}')
            await store.queue_commit(command("PUBLISH", store.keys.queue.bell, "1"))
            await store.queue.enqueue(good, 1)
            await work.began()
            await work.idle()
            assert work.tasks == [good]
            await wait_until(lambda: nothing_but_health(store), what="they are gone")
        assert caplog.text.count("not one of ours") == 5

    @pytest.mark.parametrize("blob", [b"", b"not json", b'{"a":["other",7],"f":"g"}', b"\xff\x00"])
    async def test_a_turns_job_is_done_whatever_stands_in_it(
        self, store: Store, blob: bytes
    ) -> None:
        """Its id says which turn it is."""
        task_id = new_id()
        async with working(store) as work:
            await queue_blob(store, f"run:{task_id}:3".encode(), blob)
            await store.queue_commit(command("PUBLISH", store.keys.queue.bell, "1"))
            await work.began()
            assert (work.jobs[0].task_id, work.jobs[0].turn) == (task_id, 3)
            await wait_until(lambda: nothing_but_health(store), what="it is done")


async def queue_blob(store: Store, name: bytes, blob: bytes) -> None:
    """A job that somebody else made."""
    await store.queue_commit(
        command("SET", job_key_prefix.encode() + name, blob, "PX", 60_000),
        command("ZADD", store.keys.queue.queue, 1, name),
    )


async def nothing_but_health(store: Store) -> bool:
    (names,) = await store.queue_commit(command("KEYS", "*"))
    left = {name.decode(errors="replace") for name in names} - {store.keys.cursor_secret}
    return all(":health:" in name for name in left)


class TestRenewal:
    async def test_a_run_longer_than_its_lease_keeps_it(
        self, store: Store, settings: Settings
    ) -> None:
        other = await Store.open(settings)
        async with working(store, lease=0.9, hold=True) as work:
            task_id = new_id()
            await store.queue.enqueue(task_id, 1)
            await work.began()
            async with working(other) as idle:
                await wait_until(lambda: len(work.renewals) >= 4, what="it was renewed four times")
                assert idle.jobs == []
                assert work.renewals[0] == ([task_id], [])
        await other.close()

    async def test_a_dead_workers_job_goes_to_another(
        self, store: Store, settings: Settings
    ) -> None:
        task_id = new_id()
        dead = await Store.open(settings)
        worker = dead.queue.worker(
            Work(dead),
            subscriber=dead.queue_subscriber,
            lease=timedelta(seconds=FOR_EVER),
            concurrency=1,
            on_renewed=Work(dead).renewed,
        )
        await dead.queue.enqueue(task_id, 1)
        assert (await worker._take(1))[0] == 1
        for job in tuple(worker.owned.values()):
            job.lost = True  # it is dead: it gives nothing back
            assert job.task is not None
            await job.task
        async with working(store) as work:
            await lapse(store, task_id)
            await work.began()
            assert work.tasks == [task_id]
        await dead.close()

    async def test_who_slept_past_it_and_lost_it_stops_and_writes_nothing(
        self, store: Store
    ) -> None:
        task_id = new_id()
        async with working(store, lease=0.3, hold=True) as work:
            await store.queue.enqueue(task_id, 1)
            await work.began()
            key = await taken_by_another(store, task_id)
            await wait_until(lambda: work.cancelled, what="it was told")
            await work.idle()
            assert work.cancelled == [task_id] and work.jobs[0].lost
            assert await store.queue.is_queued([(task_id, 1)]) == [True]
            (held,) = await store.queue_commit(command("GET", key))
            assert held == b"another"
            await store.queue_commit(command("DEL", key, job_key_prefix + f"run:{task_id}:1"))

    async def test_while_its_lease_lasts_another_that_has_it_costs_nothing_but_a_look(
        self, store: Store
    ) -> None:
        """The queue forgot the job, it was queued anew, and another worker is about to see that it
        runs.
        """
        task_id = new_id()
        async with working(store, lease=3, hold=True) as work:
            await store.queue.enqueue(task_id, 1)
            await work.began()
            key = await taken_by_another(store, task_id)
            held = ([task_id], list[str]())
            await wait_until(lambda: work.renewals == [held], what="the owner was made to look")
            await store.queue_commit(command("DEL", key, job_key_prefix + f"run:{task_id}:1"))
            work.put_back = True
            await wait_until(lambda: len(work.renewals) >= 3, what="it has it again")
            assert work.renewals[-2:] == [([], [task_id]), held]
            assert work.cancelled == [] and len(work.jobs) == 1

    async def test_a_queue_that_went_back_in_time_takes_nothing_from_its_owner(
        self, store: Store
    ) -> None:
        """It was restored from a save in which the lease was an earlier one, and has lapsed."""
        task_id = new_id()
        async with working(store, lease=1.5, hold=True) as work:
            await store.queue.enqueue(task_id, 1)
            await work.began()
            work.worker.allow_pick_jobs = False
            await lapse(store, task_id)
            await wait_until(lambda: len(work.renewals) >= 2, what="it was renewed twice")
            assert work.renewals[0] == ([task_id], []) and work.cancelled == []

    async def test_when_the_queue_has_forgotten_it_the_owner_may_put_it_back(
        self, store: Store
    ) -> None:
        task_id = new_id()
        async with working(store, lease=0.3, hold=True) as work:
            work.put_back = True
            await store.queue.enqueue(task_id, 1)
            await work.began()
            await store.queue_commit(command("FLUSHALL"))
            await wait_until(
                lambda: ([], [task_id]) in work.renewals and work.renewals[-1][0],
                what="it was put back and is held again",
            )
            assert await store.queue.is_queued([(task_id, 1)]) == [True]
            assert work.cancelled == [] and len(work.jobs) == 1

    async def test_unless_another_was_faster(self, store: Store) -> None:
        task_id = new_id()
        async with working(store, lease=FOR_EVER, hold=True) as work:
            await store.queue.enqueue(task_id, 1)
            await work.began()
            key = await taken_by_another(store, task_id)
            await work.worker.put_back(work.jobs[0])
            await work.idle()
            assert work.cancelled == [task_id]
            await store.queue_commit(command("DEL", key, job_key_prefix + f"run:{task_id}:1"))

    async def test_when_redis_is_away_it_stops_once_its_lease_is_over(self, store: Store) -> None:
        """And not before: another cannot have begun."""
        task_id = new_id()
        async with working(store, lease=0.3, hold=True) as work:
            await store.queue.enqueue(task_id, 1)
            await work.began()
            lanes = (store.leases, store.queue_commit)
            send = [lane._pipeline for lane in lanes]

            async def away(calls: object) -> list[Any]:
                raise ConnectionError

            for lane in lanes:
                lane._pipeline = away  # type: ignore[method-assign, assignment]
            left = []
            job, lose = work.jobs[0], work.worker.lose
            work.worker.lose = lambda job: (left.append(job.left), lose(job))[1]  # type: ignore[method-assign, func-returns-value]
            await wait_until(lambda: work.cancelled, what="it was told")
            assert job.lost and left[0] <= 0
            for lane, pipeline in zip(lanes, send, strict=True):
                lane._pipeline = pipeline  # type: ignore[method-assign]
            await store.queue_commit(
                command("DEL", job_key_prefix + job.job_id, in_progress_key_prefix + job.job_id)
            )

    async def test_a_short_absence_changes_nothing(self, store: Store) -> None:
        task_id = new_id()
        async with working(store, lease=1.5, hold=True) as work:
            await store.queue.enqueue(task_id, 1)
            await work.began()
            send, tries = store.leases._pipeline, list[int]()

            async def away_once(calls: Any) -> list[Any]:
                tries.append(1)
                if len(tries) == 1:
                    raise ConnectionError
                return await send(calls)

            store.leases._pipeline = away_once  # type: ignore[method-assign]
            await wait_until(lambda: len(work.renewals) >= 2, what="it was renewed twice")
            store.leases._pipeline = send  # type: ignore[method-assign]
            assert work.cancelled == []

    @on_a_real_server
    async def test_with_the_memory_full_leases_are_renewed_and_jobs_let_go(
        self, store: Store
    ) -> None:
        task_id = new_id()
        async with working(store, lease=1.5, hold=True) as work:
            await store.queue.enqueue(task_id, 1)
            await work.began()
            await store.queue_commit(command("CONFIG", "SET", "maxmemory", 1))
            try:
                before = len(work.renewals)
                held = ([task_id], list[str]())
                await wait_until(lambda: work.renewals[before + 3 :], what="it was renewed")
                assert all(seen == held for seen in work.renewals) and work.cancelled == []
                work.hold.set()
                await wait_until(lambda: nothing_but_health(store), what="its job is let go")
            finally:
                await store.queue_commit(command("CONFIG", "SET", "maxmemory", 0))

    async def test_after_an_outage_owners_are_heard_before_anybody_takes(
        self, store: Store, settings: Settings
    ) -> None:
        """Redis came back as it was long ago: a run in good health looks lapsed."""
        task_id = new_id()
        async with working(store, lease=3, hold=True) as owner:
            await store.queue.enqueue(task_id, 1)
            await owner.began()
            other = await Store.open(settings)
            try:
                async with working(other, lease=3) as idle:
                    await wait_until(lambda: other.queue_commit.round_trips, what="it looks")
                    for lane in (other.queue_commit, store.queue_commit):
                        assert lane._connection is not None
                        await lane._connection.disconnect(nowait=True)
                        lane._losses += 1
                    await lapse(store, task_id)
                    await wait_until(lambda: owner.renewals, what="its owner has renewed it")
                    assert owner.renewals[0] == ([task_id], []) and idle.jobs == []
            finally:
                await other.close()

    async def test_who_takes_its_own_lapsed_job_goes_on_with_it(self, store: Store) -> None:
        """Its event loop stood still for longer than the lease, and nobody was faster."""
        task_id = await new_task(store)
        async with working(store, hold=True, begins=store.keys.task("%s")) as work:
            await store.queue.enqueue(task_id, 1)
            await work.began()
            before = await view_of_task(store, task_id)
            work.jobs[0].held_until = 0.0
            await lapse(store, task_id)
            key = in_progress_key_prefix + f"run:{task_id}:1"

            async def taken() -> bool:
                return (await store.queue_commit(command("EXISTS", key)))[0] == 1

            await wait_until(taken, what="it has taken its own job")
            assert len(work.jobs) == 1 and work.cancelled == []
            after = await view_of_task(store, task_id)
            assert (after.attempt, after.running) == (before.attempt, before.running)


class TestStopping:
    async def test_draining_takes_no_more_and_waits_for_what_runs(self, store: Store) -> None:
        async with working(store, hold=True) as work:
            await store.queue.enqueue(new_id(), 1)
            await work.began()
            draining = asyncio.create_task(work.worker.drain(timedelta(seconds=20)))
            await wait_until(lambda: not work.worker.allow_pick_jobs, what="it drains")
            late = new_id()
            await store.queue.enqueue(late, 1)
            assert not draining.done()
            work.hold.set()
            await draining
            assert len(work.jobs) == 1
            assert await store.queue.is_queued([(late, 1)]) == [True]
        await store.queue_commit(command("DEL", job_key_prefix + f"run:{late}:1"))

    async def test_patience_has_an_end(self, store: Store) -> None:
        async with working(store, hold=True) as work:
            await store.queue.enqueue(new_id(), 1)
            await work.began()
            await work.worker.drain(timedelta(milliseconds=1))
            assert len(work.worker.owned) == 1

    async def test_a_handler_that_is_cancelled_gives_its_job_back(self, store: Store) -> None:
        task_id = new_id()
        async with working(store, hold=True) as work:
            await store.queue.enqueue(task_id, 1)
            await work.began()
            work.worker.allow_pick_jobs = False
            task = work.jobs[0].task
            assert task is not None
            task.cancel()
            await work.idle()
            (due,) = (await listed(store, store.keys.queue.running)).values()
            assert due <= store.queue_clock.now() + 1_000
        await store.queue_commit(command("DEL", job_key_prefix + f"run:{task_id}:1"))

    async def test_what_it_gives_back_another_takes_at_once(
        self, store: Store, settings: Settings
    ) -> None:
        """The bell rings: no poll is waited for."""
        other, task_id = await Store.open(settings), new_id()
        async with working(store, hold=True) as one:
            await store.queue.enqueue(task_id, 1)
            await one.began()
            async with working(other) as two:
                one.worker.allow_pick_jobs = False
                task = one.jobs[0].task
                assert task is not None
                task.cancel()
                await two.began()
                assert (two.tasks, one.cancelled) == ([task_id], [task_id])
        await other.close()

    async def test_it_leaves_no_sign_of_health(self, store: Store) -> None:
        async with working(store) as work:
            key = work.worker.health_check_key

            async def healthy() -> bool:
                return (await store.queue_commit(command("PTTL", key)))[0] > 0

            await wait_until(healthy, what="it says that it is well")
        assert await nothing_left(store)


async def test_it_survives_a_fault_of_its_own(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    async with working(store) as work:
        keys = store.keys.queue
        await store.queue_commit(
            command("SET", keys.running, "no list"), command("PUBLISH", keys.bell, "1")
        )
        await wait_until(lambda: "cannot take work" in caplog.text, what="it was told")
        await store.queue_commit(command("DEL", keys.running))
        task_id = new_id()
        await store.queue.enqueue(task_id, 1)
        await work.began()
        assert work.tasks == [task_id]
    assert "WRONGTYPE" in caplog.text


@pytest.mark.requires("redis-server")
async def test_it_survives_a_restart_of_redis(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "switchroom.store")
    with running_server(tmp_path) as url:
        store = await Store.open(Settings(redis_url=url))
        context = working(store, lease=0.6)
        work = await context.__aenter__()
        await store.queue.enqueue(new_id(), 1)
        await work.began(1)
        await work.idle()
    with pytest.raises(StoreUnavailable):
        await store.queue.depth()
    with running_server(tmp_path, port=int(url.rpartition(":")[2])):
        for count in (2, 3):

            async def enqueued(task_id: str) -> bool:
                try:
                    await store.queue.enqueue(task_id, 1)
                except StoreUnavailable:
                    return False
                return True

            task_id = new_id()
            await wait_until(lambda: enqueued(task_id), what="Redis is back")  # noqa: B023
            await work.began(count)
            assert work.tasks[-1] == task_id
        await work.idle()
        await context.__aexit__(None, None, None)
        await store.close()
