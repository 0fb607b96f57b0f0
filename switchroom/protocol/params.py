"""What the eleven methods take and give (§3.1), and how bad parameters are reported.

Promises: every rule about a single value (a page size, an id that must not be empty) is here or in
the model, so that whatever is wrong with a request is one :class:`InvalidParams` that names the
fields. Never echoes a value: parameters may hold secrets.

Relies on :mod:`switchroom.protocol.protojson` for the rules of JSON.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from pydantic import BeforeValidator, Field, ValidationError
from pydantic.alias_generators import to_camel
from pydantic_core import ErrorDetails

from switchroom.protocol.errors import InvalidParams
from switchroom.protocol.model import (
    Message,
    SendMessageConfiguration,
    Task,
    TaskPushNotificationConfig,
    TaskState,
)
from switchroom.protocol.protojson import (
    Array,
    Count,
    Flag,
    Id,
    Int32,
    Model,
    Moment,
    OneOf,
    Struct,
    Text,
)

__all__ = [
    "CancelTaskRequest",
    "CreateTaskPushNotificationConfigRequest",
    "DeleteTaskPushNotificationConfigRequest",
    "GetExtendedAgentCardRequest",
    "GetTaskPushNotificationConfigRequest",
    "GetTaskRequest",
    "ListTaskPushNotificationConfigsRequest",
    "ListTaskPushNotificationConfigsResponse",
    "ListTasksRequest",
    "ListTasksResponse",
    "SendMessageRequest",
    "SendMessageResponse",
    "SubscribeToTaskRequest",
    "TaskPushNotificationConfig",
    "decode",
]

M = TypeVar("M", bound=Model)

_MOST_VIOLATIONS = 20
"""Enough to mend a request by; a hostile one gets no longer answer than it is worth."""


class SendMessageRequest(Model):
    """SendMessage and SendStreamingMessage (§3.2.1)."""

    tenant: Text = ""
    message: Message
    configuration: SendMessageConfiguration | None = None
    metadata: Struct | None = None


class SendMessageResponse(OneOf):
    """A Task, or a Message that is the whole answer (§3.1.1)."""

    task: Task | None = None
    message: Message | None = None


class GetTaskRequest(Model):
    """GetTask (§3.1.3)."""

    tenant: Text = ""
    id: Id
    history_length: Count | None = None


def _any_state(value: object) -> object:
    return TaskState.UNSPECIFIED if value == "" else value


class ListTasksRequest(Model):
    """ListTasks (§3.1.4). `status` UNSPECIFIED (or empty) is any; `page_size` None is the default.

    `status_timestamp_after` is inclusive, in spite of its name.
    """

    tenant: Text = ""
    context_id: Text = ""
    status: Annotated[TaskState, BeforeValidator(_any_state)] = TaskState.UNSPECIFIED
    page_size: Annotated[Int32, Field(ge=1, le=100)] | None = None
    page_token: Text = ""
    history_length: Count | None = None
    status_timestamp_after: Moment | None = None
    include_artifacts: Flag | None = None


class ListTasksResponse(Model):
    """A page of tasks. All four members are always there, even empty (§3.1.4)."""

    tasks: Array[Task]
    next_page_token: Text
    page_size: Int32
    total_size: Int32


class CancelTaskRequest(Model):
    """CancelTask (§3.1.5)."""

    tenant: Text = ""
    id: Id
    metadata: Struct | None = None


class SubscribeToTaskRequest(Model):
    """SubscribeToTask (§3.1.6)."""

    tenant: Text = ""
    id: Id


class CreateTaskPushNotificationConfigRequest(TaskPushNotificationConfig):
    """CreateTaskPushNotificationConfig (§3.1.7): the config itself, naming its task."""

    task_id: Id


class GetTaskPushNotificationConfigRequest(Model):
    """GetTaskPushNotificationConfig (§3.1.8)."""

    tenant: Text = ""
    task_id: Id
    id: Id


class ListTaskPushNotificationConfigsRequest(Model):
    """ListTaskPushNotificationConfigs (§3.1.9). `page_size` 0 means the default."""

    tenant: Text = ""
    task_id: Id
    page_size: Count = 0
    page_token: Text = ""


class ListTaskPushNotificationConfigsResponse(Model):
    """The configs of a task."""

    configs: Array[TaskPushNotificationConfig] = Field(default_factory=list)
    next_page_token: Text = ""


class DeleteTaskPushNotificationConfigRequest(Model):
    """DeleteTaskPushNotificationConfig (§3.1.10)."""

    tenant: Text = ""
    task_id: Id
    id: Id


class GetExtendedAgentCardRequest(Model):
    """GetExtendedAgentCard (§3.1.11)."""

    tenant: Text = ""


def decode(model: type[M], params: Any) -> M:
    """`params`, as they came off the wire, as a `model`; None counts as ``{}``.

    Raises InvalidParams with a violation for each bad field.
    """
    if params is None:
        params = {}
    if not isinstance(params, dict):
        raise InvalidParams(violations=[("params", "must be an object")])
    try:
        return model.model_validate(params)
    except ValidationError as error:
        details = error.errors(include_url=False, include_input=False)
    violations = [(_path(d["loc"]) or "params", _text(d)) for d in details[:_MOST_VIOLATIONS]]
    # Outside of the except block: the chained error would carry the values into logs.
    raise InvalidParams(violations=violations)


_TEXTS = {
    "missing": "is required",
    "string_type": "must be a string",
    "string_too_short": "must not be empty",
    "string_unicode": "must be valid Unicode, without lone surrogates",
    "bool_type": "must be true or false",
    "list_type": "must be an array",
    "too_short": "needs at least one element",
    "model_type": "must be an object",
    "dict_type": "must be an object",
}


def _text(detail: ErrorDetails) -> str:
    kind, context = detail["type"], detail.get("ctx", {})
    match kind:
        case "greater_than_equal":
            return f"must be at least {context['ge']}"
        case "less_than_equal":
            return f"must be at most {context['le']}"
    if text := _TEXTS.get(kind):
        return text
    # Ours (PydanticCustomError) begin like this one and are written for the reader; pydantic's
    # own are not, and some of them quote what they were given.
    return detail["msg"] if detail["msg"].startswith(("must ", "needs ")) else "is not valid"


_MAPS = frozenset({"scopes", "schemes", "securitySchemes"})


def _path(loc: tuple[int | str, ...]) -> str:
    path, in_map = "", False
    for step in loc:
        if isinstance(step, int):
            path += f"[{step}]"
        elif step != "[key]":  # pydantic's mark for "the key itself is wrong"
            # A field given by its proto name is reported by its JSON name; a map's key is data.
            name = step if in_map else to_camel(step)
            in_map = not in_map and name in _MAPS
            path += f".{name}" if path else name
    return path
