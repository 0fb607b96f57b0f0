"""Which version a request speaks, on both bindings, and what settings change about it (§3.6)."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from switchroom.gateway.context import CallContext
from switchroom.gateway.dispatch import Answer
from switchroom.protocol.model import Json
from tests.support.gateways import app_of, client_of, request

TASK = b'{"id":"t1","contextId":"c1","status":{"state":"TASK_STATE_WORKING"}}'
BOTH, ONE = ("0.3", "1.0"), ("1.0",)
UNSUPPORTED = -32009


class Versions:
    """Notes the version of each call that reaches it."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    async def dispatch(self, method: str, params: Json | None, context: CallContext) -> Answer:
        self.seen.append(context.version)
        return TASK


async def ask(
    path: str, version: str | None, body: Any = None, /, **settings: Any
) -> tuple[httpx.Response, list[str]]:
    """The answer, and the versions that reached the handler: GET, or POST of a body."""
    handler = Versions()
    async with client_of(app_of(handler, **settings)) as client:
        headers = {} if version is None else {"A2A-Version": version}
        verb = "GET" if body is None else "POST"
        response = await client.request(verb, path, json=body, headers=headers)
    return response, handler.seen


async def rpc(version: str | None, method: str, /, query: str = "", **settings: Any) -> Any:
    """The version that was spoken, or the code of the error."""
    params = {"id": "t1"}
    response, seen = await ask(f"/{query}", version, request(method, params), **settings)
    assert response.status_code == 200
    if "error" in (answer := response.json()):
        assert not seen
        return answer["error"]["code"]
    assert seen == [response.headers["a2a-version"]]
    return seen[0]


async def rest(version: str | None, path: str = "/tasks/t1", **settings: Any) -> Any:
    """The version that was spoken, or the reason of the error."""
    response, seen = await ask(path, version, **settings)
    if response.status_code != 200:
        assert not seen
        assert response.status_code in (400, 404)
        body = response.json()
        # 0.3 tells its errors in an object of another shape.
        details = body["data"] if "data" in body else body["error"]["details"]
        return details[0]["reason"]
    assert seen == [response.headers["a2a-version"]]
    return seen[0]


@pytest.mark.parametrize(
    ("version", "one", "three"),
    [
        ("1.0", "1.0", -32601),
        ("1.0.1", "1.0", -32601),
        (" 1.0 ", "1.0", -32601),
        ("0.3", UNSUPPORTED, "0.3"),
        ("0.3.0", UNSUPPORTED, "0.3"),
        ("", UNSUPPORTED, "0.3"),
        (None, UNSUPPORTED, "0.3"),
        *((v, UNSUPPORTED, UNSUPPORTED) for v in ("1.1", "0.2", "2.0", "99.0", "1", "x", "1.0-b")),
    ],
)
async def test_a_header_and_what_it_chooses(version: str | None, one: Any, three: Any) -> None:
    assert await rpc(version, "GetTask") == one
    assert await rpc(version, "tasks/get") == three
    over_rest = {UNSUPPORTED: "VERSION_NOT_SUPPORTED", -32601: "VERSION_NOT_SUPPORTED"}
    assert await rest(version, "/tasks/t1") == over_rest.get(one, one)
    assert await rest(version, "/v1/tasks/t1") == over_rest.get(three, three)


async def test_the_query_is_as_good_as_a_header_which_wins() -> None:
    assert await rpc(None, "GetTask", query="?A2A-Version=1.0") == "1.0"
    assert await rpc("", "GetTask", query="?x=1&a2a-version=1.0.9") == "1.0"
    assert await rpc("99.0", "GetTask", query="?A2A-Version=1.0") == UNSUPPORTED
    assert await rest(None, "/tasks/t1?A2A-Version=1.0") == "1.0"
    assert await rest("99.0", "/tasks/t1?A2A-Version=1.0") == "VERSION_NOT_SUPPORTED"


async def test_the_error_names_what_to_send() -> None:
    for version, method in ((None, "GetTask"), ("99.0", "GetTask"), ("99.0", "tasks/get")):
        response, _ = await ask("/", version, request(method, {"id": "t1"}))
        error = response.json()["error"]
        assert 'send the header "A2A-Version: 1.0"' in error["message"]
        metadata = error["data"][0]["metadata"]
        assert metadata == {"requested": version or "0.3", "supportedVersions": "0.3,1.0"}
    response, _ = await ask("/tasks/t1", None)
    error = response.json()["error"]
    assert (error["code"], error["status"]) == (400, "FAILED_PRECONDITION")
    assert error["message"].startswith("Without A2A-Version a request speaks A2A 0.3")
    assert 'send the header "A2A-Version: 1.0"' in error["message"]
    assert error["details"][0]["metadata"]["supportedVersions"] == "1.0"


async def test_1_0_alone() -> None:
    alone = {"protocol_versions": ONE}
    assert await rpc("1.0", "GetTask", **alone) == "1.0"
    assert await rpc("1.0", "tasks/get", **alone) == -32601
    for version in ("0.3", None):
        assert await rpc(version, "GetTask", **alone) == UNSUPPORTED
        assert await rpc(version, "tasks/get", **alone) == UNSUPPORTED
    assert await rest("1.0", **alone) == "1.0"
    assert await rest(None, **alone) == "VERSION_NOT_SUPPORTED"
    assert await rest("0.3", "/v1/tasks/t1", **alone) == "METHOD_NOT_FOUND"
    response, _ = await ask("/", None, request("tasks/get"), **alone)
    metadata = response.json()["error"]["data"][0]["metadata"]
    assert metadata["supportedVersions"] == "1.0"


async def test_lenience_takes_what_looks_like_1_0_for_it() -> None:
    lenient = {"lenient_version": True}
    for version in (None, ""):
        assert await rpc(version, "GetTask", **lenient) == "1.0"
        assert await rpc(version, "tasks/get", **lenient) == "0.3"
        assert await rpc(version, "GetTasks", **lenient) == -32601
        assert await rest(version, **lenient) == "1.0"
        assert await rest(version, "/v1/tasks/t1", **lenient) == "0.3"
    # What is said is said.
    assert await rpc("0.3", "GetTask", **lenient) == UNSUPPORTED
    assert await rest("0.3", **lenient) == "VERSION_NOT_SUPPORTED"
    assert await rpc(None, "GetTask", query="?A2A-Version=0.3", **lenient) == UNSUPPORTED
    assert await rest("1.0", "/v1/tasks/t1", **lenient) == "VERSION_NOT_SUPPORTED"
