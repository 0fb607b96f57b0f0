"""Stream events: wrapped once, encoded once, told apart by their single member (§3.2.3)."""

from __future__ import annotations

import json

import pytest
from pydantic import ValidationError

from switchroom.protocol import event
from switchroom.protocol.event import StreamResponse
from switchroom.protocol.model import (
    Artifact,
    Message,
    Part,
    Role,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)

STATUS = TaskStatus(state=TaskState.WORKING)
EVENTS: dict[str, Task | Message | TaskStatusUpdateEvent | TaskArtifactUpdateEvent] = {
    "task": Task(id="t", status=STATUS),
    "message": Message(message_id="m", role=Role.AGENT, parts=[Part(text="hi")]),
    "statusUpdate": TaskStatusUpdateEvent(task_id="t", context_id="c", status=STATUS),
    "artifactUpdate": TaskArtifactUpdateEvent(
        task_id="t", context_id="c", artifact=Artifact(artifact_id="a", parts=[Part(text="x")])
    ),
}


@pytest.mark.parametrize("member", list(EVENTS))
def test_an_event_is_wrapped_in_its_member(member: str) -> None:
    wrapped = event.wrap(EVENTS[member])
    assert wrapped == {member: EVENTS[member].to_dict()}
    assert StreamResponse.model_validate(wrapped).to_dict() == wrapped


def test_the_kind_is_the_member() -> None:
    assert [event.kind_of(event.wrap(e)) for e in EVENTS.values()] == [
        "task",
        "message",
        "status",
        "artifact",
    ]


@pytest.mark.parametrize("wrong", [{}, {"kind": "task"}, {"task": {}, "message": {}}])
def test_what_is_no_event_has_no_kind(wrong: dict[str, object]) -> None:
    with pytest.raises((ValueError, KeyError)):
        event.kind_of(wrong)


@pytest.mark.parametrize("members", [[], ["task", "message"], list(EVENTS)])
def test_exactly_one_member(members: list[str]) -> None:
    with pytest.raises(ValidationError, match="needs exactly one of task, message, statusUpdate"):
        StreamResponse.model_validate({m: EVENTS[m].to_dict() for m in members})


def test_what_was_encoded_is_decoded_unchanged() -> None:
    value = {"a": [1, 1.0, 2**70, -0.0, None, True, "é\U0001f600\n"], "": {}}
    data = event.encode(value)
    assert data == json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
    assert repr(event.decode(data)) == repr(value)


@pytest.mark.parametrize("model", list(EVENTS.values()), ids=list(EVENTS))
def test_there_is_one_encoding(model: Task) -> None:
    assert event.encode(model.to_dict()) == model.to_json()


@pytest.mark.parametrize(
    "text",
    [b"", b"{", b'{"a":NaN}', b'{"a":Infinity}', b'"\\ud800"', b"\xff", b"[" * 10_000]
    + [b"1" * 5_000],
)
def test_what_is_no_json_is_a_value_error(text: bytes) -> None:
    with pytest.raises(ValueError):
        event.decode(text)


def test_of_two_equal_names_the_last_one_counts() -> None:
    assert event.decode(b'{"a":1,"a":2}') == {"a": 2}
