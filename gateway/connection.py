"""A connection as uvicorn keeps it, with bounds on what a client may hold before it has asked.

Promises that a client which sends nothing, or its headers byte by byte, or headers without end, is
told so and loses its connection; and that it is told in JSON. Relies on uvicorn's protocol over
httptools, and on nothing of it but the callbacks that asyncio and httptools define.
"""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from switchroom.gateway.body import JSON_HEADERS, headers_of
from switchroom.gateway.wire import CoreRestWire
from switchroom.protocol.errors import (
    A2AError,
    HeadersTooLarge,
    InvalidRequest,
    RequestTimeout,
    Unavailable,
)
from switchroom.settings import Settings

__all__ = ["Connection", "connection_of"]


class Connection(HttpToolsProtocol):
    """One client's connection. The class attributes are the bounds; 0 connections is no bound."""

    most: ClassVar[int]
    header_limit: ClassVar[int]
    patience: ClassVar[float]

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._late: asyncio.TimerHandle | None = None
        self._read = 0
        self._in_headers = True

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self.most and len(self.connections) > self.most:
            self._refuse(Unavailable("This gateway has too many connections; try again"))
        else:
            self._wait_for_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        # Counted as it comes: the parser hands a header over when it has all of it.
        self._read = self._read + len(data) if self._in_headers else 0
        super().data_received(data)
        if self._in_headers and self._read > self.header_limit:
            limit = self.header_limit
            self._refuse(HeadersTooLarge(f"The request's headers are larger than {limit} bytes"))

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_headers = True
        if self._late is None:
            self._wait_for_headers()

    def on_headers_complete(self) -> None:
        self._stop_waiting()
        self._in_headers = False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._in_headers, self._read = True, 0

    def send_400_response(self, msg: str) -> None:
        """Where uvicorn refuses what is no HTTP."""
        self._refuse(InvalidRequest("This is not an HTTP request"))

    def _wait_for_headers(self) -> None:
        self._late = self.loop.call_later(self.patience, self._lose_patience)

    def _stop_waiting(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _lose_patience(self) -> None:
        self._late = None
        self._refuse(RequestTimeout("The request's headers did not arrive in time"))

    def _refuse(self, fault: A2AError) -> None:
        self._stop_waiting()
        body = CoreRestWire().error(fault, http=fault.http, status=fault.status)
        headers = [
            *JSON_HEADERS,
            *headers_of(fault),
            (b"content-length", b"%d" % len(body)),
            (b"connection", b"close"),
        ]
        lines = b"".join(name + b": " + value + b"\r\n" for name, value in headers)
        self.transport.write(STATUS_LINE[fault.http] + lines + b"\r\n" + body)
        self.transport.close()


def connection_of(settings: Settings) -> type[Connection]:
    """The class of connections with these settings."""

    class Bounded(Connection):
        most = settings.connections
        header_limit = settings.header_limit
        patience = settings.request_timeout.total_seconds()

    return Bounded
