"""A round-robin proxy over several gateways, as a load balancer without affinity would be.

Promises that each request, also on a connection kept alive, goes to the next gateway; that a
gateway which cannot be reached is passed over; and that it can cut all connections at once. Relies
on clients that do not pipeline: what a client sends after an answer begins with a request line.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

__all__ = ["Proxy", "proxy_over"]

_REQUEST = re.compile(rb"(GET|POST|PUT|DELETE|HEAD|OPTIONS|PATCH) [^ ]+ HTTP/1\.[01]\r\n")
_CHUNK = 64 * 1024


class Proxy:
    """An open proxy.

    url: where clients connect.  served: requests that each target was given, by its port.
    """

    def __init__(self, ports: Sequence[int]) -> None:
        self.url = ""
        self.served = dict.fromkeys(ports, 0)
        self._next = 0
        self._clients: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()

    def cut(self) -> None:
        """Break every open connection, on both sides, in the middle of whatever it carries."""
        for writer in tuple(self._writers):
            writer.transport.abort()

    async def close(self) -> None:
        for task in tuple(self._clients):
            task.cancel()
        if self._clients:
            await asyncio.wait(self._clients)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._clients.add(task)
        self._writers.add(writer)
        try:
            with suppress(OSError, asyncio.CancelledError):
                await self._relay(reader, writer)
        finally:
            self._clients.discard(task)
            self._writers.discard(writer)
            writer.transport.abort()

    async def _relay(self, reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        target: asyncio.StreamWriter | None = None
        answers: asyncio.Task[None] | None = None
        try:
            while data := await reader.read(_CHUNK):
                if target is None or _REQUEST.match(data):
                    await _let_go(target, answers)
                    back, target = await self._connect()
                    self._writers.add(target)
                    answers = asyncio.create_task(_pass_on(back, client))
                target.write(data)
                await target.drain()
        finally:
            if target is not None:
                self._writers.discard(target)
            await _let_go(target, answers)

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        ports = list(self.served)
        for _ in ports:
            port = ports[self._next % len(ports)]
            self._next += 1
            try:
                opened = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                continue
            self.served[port] += 1
            return opened
        raise ConnectionError("no gateway can be reached")


async def _pass_on(back: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await back.read(_CHUNK):
            client.write(data)
            await client.drain()
    # The gateway has closed (or was killed): so does this connection, after what it said.
    client.close()


async def _let_go(target: asyncio.StreamWriter | None, answers: asyncio.Task[None] | None) -> None:
    if target is not None:
        target.transport.abort()
    if answers is not None:
        answers.cancel()
        await asyncio.wait((answers,))


@asynccontextmanager
async def proxy_over(ports: Sequence[int], *, port: int = 0) -> AsyncIterator[Proxy]:
    """A proxy over the gateways at these ports of this machine; by itself at a free `port`."""
    proxy = Proxy(ports)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", port)
    try:
        proxy.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield proxy
    finally:
        server.close()
        await proxy.close()
        await server.wait_closed()
