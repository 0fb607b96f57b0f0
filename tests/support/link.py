"""A process's network path to Redis: bytes as they come, until a test cuts, holds, slows or loses
them.

Promises that an answer which is lost was given: Redis has done what was asked. Relies on requests
that begin with their script's digest or their key, so that both come in one piece.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

__all__ = ["Link", "link_to"]

_CHUNK = 64 * 1024


class _Connection:
    """One connection and its way on."""

    def __init__(self) -> None:
        self.stranded = False
        self.loses = False


class Link:
    """An open path.  url: what the process takes for its Redis.  delay: seconds that each answer
    takes longer.
    """

    def __init__(self, port: int) -> None:
        self.url = ""
        self.delay = 0.0
        self._port = port
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._connections: set[_Connection] = set()
        self._flows = asyncio.Event()
        self._flows.set()
        self._losing: tuple[bytes, bytes, asyncio.Event] | None = None

    def cut(self) -> None:
        """Break every connection, in the middle of whatever it carries; new ones are taken."""
        for writer in tuple(self._writers):
            writer.transport.abort()

    def hold(self) -> None:
        """Pass nothing on, either way, and break nothing: what a lost route looks like."""
        self._flows.clear()

    def release(self) -> None:
        self._flows.set()

    def strand(self) -> None:
        """Nothing ever comes through the present connections again, and nobody is told: half-open,
        as after a firewall has forgotten them. New ones are good.
        """
        for connection in self._connections:
            connection.stranded = True

    def lose(self, word: str, *, told: str = "") -> asyncio.Event:
        """Lose the answer to the next request that has `word` in it, and break its connection. Set
        once it is lost.  told: what must stand in the answer, else the next is waited for.
        """
        lost = asyncio.Event()
        self._losing = (word.encode(), told.encode(), lost)
        return lost

    async def close(self) -> None:
        for task in tuple(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.add(writer)
        try:
            with suppress(OSError, asyncio.CancelledError):
                await self._flows.wait()
                back, target = await asyncio.open_connection("127.0.0.1", self._port)
                self._writers.add(target)
                try:
                    await self._both(reader, target, back, writer)
                finally:
                    self._writers.discard(target)
                    target.transport.abort()
        finally:
            self._tasks.discard(task)
            self._writers.discard(writer)
            writer.transport.abort()

    async def _both(
        self,
        reader: asyncio.StreamReader,
        target: asyncio.StreamWriter,
        back: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        connection = _Connection()
        self._connections.add(connection)
        ways = (
            asyncio.create_task(self._ask(connection, reader, target)),
            asyncio.create_task(self._answer(connection, back, writer)),
        )
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._connections.discard(connection)
            for way in ways:
                way.cancel()
            await asyncio.wait(ways)

    async def _ask(
        self, connection: _Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        with suppress(OSError):
            while data := await reader.read(_CHUNK):
                await self._flows.wait()
                if connection.stranded:
                    continue
                if self._losing is not None and self._losing[0] in data:
                    connection.loses = True
                writer.write(data)
                await writer.drain()

    async def _answer(
        self, connection: _Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        with suppress(OSError):
            while data := await reader.read(_CHUNK):
                await self._flows.wait()
                if connection.stranded:
                    continue
                if connection.loses and self._losing is not None and self._losing[1] in data:
                    self._losing[2].set()
                    self._losing = None
                    return
                if self.delay:
                    await asyncio.sleep(self.delay)
                writer.write(data)
                await writer.drain()


@asynccontextmanager
async def link_to(port: int) -> AsyncIterator[Link]:
    """A path to the Redis at this port of this machine, which need not be there yet."""
    link = Link(port)
    server = await asyncio.start_server(link.serve, "127.0.0.1")
    try:
        link.url = f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield link
    finally:
        server.close()
        await link.close()
        await server.wait_closed()
