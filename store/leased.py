"""LeasedWorker: arq's Worker, with a lease.

arq's keys, job format, function registry and health key stay. What changes is one thing: **the
score in the queue is the lease**. Taking work is one script that picks due ids and sets their score
to the end of the lease; a running job renews it; a dead worker's job becomes due by itself. So
there is no reaper, a running job is read by nobody, and recovery takes a lease whatever the job's
length. A pub/sub bell wakes idle workers.

The lease gives liveness only. Safety is the fence of the task, which every append checks.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

from arq.connections import ArqRedis
from arq.constants import in_progress_key_prefix, job_key_prefix
from arq.worker import Worker, func
from redis.exceptions import RedisError

from switchroom.store.commit import GroupCommit, StoreUnavailable, patiently
from switchroom.store.keys import QueueKeys
from switchroom.store.scripts import SCRIPTS, command
from switchroom.store.subscriber import Subscriber

__all__ = ["JobOver", "LeasedJob", "LeasedWorker"]

_log = logging.getLogger("switchroom.worker")
_MOST: Final = 100
"""Jobs taken in one call."""
_IDLE: Final = 1.0
"""Seconds after which an idle worker looks without having heard the bell, if nothing is due before:
a job to be repeated, or one whose worker is dead.
"""
_SETTLE: Final = 1.5
"""Seconds for which nothing is taken after Redis was away. It may know less than it did, and what
looks due may be running: whoever runs it renews first.
"""
_AGAIN: Final = 0.5
"""Seconds after which a renewal that failed is tried again."""
_HEALTH: Final = 10
_TURN: Final = re.compile(r"run:(.+):(\d+)")
"""A job's id. It says all that is needed: what else stands in the job is for arq's own tools."""


@dataclass(eq=False, slots=True)
class LeasedJob:
    """One turn under lease.  new: nobody has had it yet, as far as the queue knows.  held_until: on
    this process's monotonic clock.  ends: the same in the queue's time, epoch ms.  lost: the lease
    is not ours any more.
    """

    job_id: str
    task_id: str
    turn: int
    new: bool
    held_until: float
    ends: int
    begun: tuple[str, Any] | None = None
    lost: bool = False
    task: asyncio.Task[None] | None = field(default=None, repr=False)

    @property
    def left(self) -> float:
        """Seconds of lease left."""
        return self.held_until - time.monotonic()


@dataclass(frozen=True, slots=True)
class JobOver:
    """How a job leaves the worker.  again: None for done, else put back, due after this many
    seconds, before the waiting ones.
    """

    again: float | None = None


class LeasedWorker(Worker):
    """Takes turns from one queue and hands each to `handler` as a task of its own.

    blob: makes the job of a turn, as arq keeps it.  leases: a lane of its own, so that no large
    event holds up a renewal.  on_renewed: called after each renewal with the jobs still held, and
    with those the queue has forgotten (emptied, failed over), which `put_back` can write anew.
    """

    def __init__(
        self,
        handler: Callable[[LeasedJob], Awaitable[JobOver]],
        *,
        function: str,
        blob: Callable[[str, int], bytes],
        pool: ArqRedis,
        commit: GroupCommit,
        leases: GroupCommit,
        keys: QueueKeys,
        subscriber: Subscriber,
        lease: timedelta,
        concurrency: int,
        on_renewed: Callable[[Sequence[LeasedJob], Sequence[LeasedJob]], Awaitable[None]],
        job_ttl: int,
        begins: str | None,
    ) -> None:
        self._token = uuid.uuid4().hex

        async def run(ctx: dict[Any, Any], task_id: str, turn: int) -> JobOver:
            return await handler(ctx["job"])

        super().__init__(
            [func(run, name=function)],
            queue_name=keys.queue,
            redis_pool=pool,
            handle_signals=False,
            max_jobs=concurrency,
            keep_result=0,
            job_serializer=pool.job_serializer,
            job_deserializer=pool.job_deserializer,
            health_check_key=keys.health(self._token),
            health_check_interval=_HEALTH,
            log_results=False,
        )
        self._function = function
        self._blob = blob
        self._commit = commit
        self._leases = leases
        self._keys = keys
        self._subscriber = subscriber
        self._lease = lease.total_seconds()
        self._lease_ms = round(self._lease * 1000)
        self._on_renewed = on_renewed
        self._job_ttl = job_ttl
        self._begins = begins
        self._wake = asyncio.Event()
        self._returned = asyncio.Event()
        self._doubtful = False
        self._taking = asyncio.Lock()
        self.owned: dict[str, LeasedJob] = {}
        """Jobs under our lease, by job id. Empty when the worker has stopped."""

    # -- life

    async def main(self) -> None:
        """Works until cancelled. Survives any outage of Redis."""
        self._subscriber.on_gap(self._wake.set)
        self._subscriber.on_gap(self._returned.set)
        while True:
            with contextlib.suppress(StoreUnavailable):
                await self._subscriber.subscribe(self._keys.bell, lambda _: self._wake.set())
                break
        async with asyncio.TaskGroup() as group:
            group.create_task(self._renew_leases())
            group.create_task(self._poll_iteration())

    async def drain(self, patience: timedelta) -> None:
        """Takes no new work and returns when what runs has ended, or patience has."""
        self.allow_pick_jobs = False
        async with self._taking:  # what is on its way to us is ours to finish, too
            pass
        running = [job.task for job in self.owned.values() if job.task is not None]
        if running:
            await asyncio.wait(running, timeout=patience.total_seconds())

    async def close(self) -> None:
        """After `main` was cancelled: leaves nothing behind."""
        self._subscriber.unsubscribe(self._keys.bell)
        with contextlib.suppress(RedisError, OSError):
            await self.pool.delete(self.health_check_key)

    # -- taking

    async def _poll_iteration(self) -> None:
        """Replaces arq's poll: returns only when cancelled."""
        me, losses = asyncio.current_task(), self._commit.losses
        # Before Python 3.12, redis-py's use of `asyncio.wait_for` can swallow a cancellation.
        while me is not None and not me.cancelling():
            free = min(self.max_jobs - len(self.owned), _MOST)
            got, idle = 0, _IDLE
            try:
                if losses != self._commit.losses:
                    losses = await self._settle()
                async with self._taking:
                    if self.allow_pick_jobs and free > 0:
                        got, idle = await self._take(free)
                with contextlib.suppress(RedisError, OSError):
                    await self.record_health()
            except StoreUnavailable as error:
                _log.debug("cannot take work: %r", error)
                losses = -1
                continue
            except Exception:
                _log.exception("cannot take work, and tries again")
                await asyncio.sleep(1.0)
                continue
            if got and got == free:
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(idle):
                    await self._wake.wait()
            self._wake.clear()

    async def _settle(self) -> int:
        """Waits until Redis is back, and has heard from those who hold a lease. -> the connections
        lost by then
        """
        await patiently(lambda: self._commit(command("PING")))
        losses = self._commit.losses
        await asyncio.sleep(min(_SETTLE, self._lease / 2))
        self._doubtful = True
        return losses

    async def _take(self, limit: int) -> tuple[int, float]:
        """Takes what is due. -> how many, and seconds for which there is nothing more to take."""
        self._wake.clear()
        asked, seed = time.monotonic(), uuid.uuid4().hex[:12]
        (answer,) = await self._commit(
            SCRIPTS.take(
                [self._keys.queue, self._keys.running],
                self._lease_ms,
                limit,
                self._token,
                job_key_prefix,
                in_progress_key_prefix,
                *((self._begins, seed, *self._lapsing()) if self._begins else ()),
            )
        )
        self._doubtful = False
        found = answer[2]
        for n, (raw_id, new, begun) in enumerate(
            zip(found[::3], found[1::3], found[2::3], strict=True)
        ):
            job_id = raw_id.decode(errors="replace")
            if (named := _TURN.fullmatch(job_id)) is None or job_id.encode() != raw_id:
                _log.error("the job %r is not one of ours; dropped", raw_id)
                self._commit.soon(
                    command("ZREM", self._keys.queue, raw_id),
                    command("ZREM", self._keys.running, raw_id),
                    *(
                        command("DEL", prefix.encode() + raw_id)
                        for prefix in (job_key_prefix, in_progress_key_prefix)
                    ),
                )
                continue
            if (mine := self.owned.get(job_id)) is not None:
                # It had lapsed, and nobody was faster. If its run was told so already, it gives the
                # job back when it has ended.
                self._hold(mine, asked, answer[1])
                mine.lost = False
                continue
            job = LeasedJob(job_id, named[1], int(named[2]), new == b"1", 0.0, 0)
            self._hold(job, asked, answer[1])
            if begun is not None:
                job.begun = f"{seed}{limit - n}", begun
            self.owned[job_id] = job
            job.task = asyncio.get_running_loop().create_task(self._work(job))
        next_due = answer[3]
        return len(found) // 3, _IDLE if next_due < 0 else min(next_due / 1000, _IDLE)

    def _lapsing(self) -> list[str]:
        """Our jobs whose lease may be over by now: should we take them again, they go on as they
        are, and a begin would fence them out. After an outage it may be any of them.
        """
        return [
            job.job_id
            for job in self.owned.values()
            if self._doubtful or job.left < self._lease / 3
        ]

    async def _work(self, job: LeasedJob) -> None:
        over = JobOver(again=0.0)
        try:
            over = await self.functions[self._function].coroutine(
                {**self.ctx, "job": job}, job.task_id, job.turn
            )
            self.jobs_complete += 1
        except asyncio.CancelledError:
            pass
        except Exception:
            self.jobs_failed += 1
            _log.exception("task %s: its run broke off", job.task_id)
            over = JobOver(again=1.0)
        finally:
            self.owned.pop(job.job_id, None)
            self._wake.set()
            if not job.lost:
                self._finish(job, over)

    def _finish(self, job: LeasedJob, over: JobOver) -> None:
        # Should this be lost, the lease lapses and `begin` finds the turn over.
        self._commit.soon(
            SCRIPTS.finish(
                self._keys_of(job),
                job.job_id,
                self._token,
                "" if over.again is None else round(over.again * 1000),
                self._keys.bell,
            )
        )

    def _keys_of(self, job: LeasedJob) -> list[str]:
        return [
            self._keys.queue,
            self._keys.running,
            job_key_prefix + job.job_id,
            in_progress_key_prefix + job.job_id,
        ]

    # -- renewing

    def _hold(self, job: LeasedJob, asked: float, at: int) -> None:
        """A script that was asked for at `asked` has given us the lease at `at`, queue's time."""
        job.held_until, job.ends = asked + self._lease, at + self._lease_ms

    async def _renew_leases(self) -> None:
        pause = self._lease / 3
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._returned.wait()
            self._returned.clear()
            pause = self._lease / 3
            jobs = list(self.owned.values())
            if not jobs:
                continue
            asked = time.monotonic()
            try:
                async with asyncio.timeout(self._lease / 3):
                    (answer,) = await self._leases(
                        SCRIPTS.renew(
                            [self._keys.queue, self._keys.running],
                            self._lease_ms,
                            self._token,
                            in_progress_key_prefix,
                            job_key_prefix,
                            *(word for job in jobs for word in (job.job_id, job.ends)),
                        )
                    )
            except (StoreUnavailable, RedisError, TimeoutError) as error:
                _log.debug("cannot renew: %r", error)
                # Ownership cannot be proved any more: stop before somebody else may start.
                for job in jobs:
                    if job.left <= 0:
                        self.lose(job)
                pause = min(pause, _AGAIN)
                continue
            held, gone = [], []
            for job, word in zip(jobs, answer[2], strict=True):
                if self.owned.get(job.job_id) is not job:
                    continue
                if word == b"held":
                    self._hold(job, asked, answer[1])
                    held.append(job)
                elif word == b"gone":
                    gone.append(job)
                elif job.left <= 0:
                    self.lose(job)
                else:
                    # Nobody can have it so early, unless the queue has lost its memory. Whoever it
                    # was given to may leave it again, as a turn that runs; the fence tells.
                    held.append(job)
            try:
                await self._on_renewed(held, gone)
            except Exception:
                _log.exception("what a renewal has shown cannot be dealt with")

    async def put_back(self, job: LeasedJob) -> None:
        """Writes a forgotten job anew, under our lease; loses it if another has it by now."""
        asked = time.monotonic()
        write = SCRIPTS.putback(
            self._keys_of(job),
            job.job_id,
            self._blob(job.task_id, job.turn),
            self._job_ttl,
            self._lease_ms,
            self._token,
        )
        try:
            (answer,) = await self._leases(write)
        except StoreUnavailable:
            return  # away again: the next renewal finds it gone again
        if answer[0] == b"held":
            self._hold(job, asked, answer[1])
        else:
            self.lose(job)

    def lose(self, job: LeasedJob) -> None:
        """The lease is another's, or may be: the handler is cancelled and writes nothing to the
        queue.
        """
        if not job.lost:
            job.lost = True
            _log.warning("task %s: lease lost", job.task_id)
            if job.task is not None:
                job.task.cancel()
