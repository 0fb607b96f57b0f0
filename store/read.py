"""One task as it stands: the answer of the `read` script, folded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from switchroom.protocol.event import decode
from switchroom.protocol.lifecycle import is_terminal
from switchroom.protocol.model import Json
from switchroom.store.entry import Entry, Position, fold_entries, parse_log
from switchroom.store.keys import Keys
from switchroom.store.scripts import ANSWERED, SCRIPTS, Call

__all__ = ["TaskView", "read_call", "view_of"]


@dataclass(frozen=True, slots=True)
class TaskView:
    """A task at one moment, with its position in the log.

    ts: status time, epoch ms.  running: a run has begun and not ended its turn.  cancel: a
    cancel was asked for. answer: the bytes of the Message that was the whole answer, for a task
    in the internal state `answered`.
    """

    task_id: str
    owner: str
    context_id: str
    state: str
    ts: int
    position: Position
    turn: int
    done: int
    running: bool
    attempt: int
    shown: bool
    cancel: bool
    task: Json
    answer: bytes | None

    @property
    def visible(self) -> bool:
        """Whether GetTask and ListTasks know it."""
        return self.shown and self.state != ANSWERED

    @property
    def terminal(self) -> bool:
        return self.state == ANSWERED or is_terminal(self.state)


def read_call(keys: Keys, task_id: str, *, artifacts: bool = True) -> Call:
    """Reads a task; without its artifacts what it costs does not depend on them."""
    keys_of = [keys.task(task_id), keys.log(task_id)]
    return SCRIPTS.read(keys_of) if artifacts else SCRIPTS.read(keys_of, "top")


def view_of(task_id: str, answer: Any) -> TaskView | None:
    """The view that a `read` answer shows; None for an absent task."""
    if answer[0] == b"absent":
        return None
    (
        _,
        _,
        owner,
        context,
        state,
        ts,
        seq,
        mark,
        turn,
        done,
        run,
        attempt,
        shown,
        cancel,
        snapshot,
        _,
        rows,
    ) = answer
    context_id = context.decode()
    entries: list[Entry] = [parse_log(row) for row in rows]
    task = fold_entries(
        decode(snapshot) if snapshot else None, entries, task_id=task_id, context_id=context_id
    )
    said = next((entry.data for entry in entries if entry.kind == "message"), None)
    return TaskView(
        task_id,
        owner.decode(),
        context_id,
        state.decode(),
        int(ts),
        Position(seq, mark.decode()),
        turn,
        done,
        bool(run) and done < turn,
        attempt,
        shown == b"1",
        cancel is not None,
        task or {},
        said,
    )
