"""Probes: /livez says that the process turns, /readyz that it should get requests.

Promises an answer within about a second, whatever the store does; relies on the store's ping.
Liveness asks nothing of Redis: restarting a gateway does not mend a store.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

__all__ = ["PROBES", "Ping", "health_routes"]

PROBES = ("/livez", "/readyz")

log = logging.getLogger(__name__)

Ping = Callable[[], Awaitable[object]]

_PING_LIMIT = 1.0
_HEADERS = {"cache-control": "no-store", "x-content-type-options": "nosniff"}


def health_routes(*, ready: Ping, draining: asyncio.Event) -> list[Route]:
    """The two routes. `ready` raises when this gateway cannot serve; a second is all it gets."""

    async def livez(request: Request) -> JSONResponse:
        return JSONResponse({"status": "ok"}, headers=_HEADERS)

    async def readyz(request: Request) -> JSONResponse:
        if draining.is_set():
            return _unready("draining")
        try:
            async with asyncio.timeout(_PING_LIMIT):
                await ready()
        except Exception as error:
            log.warning("Not ready: the store does not answer (%s)", error or type(error).__name__)
            return _unready("store")
        return JSONResponse({"status": "ok"}, headers=_HEADERS)

    return [Route(path, probe) for path, probe in zip(PROBES, (livez, readyz), strict=True)]


def _unready(reason: str) -> JSONResponse:
    return JSONResponse({"status": "unavailable", "reason": reason}, 503, headers=_HEADERS)
