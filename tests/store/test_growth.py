"""A run that lets its task grow too far is told so by the setting; its end always fits."""

from __future__ import annotations

from typing import Any

import pytest

from switchroom.protocol.event import encode, kind_of
from switchroom.protocol.lifecycle import fold
from switchroom.protocol.model import Json
from switchroom.settings import Settings
from switchroom.store.growth import Growth, LogLimits, TooLarge
from tests.support.acts import chunk, status

FAILED = status("TASK_STATE_FAILED", "too much")


def task() -> Json:
    return {"id": "t", "contextId": "c", "status": {"state": "TASK_STATE_WORKING"}}


def growth(size: int = 0, events: int = 0, **limits: Any) -> Growth:
    return Growth(LogLimits.of(Settings(**limits)), size=size, events=events)


def add(grown: Growth, held: Json, event: Json, *, last: bool = False) -> None:
    grown.add(held, kind_of(event), event, len(encode(event)), last=last)
    fold(held, event)


class TestArtifacts:
    def test_each_has_its_own_room(self) -> None:
        grown, held = growth(artifact_limit=2_000), task()
        for name in ("a", "b"):
            add(grown, held, chunk("x" * 800, artifact=name))
            add(grown, held, chunk("x" * 800, artifact=name, append=True))
            with pytest.raises(TooLarge, match="SWITCHROOM_ARTIFACT_LIMIT"):
                add(grown, held, chunk("x" * 800, artifact=name, append=True))
        add(grown, held, FAILED, last=True)

    def test_one_that_begins_anew_has_all_of_it_again(self) -> None:
        grown, held = growth(artifact_limit=1_000), task()
        for _ in range(5):
            add(grown, held, chunk("x" * 700))

    def test_what_an_earlier_turn_left_counts(self) -> None:
        held = task()
        fold(held, chunk("x" * 800))
        with pytest.raises(TooLarge, match="SWITCHROOM_ARTIFACT_LIMIT"):
            add(growth(artifact_limit=1_000), held, chunk("x" * 300, append=True))


def test_events_are_counted_over_all_turns() -> None:
    grown, held = growth(events=8, events_limit=10), task()
    add(grown, held, chunk("one"))
    add(grown, held, chunk("two"))
    with pytest.raises(TooLarge, match="SWITCHROOM_EVENTS_LIMIT"):
        add(grown, held, chunk("three"))
    add(grown, held, FAILED, last=True)


def test_messages_are_counted_as_they_move_into_the_history() -> None:
    grown, held = growth(history_limit=2), task()
    for number in range(3):
        add(grown, held, status("TASK_STATE_WORKING", f"step {number}"))
    assert len(held["history"]) == 2
    with pytest.raises(TooLarge, match="SWITCHROOM_HISTORY_LIMIT"):
        add(grown, held, status("TASK_STATE_WORKING", "step 3"))
    add(grown, held, chunk("an artifact is no message"))
    add(grown, held, FAILED, last=True)


def test_what_does_not_fit_has_not_been_added() -> None:
    grown, held = growth(event_limit=500, task_limit=1_000), task()
    for _ in range(3):
        with pytest.raises(TooLarge, match="SWITCHROOM_EVENT_LIMIT"):
            add(grown, held, chunk("x" * 600))
    assert grown.size == 0
    add(grown, held, chunk("x" * 300))
