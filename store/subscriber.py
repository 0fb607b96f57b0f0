"""One pub/sub connection for a process, however many channels and listeners.

Promises: after `subscribe` returns, every message published to the channel reaches the callback,
or `on_gap` is called (the connection broke: what was published meanwhile is lost, and whoever
listens must catch up from the store). It reconnects by itself, for as long as it runs, and
notices a dead connection by its silence.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import operator
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final

from hiredis import pack_command
from redis.asyncio import Redis
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import RedisError

from switchroom.store.commit import StoreUnavailable

__all__ = ["Subscriber"]

_log = logging.getLogger("switchroom.store")
_CHANNELS_AT_ONCE: Final = 500
_LINGER: Final = 0.05
_DOWN: Final = 0.5


def _packed(commands: Sequence[tuple[str, bytes]]) -> bytes:
    """Commands in their order; neighbours of one verb are one command."""
    packed: list[bytes] = []
    for verb, group in itertools.groupby(commands, key=operator.itemgetter(0)):
        names = [name for _, name in group]
        packed += [
            pack_command((verb, *names[at : at + _CHANNELS_AT_ONCE]))
            for at in range(0, len(names), _CHANNELS_AT_ONCE)
        ]
    return b"".join(packed)


def _give_up(confirmed: asyncio.Future[None]) -> None:
    if not confirmed.done():
        confirmed.set_exception(StoreUnavailable(retry_after=1.0))


class _Channel:
    __slots__ = ("confirmed", "on_message")

    def __init__(self, on_message: Callable[[bytes], None]) -> None:
        self.on_message = on_message
        self.confirmed: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class Subscriber:
    """redis: a client of its own connections.  silence: seconds without any message after which
    the connection is tried, and dropped if it does not answer.  patience: seconds that
    `subscribe` waits for its confirmation.
    """

    def __init__(self, redis: Redis, *, silence: float, patience: float) -> None:
        self._redis = redis
        self._silence = silence
        self._patience = patience
        self._channels: dict[bytes, _Channel] = {}
        self._awaited: Counter[bytes] = Counter()
        self._unsent: list[tuple[str, bytes]] = []
        self._sender: asyncio.Task[None] | None = None
        self._hurry = asyncio.Event()
        self._up = asyncio.Event()
        self._connection: AbstractConnection | None = None
        self._reader: asyncio.Task[None] | None = None
        self._on_gap: list[Callable[[], None]] = []
        self.round_trips = 0
        """SUBSCRIBEs awaited; tests count them."""

    async def start(self) -> None:
        """Begins to listen. Returns once connected, or after `patience`: then it goes on trying."""
        self._reader = asyncio.get_running_loop().create_task(self._run())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._patience):
                await self._up.wait()

    async def close(self) -> None:
        for task in (self._reader, self._sender):
            # Before Python 3.12, `asyncio.wait_for` can swallow a cancellation; fakeredis uses it.
            while task is not None and not task.done():
                task.cancel()
                await asyncio.wait([task], timeout=0.1)
        self._reader = self._sender = None

    @property
    def connected(self) -> bool:
        return self._connection is not None

    @property
    def channels(self) -> int:
        """How many channels are subscribed to now."""
        return len(self._channels)

    def on_gap(self, callback: Callable[[], None]) -> None:
        """`callback` is called after each reconnection, when all channels are subscribed again."""
        self._on_gap.append(callback)

    async def subscribe(self, channel: str, on_message: Callable[[bytes], None]) -> None:
        """Returns once Redis has confirmed. One callback per channel. Raises `StoreUnavailable`
        if it does not confirm.
        """
        name = channel.encode()
        mine = self._channels[name] = _Channel(on_message)
        self.round_trips += 1
        self._send("SUBSCRIBE", name)
        # While the connection is down a short wait may outlast it; a long one only delays the bad
        # news.
        patience = self._patience if self.connected else min(self._patience, _DOWN)
        late = asyncio.get_running_loop().call_later(patience, _give_up, mine.confirmed)
        try:
            await mine.confirmed
        except BaseException:
            self.unsubscribe(channel)
            raise
        finally:
            late.cancel()

    def unsubscribe(self, channel: str) -> None:
        name = channel.encode()
        if self._channels.pop(name, None) is not None:
            self._send("UNSUBSCRIBE", name)

    # -- sending: one task, so that the order of commands is the order of calls; one command per
    # tick and kind

    def _send(self, verb: str, name: bytes) -> None:
        if self._connection is None:
            return  # the next session subscribes to all channels there are by then
        self._unsent.append((verb, name))
        if verb == "SUBSCRIBE":
            self._awaited[name] += 1
        if self._sender is None:
            # Nobody waits for an UNSUBSCRIBE: it goes out with the next SUBSCRIBE, or soon.
            self._hurry.clear()
            self._sender = asyncio.get_running_loop().create_task(
                self._send_all(_LINGER if verb == "UNSUBSCRIBE" else 0.0)
            )
        elif verb == "SUBSCRIBE":
            self._hurry.set()

    async def _send_all(self, linger: float) -> None:
        try:
            if linger:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(linger):
                        await self._hurry.wait()
            while self._unsent and (connection := self._connection) is not None:
                unsent, self._unsent = self._unsent, []
                await connection.send_packed_command(_packed(unsent), check_health=False)
        except (RedisError, OSError):
            self._unsent.clear()  # the reader meets the same broken connection, and starts anew
        finally:
            self._sender = None

    # -- reading

    async def _run(self) -> None:
        pause, told = 0.05, False
        while True:
            try:
                await self._session()
            except (RedisError, OSError) as error:
                if self._connection is not None:
                    pause, told = 0.05, False
                if not told:
                    _log.warning("pub/sub connection lost, reconnecting: %s", error)
                    told = True
            except Exception:
                _log.exception("pub/sub reader failed, reconnecting")
            finally:
                self._connection = None
                self._unsent.clear()
            await asyncio.sleep(pause)
            pause = min(pause * 2, 1.0)

    async def _session(self) -> None:
        connection = await self._redis.connection_pool.get_connection()
        try:
            self._connection = connection
            self._up.set()
            names = list(self._channels)
            self._awaited = Counter(names)
            if names:
                await connection.send_packed_command(
                    _packed([("SUBSCRIBE", name) for name in names]), check_health=False
                )
            # Listeners catch up after the last confirmation: what comes later, they hear.
            last = names[-1] if names else None
            if last is None:
                self._tell_gap()
            asked = False
            while True:
                message = await connection.read_response(
                    timeout=self._silence, disconnect_on_error=False, push_request=True
                )
                if message is None:
                    if asked:
                        raise ConnectionError("no answer on the pub/sub connection")
                    asked = True
                    await connection.send_command("PING", check_health=False)
                    continue
                asked = False
                name = self._receive(message)
                if name is not None and name == last:
                    last = None
                    self._tell_gap()
        finally:
            # Whatever state it is in, nobody else must get it from the pool.
            await connection.disconnect(nowait=True)
            await self._redis.connection_pool.release(connection)

    def _receive(self, message: Any) -> bytes | None:
        if not isinstance(message, list):
            return None
        kind: bytes = message[0]
        name: bytes = message[1]
        channel = self._channels.get(name)
        if kind == b"message":
            if channel is not None:
                channel.on_message(message[2])
        elif kind == b"subscribe":
            self._awaited[name] -= 1
            if self._awaited[name] <= 0:
                del self._awaited[name]
                # With more on their way, an UNSUBSCRIBE between them is yet to take effect.
                if channel is not None and not channel.confirmed.done():
                    channel.confirmed.set_result(None)
            return name
        return None

    def _tell_gap(self) -> None:
        for callback in self._on_gap:
            callback()
