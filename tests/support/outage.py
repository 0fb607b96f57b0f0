"""A Redis that goes away and comes back: with its data, without it, or only after a silence."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import redis

from tests.support.redis import running_server

__all__ = ["FrailRedis", "frail_redis"]


class FrailRedis:
    """A running Redis; `url` stays the same for as long as this object lives."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running = ExitStack()
        self.url = self._running.enter_context(running_server(folder, "--appendonly", "yes"))
        self._paused = 0

    def stop(self) -> None:
        """In order: everything it has acknowledged is on its disk."""
        self._running.close()

    def start(self, *, empty: bool = False) -> None:
        """Again, at its old port."""
        if empty:
            shutil.rmtree(self._folder / "appendonlydir", ignore_errors=True)
        port = int(self.url.rpartition(":")[2])
        self._running.enter_context(running_server(self._folder, "--appendonly", "yes", port=port))

    def pause(self) -> None:
        """It answers nothing, and keeps its connections: what a broken network looks like."""
        with redis.Redis.from_url(self.url) as client:
            self._paused = int(client.info("server")["process_id"])
        os.kill(self._paused, signal.SIGSTOP)

    def resume(self) -> None:
        if self._paused:
            os.kill(self._paused, signal.SIGCONT)
        self._paused = 0

    def close(self) -> None:
        self.resume()
        self._running.close()


@contextmanager
def frail_redis(folder: Path) -> Iterator[FrailRedis]:
    """A Redis that keeps its data in `folder`, and ends with the block."""
    server = FrailRedis(folder)
    try:
        yield server
    finally:
        server.close()
