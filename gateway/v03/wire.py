"""How 0.3 is spoken: the wires of JSON-RPC and of REST.

Promises that what a client of 0.3 asks arrives as 1.0, and what is answered leaves as 0.3; that an
event is translated once per process and wire, however many read it. Relies on `params.py` and
`proto_params.py` for the requests, on `objects.py` and `proto.py` for the answers.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import Protocol

from switchroom.gateway.context import SUPPORTED_VERSIONS
from switchroom.gateway.dispatch import (
    Event,
    Result,
    StreamItem,
    close,
    encode_event,
    encode_result,
)
from switchroom.gateway.v03 import objects
from switchroom.gateway.v03.card import card_v03
from switchroom.gateway.v03.content import DEFAULT_CONFIG
from switchroom.gateway.v03.errors import described
from switchroom.gateway.v03.params import (
    ConfigIdParams,
    ConfigParams,
    MessageSendParams,
    TaskIdParams,
    TaskQueryParams,
)
from switchroom.gateway.v03.proto import Proto
from switchroom.gateway.v03.proto_params import (
    CreateConfigRequest,
    SendMessageRequest,
    bytes_of_text,
)
from switchroom.protocol.errors import (
    A2AError,
    InvalidParams,
    MethodNotFound,
    TaskNotFound,
    VersionNotSupported,
)
from switchroom.protocol.event import decode as decode_json
from switchroom.protocol.event import encode
from switchroom.protocol.lifecycle import is_terminal
from switchroom.protocol.methods import METHODS, Method
from switchroom.protocol.model import Json, TaskState
from switchroom.protocol.params import decode

__all__ = ["JsonRpcWire", "RestWire"]

_CACHED = 4 * 2**20
"""Bytes of events, as they came and as they go, that a wire keeps."""

# What one chapter of the specification calls it.
_ALIASES = {"agent/authenticatedExtendedCard": METHODS["GetExtendedAgentCard"]}

# Where the client leaves open which config it wants, it is chosen from all of the task.
_ANY_CONFIG = replace(
    METHODS["ListTaskPushNotificationConfigs"], v03="tasks/pushNotificationConfig/get"
)

_TASK = b'{"task":'
_ASKS = TaskState.INPUT_REQUIRED.encode()


class _Spelling(Protocol):
    """The two modules of answers, as one."""

    def task(self, value: Json) -> Json: ...
    def message(self, value: Json) -> Json: ...
    def status_update(self, value: Json, *, final: bool) -> Json: ...
    def artifact_update(self, value: Json) -> Json: ...
    def push_config(self, value: Json) -> Json: ...


class _Wire(ABC):
    """What both wires of 0.3 share."""

    version = "0.3"
    _nothing: bytes
    """The answer that says no more than that it was done."""
    _fields: tuple[tuple[str, str], ...]
    """Patterns of the names that errors of 1.0 give to fields, and the names in 0.3."""

    def __init__(self, spelling: _Spelling) -> None:
        self._spelling = spelling
        self._cache: OrderedDict[bytes, bytes] = OrderedDict()
        self._cached = 0

    def result(self, method: Method, result: Result) -> bytes:
        """The JSON of a result as 0.3 says it; an extension's is the same in every version."""
        if method.extension:
            return encode_result(result)
        answer = decode_json(encode_result(result))
        match method.name:
            case "SendMessage":
                return encode(self._event(method, answer))
            case "GetTask" | "CancelTask":
                return encode(self._spelling.task(answer))
            case "GetExtendedAgentCard":
                return encode(card_v03(answer))
            case "ListTaskPushNotificationConfigs":
                configs = answer.get("configs", [])
                if method is _ANY_CONFIG:
                    return encode(self._spelling.push_config(_default(configs)))
                return self._listed([self._spelling.push_config(config) for config in configs])
            case "DeleteTaskPushNotificationConfig":
                return self._nothing
            case _:
                return encode(self._spelling.push_config(answer))

    def stream(self, method: Method, source: AsyncIterator[Event]) -> AsyncIterator[Event]:
        """The events of a stream as 0.3 says them; the last of a task's says that it is."""
        if method.extension:  # as its result is
            return source
        return _Translated(self, method, source)

    def event(self, method: Method, item: Event) -> StreamItem:
        """An event of a stream as 0.3 says it."""
        item = encode_event(item)
        data = item.data
        if not data:
            return item
        key = data if _ASKS not in data else data + method.name.encode()
        said = self._cache.get(key)
        if said is None:
            said = encode(self._event(method, decode_json(data)))
            if not data.startswith(_TASK):  # each client's has a history of its own length
                self._keep(key, said)
        else:
            self._cache.move_to_end(key)
        return StreamItem(said, item.id)

    def _keep(self, key: bytes, said: bytes) -> None:
        self._cache[key] = said
        self._cached += len(key) + len(said)
        while self._cached > _CACHED:
            old, gone = self._cache.popitem(last=False)
            self._cached -= len(old) + len(gone)

    def _event(self, method: Method, event: Json) -> Json:
        ((member, value),) = event.items()
        match member:
            case "task":
                said = self._spelling.task(value)
            case "message":
                said = self._spelling.message(value)
            case "statusUpdate":
                final = _ends(value["status"]["state"], method)
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
    def _wrapped(self, member: str, said: Json) -> Json: ...

    @abstractmethod
    def _listed(self, configs: list[Json]) -> bytes: ...


class _Translated(AsyncIterator[StreamItem]):
    """A stream whose events are translated.

    0.3 wants a status with `final` as its last event. Where it would end with a Task as it is, as
    it does when nothing is to come, the Task's status is said once more.
    """

    def __init__(self, wire: _Wire, method: Method, source: AsyncIterator[Event]) -> None:
        self._wire = wire
        self._method = method
        self._source = source
        self._task: StreamItem | None = None
        """The event before, if it was a Task."""

    async def __anext__(self) -> StreamItem:
        try:
            item = encode_event(await self._source.__anext__())
        except StopAsyncIteration:
            last = _closing(self._task, self._method) if self._task else None
            self._task = None
            if last is None:
                raise
            return self._wire.event(self._method, last)
        self._task = item if item.data.startswith(_TASK) else None
        return self._wire.event(self._method, item)

    async def aclose(self) -> None:
        await close(self._source)


def _closing(task: StreamItem, method: Method) -> StreamItem | None:
    """The status update that ends a stream after this Task; None if it is cut off rather."""
    whole = decode_json(task.data)["task"]
    status = whole["status"]
    if not _ends(status["state"], method):
        return None
    update = {"taskId": whole["id"], "contextId": whole["contextId"], "status": status}
    return StreamItem(encode({"statusUpdate": update}), task.id)


def _ends(state: str, method: Method) -> bool:
    """Whether a stream of this method ends with this state. One that a message opened does so
    where the agent asks; one that follows a task goes on.
    """
    asks = state == TaskState.INPUT_REQUIRED and method.name != "SubscribeToTask"
    return asks or is_terminal(state)


class JsonRpcWire(_Wire):
    """0.3 over JSON-RPC: bare objects that say their `kind`."""

    refuses_in_stream = True
    _nothing = b"null"
    _fields = (
        (r"(message\.parts\[\d+\])\.raw$", r"\1.file.bytes"),
        (r"(message\.parts\[\d+\])\.mediaType$", r"\1.file.mimeType"),
        (r"configuration\.taskPushNotificationConfig", "configuration.pushNotificationConfig"),
    )

    def __init__(self, methods: Mapping[str, Method] = METHODS) -> None:
        """methods: those that can be called, by their names of 1.0."""
        super().__init__(objects)
        self._core = methods
        self._methods = {**_ALIASES, **{row.v03: row for row in methods.values() if row.v03}}

    def method(self, name: str) -> Method:
        """The row of a method of 0.3. Raises MethodNotFound, or VersionNotSupported for one of 1.0:
        it was meant for that, and lacks the header.
        """
        row = self._methods.get(name)
        if row is not None:
            return row
        if name in self._core:
            raise VersionNotSupported(
                f"{name} is a method of A2A 1.0, and without A2A-Version a request speaks 0.3; "
                'send the header "A2A-Version: 1.0".',
                metadata={"requested": "0.3", "supportedVersions": ",".join(SUPPORTED_VERSIONS)},
            )
        raise MethodNotFound(metadata={"method": name[:100]})

    def request(self, method: Method, params: Json | None) -> tuple[Method, Json | None]:
        """The request of 1.0 that is meant. Raises InvalidParams."""
        match method.name:
            case "SendMessage" | "SendStreamingMessage":
                return method, decode(MessageSendParams, params).core()
            case "GetTask":
                return method, _task_query(params)
            case "CancelTask":
                task = decode(TaskIdParams, params)
                return method, {"id": task.id, "metadata": task.metadata}
            case "SubscribeToTask":
                return method, {"id": decode(TaskIdParams, params).id}
            case "CreateTaskPushNotificationConfig":
                created = decode(ConfigParams, params)
                return method, created.push_notification_config.core(taskId=created.task_id)
            case "ListTaskPushNotificationConfigs":
                return method, {"taskId": decode(TaskIdParams, params).id}
            case "GetTaskPushNotificationConfig" | "DeleteTaskPushNotificationConfig":
                config = decode(ConfigIdParams, params)
                wanted = config.push_notification_config_id
                if wanted:
                    return method, {"taskId": config.id, "id": wanted}
                if method.name == "GetTaskPushNotificationConfig":
                    return _ANY_CONFIG, {"taskId": config.id}
                field = "pushNotificationConfigId"
                raise InvalidParams(
                    f"Invalid parameters: {field} is required", violations=[(field, "is required")]
                )
            case "GetExtendedAgentCard":
                return method, None
            case _:  # an extension's
                return method, params

    def _wrapped(self, member: str, said: Json) -> Json:
        return said

    def _listed(self, configs: list[Json]) -> bytes:
        return b"[" + b",".join(encode(config) for config in configs) + b"]"


class RestWire(_Wire):
    """0.3 over REST: the JSON of its proto.

    base64_text: whether the peer encodes a file's bytes twice (`proto.py`).
    """

    media_type = b"application/json"
    _nothing = b"{}"
    _fields = (
        (r"(message\.parts\[\d+\])\.raw$", r"\1.file.fileWithBytes"),
        (r"(message\.parts\[\d+\])\.mediaType$", r"\1.file.mimeType"),
        (r"message\.parts", "message.content"),
        (r"configuration\.taskPushNotificationConfig", "configuration.pushNotification"),
    )

    def __init__(self, *, base64_text: bool = False) -> None:
        super().__init__(Proto(base64_text=base64_text))
        self._base64_text = base64_text

    def request(self, method: Method, params: Json | None) -> tuple[Method, Json | None]:
        """The request of 1.0 that is meant. Raises InvalidParams."""
        if params is not None:  # 0.3 has no tenants
            params.pop("tenant", None)
        match method.name:
            case "SendMessage" | "SendStreamingMessage":
                core = decode(SendMessageRequest, params).core()
                if self._base64_text:
                    bytes_of_text(core["message"])
                return method, core
            case "GetTask":
                return method, _task_query(params)
            case "CreateTaskPushNotificationConfig":
                return method, decode(CreateConfigRequest, params).core()
            case _:
                return method, params

    def error(self, fault: A2AError, *, http: int, status: str) -> bytes:
        """The JSON of an error, which has an HTTP status besides."""
        return encode(described(fault))

    def _wrapped(self, member: str, said: Json) -> Json:
        return {member: said}

    def _listed(self, configs: list[Json]) -> bytes:
        return encode({"configs": configs})


def _task_query(params: Json | None) -> Json:
    query = decode(TaskQueryParams, params)
    # No number of messages is all of them, as both SDKs have it.
    limit = {"historyLength": query.history_length} if query.history_length else {}
    return {"id": query.id, **limit}


def _default(configs: list[Json]) -> Json:
    """The config that is meant where none is named: the one that was set so, the one with its
    task's id (as the SDK would have named it), else the first.
    """
    if not configs:
        raise TaskNotFound("The task has no push config")
    by_id = {config["id"]: config for config in reversed(configs)}
    task_id = configs[0]["taskId"]
    return by_id.get(DEFAULT_CONFIG) or by_id.get(task_id) or configs[0]
