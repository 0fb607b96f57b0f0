"""The pool of connections under every client of ours, and words for those that fail."""

from __future__ import annotations

import asyncio
import builtins
import contextlib
import os
import ssl
from typing import Any

from redis.asyncio import BlockingConnectionPool
from redis.asyncio.connection import AbstractConnection, Connection
from redis.exceptions import ConnectionError, RedisError, ResponseError, TimeoutError

__all__ = ["Pool", "last_words", "sentence"]


class Pool(BlockingConnectionPool):
    """Bounds the whole of connecting. Redis-py's own bound ends with the socket; the first words
    on it (AUTH, SELECT …) may take as long as any answer, for a listener for ever. And once closed
    it stays so: a late command would open a connection that nobody closes.
    """

    closed = False

    def __init__(
        self, *, connection_class: type[AbstractConnection] = Connection, **options: Any
    ) -> None:
        super().__init__(connection_class=_failing_as_others(connection_class), **options)

    async def disconnect(self, inuse_connections: bool = True) -> None:
        """Where `Redis.aclose` ends."""
        self.closed = True
        # That a server does not hear of it is no reason to fail: each socket is closed by then.
        with contextlib.suppress(RedisError, OSError):
            await super().disconnect(inuse_connections)

    async def ensure_connection(self, connection: AbstractConnection) -> None:
        try:
            async with asyncio.timeout(self.timeout):
                if not self.closed:
                    await super().ensure_connection(connection)
        except builtins.TimeoutError:
            await connection.disconnect(nowait=True)
            raise TimeoutError("Timeout connecting to server") from None
        except ResponseError as error:
            # Not the answer to the caller's command, for which it would be taken.
            raise ConnectionError(str(error)) from error
        if self.closed:  # perhaps only since we began to connect
            await connection.disconnect(nowait=True)
            raise ConnectionError("This client has been closed")


def _failing_as_others(kind: type[AbstractConnection]) -> type[AbstractConnection]:
    """That kind of connection, where one that the server has just closed fails like any lost one:
    uvloop's transports then raise what nobody takes for that.
    """

    async def send_packed_command(self: AbstractConnection, *args: Any, **options: Any) -> None:
        try:
            await kind.send_packed_command(self, *args, **options)
        except RuntimeError as error:
            raise ConnectionError(str(error)) from error

    return type(kind.__name__, (kind,), {"send_packed_command": send_packed_command})


def last_words(error: BaseException) -> str:
    """The system's own words for a failed connection: redis-py and asyncio wrap them."""
    if isinstance(error, (TimeoutError, builtins.TimeoutError)):
        return "timed out"
    cause = error.__cause__ or error.__context__
    if isinstance(cause, ssl.SSLError):  # its number is none of the system's
        return getattr(cause, "verify_message", "") or cause.reason or sentence(cause)
    if isinstance(cause, OSError) and cause.errno and cause.errno > 0:
        return os.strerror(cause.errno)
    return sentence(error).rpartition(". ")[2]


def sentence(error: BaseException) -> str:
    """The first line of an error's text, to be put into a sentence."""
    return str(error).strip().partition("\n")[0].rstrip(".") or type(error).__name__
