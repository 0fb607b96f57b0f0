"""Cutting an operation at each of its commands.

A lane of commands (`GroupCommit`) that is cut fails once: before its nth pipeline is sent, after
the pipeline was applied with its answer lost, or between two calls of the pipeline (the first
calls applied, the rest never sent).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from redis.exceptions import ConnectionError

from switchroom.store.commit import GroupCommit
from switchroom.store.scripts import Call

__all__ = ["Cut", "How"]

How = Literal["before", "between", "lost"]


class Cut:
    """Cuts the `at`th pipeline (from 1) that a lane sends from now on.

    sent: for `between`, how many calls of the pipeline are applied; None is half of them.
    hit: whether the cut has come. An operation that passes with `hit` False was never cut, and is
    through all its steps.  calls: how many the pipeline held that was cut.
    """

    def __init__(self, lane: GroupCommit, *, at: int, how: How, sent: int | None = None) -> None:
        self.hit = False
        self.calls = 0
        self._sent = sent
        self._left = at
        self._how = how
        self._lane = lane
        self._send = lane._pipeline
        lane._pipeline = self._pipeline  # type: ignore[method-assign]

    def heal(self) -> None:
        self._lane._pipeline = self._send  # type: ignore[method-assign]

    async def _pipeline(self, calls: Sequence[Call]) -> list[Any]:
        self._left -= 1
        if self._left != 0:
            return await self._send(calls)
        self.hit, self.calls = True, len(calls)
        match self._how:
            case "between":
                await self._send(calls[: self._sent or max(1, len(calls) // 2)])
            case "lost":
                await self._send(calls)
            case "before":
                pass
        raise ConnectionError(f"cut {self._how} pipeline")
