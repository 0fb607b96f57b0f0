"""Back-pressure: whether a gateway takes more work, by what waits for a worker already.

Promises that no request waits for the answer: the queue is looked at beside them, every 200 ms, and
a look that is older than 2 s decides nothing, so that a silent queue refuses nobody. Relies on
`RunQueue.backlog`. Each gateway looks for itself; between two looks a limit can be overshot.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Final

from switchroom.protocol.errors import Unavailable
from switchroom.store.commit import StoreUnavailable
from switchroom.store.queue import Backlog, RunQueue

__all__ = ["Pressure"]

_EVERY: Final = 0.2
_GOOD_FOR: Final = 2.0
_LONGEST_PAUSE: Final = 60.0

_log = logging.getLogger("switchroom.gateway")


class Pressure:
    """What waits for a worker, against its limits.

    runs, age: how many runs may wait, and for how long the first of them; 0 is no limit.
    clock: seconds, never going back.
    """

    def __init__(
        self,
        queue: RunQueue,
        *,
        runs: int,
        age: timedelta,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._queue = queue
        self._runs = runs
        self._age = age / timedelta(milliseconds=1)
        self._clock = clock
        self._backlog = Backlog(0, 0)
        self._looked = -math.inf
        self._full = False

    @property
    def level(self) -> float:
        """What waits as a share of its limit, the higher of the two; from 1 on it is reached. 0
        where nothing is known.
        """
        if self._clock() - self._looked > _GOOD_FOR:
            return 0.0
        by_runs = self._backlog.runs / self._runs if self._runs else 0.0
        by_age = self._backlog.oldest / self._age if self._age else 0.0
        return max(by_runs, by_age)

    def refusal(self) -> Unavailable:
        """The error for work that is not taken. What waits has waited for about as long as the
        workers need for it, so a client is to come back when enough of that will have passed.
        """
        beyond = 1 - 1 / max(self.level, 1.0)
        pause = min(max(self._backlog.oldest / 1000 * beyond, 1.0), _LONGEST_PAUSE)
        return Unavailable(
            "More work waits for this agent than it can take; send again later", retry_after=pause
        )

    async def watch(self) -> None:
        """Looks again and again; returns at once where there is no limit."""
        while self._runs or self._age:
            try:
                await self.look()
            except StoreUnavailable:
                pass  # what is known grows old
            except Exception:
                _log.exception("The queue cannot be measured; sends are not limited by what waits")
                return
            await asyncio.sleep(_EVERY)

    async def look(self) -> None:
        """Raises StoreUnavailable."""
        self._backlog, self._looked = await self._queue.backlog(), self._clock()
        if (full := self.level >= 1) != self._full:
            self._full = full
            runs, oldest = self._backlog
            if full:
                _log.warning(
                    "%d runs wait, the first for %.1f s: new work is refused", runs, oldest / 1000
                )
            else:
                _log.info("%d runs wait: new work is taken again", runs)
