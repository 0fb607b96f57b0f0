"""Does what the message says: for trying things out, for the tests and for the benchmark.

    echo X           answers with exactly X
    stream E D [W]   after W ms (default 0), E chunks that are D ms apart
    sleep D          works for D ms
    fail             fails
    ask              asks for more input

Chunk number i of a stream, from 0, reads `i NS chunk`, with the wall clock in nanoseconds: enough
to verify order, loss, duplicates and delay. Anything else is echoed whole.
"""

import asyncio
import time
from collections.abc import AsyncIterator

from switchroom.agent import Event, Run


async def agent(run: Run) -> AsyncIterator[Event]:
    verb, _, rest = run.text.partition(" ")
    match verb:
        case "stream":
            count, pause, wait = _numbers(rest, defaults=(1, 0, 0))
            await _milliseconds(wait)
            for number in range(int(count)):
                if number:
                    await _milliseconds(pause)
                yield f"{number} {time.time_ns()} chunk"
        case "sleep":
            (duration,) = _numbers(rest, defaults=(0,))
            await _milliseconds(duration)
        case "fail":
            yield run.fail("Failed, as asked.")
        case "ask":
            yield run.ask("What more?")
        case _:
            yield run.artifact("echo", rest if verb == "echo" else run.text, last=True)


def _numbers(text: str, *, defaults: tuple[float, ...]) -> list[float]:
    given = [float(word) for word in text.split()]
    return [*given, *defaults[len(given) :]][: len(defaults)]


async def _milliseconds(duration: float) -> None:
    if duration:
        await asyncio.sleep(duration / 1000)
