"""Delivers to webhooks what their tasks' logs hold beyond each config's cursor.

Promises, per config: every event in order, at least once, whatever dies; a repeat bears the same
delivery id. One worker at a time is at work on a config; should its lease be over, its cursor does
not move any more. A receiver that hangs, fails or lies costs its own deliveries only. Relies on
`store/deliveries.py` for what is due, on `webhook.py` for one request.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator
from datetime import timedelta
from hashlib import blake2b
from typing import Final, NamedTuple

from switchroom.protocol.event import encode
from switchroom.protocol.model import Json
from switchroom.settings import Settings
from switchroom.store import Store
from switchroom.store.commit import StoreUnavailable, patiently
from switchroom.store.deliveries import Kept, Record, Taken
from switchroom.store.entry import Entry, Position
from switchroom.store.sealing import Sealed
from switchroom.v03 import objects
from switchroom.worker.receivers import Receivers
from switchroom.worker.webhook import Failed, Webhooks, origin_of

__all__ = ["Deliverer", "delay_of", "delivery_id"]

_log = logging.getLogger("switchroom.worker")
_IDLE: Final = 1.0
"""Seconds after which it looks without having heard the bell."""
_FIRST: Final = 1.0
_LONGEST: Final = 600.0
_DAMAGED: Final = 60.0
"""Seconds after which a delivery that broke off here is tried again."""


def delay_of(attempts: int) -> float:
    """Seconds to wait after so many attempts in vain: twice as long each time, from 1 s to 10 min,
    and up to a quarter more, so that receivers that come back are not met by all at once.
    """
    return float(min(_LONGEST, _FIRST * 2 ** min(attempts - 1, 30)) * random.uniform(1, 1.25))


def delivery_id(task_id: str, config_id: str, position: Position) -> str:
    """The same for each attempt at one delivery, and for no other."""
    said = f"{task_id}\n{config_id}\n{position}".encode()
    return blake2b(said, digest_size=16).hexdigest()


class _Told(NamedTuple):
    """What a delivery says (None: nothing, these events are not wanted), and how far it tells."""

    body: bytes | None
    position: Position


class Deliverer:
    """Takes what is due and delivers it, until it is drained."""

    def __init__(self, store: Store, settings: Settings, webhooks: Webhooks) -> None:
        self._store = store
        self._deliveries = store.deliveries
        self._webhooks = webhooks
        self._receivers = Receivers(settings.push_concurrency)
        self._places = settings.push_concurrency
        self._wanted = frozenset(settings.push_events)
        self._give_up = settings.push_give_up / timedelta(milliseconds=1)
        self._timeout = settings.push_timeout.total_seconds()
        self._active: dict[asyncio.Task[None], Taken] = {}
        self._awake = asyncio.Event()
        self._draining = False

    async def run(self) -> None:
        """Works until `drain` or cancelled."""
        keys, subscriber = self._store.keys, self._store.subscriber

        def hear(payload: bytes) -> None:
            self._awake.set()

        await patiently(lambda: subscriber.subscribe(keys.pushes_bell, hear))
        try:
            async with self._webhooks:
                while not self._draining:
                    self._awake.clear()
                    wait = await self._take()
                    try:
                        async with asyncio.timeout(wait):
                            await self._awake.wait()
                    except TimeoutError:
                        pass
                while self._active:
                    await asyncio.wait(self._active)
        finally:
            subscriber.unsubscribe(keys.pushes_bell)
            await self._abandon()

    async def drain(self, patience: timedelta) -> None:
        """Takes nothing more, and lets what is under way end; what does not is due again."""
        self._draining = True
        self._awake.set()
        if self._active:
            await asyncio.wait(self._active, timeout=patience.total_seconds())
        await self._abandon()

    async def _abandon(self) -> None:
        left = dict(self._active)
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left)
        for taken in left.values():
            try:
                await self._deliveries.put_back(taken, delay=0)
            except StoreUnavailable:
                return  # their leases lapse

    async def _take(self) -> float:
        """Begins what is due, as far as there are places. -> seconds until the next look."""
        free = self._places - len(self._active)
        if free <= 0:
            return _IDLE
        try:
            taken, wait = await self._deliveries.take(free)
        except StoreUnavailable:
            return _IDLE
        for one in taken:
            task = asyncio.get_running_loop().create_task(self._work(one))
            self._active[task] = one
            task.add_done_callback(self._done)
        return _IDLE if wait is None else min(_IDLE, wait)

    def _done(self, task: asyncio.Task[None]) -> None:
        del self._active[task]
        self._awake.set()

    # -- one that was due

    async def _work(self, taken: Taken) -> None:
        try:
            task_id, config_id = taken.ids
            if config_id:
                await self._deliver(taken)
                return
            while True:
                await self._deliveries.spread(taken)
                if await self._deliveries.strike_off(taken):
                    return
                if not await self._deliveries.hold(taken):
                    return
        except StoreUnavailable:
            _log.debug("webhooks wait for Redis")  # the lease lapses
        except Exception:
            _log.exception("a delivery broke off: %s", taken.member)
            try:
                await self._deliveries.put_back(taken, delay=_DAMAGED)
            except StoreUnavailable:
                pass

    async def _deliver(self, taken: Taken) -> None:
        """Tells one webhook all that it has not been told."""
        task_id, config_id = taken.ids
        while True:
            kept = await self._deliveries.look(task_id, config_id)
            record = Record.decode(kept.record)
            if kept.config is None or not kept.visible or record.dead:
                entries: list[Entry] | None = []
            else:
                entries = await self._store.feed.since(task_id, record.position)
            if entries == []:
                if await self._deliveries.strike_off(taken):
                    return
            elif not await self._tell(taken, kept, record, entries):
                return
            # What was announced meanwhile is in the log: it is looked at once more.
            if not await self._deliveries.hold(taken):
                return

    async def _tell(
        self, taken: Taken, kept: Kept, record: Record, entries: list[Entry] | None
    ) -> bool:
        """Delivers these entries (None: the cursor's place is gone). False if it is to be left
        alone now. Where somebody else has told of some of them, it is looked at anew.
        """
        assert kept.config is not None
        try:
            config, version = self._store.pushes.open(kept.config)
        except Sealed as why:
            return await self._failed(taken, kept.record, record, Failed(str(why)))
        origin = origin_of(config["url"])
        delay = self._receivers.enter(origin)
        if delay is not None:
            await self._deliveries.put_back(taken, delay=delay)
            return False
        failed = True
        try:
            outcome, was, record = await self._tell_all(
                taken, kept, record, config, version, self._said(taken, kept, entries, version)
            )
            failed = outcome is not None
        finally:
            self._receivers.leave(origin, failed=failed)
        if outcome is not None:
            return await self._failed(taken, was, record, outcome)
        return True

    async def _tell_all(
        self,
        taken: Taken,
        kept: Kept,
        record: Record,
        config: Json,
        version: str,
        said: AsyncIterator[_Told],
    ) -> tuple[Failed | None, bytes, Record]:
        """-> what failed, and the record with its bytes. Ends early where another is at work."""
        task_id, config_id = taken.ids
        loop, was = asyncio.get_running_loop(), kept.record
        held_until = loop.time() + self._deliveries.lease / 1000 - self._timeout
        async for told in said:
            if told.body is not None:
                if loop.time() > held_until:
                    if not await self._deliveries.hold(taken):
                        break
                    held_until = loop.time() + self._deliveries.lease / 1000 - self._timeout
                failed = await self._webhooks.post(
                    config,
                    told.body,
                    version=version,
                    task_id=task_id,
                    delivery_id=delivery_id(task_id, config_id, told.position),
                )
                if failed is not None:
                    return failed, was, record
            record = Record(told.position)
            if not await self._deliveries.advance(task_id, config_id, was=was, record=record):
                break
            was = record.encode().encode()
        return None, was, record

    async def _said(
        self, taken: Taken, kept: Kept, entries: list[Entry] | None, version: str
    ) -> AsyncIterator[_Told]:
        """What is to be told, in order: events as they stand in the log, or the Task as it is,
        where events are missing or the receiver knows no other.
        """
        if entries is None or version == "0.3":
            wanted = entries is None or any(entry.kind in self._wanted for entry in entries)
            told = await self._task(taken, version) if wanted else None
            if told is not None:
                yield told
            elif entries:
                yield _Told(None, entries[-1].position)
            return
        skipped: Position | None = None
        for entry in entries:
            # Of a task that was answered with a Message, nobody knows.
            if entry.kind in self._wanted and (entry.kind == "message" or not kept.answered):
                yield _Told(entry.data, entry.position)
                skipped = None
            else:
                skipped = entry.position
        if skipped is not None:
            yield _Told(None, skipped)

    async def _task(self, taken: Taken, version: str) -> _Told | None:
        """The Task as it is; None if it is gone."""
        task_id, _ = taken.ids
        view = await self._store.tasks.read(task_id)
        if view is None:
            return None
        if version == "0.3":
            body = None if view.answer is not None else encode(objects.task(view.task))
        else:
            body = view.answer if view.answer is not None else encode({"task": view.task})
        return _Told(body, view.position)

    async def _failed(self, taken: Taken, was: bytes, record: Record, failed: Failed) -> bool:
        """Tries again later, or gives up. True if somebody else has told of some: it is looked at
        anew.
        """
        task_id, config_id = taken.ids
        now = self._store.clock.now()
        record = record.failed(failed.why, now=now)
        left = record.since + self._give_up - now
        if failed.final or left <= 0:
            _log.warning(
                "task %s: its webhook %s is given up after %d attempts: %s",
                *(task_id, config_id, record.attempts, failed.why),
            )
            return not await self._deliveries.bury(taken, was=was, record=record)
        delay = max(delay_of(record.attempts), failed.retry_after or 0)
        if not await self._deliveries.advance(task_id, config_id, was=was, record=record):
            return True
        await self._deliveries.put_back(taken, delay=min(delay, left / 1000))
        return False
