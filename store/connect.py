"""Redis from one URL, and the search for a server on a bare machine.

Promises a client whose commands end within their time, never repeat a command on their own and
never show a password; and a sentence where Redis cannot be used. Relies on redis-py, and on
fakeredis for `fake://`, whose servers live in this process and die with it.
"""

from __future__ import annotations

import asyncio
import builtins
import contextlib
import logging
import os
import shutil
import sys
import tempfile
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from fakeredis import FakeServer
from fakeredis.aioredis import FakeAsyncRedisConnection
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.connection import AbstractConnection, parse_url
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    BusyLoadingError,
    ConnectionError,
    NoPermissionError,
    RedisError,
    ResponseError,
    TimeoutError,
)

from switchroom.settings import without_password

__all__ = [
    "ServerError",
    "UrlError",
    "address",
    "check_server",
    "connect",
    "find_server",
    "is_fake",
    "private_server",
]

log = logging.getLogger("switchroom.store")

_OLDEST = (7, 0)
_START_LIMIT = 10.0
_servers: defaultdict[str, FakeServer] = defaultdict(lambda: FakeServer(version=_OLDEST))


class UrlError(Exception):
    """A Redis URL cannot be used; the text is one sentence, without the password."""


class ServerError(Exception):
    """A Redis server is absent or unfit; the text is one sentence, without the password."""


def connect(
    url: str, *, timeout: timedelta, connections: int = 100, listening: bool = False
) -> Redis:
    """A client for `url` (`redis://`, `rediss://`, `unix://`, `fake://name`); does not connect yet.

    `timeout` bounds connecting, each command and the wait for one of `connections` connections;
    then redis-py's TimeoutError or ConnectionError, as for a server that refuses the URL's user or
    database. With `listening` an answer may take for ever, as pub/sub needs; connecting may not.
    Answers are bytes. Raises UrlError.
    """
    seconds = timeout.total_seconds()
    options: dict[str, Any] = {
        # A repeated script may apply twice: only who wrote it knows whether that is harmless.
        "retry": Retry(NoBackoff(), 0),
        "socket_connect_timeout": seconds,
        "socket_timeout": None if listening else seconds,
    }
    if urlsplit(url).scheme == "fake":
        pool = _Pool(
            max_connections=connections,
            timeout=seconds,  # type: ignore[arg-type]  # annotated int; any number works
            connection_class=FakeAsyncRedisConnection,
            server=_servers[url],
            **options,
        )
    else:
        try:
            options |= parse_url(url)
            pool = _Pool(
                max_connections=connections,
                timeout=seconds,  # type: ignore[arg-type]
                **options,
            )
            # No I/O, but redis-py refuses the options it does not know.
            pool.connection_class(**pool.connection_kwargs)
        except (TypeError, ValueError, RedisError) as error:
            reason = str(error).split("__init__() ")[-1].splitlines()[0].rstrip(".")
            raise UrlError(
                f"The Redis URL {without_password(url)} cannot be used: {reason}."
            ) from None
    return Redis.from_pool(pool)


class _Pool(BlockingConnectionPool):
    """Bounds the whole of connecting. Redis-py's own bound ends with the socket; the first words
    on it (AUTH, SELECT …) may take as long as any answer, for a listener for ever. And once closed
    it stays so: a late command would open a connection that nobody closes.
    """

    _closed = False

    async def disconnect(self, inuse_connections: bool = True) -> None:
        """Where `Redis.aclose` ends."""
        self._closed = True
        # That a server does not hear of it is no reason to fail: each socket is closed by then.
        with contextlib.suppress(RedisError, OSError):
            await super().disconnect(inuse_connections)

    async def ensure_connection(self, connection: AbstractConnection) -> None:
        try:
            async with asyncio.timeout(self.timeout):
                if not self._closed:
                    await super().ensure_connection(connection)
        except builtins.TimeoutError:
            await connection.disconnect(nowait=True)
            raise TimeoutError("Timeout connecting to server") from None
        except ResponseError as error:
            # Not the answer to the caller's command, for which it would be taken.
            raise ConnectionError(str(error)) from error
        if self._closed:  # perhaps only since we began to connect
            await connection.disconnect(nowait=True)
            raise ConnectionError("This client has been closed")


def is_fake(redis: Redis) -> bool:
    """True if the server lives in this process."""
    return issubclass(redis.connection_pool.connection_class, FakeAsyncRedisConnection)


def address(redis: Redis) -> str:
    """Where the server is, for people: never with user, password or options."""
    if is_fake(redis):
        return "fakeredis"
    options = redis.connection_pool.connection_kwargs
    if "path" in options:
        return f"unix://{options['path']}"
    return f"{options.get('host', 'localhost')}:{options.get('port', 6379)}"


async def check_server(redis: Redis) -> None:
    """See that the server answers, is new enough and never evicts; warn where it will not say.

    Raises ServerError.
    """
    if is_fake(redis):
        return
    where = f"Redis at {address(redis)}"
    try:
        info = await redis.info()
    except (AuthenticationError, AuthorizationError) as error:
        raise ServerError(
            f"{where} refuses the user or password of its URL ({_sentence(error)})."
        ) from None
    except BusyLoadingError:
        raise ServerError(f"{where} is still loading its data; start again in a moment.") from None
    except (ConnectionError, TimeoutError, OSError) as error:
        if isinstance(error.__cause__, ResponseError):
            raise ServerError(
                f"{where} refuses the connection ({_sentence(error)}); "
                "see the user, the database and the options of its URL."
            ) from None
        reason = "timed out" if isinstance(error, TimeoutError) else _last_words(error)
        raise ServerError(f"{where} does not answer ({reason}); is it running?") from None
    except RedisError as error:
        if not isinstance(error, NoPermissionError) and "unknown command" not in str(error).lower():
            raise ServerError(
                f"{where} does not answer INFO as Redis does ({_sentence(error)})."
            ) from None
        log.warning(
            "%s does not answer INFO (%s): make sure it is Redis 7.0 or newer, "
            "with maxmemory-policy noeviction",
            where,
            error,
        )
        return
    if fault := _fault(info):
        raise ServerError(f"{where} {fault}")


def _fault(info: Mapping[str, Any]) -> str | None:
    """What keeps a server with this INFO from being used."""
    version = str(info.get("redis_version", "unknown"))
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if numbers < _OLDEST:
        return f"is version {version}; Switchroom needs Redis 7.0 or newer, or Valkey."
    if info.get("redis_mode") == "cluster":
        return "is a cluster node; Switchroom needs a server with cluster mode disabled."
    policy = info.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        return (
            f"has maxmemory-policy {policy}, so tasks could vanish; "
            "set it to noeviction (redis-cli CONFIG SET maxmemory-policy noeviction)."
        )
    return None


def find_server() -> Path | None:
    """A `redis-server` or `valkey-server` on PATH."""
    if sys.platform == "win32":
        return None
    found = shutil.which("redis-server") or shutil.which("valkey-server")
    return Path(found) if found else None


# The shell outlives us on purpose: its pipe closes however we end, SIGKILL included, and then it
# stops the server and removes the folder. Portable, where Linux's PR_SET_PDEATHSIG is not.
_KEEPER = """
exec 3<&0
"$@" 3<&- </dev/null & server=$!
{ read -r _ <&3; kill "$server"; } 2>/dev/null &
exec 3<&-
wait "$server" && rm -rf -- "$FOLDER"
"""


@asynccontextmanager
async def private_server(binary: Path) -> AsyncIterator[str]:
    """Run `binary` as a child only we can reach; yields its URL.

    Nothing is kept: its folder is removed when the block ends or this process dies, also by
    SIGKILL. Raises ServerError if it does not start.
    """
    # Not below the working folder: the path of a unix socket may have 108 bytes at most.
    folder = Path(tempfile.mkdtemp(prefix="switchroom-"))
    socket, output = folder / "redis.sock", folder / "output"
    # fmt: off
    command = [
        str(binary), "--port", "0", "--unixsocket", str(socket), "--unixsocketperm", "700",
        "--save", "", "--appendonly", "no", "--maxmemory-policy", "noeviction",
        "--dir", str(folder), "--logfile", str(output),
    ]
    # fmt: on
    process = await asyncio.create_subprocess_exec(
        "/bin/sh",
        "-c",
        _KEEPER,
        "switchroom-redis",
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        env={**os.environ, "FOLDER": str(folder)},
        start_new_session=True,  # Ctrl-C is for us, who still need Redis to stop in order
    )
    assert process.stdin is not None
    url = f"unix://{socket}"
    try:
        if not await _answers(url, process):
            lines = output.read_text().splitlines() if output.exists() else []
            reason = lines[-1].strip() if lines else "it says nothing"
            raise ServerError(f"{binary} does not start: {reason}.")
        yield url
    finally:
        process.stdin.close()
        await process.wait()
        shutil.rmtree(folder, ignore_errors=True)


async def _answers(url: str, process: asyncio.subprocess.Process) -> bool:
    """Wait until the server answers; False if it ended or never does."""
    redis = connect(url, timeout=timedelta(seconds=1))
    try:
        async with asyncio.timeout(_START_LIMIT):
            while process.returncode is None:
                try:
                    await redis.ping()
                except (ConnectionError, TimeoutError, OSError):
                    await asyncio.sleep(0.01)
                else:
                    return True
    except builtins.TimeoutError:
        pass
    finally:
        await redis.aclose()
    return False


def _last_words(error: BaseException) -> str:
    """The system's own words for a failed connection: redis-py and asyncio wrap them."""
    cause = error.__cause__ or error.__context__
    if isinstance(cause, OSError) and cause.errno and cause.errno > 0:
        return os.strerror(cause.errno)
    return _sentence(error).rpartition(". ")[2]


def _sentence(error: BaseException) -> str:
    """The first line of an error's text, to be put into a sentence."""
    return str(error).strip().partition("\n")[0].rstrip(".") or type(error).__name__
