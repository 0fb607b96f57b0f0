"""The life of a task: its states, what may follow what, and how events make a task.

Promises: a task is the fold of its events, and this is the only fold. Works on plain JSON, since
what is stored is ours and already valid: numbers stay untouched, and it costs a tenth.

Relies on its callers to keep illegal events out (`may_follow`); `fold` believes what it reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from switchroom.protocol.errors import InvalidAgentResponse
from switchroom.protocol.model import TaskState
from switchroom.protocol.protojson import Json, timestamp

__all__ = [
    "INTERRUPTED",
    "TERMINAL",
    "TRANSITIONS",
    "fold",
    "is_interrupted",
    "is_terminal",
    "may_follow",
    "receive",
    "submitted",
    "with_history",
]

TERMINAL = frozenset(
    {TaskState.COMPLETED, TaskState.FAILED, TaskState.CANCELED, TaskState.REJECTED}
)
"""The task has ended, for good (§4.1.3)."""

INTERRUPTED = frozenset({TaskState.INPUT_REQUIRED, TaskState.AUTH_REQUIRED})
"""The task waits for something from outside (§4.1.3)."""

_RESUMED = frozenset({TaskState.WORKING, TaskState.FAILED, TaskState.CANCELED})

TRANSITIONS: Mapping[TaskState, frozenset[TaskState]] = {
    TaskState.UNSPECIFIED: frozenset(),
    TaskState.SUBMITTED: frozenset(
        {TaskState.WORKING, TaskState.REJECTED, TaskState.FAILED, TaskState.CANCELED}
    ),
    TaskState.WORKING: TERMINAL | INTERRUPTED | {TaskState.WORKING},
    TaskState.INPUT_REQUIRED: _RESUMED,
    TaskState.AUTH_REQUIRED: _RESUMED,
    **dict.fromkeys(TERMINAL, frozenset()),
}
"""What may follow each state. WORKING follows itself: progress is a status too."""


def is_terminal(state: str) -> bool:
    """Whether a task in `state` has ended."""
    return state in TERMINAL


def is_interrupted(state: str) -> bool:
    """Whether a task in `state` waits for its client."""
    return state in INTERRUPTED


def may_follow(state: str, new: str) -> bool:
    """Whether a task in `state` may get the status `new`. An unknown state follows nothing."""
    return new in _TRANSITIONS.get(state, ())


# A StrEnum hashes and compares as its string; the type checker does not know.
_TRANSITIONS: Mapping[str, frozenset[TaskState]] = {str(s): n for s, n in TRANSITIONS.items()}


def submitted(
    *, task_id: str, context_id: str, message: Json, at: int, metadata: Json | None = None
) -> Json:
    """A new task that holds its first message. `at` is milliseconds since the epoch.

    The message is stored with the ids that were resolved for it (§3.4).
    """
    task: Json = {
        "id": task_id,
        "contextId": context_id,
        "status": {"state": TaskState.SUBMITTED.value, "timestamp": timestamp(at)},
        "history": [{**message, "taskId": task_id, "contextId": context_id}],
    }
    if metadata:
        task["metadata"] = dict(metadata)
    return task


def receive(task: Json, message: Json, at: int) -> Json:
    """`task` after a follow-up was accepted at `at`; a new task, the given one is left alone.

    What the agent last said moves to the history, then comes the message, and the task is WORKING.
    """
    ids = {"taskId": task["id"]}
    if context_id := task.get("contextId"):
        ids["contextId"] = context_id
    after = _own(task)
    _retire_status_message(after)
    after.setdefault("history", []).append({**message, **ids})
    after["status"] = {"state": TaskState.WORKING.value, "timestamp": timestamp(at)}
    return after


def fold(task: Json, event: Json) -> Json:
    """Apply `event` (StreamResponse JSON) to `task`, in place; returns `task`.

    Costs what the event costs, however large the task is. Never keeps a list or an object of the
    event that it may change later, so the event may be used on.
    Raises InvalidAgentResponse for a Message, and for a chunk of an artifact that there is not.
    """
    match event:
        case {"statusUpdate": update}:
            _fold_status(task, update)
        case {"artifactUpdate": update}:
            _fold_artifact(task, update)
        case {"task": whole}:
            content = _own(whole)
            task.clear()
            task.update(content)
        case _:
            raise InvalidAgentResponse("The agent sent a message where a task had begun")
    return task


def with_history(task: Json, length: int | None) -> Json:
    """A shallow copy of `task` with at most the `length` newest messages (§3.2.4).

    None: all of them. 0: none, and no ``history`` at all.
    """
    copy = dict(task)
    if length is not None and (history := copy.pop("history", None)) and length > 0:
        copy["history"] = history[-length:]
    return copy


def _fold_status(task: Json, update: Json) -> None:
    _retire_status_message(task)
    task["status"] = update["status"]
    if metadata := update.get("metadata"):
        task.setdefault("metadata", {}).update(metadata)


def _retire_status_message(task: Json) -> None:
    message = task.get("status", {}).get("message")
    if message is not None:
        task.setdefault("history", []).append(message)


_CLOSING = [{"text": ""}]
"""The parts of the chunk that only says "that was the last one": an artifact needs a part."""


def _fold_artifact(task: Json, update: Json) -> None:
    chunk = update["artifact"]
    artifacts: list[Json] = task.setdefault("artifacts", [])
    at = _last_index(artifacts, chunk["artifactId"])
    if not update.get("append"):
        if at is None:
            artifacts.append(_own_artifact(chunk))
        else:
            artifacts[at] = _own_artifact(chunk)
        return
    if at is None:
        if not artifacts:
            del task["artifacts"]
        raise InvalidAgentResponse(
            "The agent sent a further chunk of an artifact that it had not begun"
        )
    if update.get("lastChunk") and chunk["parts"] == _CLOSING:
        return
    artifact = artifacts[at]
    artifact["parts"].extend(chunk["parts"])
    if metadata := chunk.get("metadata"):
        artifact.setdefault("metadata", {}).update(metadata)


def _last_index(artifacts: list[Json], artifact_id: Any) -> int | None:
    # From the end: chunks come for the artifact that was begun last, or nearly so.
    for at in range(len(artifacts) - 1, -1, -1):
        if artifacts[at]["artifactId"] == artifact_id:
            return at
    return None


def _own(task: Json) -> Json:
    """A copy of `task` that shares no list or object which the fold changes."""
    copy = dict(task)
    if "history" in copy:
        copy["history"] = list(copy["history"])
    if "artifacts" in copy:
        copy["artifacts"] = [_own_artifact(a) for a in copy["artifacts"]]
    if "metadata" in copy:
        copy["metadata"] = dict(copy["metadata"])
    return copy


def _own_artifact(artifact: Json) -> Json:
    copy = {**artifact, "parts": list(artifact["parts"])}
    if "metadata" in copy:
        copy["metadata"] = dict(copy["metadata"])
    return copy
