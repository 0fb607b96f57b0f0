"""One entry of a task's log, a position in it, and the fold over entries."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from switchroom.protocol.event import decode
from switchroom.protocol.lifecycle import fold
from switchroom.protocol.model import Json
from switchroom.store.turn import TurnInput

__all__ = ["Entry", "Position", "fold_entries", "parse_live", "parse_log"]


class Position(NamedTuple):
    """Where a reader stands: the number of the last entry it has, and that entry's mark. On the
    wire `<seq>.<mark>`.
    """

    seq: int
    mark: str

    def __str__(self) -> str:
        return f"{self.seq}.{self.mark}"

    @classmethod
    def parse(cls, text: str | None) -> Position | None:
        """The position that an SSE id names; None for anything that cannot be one of ours."""
        seq, dot, mark = (text or "").partition(".")
        if not dot or not seq.isascii() or not seq.isdigit() or len(seq) > 15:
            return None
        fits = 0 < len(mark) <= 64 and mark.isascii() and mark.isalnum()
        return cls(int(seq), mark) if fits else None


class Entry(NamedTuple):
    """One entry: dense `seq`, the writer's `mark`, `kind` (task, input, status, artifact,
    message), the new `state` or an empty string, the `turn`, and the event's bytes exactly as
    they are sent. `data` is None in a live announcement of a large event: read the log.
    """

    seq: int
    mark: str
    kind: str
    state: str
    turn: int
    data: bytes | None

    @property
    def position(self) -> Position:
        return Position(self.seq, self.mark)


_NONE: Final = "-"


def parse_live(payload: bytes) -> list[Entry]:
    """An announcement on a task's channel, as `write` in scripts.py words it."""
    entries, at = [], 0
    while at < len(payload):
        end = payload.index(b"\n", at)
        seq, mark, kind, state, turn, size = payload[at:end].decode().split(" ")
        at = end + 1
        data = None
        if size != _NONE:
            data = payload[at : at + int(size)]
            at += int(size)
        entries.append(
            Entry(int(seq), mark, kind, "" if state == _NONE else state, int(turn), data)
        )
    return entries


def parse_log(row: Any) -> Entry:
    """A row of XRANGE, as scripts return it."""
    entry_id, fields = row
    f = dict(zip(fields[::2], fields[1::2], strict=True))
    return Entry(
        int(entry_id.partition(b"-")[0]),
        f[b"m"].decode(),
        f[b"k"].decode(),
        f[b"s"].decode(),
        int(f[b"t"]),
        f[b"e"],
    )


def fold_entries(
    task: Json | None, entries: Iterable[Entry], *, task_id: str, context_id: str
) -> Json | None:
    """Folds entries, in order, over a task as JSON (in place); None stands for no task yet."""
    for entry in entries:
        if entry.data is None:
            raise ValueError("an entry without its bytes cannot be folded")
        if entry.kind == "input":
            task = TurnInput.decode(entry.data).apply(task, task_id=task_id, context_id=context_id)
        elif entry.kind == "task":
            task = decode(entry.data)["task"]
        elif entry.kind != "message":
            if task is None:
                raise ValueError("the log begins in the middle")
            task = fold(task, decode(entry.data))
    return task
