"""Whatever bytes are posted, on either binding and in either version: an answer, well-formed, and
never that something is broken here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from switchroom.protocol.errors import ERRORS
from switchroom.protocol.methods import METHODS
from tests.conftest import SOAK
from tests.support.answering import Answer, Answering, answering

CODES = {error.code for error in ERRORS} - {-32603, -32006}
STATUSES = {error.http for error in ERRORS if error.http < 500} | {200}

budget = settings(
    max_examples=50_000 if SOAK else 2_000,
    # Looking for a smaller example is for people; it also runs long on large bodies.
    phases=[Phase.generate] if SOAK else [Phase.generate, Phase.shrink],
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture(scope="module")
def gateway() -> Iterator[Answering]:
    with answering(body_limit=100_000) as gateway:
        yield gateway


# -- valid requests

HOOK = {"url": "https://hook.test/", "authentication": {"scheme": "Bearer", "credentials": "c"}}


def message(task: str) -> Any:
    parts = [{"text": "hi"}, {"data": {"a": [1, None]}}, {"raw": "AAA="}, {"url": "x"}]
    return {"messageId": "m", "role": "ROLE_USER", "parts": parts, "taskId": task}


def message_03(task: str) -> Any:
    parts = [
        {"kind": "text", "text": "hi"},
        {"kind": "data", "data": {"a": [1, None]}},
        {"kind": "file", "file": {"bytes": "AAA=", "mimeType": "a/b"}},
    ]
    return {"kind": "message", "messageId": "m", "role": "user", "parts": parts, "taskId": task}


def params(method: str, task: str, version: str) -> Any:
    """Valid params, of either version."""
    three = version == "0.3"
    match method:
        case "SendMessage" | "SendStreamingMessage":
            configuration: Any = {"historyLength": 1, "returnImmediately": True}
            if three:
                configuration = {"historyLength": 1, "blocking": False}
            said = message_03(task) if three else message(task)
            return {"message": said, "configuration": configuration, "metadata": {"x": 1}}
        case "ListTasks":
            return {"status": "TASK_STATE_WORKING", "pageSize": 3, "includeArtifacts": True}
        case "CreateTaskPushNotificationConfig":
            return {"taskId": task, **({"pushNotificationConfig": HOOK} if three else HOOK)}
        case "GetTaskPushNotificationConfig" | "DeleteTaskPushNotificationConfig":
            if three:
                return {"id": task, "pushNotificationConfigId": "c"}
            return {"taskId": task, "id": "c"}
        case "ListTaskPushNotificationConfigs":
            return {"id" if three else "taskId": task}
        case "GetExtendedAgentCard":
            return {}
        case _:
            return {"id": task, "metadata": {}}


# -- what is done to them

ODD: list[Any] = [
    None,
    True,
    0,
    -1,
    1.5,
    1e308,
    2**31,
    2**63,
    10**400,
    "",
    "\0",
    "\ud800",
    "\U0010ffff\u2028",
    "x" * 5_000,
    "9" * 5_000,
    [],
    {},
    [[]],
    {"": None},
    {"\0": "\0"},
    {"\udfff": 1},
    "TASK_STATE_WORKING",
    *["RAW"] * 5,
]

# As text, for RAW, since no encoder writes them.
RAW = [
    "NaN",
    "-Infinity",
    "1e999",
    "-0",
    "01",
    "9" * 5_000,
    "[" * 10_000 + "]" * 10_000,
    '{"a":' * 10_000 + "1" + "}" * 10_000,
    "[" * 150 + "]" * 150,
    '"\\u0000"',
    '"\\ud800\\ud800"',
    '"\\x"',
    '"\n"',
    '{"a":1,"a":2}',
    "",
]


@st.composite
def mangled(draw: st.DrawFn, valid: Any) -> bytes:
    """A valid request in which some values are others, some names stand twice, and some bytes are
    wrong.
    """
    value = valid
    for _ in range(draw(st.integers(0, 2))):
        value = draw(replaced(value))
    text = json.dumps(value).replace('"RAW"', draw(st.sampled_from(RAW)))
    if draw(st.integers(0, 9)) == 0:
        text = text.replace("{", draw(st.sampled_from(['{"id":7,', '{"taskId":[],', "{{"])), 2)
    body = text.encode()
    for _ in range(draw(st.sampled_from([0, 0, 0, 0, 1, 3]))):
        start = draw(st.integers(0, len(body)))
        end = min(len(body), start + draw(st.integers(0, 8)))
        body = body[:start] + draw(st.binary(max_size=4)) + body[end:]
    return body


@st.composite
def replaced(draw: st.DrawFn, value: Any) -> Any:
    """`value` with something else in one place."""
    if isinstance(value, dict) and value and draw(st.integers(0, 9)):
        often = ["params"] * 20 if "params" in value else []
        name = draw(st.sampled_from([*sorted(value), *often]))
        return {**value, name: draw(replaced(value[name]))}
    if isinstance(value, list) and value and draw(st.integers(0, 4)):
        spot = draw(st.integers(0, len(value) - 1))
        return [*value[:spot], draw(replaced(value[spot])), *value[spot + 1 :]]
    return draw(st.sampled_from(ODD))


VERSIONS = ["1.0", "0.3", "", "1.0.1", "2.0", "\xff", "9" * 999]
TYPES = st.sampled_from(["application/json"] * 20 + ["application/a2a+json", "", "text/plain", ";"])


@st.composite
def headers(draw: st.DrawFn, version: str) -> dict[str, str]:
    """Mostly those of a client of this version."""
    told = {
        "a2a-version": draw(st.sampled_from([version] * 30 + VERSIONS)),
        "content-type": draw(TYPES),
        "a2a-extensions": draw(st.sampled_from(["", "urn:x, urn:y", ",,\xff", "x" * 999])),
        "last-event-id": draw(st.sampled_from(["", "1.a", "\xff", "9" * 999 + ".0"])),
        "idempotency-key": draw(st.sampled_from(["", "", "k", "\xff" * 300])),
        "x-request-id": draw(st.sampled_from(["", "r-1", "\xff"])),
        "content-length": draw(st.sampled_from([""] * 20 + ["-1", "9" * 30, "7"])),
    }
    return {name: text for name, text in told.items() if text or draw(st.booleans())}


# -- what must hold


def check_rpc(answer: Answer) -> None:
    assert answer.status in STATUSES
    told = answer.json
    assert told["jsonrpc"] == "2.0"
    assert isinstance(told["id"], str | int | None)
    assert not isinstance(told["id"], bool)
    assert set(told) in ({"jsonrpc", "id", "result"}, {"jsonrpc", "id", "error"})
    if "error" in told:
        assert told["error"]["code"] in CODES, told
        assert told["error"]["message"]
        assert told["error"]["data"]


def check_rest(answer: Answer) -> None:
    assert answer.status in STATUSES, answer
    told = answer.json
    assert isinstance(told, dict | list)
    if answer.status != 200:
        assert told["message" if "data" in told else "error"]


@budget
@given(data=st.data())
def test_json_rpc(gateway: Answering, data: st.DataObject) -> None:
    method = data.draw(st.sampled_from(list(METHODS.values())))
    version = data.draw(st.sampled_from(["1.0", "0.3"]))
    task = data.draw(st.sampled_from([gateway.done, gateway.open, "none", ""]))
    name = method.name if version == "1.0" else method.v03 or "tasks/list"
    valid = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": name,
        "params": params(method.name, task, version),
    }
    body = data.draw(mangled(valid))
    check_rpc(gateway.ask("POST", "/", body, data.draw(headers(version))))


SEGMENTS = [
    "none",
    "%00",
    "%ff",
    "%2F",
    "a:b",
    ":cancel",
    "%",
    "..",
    "x" * 3_000,
    "\u00e9",
    "tasks",
]
QUERIES = [
    *[""] * 5,
    "pageSize=5&status=TASK_STATE_WORKING",
    "historyLength=-1",
    "pageSize=" + "9" * 5_000,
    "includeArtifacts=maybe&tenant=%00",
    "statusTimestampAfter=0000-00-00T00:00:00Z",
    "statusTimestampAfter=0001-01-01T00:00:00%2B23:59",
    "statusTimestampAfter=9999-12-31T23:59:59-23:59",
    "pageToken=%ff",
    "contextId=%ed%a0%80&contextId=%00",
    "pageToken=" + "A" * 5_000,
    "&&==&;%&A2A-Version=1.0",
    "A2A-Version=%ff",
]


@budget
@given(data=st.data())
def test_http_json(gateway: Answering, data: st.DataObject) -> None:
    method = data.draw(st.sampled_from(list(METHODS.values())))
    version = data.draw(st.sampled_from(["1.0", "0.3"] if method.rest_v03 else ["1.0"]))
    rows = method.rest if version == "1.0" else method.rest_v03
    verb, path = data.draw(st.sampled_from(rows))
    for field in ("{taskId}", "{id}"):
        segment = data.draw(st.sampled_from([gateway.done, gateway.open] * 6 + SEGMENTS))
        path = path.replace(field, segment, 1)
    if data.draw(st.integers(0, 4)) == 0:
        path = "/" + data.draw(st.sampled_from(["acme", "%C3%A9", "%ff", "tasks", "a/b"])) + path
    if data.draw(st.integers(0, 9)) == 0:
        verb = data.draw(st.sampled_from(["GET", "POST", "PUT", "DELETE", "OPTIONS", "X"]))
    valid = params(method.name, gateway.done, version)
    body = data.draw(mangled(valid)) if verb == "POST" else b""
    target = path + "?" + data.draw(st.sampled_from(QUERIES))
    check_rest(gateway.ask(verb, target, body, data.draw(headers(version))))
