"""0.3 over REST: the JSON of its proto.

Promises that what a client of 0.3 asks arrives as 1.0. Relies on `proto_params.py` for the
requests, on `proto.py` for the answers.
"""

from __future__ import annotations

from switchroom.gateway.v03.errors import described
from switchroom.gateway.v03.events import Chunk
from switchroom.gateway.v03.params import TaskQueryParams
from switchroom.gateway.v03.proto import Proto
from switchroom.gateway.v03.proto_params import (
    CreateConfigRequest,
    SendMessageRequest,
    bytes_of_text,
)
from switchroom.gateway.v03.wire import V03Wire
from switchroom.protocol.errors import A2AError
from switchroom.protocol.event import encode
from switchroom.protocol.methods import Method
from switchroom.protocol.model import Json
from switchroom.protocol.params import decode

__all__ = ["RestWire"]


class RestWire(V03Wire):
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
                return method, decode(TaskQueryParams, params).core()
            case "CreateTaskPushNotificationConfig":
                return method, decode(CreateConfigRequest, params).core()
            case _:
                return method, params

    def error(self, fault: A2AError, *, http: int, status: str) -> bytes:
        """The JSON of an error, which has an HTTP status besides."""
        return encode(described(fault))

    def _chunk(self, chunk: Chunk, data: bytes) -> bytes:
        return data  # it reads the same in both

    def _wrapped(self, member: str, said: Json) -> Json:
        return {member: said}

    def _listed(self, configs: list[Json]) -> bytes:
        return encode({"configs": configs})
