"""The gateway's HTTP server, until it is told to stop.

Promises that on a stop no new connection is taken, open streams are ended by the app's own `drain`,
and what still runs gets the drain time. Relies on uvicorn, and on whoever calls for the signals.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import socket
from collections.abc import Callable, Iterator
from datetime import timedelta

import uvicorn
from fastapi import FastAPI

__all__ = ["BindError", "bind", "serve"]

# Bytes for one client that may wait in the system before those that wait here do.
_UNSENT = 128 * 1024


class BindError(Exception):
    """The address cannot be used; the text is one sentence."""


def bind(host: str, port: int) -> socket.socket:
    """A socket listening at `host` and `port`; port 0 takes a free one. Raises BindError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except (OSError, ValueError) as error:  # ValueError: a name that no DNS can have
        # The socket module adds the address to the system's words.
        number = getattr(error, "errno", None) or 0
        reason = os.strerror(number) if number > 0 else getattr(error, "strerror", str(error))
        raise BindError(
            f"The gateway cannot listen at {host}:{port} ({reason}); "
            "choose another --host or --port."
        ) from None


async def serve(
    app: FastAPI, listener: socket.socket, *, drain: timedelta, stop: asyncio.Event
) -> None:
    """Serve `app` at `listener` until `stop` is set; then give what is open `drain` to end."""
    _bound_what_readers_hold(listener, patience=app.state.streams.patience)
    config = uvicorn.Config(
        app,
        loop="none",
        http=app.state.connection,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,  # whom to believe is said by `trusted_proxies`, and read by `Address`
        # Above the 60 s for which proxies keep idle connections: whoever closes first must be they.
        timeout_keep_alive=75,
        timeout_graceful_shutdown=math.ceil(drain.total_seconds()),
    )
    logging.getLogger("uvicorn.error").addFilter(_is_ours_to_know)
    server = _Server(config, drain=app.state.drain)
    watch = asyncio.create_task(server.exit_when(stop))
    try:
        await server.serve(sockets=[listener])
    finally:
        watch.cancel()


def _bound_what_readers_hold(listener: socket.socket, *, patience: float) -> None:
    """Each connection from now on inherits this. A client that does not read holds little of the
    system's memory, else 4 MB; one that has taken nothing for `patience`, or is gone without a
    word, loses its connection, which would otherwise wait for it, some minutes or for ever.
    """
    options = {"TCP_NOTSENT_LOWAT": _UNSENT, "TCP_USER_TIMEOUT": math.ceil(patience * 1000)}
    for name, value in options.items():
        if option := getattr(socket, name, None):  # the second is Linux's alone
            listener.setsockopt(socket.IPPROTO_TCP, option, value)


def _is_ours_to_know(record: logging.LogRecord) -> bool:
    """False for uvicorn's two lines about a client that asks for a WebSocket, one of them advice to
    install something (such a request is answered like any other), and for what it says of an answer
    that ended early: its client had stopped reading.
    """
    return not record.getMessage().startswith(
        (
            "Unsupported upgrade",
            "No supported WebSocket library",
            "ASGI callable returned without completing response",
        )
    )


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, *, drain: Callable[[], None]) -> None:
        super().__init__(config)
        self._drain = drain

    async def exit_when(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # First of all: uvicorn waits for open streams, and these end only when told to.
        self._drain()
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        # uvicorn would raise the signal again, and kill us before the store is closed.
        yield
