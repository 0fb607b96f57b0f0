"""The method table against the proto: names, types, streams, paths."""

from __future__ import annotations

import re
from dataclasses import FrozenInstanceError
from typing import Any

import pytest
from a2a.types import a2a_pb2 as pb
from google.api import annotations_pb2

from switchroom.protocol.card import AgentCapabilities
from switchroom.protocol.methods import METHODS, Method

SERVICE = pb.DESCRIPTOR.services_by_name["A2AService"]


def test_the_table_has_exactly_the_methods_of_the_service() -> None:
    assert set(METHODS) == {m.name for m in SERVICE.methods}
    assert len(METHODS) == 11
    assert all(name == row.name for name, row in METHODS.items())


@pytest.mark.parametrize("rpc", list(SERVICE.methods), ids=lambda rpc: rpc.name)
def test_a_row_says_what_the_proto_says(rpc: Any) -> None:
    row = METHODS[rpc.name]
    assert row.stream is rpc.server_streaming
    assert rpc.input_type.name in {c.__name__ for c in row.params.__mro__}
    assert (row.result.__name__ if row.result else "Empty") == rpc.output_type.name

    http = rpc.GetOptions().Extensions[annotations_pb2.http]
    verb = http.WhichOneof("pattern")
    path = re.sub(r"\{(\w+)=\*\}", lambda m: "{" + _json_name(rpc, m[1]) + "}", getattr(http, verb))
    assert (verb.upper(), path) in row.rest


def _json_name(rpc: Any, field: str) -> str:
    name: str = rpc.input_type.fields_by_name[field].json_name
    return name


def test_subscribing_takes_both_verbs() -> None:
    assert METHODS["SubscribeToTask"].rest == (
        ("GET", "/tasks/{id}:subscribe"),
        ("POST", "/tasks/{id}:subscribe"),
    )


@pytest.mark.parametrize("row", list(METHODS.values()), ids=lambda row: row.name)
def test_a_path_names_fields_of_the_parameters(row: Method) -> None:
    aliases = {field.alias for field in row.params.model_fields.values()}
    for _, path in row.rest:
        assert set(re.findall(r"\{(\w+)\}", path)) <= aliases


def test_the_capabilities_that_are_needed() -> None:
    needs = {name: row.needs for name, row in METHODS.items() if row.needs}
    assert needs == {
        "SendStreamingMessage": "streaming",
        "SubscribeToTask": "streaming",
        "CreateTaskPushNotificationConfig": "push_notifications",
        "GetTaskPushNotificationConfig": "push_notifications",
        "ListTaskPushNotificationConfigs": "push_notifications",
        "DeleteTaskPushNotificationConfig": "push_notifications",
        "GetExtendedAgentCard": "extended_agent_card",
    }
    assert set(needs.values()) <= set(AgentCapabilities.model_fields)


def test_the_names_of_0_3() -> None:
    assert {name: row.v03 for name, row in METHODS.items()} == {
        "SendMessage": "message/send",
        "SendStreamingMessage": "message/stream",
        "GetTask": "tasks/get",
        "ListTasks": None,
        "CancelTask": "tasks/cancel",
        "SubscribeToTask": "tasks/resubscribe",
        "CreateTaskPushNotificationConfig": "tasks/pushNotificationConfig/set",
        "GetTaskPushNotificationConfig": "tasks/pushNotificationConfig/get",
        "ListTaskPushNotificationConfigs": "tasks/pushNotificationConfig/list",
        "DeleteTaskPushNotificationConfig": "tasks/pushNotificationConfig/delete",
        "GetExtendedAgentCard": "agent/getAuthenticatedExtendedCard",
    }


def test_the_table_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        METHODS["New"] = METHODS["GetTask"]  # type: ignore[index]
    with pytest.raises(FrozenInstanceError):
        METHODS["GetTask"].name = "x"  # type: ignore[misc]
