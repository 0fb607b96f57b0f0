"""One client that speaks each wire: what is meant is given in 1.0, said as the official SDK says
it, and what is answered is told in 1.0 again.

The SDK's own translation stands between, never ours: so a wire that mixes something up is found
out. What 0.3 has no place for is not sent (`sayable`).
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import httpx
from a2a.compat.v0_3 import a2a_v0_3_pb2, conversions, proto_utils, types
from a2a.types import a2a_pb2
from google.protobuf.json_format import MessageToDict, ParseDict

from switchroom.protocol.model import Json

__all__ = ["WIRES", "Refused", "Wire", "sayable", "wire_of"]

V1 = {"A2A-Version": "1.0"}
WIRES = ("1.0 JSON-RPC", "1.0 REST", "0.3 JSON-RPC", "0.3 REST")


class Refused(Exception):
    """An error of the protocol, by its code in JSON-RPC."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


class Event(NamedTuple):
    """One event of a stream: its position and its StreamResponse in 1.0."""

    id: str
    data: Json


def sayable(value: Any) -> Any:
    """`value` without what 0.3 has no field for: what text and data say of themselves, and over
    REST other tasks.
    """
    if isinstance(value, list):
        return [sayable(each) for each in value]
    if not isinstance(value, dict):
        return value
    left = {"referenceTaskIds"}
    if "text" in value or "data" in value:
        left |= {"mediaType", "filename"}
    return {
        name: each if name in ("data", "metadata") else sayable(each)
        for name, each in value.items()
        if name not in left
    }


def proto(kind: type[Any], value: Json) -> Any:
    return ParseDict(value, kind())


class Wire:
    """1.0 over JSON-RPC, and what all have in common."""

    headers = V1

    def __init__(self, name: str, http: httpx.AsyncClient) -> None:
        self.name = name
        self.http = http

    # -- what a test asks

    async def send(self, params: Json) -> Json:
        """The Task that a send is answered with."""
        answer = await self.call("SendMessage", self.said(params))
        return self.task(answer.get("task", answer))

    async def get(self, task_id: str, **more: Any) -> Json:
        return self.task(await self.call("GetTask", {"id": task_id, **more}))

    async def cancel(self, task_id: str) -> Json:
        return self.task(await self.call("CancelTask", {"id": task_id}))

    @asynccontextmanager
    async def stream(
        self, params: Json, *, after: str | None = None
    ) -> AsyncIterator[AsyncIterator[Event]]:
        """The events of a message's stream."""
        async with self.opened("SendStreamingMessage", self.said(params), after) as events:
            yield events

    @asynccontextmanager
    async def subscribe(
        self, task_id: str, *, after: str | None = None
    ) -> AsyncIterator[AsyncIterator[Event]]:
        """The events of a task."""
        async with self.opened("SubscribeToTask", {"id": task_id}, after) as events:
            yield events

    # -- how it is said

    def said(self, params: Json) -> Json:
        """Params of a send."""
        return params

    def task(self, told: Json) -> Json:
        """A Task, from what the wire tells."""
        return told

    def event(self, told: Json) -> Json:
        """A StreamResponse."""
        return told

    def request(self, method: str, params: Json) -> httpx.Request:
        envelope = {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}
        return self.http.build_request("POST", "/", json=envelope, headers=self.headers)

    def result(self, method: str, answer: Json) -> Json:
        """The result in an answer. Raises Refused."""
        if error := answer.get("error"):
            raise Refused(error["code"], error["message"])
        assert answer["id"] == 7
        result: Json = answer["result"]
        return result

    async def call(self, method: str, params: Json) -> Json:
        """The result of one call, as the wire tells it. Raises Refused."""
        response = await self.http.send(self.request(method, params))
        return self.result(method, response.json())

    @asynccontextmanager
    async def opened(
        self, method: str, params: Json, after: str | None
    ) -> AsyncIterator[AsyncIterator[Event]]:
        request = self.request(method, params)
        if after is not None:
            request.headers["Last-Event-ID"] = after
        response = await self.http.send(request, stream=True)
        try:
            if not response.headers["content-type"].startswith("text/event-stream"):
                await response.aread()
                self.result(method, response.json())
            yield self._events(method, response)
        finally:
            await response.aclose()

    async def _events(self, method: str, response: httpx.Response) -> AsyncIterator[Event]:
        ident = ""
        async for line in response.aiter_lines():
            name, _, text = line.partition(": ")
            if name == "id":
                ident = text
            elif name == "data":
                yield Event(ident, self.event(self.result(method, json.loads(text))))


class Rest(Wire):
    """1.0 over HTTP+JSON."""

    prefix = ""
    card = "/extendedAgentCard"

    def request(self, method: str, params: Json) -> httpx.Request:
        ident = params.get("id", "")
        query = {name: value for name, value in params.items() if name != "id"}
        match method:
            case "SendMessage" | "SendStreamingMessage":
                verb = "send" if method == "SendMessage" else "stream"
                return self._build("POST", f"/message:{verb}", json=params)
            case "GetTask":
                return self._build("GET", f"/tasks/{ident}", params=query)
            case "CancelTask":
                return self._build("POST", f"/tasks/{ident}:cancel")
            case "GetExtendedAgentCard":
                return self._build("GET", self.card)
            case _:
                return self._build("GET", f"/tasks/{ident}:subscribe")

    def _build(self, verb: str, path: str, **more: Any) -> httpx.Request:
        return self.http.build_request(verb, self.prefix + path, headers=self.headers, **more)

    def result(self, method: str, answer: Json) -> Json:
        if error := answer.get("error"):
            raise Refused(_CODES[error["details"][0]["reason"]], error["message"])
        return answer


class Old(Wire):
    """0.3 over JSON-RPC."""

    headers: dict[str, str] = {}
    names = {
        "SendMessage": "message/send",
        "SendStreamingMessage": "message/stream",
        "GetTask": "tasks/get",
        "CancelTask": "tasks/cancel",
        "SubscribeToTask": "tasks/resubscribe",
        "GetExtendedAgentCard": "agent/getAuthenticatedExtendedCard",
    }

    def request(self, method: str, params: Json) -> httpx.Request:
        return super().request(self.names[method], params)

    def said(self, params: Json) -> Json:
        sent: Json = old_params(params).model_dump(mode="json", exclude_none=True)
        return sent

    def task(self, told: Json) -> Json:
        return MessageToDict(conversions.to_core_task(types.Task.model_validate(told)))

    def event(self, told: Json) -> Json:
        envelope = {"jsonrpc": "2.0", "id": 7, "result": told}
        read = types.SendStreamingMessageSuccessResponse.model_validate(envelope)
        return MessageToDict(conversions.to_core_stream_response(read))


class OldRest(Rest):
    """0.3 over REST."""

    headers: dict[str, str] = {}
    prefix = "/v1"
    card = "/card"

    def said(self, params: Json) -> Json:
        old = old_params(params)
        request = a2a_v0_3_pb2.SendMessageRequest(
            request=proto_utils.ToProto.message(old.message),
            configuration=proto_utils.ToProto.message_send_configuration(old.configuration),
            metadata=proto_utils.ToProto.metadata(old.metadata),
        )
        return MessageToDict(request)

    def task(self, told: Json) -> Json:
        read = proto_utils.FromProto.task(proto(a2a_v0_3_pb2.Task, told))
        return MessageToDict(conversions.to_core_task(read))

    def event(self, told: Json) -> Json:
        read = proto_utils.FromProto.stream_response(proto(a2a_v0_3_pb2.StreamResponse, told))
        response = types.SendStreamingMessageSuccessResponse(result=read)
        return MessageToDict(conversions.to_core_stream_response(response))

    def result(self, method: str, answer: Json) -> Json:
        if "code" in answer:
            raise Refused(answer["code"], answer["message"])
        return answer


def old_params(params: Json) -> types.MessageSendParams:
    """The params of a send in 0.3, as the SDK has them."""
    request = proto(a2a_pb2.SendMessageRequest, params)
    old = conversions.to_compat_send_message_request(request, request_id=7).params
    assert isinstance(old, types.MessageSendParams)
    # Its clients always say whether to block; over REST to be silent is to not block.
    blocks = not params.get("configuration", {}).get("returnImmediately", False)
    old.configuration = old.configuration or types.MessageSendConfiguration()
    old.configuration.blocking = blocks
    return old


_CODES = {
    "TASK_NOT_FOUND": -32001,
    "TASK_NOT_CANCELABLE": -32002,
    "PUSH_NOTIFICATION_NOT_SUPPORTED": -32003,
    "UNSUPPORTED_OPERATION": -32004,
    "CONTENT_TYPE_NOT_SUPPORTED": -32005,
    "EXTENDED_AGENT_CARD_NOT_CONFIGURED": -32007,
    "EXTENSION_SUPPORT_REQUIRED": -32008,
    "METHOD_NOT_FOUND": -32601,
    "INVALID_PARAMS": -32602,
    "INVALID_REQUEST": -32600,
}


def wire_of(name: str, http: httpx.AsyncClient) -> Wire:
    """The client of one of `WIRES`."""
    return dict(zip(WIRES, (Wire, Rest, Old, OldRest), strict=True))[name](name, http)
