"""The agent of `make chaos`: checkable work, and marks of it that Redis cannot lose.

    work KEY N MS [B]   N chunks that are MS apart, each B bytes or a little more (default 0)
    ask KEY N MS        the same in each turn; in the first it then asks for more
    again KEY N MS      the same, but the first attempt asks for another
    deaf KEY N MS       the same, and goes on when it is cancelled
    fail KEY            fails
    reply KEY           answers with a Message instead of a task

Each run of the agent draws a name. Its chunk number n reads `<name>.<n> `, so whoever sees a chunk
knows which run said it and what must stand before it. Beside that every run leaves lines in one
file (`marks.py` reads them): each is one write to the end of it, so lines of all processes stand
whole beside each other. A chunk's mark is left before the chunk is said.
"""

from __future__ import annotations

import asyncio
import os
import time
import uuid
from collections.abc import AsyncIterator

from switchroom.agent import Event, Retry, Run

_FILE = os.open(os.environ["CHAOS_MARKS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)


async def agent(run: Run) -> AsyncIterator[Event]:
    verb, key, *numbers = run.text.split()
    name = uuid.uuid4().hex[:10]

    def mark(word: str) -> None:
        where = f"{name} {key} {run.task_id} {run.turn} {run.attempt} {os.getpid()}"
        os.write(_FILE, f"{time.time():.6f} {where} {word}\n".encode())

    mark("begun")
    try:
        if verb == "reply":
            yield run.reply(f"{name} {key}")
        elif verb == "fail":
            yield run.fail(f"{name} {key}")
        else:
            yield run.status(f"{name} begins")
            count, pause, size = (*map(int, numbers), 0)[:3]
            for number in range(count):
                await _wait(pause / 1000, deaf=verb == "deaf")
                mark(str(number))
                yield f"{name}.{number} {'x' * size}"
            if verb == "again" and run.attempt == 1:
                raise Retry
            if verb == "ask" and run.turn == 1:
                yield run.ask(f"{name} asks")
    except asyncio.CancelledError:
        mark("cancelled")
        raise
    mark("ended")


async def _wait(seconds: float, *, deaf: bool) -> None:
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        if not deaf:
            raise
