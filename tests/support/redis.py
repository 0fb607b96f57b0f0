"""Redis servers for tests: a real one of our own per session, or fakeredis; and the leak check."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import redis
from redis.asyncio.connection import AbstractConnection, ConnectionPool

__all__ = ["leaked", "open_connections", "running_server"]


@contextmanager
def running_server(
    folder: Path, *options: str, port: int = 0, loaded: bool = True
) -> Iterator[str]:
    """A redis-server (or valkey-server) on a free port, without persistence; yields its URL.

    loaded: wait until it has its data, not only until it answers.
    """
    binary = shutil.which("redis-server") or shutil.which("valkey-server")
    assert binary, "no redis-server here"
    with socket.create_server(("127.0.0.1", port)) as probe:
        port = probe.getsockname()[1]
    process = subprocess.Popen(
        [
            binary,
            "--port",
            str(port),
            "--save",
            "",
            "--appendonly",
            "no",
            "--dir",
            str(folder),
            *options,
        ],
        stdout=subprocess.DEVNULL,
    )
    url = f"redis://127.0.0.1:{port}"
    try:
        with redis.Redis.from_url(url) as client:
            for _ in range(500):
                try:
                    client.ping()
                    break
                except redis.BusyLoadingError:
                    if not loaded:
                        break
                except redis.ConnectionError:
                    pass
                time.sleep(0.01)
        yield url
    finally:
        process.terminate()
        process.wait()


async def leaked(client: redis.asyncio.Redis, lives_for_ever: object) -> list[str]:
    """Keys that would live for ever and may not."""
    found = []
    async for raw in client.scan_iter(count=1000):
        key = raw.decode()
        if await client.ttl(raw) == -1 and not lives_for_ever(key):  # type: ignore[operator]
            found.append(key)
    return found


def open_connections(pool: ConnectionPool) -> list[AbstractConnection]:
    """The connections of a pool that are open now, idle or in somebody's hands."""
    every = (*pool._available_connections, *pool._in_use_connections)
    return [connection for connection in every if connection.is_connected]
