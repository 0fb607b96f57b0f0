"""The feed: a task's log, followed from a position. Replay, then live, and no seam between them.

Promises: a follower gets every entry after its position once and in order, whatever is lost on
the way: live entries come over pub/sub, a hole in their numbers is filled from the log, and a
broken connection or a lost last message is found by asking the store. When the position itself
is no longer good (the store went back in time, the task is gone, the reader is too slow), the
follower simply ends: its client comes back and gets the Task first.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from typing import Final

from switchroom.store.commit import GroupCommit, StoreUnavailable, patiently
from switchroom.store.entry import Entry, Position, parse_live, parse_log
from switchroom.store.keys import Keys
from switchroom.store.scripts import SCRIPTS, command
from switchroom.store.subscriber import Subscriber

__all__ = ["Feed", "Follower"]

_log = logging.getLogger("switchroom.store")
_FILL: Final = 500
"""Entries read from the log at a time, at most; fewer where they are large."""
_PIECE: Final = 256 * 1024
"""Bytes read from the log at a time: what one reader holds that stops where it is."""
_HELD: Final = 1024 * 1024
"""Bytes of live entries that wait for one reader; all readers of a task share them."""
_CHECK: Final = 250
"""Tasks whose `seq` is compared in one round trip."""


class Follower:
    """One reader of one task. Made by `Feed.subscribe`; close it when done."""

    __slots__ = ("_ended", "_feed", "_held", "_limit", "_live", "_stale", "_waiter", "task_id")

    def __init__(self, feed: Feed, task_id: str, limit: int) -> None:
        self._feed = feed
        self.task_id = task_id
        self._limit = limit
        self._live: deque[Entry] = deque()
        self._held = 0
        self._waiter: asyncio.Future[None] | None = None
        self._stale = False
        self._ended = False

    async def follow(
        self, after: Position, *, catch_up: bool = False
    ) -> AsyncGenerator[Entry, None]:
        """Entries after the position, for as long as it is good. `catch_up`: the position was
        not read under this subscription, so what lies between is read from the log first.
        """
        last = after
        marks = {after.mark}
        self._stale = self._stale or catch_up
        while self._live and self._live[0].seq <= after.seq:
            self._held -= len(self._live.popleft().data or b"")
        while True:
            if self._stale:
                self._stale = False
                entries = await self._feed.fill(self.task_id, last)
                if entries is None:
                    return
                # Where much is missing it comes in parts: ask again until nothing is.
                self._stale = self._stale or bool(entries)
                for entry in entries:
                    last = entry.position
                    marks.add(last.mark)
                    yield entry
            elif self._live:
                entry = self._live.popleft()
                self._held -= len(entry.data or b"")
                if entry.seq == last.seq + 1 and entry.data is not None:
                    last = entry.position
                    marks.add(last.mark)
                    yield entry
                elif entry.seq > last.seq or entry.mark not in marks:
                    # A hole, a large event, or an entry that should not be: the log knows.
                    self._stale = True
            elif self._ended:
                return
            else:
                await self._wait()

    def close(self) -> None:
        self._feed.drop(self)

    def push(self, entry: Entry) -> None:
        """A live entry. A reader that lags behind further than its limit reads the log instead:
        that is where all entries are, so they need not wait here too.
        """
        if self._stale:
            return  # the log is asked before the next one anyway, and has it
        self._held += len(entry.data or b"")
        if len(self._live) >= self._limit or self._held > _HELD:
            self._live.clear()
            self._held = 0
            self._stale = True
        else:
            self._live.append(entry)
        self._wake()

    def doubt(self) -> None:
        """Something may have been missed: the log is asked before the next entry."""
        self._stale = True
        self._wake()

    def end(self) -> None:
        self._ended = True
        self._wake()

    async def _wait(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class _Task:
    """What the feed knows of one followed task."""

    __slots__ = ("followers", "last", "opening")

    def __init__(self) -> None:
        self.followers: set[Follower] = set()
        self.last: Position | None = None
        self.opening: asyncio.Future[bool | None] | None = None
        """While the subscription is asked for; then True, False if it is refused, None if who asked
        has left.
        """

    def hear(self, payload: bytes) -> None:
        entries = parse_live(payload)
        self.last = entries[-1].position
        for follower in tuple(self.followers):
            for entry in entries:
                follower.push(entry)


class Feed:
    """All followers of one process.  limit: entries a follower may lag behind.  check_every:
    seconds between two looks for a lost last message.
    """

    def __init__(
        self,
        subscriber: Subscriber,
        reads: GroupCommit,
        *,
        keys: Keys,
        limit: int,
        check_every: float,
    ) -> None:
        self._subscriber = subscriber
        self._reads = reads
        self._keys = keys
        self._limit = limit
        self._check_every = check_every
        self._tasks: dict[str, _Task] = {}
        self._checker: asyncio.Task[None] | None = None
        subscriber.on_gap(self._doubt_all)

    def start(self) -> None:
        self._checker = asyncio.get_running_loop().create_task(self._check())

    async def close(self) -> None:
        if self._checker is not None:
            self._checker.cancel()
            await asyncio.wait([self._checker])
        for task in self._tasks.values():
            for follower in task.followers:
                follower.end()

    @property
    def followed(self) -> int:
        """Tasks followed now."""
        return len(self._tasks)

    async def subscribe(self, task_id: str) -> Follower:
        """A follower that hears all that is appended from now on. One Redis subscription per task,
        shared.

        Raises `StoreUnavailable`.
        """
        follower = Follower(self, task_id, self._limit)
        while True:
            task = self._tasks.get(task_id)
            if task is None:
                await self._open(task_id, follower)
                return follower
            task.followers.add(follower)
            if task.opening is None:
                return follower
            try:
                opened = await asyncio.shield(task.opening)
            except asyncio.CancelledError:
                self.drop(follower)
                raise
            if opened:
                return follower
            if opened is False:
                raise StoreUnavailable(retry_after=1.0)
            # Whoever had asked for the subscription left before it was there: ask again.

    async def _open(self, task_id: str, follower: Follower) -> None:
        task = self._tasks[task_id] = _Task()
        opening = task.opening = asyncio.get_running_loop().create_future()
        task.followers.add(follower)
        try:
            await self._subscriber.subscribe(self._keys.live(task_id), task.hear)
        except BaseException as error:
            del self._tasks[task_id]
            opening.set_result(False if isinstance(error, StoreUnavailable) else None)
            raise
        task.opening = None
        opening.set_result(True)

    def drop(self, follower: Follower) -> None:
        task = self._tasks.get(follower.task_id)
        if task is None or follower not in task.followers:
            return
        task.followers.discard(follower)
        follower.end()
        if not task.followers and task.opening is None:
            del self._tasks[follower.task_id]
            self._subscriber.unsubscribe(self._keys.live(follower.task_id))

    async def since(self, task_id: str, position: Position) -> list[Entry] | None:
        """Entries after a position; None if it is not good (any more).

        Raises StoreUnavailable.
        """
        (answer,) = await self._reads(
            SCRIPTS.since(
                [self._keys.task(task_id), self._keys.log(task_id)],
                position.seq,
                position.mark,
                _FILL,
                _PIECE,
            )
        )
        if answer[0] != b"good":
            return None
        return [parse_log(row) for row in answer[5]]

    async def fill(self, task_id: str, position: Position) -> list[Entry] | None:
        """`since`, however long Redis is away."""
        return await patiently(lambda: self.since(task_id, position))

    def _doubt_all(self) -> None:
        for task in self._tasks.values():
            for follower in task.followers:
                follower.doubt()

    async def _check(self) -> None:
        """A lost last message has no successor to reveal it, so `seq` is compared every so
        often.
        """
        while True:
            await asyncio.sleep(self._check_every)
            ids = list(self._tasks)
            for at in range(0, len(ids), _CHECK):
                chunk = ids[at : at + _CHECK]
                try:
                    await self._compare(chunk)
                except StoreUnavailable:
                    break
                except Exception:
                    await self._compare_each(chunk)

    async def _compare_each(self, ids: Sequence[str]) -> None:
        """Damage to one task's key must not keep the others from being looked at."""
        for task_id in ids:
            try:
                await self._compare([task_id])
            except StoreUnavailable:
                return
            except Exception as damage:
                _log.error("task %s cannot be compared with the store: %r", task_id, damage)

    async def _compare(self, ids: Sequence[str]) -> None:
        before = {task_id: self._tasks[task_id].last for task_id in ids if task_id in self._tasks}
        found = await self._reads(
            *(command("HMGET", self._keys.task(i), "seq", "mark") for i in ids)
        )
        for task_id, (seq, mark) in zip(ids, found, strict=True):
            task = self._tasks.get(task_id)
            if task is None:
                continue
            at_store = None if seq is None else Position(int(seq), mark.decode())
            if at_store is None or at_store not in (before.get(task_id), task.last):
                task.last = at_store
                for follower in task.followers:
                    follower.doubt()
