"""A2A 1.0 over JSON-RPC, as fast as a generator must be: hand-made HTTP/1.1, httptools for answers.

Promises: one exchange at a time per connection; every answer is either the result or an exception.
Relies on: a server on this machine's network without TLS.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections.abc import Callable
from typing import Any, cast
from urllib.parse import urlsplit

import httptools
from pydantic_core import from_json, to_json

__all__ = ["Client", "Connection", "Refused", "get", "list_tasks", "send", "subscribe"]

Json = dict[str, Any]
OnData = Callable[[bytes, float], None]
"""Called with each `data:` line of a stream and the moment it came."""

_request_ids = itertools.count(1)
_session = f"{os.getpid() ^ int(time.time() * 1000):x}"


class Refused(Exception):
    """The server answered with an error: an HTTP status, or a JSON-RPC error in a 200."""

    def __init__(self, error: Any, *, http: int) -> None:
        super().__init__(f"HTTP {http}: {error}")
        code = error.get("code") if isinstance(error, dict) else None
        self.kind = f"rpc {code}" if http == 200 else f"http {http}"
        self.http = http


def send(text: str, *, wait: bool = True, stream: bool = False) -> bytes:
    message: Json = {
        "messageId": f"m-{_session}-{next(_request_ids)}",
        "role": "ROLE_USER",
        "parts": [{"text": text}],
    }
    if stream:
        return _rpc("SendStreamingMessage", {"message": message})
    return _rpc(
        "SendMessage", {"message": message, "configuration": {"returnImmediately": not wait}}
    )


def get(task_id: str) -> bytes:
    return _rpc("GetTask", {"id": task_id})


def list_tasks(*, page_token: str = "") -> bytes:
    return _rpc("ListTasks", {"pageSize": 50, "pageToken": page_token})


def subscribe(task_id: str) -> bytes:
    return _rpc("SubscribeToTask", {"id": task_id})


def _rpc(method: str, params: Json) -> bytes:
    call = {"jsonrpc": "2.0", "id": next(_request_ids), "method": method, "params": params}
    return to_json(call)


class Connection(asyncio.Protocol):
    """One keep-alive connection."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport
        self.closed = False
        self.keep_alive = True
        self.answering: asyncio.Event | None = None  # set once the answer's head is here
        self._answer: asyncio.Future[None] | None = None
        self._on_data: OnData | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's has no such base

    def connection_lost(self, error: Exception | None) -> None:
        self.closed = True
        self._fail(error or ConnectionResetError("the server closed the connection"))

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(error)
            self.transport.close()

    def exchange(self, request: bytes, on_data: OnData | None = None) -> asyncio.Future[None]:
        """Sends; the future is done when the answer has ended."""
        self._parser = httptools.HttpResponseParser(self)
        self._answer = asyncio.get_running_loop().create_future()
        self._on_data = on_data
        self._rest = b""
        self.body: list[bytes] = []
        self.is_stream = False
        self.last_event_id = b""
        self.status = 0
        self.transport.write(request)
        return self._answer

    def _fail(self, error: Exception) -> None:
        if self._answer and not self._answer.done():
            self._answer.set_exception(error)

    # What httptools calls.

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        if name == b"content-type":
            self.is_stream = value.startswith(b"text/event-stream")
        elif name == b"connection" and value.lower() == b"close":
            self.keep_alive = False

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()
        if self.answering:
            self.answering.set()

    def on_body(self, data: bytes) -> None:
        if not (self.is_stream and self._on_data):
            self.body.append(data)
            return
        now = time.perf_counter()
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                self._on_data(line[5:].strip(), now)
            elif line.startswith(b"id:"):
                self.last_event_id = line[3:].strip()

    def on_message_complete(self) -> None:
        if self._answer and not self._answer.done():
            self._answer.set_result(None)


class Client:
    """Opens connections to one endpoint and speaks on them."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "127.0.0.1", parts.port or 80
        self._head = (
            f"POST {parts.path or '/'} HTTP/1.1\r\nHost: {parts.netloc}\r\n"
            "Content-Type: application/json\r\nA2A-Version: 1.0\r\n"
            "Accept: application/json, text/event-stream\r\nContent-Length: "
        ).encode()

    async def connect(self) -> Connection:
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(Connection, self._host, self._port)
        return connection

    async def call(self, connection: Connection, body: bytes, *, within: float = 30) -> Any:
        """The result of one call.

        Raises:
            Refused: The server answered with an error.
            TimeoutError, OSError: It did not answer.
        """
        await self._exchange(connection, body, None, within)
        if connection.status != 200:
            raise Refused(b"".join(connection.body)[:200], http=connection.status)
        return _result(b"".join(connection.body))

    async def stream(
        self,
        connection: Connection,
        body: bytes,
        on_data: OnData,
        *,
        within: float | None = None,
        after: bytes = b"",
    ) -> None:
        """Reads a stream to its end, from the event `after` on; raises as `call` does."""
        await self._exchange(connection, body, on_data, within, after)
        if connection.status != 200:
            raise Refused(b"".join(connection.body)[:200], http=connection.status)
        if not connection.is_stream:
            _result(b"".join(connection.body))
            raise Refused("a plain answer instead of a stream", http=200)

    async def _exchange(
        self,
        connection: Connection,
        body: bytes,
        on_data: OnData | None,
        within: float | None,
        after: bytes = b"",
    ) -> None:
        resume = b"\r\nLast-Event-ID: " + after if after else b""
        request = b"%b%d%b\r\n\r\n%b" % (self._head, len(body), resume, body)
        async with asyncio.timeout(within):
            await connection.exchange(request, on_data)


def _result(body: bytes) -> Any:
    answer = from_json(body)
    if answer.get("error"):
        raise Refused(answer["error"], http=200)
    return answer["result"]
