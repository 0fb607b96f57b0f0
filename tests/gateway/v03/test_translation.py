"""What 0.3 says of an object of 1.0, judged by the official SDK: its models of 0.3 must read it,
and its own translation back must give the object again, but for what 0.3 has no place for.
"""

from __future__ import annotations

from typing import Any

from a2a.compat.v0_3 import a2a_v0_3_pb2, conversions, proto_utils, types
from a2a.types import a2a_pb2
from google.protobuf.json_format import MessageToDict, ParseDict
from hypothesis import given

from switchroom.gateway.dispatch import StreamItem
from switchroom.gateway.v03.jsonrpc import JsonRpcWire
from switchroom.gateway.v03.rest import RestWire
from switchroom.protocol.event import decode, encode
from switchroom.protocol.methods import METHODS
from switchroom.protocol.model import Json
from tests.support import objects

STREAM = METHODS["SendStreamingMessage"]
MODELS = {
    "task": types.Task,
    "message": types.Message,
    "statusUpdate": types.TaskStatusUpdateEvent,
    "artifactUpdate": types.TaskArtifactUpdateEvent,
}


def said(wire: JsonRpcWire | RestWire, event: Json) -> Json:
    return decode(wire.events(STREAM).say(StreamItem(encode(event))))


def plain(value: Any) -> Any:
    """Without what a reader of 1.0 does not see, or 0.3 keeps elsewhere."""
    if isinstance(value, list):
        return [plain(each) for each in value]
    if not isinstance(value, dict):
        return value
    kept = dict(value)
    if "text" in kept or "data" in kept:
        kept.pop("mediaType", None)
        kept.pop("filename", None)
    if isinstance(metadata := kept.get("metadata"), dict):
        kept["metadata"] = {k: v for k, v in metadata.items() if k != "a2a-1.0"}
    return {
        name: each if name in ("data", "metadata") else plain(each)
        for name, each in kept.items()
        if each not in ({}, [], False) or name == "data"
    }


def core(event: types.Task | types.Message | Any) -> Json:
    """An event of 0.3 as the SDK has it in 1.0."""
    response = types.SendStreamingMessageSuccessResponse(result=event)
    return MessageToDict(conversions.to_core_stream_response(response))


def canonical(event: Json) -> Json:
    """An event of 1.0 as their protobuf writes it."""
    return MessageToDict(ParseDict(event, a2a_pb2.StreamResponse()))


@given(event=objects.events)
def test_json_rpc(event: Json) -> None:
    ((member, _),) = event.items()
    told = said(JsonRpcWire(), event)
    assert (member != "artifactUpdate") or {"append", "lastChunk"} <= set(told)
    read = MODELS[member].model_validate(told)
    assert plain(core(read)) == plain(canonical(event))


@given(event=objects.events)
def test_rest(event: Json) -> None:
    told = said(RestWire(base64_text=True), event)
    # Strictly: a field which that proto does not know is an error, as it is for SDK 0.3.26.
    proto = ParseDict(told, a2a_v0_3_pb2.StreamResponse())
    read = core(proto_utils.FromProto.stream_response(proto))
    drop_references(event)
    assert plain(read) == plain(canonical(event))


def drop_references(value: Any) -> None:
    if isinstance(value, dict):
        value.pop("referenceTaskIds", None)
    for each in (
        value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    ):
        drop_references(each)
