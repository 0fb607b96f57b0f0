"""One task as it stands: the answer of the `read` script, folded."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from switchroom.protocol.event import decode
from switchroom.protocol.lifecycle import is_terminal
from switchroom.protocol.model import Json, timestamp
from switchroom.store.entry import Entry, Position, fold_entries, parse_log
from switchroom.store.formats import NewerFormat
from switchroom.store.keys import Keys
from switchroom.store.scripts import ANSWERED, SCRIPTS, Call

__all__ = ["TaskView", "read_call", "view_of"]

_log = logging.getLogger("switchroom.store")


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


def read_call(
    keys: Keys, task_id: str, *, owner: str | None = None, artifacts: bool = True
) -> Call:
    """Reads a task, if it is the owner's (None: any); what is not costs as much as what is absent.
    Without its artifacts what it costs does not depend on them.
    """
    keys_of = [keys.task(task_id), keys.log(task_id)]
    return SCRIPTS.read(keys_of, owner or "", *(() if artifacts else ("top",)))


def view_of(task_id: str, answer: Any) -> TaskView | None:
    """The view that a `read` answer shows; None for an absent task.

    Of a task whose bytes are damaged it shows what can still be read, in the state that it has.
    Raises NewerFormat.
    """
    if answer[0] == b"absent":
        return None
    if answer[0] == b"newer":
        raise NewerFormat(retry_after=5)
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
        at,
        rows,
        missing,
    ) = answer
    context_id, ids = context.decode(), {"task_id": task_id, "context_id": context.decode()}
    entries: list[Entry] = []
    try:
        if missing:
            raise ValueError(f"{missing} entries of its log are missing")
        entries = [parse_log(row) for row in rows]
        task = fold_entries(decode(snapshot) if snapshot else None, entries, **ids) or {}
        if task["id"] != task_id:
            raise ValueError("it is another task's")
    except Exception as damage:
        # Whatever stands there: a task that cannot be read hurts nobody who reads others beside it.
        _log.error("task %s: what is stored of it is damaged: %r", task_id, damage)
        status = {"state": state.decode(), "timestamp": timestamp(ts)}
        task = {**_salvaged(snapshot, at, rows, ids), "id": task_id, "contextId": context_id}
        task["status"] = status
    said = next((entry.data for entry in entries if entry.kind == "message"), None)
    return TaskView(
        task_id,
        owner.decode(),
        context_id,
        state.decode(),
        ts,
        Position(seq, mark.decode()),
        turn,
        done,
        bool(run) and done < turn,
        attempt,
        shown == b"1",
        cancel is not None,
        task,
        said,
    )


def _salvaged(snapshot: bytes | None, at: int, rows: Sequence[Any], ids: dict[str, str]) -> Json:
    """The task up to the first thing in it that cannot be read."""
    task: Json = {}
    try:
        if snapshot:
            whole = decode(snapshot)
            task = dict(whole) if isinstance(whole, dict) else {}
        for row in rows:
            entry = parse_log(row)
            if entry.seq != at + 1:
                break
            task, at = fold_entries(task or None, [entry], **ids) or {}, entry.seq
    except Exception:
        pass  # this is the first thing
    return task
