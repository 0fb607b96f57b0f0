"""The agent that the A2A conformance kit drives: the message's id says what to do.

One scenario for each prefix of the kit's `scenarios/*.feature`; the longest that fits wins. Other
ids beginning with `tck-` complete; ids without a prefix (the kit for 0.3) work for a moment and
then ask for input. No scenario begins with WORKING: the worker says that when a run begins.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from switchroom.agent import Event, Part, Run

MOMENT = 0.3  # seconds: long enough to be seen WORKING
DELAY = 2.0  # seconds: what the kit's "delayed" tasks work for
PACE = 0.4  # seconds between the chunks of the task to subscribe to again
CHUNKS = 13  # so that it works for 5 s: the kit wants at least 2 x its 2 s timeout

FILE: dict[str, Any] = {"filename": "output.txt", "media_type": "text/plain"}
GREETING = "Hello from TCK"


async def agent(run: Run) -> AsyncIterator[Event]:
    message_id = run.message.message_id
    prefix = max((p for p in SCENARIOS if message_id.startswith(p)), key=len)
    async for event in SCENARIOS[prefix](run):
        yield event


def extended_card(call: object) -> dict[str, Any]:
    """The extended card, for everybody: the kit asks for it without credentials."""
    card: dict[str, Any] = json.loads(Path(__file__).with_suffix(".json").read_text())
    return {**card, "description": f"{card['description']} Extended."}


Scenario = Callable[[Run], AsyncIterator[Event]]


def yields(make: Callable[[Run], Event]) -> Scenario:
    """The scenario of one event; a task then completes by itself."""

    async def scenario(run: Run) -> AsyncIterator[Event]:
        yield make(run)

    return scenario


def artifact(*parts: str | Part) -> Scenario:
    return yields(lambda run: run.artifact("result", *parts, last=True))


async def chunked(run: Run) -> AsyncIterator[Event]:
    yield run.artifact("result", "chunk-1 ")
    yield run.artifact("result", "chunk-2", append=True, last=True)


async def delayed(run: Run) -> AsyncIterator[Event]:
    yield run.status("At it")
    await asyncio.sleep(DELAY)
    yield run.complete(GREETING)


async def paced(run: Run) -> AsyncIterator[Event]:
    for number in range(CHUNKS):
        yield f"chunk-{number} "
        await asyncio.sleep(PACE)


async def asks_after_a_moment(run: Run) -> AsyncIterator[Event]:
    yield run.status("At it")
    await asyncio.sleep(MOMENT)
    yield run.ask("What more?")


complete = yields(lambda run: run.complete(GREETING))

SCENARIOS: dict[str, Scenario] = {
    "": asks_after_a_moment,
    "tck-": complete,
    "tck-complete-task": complete,
    "tck-delayed-complete": delayed,
    "tck-artifact-text": artifact("Generated text content"),
    "tck-artifact-file": artifact(Part(raw=b"tck", **FILE)),
    "tck-artifact-file-url": artifact(Part(url="https://example.com/output.txt", **FILE)),
    "tck-artifact-data": artifact(Part(data={"key": "value", "count": 42})),
    "tck-message-response": yields(lambda run: run.reply("Direct message response")),
    "tck-input-required": yields(lambda run: run.ask("What more?")),
    "tck-auth-required": yields(lambda run: run.authorize("Sign in, then say so.")),
    "tck-reject-task": yields(lambda run: run.reject("rejected")),
    "tck-stream-001": artifact("Stream hello from TCK"),
    # The .feature says "completed", CORE-STREAM-002 is about a stream of one Message: the Message
    # satisfies both the requirement and the test.
    "tck-stream-002": yields(lambda run: run.reply("Stream message-only response")),
    "tck-stream-003": artifact("Stream task lifecycle"),
    "tck-stream-ordering-001": artifact("Ordered output"),
    "tck-stream-artifact-text": artifact("Streamed text content"),
    "tck-stream-artifact-file": artifact(Part(raw=b"tck", **FILE)),
    "tck-stream-artifact-chunked": chunked,
    "test-resubscribe-message-id": paced,
}
