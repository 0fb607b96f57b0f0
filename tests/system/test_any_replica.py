"""Any gateway answers any request: what began at one goes on at another, and is the same."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import httpx
import pytest

from tests.support.proxy import Proxy
from tests.support.rpc import Event, Rpc, answer_of, message, state_of, until
from tests.support.wait import wait_until
from tests.system.conftest import Gates

pytestmark = pytest.mark.requires("redis-server")


async def begun(client: Rpc, text: str) -> tuple[str, list[Event]]:
    """Send `gate …` and leave after the third of its chunks: the task's id and what was seen."""
    params = {"message": message(text)}
    async with client.stream("SendStreamingMessage", params) as events:
        seen = await until(events, "2 ")
    return seen[0].task_id, seen


@pytest.fixture
def gate(gates: Gates) -> str:
    return gates.new()


async def test_who_comes_back_with_its_position_gets_exactly_what_it_missed(
    one: Rpc, other: Rpc, gates: Gates, gate: str
) -> None:
    task_id, seen = await begun(one, f"gate {gate} 4")
    gates.open(gate)
    position = seen[-1].id
    params = {"id": task_id}
    missed = await other.whole_stream("SubscribeToTask", params, Last_Event_ID=position)
    chunks = [event.text for event in (*seen, *missed) if event.kind == "artifactUpdate"]
    assert chunks == [f"{number} " for number in range(8)] + [""]
    assert [event.kind for event in seen + missed].count("task") == 1
    assert missed[-1].state == "COMPLETED"
    assert len({event.id for event in seen + missed}) == len(seen + missed)


async def test_a_connection_that_breaks_costs_nothing(
    proxy: Proxy, gates: Gates, gate: str
) -> None:
    async with Rpc(proxy.url) as client:
        params = {"message": message(f"gate {gate} 3")}
        seen: list[Event] = []
        with pytest.raises(httpx.TransportError):
            async with client.stream("SendStreamingMessage", params) as events:
                seen = await until(events, "2 ")
                proxy.cut()
                async for event in events:
                    raise AssertionError(event)
        gates.open(gate)
        position = seen[-1].id
        # The same send again is the same stream going on: no second task, no second run.
        rest = await client.whole_stream("SendStreamingMessage", params, Last_Event_ID=position)
        assert [event.text for event in rest if event.text] == ["3 ", "4 ", "5 "]
        assert rest[-1].state == "COMPLETED"
        assert len(gates.runs(seen[0].task_id)) == 1


async def test_ten_equal_sends_at_once_are_one_task_and_one_run(
    one: Rpc, other: Rpc, gates: Gates, gate: str
) -> None:
    gates.open(gate)
    params = {"message": message(f"gate {gate} 2", contextId=str(uuid.uuid4()))}
    answers = await asyncio.gather(
        *(client.call("SendMessage", params) for client in (one, other) * 5)
    )
    assert all(answer == answers[0] for answer in answers)
    task = answers[0]["task"]
    assert state_of(task) == "COMPLETED"
    assert answer_of(task) == "0 1 2 3 "
    assert len(gates.runs(task["id"])) == 1
    listed = await other.call("ListTasks", {"contextId": task["contextId"]})
    assert listed["totalSize"] == 1


async def test_a_follow_up_sent_twice_is_one_message_and_one_turn(
    one: Rpc, other: Rpc, gates: Gates
) -> None:
    task = (await one.send("ask"))["task"]
    params = {"message": message("echo more", taskId=task["id"])}
    answers = await asyncio.gather(
        *(client.call("SendMessage", params) for client in (one, other) * 3)
    )
    assert all(answer == answers[0] for answer in answers)
    history = [part["parts"][0]["text"] for part in answers[0]["task"]["history"]]
    assert history == ["ask", "What more?", "echo more"]
    assert [turn for turn, _, _ in gates.runs(task["id"])] == [1, 2]


async def test_all_subscribers_see_the_same_events(
    one: Rpc, other: Rpc, gates: Gates, gate: str
) -> None:
    task = (await one.send(f"gate {gate} 5", now=True))["task"]

    async def watch(client: Rpc, there: asyncio.Event) -> list[Event]:
        async with client.stream("SubscribeToTask", {"id": task["id"]}) as events:
            seen = [await anext(events)]
            while answer_of(seen[0].data["task"]) != "0 1 2 3 4 " and seen[-1].text != "4 ":
                seen.append(await anext(events))
            there.set()
            return seen + [event async for event in events]

    async with asyncio.TaskGroup() as group:
        there = [asyncio.Event() for _ in range(4)]
        watchers = [
            group.create_task(watch(client, event))
            for client, event in zip((one, other) * 2, there, strict=True)
        ]
        for event in there:
            await event.wait()
        gates.open(gate)
    streams = [watcher.result() for watcher in watchers]
    ends = [stream[-7:] for stream in streams]
    assert [event.text for event in ends[0][:-1]] == ["5 ", "6 ", "7 ", "8 ", "9 ", ""]
    assert all(end == ends[0] for end in ends)


async def test_cancel_at_another_gateway_than_the_stream(one: Rpc, other: Rpc, gate: str) -> None:
    params = {"message": message(f"gate {gate} 1")}
    async with one.stream("SendStreamingMessage", params) as events:
        seen = await until(events, "0 ")
        canceled = await other.call("CancelTask", {"id": seen[0].task_id})
        rest = [event async for event in events]
    assert state_of(canceled) == "CANCELED"
    assert [event.state for event in rest if event.state] == ["CANCELED"]
    assert await one.get(seen[0].task_id) == canceled
    assert await one.error("CancelTask", {"id": seen[0].task_id}) == -32002


async def test_a_blocking_send_hears_of_a_cancel_at_another_gateway(
    one: Rpc, other: Rpc, gate: str
) -> None:
    context = str(uuid.uuid4())
    waiting = asyncio.create_task(one.send(f"gate {gate} 1", contextId=context))

    async def listed() -> Any:
        return (await other.call("ListTasks", {"contextId": context}))["tasks"]

    (task,) = await wait_until(listed, what="the task is listed")
    canceled = await other.call("CancelTask", {"id": task["id"]})
    assert state_of(canceled) == "CANCELED"
    assert (await waiting)["task"] == canceled


async def test_a_subscriber_sees_the_follow_up_sent_to_another_gateway(
    one: Rpc, other: Rpc
) -> None:
    task = (await one.send("ask"))["task"]
    async with one.stream("SubscribeToTask", {"id": task["id"]}) as events:
        assert (await anext(events)).state == "INPUT_REQUIRED"
        more = await other.send("echo this", taskId=task["id"])
        rest = [event async for event in events]
    assert rest[-1].state == "COMPLETED"
    assert [event.text for event in rest if event.text] == ["this"]
    assert await one.get(task["id"]) == more["task"]


async def test_pages_of_a_list_may_come_from_different_gateways(one: Rpc, other: Rpc) -> None:
    context = str(uuid.uuid4())
    sent = [(await one.send(f"echo {n}", contextId=context))["task"]["id"] for n in range(4)]
    first = await one.call("ListTasks", {"contextId": context, "pageSize": 3})
    token = first["nextPageToken"]
    rest = await other.call("ListTasks", {"contextId": context, "pageSize": 3, "pageToken": token})
    assert [task["id"] for task in first["tasks"] + rest["tasks"]] == sent[::-1]
    assert rest["nextPageToken"] == ""
