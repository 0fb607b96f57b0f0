"""What one reader saw, held against the log: nothing missed, nothing twice, nothing in between."""

from __future__ import annotations

from collections.abc import Iterator

from tests.chaos.dump import Entry, Task
from tests.chaos.records import Event, Segment, View
from tests.chaos.said import INTERRUPTED, TERMINAL, Said, artifacts_of, said

__all__ = ["check_view"]


def check_view(view: View, task: Task) -> Iterator[str]:
    """What is wrong with a view of this task, in words."""
    log = {entry.seq: entry for entry in task.log}
    for number, segment in enumerate(view.segments, 1):
        for text in _segment(segment, view, log):
            yield f"connection {number} of a reader ({view.version}): {text}"
    events = view.events
    if not view.over:
        yield "a reader never saw the end"
        return
    last = said(events[-1].data) if events else None
    if last is None or last.kind == "message" or last.state not in TERMINAL:
        return  # a refusal told it that all is over, or its turn is
    if last.state != task.state:
        yield f"a reader saw it end as {last.state}, and it is {task.state}"
    pieced, stored = _pieced_together(events), artifacts_of(task.snapshot)
    if task.state == "COMPLETED" and view.to_end and pieced != stored:
        yield f"a reader pieced together {pieced}, and the final Task holds {stored}"


def _segment(segment: Segment, view: View, log: dict[int, Entry]) -> Iterator[str]:
    last = _seq(segment.after) if segment.after else None
    ended = False
    before: Said | None = None
    for event in segment.events:
        told = said(event.data)
        if ended:
            yield f"{event.id} {told} came after the end"
            return
        if told.kind == "message":
            before = told
            continue
        entry = log.get(_seq(event.id))
        if entry is None or event.id != f"{entry.seq}.{entry.mark}":
            yield f"{event.id} {told} is not in the log"
            return
        if told.kind == "task":
            if last is not None:
                yield f"{event.id}: the Task came in the middle (after {segment.after or last})"
                return
            at = next(log[seq].state for seq in range(entry.seq, 0, -1) if log[seq].state)
            if told.state != at:
                yield f"{event.id}: the Task is {told.state}, and it was {at}"
        elif before and before.kind == "task" and _said_again(event, told, before, last, view):
            pass
        else:
            yield from _follows(event, told, entry, last, view, log)
        last, before = entry.seq, told
        ended = told.state in TERMINAL and not (told.kind == "task" and view.version == "0.3")


def _follows(
    event: Event, told: Said, entry: Entry, last: int | None, view: View, log: dict[int, Entry]
) -> Iterator[str]:
    """An update must be the very next entry; what a message made of the task is not told."""
    if last is None:
        yield f"{event.id} {told} came before the Task"
    elif entry.seq <= last:
        yield f"{event.id} {told} came after {last}"
    else:
        missed = [seq for seq in range(last + 1, entry.seq) if log[seq].kind != "input"]
        if missed:
            yield f"missed {missed} between {last} and {entry.seq}"
    if view.version == "1.0" and event.data != entry.event:
        yield f"{event.id} was told as {event.data}, and it is {entry.event}"
    if told != said(entry.event):
        yield f"{event.id} was told as {told}, and it is {said(entry.event)}"


def _said_again(event: Event, told: Said, task: Said, last: int | None, view: View) -> bool:
    """Clients of 0.3 want a status as their last event, so an ended Task's is told once more."""
    ends = told.state in TERMINAL | INTERRUPTED and told.state == task.state
    return view.version == "0.3" and told.kind == "status" and ends and _seq(event.id) == last


def _pieced_together(events: list[Event]) -> dict[str, str]:
    """The artifacts' texts, as a client has them that follows what it is told."""
    texts: dict[str, str] = {}
    for event in events:
        told = said(event.data)
        if told.kind == "task":
            texts = artifacts_of(event.data if "kind" in event.data else event.data["task"])
        elif told.kind == "artifact":
            before = texts.get(told.artifact, "") if told.appends else ""
            texts[told.artifact] = before + told.text
    return {ident: text for ident, text in texts.items() if text}


def _seq(ident: str) -> int:
    number = ident.partition(".")[0]
    return int(number) if number.isdigit() else 0
