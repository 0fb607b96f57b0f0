"""Agents that a test steers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from switchroom.agent import Event, Run

__all__ = ["Held"]


class Held:
    """An agent that says `a`, waits until the test lets it go on, and says `b`."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.attempts: list[int] = []
        self.cleaned = 0

    async def __call__(self, run: Run) -> AsyncIterator[Event]:
        self.attempts.append(run.attempt)
        try:
            yield "a"
            await self.go.wait()
            yield "b"
        finally:
            self.cleaned += 1
