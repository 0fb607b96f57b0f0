"""Where an issuer's keys come from: fetched beside the calls, and kept while it is silent.

Promises that a call waits for the issuer at most `_PATIENCE`, and only where it needs a key that is
not here yet; that what the issuer does (hang, lie, fail, send without end) leaves the last good
keys as they are, for a bounded time; and that strangers' tokens cannot make us ask it often.
Relies on httpx2; nothing the issuer sends is followed or unpacked, and `keyset.py` judges its keys.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import Final

import httpx2
from jwt import PyJWK
from pydantic import TypeAdapter
from pydantic_core import from_json

from switchroom.gateway.auth.keyset import KeySet
from switchroom.protocol.errors import Unavailable
from switchroom.protocol.model import Json
from switchroom.settings import IssuerUrl, Settings

__all__ = ["DISCOVERY_PATH", "IssuerKeys", "holds_for"]

log = logging.getLogger(__name__)

DISCOVERY_PATH: Final = "/.well-known/openid-configuration"

_CONNECT = 3.0  # seconds; each of these
_WHOLE = 5.0  # one document, to its last byte
_PATIENCE = 2.0
_LARGEST = 256 * 1024  # bytes of one document
_USUAL = 300.0
_AGE = range(60, 901)  # the issuer's own word about it, Cache-Control, holds within
_URL = TypeAdapter[str](IssuerUrl)  # as that of the setting whose place it takes
_MAX_AGE = re.compile(r"(?:^|[\s,])max-age=(\d{1,9})(?!\d)", re.IGNORECASE)


class _Refused(Exception):
    """What the issuer sends is no good; the text says why."""


class IssuerKeys:
    """The keys that tokens of one issuer are verified with, as far as they are known."""

    def __init__(
        self,
        settings: Settings,
        *,
        pause: timedelta = timedelta(seconds=10),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """pause: least time between two fetches, whatever calls ask for.  clock: in seconds."""
        self._issuer = settings.jwt_issuer
        self._url = settings.jwt_jwks_url
        self._algorithms = settings.jwt_algorithms
        self._kept = settings.jwt_stale_limit.total_seconds()
        self._pause = pause.total_seconds()
        self._clock = clock
        self._keys: KeySet | None = None
        self._fetched = 0.0
        self._tried = 0.0
        self._trouble: str | None = "they have not been asked for yet"
        self._failures = 0
        self._wanted = asyncio.Event()
        self._settled = asyncio.Event()  # no fetch is under way, nor about to be

    @property
    def known(self) -> KeySet | None:
        """The last good keys; None if there are none, or if they are too old to be believed."""
        if self._clock() - self._fetched > self._kept:
            return None
        return self._keys

    async def find(self, key_id: str | None, algorithm: str) -> PyJWK | None:
        """The key; None if the issuer has none of this id for this algorithm.

        Raises Unavailable if that cannot be told at the moment.
        """
        if (known := self.known) and (key := known.find(key_id, algorithm)):
            return key
        if self._settled.is_set() and self._clock() - self._tried >= self._pause:
            self._settled.clear()
            self._wanted.set()
        with suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                await self._settled.wait()
        known = self.known
        if known and (key := known.find(key_id, algorithm)):
            return key
        if not known or self._trouble or not self._settled.is_set():
            raise Unavailable(retry_after=self._pause)
        return None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Fetches the keys now and whenever it is time, as long as the block lasts."""
        timeout = httpx2.Timeout(_WHOLE, connect=_CONNECT)
        # What is packed would have to be unpacked, to any size.
        headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
        async with httpx2.AsyncClient(timeout=timeout, headers=headers) as client:
            task = asyncio.create_task(self._keep(client))
            try:
                yield
            finally:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task

    async def _keep(self, client: httpx2.AsyncClient) -> None:
        while True:
            self._wanted.clear()
            self._settled.clear()
            wait = await self._refresh(client)
            self._tried = self._clock()
            self._settled.set()
            with suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._wanted.wait()

    async def _refresh(self, client: httpx2.AsyncClient) -> float:
        """Fetch the keys; seconds until it is time again."""
        try:
            keys, wait = await self._fetch(client)
        except Exception as error:  # whatever it is, calls go on with what there is
            self._failures += 1
            self._say(_reason(error))
            return min(self._pause * 2.0 ** min(self._failures - 1, 10), _USUAL)
        if not keys.same(self._keys):
            # Another object, also for whoever remembers what the former keys have proved.
            self._keys = keys
        self._fetched = self._clock()
        if self._trouble and self._failures:
            log.info("the keys of %s are known again", self._issuer or self._url)
        self._trouble, self._failures = None, 0
        return wait

    def _say(self, trouble: str) -> None:
        if trouble != self._trouble:
            kept = "the last good ones are used" if self.known else "calls with a token get 503"
            where = self._issuer or self._url
            log.warning("the keys of %s cannot be fetched: %s; %s", where, trouble, kept)
        self._trouble = trouble

    async def _fetch(self, client: httpx2.AsyncClient) -> tuple[KeySet, float]:
        url = self._url or await self._discover(client)
        found, wait = await _document(client, url)
        try:
            return KeySet(found, algorithms=self._algorithms), wait
        except ValueError as error:
            raise _Refused(f"{url} is no good: {error}") from None

    async def _discover(self, client: httpx2.AsyncClient) -> str:
        """The address of the keys (OpenID Connect Discovery §4)."""
        assert self._issuer is not None
        found, _ = await _document(client, self._issuer.rstrip("/") + DISCOVERY_PATH)
        if found.get("issuer") != self._issuer:
            raise _Refused(f"it says that it is {found.get('issuer')!r:.200}")
        try:
            return _URL.validate_python(found.get("jwks_uri"))
        except ValueError:
            raise _Refused(f"it says its keys are at {found.get('jwks_uri')!r:.200}") from None


async def _document(client: httpx2.AsyncClient, url: str) -> tuple[Json, float]:
    """The JSON object at `url`, and for how many seconds it holds."""
    body = bytearray()
    async with asyncio.timeout(_WHOLE), client.stream("GET", url) as response:
        if response.status_code != 200:
            raise _Refused(f"{url} answers {response.status_code}")
        async for chunk in response.aiter_raw():
            body += chunk
            if len(body) > _LARGEST:
                raise _Refused(f"{url} answers more than {_LARGEST} bytes")
        said: str = response.headers.get("cache-control", "")
    try:
        found = from_json(bytes(body))
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise _Refused(f"{url} answers no JSON object")
    return found, holds_for(said)


def holds_for(cache_control: str) -> float:
    """Seconds until what came with this header should be fetched again."""
    age = _MAX_AGE.search(cache_control)
    return float(min(max(int(age[1]), _AGE[0]), _AGE[-1])) if age else _USUAL


def _reason(error: Exception) -> str:
    match error:
        case _Refused():
            return str(error)
        case TimeoutError() | httpx2.TimeoutException():
            return "it does not answer in time"
        case _:
            return f"{type(error).__name__}: {str(error):.200}"
