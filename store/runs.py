"""RunStore: begins attempts of turns, and opens their logs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from redis.exceptions import ResponseError

from switchroom.store.attempt import Begun, RunEnded, Unreadable
from switchroom.store.growth import LogLimits
from switchroom.store.runlog import RunLog
from switchroom.store.scripts import SCRIPTS
from switchroom.store.tasks import TaskStore
from switchroom.store.turn import TurnInput

__all__ = ["RunStore"]


class RunStore:
    """Begins runs. Built over the TaskStore, whose lanes, keys and clock it uses."""

    def __init__(self, tasks: TaskStore, limits: LogLimits) -> None:
        self.tasks = tasks
        self._limits = limits

    async def begin(
        self, task_id: str, turn: int, *, run: str, deadline: int, new: bool = False
    ) -> Begun:
        """Begins an attempt of a turn; repeated with the same `run`, it gives the first answer.

        deadline: end of the lease, epoch ms of Redis.  new: nobody has had it yet, says the queue.
        Raises RunEnded (`absent`, `newer`, `stale`, `late`, `held`), Unreadable, StoreUnavailable.
        """
        keys = self.tasks.keys
        try:
            (answer,) = await self.tasks.commit(
                SCRIPTS.begin([keys.task(task_id)], turn, run, deadline, "1" if new else "")
            )
        except ResponseError as refused:
            if "WRONGTYPE" in str(refused):
                raise Unreadable("its key holds something else") from refused
            raise
        return self.begun(task_id, turn, run=run, answer=answer)

    def begun(self, task_id: str, turn: int, *, run: str, answer: Any) -> Begun:
        """The attempt that an answer of the `begin` script shows. Raises RunEnded as `begin`
        does.
        """
        outcome, _, *rest = answer
        if outcome == b"unreadable":
            raise Unreadable("its numbers are none")
        if outcome != b"begun":
            raise RunEnded(outcome.decode())
        with _readable("what the turn was asked"):
            return self._begun(task_id, turn, run, rest)

    def _begun(self, task_id: str, turn: int, run: str, found: list[Any]) -> Begun:
        fence, attempt, owner, context, state, ts, seq, shown, cancel, base, base_seq, *asked = (
            found
        )
        return Begun(
            task_id,
            turn,
            run,
            fence,
            attempt,
            owner.decode(),
            context.decode(),
            state.decode(),
            int(ts),
            int(seq),
            shown == b"1",
            cancel is not None,
            base,
            int(base_seq),
            asked[0].decode(),
            len(base) + len(asked[1]),
            TurnInput.decode(asked[1]),
            asked[2] == b"1",
        )

    def open(self, begun: Begun, on_stop: Callable[[str], None]) -> RunLog:
        """The run's log. Raises Unreadable."""
        with _readable("the task as its turn began"):
            return RunLog(self.tasks, begun, self._limits, on_stop)


@contextmanager
def _readable(what: str) -> Iterator[None]:
    try:
        yield
    except Exception as damage:
        raise Unreadable(f"{what} cannot be read: {damage!r}") from damage
