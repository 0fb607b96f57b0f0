"""0.3 over JSON-RPC.

Promises that what a client of 0.3 asks arrives as 1.0. Relies on `params.py` for the requests, on
`objects.py` for the answers.
"""

from __future__ import annotations

from collections.abc import Mapping

from switchroom.gateway.context import SUPPORTED_VERSIONS
from switchroom.gateway.v03.events import Chunk
from switchroom.gateway.v03.params import (
    ConfigIdParams,
    ConfigParams,
    MessageSendParams,
    TaskIdParams,
    TaskQueryParams,
)
from switchroom.gateway.v03.wire import ANY_CONFIG, V03Wire
from switchroom.protocol.errors import InvalidParams, MethodNotFound, VersionNotSupported
from switchroom.protocol.event import encode
from switchroom.protocol.methods import METHODS, Method
from switchroom.protocol.model import Json
from switchroom.protocol.params import decode
from switchroom.v03 import objects

__all__ = ["JsonRpcWire"]

# What one chapter of the specification calls it.
_ALIASES = {"agent/authenticatedExtendedCard": METHODS["GetExtendedAgentCard"]}

_BOOLEANS = (b"false", b"true")


class JsonRpcWire(V03Wire):
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
                return method, decode(TaskQueryParams, params).core()
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
                    return ANY_CONFIG, {"taskId": config.id}
                raise InvalidParams(violations=[("pushNotificationConfigId", "is required")])
            case "GetExtendedAgentCard":
                return method, None
            case _:  # an extension's
                return method, params

    def _chunk(self, chunk: Chunk, data: bytes) -> bytes:
        return (
            b'{"kind":"artifact-update",%b"parts":[{"kind":"text","text":"%b"}]},'
            b'"append":%b,"lastChunk":%b}'
        ) % (chunk.head, chunk.text, _BOOLEANS[chunk.append], _BOOLEANS[chunk.last])

    def _wrapped(self, member: str, said: Json) -> Json:
        return said

    def _listed(self, configs: list[Json]) -> bytes:
        return b"[" + b",".join(encode(config) for config in configs) + b"]"
