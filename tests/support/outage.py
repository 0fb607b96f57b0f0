"""A Redis in trouble: it goes away and comes back, with its data, with less or without; it is
silent, full, or cannot be written.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import redis

from tests.support.redis import running_server

__all__ = ["FrailRedis", "frail_redis"]

_KEPT = ("--appendonly", "yes")
# 20 keys a second; it answers each time it has read so many bytes.
_SLOWLY = ("--key-load-delay", "50000", "--loading-process-events-interval-bytes", "1024")


class FrailRedis:
    """A running Redis; `url` stays the same for as long as this object lives."""

    def __init__(self, folder: Path) -> None:
        self._data, self._saved = folder / "appendonlydir", folder / "saved"
        self._folder = folder
        self._running = ExitStack()
        self.url = self._running.enter_context(running_server(folder, *_KEPT))
        self.client = redis.Redis.from_url(self.url)
        self._paused = 0

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def fatten(self) -> None:
        """Gives it something to load for longer than a test looks, in pieces between which a slow
        start answers.
        """
        with self.client.pipeline(transaction=False) as pipeline:
            for number in range(1_000):
                pipeline.set(f"fat:{number}", os.urandom(1_100), ex=3_600)
            pipeline.execute()
        # What is loaded from a log of commands answers nothing meanwhile.
        self.client.bgrewriteaof()
        while self.client.info("persistence")["aof_rewrite_in_progress"]:
            time.sleep(0.01)

    def stop(self) -> None:
        """In order: everything it has acknowledged is on its disk."""
        self._running.close()

    def start(self, *, empty: bool = False, older: bool = False, slowly: bool = False) -> None:
        """Again, at its old port.  empty: without its data.  older: as it was at `save`.  slowly:
        it loads its data until `hurry`.
        """
        if empty or older:
            shutil.rmtree(self._data, ignore_errors=True)
        if older:
            shutil.copytree(self._saved, self._data)
        options = (*_KEPT, *_SLOWLY) if slowly else _KEPT
        self._running.enter_context(
            running_server(self._folder, *options, port=self.port, loaded=not slowly)
        )

    def save(self) -> None:
        """Keeps what it holds now, for `start(older=True)`."""
        shutil.rmtree(self._saved, ignore_errors=True)
        shutil.copytree(self._data, self._saved)

    def hurry(self) -> None:
        """Ends a slow start."""
        self.client.config_set("key-load-delay", 0)

    def pause(self) -> None:
        """It answers nothing, and keeps its connections: what a broken network looks like."""
        self._paused = int(self.client.info("server")["process_id"])
        os.kill(self._paused, signal.SIGSTOP)

    def resume(self) -> None:
        if self._paused:
            os.kill(self._paused, signal.SIGCONT)
        self._paused = 0

    @contextmanager
    def full(self) -> Iterator[None]:
        """Its memory is full meanwhile, and it throws nothing away."""
        self.client.config_set("maxmemory", 1)
        try:
            yield
        finally:
            self.client.config_set("maxmemory", 0)

    @contextmanager
    def demoted(self) -> Iterator[None]:
        """It is the replica of somebody who is not there, and cannot be written."""
        self.client.replicaof("127.0.0.1", 1)
        try:
            yield
        finally:
            self.client.replicaof("NO", "ONE")

    def close(self) -> None:
        self.resume()
        self.client.close()
        self._running.close()


@contextmanager
def frail_redis(folder: Path) -> Iterator[FrailRedis]:
    """A Redis that keeps its data in `folder`, and ends with the block."""
    server = FrailRedis(folder)
    try:
        yield server
    finally:
        server.close()
