"""Connections to whatever server is the master, as Redis Sentinel sees it.

Promises that a new connection leads to the master that the Sentinels name, and that one which leads
to another breaks: as soon as the server says that it is not the master, when a later connection was
sent elsewhere, or at the next look. Whoever uses a broken connection does what it does when Redis
restarts. It relies on Sentinel's configuration epoch, which a failover raises: an answer of an
earlier one is never followed away from a later.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from hiredis import pack_command
from redis.asyncio.connection import AbstractConnection, Connection, SSLConnection
from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    ConnectionError,
    NoPermissionError,
    ReadOnlyError,
    RedisError,
    ResponseError,
)

from switchroom.store.pool import Pool, last_words, sentence

__all__ = ["Master", "MasterConnection", "MasterPool", "NoMaster", "Sentinels", "TlsToMaster"]

_log = logging.getLogger("switchroom.store")
_LOOK: Final = 0.5
"""Seconds between two looks at where the master is: what a demoted one takes meanwhile, and before
it is told, is lost.
"""
_DEMOTED: Final = ("MASTERDOWN ", "NOREPLICAS ")
"""Said by a replica, and by a master that has been cut off: the Sentinels may know a better one."""


class NoMaster(ConnectionError):
    """Where the master is cannot be had from any Sentinel, or it is none; one sentence."""


class Master(NamedTuple):
    """epoch: of the configuration that made it the master."""

    epoch: int
    host: str
    port: int


class Sentinels:
    """The Sentinels of one master, each asked over a pool of its own.

    patience: seconds that one may take to answer.
    """

    def __init__(self, name: str, pools: Sequence[Pool], *, patience: float) -> None:
        self.name = name
        self.pools = pools
        self._patience = patience
        # The first is ahead during a failover, the second knows the epoch.
        self._question = pack_command(
            ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", name)  # type: ignore[arg-type]
        ) + pack_command(("SENTINEL", "MASTER", name))  # type: ignore[arg-type]
        self._asking: set[asyncio.Task[Master | str]] = set()

    def __str__(self) -> str:
        return f"{self.name} by Sentinel at {', '.join(map(_place, self.pools))}"

    async def find(self) -> Master:
        """The master, as most of the Sentinels see it, or all that answer in time: of their answers
        the one with the highest epoch. Raises NoMaster.
        """
        # All at once: those that died with the master's machine cost nobody their time-out.
        asked = {asyncio.create_task(self._ask(pool)) for pool in self.pools}
        self._asking |= asked
        found: list[Master] = []
        faults: list[str] = []
        while asked and 2 * len(found) <= len(self.pools):
            answered, asked = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
            for answer in [task.result() for task in answered]:
                if isinstance(answer, Master):
                    found.append(answer)
                else:
                    faults.append(answer)
        if not found:
            raise NoMaster(
                f"No Sentinel tells where the Redis master {self.name} is: "
                f"{', '.join(sorted(faults))}."
            )
        return max(found)

    async def _ask(self, pool: Pool) -> Master | str:
        """The master, or what is wrong with this Sentinel."""
        where = _place(pool)
        try:
            async with asyncio.timeout(self._patience):
                connection = await pool.get_connection()
                try:
                    await connection.send_packed_command(self._question, check_health=False)
                    place, state = await _answer(connection), await _answer(connection)
                finally:
                    await pool.release(connection)
        except (AuthenticationError, AuthorizationError):
            return f"{where} refuses the URL's sentinel_username or sentinel_password"
        except (RedisError, OSError) as error:
            return f"{where} does not answer ({last_words(error)})"
        finally:
            self._asking.discard(asyncio.current_task())
        if isinstance(state, NoPermissionError):
            return f"{where} lets the URL's sentinel_username not ask for it"
        if "unknown command" in str(state).lower():
            return f"{where} is no Sentinel"
        if isinstance(state, ResponseError) or isinstance(place, ResponseError) or place is None:
            return f"{where} knows no master of this name"
        epoch = dict(zip(state[::2], state[1::2], strict=True))[b"config-epoch"]
        return Master(int(epoch), place[0].decode(), int(place[1]))

    async def close(self) -> None:
        """Leaves no question and no connection open."""
        asking = tuple(self._asking)
        for task in asking:
            task.cancel()
        if asking:
            await asyncio.wait(asking)
        for pool in self.pools:
            await pool.disconnect()


async def _answer(connection: AbstractConnection) -> Any:
    try:
        return await connection.read_response()
    except ResponseError as refused:
        return refused


def _place(pool: Pool) -> str:
    return f"{pool.connection_kwargs['host']}:{pool.connection_kwargs['port']}"


class MasterConnection(Connection):
    """A connection to the master of the moment in which it was made."""

    master: Master | None = None

    def __init__(self, *, sentinels: Sentinels, **options: Any) -> None:
        super().__init__(**options)
        self._sentinels = sentinels

    async def connect(self) -> None:
        if self.is_connected:
            return
        self.master = await self._sentinels.find()
        self.host, self.port = self.master.host, self.master.port
        await super().connect()  # type: ignore[no-untyped-call]

    async def on_connect(self) -> None:
        await super().on_connect()
        # It says its role, as ROLE does, to users who may not do anything @dangerous.
        await self.send_command("HELLO", check_health=False)
        try:
            said = await self.read_response()
        except AuthenticationError:
            # In the words of every other command: those of this one are of protocol versions.
            raise AuthenticationError("Authentication required.") from None
        except ResponseError:
            return  # forbidden: then the Sentinels must be trusted
        pairs = said if isinstance(said, Mapping) else dict(zip(said[::2], said[1::2], strict=True))
        if pairs.get(b"role") not in (b"master", None):
            raise NoMaster(
                f"Redis {self._sentinels.name} at {self.host}:{self.port} is a replica, though the "
                "Sentinels name it as the master; a failover may be under way."
            )

    async def read_response(self, *args: Any, **options: Any) -> Any:
        try:
            return await super().read_response(*args, **options)
        except ResponseError as refused:
            # What else is asked of it at the same time cannot be relied on either.
            if isinstance(refused, ReadOnlyError) or str(refused).startswith(_DEMOTED):
                await self.disconnect(nowait=True)
                raise ConnectionError(
                    f"Redis at {self.host}:{self.port} takes no writes: {sentence(refused)}"
                ) from refused
            raise

    def leave_for(self, master: Master) -> bool:
        """Breaks it if it leads to the master of an earlier time, elsewhere; who uses it hears."""
        if self.master is None or self.master[1:] == master[1:]:
            return False
        if self.master.epoch >= master.epoch:
            return False
        if self._writer is None or self._writer.transport.is_closing():
            return False
        self._writer.transport.abort()
        return True


class TlsToMaster(MasterConnection, SSLConnection):
    """The same, over TLS."""


class MasterPool(Pool):
    """Connections to one master.  watchful: once it is in use it looks again and again where that
    is; who only listens, or reads, would not hear from a server that it is the wrong one.
    """

    def __init__(self, sentinels: Sentinels, *, watchful: bool, **options: Any) -> None:
        super().__init__(sentinels=sentinels, **options)
        self.sentinels = sentinels
        self._watchful = watchful
        self._watch: asyncio.Task[None] | None = None

    async def ensure_connection(self, connection: AbstractConnection) -> None:
        await super().ensure_connection(connection)
        assert isinstance(connection, MasterConnection) and connection.master is not None
        self._follow(connection.master)
        if self._watchful and self._watch is None:
            self._watch = asyncio.create_task(self._look())

    async def disconnect(self, inuse_connections: bool = True) -> None:
        self.closed = True
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.wait([self._watch])
        await self.sentinels.close()
        await super().disconnect(inuse_connections)

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(_LOOK)
            try:
                self._follow(await self.sentinels.find())
            except NoMaster as error:
                _log.debug("%s", error)
            except Exception:
                _log.exception("looking for the Redis master failed, and goes on")

    def _follow(self, master: Master) -> None:
        every = (*self._available_connections, *self._in_use_connections)
        if [connection for connection in every if connection.leave_for(master)]:  # type: ignore[attr-defined]
            _log.warning("Redis %s has moved to %s:%d", self.sentinels.name, *master[1:])
