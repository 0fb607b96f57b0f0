"""A receiver of webhooks: plain HTTP on a port of its own, that answers as it is told to."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.support.wait import wait_until

__all__ = ["Answer", "Heard", "Receiver", "receiver"]


@dataclass(frozen=True)
class Heard:
    """One request.  headers: with lower-case names."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def event(self) -> Any:
        return json.loads(self.body)

    @property
    def delivery(self) -> str:
        return self.headers["a2a-delivery-id"]

    @property
    def state(self) -> str | None:
        """The state that a Task or a status update shows."""
        shown = self.event.get("task") or self.event.get("statusUpdate") or {}
        state: str | None = shown.get("status", {}).get("state")
        return state


@dataclass(frozen=True)
class Answer:
    """status: 0 resets the connection, -1 never answers."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b"{}"


Answering = Callable[[Heard], Awaitable[Answer] | Answer]


class Receiver:
    """heard: every request, in the order of arrival, whatever it was answered.  taken: those that
    were answered with 2xx.
    """

    def __init__(self) -> None:
        self.heard: list[Heard] = []
        self.taken: list[Heard] = []
        self.answering: Answering = lambda heard: Answer()
        self.port = 0
        self._busy: set[asyncio.Task[None]] = set()

    def url(self, path: str = "/hook") -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    async def until(self, number: int) -> list[Heard]:
        """Those taken, when there are so many."""
        await wait_until(lambda: len(self.taken) >= number, what=f"{number} deliveries came")
        return self.taken

    async def until_state(self, state: str, path: str = "/hook") -> list[Heard]:
        """Those taken on the path, when one of them shows the state."""

        def mine() -> list[Heard]:
            return [heard for heard in self.taken if heard.path == path]

        await wait_until(
            lambda: any(heard.state == state for heard in mine()), what=f"{path} heard of {state}"
        )
        return mine()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._busy.add(task)
        try:
            while await self._one(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._busy.discard(task)
            writer.transport.abort()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        pairs = (line.split(": ", 1) for line in lines if line)
        headers = {name.lower(): value for name, value in pairs}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        heard = Heard(first.split(" ")[1], headers, body)
        self.heard.append(heard)
        answer = self.answering(heard)
        if not isinstance(answer, Answer):
            answer = await answer
        if answer.status == 0:
            return False
        if answer.status < 0:
            await reader.read()  # until the other side has enough
            return False
        if 200 <= answer.status < 300:
            self.taken.append(heard)
        head = [f"HTTP/1.1 {answer.status} Said", f"Content-Length: {len(answer.body)}"]
        head += [f"{name}: {value}" for name, value in answer.headers.items()]
        writer.write("\r\n".join([*head, "", ""]).encode() + answer.body)
        await writer.drain()
        return True

    async def close(self) -> None:
        for task in tuple(self._busy):
            task.cancel()
        if self._busy:
            await asyncio.wait(self._busy)


@asynccontextmanager
async def receiver(port: int = 0) -> AsyncIterator[Receiver]:
    """A receiver on a port of its own, or this one."""
    made = Receiver()
    server = await asyncio.start_server(made.serve, "127.0.0.1", port)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()
        await made.close()
        await server.wait_closed()
