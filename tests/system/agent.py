"""The agent of the system tests: it can be held where a test wants it, and tells where it runs.

    gate NAME E     E chunks, waits until the test opens the gate NAME, E more chunks
    reply X         answers with a Message instead of a task

Anything else is done as examples/scripted.py does it. Every run leaves a line in the file `runs`
beside the gates (task id, turn, attempt and process id), and one that is cancelled while it waits
a line in `cancelled` (task id and process id).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

from examples.scripted import agent as scripted
from switchroom.agent import Event, Run

FOLDER = Path(os.environ["TEST_GATES"])


async def agent(run: Run) -> AsyncIterator[Event]:
    leave("runs", f"{run.task_id} {run.turn} {run.attempt} {os.getpid()}")
    match run.text.split():
        case ["gate", name, count]:
            yield run.status(f"pid {os.getpid()}")
            for number in range(int(count)):
                yield f"{number} "
            try:
                await opened(name)
            except asyncio.CancelledError:
                leave("cancelled", f"{run.task_id} {os.getpid()}")
                raise
            for number in range(int(count), 2 * int(count)):
                yield f"{number} "
        case ["reply", *words]:
            yield run.reply(" ".join(words))
        case _:
            async for event in scripted(run):
                yield event


async def opened(name: str) -> None:
    while not (FOLDER / name).exists():  # noqa: ASYNC110  # who opens it is another process
        await asyncio.sleep(0.01)


def leave(name: str, line: str) -> None:
    with (FOLDER / name).open("a") as file:
        file.write(f"{line}\n")
