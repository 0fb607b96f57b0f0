"""1.0 objects as 0.3 says them over JSON-RPC: `kind` in each, lower-case states, nested configs.

Promises objects that the 0.3 schema accepts, from JSON that is valid 1.0; never changes what it is
given, and costs what it copies. What 0.3 has no place for is kept in metadata (`kept.py`).
"""

from __future__ import annotations

from switchroom.protocol.model import Json, TaskState
from switchroom.v03.kept import keep, wrapped

__all__ = [
    "STATES",
    "artifact_update",
    "described",
    "message",
    "push_config",
    "status_update",
    "task",
]

STATES: dict[str, str] = {
    str(state): state.name.lower().replace("_", "-")
    for state in TaskState
    if state != "UNSPECIFIED"
}
"""How 0.3 spells a state."""


def task(value: Json) -> Json:
    """A Task, from one of 1.0."""
    said = {"kind": "task", "contextId": "", **value, "status": _status(value["status"])}
    if history := value.get("history"):
        said["history"] = [message(each) for each in history]
    if artifacts := value.get("artifacts"):
        said["artifacts"] = [_artifact(each) for each in artifacts]
    return said


def message(value: Json) -> Json:
    """A Message."""
    return {
        "kind": "message",
        **value,
        "role": "user" if value["role"] == "ROLE_USER" else "agent",
        "parts": [_part(part) for part in value["parts"]],
    }


def status_update(value: Json, *, final: bool) -> Json:
    """A TaskStatusUpdateEvent. final: whether the server closes the stream after it."""
    return {
        "kind": "status-update",
        **value,
        "status": _status(value["status"]),
        "final": final,
    }


def artifact_update(value: Json) -> Json:
    """A TaskArtifactUpdateEvent."""
    return {
        "kind": "artifact-update",
        "append": False,
        "lastChunk": False,
        **value,
        "artifact": _artifact(value["artifact"]),
    }


def push_config(value: Json) -> Json:
    """A TaskPushNotificationConfig, whose config is an object of its own in 0.3."""
    config: Json = {name: value[name] for name in ("id", "url", "token") if value.get(name)}
    if authentication := dict(value.get("authentication") or {}):
        config["authentication"] = {"schemes": [authentication.pop("scheme")], **authentication}
    return {"taskId": value["taskId"], "pushNotificationConfig": config}


def _status(value: Json) -> Json:
    said = {**value, "state": STATES.get(value["state"], "unknown")}
    if "message" in value:
        said["message"] = message(value["message"])
    return said


def _artifact(value: Json) -> Json:
    return {**value, "parts": [_part(part) for part in value["parts"]]}


def _part(value: Json) -> Json:
    metadata: Json | None = value.get("metadata")
    said: Json
    if "text" in value:
        said = {"kind": "text", "text": value["text"]}
        if len(value) == 1:
            return said
        metadata = keep(metadata, described(value))
    elif "data" in value:
        data, metadata = wrapped(value["data"], metadata)
        said = {"kind": "data", "data": data}
        metadata = keep(metadata, described(value))
    else:
        file = {"uri": value["url"]} if "url" in value else {"bytes": value["raw"]}
        if media_type := value.get("mediaType"):
            file["mimeType"] = media_type
        if name := value.get("filename"):
            file["name"] = name
        said = {"kind": "file", "file": file}
    if metadata is not None:
        said["metadata"] = metadata
    return said


def described(value: Json) -> Json:
    """What a part of 1.0 says about itself, where one of 0.3 has no field for it."""
    return {name: value[name] for name in ("mediaType", "filename") if value.get(name)}
