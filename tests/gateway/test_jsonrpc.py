"""The JSON-RPC skin: whatever is posted gets one well-formed answer, in the order of the checks."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchroom.gateway.context import CallContext
from switchroom.gateway.dispatch import Answer, StreamItem
from switchroom.protocol import errors
from switchroom.protocol.model import Json
from tests.support.gateways import V1, app_of, call, client_of, request, serving

TASK = b'{"id":"t1","contextId":"c1","status":{"state":"TASK_STATE_WORKING"}}'


class TwoMethods:
    """A consumer's handler: two methods are a valid server."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Json | None, CallContext]] = []
        self.answer: Answer = TASK
        self.error: BaseException | None = None

    async def dispatch(self, method: str, params: Json | None, context: CallContext) -> Answer:
        self.calls.append((method, params, context))
        if self.error:
            raise self.error
        match method:
            case "GetTask" | "ListTasks":
                return self.answer
            case _:
                raise errors.MethodNotImplemented()

    @property
    def context(self) -> CallContext:
        return self.calls[-1][2]


@pytest.fixture
def handler() -> TwoMethods:
    return TwoMethods()


@pytest.fixture
async def client(handler: TwoMethods) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(app_of(handler, body_limit=2000)) as client:
        yield client


def fault(response: httpx.Response, *, status: int = 200) -> dict[str, Any]:
    """The error of an answer, whose form is checked."""
    assert response.status_code == status
    assert response.headers["content-type"] == "application/json"
    body = response.json()
    assert set(body) == {"jsonrpc", "id", "error"}
    assert set(body["error"]) == {"code", "message", "data"}
    first = body["error"]["data"][0]
    assert first["@type"] == "type.googleapis.com/google.rpc.ErrorInfo"
    assert "Traceback" not in response.text
    return body["error"]


async def post(client: httpx.AsyncClient, body: Any, **headers: str) -> httpx.Response:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return await client.post(
        "/", content=content, headers={"content-type": "application/json", **V1, **headers}
    )


# -- what goes well


async def test_a_result_is_the_handlers_bytes_in_an_envelope(client: httpx.AsyncClient) -> None:
    response = await call(client, "GetTask", {"id": "t1"})
    assert response.content == b'{"jsonrpc":"2.0","id":1,"result":' + TASK + b"}"
    assert response.headers["a2a-version"] == "1.0"
    assert response.headers["x-content-type-options"] == "nosniff"
    assert "server" not in response.headers


@pytest.mark.parametrize("ident", [0, 7, -1, 2**70, "7", "", 'a"b\n\u2028\U0001f600', None])
async def test_the_id_comes_back_with_its_type(client: httpx.AsyncClient, ident: Any) -> None:
    response = await post(client, request("GetTask", {"id": "t1"}, ident))
    assert response.json()["id"] == ident
    assert type(response.json()["id"]) is type(ident)


async def test_a_request_without_id_is_answered_with_null(client: httpx.AsyncClient) -> None:
    response = await post(client, {"jsonrpc": "2.0", "method": "GetTask", "params": {}})
    assert response.json()["id"] is None
    assert "result" in response.json()


@pytest.mark.parametrize("envelope", [{}, {"params": None}])
async def test_missing_params_and_null_are_the_same(
    client: httpx.AsyncClient, handler: TwoMethods, envelope: dict[str, Any]
) -> None:
    await post(client, {"jsonrpc": "2.0", "id": 1, "method": "ListTasks", **envelope})
    assert handler.calls[0][:2] == ("ListTasks", None)


async def test_the_handler_gets_raw_params(client: httpx.AsyncClient, handler: TwoMethods) -> None:
    params = {"id": "t1", "unknown": [2**63, 1.5, None], "tenant": "acme"}
    await call(client, "GetTask", params)
    assert handler.calls[0][1] == params


async def test_a_none_result_is_an_empty_object(
    client: httpx.AsyncClient, handler: TwoMethods
) -> None:
    handler.answer = None
    assert (await call(client, "GetTask")).json()["result"] == {}


@pytest.mark.parametrize(
    "content_type",
    [
        "application/json",
        "application/json; charset=utf-8",
        "Application/JSON",
        "application/a2a+json",
        "application/vnd.x.y+json;v=1",
    ],
)
async def test_json_by_any_name(client: httpx.AsyncClient, content_type: str) -> None:
    response = await post(client, request("GetTask"), **{"content-type": content_type})
    assert "result" in response.json()


@pytest.mark.parametrize(("encoding", "status"), [("identity", 200), ("gzip", 415), ("br", 415)])
async def test_a_body_comes_as_it_is(client: httpx.AsyncClient, encoding: str, status: int) -> None:
    response = await post(client, request("GetTask"), **{"content-encoding": encoding})
    assert response.status_code == status
    if status == 415:
        assert "Content-Encoding" in fault(response, status=415)["message"]


async def test_no_content_type_is_json(client: httpx.AsyncClient) -> None:
    response = await client.post("/", content=json.dumps(request("GetTask")), headers=V1)
    assert "content-type" not in response.request.headers
    assert "result" in response.json()


# -- the context


async def test_headers_make_the_context(client: httpx.AsyncClient, handler: TwoMethods) -> None:
    await client.post(
        "/",
        json=request("GetTask", {"id": "t", "tenant": "acme"}),
        headers=[
            ("A2A-Version", "1.0.7"),
            ("Idempotency-Key", "k-1"),
            ("Last-Event-ID", "12.ab"),
            ("X-Request-ID", "req-1"),
            ("Traceparent", "00-1-2-03"),
        ],
    )
    context = handler.context
    assert context == CallContext(
        version="1.0",
        tenant="acme",
        last_event_id="12.ab",
        idempotency_key="k-1",
        request_id="req-1",
        trace="00-1-2-03",
    )
    assert context.owner != CallContext(version="1.0").owner


async def test_the_request_id_is_echoed_or_made(client: httpx.AsyncClient) -> None:
    given = await call(client, "GetTask", headers={**V1, "X-Request-ID": "abc-1"})
    assert given.headers["x-request-id"] == "abc-1"
    made = [(await call(client, "GetTask")).headers["x-request-id"] for _ in range(2)]
    assert len(set(made)) == 2
    bad = await call(client, "GetTask", headers={**V1, "X-Request-ID": "a b" * 100})
    assert " " not in bad.headers["x-request-id"]


# -- versions


@pytest.mark.parametrize("version", ["1.0", "1.0.0", "1.0.12", " 1.0 "])
async def test_patch_numbers_do_not_matter(client: httpx.AsyncClient, version: str) -> None:
    assert "result" in (await call(client, "GetTask", headers={"A2A-Version": version})).json()


@pytest.mark.parametrize("query", ["A2A-Version=1.0", "x=1&a2a-version=1.0.1"])
async def test_the_query_may_name_the_version(client: httpx.AsyncClient, query: str) -> None:
    response = await client.post(f"/?{query}", json=request("GetTask"))
    assert "result" in response.json()
    assert response.headers["a2a-version"] == "1.0"


@pytest.mark.parametrize("version", ["", "0.3", "0.3.0", "1.1", "2.0", "99.0", "1", "x", "v1.0"])
async def test_other_versions_are_refused_with_what_to_send(
    client: httpx.AsyncClient, handler: TwoMethods, version: str
) -> None:
    response = await call(client, "GetTask", headers={"A2A-Version": version})
    error = fault(response)
    assert error["code"] == -32009
    assert 'send the header "A2A-Version: 1.0"' in error["message"]
    assert error["data"][0]["reason"] == "VERSION_NOT_SUPPORTED"
    assert error["data"][0]["metadata"]["supportedVersions"] == "0.3,1.0"
    assert response.json()["id"] == 1
    assert not handler.calls


async def test_no_version_is_0_3(client: httpx.AsyncClient) -> None:
    response = await client.post("/", json=request("GetTask"))
    assert fault(response)["code"] == -32009


async def test_the_header_wins_over_the_query(client: httpx.AsyncClient) -> None:
    response = await client.post(
        "/?A2A-Version=1.0", json=request("GetTask"), headers={"A2A-Version": "99.0"}
    )
    assert fault(response)["code"] == -32009


# -- bad input

DEEP = 100_000
NOT_JSON = [
    b"",
    b" ",
    b"{",
    b"nonsense",
    b"\xff\xfe",
    b"\xef\xbb\xbf{}",
    b"{} {}",
    b"[" * 1500,
    b'{"a":' * 300,
    b'{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"x":NaN}}',
    b'{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"x":[-Infinity]}}',
    b'{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"x":[{"y":1e999}]}}',
    b'{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"x":"\\ud800"}}',
    b'{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"x":"\\udc00 \\ud800"}}',
    b'{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"x":"\xed\xa0\x80"}}',
]


@pytest.mark.parametrize("body", NOT_JSON)
async def test_what_is_not_json(
    client: httpx.AsyncClient, handler: TwoMethods, body: bytes
) -> None:
    response = await post(client, body)
    assert fault(response)["code"] == -32700
    assert response.json()["id"] is None
    assert not handler.calls


async def test_numbers_and_depth_beyond_the_parser(handler: TwoMethods) -> None:
    async with client_of(app_of(handler)) as client:
        for body in (b"1" * DEEP, b"[" * DEEP, b'{"a":' * DEEP):
            assert fault(await post(client, body))["code"] == -32700


@pytest.mark.parametrize("body", [[], [request("GetTask")], 1, "GetTask", None, True, 1.5])
async def test_batches_and_other_json_are_no_request(client: httpx.AsyncClient, body: Any) -> None:
    response = await post(client, body)
    assert fault(response)["code"] == -32600
    assert response.json()["id"] is None


@pytest.mark.parametrize("ident", [True, False, 1.0, 1.5, [], [1], {}, {"a": 1}])
async def test_an_id_of_another_type(client: httpx.AsyncClient, ident: Any) -> None:
    response = await post(client, request("GetTask", {}, ident))
    assert fault(response)["code"] == -32600
    assert response.json()["id"] is None


@pytest.mark.parametrize(
    "envelope",
    [
        {"jsonrpc": "1.0", "method": "GetTask"},
        {"jsonrpc": 2.0, "method": "GetTask"},
        {"method": "GetTask"},
        {"jsonrpc": "2.0"},
        {"jsonrpc": "2.0", "method": None},
        {"jsonrpc": "2.0", "method": 7},
        {"jsonrpc": "2.0", "method": ["GetTask"]},
    ],
)
async def test_a_wrong_envelope_keeps_its_id(
    client: httpx.AsyncClient, envelope: dict[str, Any]
) -> None:
    response = await post(client, {"id": "x", **envelope})
    assert fault(response)["code"] == -32600
    assert response.json()["id"] == "x"


@pytest.mark.parametrize("method", ["", "getTask", "tasks/get", "message/send", "x" * 1000])
async def test_unknown_methods(client: httpx.AsyncClient, handler: TwoMethods, method: str) -> None:
    error = fault(await call(client, method, []))
    assert (error["code"], error["message"]) == (-32601, "Method not found")
    assert not handler.calls


async def test_a_method_that_the_handler_leaves_out(client: httpx.AsyncClient) -> None:
    error = fault(await call(client, "CancelTask", {"id": "t1"}))
    assert error["code"] == -32601
    assert error["message"] == errors.MethodNotImplemented.message
    assert error["data"][0]["reason"] == "METHOD_NOT_IMPLEMENTED"


@pytest.mark.parametrize("params", [[], ["t1"], "t1", 1, True])
async def test_params_are_an_object(
    client: httpx.AsyncClient, handler: TwoMethods, params: Any
) -> None:
    assert fault(await call(client, "GetTask", params))["code"] == -32602
    assert not handler.calls


async def test_a_tenant_is_a_string(client: httpx.AsyncClient) -> None:
    error = fault(await call(client, "GetTask", {"tenant": 1}))
    assert error["code"] == -32602
    assert error["data"][1]["fieldViolations"][0]["field"] == "tenant"


@pytest.mark.parametrize("content_type", ["text/plain", "application/xml", "json", "a/b+json"])
async def test_another_content_type_is_refused_before_parsing(
    client: httpx.AsyncClient, content_type: str
) -> None:
    response = await post(client, b"not json", **{"content-type": content_type})
    error = fault(response, status=415)
    assert (error["code"], error["message"]) == (-32005, errors.MediaTypeNotSupported.message)


async def test_too_large_by_its_length(client: httpx.AsyncClient, handler: TwoMethods) -> None:
    assert (
        "result" in (await post(client, json.dumps(request("GetTask")).ljust(2000).encode())).json()
    )
    response = await post(client, b" " * 2001, **{"content-type": "text/plain"})
    assert fault(response, status=413)["code"] == -32600
    assert len(handler.calls) == 1


async def test_too_large_while_it_comes(client: httpx.AsyncClient) -> None:
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        while True:
            sent += 1
            yield b" " * 500

    response = await client.post("/", content=endless(), headers=V1)
    assert fault(response, status=413)["data"][0]["reason"] == "PAYLOAD_TOO_LARGE"
    assert sent == 5


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
async def test_any_bytes_get_a_json_rpc_error(body: bytes) -> None:
    async with client_of(app_of(TwoMethods())) as client:
        assert fault(await post(client, body))["code"] in (-32700, -32600)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "jsonrpc": st.just("2.0") | JSON,
            "id": JSON,
            "method": st.sampled_from(["GetTask", "SendMessage"]) | JSON,
            "params": JSON,
        },
    )
)
async def test_any_envelope_gets_an_answer(envelope: dict[str, Any]) -> None:
    async with client_of(app_of(TwoMethods())) as client:
        response = await post(client, json.dumps(envelope, ensure_ascii=True).encode())
        if "result" not in response.json():
            assert fault(response)["code"] in (-32700, -32600, -32601, -32602)


# -- errors of the handler


@pytest.mark.parametrize("kind", errors.ERRORS)
async def test_every_error_has_its_code_and_status(
    client: httpx.AsyncClient, handler: TwoMethods, kind: type[errors.A2AError]
) -> None:
    handler.error = kind(metadata={"allowed": "GET"}, violations=[("a.b", "is wrong")])
    status = kind.http if kind.edge else 200
    response = await call(client, "GetTask")
    error = fault(response, status=status)
    assert (error["code"], error["message"]) == (kind.code, str(handler.error))
    assert error["data"] == handler.error.data()
    assert response.json()["id"] == 1


async def test_what_else_the_statuses_demand(
    client: httpx.AsyncClient, handler: TwoMethods
) -> None:
    handler.error = errors.Unauthenticated()
    assert (await call(client, "GetTask")).headers["www-authenticate"] == 'Bearer realm="a2a"'
    handler.error = errors.Unavailable(retry_after=1.2)
    assert (await call(client, "GetTask")).headers["retry-after"] == "2"
    handler.error = errors.RateLimited()
    assert (await call(client, "GetTask")).headers["retry-after"] == "1"


async def test_any_other_failure_is_told_by_an_id(
    client: httpx.AsyncClient, handler: TwoMethods, caplog: pytest.LogCaptureFixture
) -> None:
    handler.error = RuntimeError("the password is 1234")
    response = await call(client, "GetTask", headers={**V1, "X-Request-ID": "req-9"})
    error = fault(response)
    assert (error["code"], error["message"]) == (-32603, "Internal error")
    assert "1234" not in response.text
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert error["data"][0]["metadata"]["id"] in record.message
    assert "req-9" in record.message
    assert record.exc_info and record.exc_info[1] is handler.error


async def test_a_cancelled_error_of_the_handlers_own(
    client: httpx.AsyncClient, handler: TwoMethods
) -> None:
    handler.error = asyncio.CancelledError()
    assert fault(await call(client, "GetTask"))["code"] == -32603


async def test_a_stream_that_nobody_asked_for(
    client: httpx.AsyncClient, handler: TwoMethods, caplog: pytest.LogCaptureFixture
) -> None:
    closed = False

    async def stream() -> AsyncIterator[StreamItem]:
        nonlocal closed
        try:
            yield StreamItem(TASK)
        finally:
            closed = True

    handler.answer = stream()
    assert fault(await call(client, "GetTask"))["code"] == -32603
    assert "not a result" in caplog.text


@pytest.mark.parametrize("answer", [7, "text", [TASK], {"a": object()}, {"a": "\ud800"}])
async def test_an_answer_that_is_no_json_object(
    client: httpx.AsyncClient, handler: TwoMethods, answer: Any
) -> None:
    handler.answer = answer
    assert fault(await call(client, "GetTask"))["code"] == -32603


# -- over a real server


async def test_bodies_beyond_the_limit_are_refused_and_the_next_call_works(
    handler: TwoMethods,
) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(200):
            yield b" " * 100_000

    async with (
        serving(app_of(handler, body_limit=1_000_000)) as url,
        httpx.AsyncClient(base_url=url) as client,
    ):
        for body in (b" " * 20_000_000, chunks()):
            response = await client.post("/", content=body, headers=V1)
            assert fault(response, status=413)["code"] == -32600
            assert "server" not in response.headers
            assert (await call(client, "GetTask")).status_code == 200


async def test_a_client_that_leaves_in_the_middle_of_its_body(handler: TwoMethods) -> None:
    async with serving(app_of(handler)) as url, httpx.AsyncClient(base_url=url) as client:
        host, port = url.removeprefix("http://").split(":")
        _, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
        await writer.drain()
        writer.close()
        await writer.wait_closed()
        assert (await call(client, "GetTask")).status_code == 200
    assert len(handler.calls) == 1


# -- other paths and verbs


@pytest.mark.parametrize("verb", ["GET", "PUT", "DELETE", "OPTIONS", "PATCH"])
async def test_only_post(client: httpx.AsyncClient, verb: str) -> None:
    response = await client.request(verb, "/")
    assert response.status_code == 405
    assert response.headers["allow"] == "POST"
    assert response.json()["error"]["code"] == 405


@pytest.mark.parametrize("path", ["/nothing", "/docs", "/redoc", "/livez/"])
async def test_unknown_paths(client: httpx.AsyncClient, path: str) -> None:
    response = await client.get(path)
    assert response.status_code == 404
    assert response.json()["error"]["status"] == "NOT_FOUND"
    assert response.headers["x-content-type-options"] == "nosniff"
