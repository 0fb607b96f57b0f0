"""What the clients of `make chaos` write down for the checker: what they asked, what they saw."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Cancel", "Event", "Records", "Segment", "Send", "View"]

Json = Mapping[str, Any]


@dataclass(frozen=True)
class Event:
    """One event of a stream: its id on the wire, and what it said in the version asked for."""

    id: str
    data: Json


@dataclass
class Segment:
    """What one connection brought of a stream.

    after: the Last-Event-ID it was asked with, '' for none.  repeats: asked for by a send, which
    also opened the stream; else by a subscription.
    """

    after: str
    repeats: bool
    events: list[Event] = field(default_factory=list)


@dataclass
class View:
    """One reader of one task, over all its connections.

    to_end: it watches till the task's end, else till its turn's.  over: it saw that, or was told
    that it is so.
    """

    key: str
    version: str
    turn: int
    to_end: bool
    task_id: str = ""
    segments: list[Segment] = field(default_factory=list)
    over: bool = False

    @property
    def events(self) -> list[Event]:
        return [event for segment in self.segments for event in segment.events]


@dataclass
class Send:
    """One message, however often it was sent.

    key: of the work it asks for (turn 2: of the work that it continues).  kept: with an
    Idempotency-Key.  tasks, replies: every task id, and every Message's text, that any answer
    named.  ends: every answer that told how the task ended.  settled: the client knows how it
    ended.  left: an interrupted task is left so.  calm: sent when nothing was broken any more.
    """

    key: str
    turn: int
    text: str
    version: str
    kept: bool = False
    tasks: set[str] = field(default_factory=set)
    replies: set[str] = field(default_factory=set)
    ends: list[Json] = field(default_factory=list)
    cancelled: bool = False
    settled: bool = False
    left: bool = False
    calm: bool = False


@dataclass
class Cancel:
    """What concurrent cancels of one task were answered: the state, or the error's code."""

    key: str
    task_id: str
    answers: list[str] = field(default_factory=list)


@dataclass
class Records:
    """strange: answers that no client should ever get, as (task id or '', what).  counts: what
    happened, by its name.  looks: each task as each gateway told it at the end.  listed: the ids
    that ListTasks gave at the end.
    """

    sends: list[Send] = field(default_factory=list)
    views: list[View] = field(default_factory=list)
    cancels: list[Cancel] = field(default_factory=list)
    strange: list[tuple[str, str]] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    looks: dict[str, list[Json]] = field(default_factory=dict)
    listed: list[str] = field(default_factory=list)
