"""An attempt of a turn that has begun, and how a run learns that it may not write any more."""

from __future__ import annotations

from dataclasses import dataclass

from switchroom.protocol.event import decode
from switchroom.protocol.model import Json
from switchroom.store.turn import TurnInput

__all__ = ["Begun", "RunEnded", "Unreadable"]


class RunEnded(Exception):
    """The run may not write any more. Not an A2A error: it never leaves the worker.

    why: `fenced` (another took over, or a cancel), `terminal`, `absent`, `late` (the lease had
    passed), `stale`, `held` (the queue thought it new, but it runs),
    `newer` (its task was written by a release too new for us), `broken` (the store answers
    what it never should; the log has the cause).
    """

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


class Unreadable(Exception):
    """What is stored of a task cannot be used, and never will be; the text says why."""


@dataclass(frozen=True, slots=True)
class Begun:
    """An attempt that has begun.

    base: the task as it stood when the turn began (JSON bytes, empty for turn 1).  claim: the
    digest that its send goes by.  size: bytes of both.  input: what the turn was asked.  hooks:
    whether webhooks are to be told of it.
    """

    task_id: str
    turn: int
    run: str
    fence: int
    attempt: int
    owner: str
    context_id: str
    state: str
    ts: int
    seq: int
    shown: bool
    cancel: bool
    base: bytes
    base_seq: int
    claim: str
    size: int
    input: TurnInput
    hooks: bool

    def task(self) -> Json:
        """The task with this turn's message in it, as every attempt finds it."""
        return self.input.apply(
            decode(self.base) if self.base else None,
            task_id=self.task_id,
            context_id=self.context_id,
        )
