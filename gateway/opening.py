"""How a send begins: its claim, and what its caller's limits allow, in one round trip.

Promises that a send which is refused leaves neither behind.
"""

from __future__ import annotations

import asyncio
from typing import Any

from switchroom.gateway.context import CallContext
from switchroom.gateway.limits import CallLimits
from switchroom.protocol.errors import A2AError, InvalidParams, Unavailable
from switchroom.store import Store
from switchroom.store.claims import Claim
from switchroom.store.scripts import Call

__all__ = ["Opening", "other_params"]


def other_params() -> InvalidParams:
    """The error for a claim that is held for another request."""
    return InvalidParams("This idempotency key was used for another request; take a new one")


class Opening:
    """What one send has taken before it is accepted.

    Attributes:
        task_id: The task that it is about: the claim may be held for another than was meant.
        ticket: What its caller's limits count; None if there are none.
    """

    def __init__(
        self,
        store: Store,
        limits: CallLimits,
        context: CallContext,
        *,
        claim: Claim,
        ttl: int,
        task_id: str,
        stream: bool,
    ) -> None:
        """ttl: of the claim, in ms.  stream: whether the send is answered with a stream."""
        self.claim = claim
        self.task_id = task_id
        self.ticket = limits.for_send(context, task_id, stream=stream)
        self._store = store
        self._limits = limits
        self._context = context
        self._ttl = ttl
        self._asked: asyncio.Future[list[Any]] | None = None

    def ask(self, *others: Call) -> asyncio.Future[list[Any]] | None:
        """Asks for both, and for `others` behind them; None if there is nothing to ask."""
        calls = list(others)
        if self.ticket is not None:
            calls.insert(0, self.ticket.call)
        if self.claim.kept:
            keys, owner = self._store.keys, self._context.owner
            calls.insert(0, self.claim.take(keys, owner, self.task_id, self._ttl))
        self._asked = self._store.commit.ask(*calls) if calls else None
        return self._asked

    async def granted(self) -> tuple[bool, list[Any]]:
        """Whether the claim was held already, and what the others were answered.

        Raises RateLimited, InvalidParams for a claim that is held for another request, Unavailable.
        """
        answers = list(await self._asked) if self._asked is not None else []
        held = answers.pop(0) if self.claim.kept else None
        if self.ticket is not None:
            try:
                await self._limits.check(self.ticket, answers.pop(0), self._context)
            except BaseException:
                if held is None:
                    self.give_up()
                raise
        if held is not None:
            self._use(held.decode())
        return held is not None, answers

    def _use(self, held: str) -> None:
        task_id, _, params = held.partition(" ")
        if params != self.claim.params:
            raise other_params()
        if task_id != self.task_id and self.ticket is not None:
            self.ticket.unsent()
        self.task_id = task_id

    async def replace(self, task_id: str) -> None:
        """The claim's task has been used up: from now on the claim is for this one, or for that of
        whoever was faster. Raises InvalidParams, Unavailable.
        """
        keys, owner, old = self._store.keys, self._context.owner, self.claim.value(self.task_id)
        (answer,) = await self._store.commit(
            self.claim.replace(keys, owner, old, task_id, self._ttl)
        )
        self._use(answer[2].decode())

    def give_up(self) -> None:
        """The send is refused: its claim goes."""
        if self.claim.kept:
            keys, owner, mine = (
                self._store.keys,
                self._context.owner,
                self.claim.value(self.task_id),
            )
            self._store.commit.soon(self.claim.replace(keys, owner, mine, None, self._ttl))

    def failed(self, error: BaseException) -> None:
        """The send has not become anything, as far as is known."""
        if self.ticket is not None:
            self.ticket.close()
            if isinstance(error, A2AError) and not isinstance(error, Unavailable):
                self.ticket.unsent()  # else it may have been accepted
