"""What an event or an answer says, whichever version of A2A it is in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

__all__ = ["INTERRUPTED", "TERMINAL", "Said", "artifacts_of", "said"]

TERMINAL = frozenset(("COMPLETED", "FAILED", "CANCELED", "REJECTED"))
INTERRUPTED = frozenset(("INPUT_REQUIRED", "AUTH_REQUIRED"))

_KINDS = {"statusUpdate": "status", "artifactUpdate": "artifact"}
_OLD_KINDS = {"status-update": "status", "artifact-update": "artifact"}


class Said(NamedTuple):
    """kind: task, message, status or artifact.  state: as 1.0 names it, without its prefix; ''
    where none is told.  text: of the message, of the status' message, of the chunk.  artifact,
    appends: of a chunk.
    """

    kind: str
    task_id: str
    state: str
    text: str
    artifact: str = ""
    appends: bool = False


def said(data: Mapping[str, Any]) -> Said:
    """From a StreamResponse or SendMessageResponse of 1.0, or an object of 0.3 with its `kind`."""
    if "kind" in data:
        kind, inner = str(data["kind"]), data
        kind = _OLD_KINDS.get(kind, kind)
    else:
        ((member, inner),) = data.items()
        kind = _KINDS.get(member, member)
    match kind:
        case "message":
            return Said(kind, str(inner.get("taskId", "")), "", _text(inner))
        case "artifact":
            artifact = inner["artifact"]
            return Said(
                kind,
                str(inner["taskId"]),
                "",
                _text(artifact),
                artifact["artifactId"],
                bool(inner.get("append")),
            )
        case _:
            status = inner["status"]
            state = str(status["state"]).removeprefix("TASK_STATE_").upper().replace("-", "_")
            named = str(inner["id"] if kind == "task" else inner["taskId"])
            return Said(kind, named, state, _text(status.get("message", {})))


def artifacts_of(task: Mapping[str, Any]) -> dict[str, str]:
    """The text of each artifact of a Task, by its id; those without any text left out."""
    texts = {each["artifactId"]: _text(each) for each in task.get("artifacts", ())}
    return {ident: text for ident, text in texts.items() if text}


def _text(parts_of: Mapping[str, Any]) -> str:
    return "".join(part.get("text", "") for part in parts_of.get("parts", ()))
