"""Waiting for a fact, where no signal tells of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

__all__ = ["wait_until"]

T = TypeVar("T")


async def wait_until(
    fact: Callable[[], T] | Callable[[], Awaitable[T]], *, what: str, within: float = 20.0
) -> T:
    """The first true value of `fact()`; after `within` seconds fail, saying `what` never was.

    `within` ends a test that would hang, and decides nothing else.
    """
    try:
        async with asyncio.timeout(within):
            while True:
                value = fact()
                found = await value if isinstance(value, Awaitable) else value
                if found:
                    return found
                await asyncio.sleep(0.005)
    except TimeoutError:
        raise AssertionError(f"After {within:g} s it is still not so that {what}.") from None
