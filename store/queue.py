"""RunQueue: runs that wait for a worker. All that the rest knows of arq.

One queue per agent's name. A job holds only ids; everything else about a run is in the task.
Enqueueing is idempotent per turn, and may be repeated by anyone: a job whose turn is over ends
at `begin`.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any, Final, NamedTuple

from arq.connections import ArqRedis
from arq.constants import job_key_prefix
from arq.jobs import serialize_job
from redis.asyncio import Redis

from switchroom.store.commit import Clock, GroupCommit
from switchroom.store.keys import QueueKeys
from switchroom.store.leased import JobOver, LeasedJob, LeasedWorker
from switchroom.store.scripts import SCRIPTS, Call, command
from switchroom.store.subscriber import Subscriber

__all__ = ["Backlog", "RunQueue"]

_JOB_TTL: Final = round(timedelta(days=30) / timedelta(milliseconds=1))
_FUNCTION: Final = "run"


def _job_id(task_id: str, turn: int) -> str:
    return f"run:{task_id}:{turn}"


def _dumps(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


class Backlog(NamedTuple):
    """What waits for a worker.  runs: due, and in nobody's hands.  oldest: ms that the first of
    them has waited; 0 if there is none.
    """

    runs: int
    oldest: int


class RunQueue:
    """The queue of one agent's name.

    with_store: whether the queue is on the tasks' own Redis, so that its calls can ride in their
    pipelines.
    """

    def __init__(
        self,
        redis: Redis,
        commit: GroupCommit,
        *,
        leases: GroupCommit,
        keys: QueueKeys,
        clock: Clock,
        with_store: bool,
    ) -> None:
        self._redis = redis
        self._commit = commit
        self._leases = leases
        self._keys = keys
        self._clock = clock
        self.with_store = with_store

    def enqueueing(self, task_id: str, turn: int, *, begun: bool = False) -> Call:
        """Puts a turn into the queue, once, and rings the bell.

        begun: a worker has had it, and is known not to have it any more. Without it, a turn that
        runs is left to its worker.
        """
        job_id = _job_id(task_id, turn)
        keys = [self._keys.queue, job_key_prefix + job_id]
        if begun:
            keys.append(self._keys.running)
        return SCRIPTS.enqueue(keys, job_id, self._blob(task_id, turn), _JOB_TTL, self._keys.bell)

    async def enqueue(self, task_id: str, turn: int, *, begun: bool = False) -> None:
        """Raises StoreUnavailable."""
        await self._commit(self.enqueueing(task_id, turn, begun=begun))

    def _blob(self, task_id: str, turn: int) -> bytes:
        return serialize_job(
            _FUNCTION, (task_id, turn), {}, None, self._clock.now(), serializer=_dumps
        )

    async def depth(self) -> int:
        """Runs waiting and running: the figure to scale workers by."""
        (size,) = await self._commit(command("ZCARD", self._keys.queue))
        return int(size)

    async def backlog(self) -> Backlog:
        """How far the workers are behind, by the queue's own clock; in one round trip, whose cost
        does not depend on how much waits. Raises StoreUnavailable.
        """
        (answer,) = await self._commit(SCRIPTS.backlog([self._keys.queue]))
        return Backlog(answer[2], answer[3])

    async def is_queued(self, turns: Sequence[tuple[str, int]]) -> list[bool]:
        """For each (task id, turn) whether the queue knows of it, waiting or running."""
        if not turns:
            return []
        found = await self._commit(
            *(command("ZSCORE", self._keys.queue, _job_id(*turn)) for turn in turns),
            *(command("EXISTS", job_key_prefix + _job_id(*turn)) for turn in turns),
        )
        half = len(turns)
        return [
            score is not None and blob == 1
            for score, blob in zip(found[:half], found[half:], strict=True)
        ]

    def worker(
        self,
        handler: Callable[[LeasedJob], Awaitable[JobOver]],
        *,
        subscriber: Subscriber,
        lease: timedelta,
        concurrency: int,
        on_renewed: Callable[[Sequence[LeasedJob], Sequence[LeasedJob]], Awaitable[None]],
        begins: str | None = None,
    ) -> LeasedWorker:
        """A worker of this queue; see `LeasedWorker`.

        begins: the format of a task's key, if turns may begin as they are taken. Only where the
        queue is on the tasks' Redis.
        """
        pool = ArqRedis(
            self._redis.connection_pool,
            job_serializer=_dumps,
            job_deserializer=json.loads,
            default_queue_name=self._keys.queue,
        )
        return LeasedWorker(
            handler,
            function=_FUNCTION,
            blob=self._blob,
            pool=pool,
            commit=self._commit,
            leases=self._leases,
            keys=self._keys,
            subscriber=subscriber,
            lease=lease,
            concurrency=concurrency,
            on_renewed=on_renewed,
            job_ttl=_JOB_TTL,
            begins=begins if self.with_store else None,
        )
