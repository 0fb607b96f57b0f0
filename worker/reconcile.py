"""The reconciler: finds tasks that nobody will run, and sets them going again.

It looks at the due ids of the open tasks, never at all tasks. What no queue knows is enqueued;
what waited too long for its user is ended; a cancel that nobody carried out is; what has ended
is struck off; what cannot be read is given up, and keeps nobody from the rest. One worker at a time
does it.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from datetime import timedelta
from typing import Any, Final, NamedTuple

from switchroom.protocol.lifecycle import is_interrupted, is_terminal
from switchroom.protocol.model import TaskState
from switchroom.settings import Settings
from switchroom.store import Store
from switchroom.store.commit import StoreUnavailable
from switchroom.store.formats import READS, NewerFormat
from switchroom.store.scripts import ANSWERED, SCRIPTS, Call, command
from switchroom.worker.damage import give_up
from switchroom.worker.notice import notice

__all__ = ["Reconciler"]

_log = logging.getLogger("switchroom.worker")
_AT_ONCE: Final = 200
_ONCE: Final = 0.5
"""Fraction of a score that says: found so once. A task that is absent may be on its way, and a run
that no queue knows may be put back by its worker; but only the first time.
"""


class _Facts(NamedTuple):
    """What a look needs to know of a task; no state stands for no task."""

    state: str
    ts: int
    turn: int
    running: bool
    cancel: bool
    context_id: str
    hooks: bool

    @classmethod
    def of(cls, answer: list[Any] | BaseException) -> _Facts:
        """From the answer to an HMGET of `_FIELDS`, or what was raised in its place.

        Raises NewerFormat, and whatever damage leads to.
        """
        if isinstance(answer, BaseException):
            raise answer
        state, ts, turn, done, run, cancel, context, form, hooks = answer[0]
        if int(form or 0) > READS:
            raise NewerFormat
        if state is None:
            return cls("", 0, 0, False, False, "", False)
        running = bool(run) and int(done) < int(turn)
        return cls(
            state.decode(),
            int(ts),
            int(turn),
            running,
            cancel is not None,
            context.decode(),
            hooks == b"1",
        )


_FIELDS: Final = ("state", "ts", "turn", "done", "run", "cancel", "ctx", "v", "hooks")


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
        asked = [
            store.reads.ask(command("HMGET", store.keys.task(task_id), *_FIELDS))
            for task_id, _ in due
        ]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        found = []
        for (task_id, score), answer in zip(due, answers, strict=True):
            try:
                found.append((task_id, score, _Facts.of(answer)))
            except StoreUnavailable:
                raise
            except NewerFormat:
                again = float(store.clock.now() + store.tasks.lifetimes.look)
                await store.commit(self._next(task_id, score, again))
            except Exception as damage:
                await give_up(store, task_id, damage)
                await store.commit(self._next(task_id, score, None))
        queued = await store.queue.is_queued([(task_id, facts.turn) for task_id, _, facts in found])
        await asyncio.gather(*map(self._look_at, found, queued))
        return len(due)

    async def _look_at(self, one: tuple[str, float, _Facts], queued: bool) -> None:
        task_id, score, facts = one
        try:
            again = await self._look_after(task_id, facts, queued=queued, once=score % 1 == _ONCE)
        except StoreUnavailable:
            raise
        except Exception as damage:
            await give_up(self._store, task_id, damage)
            again = None
        await self._store.commit(self._next(task_id, score, again))

    async def _look_after(
        self, task_id: str, facts: _Facts, *, queued: bool, once: bool
    ) -> float | None:
        """Does what the task needs.  once: it was found like this before.  -> when to look again,
        None for never.
        """
        store, now = self._store, self._store.clock.now()
        again = float(now + store.tasks.lifetimes.look)
        if not facts.state:
            return None if once else again + _ONCE
        if facts.hooks:
            # Before it is struck off: whoever wrote its last event may have died before saying so.
            await store.deliveries.announce(task_id)
        if is_terminal(facts.state) or facts.state == ANSWERED:
            return None
        if facts.cancel and not facts.running:
            await store.tasks.end(task_id, TaskState.CANCELED, force=False)
            return again
        if is_interrupted(facts.state):
            deadline = float(facts.ts + _ms(self._settings.interrupted_limit))
            if now >= deadline:
                message = notice(
                    "Nobody answered in time.", task_id=task_id, context_id=facts.context_id
                )
                await store.tasks.end(task_id, TaskState.FAILED, message=message, force=False)
            return max(deadline, again)
        if not queued:
            if facts.running and not once:
                return float(now + _ms(self._settings.lease)) + _ONCE
            _log.warning("task %s: no queue knew of turn %d, enqueued again", task_id, facts.turn)
            await store.queue.enqueue(task_id, facts.turn, begun=facts.running)
        # However long it waits, it must not expire while it does.
        keys = [*store.keys.of_task(task_id)]
        if facts.hooks:
            keys.append(store.keys.sent(task_id))
        await store.commit(*(command("PEXPIRE", key, store.tasks.lifetimes.open) for key in keys))
        return again

    def _next(self, task_id: str, score: float, again: float | None) -> Call:
        return SCRIPTS.reopen(
            [self._store.keys.open],
            task_id,
            repr(score),
            "" if again is None else repr(again),
        )


def _ms(duration: timedelta) -> int:
    return round(duration.total_seconds() * 1000)
