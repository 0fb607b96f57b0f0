"""Group commit: what many ask of Redis while one answer is on its way goes out together, in one
round trip.

Promises: the calls of one `commit` are sent next to each other and in order; commits go out in
the order they were asked; one pipeline is in flight at a time, so a later commit is never
applied before an earlier one. Nothing is ever sent twice on our own account: an answer that does
not come is an error, and the caller knows whether a repeat is safe (every script of the store
says so). The one exception cannot have run: a script that the server did not know (`NOSCRIPT`)
is sent again with its text.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeVar

from hiredis import pack_command
from redis.asyncio import Redis
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoScriptError, OutOfMemoryError, ReadOnlyError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from switchroom.protocol.errors import Unavailable
from switchroom.store.scripts import Call

__all__ = ["Clock", "GroupCommit", "StoreUnavailable", "patiently"]

T = TypeVar("T")

_MOST: Final = 1024 * 1024
"""Bytes after which a pipeline is full: a round trip stays short whatever gathers meanwhile."""
_PACE: Final = 10 * 1024 * 1024
"""Bytes for which a round trip is given a second more than its patience."""


class StoreUnavailable(Unavailable):
    """Redis did not answer, or cannot now (loading, read-only, out of memory); the write may or
    may not have happened.
    """


async def patiently(ask: Callable[[], Awaitable[T]]) -> T:
    """The answer to `ask`, which must be repeatable: it is asked again until Redis is there."""
    pause = 0.05
    while True:
        try:
            return await ask()
        except StoreUnavailable:
            await asyncio.sleep(pause)
            pause = min(pause * 2, 1.0)


class Clock:
    """Redis's clock as this process knows it: the local one plus the offset that each script's
    answer shows.
    """

    def __init__(self) -> None:
        self._offset = 0

    def learn(self, server_ms: int) -> None:
        self._offset = server_ms - time.time_ns() // 1_000_000

    def now(self) -> int:
        """Epoch milliseconds of the Redis host."""
        return time.time_ns() // 1_000_000 + self._offset


class GroupCommit:
    """One lane of commands to one Redis. Not for blocking commands.

    redis: a client without time-outs of its own.  patience: seconds that a round trip may take.
    """

    def __init__(self, redis: Redis, *, clock: Clock, patience: float) -> None:
        self._redis = redis
        self._clock = clock
        self._patience = patience
        self._waiting: deque[tuple[Sequence[Call], asyncio.Future[list[Any]]]] = deque()
        self._sender: asyncio.Task[None] | None = None
        self._connection: AbstractConnection | None = None
        self._closed = False
        self.round_trips = 0
        """Pipelines sent so far; tests count them."""
        self._losses = 0

    @property
    def losses(self) -> int:
        """How often the connection was lost so far, also where only the server knows yet."""
        closed = self._connection is not None and _was_closed(self._connection)
        return self._losses + closed

    async def __call__(self, *calls: Call) -> list[Any]:
        """Sends the calls and returns their answers in order.

        Raises `StoreUnavailable` when Redis does not answer; any other error reply of a call as it
        is.
        """
        return await self.ask(*calls)

    def ask(self, *calls: Call) -> asyncio.Future[list[Any]]:
        """The same, without waiting: what is asked of both lanes of a process goes out at once."""
        answered: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        if self._closed:
            answered.set_exception(StoreUnavailable("This store has been closed"))
            return answered
        self._waiting.append((calls, answered))
        if self._sender is None:
            self._sender = asyncio.get_running_loop().create_task(self._send_all())
        return answered

    def soon(self, *calls: Call) -> None:
        """Sends the calls with the next commit, and tells nobody how they fared: for what a
        reader repairs anyway.
        """
        self.ask(*calls).add_done_callback(lambda told: told.cancelled() or told.exception())

    async def close(self) -> None:
        """Waits until what was asked has been answered, and gives the connection back. What is
        asked from now on is StoreUnavailable.
        """
        self._closed = True
        if self._sender is not None:
            await asyncio.wait([self._sender])
        if self._connection is not None:
            await self._redis.connection_pool.release(self._connection)
            self._connection = None

    async def _send_all(self) -> None:
        try:
            while self._waiting:
                batch: list[tuple[Sequence[Call], asyncio.Future[list[Any]]]] = []
                size = 0
                while self._waiting and (not batch or size < _MOST):
                    batch.append(self._waiting.popleft())
                    size += sum([call.weight for call in batch[-1][0]])
                await self._send(batch)
        finally:
            self._sender = None

    async def _send(self, batch: list[tuple[Sequence[Call], asyncio.Future[list[Any]]]]) -> None:
        calls = [call for group, _ in batch for call in group]
        try:
            answers = await self._pipeline(calls)
            unknown = [i for i, answer in enumerate(answers) if isinstance(answer, NoScriptError)]
            if unknown:
                # With its text: a server that forgets again between two commands cannot be too
                # fast for it.
                again = await self._pipeline([_in_full(calls[i]) for i in unknown])
                for i, answer in zip(unknown, again, strict=True):
                    answers[i] = answer
        except (RedisConnectionError, RedisTimeoutError, OSError) as error:
            for _, answered in batch:
                if not answered.done():
                    answered.set_exception(_unavailable(error))
            return
        except Exception as error:
            for _, answered in batch:
                if not answered.done():
                    answered.set_exception(error)
            return
        at = 0
        for group, answered in batch:
            mine = answers[at : at + len(group)]
            at += len(group)
            if answered.done():
                continue
            refused = next((answer for answer in mine if isinstance(answer, Exception)), None)
            if refused is None:
                answered.set_result(mine)
            else:
                answered.set_exception(_as_error(refused))

    async def _pipeline(self, calls: Sequence[Call]) -> list[Any]:
        """Redis-py's Pipeline without its bookkeeping, on a connection that this lane keeps."""
        if self._connection is None:
            self._connection = await self._redis.connection_pool.get_connection()
        connection = self._connection
        answers: list[Any] = []
        self.round_trips += 1
        try:
            if _was_closed(connection):
                # By a Redis that has restarted. Nothing of this pipeline can have reached it, so
                # unlike later this is no reason to refuse.
                self._losses += 1
                await connection.disconnect(nowait=True)
            # One timer for the whole pipeline: redis-py's own would be one per answer.
            packed = b"".join(
                [
                    pack_command(call.words)  # type: ignore[arg-type]  # the stub says length 1
                    for call in calls
                ]
            )
            async with asyncio.timeout(self._patience + len(packed) / _PACE) as late:
                await connection.send_packed_command(packed, check_health=False)
                clock = asyncio.get_running_loop().time
                since = clock()
                for _ in calls:
                    if clock() > since + self._patience / 8:
                        # Many answers may take their time, as long as they come.
                        since = clock()
                        late.reschedule(since + self._patience)
                    try:
                        answers.append(await connection.read_response())
                    except ResponseError as refused:
                        answers.append(refused)
        except BaseException:
            # Half-read answers must never be taken for those of the next pipeline.
            self._losses += 1
            await connection.disconnect(nowait=True)
            raise
        for call, answer in zip(reversed(calls), reversed(answers), strict=True):
            if call.script is not None and call.script.tells_time and isinstance(answer, list):
                self._clock.learn(answer[1])
                break
        return answers


def _in_full(call: Call) -> Call:
    """A call of a script by its text, which the server then knows, too."""
    assert call.script is not None
    return call._replace(words=("EVAL", call.script.body, *call.words[2:]))


def _was_closed(connection: AbstractConnection) -> bool:
    """Whether the server has closed the connection while it was idle."""
    reader = connection._reader
    return isinstance(reader, asyncio.StreamReader) and (
        reader.at_eof() or reader.exception() is not None
    )


_PASSING: Final = (ReadOnlyError, OutOfMemoryError)
_PASSING_WORDS: Final = (
    "OOM ",
    "READONLY ",
    "LOADING ",
    "MISCONF ",
    "MASTERDOWN ",
    "NOREPLICAS ",
    "BUSY ",
)


def _as_error(refused: Exception) -> Exception:
    """A reply that only says "not now" is `StoreUnavailable`; anything else is a fault of ours,
    and stays.
    """
    # Inside a script the word stands in the middle of the reply, where redis-py does not look for
    # it.
    passing = isinstance(refused, _PASSING) or any(word in str(refused) for word in _PASSING_WORDS)
    return _unavailable(refused) if passing else refused


def _unavailable(cause: Exception) -> StoreUnavailable:
    unavailable = StoreUnavailable(retry_after=1.0)
    unavailable.__cause__ = cause
    return unavailable
