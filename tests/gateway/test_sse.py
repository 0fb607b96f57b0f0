"""Event streams over a real server: framing, silence, leaving, slow readers, stopping."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import stat
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from switchroom.gateway.context import CallContext
from switchroom.gateway.dispatch import Answer, Event, StreamItem
from switchroom.protocol.errors import TaskNotFound, UnsupportedOperation
from switchroom.protocol.model import Json, Task
from tests.support.gateways import V1, app_of, call, card_of, client_of, request, serving
from tests.support.wait import wait_until

TASK: Json = {"id": "t1", "contextId": "c1", "status": {"state": "TASK_STATE_WORKING"}}
EVENT = json.dumps({"task": TASK}, separators=(",", ":")).encode()

Stream = Callable[[], AsyncIterator[Event]]


class Streaming:
    """A handler that streams what the test wrote, and notes when a stream is closed."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.closed = asyncio.Event()
        self.release = asyncio.Event()
        self.drained = asyncio.Event()
        self.began = asyncio.Event()

    async def dispatch(self, method: str, params: Json | None, context: CallContext) -> Answer:
        if method != "SubscribeToTask":
            self.began.set()
            await self.release.wait()
            return TASK
        return self._noted()

    async def _noted(self) -> AsyncGenerator[Event, None]:
        try:
            async for item in self.stream():
                yield item
        finally:
            self.closed.set()

    def drain(self) -> None:
        self.drained.set()


async def for_ever() -> AsyncIterator[Event]:
    yield StreamItem(EVENT, "1.m")
    await asyncio.get_running_loop().create_future()


def listening(client: httpx.AsyncClient, ident: Any = 1) -> Any:
    return client.stream("POST", "/", json=request("SubscribeToTask", {}, ident), headers=V1)


async def lines_of(response: httpx.Response, count: int) -> list[str]:
    """The first `count` lines that are not empty."""
    found: list[str] = []
    async for line in response.aiter_lines():
        if line:
            found.append(line)
        if len(found) == count:
            break
    return found


async def listen_to_all(stream: Stream, ident: Any = 1) -> httpx.Response:
    async with client_of(app_of(Streaming(stream))) as client:
        return await client.post("/", json=request("SubscribeToTask", {}, ident), headers=V1)


# -- framing


async def test_each_event_is_a_whole_response_with_its_position() -> None:
    async def stream() -> AsyncIterator[Event]:
        yield StreamItem(EVENT, "1.m")
        yield StreamItem(EVENT)
        yield {"task": TASK}
        yield Task.model_validate(TASK)

    response = await listen_to_all(stream, 'a"b')
    data = b'data: {"jsonrpc":"2.0","id":"a\\"b","result":' + EVENT + b"}\n\n"
    assert response.content == b"id: 1.m\n" + data + data * 3
    headers = response.headers
    assert headers["content-type"] == "text/event-stream"
    assert headers["cache-control"] == "no-cache"
    assert headers["x-accel-buffering"] == "no"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["a2a-version"] == "1.0"
    assert headers["x-request-id"]


async def test_line_breaks_cannot_forge_an_event() -> None:
    async def stream() -> AsyncIterator[Event]:
        yield StreamItem(b'{"task":\r\n {"id":\n"t1"}\r}', "1\ndata: x")
        yield StreamItem(b'{"task":{"id":"a\\nb"}}', "2\r3")
        yield StreamItem(EVENT, "\x00")

    text = (await listen_to_all(stream)).text
    frames = text.split("\n\n")
    assert len(frames) == 4 and frames[-1] == ""
    for frame in frames[:3]:
        assert frame.startswith("data: ") and "\n" not in frame and "\r" not in frame
        assert json.loads(frame.removeprefix("data: "))["result"]["task"]["id"]


async def test_an_empty_item_opens_the_stream_without_an_event() -> None:
    async def stream() -> AsyncIterator[Event]:
        yield StreamItem(b"", "1.m")
        yield StreamItem(EVENT, "2.m")

    text = (await listen_to_all(stream)).text
    assert text.startswith(":")
    assert text.count("data:") == text.count("id: ") == 1


async def test_a_stream_that_only_ends_is_an_empty_one() -> None:
    async def stream() -> AsyncIterator[Event]:
        return
        yield

    response = await listen_to_all(stream)
    assert (response.status_code, response.content) == (200, b"")
    assert response.headers["content-type"] == "text/event-stream"


# -- failures


async def test_a_failure_before_the_first_event_is_a_plain_error() -> None:
    async def stream() -> AsyncIterator[Event]:
        raise TaskNotFound()
        yield

    response = await listen_to_all(stream)
    assert response.headers["content-type"] == "application/json"
    assert response.json()["error"]["code"] == TaskNotFound.code


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (UnsupportedOperation(), -32004),
        (RuntimeError("secret"), -32603),
        (asyncio.CancelledError("secret"), -32603),
    ],
)
async def test_a_later_failure_is_the_last_event(failure: BaseException, code: int) -> None:
    async def stream() -> AsyncIterator[Event]:
        yield StreamItem(EVENT, "1.m")
        raise failure

    response = await listen_to_all(stream, 7)
    last = response.text.strip().split("\n\n")[-1]
    name, data = last.split("\n")
    assert name == "event: error"
    told = json.loads(data.removeprefix("data: "))
    assert (told["id"], told["error"]["code"]) == (7, code)
    assert "secret" not in response.text


async def test_an_event_that_is_none_is_a_failure_of_the_handler() -> None:
    async def stream() -> AsyncIterator[Any]:
        yield 7

    response = await listen_to_all(stream)
    assert response.json()["error"]["code"] == -32603


async def test_a_result_instead_of_a_stream(caplog: pytest.LogCaptureFixture) -> None:
    class Wrong:
        async def dispatch(self, method: str, params: Json | None, context: CallContext) -> Answer:
            return TASK

    async with client_of(app_of(Wrong())) as client:
        response = await call(client, "SubscribeToTask")
    assert response.json()["error"]["code"] == -32603
    assert "not an async iterator of events" in caplog.text


async def test_no_streaming_on_the_card_no_stream() -> None:
    handler = Streaming(for_ever)
    async with client_of(app_of(handler, card=card_of(streaming=False))) as client:
        response = await call(client, "SubscribeToTask")
    assert response.json()["error"]["code"] == -32004
    assert not handler.closed.is_set()


# -- silence, leaving, slow readers


async def test_silence_is_broken_by_comments() -> None:
    app = app_of(Streaming(for_ever), heartbeat=0.01)
    async with serving(app) as url, httpx.AsyncClient(base_url=url) as client:
        async with listening(client) as response:
            lines = await lines_of(response, 5)
    assert lines[0] == "id: 1.m"
    assert [line.strip() for line in lines[2:]] == [":", ":", ":"]


async def test_headers_do_not_wait_for_a_first_event_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("switchroom.gateway.sse._OPEN_WITHIN", 0.01)
    go_on = asyncio.Event()

    async def stream() -> AsyncIterator[Event]:
        await go_on.wait()
        raise TaskNotFound()
        yield

    app = app_of(Streaming(stream))
    async with serving(app) as url, httpx.AsyncClient(base_url=url) as client:
        async with listening(client) as response:
            assert response.status_code == 200
            go_on.set()
            text = (await response.aread()).decode()
    assert text.startswith(":")
    assert "event: error\n" in text and "-32001" in text


async def test_a_client_that_leaves_closes_its_iterator_and_nothing_else() -> None:
    handler = Streaming(for_ever)
    app = app_of(handler)
    async with serving(app) as url, httpx.AsyncClient(base_url=url) as client:
        async with listening(client) as stays:
            await lines_of_open(stays)
            async with listening(client) as leaves:
                await lines_of_open(leaves)
                assert len(app.state.streams) == 2
            await handler.closed.wait()
            await wait_until(lambda: len(app.state.streams) == 1, what="one stream is left")


async def lines_of_open(response: httpx.Response) -> None:
    async for _ in response.aiter_bytes():
        return


async def test_a_client_that_leaves_before_the_first_event_breaks_nothing_off() -> None:
    first = asyncio.Event()
    arrived = asyncio.Event()
    done: list[str] = []

    async def stream() -> AsyncIterator[Event]:
        arrived.set()
        await first.wait()
        done.append("first")
        yield StreamItem(EVENT)
        done.append("second")

    handler = Streaming(stream)
    async with serving(app_of(handler)) as url:
        async with httpx.AsyncClient(base_url=url) as client:
            left = asyncio.create_task(call(client, "SubscribeToTask"))
            await arrived.wait()
            left.cancel()
        # The connection is closed; only now may the message be on its way into the store.
        first.set()
        await handler.closed.wait()
    assert done[0] == "first"


async def flood() -> AsyncIterator[Event]:
    while True:
        yield StreamItem(b'{"x":"' + b"x" * 100_000 + b'"}')


@asynccontextmanager
async def not_reading(url: str) -> AsyncIterator[socket.socket]:
    """A client that subscribes, and reads nothing."""
    async with httpx.AsyncClient(base_url=url) as first:
        await first.get("/livez")  # the server is up, and has set its socket's options
    host, port = url.removeprefix("http://").split(":")
    body = json.dumps(request("SubscribeToTask", {})).encode()
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)  # the least that there is
        client.connect((host, int(port)))
        client.sendall(
            b"POST / HTTP/1.1\r\nHost: x\r\nA2A-Version: 1.0\r\nContent-Length: %d\r\n\r\n%s"
            % (len(body), body)
        )
        yield client


def patience_for(client: socket.socket) -> int | None:
    """How long the server's system waits for the client, in ms; None if the server is not connected
    to it (any more).
    """
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # closed meanwhile, or no connected socket
            if stat.S_ISSOCK(os.stat(fd := int(name)).st_mode):
                with socket.socket(fileno=os.dup(fd)) as end:
                    if end.getpeername() == client.getsockname():
                        return end.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
    return None


async def test_a_client_that_does_not_read_holds_its_own_source() -> None:
    made = 0

    async def stream() -> AsyncIterator[Event]:
        nonlocal made
        async for item in flood():
            made += 1
            yield item

    handler = Streaming(stream)
    async with serving(app_of(handler)) as url:
        async with not_reading(url), httpx.AsyncClient(base_url=url) as client:
            # Others are served; and so often that the source would have gone on meanwhile.
            handler.release.set()
            before = -1
            while made != before or not made:
                before = made
                for _ in range(20):
                    await call(client, "GetTask")
        # What sockets and buffers hold, not what could be made; nor what the system would hold.
        assert made < (20 if sys.platform == "linux" else 1000)
        await handler.closed.wait()


async def test_a_client_that_takes_nothing_for_long_is_given_up(
    caplog: pytest.LogCaptureFixture,
) -> None:
    handler = Streaming(flood)
    caplog.set_level("INFO")
    async with serving(app_of(handler, heartbeat=0.01)) as url, not_reading(url):
        await handler.closed.wait()
    assert "ASGI" not in caplog.text


@pytest.mark.requires("linux")
@pytest.mark.parametrize("stream", [flood, for_ever])
async def test_nothing_is_kept_for_a_client_that_was_given_up(stream: Stream) -> None:
    """What was written for it and never taken would else keep its connection open for ever: events,
    and comments, as many as it takes to find out.
    """
    handler = Streaming(stream)
    app = app_of(handler, heartbeat=0.001)
    async with serving(app) as url, not_reading(url) as client:
        await handler.closed.wait()
        await wait_until(lambda: patience_for(client) is None, what="the connection is gone")
        assert len(app.state.streams) == 0


@pytest.mark.requires("linux")
async def test_who_is_gone_without_a_word_is_noticed() -> None:
    """Nothing comes back any more, not even that something was received."""
    async with serving(app_of(Streaming(for_ever), heartbeat=2)) as url:
        async with not_reading(url) as client:
            patience = await wait_until(lambda: patience_for(client), what="it is connected")
    assert patience == 8_000  # left to itself, the system waits for a quarter of an hour


async def test_a_source_that_never_waits_lets_others_in() -> None:
    others = asyncio.Event()
    had_to_wait = True

    async def stream() -> AsyncIterator[Event]:
        nonlocal had_to_wait
        asyncio.get_running_loop().call_soon(others.set)
        for _ in range(1000):
            yield StreamItem(EVENT)
            had_to_wait = not others.is_set()

    await listen_to_all(stream)
    assert not had_to_wait


async def test_an_iterator_of_any_kind_is_closed() -> None:
    class Source:
        def __init__(self, *steps: Event | Exception) -> None:
            self.steps = list(steps)
            self.closed = 0

        def __aiter__(self) -> Source:
            return self

        async def __anext__(self) -> Event:
            if not self.steps:
                raise StopAsyncIteration
            step = self.steps.pop(0)
            if isinstance(step, Exception):
                raise step
            return step

        async def aclose(self) -> None:
            self.closed += 1

    class Handler:
        async def dispatch(self, method: str, params: Json | None, context: CallContext) -> Answer:
            return sources[-1]

    sources: list[Source] = []
    async with client_of(app_of(Handler())) as client:
        for steps in ([], [StreamItem(EVENT)], [TaskNotFound()], [StreamItem(EVENT), KeyError()]):
            sources.append(Source(*steps))  # type: ignore[arg-type]
            await call(client, "SubscribeToTask")
    assert [source.closed for source in sources] == [1, 1, 1, 1]


# -- stopping


async def test_a_stop_ends_streams_cleanly_and_lets_sends_finish() -> None:
    handler = Streaming(for_ever)
    app = app_of(handler)
    async with serving(app) as url, httpx.AsyncClient(base_url=url) as client:
        async with listening(client) as response:
            chunks = response.aiter_bytes()
            await anext(chunks)
            blocking = asyncio.create_task(call(client, "GetTask"))
            await handler.began.wait()
            app.state.drain()
            rest = b"".join([chunk async for chunk in chunks])  # no error: the body is complete
        assert rest == b""
        assert app.state.draining.is_set() and handler.drained.is_set()
        await handler.closed.wait()

        refused = await call(client, "SubscribeToTask")
        assert refused.status_code == 503
        assert refused.headers["retry-after"] == "1"
        assert refused.headers["connection"] == "close"
        assert (await client.get("/readyz")).status_code == 503
        assert (await client.get("/livez")).status_code == 200

        assert not blocking.done()
        handler.release.set()
        assert (await blocking).json()["result"] == TASK


async def test_a_stream_that_opens_during_the_stop_gets_its_first_event() -> None:
    arrived, first = asyncio.Event(), asyncio.Event()

    async def stream() -> AsyncIterator[Event]:
        arrived.set()
        await first.wait()
        yield StreamItem(EVENT, "1.m")
        await asyncio.get_running_loop().create_future()

    app = app_of(Streaming(stream))
    async with serving(app) as url, httpx.AsyncClient(base_url=url) as client:
        answer = asyncio.create_task(call(client, "SubscribeToTask"))
        await arrived.wait()
        app.state.drain()
        first.set()
        assert (await answer).text.startswith("id: 1.m\n")


async def test_a_stream_that_was_accepted_before_the_stop_ends_with_its_first_event() -> None:
    arrived, accepted, closed = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def stream() -> AsyncGenerator[Event, None]:
        try:
            yield StreamItem(b"")
            await asyncio.get_running_loop().create_future()
        finally:
            closed.set()

    class Handler:
        async def dispatch(self, method: str, params: Json | None, context: CallContext) -> Answer:
            arrived.set()
            await accepted.wait()
            return stream()

    app = app_of(Handler())
    async with serving(app) as url, httpx.AsyncClient(base_url=url) as client:
        answer = asyncio.create_task(call(client, "SubscribeToTask"))
        await arrived.wait()
        app.state.drain()
        accepted.set()
        assert (await answer).text == ": \n\n"
        await closed.wait()


async def test_the_server_stops_with_streams_open() -> None:
    app: FastAPI = app_of(Streaming(for_ever))
    async with httpx.AsyncClient() as client:
        async with serving(app) as url:
            client.base_url = httpx.URL(url)
            context = listening(client)
            response = await context.__aenter__()
            chunks = response.aiter_bytes()
            await anext(chunks)
        assert [chunk async for chunk in chunks] == []
        await context.__aexit__(None, None, None)
