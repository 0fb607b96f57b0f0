"""From an accepted send to its answer: one Task or Message, or a stream of events.

A send waits by following its task's log from where it was accepted, so it sees what any other
reader sees, whichever process runs the task.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

from switchroom.gateway.dispatch import StreamItem
from switchroom.gateway.limits import Ticket
from switchroom.gateway.sends import Sent, gone_back
from switchroom.protocol.event import encode
from switchroom.protocol.lifecycle import is_terminal, with_history
from switchroom.protocol.model import TaskState
from switchroom.settings import Settings
from switchroom.store import Store
from switchroom.store.entry import Entry, Position
from switchroom.store.feed import Follower

__all__ = ["Answers", "ClosingStream", "item_of"]


class ClosingStream(AsyncIterator[StreamItem]):
    """A stream of items that lets its follower and its ticket go also when it was never begun."""

    def __init__(
        self,
        items: AsyncGenerator[StreamItem, None],
        follower: Follower,
        ticket: Ticket | None = None,
    ) -> None:
        self._items = items
        self._follower = follower
        self._ticket = ticket

    async def __anext__(self) -> StreamItem:
        return await self._items.__anext__()

    async def aclose(self) -> None:
        self._follower.close()
        if self._ticket is not None:
            self._ticket.close()
        await self._items.aclose()


class Answers:
    """Waits for what sends bring."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self._store = store
        self._settings = settings
        self._draining = False
        self._waiting: set[Follower] = set()

    def drain(self) -> None:
        """This gateway goes away: whoever waits for an answer gets the Task as it is."""
        self._draining = True
        for follower in tuple(self._waiting):
            follower.end()

    async def answer(self, sent: Sent, *, history: int | None, wait: bool) -> bytes:
        """The SendMessageResponse: when the turn has ended, or (`wait` false) of the task as it is.

        A task that is still running when the wait is over, or when this gateway goes away, is
        answered as it is.
        """
        try:
            if wait and sent.said is None and not sent.over:
                await self._until_over(sent)
            if sent.said is None and not sent.shown and not sent.over:
                await self._show(sent)
            if sent.said is not None:
                return sent.said
            return encode({"task": with_history(sent.task, history)})
        finally:
            sent.follower.close()

    async def _until_over(self, sent: Sent) -> None:
        """Folds what arrives until the turn has ended, the wait is over, or this gateway drains."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self._settings.blocking_limit.total_seconds()
        while not sent.over and sent.said is None and not self._draining and loop.time() < until:
            late = loop.call_at(until, sent.follower.end)
            try:
                await self._fold_on(sent, until)
            finally:
                late.cancel()

    async def _fold_on(self, sent: Sent, until: float) -> None:
        follower = sent.follower
        self._waiting.add(follower)
        try:
            async with aclosing(follower.follow(sent.position)) as entries:
                async for entry in entries:
                    if entry.kind == "message":
                        sent.said = entry.data
                        return
                    sent.shown = True
                    if sent.begins_again(entry):
                        break
                    sent.fold(entry)
                    if sent.over:
                        return
        finally:
            self._waiting.discard(follower)
        if self._draining or asyncio.get_running_loop().time() >= until:
            return
        # What was folded is not the task any more: go on from the task as it is now.
        follower.close()
        sent.follower = await self._store.feed.subscribe(sent.task["id"])
        view = await self._store.tasks.read(sent.task["id"])
        if view is None:
            raise gone_back()
        sent.task, sent.position, sent.done = view.task, view.position, view.done
        sent.shown, sent.said = view.shown, view.answer

    async def _show(self, sent: Sent) -> bool:
        """Makes the task visible; False if it has just been answered with a Message."""
        task = sent.task
        sent.shown = await self._store.tasks.show(
            task["id"], owner=sent.owner, context_id=task["contextId"], at=sent.at
        )
        if not sent.shown:
            view = await self._store.tasks.read(task["id"])
            sent.said = view.answer if view is not None else None
        return sent.shown

    def stream(self, sent: Sent, *, history: int | None, after: Position | None) -> ClosingStream:
        """The events of a turn: one Message, or the Task first and all that follows, until the turn
        has ended (a stream stays open in AUTH_REQUIRED).

        after: where the client of a repeated send stands; the same stream then goes on there.
        """
        return ClosingStream(self._items(sent, history, after), sent.follower, sent.ticket)

    async def _items(
        self, sent: Sent, history: int | None, after: Position | None
    ) -> AsyncGenerator[StreamItem, None]:
        follower = sent.follower
        missed = None
        if sent.repeated and after is not None:
            missed = await self._store.feed.since(sent.task["id"], after)
        if sent.said is not None:
            if missed != []:  # else its client has it
                yield StreamItem(sent.said, str(sent.position))
            return
        # A stream stays open in AUTH_REQUIRED, though the turn is over.
        over = sent.over and sent.task["status"]["state"] != TaskState.AUTH_REQUIRED
        resumed = missed is not None and after is not None
        start = after if resumed and after is not None else sent.position
        entries = follower.follow(start, catch_up=resumed)
        first: asyncio.Task[Entry | None] | None = None
        try:
            if not sent.shown:
                # Until the agent has begun, nobody knows whether its answer is a Task or a Message.
                first = asyncio.get_running_loop().create_task(_next(entries))
                await asyncio.wait((first,), timeout=self._settings.show_after.total_seconds())
                told = not first.done() and await self._show(sent)
                if told:
                    yield _task_item(sent, history)
                entry = await first
                if entry is None:
                    return
                if entry.kind == "message" and entry.data is not None:
                    yield StreamItem(entry.data, str(entry.position))
                    return
                if not told:
                    yield _task_item(sent, history)
                if item := item_of(entry):
                    yield item
                if _closes(entry, sent.turn):
                    return
            elif not resumed:
                yield _task_item(sent, history)
                if over:
                    return
            elif over and not missed:
                return
            else:
                yield StreamItem(b"")  # accepted, though there may be nothing to say for a while
            async for entry in entries:
                if item := item_of(entry):
                    yield item
                if _closes(entry, sent.turn):
                    return
        finally:
            if first is not None:
                first.cancel()
                await asyncio.wait((first,))
            await entries.aclose()
            follower.close()


async def _next(entries: AsyncGenerator[Entry, None]) -> Entry | None:
    return await anext(entries, None)


def item_of(entry: Entry) -> StreamItem | None:
    """What a stream sends for an entry: its bytes as they are, or nothing for an accepted input."""
    if entry.kind == "input" or entry.data is None:
        return None
    return StreamItem(entry.data, str(entry.position))


def _task_item(sent: Sent, history: int | None) -> StreamItem:
    return StreamItem(encode({"task": with_history(sent.task, history)}), str(sent.position))


def _closes(entry: Entry, turn: int) -> bool:
    """Whether a send's stream ends with this entry (§11.7): terminal, or waiting for the client."""
    return is_terminal(entry.state) or (
        entry.state == TaskState.INPUT_REQUIRED and entry.turn >= turn
    )
