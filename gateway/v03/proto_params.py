"""The requests of 0.3 over REST, which is the JSON of its proto: body, query and path in one.

Promises what `content.py` promises. Reads the names of the proto (`request`, `file_with_bytes`)
beside those of its JSON: one official client sends the former. A path's variables have the names
that they have in 1.0, and win over the body.
"""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, Self

from annotated_types import MinLen
from pydantic import AliasChoices, FailFast, Field, model_validator
from pydantic_core import PydanticCustomError

from switchroom.gateway.v03.content import (
    File,
    MessageFields,
    PushConfig,
    core_configuration,
    core_part,
    core_send,
)
from switchroom.protocol.model import Json, Model, Role
from switchroom.protocol.protojson import Array, Count, Flag, Id, Specified, Struct, Text

__all__ = [
    "Configuration",
    "CreateConfigRequest",
    "Message",
    "Part",
    "SendMessageRequest",
    "bytes_of_text",
]


class _Data(Model):
    data: Struct


class Part(Model):
    """A piece of content: exactly one of text, file, data."""

    text: Text | None = None
    file: File | None = None
    data: _Data | None = None
    metadata: Struct | None = None

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if len([each for each in (self.text, self.file, self.data) if each is not None]) != 1:
            raise PydanticCustomError("one_of", "needs exactly one of text, file, data")
        return self

    def core(self) -> Json:
        if self.data is not None:
            return core_part(self.data.data, self.metadata)
        content = self.text if self.file is None else self.file
        assert content is not None
        return core_part(content, self.metadata)


class Message(MessageFields):
    """A message; its parts are called content."""

    role: Specified[Role]
    content: Annotated[list[Part], FailFast(), MinLen(1)] = Field(
        validation_alias=AliasChoices("content", "parts")
    )

    def core(self) -> Json:
        return self.core_of(self.role, [part.core() for part in self.content])


class Configuration(Model):
    """What the client asks of a send. In the proto `blocking` is false where it is not said."""

    accepted_output_modes: Array[Text] = Field(default_factory=list)
    push_notification: PushConfig | None = None
    history_length: Count = 0
    blocking: Flag = False

    def core(self) -> Json:
        return core_configuration(self, self.push_notification)


class SendMessageRequest(Model):
    """SendMessage and SendStreamingMessage. No configuration at all means to block, as servers of
    the SDKs have it.
    """

    message: Message = Field(validation_alias=AliasChoices("message", "request"))
    configuration: Configuration | None = None
    metadata: Struct | None = None

    def core(self) -> Json:
        configuration = self.configuration.core() if self.configuration else None
        return core_send(self.message.core(), configuration, self.metadata)


class _Config(Model):
    push_notification_config: PushConfig


class CreateConfigRequest(Model):
    """CreateTaskPushNotificationConfig: the whole request (as the Python SDK sends it), or its
    `config` alone (as the proto's annotation and the JavaScript SDK have it).
    """

    task_id: Id
    config_id: Text = ""
    config: _Config | None = None
    push_notification_config: PushConfig | None = None

    @model_validator(mode="after")
    def _has_config(self) -> Self:
        if self.config is None and self.push_notification_config is None:
            raise PydanticCustomError("config", "needs a config with a pushNotificationConfig")
        return self

    def core(self) -> Json:
        given = self.config.push_notification_config if self.config else None
        config = given or self.push_notification_config
        assert config is not None
        config.id = config.id or self.config_id
        return config.core(taskId=self.task_id)


def bytes_of_text(message: Json) -> None:
    """Undo, in a Message of 1.0, what the Python and the Java SDK do: they encode base64 again.

    What is not base64 twice is left alone.
    """
    for part in message["parts"]:
        if raw := part.get("raw"):
            try:
                inner = base64.b64decode(raw, validate=True)
                base64.b64decode(inner, validate=True)
            except (binascii.Error, ValueError):
                continue
            part["raw"] = inner.decode("ascii")
