"""How much of the deliveries each receiver may take up: one that hangs leaves room for the rest."""

from __future__ import annotations

import random
from collections import Counter, OrderedDict
from typing import Final

__all__ = ["Receivers"]

_FAILING_AT_ONCE: Final = 2
_REMEMBERED: Final = 10_000


class Receivers:
    """Places of receivers, by origin. One whose last delivery failed gets two, any other half of
    them all.

    places: deliveries at once.
    """

    def __init__(self, places: int) -> None:
        self._most = max(1, places // 2)
        self._busy: Counter[str] = Counter()
        self._failing: OrderedDict[str, None] = OrderedDict()

    def enter(self, origin: str) -> float | None:
        """Takes a place; else says in how many seconds to ask again."""
        failing = origin in self._failing
        if self._busy[origin] < (min(_FAILING_AT_ONCE, self._most) if failing else self._most):
            self._busy[origin] += 1
            return None
        return random.uniform(1, 5) if failing else random.uniform(0.05, 0.15)

    def leave(self, origin: str, *, failed: bool) -> None:
        """Gives the place back.  failed: what the last delivery came to."""
        self._busy[origin] -= 1
        if not self._busy[origin]:
            del self._busy[origin]
        self._failing.pop(origin, None)
        if failed:
            self._failing[origin] = None
            if len(self._failing) > _REMEMBERED:
                self._failing.popitem(last=False)
