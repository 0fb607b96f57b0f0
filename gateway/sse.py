"""Server-sent events: framing, positions, heartbeats, and how an open stream ends.

Promises that a stream costs one small task and one timer beside its request; that a client which
leaves is noticed at once and closes the iterator, and nothing else; that a client which reads
slowly holds its own iterator and nobody else's. Relies on the server's `send` waiting while the
client's pipe is full, and on its `receive` answering `http.disconnect` when the client is gone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable

from starlette.types import Receive, Send

from switchroom.gateway.dispatch import Event, StreamItem, close, encode_event
from switchroom.gateway.wire import Events

__all__ = ["SSE_HEADERS", "EventStreams"]

_log = logging.getLogger("switchroom.gateway")

SSE_HEADERS = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # nginx would hold events back otherwise
    (b"x-content-type-options", b"nosniff"),
)

# Headers go out by then even without a first event, with which a failure could still have become
# a plain error: later than a store's time-out (2 s), sooner than clients give up (5 s for many).
_OPEN_WITHIN = 3.0
# A client that takes nothing for so many heartbeats is gone, whatever its socket says.
_STALLED = 4
# Events of a source that never waits, before others get their turn.
_IN_A_ROW = 64

_BEAT = b": \n\n"


class EventStreams:
    """The open streams of one gateway process."""

    def __init__(self, *, heartbeat: float) -> None:
        """`heartbeat`: seconds of silence after which a stream gets a comment."""
        self._heartbeat = heartbeat
        self._open: set[_Stream] = set()
        self._ended = False

    def __len__(self) -> int:
        return len(self._open)

    @property
    def patience(self) -> float:
        """Seconds after which a client that takes nothing is given up."""
        return _STALLED * self._heartbeat

    def end(self) -> None:
        """End every open stream cleanly, without an event: their clients resume elsewhere. One
        whose request is on its way ends as soon as it has opened.
        """
        self._ended = True
        for stream in tuple(self._open):
            stream.end()

    async def serve(
        self,
        source: AsyncIterator[Event],
        *,
        events: Events,
        before: bytes,
        after: bytes,
        error: Callable[[BaseException], bytes],
        headers: list[tuple[bytes, bytes]],
        receive: Receive,
        send: Send,
    ) -> None:
        """Answer with what `source` yields, until it ends, fails, is told to, or the client goes.

        Each event's JSON, as `events` says it, stands between `before` and `after`. A failure
        before the answer has begun is raised; later it becomes one last event, the JSON that
        `error` makes of it.
        """
        stream = _Stream(self._heartbeat, self.patience, headers, receive, send)
        self._open.add(stream)
        if self._ended:
            stream.end()
        watcher = asyncio.create_task(stream.watch())
        failure: BaseException | None = None
        try:
            async for event in source:
                if not await stream.relay(_frame(encode_event(event), events, before, after)):
                    break
            else:
                if (last := events.last()) is not None:
                    await stream.relay(_frame(last, events, before, after))
        except Exception as raised:
            if not stream.started:
                raise
            failure = raised
        except asyncio.CancelledError as cancelled:
            if not stream.was_stopped():
                # Either the whole request is cancelled, or something the source waited for was.
                if stream.task.cancelling() or not stream.started:
                    raise
                failure = cancelled
        finally:
            self._open.discard(stream)
            watcher.cancel()
            await close(source)
        if failure is not None:
            await stream.write(b"event: error\ndata: " + _one_line(error(failure)) + b"\n\n")
        await stream.finish()


class _Stream:
    """One answer: when it may be written to, and why it should end."""

    __slots__ = (
        "_count",
        "_cut",
        "_ending",
        "_gone",
        "_headers",
        "_heartbeat",
        "_patience",
        "_receive",
        "_send",
        "_turn",
        "_whole",
        "_wrote",
        "started",
        "task",
    )

    def __init__(
        self,
        heartbeat: float,
        patience: float,
        headers: list[tuple[bytes, bytes]],
        receive: Receive,
        send: Send,
    ) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.task = task
        self.started = False
        """Whether the headers are out."""
        self._heartbeat = heartbeat
        self._patience = patience
        self._headers = headers
        self._receive = receive
        self._send = send
        self._turn = asyncio.Lock()
        self._wrote = _now()  # the last time the client took something
        self._count = 0
        self._ending = False
        self._cut = False  # the request's task was cancelled, by us
        self._gone = False  # nobody listens any more
        self._whole = True  # nothing is half written

    async def relay(self, frame: bytes) -> bool:
        """Write one event; False when it is the last one for this client."""
        await self.write(frame)
        self._count += 1
        if self._count % _IN_A_ROW == 0:
            await asyncio.sleep(0)
        return not self._ending

    async def write(self, body: bytes, *, last: bool = False) -> None:
        """Write to the client, headers first, waiting while its pipe is full."""
        async with self._turn:
            self._whole = False
            try:
                if not self.started:
                    self.started = True
                    await self._send(
                        {"type": "http.response.start", "status": 200, "headers": self._headers}
                    )
                await self._send(
                    {"type": "http.response.body", "body": body, "more_body": not last}
                )
            except OSError:  # how some servers say that the client is gone
                self._gone = self._ending = True
            self._whole = True
            self._wrote = _now()

    async def finish(self) -> None:
        """Complete the answer, if somebody listens and no write was broken off."""
        if self._whole and not self._gone:
            await self.write(b"", last=True)

    def end(self) -> None:
        """Have the stream end: at once, or with the first event if it waits for that.

        A source is never broken off before its first event: a message may just be on its way
        into the store.
        """
        if not self._ending:
            self._ending = True
            if self.started:
                self._cut = True
                self.task.cancel()

    def was_stopped(self) -> bool:
        """Whether the CancelledError just caught is ours; then it is used up."""
        return self._cut and self.task.uncancel() == 0

    async def watch(self) -> None:
        """Notice that the client leaves or stops reading, and break the silence."""
        wait = min(_OPEN_WITHIN, self._heartbeat)
        while True:
            try:
                async with asyncio.timeout(wait):
                    while (await self._receive())["type"] != "http.disconnect":
                        pass
            except TimeoutError:
                wait = await self._tend()
            else:
                self._gone = True
                self.end()
                return

    def _give_up(self) -> None:
        if not self._ending:
            _log.info("A stream is ended: its client has taken nothing for %g s", self._patience)
        self.end()

    async def _tend(self) -> float:
        silence = _now() - self._wrote
        if self._turn.locked():
            if silence > self._patience:
                self._give_up()
        elif not self.started or silence >= self._heartbeat:
            try:
                async with asyncio.timeout(self._patience):
                    await self.write(_BEAT)
            except TimeoutError:
                self._give_up()
        else:
            return self._heartbeat - silence
        return self._heartbeat


def _frame(item: StreamItem, events: Events, before: bytes, after: bytes) -> bytes:
    if not item.data:
        return _BEAT
    data = before + _one_line(events.say(item)) + after
    # A broken id is left out: no position is better than a wrong one.
    if item.id and item.id.isprintable():
        return b"id: " + item.id.encode() + b"\ndata: " + data + b"\n\n"
    return b"data: " + data + b"\n\n"


def _one_line(data: bytes) -> bytes:
    # In JSON a raw line break can only be white space; in an event it would end the line.
    if b"\n" in data or b"\r" in data:
        return data.replace(b"\n", b" ").replace(b"\r", b" ")
    return data


def _now() -> float:
    return asyncio.get_running_loop().time()
