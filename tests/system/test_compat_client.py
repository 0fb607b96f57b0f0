"""The present official Python client where a card offers it 0.3 only, on each of its bindings: what
it makes 1.0 of again is what it would have seen in 1.0.
"""

from __future__ import annotations

import uuid
from contextlib import aclosing
from typing import Any

import httpx
import pytest
from a2a.client import A2ACardResolver, Client, ClientConfig, create_client
from a2a.types.a2a_pb2 import (
    CancelTaskRequest,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    Part,
    SubscribeToTaskRequest,
    TaskPushNotificationConfig,
    TaskState,
)
from a2a.utils.errors import A2AError, TaskNotCancelableError, TaskNotFoundError

from tests.support.official import request, send, text_of
from tests.support.proxy import Proxy
from tests.system.conftest import Gates

pytestmark = pytest.mark.requires("redis-server")


@pytest.fixture(params=["JSONRPC", "HTTP+JSON"])
async def connect(request: pytest.FixtureRequest, proxy: Proxy, http: httpx.AsyncClient) -> Any:
    """Makes a client of a card without its interfaces of 1.0."""
    card = await A2ACardResolver(http, proxy.url).get_agent_card()
    old = [each for each in card.supported_interfaces if each.protocol_version == "0.3"]
    assert {each.protocol_binding for each in old} == {"JSONRPC", "HTTP+JSON"}
    del card.supported_interfaces[:]
    card.supported_interfaces.extend(old)

    async def made(**more: Any) -> Client:
        config = ClientConfig(
            httpx_client=http, supported_protocol_bindings=[request.param], **more
        )
        return await create_client(card, config)

    return made


@pytest.fixture
async def client(connect: Any) -> Client:
    made: Client = await connect(streaming=False)
    assert type(made._transport).__name__.startswith("Compat")  # type: ignore[attr-defined]
    return made


@pytest.fixture
async def streaming(connect: Any) -> Client:
    made: Client = await connect()
    return made


async def test_sends_and_their_history(client: Client) -> None:
    asked = (await send(client, "ask")).task
    assert asked.status.state == TaskState.TASK_STATE_INPUT_REQUIRED
    task = (await send(client, "echo this", task_id=asked.id)).task
    assert (task.id, task.status.state) == (asked.id, TaskState.TASK_STATE_COMPLETED)
    assert text_of(task) == "this"
    whole = await client.get_task(GetTaskRequest(id=asked.id))
    assert [m.parts[0].text for m in whole.history] == ["ask", "What more?", "echo this"]
    last = await client.get_task(GetTaskRequest(id=asked.id, history_length=1))
    assert [m.parts[0].text for m in last.history] == ["echo this"]
    assert (await send(client, "reply just this")).message.parts[0].text == "just this"


async def test_every_kind_of_content_comes_back(client: Client) -> None:
    parts = [
        Part(raw=bytes(range(256)), media_type="image/png", filename="a.png"),
        Part(url="https://files.test/a", media_type="image/png"),
        Part(),
        Part(),
    ]
    parts[2].data.struct_value.update({"a": [1, None]})
    parts[3].data.list_value.extend([1, "b"])
    parts[3].metadata.update({"of": "the part"})
    task = (await send(client, "echo them", *parts)).task
    found = (await client.get_task(GetTaskRequest(id=task.id))).history[0]
    assert list(found.parts[1:]) == parts


async def test_a_stream_and_who_comes_mid_way(streaming: Client, gates: Gates) -> None:
    gate = gates.new()
    async with aclosing(streaming.send_message(request(f"gate {gate} 2"))) as events:
        first = await anext(events)
        async for event in events:
            if event.artifact_update.artifact.parts:
                break
    task_id = first.task.id
    seen = []
    async for event in streaming.subscribe(SubscribeToTaskRequest(id=task_id)):
        if not seen:
            gates.open(gate)
        seen.append(event)
    texts = [part.text for e in seen for part in e.artifact_update.artifact.parts]
    assert text_of(seen[0].task) + "".join(texts) == "0 1 2 3 "
    assert seen[-1].status_update.status.state == TaskState.TASK_STATE_COMPLETED


async def test_a_cancel(client: Client, gates: Gates) -> None:
    task = (await send(client, f"gate {gates.new()} 1", now=True)).task
    assert task.status.state == TaskState.TASK_STATE_SUBMITTED
    canceled = await client.cancel_task(CancelTaskRequest(id=task.id))
    assert canceled.status.state == TaskState.TASK_STATE_CANCELED
    with pytest.raises(TaskNotCancelableError):
        await client.cancel_task(CancelTaskRequest(id=task.id))


async def test_errors(client: Client, streaming: Client) -> None:
    absent = str(uuid.uuid4())
    ended = (await send(client, "echo done")).task.id
    with pytest.raises(TaskNotFoundError):
        await client.get_task(GetTaskRequest(id=absent))
    with pytest.raises(TaskNotFoundError):
        await send(client, "echo x", task_id=absent)
    for refused in (
        anext(streaming.subscribe(SubscribeToTaskRequest(id=absent))),
        anext(streaming.subscribe(SubscribeToTaskRequest(id=ended))),
        send(client, "echo x", task_id=ended),
    ):
        with pytest.raises(A2AError):
            await refused


async def test_push_configs(client: Client) -> None:
    task = (await send(client, "ask")).task
    made = await client.create_task_push_notification_config(
        TaskPushNotificationConfig(task_id=task.id, id="a", url="https://hooks.test/a")
    )
    assert (made.task_id, made.id, made.url) == (task.id, "a", "https://hooks.test/a")
    found = await client.get_task_push_notification_config(
        GetTaskPushNotificationConfigRequest(task_id=task.id, id="a")
    )
    assert found == made
