"""The official Python client, on each of its bindings over HTTP, through a load balancer that gives
each request to the next gateway: it finds what it expects, whoever answers.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import httpx
import pytest
from a2a.client import Client, ClientConfig, create_client
from a2a.types.a2a_pb2 import (
    CancelTaskRequest,
    DeleteTaskPushNotificationConfigRequest,
    GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTasksRequest,
    Role,
    SubscribeToTaskRequest,
    Task,
    TaskPushNotificationConfig,
    TaskState,
)
from a2a.utils.errors import (
    ExtendedAgentCardNotConfiguredError,
    InvalidParamsError,
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
)

from tests.support.official import request, send, text_of
from tests.support.proxy import Proxy
from tests.support.wait import wait_until
from tests.system.conftest import Gates

pytestmark = pytest.mark.requires("redis-server")


@pytest.fixture(params=["JSONRPC", "HTTP+JSON"])
def binding(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


async def client_of(proxy: Proxy, http: httpx.AsyncClient, binding: str, **more: Any) -> Client:
    config = ClientConfig(httpx_client=http, supported_protocol_bindings=[binding], **more)
    return await create_client(proxy.url, config)


@pytest.fixture
async def client(proxy: Proxy, http: httpx.AsyncClient, binding: str) -> AsyncIterator[Client]:
    """A client that does not stream."""
    yield await client_of(proxy, http, binding, streaming=False)
    # Not one gateway alone: what follows from one call to the next is in the store.
    assert min(proxy.served.values()) > 0


@pytest.fixture
async def streaming(proxy: Proxy, http: httpx.AsyncClient, binding: str) -> Client:
    return await client_of(proxy, http, binding)


async def task_of(client: Client, text: str, **more: Any) -> Task:
    answer = await send(client, text, **more)
    assert answer.HasField("task"), answer
    return answer.task


async def test_a_blocking_send_is_answered_with_the_finished_task(client: Client) -> None:
    task = await task_of(client, "echo hello")
    assert task.status.state == TaskState.TASK_STATE_COMPLETED
    assert text_of(task) == "hello"
    assert [message.parts[0].text for message in task.history] == ["echo hello"]
    assert (await client.get_task(GetTaskRequest(id=task.id))) == task


async def test_a_send_that_returns_immediately_is_answered_before_the_end(
    client: Client, gates: Gates
) -> None:
    gate = gates.new()
    task = await task_of(client, f"gate {gate} 1", now=True)
    assert task.status.state == TaskState.TASK_STATE_SUBMITTED
    gates.open(gate)

    async def completed() -> Task | None:
        found = await client.get_task(GetTaskRequest(id=task.id))
        return found if found.status.state == TaskState.TASK_STATE_COMPLETED else None

    assert text_of(await wait_until(completed, what="the task completes")) == "0 1 "


async def test_a_stream_is_the_task_and_then_its_events_in_order(streaming: Client) -> None:
    events = [event async for event in streaming.send_message(request("stream 20 1"))]
    assert events[0].HasField("task")
    chunks = [event.artifact_update for event in events if event.HasField("artifact_update")]
    numbers = [chunk.artifact.parts[0].text.split()[0] for chunk in chunks[:-1]]
    assert numbers == [str(number) for number in range(20)]
    assert [chunk.append for chunk in chunks] == [False] + [True] * 20
    assert [chunk.last_chunk for chunk in chunks] == [False] * 20 + [True]
    assert events[-1].status_update.status.state == TaskState.TASK_STATE_COMPLETED


async def test_a_subscriber_that_comes_mid_way_gets_the_task_and_the_rest(
    streaming: Client, gates: Gates
) -> None:
    gate = gates.new()
    async with aclosing(streaming.send_message(request(f"gate {gate} 3"))) as events:
        async for event in events:
            if event.artifact_update.artifact.parts and (
                event.artifact_update.artifact.parts[0].text == "2 "
            ):
                break
    task_id = event.artifact_update.task_id
    seen = []
    async for event in streaming.subscribe(SubscribeToTaskRequest(id=task_id)):
        if not seen:
            gates.open(gate)
        seen.append(event)
    assert text_of(seen[0].task) == "0 1 2 "
    rest = [event.artifact_update.artifact.parts[0].text for event in seen[1:-1]]
    assert rest == ["3 ", "4 ", "5 ", ""]
    assert seen[-1].status_update.status.state == TaskState.TASK_STATE_COMPLETED


async def test_cancel(client: Client, streaming: Client, gates: Gates) -> None:
    task = await task_of(client, f"gate {gates.new()} 1", now=True)
    seen = []
    async for event in streaming.subscribe(SubscribeToTaskRequest(id=task.id)):
        seen.append(event)
        if len(seen) == 1:
            canceled = await client.cancel_task(CancelTaskRequest(id=task.id))
            assert canceled.status.state == TaskState.TASK_STATE_CANCELED
    assert seen[-1].status_update.status.state == TaskState.TASK_STATE_CANCELED
    with pytest.raises(TaskNotCancelableError):
        await client.cancel_task(CancelTaskRequest(id=task.id))


async def test_pages_of_a_context_are_complete_and_newest_first(client: Client) -> None:
    context = str(uuid.uuid4())
    sent = [(await task_of(client, f"echo {n}", context_id=context)).id for n in range(5)]
    await task_of(client, "echo elsewhere")
    found, token, pages = [], "", 0
    while pages == 0 or token:
        page = await client.list_tasks(
            ListTasksRequest(context_id=context, page_size=2, page_token=token)
        )
        assert page.total_size == 5
        assert not any(task.artifacts for task in page.tasks)
        found += [task.id for task in page.tasks]
        token, pages = page.next_page_token, pages + 1
    assert pages == 3
    assert found == sent[::-1]
    whole = await client.list_tasks(ListTasksRequest(context_id=context, include_artifacts=True))
    assert [text_of(task) for task in whole.tasks] == ["4", "3", "2", "1", "0"]
    none = await client.list_tasks(
        ListTasksRequest(context_id=context, status=TaskState.TASK_STATE_FAILED)
    )
    assert (list(none.tasks), none.total_size, none.next_page_token) == ([], 0, "")


async def test_a_follow_up_goes_on_with_the_task_and_its_history(client: Client) -> None:
    asked = await task_of(client, "ask")
    assert asked.status.state == TaskState.TASK_STATE_INPUT_REQUIRED
    assert asked.status.message.parts[0].text == "What more?"
    task = await task_of(client, "echo this", task_id=asked.id)
    assert task.id == asked.id
    assert task.context_id == asked.context_id
    assert task.status.state == TaskState.TASK_STATE_COMPLETED
    assert text_of(task) == "this"
    whole = await client.get_task(GetTaskRequest(id=asked.id))
    assert [m.parts[0].text for m in whole.history] == ["ask", "What more?", "echo this"]
    last = await client.get_task(GetTaskRequest(id=asked.id, history_length=1))
    assert [m.parts[0].text for m in last.history] == ["echo this"]
    assert not (await client.get_task(GetTaskRequest(id=asked.id, history_length=0))).history


async def test_a_stream_ends_when_the_agent_asks_and_the_next_one_goes_on(
    streaming: Client,
) -> None:
    first = [event async for event in streaming.send_message(request("ask"))]
    assert first[-1].status_update.status.state == TaskState.TASK_STATE_INPUT_REQUIRED
    task_id = first[0].task.id
    more = [e async for e in streaming.send_message(request("echo more", task_id=task_id))]
    assert more[0].task.id == task_id
    assert more[-1].status_update.status.state == TaskState.TASK_STATE_COMPLETED


async def test_an_answer_may_be_a_message_only(client: Client, streaming: Client) -> None:
    answer = await send(client, "reply just this")
    assert answer.message.parts[0].text == "just this"
    assert answer.message.role == Role.ROLE_AGENT
    events = [event async for event in streaming.send_message(request("reply and this"))]
    assert [event.message.parts[0].text for event in events] == ["and this"]


async def test_a_failed_run_is_a_failed_task(client: Client) -> None:
    task = await task_of(client, "fail")
    assert task.status.state == TaskState.TASK_STATE_FAILED
    assert task.status.message.parts[0].text == "Failed, as asked."


async def test_errors_are_the_ones_the_client_knows(client: Client, streaming: Client) -> None:
    ended = await task_of(client, "echo done")
    absent = str(uuid.uuid4())
    with pytest.raises(TaskNotFoundError):
        await client.get_task(GetTaskRequest(id=absent))
    with pytest.raises(TaskNotFoundError):
        await client.cancel_task(CancelTaskRequest(id=absent))
    with pytest.raises(TaskNotFoundError):
        await send(client, "echo x", task_id=absent)
    with pytest.raises(TaskNotFoundError):
        await anext(streaming.subscribe(SubscribeToTaskRequest(id=absent)))
    with pytest.raises(UnsupportedOperationError):
        await send(client, "echo x", task_id=ended.id)
    with pytest.raises(UnsupportedOperationError):
        await anext(streaming.subscribe(SubscribeToTaskRequest(id=ended.id)))
    with pytest.raises(TaskNotCancelableError):
        await client.cancel_task(CancelTaskRequest(id=ended.id))
    with pytest.raises(InvalidParamsError):
        await send(client, "echo x", task_id=ended.id, context_id="another")
    with pytest.raises(InvalidParamsError):
        await client.list_tasks(ListTasksRequest(page_size=101))
    with pytest.raises(ExtendedAgentCardNotConfiguredError):
        await client.get_extended_agent_card(GetExtendedAgentCardRequest())


async def test_push_configs_are_kept(client: Client) -> None:
    task = await task_of(client, "ask")
    made = [
        await client.create_task_push_notification_config(
            TaskPushNotificationConfig(task_id=task.id, url=f"https://hooks.test/{name}")
        )
        for name in ("a", "b")
    ]
    assert made[0].id != made[1].id
    found = await client.get_task_push_notification_config(
        GetTaskPushNotificationConfigRequest(task_id=task.id, id=made[0].id)
    )
    assert found.url == "https://hooks.test/a"
    await client.delete_task_push_notification_config(
        DeleteTaskPushNotificationConfigRequest(task_id=task.id, id=made[0].id)
    )
    left = await client.list_task_push_notification_configs(
        ListTaskPushNotificationConfigsRequest(task_id=task.id)
    )
    assert [config.id for config in left.configs] == [made[1].id]
    with pytest.raises(TaskNotFoundError):
        await client.get_task_push_notification_config(
            GetTaskPushNotificationConfigRequest(task_id=task.id, id=made[0].id)
        )
