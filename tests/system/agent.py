"""The agent of the system tests: it can be held where a test wants it, and tells where it runs.

    gate NAME E     E chunks, waits until the test opens the gate NAME, E more chunks
    steps NAME E    E chunks, and after each but the last waits for a gate: NAME-0, NAME-1 …
    flood NAME E S  says "ready ", waits for the gate NAME, E chunks of S characters as fast as can
                    be, waits for the gate NAME-end, says "over "
    each NAME E     as gate, but each attempt has a gate of its own: NAME-1, NAME-2 …
    block NAME      in its first attempt: says "0 ", waits for the gate NAME-go, blocks its process
                    until the gate NAME opens, says "late " and waits for ever; in a later one: says
                    "0 ", waits for the gate NAME-end, says "1 "
    deaf NAME       does not end when it is cancelled: says "late " when the gate opens, and leaves
                    a line in `ended`
    die             kills its process
    reply X         answers with a Message instead of a task

Anything else is done as examples/scripted.py does it. Every run leaves a line in the file `runs`
beside the gates (task id, turn, attempt and process id), and one that is cancelled while it waits
a line in `cancelled` (task id and process id).

The other agents of this module do the same and differ in what they declare.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path

from examples.scripted import agent as scripted
from switchroom.agent import Event, Run

FOLDER = Path(os.environ["TEST_GATES"])


async def agent(run: Run) -> AsyncIterator[Event]:
    leave("runs", f"{run.task_id} {run.turn} {run.attempt} {os.getpid()}")
    match run.text.split():
        case ["gate", name, count]:
            async for event in held(run, name, int(count)):
                yield event
        case ["steps", name, count]:
            for number in range(int(count)):
                if number:
                    await waiting(run, f"{name}-{number - 1}")
                yield f"{number} "
        case ["flood", name, count, size]:
            yield "ready "
            await waiting(run, name)
            for _ in range(int(count)):
                yield "x" * int(size)
            await waiting(run, f"{name}-end")
            yield "over "
        case ["each", name, count]:
            async for event in held(run, f"{name}-{run.attempt}", int(count)):
                yield event
        case ["block", name] if run.attempt == 1:
            yield "0 "
            await waiting(run, f"{name}-go")
            while not (FOLDER / name).exists():
                time.sleep(0.01)  # noqa: ASYNC251  # that is what it is for
            yield "late "
            await waiting(run, f"{name}-never")
        case ["block", _]:
            yield "0 "
            await waiting(run, f"{name}-end")
            yield "1 "
        case ["deaf", name]:
            yield "0 "
            while not (FOLDER / name).exists():
                try:
                    await waiting(run, name)
                except asyncio.CancelledError:
                    continue
            leave("ended", f"{run.task_id} {os.getpid()}")
            yield "late "
        case ["die"]:
            os.kill(os.getpid(), signal.SIGKILL)
        case ["reply", *words]:
            yield run.reply(" ".join(words))
        case _:
            async for event in scripted(run):
                yield event


async def held(run: Run, name: str, count: int) -> AsyncIterator[Event]:
    yield run.status(f"pid {os.getpid()}")
    for number in range(count):
        yield f"{number} "
    await waiting(run, name)
    for number in range(count, 2 * count):
        yield f"{number} "


async def waiting(run: Run, name: str) -> None:
    try:
        while not (FOLDER / name).exists():  # noqa: ASYNC110  # who opens it is another process
            await asyncio.sleep(0.01)
    except asyncio.CancelledError:
        leave("cancelled", f"{run.task_id} {os.getpid()}")
        raise


def leave(name: str, line: str) -> None:
    with (FOLDER / name).open("a") as file:
        file.write(f"{line}\n")


class Declaring:
    """The agent, declaring something of itself."""

    def __init__(self, **declared: bool | float) -> None:
        vars(self).update(declared)

    async def __call__(self, run: Run) -> AsyncIterator[Event]:
        async for event in agent(run):
            yield event


once = Declaring(retry=False)
brief = Declaring(run_limit=3, inactivity_limit=2)
