"""What the wires of 0.3 share, whichever binding they are of.

Promises that what is answered in 1.0 leaves as 0.3, errors in its words. Relies on a spelling
(`objects.py`, `proto.py`) for the objects.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Protocol

from switchroom.gateway.dispatch import Result, encode_result
from switchroom.gateway.v03.card import card_v03
from switchroom.gateway.v03.content import DEFAULT_CONFIG
from switchroom.gateway.v03.events import Chunk, StreamEvents, Translations, chunk_of, ends
from switchroom.gateway.wire import AS_IT_IS, Events
from switchroom.protocol.errors import A2AError, TaskNotFound
from switchroom.protocol.event import decode, encode
from switchroom.protocol.methods import METHODS, Method
from switchroom.protocol.model import Json

__all__ = ["ANY_CONFIG", "V03Wire"]

ANY_CONFIG = replace(
    METHODS["ListTaskPushNotificationConfigs"], v03="tasks/pushNotificationConfig/get"
)
"""Where the client leaves open which config it wants, it is chosen from all of the task."""


class _Spelling(Protocol):
    """The two modules of answers, as one."""

    def task(self, value: Json) -> Json: ...
    def message(self, value: Json) -> Json: ...
    def status_update(self, value: Json, *, final: bool) -> Json: ...
    def artifact_update(self, value: Json) -> Json: ...
    def push_config(self, value: Json) -> Json: ...


class V03Wire(ABC):
    """A wire of 0.3."""

    version = "0.3"
    _nothing: bytes
    """The answer that says no more than that it was done."""
    _fields: tuple[tuple[str, str], ...]
    """Patterns of the names that errors of 1.0 give to fields, and the names in 0.3."""

    def __init__(self, spelling: _Spelling) -> None:
        self._spelling = spelling
        self._translations = Translations(self._said)

    def result(self, method: Method, result: Result) -> bytes:
        """The JSON of a result as 0.3 says it; an extension's is the same in every version."""
        if method.extension:
            return encode_result(result)
        answer = decode(encode_result(result))
        match method.name:
            case "SendMessage":
                return encode(self._event(method, answer))
            case "GetTask" | "CancelTask":
                return encode(self._spelling.task(answer))
            case "GetExtendedAgentCard":
                return encode(card_v03(answer))
            case "ListTaskPushNotificationConfigs":
                configs = answer.get("configs", [])
                if method is ANY_CONFIG:
                    return encode(self._spelling.push_config(_default(configs)))
                return self._listed([self._spelling.push_config(config) for config in configs])
            case "DeleteTaskPushNotificationConfig":
                return self._nothing
            case _:
                return encode(self._spelling.push_config(answer))

    def events(self, method: Method) -> Events:
        """How the events of a stream are said; an extension's are the same in every version."""
        return AS_IT_IS if method.extension else StreamEvents(self._translations, method)

    def _said(self, method: Method, data: bytes) -> bytes:
        if (chunk := chunk_of(data)) is not None:
            return self._chunk(chunk, data)
        return encode(self._event(method, decode(data)))

    def _event(self, method: Method, event: Json) -> Json:
        ((member, value),) = event.items()
        match member:
            case "task":
                said = self._spelling.task(value)
            case "message":
                said = self._spelling.message(value)
            case "statusUpdate":
                final = ends(value["status"]["state"], method)
                said = self._spelling.status_update(value, final=final)
            case _:
                said = self._spelling.artifact_update(value)
        return self._wrapped(member, said)

    def fault(self, method: Method, error: A2AError) -> A2AError:
        """An error of the methods, its fields named as 0.3 names them."""
        if not error.violations:
            return error
        message, violations = str(error), []
        for field, text in error.violations:
            said = self._field(method, field)
            message = message.replace(field, said, 1)
            violations.append((said, text))
        return type(error)(message, metadata=error.metadata, violations=violations)

    def _field(self, method: Method, field: str) -> str:
        for pattern, said in self._fields:
            field = re.sub(f"^{pattern}", said, field)
        created = method.name == "CreateTaskPushNotificationConfig"
        return f"pushNotificationConfig.{field}" if created and field == "url" else field

    @abstractmethod
    def _chunk(self, chunk: Chunk, data: bytes) -> bytes:
        """What `_event` makes of such an event, as JSON.  data: the event itself."""

    @abstractmethod
    def _wrapped(self, member: str, said: Json) -> Json: ...

    @abstractmethod
    def _listed(self, configs: list[Json]) -> bytes: ...


def _default(configs: list[Json]) -> Json:
    """The config that is meant where none is named: the one that was set so, the one with its
    task's id (as the SDK would have named it), else the first.
    """
    if not configs:
        raise TaskNotFound("The task has no push config")
    by_id = {config["id"]: config for config in reversed(configs)}
    task_id = configs[0]["taskId"]
    return by_id.get(DEFAULT_CONFIG) or by_id.get(task_id) or configs[0]
