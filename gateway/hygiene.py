"""What every answer over HTTP gets, and what is refused before anything looks at it.

Promises headers that keep a browser from doing anything with an answer but read it; CORS for the
origins that are allowed, and for none by default; and that a Host which is not ours is refused,
except to probes, which come by address. Relies on Starlette for CORS.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from switchroom.gateway.body import JSON_HEADERS
from switchroom.gateway.health import PROBES
from switchroom.gateway.wire import CoreRestWire
from switchroom.protocol.errors import InvalidRequest
from switchroom.settings import Settings

__all__ = ["hygienic"]

_ALLOWED: Final = (
    "A2A-Extensions",
    "A2A-Version",
    "Authorization",
    "Content-Type",
    "Idempotency-Key",
    "Last-Event-ID",
    "Traceparent",
    "X-A2A-Extensions",
    "X-API-Key",
    "X-Request-ID",
)
_EXPOSED: Final = (
    "A2A-Extensions",
    "A2A-Version",
    "RateLimit-Limit",
    "RateLimit-Remaining",
    "RateLimit-Reset",
    "Retry-After",
    "WWW-Authenticate",
    "X-A2A-Extensions",
    "X-Request-ID",
)


def hygienic(app: ASGIApp, settings: Settings) -> ASGIApp:
    """`app` behind all of it."""
    headers = [
        (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
        (b"referrer-policy", b"no-referrer"),
    ]
    if settings.hsts:
        seconds = round(settings.hsts.total_seconds())
        headers.append((b"strict-transport-security", b"max-age=%d" % seconds))
    if settings.hosts:
        app = _OurHosts(app, settings.hosts)
    if settings.cors_origins:
        app = CORSMiddleware(
            app,
            allow_origins=settings.cors_origins,
            allow_methods=("GET", "POST", "DELETE"),
            allow_headers=_ALLOWED,
            expose_headers=_EXPOSED,
        )
    return _Headers(app, headers)


class _Headers:
    """Adds the same headers to every answer."""

    def __init__(self, app: ASGIApp, headers: Sequence[tuple[bytes, bytes]]) -> None:
        self._app = app
        self._headers = tuple(headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"], *self._headers]}
            await send(message)

        await self._app(scope, receive, with_headers)


class _OurHosts:
    """Refuses requests for other hosts; `*.example.com` is each host below that name."""

    def __init__(self, app: ASGIApp, hosts: Sequence[str]) -> None:
        self._app = app
        self._exact = {host for host in hosts if not host.startswith("*.")}
        self._below = tuple(host[1:] for host in hosts if host.startswith("*."))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] in PROBES or self._is_ours(scope):
            await self._app(scope, receive, send)
            return
        fault = InvalidRequest("The request is for a host that is not served here")
        body = CoreRestWire().error(fault, http=fault.http, status=fault.status)
        headers = [*JSON_HEADERS, (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": fault.http, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def _is_ours(self, scope: Scope) -> bool:
        given = [value for name, value in scope["headers"] if name == b"host"]
        if len(given) != 1:
            return False
        host = given[0].decode("latin-1").lower()
        if not host.endswith("]"):
            host, _, port = host.rpartition(":") if ":" in host else (host, "", "")
            if port and not port.isdigit():
                return False
        return host in self._exact or host.endswith(self._below)
