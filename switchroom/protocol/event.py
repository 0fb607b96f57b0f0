"""The events of a stream (§3.2.3), and the one encoding of JSON that everything here uses.

Promises: an event is encoded once, by whoever causes it; `encode` gives compact UTF-8, and what
`encode` wrote `decode` reads back unchanged, numbers of any size included.
"""

from __future__ import annotations

from typing import Literal

from pydantic_core import from_json, to_json

from switchroom.protocol.model import (
    Message,
    Task,
    TaskArtifactUpdateEvent,
    TaskStatusUpdateEvent,
)
from switchroom.protocol.protojson import Json, OneOf

__all__ = ["Kind", "StreamResponse", "decode", "encode", "kind_of", "wrap"]

Kind = Literal["task", "message", "status", "artifact"]

_KINDS: dict[str, Kind] = {
    "task": "task",
    "message": "message",
    "statusUpdate": "status",
    "artifactUpdate": "artifact",
}


class StreamResponse(OneOf):
    """What a stream carries: exactly one of the four."""

    task: Task | None = None
    message: Message | None = None
    status_update: TaskStatusUpdateEvent | None = None
    artifact_update: TaskArtifactUpdateEvent | None = None


def wrap(event: Task | Message | TaskStatusUpdateEvent | TaskArtifactUpdateEvent) -> Json:
    """`event` as StreamResponse JSON: ``{"statusUpdate": {...}}``."""
    match event:
        case TaskStatusUpdateEvent():
            return {"statusUpdate": event.to_dict()}
        case TaskArtifactUpdateEvent():
            return {"artifactUpdate": event.to_dict()}
        case Message():
            return {"message": event.to_dict()}
        case Task():
            return {"task": event.to_dict()}


def kind_of(event: Json) -> Kind:
    """Which of the four `event` (StreamResponse JSON) is. ValueError or KeyError if it is none."""
    (member,) = event
    return _KINDS[member]


def encode(value: Json) -> bytes:
    """`value` as compact UTF-8 JSON."""
    return to_json(value)


def decode(data: bytes) -> Json:
    """The JSON object in `data`. ValueError if it is not JSON; NaN and Infinity are not."""
    value: Json = from_json(data, allow_inf_nan=False)
    return value
