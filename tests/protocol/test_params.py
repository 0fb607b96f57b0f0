"""Bad parameters: always InvalidParams, always the path, never the value, never anything else."""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchroom.protocol import params as p
from switchroom.protocol.card import AgentCard
from switchroom.protocol.errors import InvalidParams
from switchroom.protocol.event import encode
from switchroom.protocol.methods import METHODS, Method
from switchroom.protocol.model import Json, Model

SEND: Json = {
    "tenant": "acme",
    "message": {
        "messageId": "m",
        "contextId": "c",
        "role": "ROLE_USER",
        "parts": [{"text": "hi"}, {"raw": "aGk=", "filename": "f"}, {"data": {"a": [1]}}],
        "metadata": {"k": {"v": 1}},
        "extensions": ["urn:x"],
    },
    "configuration": {
        "acceptedOutputModes": ["text/plain"],
        "historyLength": 3,
        "returnImmediately": True,
        "taskPushNotificationConfig": {
            "url": "https://cb.example",
            "authentication": {"scheme": "Bearer", "credentials": "s3"},
        },
    },
    "metadata": {},
}


def refused(model: type[Model], params: Any) -> dict[str, str]:
    with pytest.raises(InvalidParams) as caught:
        p.decode(model, params)
    # Neither the cause nor the context may carry the values into a log.
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    assert caught.value.violations
    return dict(caught.value.violations)


def send(**changes: Any) -> Json:
    """A send with some paths changed: send(message__parts=[])."""
    params = copy.deepcopy(SEND)
    for path, value in changes.items():
        *parents, last = path.split("__")
        target = params
        for name in parents:
            target = target[name]
        target[last] = value
    return params


@pytest.mark.parametrize("wrong", [[], "x", 1, True, 1.5, b"{}"])
@pytest.mark.parametrize("row", list(METHODS.values()), ids=lambda row: row.name)
def test_parameters_are_an_object(row: Method, wrong: Any) -> None:
    assert refused(row.params, wrong) == {"params": "must be an object"}


@pytest.mark.parametrize("row", list(METHODS.values()), ids=lambda row: row.name)
def test_absent_parameters_are_empty_ones(row: Method) -> None:
    if row.name in {"ListTasks", "GetExtendedAgentCard"}:
        assert p.decode(row.params, None) == p.decode(row.params, {}) == row.params()
    else:
        assert refused(row.params, None) == refused(row.params, {})


@pytest.mark.parametrize(
    ("changes", "field", "text"),
    [
        ({"message": "x"}, "message", "must be an object"),
        ({"message": None}, "message", "is required"),
        ({"message__messageId": ""}, "message.messageId", "must not be empty"),
        ({"message__messageId": 5}, "message.messageId", "must be a string"),
        ({"message__role": "user"}, "message.role", "must be ROLE_USER or ROLE_AGENT"),
        ({"message__role": "ROLE_UNSPECIFIED"}, "message.role", "must be ROLE_USER or ROLE_AGENT"),
        ({"message__parts": []}, "message.parts", "needs at least one element"),
        ({"message__parts": "x"}, "message.parts", "must be an array"),
        ({"message__parts": [1]}, "message.parts[0]", "must be an object"),
        (
            {"message__parts": [{"text": "a"}, {}]},
            "message.parts[1]",
            "needs exactly one of text, raw, url, data",
        ),
        ({"message__parts": [{"raw": "!"}]}, "message.parts[0].raw", "must be a base64 string"),
        (
            {"message__parts": [{"text": "a", "media_type": 1}]},
            "message.parts[0].mediaType",
            "must be a string",
        ),
        ({"message__context_id": 1, "message__contextId": None}, "message.contextId", "must be a"),
        ({"message__metadata": []}, "message.metadata", "must be an object"),
        ({"message__metadata": {"a": float("nan")}}, "message.metadata", "must not hold NaN"),
        ({"message__taskId": "\ud800"}, "message.taskId", "must be valid Unicode"),
        ({"metadata": {"a": "\ud800"}}, "metadata", "must be valid Unicode"),
        ({"metadata": {"a": 10**5000}}, "metadata", "must not hold a number of such length"),
        ({"configuration__historyLength": -1}, "configuration.historyLength", "must be at least 0"),
        ({"configuration__historyLength": True}, "configuration.historyLength", "must be a whole"),
        ({"configuration__historyLength": 2**31}, "configuration.historyLength", "must be at most"),
        (
            {"configuration__returnImmediately": 1},
            "configuration.returnImmediately",
            "must be true",
        ),
        (
            {"configuration__taskPushNotificationConfig": {}},
            "configuration.taskPushNotificationConfig.url",
            "is required",
        ),
    ],
)
def test_a_bad_send_names_the_field_and_says_what_it_must_be(
    changes: Json, field: str, text: str
) -> None:
    found = refused(p.SendMessageRequest, send(**changes))
    assert list(found) == [field]
    assert found[field].startswith(text)


def test_the_message_for_people_names_the_first_field() -> None:
    with pytest.raises(InvalidParams, match="^Invalid parameters: message.parts needs at least"):
        p.decode(p.SendMessageRequest, send(message__parts=[]))


@pytest.mark.parametrize(
    ("given_params", "found"),
    [
        ({"pageSize": 0}, {"pageSize": "must be at least 1"}),
        ({"pageSize": 101}, {"pageSize": "must be at most 100"}),
        ({"page_size": "x"}, {"pageSize": "must be a whole number"}),
        ({"pageSize": "99999999999"}, {"pageSize": "must be at most 2147483647"}),
        ({"historyLength": "99999999999"}, {"historyLength": "must be at most 2147483647"}),
        ({"pageToken": 1}, {"pageToken": "must be a string"}),
        ({"includeArtifacts": "true"}, {"includeArtifacts": "must be true or false"}),
        (
            {"statusTimestampAfter": "yesterday"},
            {
                "statusTimestampAfter": "must be an RFC 3339 time with an offset, "
                "like 2026-01-02T03:04:05.678Z"
            },
        ),
    ],
)
def test_a_bad_list(given_params: Json, found: dict[str, str]) -> None:
    assert refused(p.ListTasksRequest, given_params) == found


def test_the_specifications_own_example_of_a_bad_list() -> None:
    wrong = {"pageSize": 150, "historyLength": -5, "status": "TASK_STATE_RUNNING"}  # §6.5
    found = refused(p.ListTasksRequest, wrong)
    assert set(found) == set(wrong)
    assert found["status"].startswith("must be TASK_STATE_SUBMITTED, TASK_STATE_WORKING")
    assert "UNSPECIFIED" not in found["status"]


@pytest.mark.parametrize("size", [1, 100, "7", 50.0])
def test_a_page_size_that_is_right(size: Any) -> None:
    assert p.decode(p.ListTasksRequest, {"pageSize": size}).page_size == int(size)
    assert p.decode(p.ListTasksRequest, {}).page_size is None


@pytest.mark.parametrize(
    ("model", "fields"),
    [
        (p.GetTaskRequest, ["id"]),
        (p.CancelTaskRequest, ["id"]),
        (p.SubscribeToTaskRequest, ["id"]),
        (p.CreateTaskPushNotificationConfigRequest, ["taskId", "url"]),
        (p.GetTaskPushNotificationConfigRequest, ["taskId", "id"]),
        (p.ListTaskPushNotificationConfigsRequest, ["taskId"]),
        (p.DeleteTaskPushNotificationConfigRequest, ["taskId", "id"]),
    ],
)
def test_ids_must_be_given_and_must_not_be_empty(model: type[Model], fields: list[str]) -> None:
    assert refused(model, {}) == dict.fromkeys(fields, "is required")
    assert refused(model, dict.fromkeys(fields, "")) == dict.fromkeys(fields, "must not be empty")
    good = dict.fromkeys(fields, "x")
    assert p.decode(model, good).to_dict() == good


def test_an_inlined_push_config_needs_no_task() -> None:
    found = p.decode(p.SendMessageRequest, SEND)
    assert found.configuration is not None
    assert found.configuration.task_push_notification_config is not None
    assert found.configuration.task_push_notification_config.task_id == ""
    assert found.to_dict() == SEND


def test_a_flood_of_errors_is_answered_shortly() -> None:
    parts = [0] * 100_000
    assert list(refused(p.SendMessageRequest, send(message__parts=parts))) == ["message.parts[0]"]
    schemes: Json = {str(i): {} for i in range(1_000)}
    assert len(refused(AgentCard, {"securitySchemes": schemes})) == 20


def test_a_maps_keys_are_reported_as_they_are() -> None:
    card: Json = {"securitySchemes": {"my_key": {"oauth2_security_scheme": {"flows": {}}}}}
    found = refused(AgentCard, card)
    assert "securitySchemes.my_key.oauth2SecurityScheme.flows" in found
    card = {"securitySchemes": {"scopes": {"oauth2_security_scheme": {"flows": 1}}}}
    assert "securitySchemes.scopes.oauth2SecurityScheme.flows" in refused(AgentCard, card)
    bad_key: Json = {"securitySchemes": {"\ud800": {"mtlsSecurityScheme": {}}}}
    assert encode({"found": refused(AgentCard, bad_key)})


SECRET = "hush-hush"


@pytest.mark.parametrize(
    "params",
    [
        {"url": 1, "token": [SECRET], "authentication": {"credentials": {"a": SECRET}}},
        {"url": {"x": SECRET}, "taskId": [SECRET], "authentication": SECRET},
    ],
)
def test_no_value_is_ever_repeated(params: Json) -> None:
    with pytest.raises(InvalidParams) as caught:
        p.decode(p.CreateTaskPushNotificationConfigRequest, params)
    told = str(caught.value) + json.dumps(caught.value.data())
    assert SECRET not in told
    assert "pydantic" not in told
    assert "Input should" not in told


# --- whatever comes ------------------------------------------------------------------------------

deep: Any = 1
for _ in range(5_000):
    deep = {"a": [deep]}

# Drawn by name and put in at the end, since hypothesis prints what it draws, and some of this
# cannot be printed.
MONSTERS: Json = {
    "huge": 10**5000,
    "hugely negative": -(10**5000),
    "beyond 64 bits": 2**63,
    "deep": deep,
    "digits": "9" * 5_000,
    "an enum": "ROLE_USER",
    "zero byte": "\x00",
}


@dataclass(frozen=True)
class Monster:
    name: str


def released(value: Any) -> Any:
    """`value` with the monsters in their places."""
    match value:
        case Monster(name):
            return MONSTERS[name]
        case list():
            return [released(v) for v in value]
        case dict():
            return {k: released(v) for k, v in value.items()}
    return value


odd = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(),
    st.binary(max_size=3),
    st.text(alphabet=st.characters(categories=["Cs"]), min_size=1, max_size=2),
    st.sampled_from(list(MONSTERS)).map(Monster),
)
anything = st.recursive(
    odd,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=3) | st.sampled_from(["text", "data", "\ud800"]), inner)
    ),
    max_leaves=6,
)


def paths(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [at] if at else []
    match value:
        case dict():
            for key, inner in value.items():
                found += paths(inner, (*at, key))
        case list():
            for i, inner in enumerate(value):
                found += paths(inner, (*at, i))
    return found


@given(st.lists(st.tuples(st.sampled_from(paths(SEND)), anything), min_size=1, max_size=3))
def test_anything_anywhere_is_either_accepted_whole_or_refused_well(
    changes: list[tuple[tuple[Any, ...], Any]],
) -> None:
    params = copy.deepcopy(SEND)
    for path, value in changes:
        target: Any = params
        try:
            for step in path[:-1]:
                target = target[step]
            target[path[-1]] = released(value)
        except (LookupError, TypeError):
            continue  # an earlier change took this place away
    try:
        found = p.decode(p.SendMessageRequest, params)
    except InvalidParams as error:
        assert error.violations
        assert all(field and text for field, text in error.violations)
        assert all(t.startswith(("must ", "needs ", "is required")) for _, t in error.violations)
        assert encode({"error": error.data(), "message": error.message})
    else:
        out = found.to_json()
        assert json.loads(out) == found.to_dict()
        assert p.decode(p.SendMessageRequest, found.to_dict()).to_json() == out


@given(st.sampled_from(list(METHODS.values())), st.dictionaries(st.text(), anything) | anything)
def test_every_method_stands_anything(row: Method, params: Any) -> None:
    try:
        p.decode(row.params, released(params)).to_json()
    except InvalidParams as error:
        assert encode({"error": error.data(), "message": error.message})
