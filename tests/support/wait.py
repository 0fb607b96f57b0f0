"""Waiting for a fact, where no signal tells of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

__all__ = ["wait_until"]


async def wait_until(fact: Callable[[], bool], *, what: str, within: float = 10.0) -> None:
    """Return as soon as `fact()` is true; after `within` seconds fail, saying `what` never was."""
    try:
        async with asyncio.timeout(within):
            while not fact():  # noqa: ASYNC110  # facts of other processes: no event
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(f"After {within:g} s it is still not so that {what}.") from None
