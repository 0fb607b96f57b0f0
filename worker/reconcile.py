"""The reconciler: finds tasks that nobody will run, and sets them going again.

It looks at the due ids of the open tasks, never at all tasks. What no queue knows is enqueued;
what waited too long for its user is ended; a cancel that nobody carried out is; what has ended
is struck off. One worker at a time does it.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from typing import Final

from switchroom.protocol.lifecycle import is_interrupted, is_terminal
from switchroom.protocol.model import TaskState
from switchroom.settings import Settings
from switchroom.store import Store
from switchroom.store.commit import StoreUnavailable
from switchroom.store.scripts import ANSWERED, SCRIPTS, Call, command
from switchroom.worker.notice import notice

__all__ = ["Reconciler"]

_log = logging.getLogger("switchroom.worker")
_AT_ONCE: Final = 200
_ONCE: Final = 0.5
"""Fraction of a score that says: found so once. A task that is absent may be on its way, and a run
that no queue knows may be put back by its worker; but only the first time.
"""


class Reconciler:
    def __init__(self, store: Store, settings: Settings) -> None:
        self._store = store
        self._settings = settings
        self._token = uuid.uuid4().hex

    async def run(self) -> None:
        """Looks every so often, until cancelled."""
        every = self._settings.reconcile_every.total_seconds()
        while True:
            try:
                if await self._mine():
                    while await self.look() == _AT_ONCE:
                        pass
            except StoreUnavailable:
                _log.debug("the reconciler waits for Redis")
            except Exception:
                _log.exception("the reconciler failed, and goes on")
            await asyncio.sleep(every)

    async def _mine(self) -> bool:
        key = self._store.keys.reconciler
        ttl = round(2_500 * self._settings.reconcile_every.total_seconds())
        (held,) = await self._store.commit(command("SET", key, self._token, "NX", "GET", "PX", ttl))
        if held == self._token.encode():
            await self._store.commit(command("PEXPIRE", key, ttl))
        return held in (None, self._token.encode())

    async def look(self) -> int:
        """Looks at the ids that are due now; returns how many."""
        store = self._store
        (rows,) = await store.commit(
            command(
                "ZRANGE", store.keys.open, "-inf", store.clock.now(), "BYSCORE",
                *("LIMIT", 0, _AT_ONCE, "WITHSCORES"),
            )
        )  # fmt: skip
        due = [(i.decode(), float(s)) for i, s in zip(rows[::2], rows[1::2], strict=True)]
        if not due:
            return 0
        found = await store.reads(
            *(
                command(
                    "HMGET",
                    store.keys.task(task_id),
                    "state",
                    "ts",
                    "turn",
                    "done",
                    "run",
                    "cancel",
                    "ctx",
                )
                for task_id, _ in due
            )
        )
        turns = [(task_id, int(row[2] or 0)) for (task_id, _), row in zip(due, found, strict=True)]
        queued = await store.queue.is_queued(turns)
        for (task_id, score), row, known in zip(due, found, queued, strict=True):
            await self._look_at(task_id, score, row, known)
        return len(due)

    async def _look_at(
        self, task_id: str, score: float, row: list[bytes | None], queued: bool
    ) -> None:
        store, now = self._store, self._store.clock.now()
        again, once = float(now + store.tasks.lifetimes.look), score % 1 == _ONCE
        if row[0] is None:
            await store.commit(self._next(task_id, score, None if once else again + _ONCE))
            return
        state, turn = row[0].decode(), int(row[2] or 0)
        running = bool(row[4]) and int(row[3] or 0) < turn
        if is_terminal(state) or state == ANSWERED:
            await store.commit(self._next(task_id, score, None))
        elif row[5] is not None and not running:
            await store.tasks.end(task_id, TaskState.CANCELED, force=False)
            await store.commit(self._next(task_id, score, again))
        elif is_interrupted(state):
            limit = self._settings.interrupted_limit.total_seconds()
            deadline = int(row[1] or 0) + round(limit * 1000)
            if now >= deadline:
                message = notice(
                    "Nobody answered in time.",
                    task_id=task_id,
                    context_id=(row[6] or b"").decode(),
                )
                await store.tasks.end(task_id, TaskState.FAILED, message=message, force=False)
            await store.commit(self._next(task_id, score, max(float(deadline), again)))
        elif running and not queued and not once:
            lease = round(self._settings.lease.total_seconds() * 1000)
            await store.commit(self._next(task_id, score, float(now + lease) + _ONCE))
        else:
            if not queued:
                _log.warning("task %s: no queue knew of turn %d, enqueued again", task_id, turn)
                await store.queue.enqueue(task_id, turn, begun=running)
            # However long it waits, it must not expire while it does.
            renewals = [
                command("PEXPIRE", key, store.tasks.lifetimes.open)
                for key in store.keys.of_task(task_id)
            ]
            await store.commit(*renewals, self._next(task_id, score, again))

    def _next(self, task_id: str, score: float, again: float | None) -> Call:
        return SCRIPTS.reopen(
            [self._store.keys.open],
            task_id,
            repr(score),
            "" if again is None else repr(again),
        )
