"""Whatever is posted, the answer is JSON that says what is wrong: never a 500, never HTML, never a
hang. And whoever comes next is served.
"""

from __future__ import annotations

import asyncio
import json
import random
import uuid
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from switchroom.protocol.methods import METHODS
from tests.support.processes import Deployment
from tests.support.rpc import Rpc, answer_of, message

pytestmark = pytest.mark.requires("redis-server")

V1 = {"A2A-Version": "1.0"}
JSON = {**V1, "Content-Type": "application/json"}
PARSE, REQUEST, METHOD, PARAMS = -32700, -32600, -32601, -32602
CONTENT_TYPE, VERSION, NO_CARD, NOT_FOUND = -32005, -32009, -32007, -32001
LIMIT = 10 * 1024 * 1024


@pytest.fixture(autouse=True)
async def next_one_is_served(one: Rpc, other: Rpc) -> AsyncIterator[None]:
    yield
    for client in (one, other):
        text = uuid.uuid4().hex
        assert answer_of((await client.send(f"echo {text}"))["task"]) == text


def code_of(response: httpx.Response, *, status: int = 200) -> int:
    """The code of a well-formed JSON-RPC error, and nothing but that."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    answer = response.json()
    assert answer.keys() == {"jsonrpc", "id", "error"}
    assert answer["jsonrpc"] == "2.0"
    assert answer["error"].keys() <= {"code", "message", "data"}
    assert answer["error"]["data"][0]["@type"].endswith("google.rpc.ErrorInfo")
    assert "Traceback" not in response.text
    return int(answer["error"]["code"])


def envelope(**members: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": "ListTasks", **members}


BODIES: list[tuple[bytes, int]] = [
    (b"", PARSE),
    (b"   ", PARSE),
    (b"{", PARSE),
    (b"{]", PARSE),
    (b"hello", PARSE),
    (b"\x00\xff\xfe", PARSE),
    (b'{"jsonrpc": "2.0", "id": 1, "method": "ListTasks"', PARSE),
    (b'{"jsonrpc":"2.0","id":1,"method":"ListTasks","params":{"pageSize":NaN}}', PARSE),
    (b'{"jsonrpc":"2.0","id":1,"method":"ListTasks","params":{"pageSize":1e999}}', PARSE),
    (b"[" * 100_000, PARSE),
    (b'{"a":' * 100_000, PARSE),
    (b'{"jsonrpc":"2.0","id":1,"method":"\xff"}', PARSE),
    (b"<html></html>", PARSE),
    (b"null", REQUEST),
    (b"17", REQUEST),
    (b'"ListTasks"', REQUEST),
    (b"[]", REQUEST),
    (b"{}", REQUEST),
    (b'[{"jsonrpc":"2.0","id":1,"method":"ListTasks"}]', REQUEST),
]

ENVELOPES: list[tuple[dict[str, Any], int]] = [
    ({"jsonrpc": "1.0"}, REQUEST),
    ({"jsonrpc": 2.0}, REQUEST),
    ({"jsonrpc": None}, REQUEST),
    ({"id": {}}, REQUEST),
    ({"id": [1]}, REQUEST),
    ({"id": True}, REQUEST),
    ({"id": 1.5}, REQUEST),
    ({"method": None}, REQUEST),
    ({"method": 7}, REQUEST),
    ({"method": ["ListTasks"]}, REQUEST),
    ({"method": ""}, METHOD),
    ({"method": "Nothing"}, METHOD),
    ({"method": "listtasks"}, METHOD),
    ({"method": "message/send"}, METHOD),
    ({"method": "__class__"}, METHOD),
    ({"method": "x" * 100_000}, METHOD),
    ({"params": []}, PARAMS),
    ({"params": "x"}, PARAMS),
    ({"params": 1}, PARAMS),
    ({"params": {"tenant": 1}}, PARAMS),
]


async def test_bodies_that_are_no_request(one: Rpc) -> None:
    for body, code in BODIES:
        response = await one.http.post("/", content=body, headers=JSON)
        assert code_of(response) == code, body[:60]
        assert response.json()["id"] is None


async def test_envelopes_that_are_no_request(one: Rpc) -> None:
    for members, code in ENVELOPES:
        response = await one.http.post("/", json=envelope(**members), headers=V1)
        assert code_of(response) == code, str(members)[:60]


async def test_the_id_comes_back_as_it_was(one: Rpc) -> None:
    for ident in ("a", "", 0, -1, 2**70, "é\u2028", None):
        response = await one.http.post("/", json=envelope(id=ident, method="No"), headers=V1)
        assert response.json()["id"] == ident


async def test_content_types(one: Rpc) -> None:
    body = json.dumps(envelope()).encode()
    for kind in ("text/plain", "text/html", "multipart/form-data", "application/xml", "json", "*"):
        headers = {**V1, "Content-Type": kind}
        response = await one.http.post("/", content=body, headers=headers)
        assert code_of(response, status=415) == CONTENT_TYPE, kind
    for kind in ("application/json; charset=utf-8", "application/a2a+json", "APPLICATION/JSON"):
        headers = {**V1, "Content-Type": kind}
        assert "result" in (await one.http.post("/", content=body, headers=headers)).json(), kind


async def test_versions(one: Rpc) -> None:
    for version in (None, "", "0.3", "99.0", "1", "1.1", "one", "1.0.", "é".encode(), "9" * 5000):
        headers = {} if version is None else {"A2A-Version": version}
        async with httpx.AsyncClient(base_url=one.http.base_url, timeout=60) as http:
            response = await http.post("/", json=envelope(), headers=headers)
            assert code_of(response) == VERSION, version
            assert "1.0" in response.json()["error"]["message"]
            assert "result" in (await http.post("/?A2A-Version=1.0", json=envelope())).json()


# For each method: params that are wrong, and what each is answered with.
GOOD = message("echo x")
HOOK = "https://hooks.test/hook"
BAD_PARAMS: dict[str, list[tuple[Any, int]]] = {
    "SendMessage": [
        (None, PARAMS),
        ({}, PARAMS),
        ({"message": None}, PARAMS),
        ({"message": "hello"}, PARAMS),
        ({"message": {}}, PARAMS),
        ({"message": {**GOOD, "parts": []}}, PARAMS),
        ({"message": {**GOOD, "parts": "x"}}, PARAMS),
        ({"message": {**GOOD, "parts": [{}]}}, PARAMS),
        ({"message": {**GOOD, "parts": [{"text": "a", "url": "b"}]}}, PARAMS),
        ({"message": {**GOOD, "parts": [{"raw": "%%%"}]}}, PARAMS),
        ({"message": {**GOOD, "parts": [{"text": 7}]}}, PARAMS),
        ({"message": {**GOOD, "role": "user"}}, PARAMS),
        ({"message": {**GOOD, "role": 99}}, PARAMS),
        ({"message": {**GOOD, "messageId": ""}}, PARAMS),
        ({"message": {**GOOD, "messageId": 1}}, PARAMS),
        ({"message": {**GOOD, "metadata": []}}, PARAMS),
        ({"message": GOOD, "configuration": []}, PARAMS),
        ({"message": GOOD, "configuration": {"historyLength": -1}}, PARAMS),
        ({"message": GOOD, "configuration": {"historyLength": "many"}}, PARAMS),
        ({"message": GOOD, "configuration": {"historyLength": 2**40}}, PARAMS),
        ({"message": GOOD, "configuration": {"returnImmediately": "soon"}}, PARAMS),
        ({"message": {**GOOD, "taskId": "no such task"}}, NOT_FOUND),
        ({"message": {**GOOD, "taskId": "}{:*?[a]\n\x00"}}, NOT_FOUND),
        ({"message": {**GOOD, "taskId": "x" * 10_000}}, NOT_FOUND),
        ({"message": GOOD, "configuration": {"taskPushNotificationConfig": {}}}, PARAMS),
        ({"message": GOOD, "configuration": {"taskPushNotificationConfig": {"url": "x"}}}, PARAMS),
    ],
    "GetTask": [
        (None, PARAMS),
        ({}, PARAMS),
        ({"id": ""}, PARAMS),
        ({"id": 1}, PARAMS),
        ({"id": None}, PARAMS),
        ({"id": ["a"]}, PARAMS),
        ({"id": "x", "historyLength": -1}, PARAMS),
        ({"id": "x", "historyLength": 1.5}, PARAMS),
        ({"id": "no such task"}, NOT_FOUND),
        ({"id": "../../etc/passwd\x00"}, NOT_FOUND),
        ({"id": "é\u2028" * 1000}, NOT_FOUND),
    ],
    "ListTasks": [
        ({"pageSize": 0}, PARAMS),
        ({"pageSize": -1}, PARAMS),
        ({"pageSize": 101}, PARAMS),
        ({"pageSize": "x"}, PARAMS),
        ({"pageToken": "x"}, PARAMS),
        ({"pageToken": "AAAA"}, PARAMS),
        ({"pageToken": "é" * 1000}, PARAMS),
        ({"pageToken": 1}, PARAMS),
        ({"status": "working"}, PARAMS),
        ({"status": 99}, PARAMS),
        ({"historyLength": -1}, PARAMS),
        ({"statusTimestampAfter": "yesterday"}, PARAMS),
        ({"statusTimestampAfter": "2026-13-01T00:00:00Z"}, PARAMS),
        ({"includeArtifacts": "perhaps"}, PARAMS),
        ({"contextId": {}}, PARAMS),
    ],
    "CancelTask": [
        (None, PARAMS),
        ({"id": ""}, PARAMS),
        ({"id": {}}, PARAMS),
        ({"id": "x", "metadata": "y"}, PARAMS),
        ({"id": "no such task"}, NOT_FOUND),
    ],
    "SubscribeToTask": [
        (None, PARAMS),
        ({"id": ""}, PARAMS),
        ({"id": 7}, PARAMS),
        ({"id": "no such task"}, NOT_FOUND),
    ],
    "CreateTaskPushNotificationConfig": [
        (None, PARAMS),
        ({"taskId": "x"}, PARAMS),
        ({"taskId": "", "url": HOOK}, PARAMS),
        ({"taskId": "x", "url": 1}, PARAMS),
        ({"taskId": "x", "url": "nowhere"}, PARAMS),
        ({"taskId": "x", "url": "file:///etc/passwd"}, PARAMS),
        ({"taskId": "x", "url": HOOK, "authentication": {}}, PARAMS),
        ({"taskId": "x", "pushNotificationConfig": {"url": HOOK}}, PARAMS),
        ({"taskId": "no such task", "url": HOOK}, NOT_FOUND),
    ],
    "GetTaskPushNotificationConfig": [
        (None, PARAMS),
        ({"taskId": "x"}, PARAMS),
        ({"id": "x"}, PARAMS),
        ({"taskId": {}, "id": "x"}, PARAMS),
        ({"taskId": "no such task", "id": "x"}, NOT_FOUND),
    ],
    "ListTaskPushNotificationConfigs": [
        (None, PARAMS),
        ({"taskId": ""}, PARAMS),
        ({"taskId": 1}, PARAMS),
        ({"taskId": "x", "pageSize": "y"}, PARAMS),
        ({"taskId": "no such task"}, NOT_FOUND),
    ],
    "DeleteTaskPushNotificationConfig": [
        (None, PARAMS),
        ({"taskId": "x"}, PARAMS),
        ({"taskId": "x", "id": []}, PARAMS),
        ({"taskId": "no such task", "id": "x"}, NOT_FOUND),
    ],
    "GetExtendedAgentCard": [(None, NO_CARD), ({"x": 1}, NO_CARD), ({"tenant": 1}, PARAMS)],
}
BAD_PARAMS["SendStreamingMessage"] = BAD_PARAMS["SendMessage"]


@pytest.mark.parametrize("method", METHODS)
async def test_params(method: str, one: Rpc, other: Rpc) -> None:
    for number, (params, code) in enumerate(BAD_PARAMS[method]):
        response = await (one, other)[number % 2].post(method, params)
        assert code_of(response) == code, params
    # Violations name the field in the spelling of the wire.
    if (BAD_PARAMS[method][0], method) == ((None, PARAMS), "SendMessage"):
        data = (await one.post(method, {})).json()["error"]["data"]
        assert data[1]["fieldViolations"][0]["field"] == "message"


async def test_lone_surrogates_and_deep_data_are_refused_or_kept(one: Rpc) -> None:
    lone = b'{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":"\\ud800"}}'
    assert code_of(await one.http.post("/", content=lone, headers=JSON)) in (PARSE, PARAMS)
    deep: Any = "end"
    for _ in range(90):
        deep = [deep]
    task = (await one.send("echo x", metadata={"deep": deep, "big": 2**200}))["task"]
    assert task["history"][0]["metadata"] == {"deep": deep, "big": 2**200}
    for _ in range(60):
        deep = [deep]
    params = {"message": message("echo x", metadata={"deep": deep})}
    assert await one.error("SendMessage", params) == PARAMS


async def test_huge_bodies(one: Rpc) -> None:
    huge = b'{"jsonrpc":"2.0","id":1,"method":"ListTasks","params":{"x":"' + b"a" * LIMIT + b'"}}'
    response = await one.http.post("/", content=huge, headers=JSON)
    assert code_of(response, status=413) == REQUEST

    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(LIMIT // 65536 + 2):
            yield b" " * 65536

    # Without a length it is told while it still sends.
    response = await one.http.post("/", content=chunks(), headers=JSON)
    assert code_of(response, status=413) == REQUEST


async def test_a_large_message_is_taken(one: Rpc) -> None:
    text = "a" * 500_000
    assert answer_of((await one.send(f"echo {text}"))["task"]) == text


async def test_other_paths_and_methods_are_refused_in_json(one: Rpc) -> None:
    for verb, path, status in (
        ("GET", "/", 405),
        ("PUT", "/", 405),
        ("DELETE", "/", 405),
        ("POST", "/nothing", 404),
        ("GET", "/docs", 404),
        ("POST", "/openapi.json", 405),
        ("GET", "/%00%ff", 404),
        ("POST", "/livez", 405),
        ("POST", "/.well-known/agent-card.json", 405),
        ("PATCH", "/", 405),
    ):
        response = await one.http.request(verb, path)
        assert response.status_code == status, (verb, path)
        assert response.headers["content-type"] == "application/json"
        assert response.json()["error"]["code"] == status


@pytest.mark.parametrize(
    "raw",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET\r\n\r\n",
        b"BREW / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"POST / HTTP/9.9\r\nHost: x\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: minus\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nA: " + b"a" * 200_000 + b"\r\n\r\n",
        random.Random(7).randbytes(5_000),
    ],
    ids=["tls", "short", "method", "version", "length", "chunks", "header", "noise"],
)
async def test_what_is_no_http_is_closed(raw: bytes, deployed: Deployment) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", deployed.gateways[0].port)
    try:
        async with asyncio.timeout(60):
            writer.write(raw)
            writer.write_eof()
            answer = await reader.read()
    except OSError:  # also where there is no connection any more to tell of an end
        return
    finally:
        writer.transport.abort()
    assert b"500" not in answer.partition(b"\r\n")[0]
    assert b"<html" not in answer.lower()
    assert b"Traceback" not in answer


async def test_half_a_request_holds_up_nobody(deployed: Deployment, one: Rpc) -> None:
    gateway = deployed.gateways[0]
    opened = [await asyncio.open_connection("127.0.0.1", gateway.port) for _ in range(20)]
    try:
        for _, writer in opened:
            writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
        assert answer_of((await one.send("echo through"))["task"]) == "through"
    finally:
        for _, writer in opened:
            writer.transport.abort()
