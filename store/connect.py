"""Redis from one URL, and the search for a server on a bare machine.

Promises a client whose commands end within their time, never repeat a command on their own and
never show a password; and a sentence where Redis cannot be used. Relies on redis-py, and on
fakeredis for `fake://`, whose servers live in this process and die with it.
"""

from __future__ import annotations

import asyncio
import builtins
import logging
import os
import shutil
import sys
import tempfile
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from fakeredis import FakeServer
from fakeredis.aioredis import FakeAsyncRedisConnection
from redis.asyncio import Redis
from redis.asyncio.connection import SSLConnection, parse_url
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

from switchroom.redis_url import SentinelUrl
from switchroom.settings import without_password
from switchroom.store.pool import Pool, last_words, sentence
from switchroom.store.sentinel import (
    MasterConnection,
    MasterPool,
    NoMaster,
    Sentinels,
    TlsToMaster,
)

__all__ = [
    "ServerError",
    "UrlError",
    "address",
    "check_server",
    "connect",
    "find_server",
    "in_one_sentence",
    "is_fake",
    "private_server",
]

log = logging.getLogger("switchroom.store")

_OLDEST = (7, 0)
_LOADING = "is still loading its data; start again in a moment."
_START_LIMIT = 10.0
_TO_SENTINEL = 10
"""Connections to one Sentinel, at most; more questions than these wait for each other."""
_servers: defaultdict[str, FakeServer] = defaultdict(lambda: FakeServer(version=_OLDEST))


class UrlError(Exception):
    """A Redis URL cannot be used; the text is one sentence, without the password."""


class ServerError(Exception):
    """A Redis server is absent or unfit; the text is one sentence, without the password."""


def connect(
    url: str, *, timeout: timedelta, connections: int = 100, listening: bool = False
) -> Redis:
    """A client for `url` (`redis://`, `rediss://`, `unix://`, `fake://name`, or the master that
    `redis+sentinel://` or `rediss+sentinel://` leads to); does not connect yet.

    `timeout` bounds connecting, each command and the wait for one of `connections` connections;
    then redis-py's TimeoutError or ConnectionError, as for a server that refuses the URL's user or
    database. With `listening` an answer may take for ever, as pub/sub needs; connecting may not,
    and that the master has moved is noticed by itself. Answers are bytes. Raises UrlError.
    """
    seconds = timeout.total_seconds()
    options: dict[str, Any] = {
        # A repeated script may apply twice: only who wrote it knows whether that is harmless.
        "retry": Retry(NoBackoff(), 0),
        "socket_connect_timeout": seconds,
        "socket_timeout": None if listening else seconds,
    }
    if url.startswith("fake:"):
        return Redis.from_pool(
            Pool(
                max_connections=connections,
                timeout=seconds,
                connection_class=FakeAsyncRedisConnection,
                server=_servers[url],
                **options,
            )
        )
    options |= {"max_connections": connections, "timeout": seconds}
    try:
        through = SentinelUrl.parse(url)
        said = dict(parse_url(through.server if through else url))
        if twice := {"max_connections", "timeout"} & said.keys():
            raise ValueError(f"{min(twice)} is not for a URL to say")
        if through:
            pool: Pool = _to_master(through, options, said, watchful=listening)
        else:
            pool = Pool(**(options | said))
        # No I/O, but redis-py refuses the options it does not know.
        pool.connection_class(**pool.connection_kwargs)
    except (TypeError, ValueError, RedisError) as error:
        reason = str(error).split("__init__() ")[-1].splitlines()[0].rstrip(".")
        raise UrlError(f"The Redis URL {without_password(url)} cannot be used: {reason}.") from None
    return Redis.from_pool(pool)


def _to_master(
    url: SentinelUrl, options: dict[str, Any], said: dict[str, Any], *, watchful: bool
) -> MasterPool:
    """options: ours.  said: the URL's, for the master; those of the Sentinels among them."""
    tls = said.pop("connection_class", None) is SSLConnection
    del said["host"]
    to_sentinels = {
        **options,
        # Of the time for a new connection half is left for the master itself.
        "timeout": options["timeout"] / 2,
        "socket_timeout": None,
        "max_connections": _TO_SENTINEL,
        "username": said.pop("sentinel_username", None),
        "password": said.pop("sentinel_password", None),
        **{name: value for name, value in said.items() if name.startswith("ssl_")},
    }
    if tls:
        to_sentinels["connection_class"] = SSLConnection
    pools = [Pool(host=host, port=port, **to_sentinels) for host, port in url.places]
    return MasterPool(
        Sentinels(url.master, pools, patience=to_sentinels["timeout"]),
        watchful=watchful,
        connection_class=TlsToMaster if tls else MasterConnection,
        **(options | said),
    )


def is_fake(redis: Redis) -> bool:
    """True if the server lives in this process."""
    return issubclass(redis.connection_pool.connection_class, FakeAsyncRedisConnection)


def address(redis: Redis) -> str:
    """Where the server is, for people: never with user, password or options."""
    if is_fake(redis):
        return "fakeredis"
    options = redis.connection_pool.connection_kwargs
    if isinstance(redis.connection_pool, MasterPool):
        return str(redis.connection_pool.sentinels)
    if "path" in options:
        return f"unix://{options['path']}"
    return f"{options.get('host', 'localhost')}:{options.get('port', 6379)}"


async def check_server(redis: Redis) -> None:
    """See that the server answers, is new enough and never evicts; warn where it will not say.

    Raises ServerError.
    """
    if is_fake(redis):
        return
    with in_one_sentence(redis):
        try:
            info = await redis.info()
        except ResponseError as error:
            unsaid = isinstance(error, NoPermissionError) or "unknown command" in str(error).lower()
            if not unsaid:
                raise
            log.warning(
                "%s does not answer INFO (%s): make sure it is Redis 7.0 or newer, "
                "with maxmemory-policy noeviction",
                _where(redis),
                error,
            )
            return
    if fault := _fault(info):
        raise ServerError(f"{_where(redis)} {fault}")


@contextmanager
def in_one_sentence(redis: Redis) -> Iterator[None]:
    """Whatever fails in the block, where a server is spoken to for the first time, is a
    ServerError.
    """
    try:
        yield
    except NoMaster as error:
        raise ServerError(str(error)) from None
    except (AuthenticationError, AuthorizationError) as error:
        raise ServerError(
            f"{_where(redis)} refuses the user or password of its URL ({sentence(error)})."
        ) from None
    except BusyLoadingError:
        raise ServerError(f"{_where(redis)} {_LOADING}") from None
    except (ConnectionError, TimeoutError, OSError) as error:
        if isinstance(error.__cause__, ResponseError):
            raise ServerError(
                f"{_where(redis)} refuses the connection ({sentence(error)}); "
                "see the user, the database and the options of its URL."
            ) from None
        through = isinstance(redis.connection_pool, MasterPool)
        hint = "is it running, or a failover under way?" if through else "is it running?"
        raise ServerError(
            f"{_where(redis)} does not answer ({last_words(error)}); {hint}"
        ) from None
    except RedisError as error:
        raise ServerError(
            f"{_where(redis)} does not answer as Redis does ({sentence(error)})."
        ) from None


def _where(redis: Redis) -> str:
    through = isinstance(redis.connection_pool, MasterPool)
    return f"Redis {'master' if through else 'at'} {address(redis)}"


def _fault(info: Mapping[str, Any]) -> str | None:
    """What keeps a server with this INFO from being used."""
    if info.get("loading"):  # INFO is answered meanwhile, and nothing else is
        return _LOADING
    version = str(info.get("redis_version", "unknown"))
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if numbers < _OLDEST:
        return f"is version {version}; Switchroom needs Redis 7.0 or newer, or Valkey."
    if info.get("redis_mode") == "cluster":
        return "is a cluster node; Switchroom needs a server with cluster mode disabled."
    if info.get("redis_mode") == "sentinel":
        return "is a Sentinel; write redis+sentinel://HOST:PORT/MASTER to have the master it knows."
    if info.get("role") == "slave":
        return (
            "is a replica, which takes no writes; name its master, or the Sentinels that know it."
        )
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
