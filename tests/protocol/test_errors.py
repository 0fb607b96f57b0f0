"""The error table (§5.4 of 1.0.1, JSON-RPC 2.0) and the shape of the details (§9.5)."""

from __future__ import annotations

import inspect

import pytest

from switchroom.protocol import errors
from switchroom.protocol.errors import ERRORS, A2AError, InvalidParams, TaskNotFound
from tests.protocol.errors_page import PAGE, page

TABLE = """
ParseError                      -32700  400  INVALID_ARGUMENT     INVALID_REQUEST
InvalidRequest                  -32600  400  INVALID_ARGUMENT     INVALID_REQUEST
PayloadTooLarge                 -32600  413  INVALID_ARGUMENT     PAYLOAD_TOO_LARGE
HeadersTooLarge                 -32600  431  RESOURCE_EXHAUSTED   HEADERS_TOO_LARGE
RequestTimeout                  -32600  408  DEADLINE_EXCEEDED    REQUEST_TIMEOUT
MethodNotFound                  -32601  404  NOT_FOUND            METHOD_NOT_FOUND
MethodNotImplemented            -32601  501  UNIMPLEMENTED        METHOD_NOT_IMPLEMENTED
VerbNotAllowed                  -32601  405  UNIMPLEMENTED        VERB_NOT_ALLOWED
InvalidParams                   -32602  400  INVALID_ARGUMENT     INVALID_PARAMS
TaskNotFound                    -32001  404  NOT_FOUND            TASK_NOT_FOUND
TaskNotCancelable               -32002  400  FAILED_PRECONDITION  TASK_NOT_CANCELABLE
PushNotificationNotSupported    -32003  400  FAILED_PRECONDITION  PUSH_NOTIFICATION_NOT_SUPPORTED
UnsupportedOperation            -32004  400  FAILED_PRECONDITION  UNSUPPORTED_OPERATION
ContentTypeNotSupported         -32005  400  INVALID_ARGUMENT     CONTENT_TYPE_NOT_SUPPORTED
MediaTypeNotSupported           -32005  415  INVALID_ARGUMENT     CONTENT_TYPE_NOT_SUPPORTED
InvalidAgentResponse            -32006  500  INTERNAL             INVALID_AGENT_RESPONSE
ExtendedAgentCardNotConfigured  -32007  400  FAILED_PRECONDITION  EXTENDED_AGENT_CARD_NOT_CONFIGURED
ExtensionSupportRequired        -32008  400  FAILED_PRECONDITION  EXTENSION_SUPPORT_REQUIRED
VersionNotSupported             -32009  400  FAILED_PRECONDITION  VERSION_NOT_SUPPORTED
Unauthenticated                 -32040  401  UNAUTHENTICATED      UNAUTHENTICATED
AuthenticationFailed            -32040  401  UNAUTHENTICATED      UNAUTHENTICATED
PermissionDenied                -32041  403  PERMISSION_DENIED    PERMISSION_DENIED
RateLimited                     -32042  429  RESOURCE_EXHAUSTED   RATE_LIMITED
Unavailable                     -32043  503  UNAVAILABLE          UNAVAILABLE
InternalError                   -32603  500  INTERNAL             INTERNAL_ERROR
"""
ROWS = [tuple(line.split()) for line in TABLE.strip().splitlines()]


def test_the_table() -> None:
    built = [(e.__name__, str(e.code), str(e.http), e.status, e.reason) for e in ERRORS]
    assert built == ROWS


# Where §5.4 of 1.0.0 differs.
BEFORE = {
    "TaskNotCancelable": (409, "FAILED_PRECONDITION"),
    "PushNotificationNotSupported": (400, "UNIMPLEMENTED"),
    "UnsupportedOperation": (400, "UNIMPLEMENTED"),
    "ContentTypeNotSupported": (415, "INVALID_ARGUMENT"),
    "InvalidAgentResponse": (502, "INTERNAL"),
    "VersionNotSupported": (400, "UNIMPLEMENTED"),
}


def test_the_table_of_1_0_0() -> None:
    for error in ERRORS:
        now = (error.http, error.status)
        assert error().statuses("1.0.1") == now
        assert error().statuses("1.0.0") == BEFORE.get(error.__name__, now)


def test_what_keeps_its_http_status_over_json_rpc() -> None:
    edge = {error.http for error in ERRORS if error.edge}
    assert edge == {401, 403, 405, 408, 413, 415, 429, 431, 503}
    assert not {error.http for error in ERRORS if not error.edge} & edge


def test_the_tuple_holds_every_class_that_can_be_raised() -> None:
    classes = {
        value
        for value in vars(errors).values()
        if inspect.isclass(value) and issubclass(value, A2AError) and hasattr(value, "code")
    }
    assert classes == set(ERRORS)


@pytest.mark.parametrize("error", ERRORS)
def test_every_error_has_words_for_people(error: type[A2AError]) -> None:
    assert str(error()) == error.message == error().message
    assert not error.message.endswith(".")


@pytest.mark.parametrize("error", ERRORS)
def test_its_own_words_win(error: type[A2AError]) -> None:
    said = error("Because")
    assert (str(said), said.message, said.code) == ("Because", "Because", error.code)
    assert error().message != "Because"


def test_temporary_says_try_again() -> None:
    assert {e.__name__ for e in ERRORS if e.temporary} == {"RateLimited", "Unavailable"}


def test_the_details_begin_with_error_info() -> None:
    assert TaskNotFound().data() == [
        {
            "@type": "type.googleapis.com/google.rpc.ErrorInfo",
            "reason": "TASK_NOT_FOUND",
            "domain": "a2a-protocol.org",
        }
    ]
    assert TaskNotFound(metadata={"taskId": "t9"}).data()[0]["metadata"] == {"taskId": "t9"}


def test_violations_become_a_bad_request() -> None:
    info, bad = InvalidParams(violations=[("message.parts", "needs at least one element")]).data()
    assert info["reason"] == "INVALID_PARAMS"
    assert bad == {
        "@type": "type.googleapis.com/google.rpc.BadRequest",
        "fieldViolations": [
            {"field": "message.parts", "description": "needs at least one element"}
        ],
    }


def test_a_violation_is_in_the_message_for_people_too() -> None:
    violations = [("pageToken", "is not ours"), ("pageSize", "is odd")]
    assert str(InvalidParams(violations=violations)) == "Invalid parameters: pageToken is not ours"
    assert str(InvalidParams("Both", violations=violations)) == "Both"
    assert str(InvalidParams()) == "Invalid parameters"


def test_when_to_come_back() -> None:
    assert errors.Unavailable(retry_after=1.5).retry_after == 1.5
    assert errors.Unavailable().retry_after is None


def test_the_details_are_the_callers() -> None:
    error = TaskNotFound(metadata={"taskId": "t"})
    error.data()[0]["metadata"]["taskId"] = "other"
    assert error.metadata == {"taskId": "t"}


def test_the_page_is_fresh() -> None:
    assert PAGE.read_text() == page(), "run: python -m tests.protocol.errors_page"
