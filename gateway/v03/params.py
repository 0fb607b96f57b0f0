"""The params of the ten methods of 0.3 over JSON-RPC (0.3 §7).

Promises what `content.py` promises. A message's `kind` may be missing: some clients leave it out.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from annotated_types import MinLen
from pydantic import BeforeValidator, FailFast, Field, model_validator
from pydantic_core import PydanticCustomError

from switchroom.gateway.v03.content import (
    File,
    MessageFields,
    PushConfig,
    core_configuration,
    core_part,
    core_send,
)
from switchroom.protocol.model import Json, Model
from switchroom.protocol.protojson import Array, Count, Flag, Id, Struct, Text

__all__ = [
    "ConfigIdParams",
    "ConfigParams",
    "Configuration",
    "Message",
    "MessageSendParams",
    "Part",
    "TaskIdParams",
    "TaskQueryParams",
]


def _one_of(*names: str) -> BeforeValidator:
    listed = " or ".join(names)

    def check(value: object) -> object:
        # Pydantic's own choice of literals would quote the value.
        if not isinstance(value, str) or value not in names:
            raise PydanticCustomError("choice", "must be {names}", {"names": listed})
        return value

    return BeforeValidator(check)


class Part(Model):
    """A piece of content, in the member that `kind` names."""

    kind: Annotated[Text, _one_of("text", "file", "data")]
    text: Text | None = None
    file: File | None = None
    data: Struct | None = None
    metadata: Struct | None = None

    @model_validator(mode="after")
    def _has_content(self) -> Self:
        if getattr(self, self.kind) is None:
            raise PydanticCustomError("content", "needs the member {kind}", {"kind": self.kind})
        if len([each for each in (self.text, self.file, self.data) if each is not None]) != 1:
            raise PydanticCustomError("content", "needs no more than one of text, file, data")
        return self

    def core(self) -> Json:
        content: str | File | Json = getattr(self, self.kind)
        return core_part(content, self.metadata)


class Message(MessageFields):
    """A message."""

    kind: Annotated[Text, _one_of("message")] = "message"
    role: Annotated[Literal["user", "agent"], _one_of("user", "agent")]
    parts: Annotated[list[Part], FailFast(), MinLen(1)]

    def core(self) -> Json:
        return self.core_of(f"ROLE_{self.role.upper()}", [part.core() for part in self.parts])


class Configuration(Model):
    """What the client asks of a send. Without `blocking` a send blocks, and 0 messages are all."""

    accepted_output_modes: Array[Text] = Field(default_factory=list)
    push_notification_config: PushConfig | None = None
    history_length: Count = 0
    blocking: Flag = True

    def core(self) -> Json:
        return core_configuration(self, self.push_notification_config)


class MessageSendParams(Model):
    """`message/send` and `message/stream`."""

    message: Message
    configuration: Configuration | None = None
    metadata: Struct | None = None

    def core(self) -> Json:
        configuration = self.configuration.core() if self.configuration else None
        return core_send(self.message.core(), configuration, self.metadata)


class TaskIdParams(Model):
    """`tasks/cancel`, `tasks/resubscribe`, `tasks/pushNotificationConfig/list`."""

    id: Id
    metadata: Struct | None = None


class TaskQueryParams(TaskIdParams):
    """`tasks/get`. A history of 0 is all of it, as both SDKs have it."""

    history_length: Count = 0

    def core(self) -> Json:
        core: Json = {"id": self.id}
        if self.history_length:
            core["historyLength"] = self.history_length
        return core


class ConfigParams(Model):
    """`tasks/pushNotificationConfig/set`."""

    task_id: Id
    push_notification_config: PushConfig


class ConfigIdParams(TaskIdParams):
    """`tasks/pushNotificationConfig/get` and `/delete`: `id` is the task's; getting, the config's
    may be missing.
    """

    push_notification_config_id: Text = ""
