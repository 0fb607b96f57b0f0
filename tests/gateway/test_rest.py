"""The HTTP+JSON skin of 1.0: paths, verbs, queries, statuses and bodies as §11 has them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from pydantic import Field
from starlette.applications import Starlette
from starlette.routing import Mount

from switchroom.gateway.context import CallContext
from switchroom.gateway.dispatch import Answer, StreamItem
from switchroom.gateway.query import queried
from switchroom.protocol import errors
from switchroom.protocol.methods import METHODS
from switchroom.protocol.model import Json
from switchroom.protocol.params import decode
from switchroom.protocol.protojson import Array, Flag, Model, Text
from tests.support.gateways import V1, app_of, card_of, client_of, serving

TASK = b'{"id":"t1","contextId":"c1","status":{"state":"TASK_STATE_WORKING"}}'
EVENT = b'{"task":' + TASK + b"}"


class Recording:
    """Answers every method of the table, once its params are what it takes."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Json | None, CallContext]] = []
        self.answer: Answer = TASK
        self.error: BaseException | None = None
        self.breaks: BaseException | None = None

    async def dispatch(self, method: str, params: Json | None, context: CallContext) -> Answer:
        self.calls.append((method, params, context))
        decode(METHODS[method].params, params)
        if self.error:
            raise self.error
        return self._events() if METHODS[method].stream else self.answer

    async def _events(self) -> AsyncIterator[StreamItem]:
        yield StreamItem(EVENT, "1.a")
        if self.breaks:
            raise self.breaks
        yield StreamItem(b'{"statusUpdate":\n{}}', "2.a")

    @property
    def asked(self) -> tuple[str, Json | None]:
        return self.calls[-1][:2]


@pytest.fixture
def handler() -> Recording:
    return Recording()


@pytest.fixture
def app(handler: Recording) -> FastAPI:
    return app_of(handler, body_limit=2000)


@pytest.fixture
async def client(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(app) as client:
        client.headers.update(V1)
        yield client


MESSAGE = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]}
CONFIG = {"url": "https://hook.test/"}

# For each method: verb, path, body; and the params that they mean.
CALLS: list[tuple[str, str, str, Any, Json]] = [
    ("SendMessage", "POST", "/message:send", {"message": MESSAGE}, {"message": MESSAGE}),
    ("SendStreamingMessage", "POST", "/message:stream", {"message": MESSAGE}, {"message": MESSAGE}),
    ("GetTask", "GET", "/tasks/t1", None, {"id": "t1"}),
    ("ListTasks", "GET", "/tasks", None, {}),
    ("CancelTask", "POST", "/tasks/t1:cancel", {"metadata": {}}, {"id": "t1", "metadata": {}}),
    ("SubscribeToTask", "POST", "/tasks/t1:subscribe", None, {"id": "t1"}),
    ("SubscribeToTask", "GET", "/tasks/t1:subscribe", None, {"id": "t1"}),
    (
        "CreateTaskPushNotificationConfig",
        "POST",
        "/tasks/t1/pushNotificationConfigs",
        CONFIG,
        {"taskId": "t1", **CONFIG},
    ),
    (
        "GetTaskPushNotificationConfig",
        "GET",
        "/tasks/t1/pushNotificationConfigs/c1",
        None,
        {"taskId": "t1", "id": "c1"},
    ),
    (
        "ListTaskPushNotificationConfigs",
        "GET",
        "/tasks/t1/pushNotificationConfigs",
        None,
        {"taskId": "t1"},
    ),
    (
        "DeleteTaskPushNotificationConfig",
        "DELETE",
        "/tasks/t1/pushNotificationConfigs/c1",
        None,
        {"taskId": "t1", "id": "c1"},
    ),
    ("GetExtendedAgentCard", "GET", "/extendedAgentCard", None, {}),
]


def fault(response: httpx.Response, *, status: int) -> dict[str, Any]:
    """The error of an answer, whose form is checked (§11.6)."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    assert response.headers["x-content-type-options"] == "nosniff"
    assert set(response.json()) == {"error"}
    error: dict[str, Any] = response.json()["error"]
    assert set(error) == {"code", "status", "message", "details"}
    assert error["code"] == status
    assert error["details"][0]["@type"] == "type.googleapis.com/google.rpc.ErrorInfo"
    return error


def reason(response: httpx.Response, *, status: int) -> str:
    return str(fault(response, status=status)["details"][0]["reason"])


# -- the operations


def test_the_calls_are_all_operations() -> None:
    assert {call[0] for call in CALLS} == set(METHODS)


@pytest.mark.parametrize("tenant", ["", "acme"])
@pytest.mark.parametrize(("method", "verb", "path", "body", "params"), CALLS)
async def test_an_operation_by_its_path_and_verb(
    client: httpx.AsyncClient,
    handler: Recording,
    method: str,
    verb: str,
    path: str,
    body: Any,
    params: Json,
    tenant: str,
) -> None:
    prefix = f"/{tenant}" if tenant else ""
    response = await client.request(verb, prefix + path, json=body)
    assert response.status_code == 200, response.text
    assert handler.asked == (method, {**params, **({"tenant": tenant} if tenant else {})})
    context = handler.calls[-1][2]
    assert (context.version, context.tenant) == ("1.0", tenant)
    assert response.headers["a2a-version"] == "1.0"
    assert response.headers["x-request-id"] == context.request_id
    if METHODS[method].stream:
        assert response.headers["content-type"] == "text/event-stream"
        assert response.content == (
            b"id: 1.a\ndata: " + EVENT + b'\n\nid: 2.a\ndata: {"statusUpdate": {}}\n\n'
        )
    else:
        assert response.content == TASK
        assert response.headers["cache-control"] == "no-store"


async def test_deleting_is_answered_with_an_empty_object(
    client: httpx.AsyncClient, handler: Recording
) -> None:
    handler.answer = None
    response = await client.delete("/tasks/t1/pushNotificationConfigs/c1")
    assert (response.status_code, response.content) == (200, b"{}")


@pytest.mark.parametrize(
    ("query", "params"),
    [
        ("contextId=a%20b%26&pageToken=x%2By", {"contextId": "a b&", "pageToken": "x+y"}),
        ("status=TASK_STATE_WORKING", {"status": "TASK_STATE_WORKING"}),
        ("status=", {"status": ""}),
        ("pageSize=7&historyLength=0", {"pageSize": "7", "historyLength": "0"}),
        ("includeArtifacts=true", {"includeArtifacts": True}),
        ("includeArtifacts=false", {"includeArtifacts": False}),
        (
            "statusTimestampAfter=2026-01-02T03:04:05%2B01:00",
            {"statusTimestampAfter": "2026-01-02T03:04:05+01:00"},
        ),
        ("contextId=%C3%A9", {"contextId": "é"}),
        ("contextId=a&contextId=b", {"contextId": "b"}),
        ("unknown=1&page_size=x&A2A-Version=1.0", {}),
        ("tenant=acme", {"tenant": "acme"}),
        ("", {}),
    ],
)
async def test_a_query_names_fields(
    client: httpx.AsyncClient, handler: Recording, query: str, params: Json
) -> None:
    response = await client.get(f"/tasks?{query}")
    assert response.status_code == 200, response.text
    assert handler.asked == ("ListTasks", params)


@pytest.mark.parametrize(
    "query",
    [
        "pageSize=many",
        "pageSize=",
        "pageSize=1.5",
        "pageSize=0",
        "pageSize=101",
        "pageSize=99999999999999999999",
        "historyLength=-1",
        "historyLength=" + "9" * 5000,
        "includeArtifacts=yes",
        "includeArtifacts=True",
        "includeArtifacts=",
        "status=working",
        "statusTimestampAfter=yesterday",
        "statusTimestampAfter=2026-01-02T03:04:05",
        "contextId=%ff",
        "contextId=%ed%a0%80",
    ],
)
async def test_a_bad_query_value(client: httpx.AsyncClient, query: str) -> None:
    error = fault(await client.get(f"/tasks?{query}"), status=400)
    assert error["status"] == "INVALID_ARGUMENT"
    assert error["details"][0]["reason"] == "INVALID_PARAMS"
    if "%" not in query:
        assert error["details"][1]["fieldViolations"][0]["field"] == query.partition("=")[0]


class Search(Model):
    """Params with a repeated field, which no method of the table has."""

    tags: Array[Text] = Field(default_factory=list)
    deep_only: Flag | None = None


def test_repeated_fields_are_repeated_or_listed() -> None:
    assert queried(Search, b"tags=a&tags=b,c&deepOnly=true") == {
        "tags": ["a", "b", "c"],
        "deepOnly": True,
    }
    assert queried(Search, b"deep_only=true") == {}
    assert queried(Search, b"deep_only=true", proto=True) == {"deep_only": True}


@pytest.mark.parametrize(
    ("segment", "ident"),
    [
        ("a:b", "a:b"),
        ("a%3Acancel", "a:cancel"),
        ("a%2Fb", "a/b"),
        ("%C3%A9%20x", "é x"),
        ("a%00b", "a\0b"),
        ("...", "..."),
        ("cancel", "cancel"),
        ("tasks", "tasks"),
        ("x" * 3000, "x" * 3000),
    ],
)
async def test_an_id_is_what_its_segment_encodes(
    client: httpx.AsyncClient, handler: Recording, segment: str, ident: str
) -> None:
    assert (await client.get(f"/tasks/{segment}")).status_code == 200
    assert handler.asked == ("GetTask", {"id": ident})
    await client.post(f"/tasks/{segment}:cancel")
    assert handler.asked == ("CancelTask", {"id": ident})


async def test_the_path_wins_over_the_body(client: httpx.AsyncClient, handler: Recording) -> None:
    await client.post("/tasks/t1:cancel", json={"id": "other"})
    assert handler.asked[1] == {"id": "t1"}
    body = {"taskId": "other", "task_id": "another", **CONFIG}
    await client.post("/tasks/t1/pushNotificationConfigs", json=body)
    asked = decode(METHODS["CreateTaskPushNotificationConfig"].params, handler.asked[1])
    assert asked.to_dict()["taskId"] == "t1"


# -- tenants


async def test_a_tenant_in_path_and_body_must_agree(
    client: httpx.AsyncClient, handler: Recording
) -> None:
    for said in ("acme", "", None):
        body = {"message": MESSAGE, "tenant": said}
        assert (await client.post("/acme/message:send", json=body)).status_code == 200
        assert handler.calls[-1][2].tenant == "acme"
    for other in ("other", 1, {}):
        response = await client.post("/acme/message:send", json={"tenant": other})
        assert reason(response, status=400) == "INVALID_PARAMS"
    assert reason(await client.get("/acme/tasks?tenant=other"), status=400) == "INVALID_PARAMS"
    assert len(handler.calls) == 3


async def test_a_tenant_without_a_path_of_its_own(
    client: httpx.AsyncClient, handler: Recording
) -> None:
    await client.post("/message:send", json={"message": MESSAGE, "tenant": "acme"})
    assert handler.calls[-1][2].tenant == "acme"


async def test_0_3_has_no_tenants(client: httpx.AsyncClient, handler: Recording) -> None:
    client.headers["A2A-Version"] = "0.3"
    await client.get("/v1/tasks/t1:subscribe?tenant=acme")
    await client.post("/v1/tasks/t1:cancel", json={"tenant": "acme"})
    assert [call[0] for call in handler.calls] == ["SubscribeToTask", "CancelTask"]
    assert {call[2].tenant for call in handler.calls} == {""}
    assert (await client.get("/acme/v1/tasks/t1")).status_code == 404


@pytest.mark.parametrize(
    "path", ["/v1/tasks/x/y", "/tasks/tasks/x", "/extendedAgentCard/tasks", "/message:send/tasks"]
)
async def test_no_tenant_is_called_as_a_path_begins(
    client: httpx.AsyncClient, handler: Recording, path: str
) -> None:
    assert reason(await client.get(path), status=404) == "METHOD_NOT_FOUND"
    assert not handler.calls


# -- media types


@pytest.mark.parametrize(
    ("headers", "answered"),
    [
        ({"content-type": "application/json"}, "application/json"),
        ({"content-type": "application/json; charset=utf-8"}, "application/json"),
        ({"content-type": "application/a2a+json"}, "application/a2a+json"),
        ({}, "application/a2a+json"),
        ({"accept": "application/json"}, "application/json"),
        ({"accept": "application/json, text/event-stream"}, "application/json"),
        ({"accept": "application/a2a+json, application/json"}, "application/a2a+json"),
        (
            {"content-type": "application/json", "accept": "application/a2a+json"},
            "application/a2a+json",
        ),
        ({"accept": "text/html"}, "application/a2a+json"),
    ],
)
async def test_the_answer_mirrors_the_request(
    client: httpx.AsyncClient, headers: dict[str, str], answered: str
) -> None:
    body = json.dumps({"message": MESSAGE})
    response = await client.post("/message:send", content=body, headers=headers)
    assert (response.status_code, response.headers["content-type"]) == (200, answered)


@pytest.mark.parametrize("table", ["1.0.1", "1.0.0"])
async def test_another_content_type_is_refused_before_parsing(
    handler: Recording, table: str
) -> None:
    async with client_of(app_of(handler, error_table=table)) as client:
        response = await client.post(
            "/message:send", content=b"not json", headers={**V1, "content-type": "text/plain"}
        )
    assert reason(response, status=415) == "CONTENT_TYPE_NOT_SUPPORTED"
    assert not handler.calls


# -- errors


@pytest.mark.parametrize("table", ["1.0.1", "1.0.0"])
@pytest.mark.parametrize("kind", errors.ERRORS)
async def test_every_error_has_the_statuses_of_the_table(
    handler: Recording, kind: type[errors.A2AError], table: errors.ErrorTable
) -> None:
    handler.error = kind(metadata={"allowed": "GET"}, violations=[("a.b", "is wrong")])
    async with client_of(app_of(handler, error_table=table)) as client:
        response = await client.get("/tasks/t1", headers=V1)
    http, status = kind().statuses(table)
    error = fault(response, status=http)
    assert (error["status"], error["message"]) == (status, str(handler.error))
    assert error["details"] == handler.error.data()


async def test_what_else_the_statuses_demand(client: httpx.AsyncClient, handler: Recording) -> None:
    handler.error = errors.Unauthenticated()
    response = await client.get("/tasks/t1")
    assert response.headers["www-authenticate"] == 'Bearer realm="a2a"'
    handler.error = errors.Unavailable(retry_after=1.2)
    assert (await client.get("/tasks/t1")).headers["retry-after"] == "2"


async def test_any_other_failure_is_told_by_an_id(
    client: httpx.AsyncClient, handler: Recording, caplog: pytest.LogCaptureFixture
) -> None:
    handler.error = RuntimeError("the password is 1234")
    response = await client.get("/tasks/t1")
    error = fault(response, status=500)
    assert "1234" not in response.text
    assert error["details"][0]["metadata"]["id"] in caplog.text


@pytest.mark.parametrize(
    ("body", "reason_"),
    [
        (b"{", "INVALID_REQUEST"),
        (b"nonsense", "INVALID_REQUEST"),
        (b"\xff", "INVALID_REQUEST"),
        (b"[]", "INVALID_REQUEST"),
        (b"7", "INVALID_REQUEST"),
        (b'{"message":1e999}', "INVALID_REQUEST"),
        (b'{"message":"\\ud800"}', "INVALID_REQUEST"),
        (b"[" * 1900, "INVALID_REQUEST"),
        (b"", "INVALID_PARAMS"),
        (b"{}", "INVALID_PARAMS"),
        (b'{"message":{"messageId":"m","role":"user","parts":[]}}', "INVALID_PARAMS"),
    ],
)
async def test_a_bad_body(client: httpx.AsyncClient, body: bytes, reason_: str) -> None:
    response = await client.post("/message:send", content=body)
    assert reason(response, status=400) == reason_


async def test_too_large(client: httpx.AsyncClient, handler: Recording) -> None:
    response = await client.post("/message:send", content=b" " * 2001)
    assert reason(response, status=413) == "PAYLOAD_TOO_LARGE"
    assert not handler.calls


@pytest.mark.parametrize(
    "path",
    [
        "/nothing",
        "/tasks/",
        "/tasks//x",
        "/tasks/:cancel",
        "/tasks//pushNotificationConfigs",
        "/a/b/tasks",
        "/message%3Asend",
        "/tasks/x/pushNotificationConfigs/",
        "/tasks/x/pushNotificationConfigs/y/z",
        "/tasks/%ff",
        "/tasks/%ed%a0%80",
        "/%00%ff",
        "/Tasks",
    ],
)
async def test_an_unknown_path(client: httpx.AsyncClient, handler: Recording, path: str) -> None:
    response = await client.get(path)
    assert reason(response, status=404) == "METHOD_NOT_FOUND"
    assert not handler.calls


@pytest.mark.parametrize(
    ("verb", "path", "allowed"),
    [
        ("GET", "/message:send", "POST"),
        ("PUT", "/message:stream", "POST"),
        ("POST", "/tasks", "GET"),
        ("HEAD", "/tasks", "GET"),
        ("DELETE", "/tasks/x", "GET"),
        ("GET", "/acme/tasks/x:cancel", "POST"),
        ("DELETE", "/tasks/x:subscribe", "GET, POST"),
        ("PATCH", "/tasks/x/pushNotificationConfigs", "POST, GET"),
        ("POST", "/tasks/x/pushNotificationConfigs/y", "GET, DELETE"),
        ("X" * 1000, "/extendedAgentCard", "GET"),
    ],
)
async def test_a_wrong_verb(
    client: httpx.AsyncClient, handler: Recording, verb: str, path: str, allowed: str
) -> None:
    response = await client.request(verb, path)
    assert response.headers["allow"] == allowed
    if verb != "HEAD":
        assert reason(response, status=405) == "VERB_NOT_ALLOWED"
    assert not handler.calls


# -- streams


async def test_a_stream_that_cannot_begin_has_a_status(
    client: httpx.AsyncClient, handler: Recording
) -> None:
    for error in (errors.TaskNotFound(), errors.UnsupportedOperation()):
        handler.error = error
        response = await client.post("/tasks/t1:subscribe")
        assert reason(response, status=error.http) == error.reason


async def test_a_stream_that_breaks_ends_with_an_error_event(
    client: httpx.AsyncClient, handler: Recording
) -> None:
    handler.breaks = errors.InvalidAgentResponse()
    response = await client.post("/tasks/t1:subscribe")
    first, last = response.text.removesuffix("\n\n").split("\n\n")
    assert first.startswith("id: 1.a\ndata: ")
    name, data = last.split("\n")
    assert name == "event: error"
    error = json.loads(data.removeprefix("data: "))["error"]
    assert (error["code"], error["status"]) == (500, "INTERNAL")
    assert error["details"][0]["reason"] == "INVALID_AGENT_RESPONSE"


@pytest.mark.parametrize(
    ("method", "verb", "path", "body", "params"),
    [call for call in CALLS if METHODS[call[0]].needs],
)
async def test_what_the_card_does_not_offer_is_refused_before_any_work(
    handler: Recording, method: str, verb: str, path: str, body: Any, params: Json
) -> None:
    async with client_of(app_of(handler, card=card_of())) as client:
        response = await client.request(verb, path, json=body, headers=V1)
    expected = (
        errors.PushNotificationNotSupported
        if METHODS[method].needs == "push_notifications"
        else errors.UnsupportedOperation
    )
    assert reason(response, status=400) == expected.reason
    assert not handler.calls


async def test_a_client_that_leaves_ends_its_stream_and_the_server_serves_on(
    handler: Recording,
) -> None:
    left = asyncio.Event()

    async def endless() -> AsyncIterator[StreamItem]:
        try:
            yield StreamItem(EVENT)
            await asyncio.Event().wait()
        finally:
            left.set()

    handler._events = endless  # type: ignore[method-assign]
    async with serving(app_of(handler)) as url, httpx.AsyncClient(base_url=url) as client:
        async with client.stream("GET", "/tasks/t1:subscribe?A2A-Version=1.0") as response:
            assert await anext(response.aiter_lines()) == "data: " + EVENT.decode()
        await left.wait()
        assert (await client.get("/tasks/a%2Fb", headers=V1)).status_code == 200
        assert handler.asked == ("GetTask", {"id": "a/b"})


# -- within another application


async def test_below_a_mount_and_with_middleware(handler: Recording) -> None:
    inner = app_of(handler)
    seen = []

    @inner.middleware("http")
    async def note(request: Any, call_next: Any) -> Any:
        seen.append(request.url.path)
        return await call_next(request)

    outer = Starlette(routes=[Mount("/a b", inner)])
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(outer), base_url="http://gateway.test"
    ) as client:
        assert (await client.get("/a%20b/tasks/x%2Fy", headers=V1)).status_code == 200
        assert handler.asked == ("GetTask", {"id": "x/y"})
        assert (await client.post("/a%20b/tasks", headers=V1)).status_code == 405
        assert (await client.get("/a%20b/nothing", headers=V1)).status_code == 404
    assert len(seen) == 3


async def test_a_server_that_gives_no_raw_path(app: FastAPI, handler: Recording) -> None:
    answers: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b""}

    async def send(message: Any) -> None:
        answers.append(message)

    scope = {
        "type": "http",
        "method": "GET",
        "path": "/tasks/é x",
        "query_string": b"",
        "headers": [(b"a2a-version", b"1.0")],
    }
    await app(scope, receive, send)
    assert answers[0]["status"] == 200
    assert handler.asked == ("GetTask", {"id": "é x"})
