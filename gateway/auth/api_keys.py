"""API keys: callers that bring a key in the header X-API-Key.

Promises that no call waits for a store: every key is in memory, changes are heard of by pub/sub,
and looked for every 2 s besides. While the keys cannot be read, those known last stay good; before
any were, callers are Unavailable. Relies on `KeyBook`. A stream that is open when its key ends goes
on: who calls is asked once per call.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import secrets
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from hashlib import sha256
from types import MappingProxyType
from typing import Final

from switchroom.gateway.auth.caller import Caller, Request
from switchroom.gateway.auth.gate import Way
from switchroom.protocol.errors import AuthenticationFailed, Unavailable
from switchroom.protocol.model import Json
from switchroom.settings import SettingsError
from switchroom.store import Store
from switchroom.store.api_key import API_KEY
from switchroom.store.api_keys import KeyBook, KeyRing
from switchroom.store.commit import StoreUnavailable
from switchroom.store.key_file import FileKeys

__all__ = ["ApiKeys"]

_HEADER: Final = b"x-api-key"
_SCHEMES: Final[Mapping[str, Json]] = MappingProxyType(
    {"apiKey": {"apiKeySecurityScheme": {"location": "header", "name": "X-API-Key"}}}
)
_EVERY: Final = 2.0
# No secret has it: what an unknown key is compared with, so that it takes as long as a known one.
_NOBODYS: Final = secrets.token_bytes(32)

_log = logging.getLogger("switchroom.gateway")


class ApiKeys(Way):
    """Believes whoever has the secret of a live key."""

    challenge = 'ApiKey realm="a2a"'

    def __init__(
        self, file: FileKeys | None = None, *, clock: Callable[[], float] = time.time
    ) -> None:
        """file: where the keys are; else they are in Redis.  clock: epoch seconds.

        Raises SettingsError for a file that cannot be used.
        """
        self.needs_store = file is None
        self._file = file
        self._clock = clock
        self._ring: KeyRing | None = None
        self._fault = ""
        if file:
            file.load()

    @property
    def schemes(self) -> Mapping[str, Json]:
        return _SCHEMES

    async def caller(self, request: Request) -> Caller | None:
        text = request.headers.get(_HEADER)
        if text is None:
            return None
        found = API_KEY.fullmatch(text)
        if found is None:
            raise AuthenticationFailed("What is no API key was brought as one")
        if self._ring is None:
            raise Unavailable(retry_after=1)
        ident = found[1].decode()
        key = self._ring.keys.get(ident)
        good = hmac.compare_digest(sha256(found[2]).digest(), key.sha256 if key else _NOBODYS)
        # The client is told none of this (`Gate.caller`).
        if key is None:
            raise AuthenticationFailed(f"There is no API key {ident}")
        if not good:
            raise AuthenticationFailed(f"The secret of the API key {ident} is another")
        if not key.live(self._clock()):
            raise AuthenticationFailed(f"The API key {ident} has expired")
        return Caller(key.principal, key.tenant, key.scopes, credential=f"key {ident}")

    @asynccontextmanager
    async def running(self, store: Store | None) -> AsyncIterator[None]:
        book: KeyBook
        if self._file:
            book = self._file
        else:
            assert store is not None
            book = store.api_keys
        told = asyncio.Event()
        await self._look(book)
        watch = asyncio.create_task(self._watch(book, told))
        try:
            yield
        finally:
            watch.cancel()
            await asyncio.wait([watch])
            book.ignore()

    async def _watch(self, book: KeyBook, told: asyncio.Event) -> None:
        listening = False
        while True:
            if not listening:
                with contextlib.suppress(StoreUnavailable):
                    await book.listen(told.set)
                    listening = True
                    told.set()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_EVERY):
                    await told.wait()
            told.clear()
            await self._look(book)

    async def _look(self, book: KeyBook) -> None:
        try:
            ring = await book.read()
        except StoreUnavailable:
            return  # as every call will say that needs the store
        except Exception as fault:
            self._tell(fault)
            return
        if self._fault:
            _log.info("API keys can be read again")
        self._fault = ""
        if ring is not self._ring:
            _tell_news(self._ring, ring)
            self._ring = ring

    def _tell(self, fault: Exception) -> None:
        """Once for each fault, not every 2 s."""
        known, self._fault = self._fault, str(fault)
        if known != self._fault:
            cause = None if isinstance(fault, SettingsError) else fault
            _log.error(
                "API keys cannot be read, those known so far stay good: %s", fault, exc_info=cause
            )


def _tell_news(before: KeyRing | None, ring: KeyRing) -> None:
    for ident, fault in ring.faults.items():
        if before is None or before.faults.get(ident) != fault:
            _log.error("The API key %r is refused: its record %s", ident, fault)
    if not ring.keys:
        _log.warning("There is no API key yet: `switchroom keys create NAME` makes one")
    elif before is not None:
        _log.info("API keys known now: %d", len(ring.keys))
