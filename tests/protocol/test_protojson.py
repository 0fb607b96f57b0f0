"""The rules of ProtoJSON (§5.5 to §5.7), one by one."""

from __future__ import annotations

import copy
import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from pydantic import ValidationError

from switchroom.protocol.card import AgentCapabilities, AgentCard, OAuthFlows, SecurityScheme
from switchroom.protocol.model import (
    Artifact,
    Json,
    Message,
    Part,
    Role,
    SendMessageConfiguration,
    Task,
    TaskArtifactUpdateEvent,
    TaskPushNotificationConfig,
    TaskState,
    TaskStatus,
    milliseconds,
    timestamp,
)
from switchroom.protocol.params import ListTasksRequest, ListTasksResponse
from switchroom.protocol.protojson import MAX_DEPTH

MESSAGE: Json = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]}


def nested(levels: int, inner: Any = 1) -> Any:
    for _ in range(levels):
        inner = [inner]
    return inner


def kind(value: Any) -> str:
    """A test's id: some of these values cannot be printed."""
    return type(value).__name__


class TestNames:
    def test_camel_case_goes_out(self) -> None:
        made = Message(
            message_id="m", role=Role.USER, parts=[Part(text="hi")], reference_task_ids=["t"]
        )
        assert made.to_dict() == {**MESSAGE, "referenceTaskIds": ["t"]}

    def test_both_spellings_come_in(self) -> None:
        snake = {
            "message_id": "m",
            "role": "ROLE_USER",
            "parts": [{"text": "x", "media_type": "a"}],
        }
        assert Message.model_validate(snake).to_dict() == {
            "messageId": "m",
            "role": "ROLE_USER",
            "parts": [{"text": "x", "mediaType": "a"}],
        }

    def test_unknown_fields_are_ignored_and_never_go_out(self) -> None:
        given = {**MESSAGE, "kind": "message", "parts": [{"text": "hi", "kind": "text", "x": {}}]}
        assert Message.model_validate(given).to_dict() == MESSAGE

    def test_an_unknown_name_may_be_anything(self) -> None:
        given = {**MESSAGE, "\ud800": "\ud800", "deep": nested(100_000)}
        assert Message.model_validate(given).to_dict() == MESSAGE


class TestPresence:
    def test_only_what_was_given_goes_out(self) -> None:
        assert SendMessageConfiguration().to_dict() == {}
        assert TaskStatus(state=TaskState.WORKING).to_dict() == {"state": "TASK_STATE_WORKING"}

    def test_unset_is_not_the_default(self) -> None:
        given = {"historyLength": 0, "returnImmediately": False, "acceptedOutputModes": []}
        assert SendMessageConfiguration.model_validate(given).to_dict() == given
        assert SendMessageConfiguration().history_length is None
        assert AgentCapabilities.model_validate({"streaming": False}).to_dict() == {
            "streaming": False
        }

    def test_null_is_absent(self) -> None:
        given = {**MESSAGE, "contextId": None, "taskId": None, "metadata": None, "extensions": None}
        message = Message.model_validate(given)
        assert message.to_dict() == MESSAGE
        assert (message.task_id, message.extensions, message.metadata) == ("", [], None)
        assert Message(**{**MESSAGE, "task_id": None}).to_dict() == MESSAGE

    def test_null_under_one_spelling_leaves_the_other(self) -> None:
        given = {**MESSAGE, "contextId": None, "context_id": "c"}
        assert Message.model_validate(given).context_id == "c"

    @pytest.mark.parametrize("field", ["messageId", "role", "parts"])
    def test_null_is_absent_for_required_fields_too(self, field: str) -> None:
        with pytest.raises(ValidationError, match="missing"):
            Message.model_validate({**MESSAGE, field: None})

    def test_null_is_a_value_in_data_and_inside_of_free_json(self) -> None:
        part = {"data": None, "metadata": {"a": None}}
        assert Part.model_validate(part).to_dict() == part
        assert Part.model_validate({"data": [None]}).to_dict() == {"data": [None]}

    def test_what_is_given_is_left_alone(self) -> None:
        given = {**MESSAGE, "contextId": None, "metadata": {"a": [1]}}
        kept = copy.deepcopy(given)
        out = Message.model_validate(given).to_dict()
        out["metadata"]["a"].append(2)
        assert given == kept

    def test_an_assigned_field_goes_out(self) -> None:
        task = Task(id="t", status=TaskStatus(state=TaskState.WORKING))
        task.history = [Message.model_validate(MESSAGE)]
        assert task.to_dict()["history"] == [MESSAGE]

    def test_a_page_always_has_its_four_members(self) -> None:
        page = ListTasksResponse(tasks=[], next_page_token="", page_size=50, total_size=0)
        empty = {"tasks": [], "nextPageToken": "", "pageSize": 50, "totalSize": 0}
        assert page.to_dict() == empty
        for name in empty:
            with pytest.raises(ValidationError):
                ListTasksResponse.model_validate({k: v for k, v in empty.items() if k != name})


class TestRequired:
    @pytest.mark.parametrize("field", ["messageId", "role", "parts"])
    def test_a_missing_field(self, field: str) -> None:
        with pytest.raises(ValidationError):
            Message.model_validate({k: v for k, v in MESSAGE.items() if k != field})

    def test_a_list_needs_an_element(self) -> None:
        for wrong in (
            lambda: Message.model_validate({**MESSAGE, "parts": []}),
            lambda: Artifact.model_validate({"artifactId": "a", "parts": []}),
        ):
            with pytest.raises(ValidationError, match="too_short"):
                wrong()

    def test_an_id_must_say_something(self) -> None:
        with pytest.raises(ValidationError):
            Message.model_validate({**MESSAGE, "messageId": ""})


class TestEnums:
    def test_by_name(self) -> None:
        status = TaskStatus.model_validate({"state": "TASK_STATE_INPUT_REQUIRED"})
        assert status.state is TaskState.INPUT_REQUIRED
        assert status.to_dict() == {"state": "TASK_STATE_INPUT_REQUIRED"}
        assert type(status.to_dict()["state"]) is str

    @pytest.mark.parametrize("number", [3, 3.0])
    def test_by_number(self, number: float) -> None:
        assert TaskStatus.model_validate({"state": number}).to_dict() == {
            "state": "TASK_STATE_COMPLETED"
        }

    @pytest.mark.parametrize(
        "wrong",
        [
            "user",
            "ROLE_USER ",
            "role_user",
            "ROLE_ADMIN",
            "",
            "1",
            3,
            -1,
            1.5,
            True,
            [],
            {},
            10**400,
        ]
        + [float("nan"), float("inf"), "\ud800", b"ROLE_USER"],
    )
    def test_anything_else_is_an_error(self, wrong: Any) -> None:
        with pytest.raises(ValidationError):
            Message.model_validate({**MESSAGE, "role": wrong})

    @pytest.mark.parametrize("unspecified", [0, "ROLE_UNSPECIFIED"])
    def test_unspecified_is_as_good_as_missing(self, unspecified: Any) -> None:
        with pytest.raises(ValidationError):
            Message.model_validate({**MESSAGE, "role": unspecified})
        with pytest.raises(ValidationError):
            TaskStatus.model_validate({"state": "TASK_STATE_UNSPECIFIED"})

    @pytest.mark.parametrize("nothing", [0, "", "TASK_STATE_UNSPECIFIED", None])
    def test_as_a_filter_it_means_any(self, nothing: Any) -> None:
        found = ListTasksRequest.model_validate({"status": nothing})
        assert found.status is TaskState.UNSPECIFIED


class TestNumbers:
    @pytest.mark.parametrize("given", [5, 5.0, "5"])
    def test_a_number_or_its_text(self, given: Any) -> None:
        found = SendMessageConfiguration.model_validate({"historyLength": given})
        assert found.to_dict() == {"historyLength": 5}
        assert type(found.history_length) is int

    @pytest.mark.parametrize(
        "wrong",
        [True, False, 1.5, -1, "-1", "", " 5", "5 ", "+5", "5.0", "1_0", "٥", "1e2", "9" * 5000]
        + [2**31, "2147483648", 1e300, 10**5000, float("nan"), float("inf"), [], {}, b"5"],
        ids=kind,
    )
    def test_anything_else_is_an_error(self, wrong: Any) -> None:
        with pytest.raises(ValidationError):
            SendMessageConfiguration.model_validate({"historyLength": wrong})

    def test_the_largest(self) -> None:
        found = SendMessageConfiguration.model_validate({"historyLength": "2147483647"})
        assert found.history_length == 2**31 - 1


class TestText:
    @pytest.mark.parametrize("wrong", [1, True, 1.5, [], {}, b"x", "\ud800", "ok \udfff"])
    def test_only_a_string_is_a_string(self, wrong: Any) -> None:
        for field in ("messageId", "contextId"):
            with pytest.raises(ValidationError):
                Message.model_validate({**MESSAGE, field: wrong})
        with pytest.raises(ValidationError):
            Part.model_validate({"text": wrong})
        with pytest.raises(ValidationError):
            Message.model_validate({**MESSAGE, "extensions": [wrong]})

    @pytest.mark.parametrize("wrong", ["true", "false", 0, 1, "", [], {}])
    def test_only_a_flag_is_a_flag(self, wrong: Any) -> None:
        with pytest.raises(ValidationError):
            SendMessageConfiguration.model_validate({"returnImmediately": wrong})

    @pytest.mark.parametrize("wrong", ["x", {}, 1, True])
    def test_only_a_list_is_a_list(self, wrong: Any) -> None:
        for field in ("parts", "extensions"):
            with pytest.raises(ValidationError):
                Message.model_validate({**MESSAGE, field: wrong})


class TestBytes:
    @pytest.mark.parametrize("text", ["+/+/+w==", "-_-_-w==", "+/+/+w", "-_-_-w", "+_-/+w"])
    def test_standard_or_url_safe_padded_or_not(self, text: str) -> None:
        part = Part.model_validate({"raw": text})
        assert part.raw == b"\xfb\xff\xbf\xfb"
        assert part.to_dict() == {"raw": "+/+/+w=="}
        assert part.to_json() == b'{"raw":"+/+/+w=="}'

    def test_bytes_in_python_are_the_bytes(self) -> None:
        assert Part(raw=b"hi").to_dict() == {"raw": "aGk="}

    def test_empty_is_content(self) -> None:
        assert Part.model_validate({"raw": ""}).to_dict() == {"raw": ""}

    @pytest.mark.parametrize("wrong", ["a", "aGk!", "aG k=", "aGk=\n", "é", "\ud800", 1, [], {}])
    def test_anything_else_is_an_error(self, wrong: Any) -> None:
        with pytest.raises(ValidationError):
            Part.model_validate({"raw": wrong})


class TestTimestamps:
    @pytest.mark.parametrize(
        ("given", "out"),
        [
            ("2026-01-02T03:04:05.678Z", "2026-01-02T03:04:05.678Z"),
            ("2026-01-02T03:04:05Z", "2026-01-02T03:04:05.000Z"),
            ("2026-01-02T03:04:05.6Z", "2026-01-02T03:04:05.600Z"),
            ("2026-01-02T03:04:05.678901234Z", "2026-01-02T03:04:05.678Z"),
            ("2026-01-02T03:04:05.999999999Z", "2026-01-02T03:04:05.999Z"),
            ("2026-01-02T03:04:05+00:00", "2026-01-02T03:04:05.000Z"),
            ("2026-01-02T03:04:05+05:30", "2026-01-01T21:34:05.000Z"),
            ("2026-01-02T03:04:05.5-23:59", "2026-01-03T03:03:05.500Z"),
            ("2026-01-02t03:04:05z", "2026-01-02T03:04:05.000Z"),
            ("2024-02-29T00:00:00Z", "2024-02-29T00:00:00.000Z"),
            ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00.000Z"),
            ("9999-12-31T23:59:59.999Z", "9999-12-31T23:59:59.999Z"),
        ],
    )
    def test_any_offset_in_and_utc_out(self, given: str, out: str) -> None:
        status = TaskStatus.model_validate({"state": "TASK_STATE_WORKING", "timestamp": given})
        assert status.to_dict()["timestamp"] == out
        assert status.timestamp is not None
        assert status.timestamp.utcoffset() == timedelta(0)

    @pytest.mark.parametrize(
        "wrong",
        [
            "",
            "now",
            "2026-01-02",
            "2026-01-02T03:04:05",
            "2026-01-02 03:04:05Z",
            "2026-01-02T03:04Z",
            "2026-01-02T03:04:05.Z",
            "2026-01-02T03:04:05.1234567890Z",
            "2026-01-02T24:00:00Z",
            "2026-01-02T03:04:60Z",
            "2026-13-02T03:04:05Z",
            "2025-02-29T00:00:00Z",
            "2026-01-02T03:04:05+24:00",
            "2026-01-02T03:04:05+0530",
            "0001-01-01T00:00:00+23:59",
            "9999-12-31T23:59:59-23:59",
            "0000-01-01T00:00:00Z",
            "٢٠٢٦-01-02T03:04:05Z",
            " 2026-01-02T03:04:05Z",
            "2026-01-02T03:04:05Z\n",
            "\ud800",
            1767323045678,
            1.5,
            True,
            [],
            {},
            datetime(2026, 1, 2),
        ],
    )
    def test_anything_else_is_an_error(self, wrong: Any) -> None:
        with pytest.raises(ValidationError):
            TaskStatus.model_validate({"state": "TASK_STATE_WORKING", "timestamp": wrong})

    def test_a_datetime_with_an_offset(self) -> None:
        moment = datetime(2026, 1, 2, 3, 4, 5, 678901, timezone(timedelta(hours=1)))
        status = TaskStatus(state=TaskState.WORKING, timestamp=moment)
        assert status.to_dict()["timestamp"] == "2026-01-02T02:04:05.678Z"

    def test_from_milliseconds_and_back(self) -> None:
        for ms in (0, 1, 999, 1_767_323_045_678, 253_402_300_799_999, -1):
            assert milliseconds(datetime.fromisoformat(timestamp(ms))) == ms
        assert timestamp(1_767_323_045_678) == "2026-01-02T03:04:05.678Z"

    def test_a_part_of_a_millisecond_counts_up(self) -> None:
        assert milliseconds(datetime(1970, 1, 1, microsecond=1001, tzinfo=UTC)) == 2


class TestFreeJson:
    @pytest.mark.parametrize(
        "value",
        [
            {"i": 3, "f": 3.0, "big": 2**80, "neg": -(10**4000), "small": 5e-324, "z": -0.0},
            {"b": True, "n": None, "s": "é\U0001f600\x00", "": [[], {}], "1e400": 1.7e308},
            {"snake_case": 1, "camelCase": {"data": None}},
        ],
        ids=kind,
    )
    def test_it_is_kept_as_it_is(self, value: Json) -> None:
        for part in (Part(data=value), Part(text="x", metadata=value)):
            for out in (part.to_dict(), json.loads(part.to_json())):
                kept = out.get("data", out.get("metadata"))
                assert repr(kept) == repr(value)

    @pytest.mark.parametrize("value", [[1], {"a": 1}, "x", 1, 1.5, True, None])
    def test_data_is_any_json_value(self, value: Any) -> None:
        assert Part.model_validate({"data": value}).to_dict() == {"data": value}

    @pytest.mark.parametrize("wrong", [[], "x", 1, True, 1.5])
    def test_metadata_is_an_object(self, wrong: Any) -> None:
        with pytest.raises(ValidationError):
            Message.model_validate({**MESSAGE, "metadata": wrong})

    @pytest.mark.parametrize(
        "wrong",
        [float("nan"), float("inf"), -float("inf"), "\ud800", "a\udfff", {"\ud800": 1}, {1: 2}]
        + [10**5000, b"x", {1, 2}, (1, 2), datetime(2026, 1, 2), object(), nested(100_000)],
        ids=kind,
    )
    def test_what_no_json_can_carry_is_an_error(self, wrong: Any) -> None:
        for value in (wrong, [1, wrong, 2], {"a": {"b": [wrong]}}):
            with pytest.raises(ValidationError):
                Part.model_validate({"data": value})
            with pytest.raises(ValidationError):
                Message.model_validate({**MESSAGE, "metadata": {"x": value}})

    def test_how_deep_it_may_nest(self) -> None:
        assert Part(data=nested(MAX_DEPTH)).to_json()
        with pytest.raises(ValidationError, match="100 levels"):
            Part(data=nested(MAX_DEPTH + 1))

    def test_a_loop_is_an_error(self) -> None:
        loop: list[Any] = []
        loop.append(loop)
        with pytest.raises(ValidationError):
            Part(data=loop)

    def test_width_is_no_depth(self) -> None:
        value = [[{"a": [1]}] for _ in range(1000)]
        assert Part(data=value).to_dict() == {"data": value}


class TestOneOf:
    @pytest.mark.parametrize("content", [{"text": ""}, {"raw": ""}, {"url": "u"}, {"data": None}])
    def test_one(self, content: Json) -> None:
        assert Part.model_validate(content).to_dict() == content

    @pytest.mark.parametrize(
        "wrong",
        [
            {},
            {"text": None},
            {"filename": "a"},
            {"text": "a", "data": None},
            {"text": "", "url": ""},
        ],
    )
    def test_none_or_two(self, wrong: Json) -> None:
        with pytest.raises(ValidationError, match="needs exactly one of text, raw, url, data"):
            Part.model_validate(wrong)

    def test_null_beside_it_does_not_count(self) -> None:
        assert Part.model_validate({"text": "a", "url": None}).to_dict() == {"text": "a"}

    def test_in_a_card(self) -> None:
        with pytest.raises(ValidationError):
            SecurityScheme.model_validate({"type": "http", "scheme": "bearer"})
        flow = {"tokenUrl": "u", "scopes": {}}
        with pytest.raises(ValidationError):
            OAuthFlows.model_validate({"clientCredentials": flow, "password": flow})
        hybrid = {"type": "http", "scheme": "x", "httpAuthSecurityScheme": {"scheme": "bearer"}}
        assert SecurityScheme.model_validate(hybrid).to_dict() == {
            "httpAuthSecurityScheme": {"scheme": "bearer"}
        }


def test_to_json_is_to_dict_in_compact_utf_8() -> None:
    event = TaskArtifactUpdateEvent(
        task_id="t",
        context_id="c",
        artifact=Artifact(artifact_id="a", parts=[Part(text="é\n"), Part(data=2**70)]),
        append=False,
    )
    text = event.to_json()
    assert json.loads(text) == event.to_dict()
    assert text == json.dumps(event.to_dict(), separators=(",", ":"), ensure_ascii=False).encode()


def test_a_part_made_by_hand_is_checked_like_one_from_the_wire() -> None:
    with pytest.raises(ValidationError):
        Part()
    with pytest.raises(ValidationError):
        Part(text="a", url="b")


def test_secrets_stay_out_of_what_is_printed() -> None:
    config = TaskPushNotificationConfig.model_validate(
        {
            "url": "https://cb.example",
            "token": "hush-1",
            "authentication": {"scheme": "Bearer", "credentials": "hush-2"},
        }
    )
    assert "hush" not in repr(config) + str(config)
    with pytest.raises(ValidationError) as caught:
        TaskPushNotificationConfig.model_validate({"token": ["hush-1"]})
    assert "hush" not in str(caught.value)


def test_a_card_needs_its_required_fields() -> None:
    with pytest.raises(ValidationError) as caught:
        AgentCard.model_validate({})
    assert {str(e["loc"][0]) for e in caught.value.errors()} == {
        "name",
        "description",
        "supportedInterfaces",
        "version",
        "capabilities",
        "defaultInputModes",
        "defaultOutputModes",
        "skills",
    }
