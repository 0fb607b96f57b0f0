"""The gate: every call is asked who makes it, before its body is read (§7.4).

Promises one caller, or one error that says which ways to authenticate there are; and that a gate
with no way is open. A valid credential is enough, whatever else the request brings along. Relies on
each way to look only at the request's head, and never to keep the event loop waiting.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from switchroom.gateway.auth.caller import ANYBODY, Caller, Request
from switchroom.protocol.errors import A2AError, AuthenticationFailed, Unauthenticated
from switchroom.protocol.model import Json
from switchroom.store import Store

__all__ = ["Gate", "Way"]

_LONGEST_NAME = 256
"""Characters of a principal or a tenant: both are parts of keys."""


def _is_name(text: str) -> bool:
    # Nothing that could end a line of a log, or that no key can be made of.
    return len(text) <= _LONGEST_NAME and text.isprintable()


class Way(ABC):
    """One way to prove who calls."""

    challenge: str = ""
    """Its `WWW-Authenticate`; empty if HTTP has none for it."""
    needs_store: bool = False
    """Whether it keeps anything in Redis."""

    @property
    @abstractmethod
    def schemes(self) -> Mapping[str, Json]:
        """What the card's `securitySchemes` say of it (§4.5.1); each is enough by itself."""

    @abstractmethod
    async def caller(self, request: Request) -> Caller | None:
        """Who calls; None if the request brings no credential of this kind.

        Raises AuthenticationFailed for one that is no good, and Unavailable where that cannot be
        told at the moment.
        """

    @asynccontextmanager
    async def running(self, store: Store | None) -> AsyncIterator[None]:
        """What goes on beside the calls.  store: there if the way `needs_store`."""
        yield


class Gate:
    """Asks each way in turn; the first that knows the caller is believed."""

    def __init__(self, ways: Sequence[Way] = ()) -> None:
        self._ways = tuple(ways)
        self._challenges = tuple(way.challenge for way in ways if way.challenge)

    @property
    def open(self) -> bool:
        """Whether nobody is asked."""
        return not self._ways

    @property
    def needs_store(self) -> bool:
        """Whether a way keeps anything in Redis."""
        return any(way.needs_store for way in self._ways)

    @property
    def schemes(self) -> dict[str, Json]:
        """The `securitySchemes` of the card; each is enough by itself."""
        return {name: scheme for way in self._ways for name, scheme in way.schemes.items()}

    async def caller(self, request: Request) -> Caller:
        """Who calls. Raises Unauthenticated, AuthenticationFailed, Unavailable."""
        if not self._ways:
            return ANYBODY
        fault: A2AError | None = None
        for way in self._ways:
            try:
                caller = await way.caller(request)
            except A2AError as error:
                fault = fault or error
                continue
            if caller is not None:
                if not (
                    caller.principal and _is_name(caller.principal) and _is_name(caller.tenant)
                ):
                    raise AuthenticationFailed(challenges=self._challenges)
                return caller
        if isinstance(fault, AuthenticationFailed):
            raise AuthenticationFailed(challenges=self._challenges) from fault
        raise fault or Unauthenticated(challenges=self._challenges)

    @asynccontextmanager
    async def running(self, store: Store | None) -> AsyncIterator[None]:
        """What the ways do beside the calls."""
        async with AsyncExitStack() as opened:
            for way in self._ways:
                await opened.enter_async_context(way.running(store))
            yield
