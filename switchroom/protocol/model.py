"""The objects of A2A 1.0: tasks, messages, artifacts, events, push configs (§4.1 to §4.3).

Promises: an object that validates has every REQUIRED field, and at least one element in every
REQUIRED list (§5.7). Agent cards are in :mod:`switchroom.protocol.card`.
Relies on :mod:`switchroom.protocol.protojson` for the rules of JSON.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

from annotated_types import MinLen
from pydantic import FailFast, Field

from switchroom.protocol.protojson import (
    Array,
    Base64,
    Count,
    Flag,
    Id,
    Json,
    Model,
    Moment,
    Named,
    OneOf,
    Specified,
    Struct,
    Text,
    Value,
    milliseconds,
    timestamp,
)

__all__ = [
    "Artifact",
    "AuthenticationInfo",
    "Json",
    "Message",
    "Model",
    "Part",
    "Role",
    "SendMessageConfiguration",
    "Task",
    "TaskArtifactUpdateEvent",
    "TaskPushNotificationConfig",
    "TaskState",
    "TaskStatus",
    "TaskStatusUpdateEvent",
    "milliseconds",
    "timestamp",
]


class TaskState(Named):
    """The state of a task (§4.1.3)."""

    UNSPECIFIED = "TASK_STATE_UNSPECIFIED"
    SUBMITTED = "TASK_STATE_SUBMITTED"
    WORKING = "TASK_STATE_WORKING"
    COMPLETED = "TASK_STATE_COMPLETED"
    FAILED = "TASK_STATE_FAILED"
    CANCELED = "TASK_STATE_CANCELED"
    INPUT_REQUIRED = "TASK_STATE_INPUT_REQUIRED"
    REJECTED = "TASK_STATE_REJECTED"
    AUTH_REQUIRED = "TASK_STATE_AUTH_REQUIRED"


class Role(Named):
    """Who sent a message (§4.1.5)."""

    UNSPECIFIED = "ROLE_UNSPECIFIED"
    USER = "ROLE_USER"
    AGENT = "ROLE_AGENT"


class Part(OneOf):
    """A piece of content: exactly one of `text`, `raw`, `url`, `data` (§4.1.6).

    `data` may be null, so `model_fields_set` tells whether it is there.
    """

    _members = frozenset({"text", "raw", "url", "data"})
    _null_is_value = frozenset({"data"})

    text: Text | None = None
    raw: Base64 | None = None
    url: Text | None = None
    data: Value = None
    metadata: Struct | None = None
    filename: Text = ""
    media_type: Text = ""


Parts: TypeAlias = Annotated[list[Part], FailFast(), MinLen(1)]


class Message(Model):
    """One unit of communication between client and agent (§4.1.4)."""

    message_id: Id
    context_id: Text = ""
    task_id: Text = ""
    role: Specified[Role]
    parts: Parts
    metadata: Struct | None = None
    extensions: Array[Text] = Field(default_factory=list)
    reference_task_ids: Array[Text] = Field(default_factory=list)


class TaskStatus(Model):
    """The state of a task, and what the agent says about it (§4.1.2)."""

    state: Specified[TaskState]
    message: Message | None = None
    timestamp: Moment | None = None


class Artifact(Model):
    """An output of a task (§4.1.7)."""

    artifact_id: Id
    name: Text = ""
    description: Text = ""
    parts: Parts
    metadata: Struct | None = None
    extensions: Array[Text] = Field(default_factory=list)


class Task(Model):
    """A unit of work: its status, its output, and its history, oldest message first (§4.1.1)."""

    id: Id
    context_id: Text = ""
    status: TaskStatus
    artifacts: Array[Artifact] = Field(default_factory=list)
    history: Array[Message] = Field(default_factory=list)
    metadata: Struct | None = None


class TaskStatusUpdateEvent(Model):
    """A task's status has changed (§4.2.1)."""

    task_id: Id
    context_id: Id
    status: TaskStatus
    metadata: Struct | None = None


class TaskArtifactUpdateEvent(Model):
    """An artifact, or with `append` the next chunk of one (§4.2.2)."""

    task_id: Id
    context_id: Id
    artifact: Artifact
    append: Flag = False
    last_chunk: Flag = False
    metadata: Struct | None = None


class AuthenticationInfo(Model):
    """How to authenticate to a webhook (§4.3.2). The credentials are kept out of its repr."""

    scheme: Id
    credentials: Annotated[Text, Field(repr=False)] = ""


class TaskPushNotificationConfig(Model):
    """Where to send the events of a task (§4.3.1). `token` is kept out of its repr."""

    tenant: Text = ""
    id: Text = ""
    task_id: Text = ""
    url: Id
    token: Annotated[Text, Field(repr=False)] = ""
    authentication: AuthenticationInfo | None = None


class SendMessageConfiguration(Model):
    """What the client asks of a send (§3.2.2). `history_length` 0 and None differ (§3.2.4)."""

    accepted_output_modes: Array[Text] = Field(default_factory=list)
    task_push_notification_config: TaskPushNotificationConfig | None = None
    history_length: Count | None = None
    return_immediately: Flag = False
