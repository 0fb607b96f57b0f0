"""What a client of 0.3 gets, byte by byte: how a stream is refused, what a result and an error look
like, and which file a Python client reads.
"""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from a2a.compat.v0_3 import types

from switchroom.agent import Event, Run
from switchroom.gateway.app import create_app
from switchroom.protocol.model import Json
from tests.support.gateways import card_of, client_of, request
from tests.support.house import House

BINARY = bytes(range(256))


async def agent(run: Run) -> AsyncIterator[Event]:
    yield run.ask("What more?") if run.text == "ask" else "done"


@pytest.fixture
async def app(house: House) -> Any:
    gateway = await house.both(agent)
    card = card_of(streaming=True, pushNotifications=True)
    return create_app(house.settings, handler=gateway.handler, card=card)


@pytest.fixture
async def client(app: Any) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(app) as opened:
        yield opened


def message(words: str = "hi", *parts: Json, **more: Any) -> Json:
    said = [{"kind": "text", "text": words}, *parts]
    fresh = {"kind": "message", "messageId": f"m-{words}", "role": "user", "parts": said}
    return {"message": {**fresh, **more}}


async def post(client: httpx.AsyncClient, method: str, params: Any = None) -> httpx.Response:
    response = await client.post("/", json=request(method, params))
    assert response.status_code == 200
    assert response.headers["a2a-version"] == "0.3"
    return response


async def result(client: httpx.AsyncClient, method: str, params: Any = None) -> Any:
    answer = (await post(client, method, params)).json()
    assert set(answer) == {"jsonrpc", "id", "result"}, answer
    return answer["result"]


# -- streams that cannot begin


@pytest.mark.parametrize(
    ("method", "params", "code"),
    [
        ("message/stream", {}, -32602),
        ("message/stream", message(taskId="absent"), -32001),
        ("tasks/resubscribe", {"id": "absent"}, -32001),
        ("tasks/resubscribe", [], -32602),
    ],
)
async def test_a_stream_that_cannot_begin_is_one_event(
    client: httpx.AsyncClient, method: str, params: Any, code: int
) -> None:
    """The old Python client reads nothing else from a streaming method."""
    response = await post(client, method, params)
    assert response.headers["content-type"] == "text/event-stream"
    assert response.content.count(b"data: ") == 1
    assert response.text.endswith("\n\n")
    answer = json.loads(response.text.removeprefix("data: "))
    assert (answer["id"], answer["error"]["code"]) == (1, code)
    types.JSONRPCErrorResponse.model_validate(answer)


async def test_what_no_method_is_known_for_is_json(client: httpx.AsyncClient) -> None:
    for body, code in (
        (b"{", -32700),
        (b"[]", -32600),
        (json.dumps(request("tasks/list")).encode(), -32601),
        (json.dumps(request("message/send", {})).encode(), -32602),
    ):
        response = await client.post(
            "/", content=body, headers={"content-type": "application/json"}
        )
        assert response.headers["content-type"] == "application/json"
        assert response.json()["error"]["code"] == code


async def test_a_gateway_that_drains_says_so_by_status(app: Any, client: httpx.AsyncClient) -> None:
    app.state.drain()
    response = await client.post("/", json=request("message/stream", message()))
    assert response.status_code == 503
    assert response.headers["content-type"] == "application/json"


# -- results and errors


async def test_push_configs_over_json_rpc(client: httpx.AsyncClient) -> None:
    task = await result(client, "message/send", message("ask"))
    ident = {"id": task["id"]}
    config = {"url": "https://hook.test/", "authentication": {"schemes": ["Bearer", "Basic"]}}
    asked = {"taskId": task["id"], "pushNotificationConfig": config}
    made = await result(client, "tasks/pushNotificationConfig/set", asked)
    types.TaskPushNotificationConfig.model_validate(made)
    assert made["pushNotificationConfig"]["id"] == "default"
    assert await result(client, "tasks/pushNotificationConfig/set", asked) == made
    found = await result(client, "tasks/pushNotificationConfig/get", ident)
    assert found["pushNotificationConfig"] == {
        "id": "default",
        "url": "https://hook.test/",
        "authentication": {"schemes": ["Bearer"]},
    }
    assert await result(client, "tasks/pushNotificationConfig/list", ident) == [found]
    which = {**ident, "pushNotificationConfigId": "default"}
    assert await result(client, "tasks/pushNotificationConfig/delete", which) is None
    assert await result(client, "tasks/pushNotificationConfig/list", ident) == []
    gone = await post(client, "tasks/pushNotificationConfig/get", ident)
    assert gone.json()["error"]["code"] == -32001


async def test_push_configs_over_rest(client: httpx.AsyncClient) -> None:
    task = await result(client, "message/send", message("ask"))
    path = f"/v1/tasks/{task['id']}/pushNotificationConfigs"
    config = {"pushNotificationConfig": {"id": "a", "url": "https://hook.test/"}}
    made = (await client.post(path, json={"configId": "a", "config": config})).json()
    assert made == {"name": f"{path.removeprefix('/v1/')}/a", **config}
    assert (await client.get(f"{path}/a")).json() == made
    assert (await client.get(path)).json() == {"configs": [made]}
    deleted = await client.delete(f"{path}/a")
    assert (deleted.status_code, deleted.json()) == (200, {})
    assert (await client.get(path)).json() == {"configs": []}


async def test_what_the_methods_refuse_is_named_in_the_words_of_0_3(
    client: httpx.AsyncClient,
) -> None:
    for params, field in (
        (message("hi", {"kind": "file", "file": {"bytes": "%"}}), "message.parts[1].file.bytes"),
        (
            {**message(), "configuration": {"pushNotificationConfig": {"url": "ftp://x"}}},
            "configuration.pushNotificationConfig.url",
        ),
    ):
        error = (await post(client, "message/send", params)).json()["error"]
        assert error["code"] == -32602
        assert [each["field"] for each in error["data"][1]["fieldViolations"]] == [field]
        assert "raw" not in error["message"]
        assert "taskPush" not in error["message"]


async def test_an_error_over_rest_is_found_where_each_client_looks(
    client: httpx.AsyncClient,
) -> None:
    response = await client.get("/v1/tasks/absent")
    assert response.status_code == 404
    assert response.headers["content-type"] == "application/json"
    body = response.json()
    assert (body["code"], body["type"], body["error"]) == (
        -32001,
        "TaskNotFoundError",
        "TaskNotFoundError",
    )
    assert body["message"] == "Task not found"
    assert body["data"][0]["reason"] == "TASK_NOT_FOUND"


async def test_the_bytes_of_a_file_as_each_sdk_reads_them(client: httpx.AsyncClient) -> None:
    """Python's and Java's put base64 text where the proto wants bytes; the others put bytes."""
    once = base64.b64encode(BINARY).decode()
    twice = base64.b64encode(once.encode()).decode()
    agents = {"python-httpx/0.28.1": twice, "Java-http-client/17": twice, "node": once, "": once}
    for sender, sent in agents.items():
        part = {"file": {"fileWithBytes": sent, "mimeType": "image/png"}}
        said = {"messageId": f"m-{sender}", "role": "ROLE_USER", "content": [part]}
        answer = await client.post(
            "/v1/message:send", json={"message": said}, headers={"User-Agent": sender}
        )
        task_id = answer.json()["task"]["id"]
        for reader, expected in agents.items():
            told = await client.get(f"/v1/tasks/{task_id}", headers={"User-Agent": reader})
            (content,) = told.json()["history"][0]["content"]
            assert content["file"] == {"fileWithBytes": expected, "mimeType": "image/png"}
