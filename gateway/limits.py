"""Limits on what a caller uses, as calls meet them: asked for with the claim, then given back.

Promises that no send waits for Redis once more because of them, that a refusal leaves nothing
behind, and that what is left of a limit is told in headers. Relies on `store/limits.py`, which
counts for all gateways.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import secrets
from typing import Any, Final

from switchroom.gateway.context import CallContext
from switchroom.protocol.errors import RateLimited
from switchroom.settings import Settings
from switchroom.store import Store
from switchroom.store.commit import StoreUnavailable
from switchroom.store.limits import Admission, CallerLimits
from switchroom.store.scripts import Call

__all__ = ["CallLimits", "Ticket"]

_REFUSALS: Final = {
    "rate": "Too many sends; send again later",
    "tasks": "Too many tasks are submitted or working; send again when one has ended",
    "streams": "Too many streams are open; close one first",
}


class Ticket:
    """What one call asks for, and then holds until it gives it back.

    task_id: the task that it sends to.  stream: names its stream; "" if it opens none.
    """

    __slots__ = ("_limits", "counted", "owner", "stream", "task_id")

    def __init__(self, limits: CallLimits, owner: str, task_id: str, stream: str) -> None:
        self._limits = limits
        self.owner = owner
        self.task_id = task_id
        self.stream = stream
        self.counted = False

    @property
    def call(self) -> Call:
        """Asks for it; goes beside whatever else the call asks of the store."""
        return self._limits.store.admitting(self.owner, task_id=self.task_id, stream=self.stream)

    def unsent(self) -> None:
        """Nothing has come of the send."""
        if self.counted:
            self.counted = False
            self._limits.store.landed(self.owner, self.task_id)

    def close(self) -> None:
        """Its stream has ended."""
        self._limits.forget(self)


class CallLimits:
    """Hands out tickets.

    Attributes:
        store: Where they are counted.
    """

    def __init__(self, store: Store, settings: Settings) -> None:
        self.store: CallerLimits = store.limits
        self._commit = store.commit
        self._open = settings.limits_unknown == "open"
        self._names = (f"{secrets.token_hex(6)}-{n:x}" for n in itertools.count(1))
        self._streams: set[Ticket] = set()

    def for_send(self, context: CallContext, task_id: str, *, stream: bool) -> Ticket | None:
        """The ticket of a send; None if no limit is about it."""
        limits = self.store.limits
        if not limits.of_sends and not (stream and limits.streams):
            return None
        name = next(self._names) if stream and limits.streams else ""
        return Ticket(self, context.owner, task_id if limits.of_sends else "", name)

    def for_stream(self, context: CallContext) -> Ticket | None:
        """The ticket of a stream that sends nothing; None if there is no limit."""
        if not self.store.limits.streams:
            return None
        return Ticket(self, context.owner, "", next(self._names))

    def ask(self, ticket: Ticket | None) -> asyncio.Future[list[Any]] | None:
        """Asks for a ticket alone, without waiting."""
        return None if ticket is None else self._commit.ask(ticket.call)

    async def have(
        self, ticket: Ticket | None, asked: asyncio.Future[list[Any]] | None, context: CallContext
    ) -> Ticket | None:
        """The ticket that was asked for; None also where nobody can count, and that is to mean no
        limit. Raises RateLimited and StoreUnavailable.
        """
        if ticket is None or asked is None:
            return None
        try:
            (answer,) = await asked
        except StoreUnavailable:
            if self._open:
                return None
            raise
        await self.check(ticket, answer, context)
        return ticket

    async def check(self, ticket: Ticket, answer: Any, context: CallContext) -> None:
        """Sees what a ticket's call was answered. Raises RateLimited and StoreUnavailable."""
        admission = self.store.admission(answer)
        if admission.outcome == "tasks":
            await self.store.sweep(ticket.owner)
            (answer,) = await self._commit(ticket.call)
            admission = self.store.admission(answer)
        self._tell(admission, context)
        if admission.outcome != "ok":
            raise RateLimited(
                _REFUSALS[admission.outcome],
                metadata={"limit": admission.outcome, "most": str(admission.limit)},
                retry_after=admission.wait,
            )
        ticket.counted = admission.counted
        if ticket.stream:
            self._streams.add(ticket)

    def _tell(self, admission: Admission, context: CallContext) -> None:
        if admission.limit:
            context.notes.headers += [
                (b"ratelimit-limit", b"%d" % admission.limit),
                (b"ratelimit-remaining", b"%d" % admission.remaining),
                (b"ratelimit-reset", b"%d" % math.ceil(admission.wait)),
            ]

    def forget(self, ticket: Ticket) -> None:
        """Its stream has ended."""
        if ticket in self._streams:
            self._streams.discard(ticket)
            self.store.closed(ticket.owner, ticket.stream)

    async def watch(self) -> None:
        """Keeps the open streams counted, for as long as this gateway lives."""
        while self.store.limits.streams:
            await asyncio.sleep(self.store.renew_every.total_seconds())
            try:
                await self.store.renew((each.owner, each.stream) for each in self._streams)
            except StoreUnavailable:
                pass  # the next one may be in time
