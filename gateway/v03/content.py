"""What messages and configs of 0.3 hold, in whichever of its two spellings they come.

Promises: a model reads what 0.3 clients send, ignores fields it does not know, and raises where
the shape is wrong, naming the fields as 0.3 does. `core()` gives the JSON of 1.0, which its own
models check by the rules of 1.0.
"""

from __future__ import annotations

from typing import Protocol, Self

from pydantic import AliasChoices, Field, model_validator
from pydantic_core import PydanticCustomError

from switchroom.protocol.model import Json, Model
from switchroom.protocol.protojson import Array, Id, Struct, Text
from switchroom.v03.kept import restore, unwrapped

__all__ = [
    "DEFAULT_CONFIG",
    "File",
    "MessageFields",
    "PushConfig",
    "core_configuration",
    "core_part",
    "core_send",
]


DEFAULT_CONFIG = "default"
"""The id of a push config that is given none. In 0.3 a task has one config unless ids tell several
apart: setting it again replaces it, and it is got without an id.
"""


class File(Model):
    """A file's content or address; in the proto the members are fileWithBytes and fileWithUri."""

    content: Text | None = Field(
        None, validation_alias=AliasChoices("bytes", "fileWithBytes", "file_with_bytes")
    )
    uri: Text = Field("", validation_alias=AliasChoices("uri", "fileWithUri", "file_with_uri"))
    mime_type: Text = ""
    name: Text = ""

    @model_validator(mode="after")
    def _one(self) -> Self:
        # Some clients send an empty address beside the content.
        if (self.content is None) is not bool(self.uri):
            raise PydanticCustomError("one_of", "needs exactly one of bytes, uri")
        return self

    def core(self) -> Json:
        core = {"url": self.uri} if self.content is None else {"raw": self.content}
        if self.mime_type:
            core["mediaType"] = self.mime_type
        if self.name:
            core["filename"] = self.name
        return core


def core_part(content: str | File | Json, metadata: Json | None) -> Json:
    """A Part of 1.0. content: its text, file or data."""
    metadata, extra = restore(metadata)
    match content:
        case str():
            core: Json = {"text": content}
        case File():
            core = content.core()
        case _:
            data, metadata = unwrapped(content, metadata)
            core = {"data": data}
    for name in ("mediaType", "filename"):
        if isinstance(said := extra.get(name), str):
            core[name] = said
    if metadata is not None:
        core["metadata"] = metadata
    return core


class MessageFields(Model):
    """What a message has besides its role and its parts."""

    message_id: Id
    context_id: Text = ""
    task_id: Text = ""
    reference_task_ids: Array[Text] = Field(default_factory=list)
    extensions: Array[Text] = Field(default_factory=list)
    metadata: Struct | None = None

    def core_of(self, role: str, parts: list[Json]) -> Json:
        """The Message of 1.0 with this role and these parts."""
        metadata, extra = restore(self.metadata)
        core: Json = {"messageId": self.message_id, "role": role, "parts": parts}
        if self.context_id:
            core["contextId"] = self.context_id
        if self.task_id:
            core["taskId"] = self.task_id
        if tasks := self.reference_task_ids or extra.get("referenceTaskIds"):
            core["referenceTaskIds"] = tasks
        if self.extensions:
            core["extensions"] = self.extensions
        if metadata is not None:
            core["metadata"] = metadata
        return core


class _Authentication(Model):
    """How to authenticate to a webhook."""

    schemes: Array[Text] = Field(default_factory=list)
    credentials: Text = Field("", repr=False)

    @model_validator(mode="after")
    def _has_scheme(self) -> Self:
        if self.credentials and not any(self.schemes):
            raise PydanticCustomError("schemes", "needs a scheme for its credentials")
        return self


class PushConfig(Model):
    """Where to send the events of a task. Of several schemes the first counts: 1.0 has one."""

    id: Text = ""
    url: Id
    token: Text = Field("", repr=False)
    authentication: _Authentication | None = None

    def core(self, **more: str) -> Json:
        """The TaskPushNotificationConfig of 1.0, with `more` of its members."""
        core: Json = {"id": self.id or DEFAULT_CONFIG, "url": self.url, **more}
        if self.token:
            core["token"] = self.token
        if self.authentication and (schemes := [s for s in self.authentication.schemes if s]):
            core["authentication"] = {"scheme": schemes[0]}
            if self.authentication.credentials:
                core["authentication"]["credentials"] = self.authentication.credentials
        return core


class _Asked(Protocol):
    """What is said in either spelling of how a send is to be answered."""

    accepted_output_modes: list[str]
    history_length: int
    blocking: bool


def core_configuration(asked: _Asked, push: PushConfig | None) -> Json:
    """The SendMessageConfiguration of 1.0. push: the config that came along."""
    core: Json = {"returnImmediately": not asked.blocking}
    if asked.accepted_output_modes:
        core["acceptedOutputModes"] = asked.accepted_output_modes
    if asked.history_length:
        core["historyLength"] = asked.history_length
    if push:
        core["taskPushNotificationConfig"] = push.core()
    return core


def core_send(message: Json, configuration: Json | None, metadata: Json | None) -> Json:
    """The SendMessageRequest of 1.0, from what is 1.0 already."""
    core: Json = {"message": message}
    if configuration is not None:
        core["configuration"] = configuration
    if metadata is not None:
        core["metadata"] = metadata
    return core
