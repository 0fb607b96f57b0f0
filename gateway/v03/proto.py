"""1.0 objects as 0.3 says them over REST: the JSON of its proto, which is not that of JSON-RPC.

Promises objects that a strict reader of the 0.3 proto accepts, as the official SDKs carry it (with
`Part.metadata` and `FilePart.name`, which the specification's own copy lacks); never changes what
it is given. What that proto has no place for is kept in metadata (`kept.py`).

The Python and the Java SDK put the base64 *text* of a file into `fileWithBytes`, where the proto
wants the bytes, and the JavaScript SDK puts the bytes. `base64_text` says which peer this is.
"""

from __future__ import annotations

import base64

from switchroom.protocol.model import Json
from switchroom.v03 import objects
from switchroom.v03.kept import keep, wrapped

__all__ = ["Proto"]


class Proto:
    """The spelling of one kind of peer."""

    def __init__(self, *, base64_text: bool) -> None:
        self._base64_text = base64_text

    def task(self, value: Json) -> Json:
        """A Task, from one of 1.0."""
        said = {**value, "status": self._status(value["status"])}
        if history := value.get("history"):
            said["history"] = [self.message(each) for each in history]
        if artifacts := value.get("artifacts"):
            said["artifacts"] = [self._artifact(each) for each in artifacts]
        return said

    def message(self, value: Json) -> Json:
        """A Message: its parts are called content."""
        said = dict(value)
        said["content"] = [self._part(part) for part in said.pop("parts")]
        if tasks := said.pop("referenceTaskIds", None):
            said["metadata"] = keep(said.get("metadata"), {"referenceTaskIds": tasks})
        return said

    def status_update(self, value: Json, *, final: bool) -> Json:
        """A TaskStatusUpdateEvent. final: whether the server closes the stream after it."""
        return {**value, "status": self._status(value["status"]), "final": final}

    def artifact_update(self, value: Json) -> Json:
        """A TaskArtifactUpdateEvent."""
        return {**value, "artifact": self._artifact(value["artifact"])}

    def push_config(self, value: Json) -> Json:
        """A TaskPushNotificationConfig, with its resource name."""
        said = objects.push_config(value)
        config = said["pushNotificationConfig"]
        name = f"tasks/{said['taskId']}/pushNotificationConfigs/{config['id']}"
        return {"name": name, "pushNotificationConfig": config}

    def _status(self, value: Json) -> Json:
        said = dict(value)
        if said["state"] == "TASK_STATE_CANCELED":
            said["state"] = "TASK_STATE_CANCELLED"
        if "message" in said:
            said["message"] = self.message(said["message"])
        return said

    def _artifact(self, value: Json) -> Json:
        return {**value, "parts": [self._part(part) for part in value["parts"]]}

    def _part(self, value: Json) -> Json:
        metadata: Json | None = value.get("metadata")
        said: Json
        if "text" in value:
            said = {"text": value["text"]}
            if len(value) == 1:
                return said
            metadata = keep(metadata, objects.described(value))
        elif "data" in value:
            data, metadata = wrapped(value["data"], metadata)
            said = {"data": {"data": data}}
            metadata = keep(metadata, objects.described(value))
        else:
            said = {"file": self._file(value)}
        if metadata is not None:
            said["metadata"] = metadata
        return said

    def _file(self, value: Json) -> Json:
        if "url" in value:
            file = {"fileWithUri": value["url"]}
        else:
            raw = value["raw"]
            text = base64.b64encode(raw.encode()).decode() if self._base64_text else raw
            file = {"fileWithBytes": text}
        if media_type := value.get("mediaType"):
            file["mimeType"] = media_type
        if name := value.get("filename"):
            file["name"] = name
        return file
