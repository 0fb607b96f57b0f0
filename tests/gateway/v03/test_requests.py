"""What a request of 0.3 means in 1.0, judged by the official SDK's own translation; and how what is
wrong with it is named.
"""

from __future__ import annotations

import base64
from typing import Any

import pytest
from a2a.compat.v0_3 import a2a_v0_3_pb2, conversions, proto_utils, types
from a2a.types import a2a_pb2
from google.protobuf.json_format import MessageToDict, ParseDict
from hypothesis import given
from hypothesis import strategies as st

from switchroom.gateway.v03.jsonrpc import JsonRpcWire
from switchroom.gateway.v03.rest import RestWire
from switchroom.protocol.errors import (
    InvalidParams,
    MethodNotFound,
    TaskNotFound,
    VersionNotSupported,
)
from switchroom.protocol.event import decode
from switchroom.protocol.methods import METHODS
from switchroom.protocol.model import Json
from switchroom.protocol.params import SendMessageRequest
from tests.support import objects

SEND = METHODS["SendMessage"]
RPC, REST, PYTHON = JsonRpcWire(), RestWire(), RestWire(base64_text=True)


def text(words: str = "hi", **more: Any) -> Json:
    return {"messageId": "m", "role": "user", "parts": [{"kind": "text", "text": words}], **more}


def proto(words: str = "hi", **more: Any) -> Json:
    return {"messageId": "m", "role": "ROLE_USER", "content": [{"text": words}], **more}


def rpc(name: str, params: Json | None) -> tuple[str, Json | None]:
    method, core = RPC.request(RPC.method(name), params)
    return method.name, core


def wrong(wire: JsonRpcWire | RestWire, method: str, params: Json | None) -> list[tuple[str, str]]:
    with pytest.raises(InvalidParams) as raised:
        wire.request(METHODS[method], params)
    for field, _ in raised.value.violations:
        assert field in str(raised.value)
        break
    return list(raised.value.violations)


# -- judged by the SDK


configurations = st.fixed_dictionaries(
    {},
    optional={
        "accepted_output_modes": st.lists(objects.media_types, max_size=2),
        "blocking": st.booleans(),
        "history_length": st.integers(0, 9),
        "push_notification_config": st.builds(
            types.PushNotificationConfig,
            url=st.just("https://hook.test/"),
            id=st.none() | objects.ids,
            token=st.none() | objects.ids,
            authentication=st.none()
            | st.builds(
                types.PushNotificationAuthenticationInfo,
                schemes=st.lists(objects.ids, min_size=1, max_size=2),
                credentials=st.none() | objects.ids,
            ),
        ),
    },
).map(lambda fields: types.MessageSendConfiguration(**fields))


@st.composite
def sends(draw: st.DrawFn) -> types.MessageSendParams:
    """As a user of the old SDK would have made them."""
    meant = ParseDict(draw(objects.messages()), a2a_pb2.Message())
    return types.MessageSendParams(
        message=conversions.to_compat_message(meant),
        configuration=draw(st.none() | configurations),
        metadata=draw(st.none() | objects.structs),
    )


def canonical(core: Json | None) -> Json:
    """As their protobuf has it, once ours has accepted it."""
    SendMessageRequest.model_validate(core)
    return MessageToDict(ParseDict(core, a2a_pb2.SendMessageRequest()))


def theirs(params: types.MessageSendParams) -> Json:
    if params.configuration and (config := params.configuration.push_notification_config):
        config.id = config.id or "default"
    request = types.SendMessageRequest(id=1, params=params)
    return MessageToDict(conversions.to_core_send_message_request(request))


def stripped(value: Any) -> Any:
    """Without what is the same absent."""
    if isinstance(value, dict):
        return {n: stripped(v) for n, v in value.items() if stripped(v) not in ({}, [], None)}
    return [stripped(each) for each in value] if isinstance(value, list) else value


@given(params=sends())
def test_a_send_over_json_rpc_means_what_it_means_to_the_sdk(
    params: types.MessageSendParams,
) -> None:
    sent = params.model_dump(mode="json", exclude_none=True)
    assert stripped(canonical(RPC.request(SEND, sent)[1])) == stripped(theirs(params))


@given(params=sends(), snake=st.booleans())
def test_a_send_over_rest_means_what_it_means_to_the_sdk(
    params: types.MessageSendParams, snake: bool
) -> None:
    request = a2a_v0_3_pb2.SendMessageRequest(
        request=proto_utils.ToProto.message(params.message),
        configuration=proto_utils.ToProto.message_send_configuration(params.configuration),
        metadata=proto_utils.ToProto.metadata(params.metadata),
    )
    sent = MessageToDict(request, preserving_proto_field_name=snake)
    read = proto_utils.FromProto.message_send_params(request)
    assert stripped(canonical(PYTHON.request(SEND, sent)[1])) == stripped(theirs(read))


# -- what a request means


def test_a_send_blocks_unless_it_says_otherwise() -> None:
    for configuration, blocks in (
        ({}, True),
        ({"blocking": True}, True),
        ({"blocking": False}, False),
    ):
        _, core = rpc("message/send", {"message": text(), "configuration": configuration})
        assert core is not None
        assert core["configuration"]["returnImmediately"] is not blocks
    assert "configuration" not in (rpc("message/send", {"message": text()})[1] or {})


def test_over_rest_only_a_configuration_that_says_so_blocks() -> None:
    def blocks(body: Json) -> bool:
        core = REST.request(SEND, {"message": proto(), **body})[1] or {}
        return not core.get("configuration", {}).get("returnImmediately", False)

    assert blocks({})
    assert blocks({"configuration": {"blocking": True}})
    assert not blocks({"configuration": {}})


@pytest.mark.parametrize(
    ("name", "params", "method", "core"),
    [
        ("tasks/get", {"id": "t", "metadata": {}}, "GetTask", {"id": "t"}),
        ("tasks/get", {"id": "t", "historyLength": 0}, "GetTask", {"id": "t"}),
        ("tasks/get", {"id": "t", "historyLength": 2}, "GetTask", {"id": "t", "historyLength": 2}),
        ("tasks/cancel", {"id": "t"}, "CancelTask", {"id": "t", "metadata": None}),
        ("tasks/resubscribe", {"id": "t", "metadata": {}}, "SubscribeToTask", {"id": "t"}),
        (
            "tasks/pushNotificationConfig/set",
            {"taskId": "t", "pushNotificationConfig": {"url": "u", "authentication": {}}},
            "CreateTaskPushNotificationConfig",
            {"taskId": "t", "id": "default", "url": "u"},
        ),
        (
            "tasks/pushNotificationConfig/get",
            {"id": "t", "pushNotificationConfigId": "c"},
            "GetTaskPushNotificationConfig",
            {"taskId": "t", "id": "c"},
        ),
        (
            "tasks/pushNotificationConfig/get",
            {"id": "t"},
            "ListTaskPushNotificationConfigs",
            {"taskId": "t"},
        ),
        (
            "tasks/pushNotificationConfig/list",
            {"id": "t"},
            "ListTaskPushNotificationConfigs",
            {"taskId": "t"},
        ),
        (
            "tasks/pushNotificationConfig/delete",
            {"id": "t", "pushNotificationConfigId": "c"},
            "DeleteTaskPushNotificationConfig",
            {"taskId": "t", "id": "c"},
        ),
        ("agent/getAuthenticatedExtendedCard", None, "GetExtendedAgentCard", None),
        ("agent/authenticatedExtendedCard", {}, "GetExtendedAgentCard", None),
    ],
)
def test_each_method(name: str, params: Json | None, method: str, core: Json | None) -> None:
    assert rpc(name, params) == (method, core)


@pytest.mark.parametrize("name", ["tasks/list", "message/sendSubscribe", "sendMessage", ""])
def test_other_methods_there_are_not(name: str) -> None:
    with pytest.raises(MethodNotFound):
        RPC.method(name)


def test_a_method_of_1_0_is_told_which_header_it_lacks() -> None:
    with pytest.raises(VersionNotSupported, match="A2A-Version: 1.0"):
        RPC.method("SendMessage")


@pytest.mark.parametrize(
    "body",
    [
        {"config": {"name": "x", "pushNotificationConfig": {"id": "c", "url": "u"}}},
        {"config": {"push_notification_config": {"url": "u"}}, "config_id": "c", "parent": "x"},
        {"name": "x", "pushNotificationConfig": {"id": "c", "url": "u"}},
    ],
)
def test_a_push_config_in_each_form_that_clients_of_rest_send(body: Json) -> None:
    method = METHODS["CreateTaskPushNotificationConfig"]
    assert REST.request(method, {"taskId": "t", **body})[1] == {
        "taskId": "t",
        "id": "c",
        "url": "u",
    }


def test_bytes_that_the_python_sdk_encodes_twice() -> None:
    def raw(wire: RestWire, sent: bytes) -> str:
        part = {"file": {"fileWithBytes": base64.b64encode(sent).decode()}}
        core = wire.request(SEND, {"message": {**proto(), "content": [part]}})[1] or {}
        said: str = core["message"]["parts"][0]["raw"]
        return said

    content = bytes(range(256))
    twice = base64.b64encode(content)
    assert base64.b64decode(raw(PYTHON, twice)) == content
    assert base64.b64decode(raw(PYTHON, content)) == content
    assert base64.b64decode(raw(REST, twice)) == twice


def test_what_0_3_has_no_place_for_comes_back_with_an_echo() -> None:
    described = {"mediaType": "text/markdown", "filename": "a.md"}
    parts: list[Json] = [
        {"text": "x", **described, "metadata": {"mine": 1}},
        {"text": "x", **described},
        {"data": [1, {"a": None}], **described},
        {"data": None},
        {"data": {"value": 1}, "metadata": {"mine": 1}},
    ]
    message = {"messageId": "m", "role": "ROLE_USER", "parts": parts, "referenceTaskIds": ["t"]}
    for wire in (RPC, REST):
        said = decode(wire.result(SEND, {"message": message}))
        echo = said if wire is RPC else said["message"]
        assert (wire.request(SEND, {"message": echo})[1] or {})["message"] == message


def test_a_config_is_found_without_its_id() -> None:
    method, _ = RPC.request(METHODS["GetTaskPushNotificationConfig"], {"id": "t"})

    def found(*ids: str) -> str:
        configs = [{"taskId": "t", "id": ident, "url": "u"} for ident in ids]
        answer = decode(RPC.result(method, {"configs": configs}))
        ident: str = answer["pushNotificationConfig"]["id"]
        return ident

    assert found("a") == "a"
    assert found("a", "b") == "a"
    assert found("a", "t") == "t"
    assert found("a", "default", "t") == "default"
    with pytest.raises(TaskNotFound):
        found()


# -- what is wrong with a request


@pytest.mark.parametrize(
    ("message", "field"),
    [
        ({"messageId": None}, "message.messageId"),
        ({"messageId": ""}, "message.messageId"),
        ({"role": "ROLE_USER"}, "message.role"),
        ({"role": 1}, "message.role"),
        ({"kind": "task"}, "message.kind"),
        ({"parts": []}, "message.parts"),
        ({"parts": "x"}, "message.parts"),
        ({"parts": [{}]}, "message.parts[0].kind"),
        ({"parts": [{"type": "text", "text": "x"}]}, "message.parts[0].kind"),
        ({"parts": [{"kind": "text"}]}, "message.parts[0]"),
        ({"parts": [{"kind": "text", "text": 1}]}, "message.parts[0].text"),
        ({"parts": [{"kind": "text", "text": "a", "data": {}}]}, "message.parts[0]"),
        ({"parts": [{"kind": "image", "text": "x"}]}, "message.parts[0].kind"),
        ({"parts": [{"kind": "data", "data": [1]}]}, "message.parts[0].data"),
        ({"parts": [{"kind": "file", "file": {}}]}, "message.parts[0].file"),
        ({"parts": [{"kind": "file", "file": {"uri": 1}}]}, "message.parts[0].file.uri"),
        (
            {"parts": [{"kind": "file", "file": {"uri": "x", "bytes": "eA=="}}]},
            "message.parts[0].file",
        ),
        ({"metadata": []}, "message.metadata"),
        ({"referenceTaskIds": [1]}, "message.referenceTaskIds[0]"),
    ],
)
def test_a_bad_message_is_described_in_the_words_of_0_3(message: Json, field: str) -> None:
    ((named, description),) = wrong(RPC, "SendMessage", {"message": {**text(), **message}})
    assert named == field
    assert description != "is not valid"


@pytest.mark.parametrize(
    ("params", "field"),
    [
        (None, "message"),
        ({"message": []}, "message"),
        ({"message": text(), "configuration": {"blocking": "yes"}}, "configuration.blocking"),
        (
            {"message": text(), "configuration": {"historyLength": -1}},
            "configuration.historyLength",
        ),
        (
            {"message": text(), "configuration": {"pushNotificationConfig": {}}},
            "configuration.pushNotificationConfig.url",
        ),
    ],
)
def test_bad_params_of_a_send(params: Json | None, field: str) -> None:
    assert [named for named, _ in wrong(RPC, "SendStreamingMessage", params)] == [field]


@pytest.mark.parametrize(
    ("method", "params", "field"),
    [
        ("GetTask", {}, "id"),
        ("GetTask", {"id": "t", "historyLength": -1}, "historyLength"),
        ("CancelTask", {"id": 1}, "id"),
        ("SubscribeToTask", None, "id"),
        ("CreateTaskPushNotificationConfig", {"taskId": "t"}, "pushNotificationConfig"),
        (
            "CreateTaskPushNotificationConfig",
            {
                "taskId": "t",
                "pushNotificationConfig": {"url": "u", "authentication": {"credentials": "c"}},
            },
            "pushNotificationConfig.authentication",
        ),
        ("GetTaskPushNotificationConfig", {}, "id"),
        ("ListTaskPushNotificationConfigs", {}, "id"),
        ("DeleteTaskPushNotificationConfig", {"id": "t"}, "pushNotificationConfigId"),
    ],
)
def test_bad_params_of_the_others(method: str, params: Json | None, field: str) -> None:
    assert [named for named, _ in wrong(RPC, method, params)] == [field]


@pytest.mark.parametrize(
    ("message", "field"),
    [
        ({"role": "user"}, "message.role"),
        ({"content": []}, "message.content"),
        ({"content": [{}]}, "message.content[0]"),
        ({"content": [{"text": "x", "data": {"data": {}}}]}, "message.content[0]"),
        ({"content": [{"data": {"data": 1}}]}, "message.content[0].data.data"),
    ],
)
def test_a_bad_message_over_rest(message: Json, field: str) -> None:
    assert [
        named for named, _ in wrong(REST, "SendMessage", {"message": {**proto(), **message}})
    ] == [field]


@pytest.mark.parametrize(
    ("wire", "method", "field", "said"),
    [
        (RPC, "SendMessage", "message.parts[3].raw", "message.parts[3].file.bytes"),
        (REST, "SendMessage", "message.parts[3].raw", "message.content[3].file.fileWithBytes"),
        (
            RPC,
            "SendMessage",
            "configuration.taskPushNotificationConfig.url",
            "configuration.pushNotificationConfig.url",
        ),
        (
            REST,
            "SendMessage",
            "configuration.taskPushNotificationConfig.url",
            "configuration.pushNotification.url",
        ),
        (RPC, "CreateTaskPushNotificationConfig", "url", "pushNotificationConfig.url"),
        (RPC, "GetTask", "id", "id"),
    ],
)
def test_what_the_methods_find_is_named_as_in_0_3(
    wire: JsonRpcWire | RestWire, method: str, field: str, said: str
) -> None:
    error = InvalidParams(f"Invalid parameters: {field} is bad", violations=[(field, "is bad")])
    fault = wire.fault(METHODS[method], error)
    assert isinstance(fault, InvalidParams)
    assert fault.violations == ((said, "is bad"),)
    assert str(fault) == f"Invalid parameters: {said} is bad"
