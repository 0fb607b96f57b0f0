"""What the server promises its clients, one idea per test.

A gateway answers clients, a worker runs the agent, and Redis is all they share. So each test may
have as many of both as it likes, and any of them may go away.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from switchroom.agent import Event, Run
from switchroom.protocol.errors import InvalidParams, TaskNotFound, UnsupportedOperation
from tests.support.house import House, message, text

COMPLETED, CANCELED = "TASK_STATE_COMPLETED", "TASK_STATE_CANCELED"
ASKS, WORKING = "TASK_STATE_INPUT_REQUIRED", "TASK_STATE_WORKING"


async def echo(run: Run) -> AsyncIterator[Event]:
    for word in run.text.split():
        yield word


async def curious(run: Run) -> AsyncIterator[Event]:
    yield run.ask("Which city?") if run.turn == 1 else run.complete(f"Sunny in {run.text}")


class Slow:
    """An agent that works until the test lets it finish."""

    def __init__(self) -> None:
        self.finish = asyncio.Event()
        self.runs = 0

    async def __call__(self, run: Run) -> AsyncIterator[Event]:
        self.runs += 1
        yield "Hel"
        await self.finish.wait()
        yield "lo"


async def test_a_blocking_send_answers_the_finished_task(house: House) -> None:
    gateway = await house.both(echo)
    task = await gateway.send("hello there")
    assert task["status"]["state"] == COMPLETED
    assert text(task) == "hellothere"


async def test_any_gateway_knows_every_task(house: House) -> None:
    one, two = await house.both(echo), await house.gateway()
    task = await one.send("hi")
    assert await two.get(task["id"]) == task


async def test_a_client_may_leave_and_come_back_on_another_gateway(house: House) -> None:
    agent = Slow()
    one, two = await house.both(agent), await house.gateway()
    async with one.stream("SendStreamingMessage", message("hi")) as stream:
        task_id = (await stream.next()).event["task"]["id"]
        await stream.until(WORKING)
        last = await stream.next()
    # The stream is gone; the run is not. With the last event's id, the same stream goes on.
    async with two.subscribe(task_id, after=last.id) as stream:
        agent.finish.set()
        rest = await stream.rest()
    assert rest[0].event["artifactUpdate"]["artifact"]["parts"] == [{"text": "lo"}]
    assert rest[-1].state == COMPLETED


async def test_without_an_id_a_subscriber_gets_the_task_first(house: House) -> None:
    agent = Slow()
    gateway = await house.both(agent)
    task = await gateway.send("hi", returnImmediately=True)
    async with gateway.subscribe(task["id"]) as stream:
        assert [*(await stream.next()).event] == ["task"]
        agent.finish.set()
        assert (await stream.rest())[-1].state == COMPLETED


async def test_a_question_is_answered_in_the_same_task(house: House) -> None:
    one, two = await house.both(curious), await house.gateway()
    task = await one.send("Weather?")
    assert task["status"]["state"] == ASKS
    task = await two.send("Paris", task=task["id"])
    assert task["status"]["message"]["parts"] == [{"text": "Sunny in Paris"}]


async def test_a_working_task_takes_no_second_message(house: House) -> None:
    agent = Slow()
    gateway = await house.both(agent)
    task = await gateway.send("hi", returnImmediately=True)
    await house.state(task["id"], WORKING)
    with pytest.raises(UnsupportedOperation, match=WORKING):
        await gateway.send("and another thing", task=task["id"])
    agent.finish.set()
    await house.state(task["id"], COMPLETED)


async def test_a_send_that_is_repeated_is_one_task_and_one_run(house: House) -> None:
    agent = Slow()
    agent.finish.set()
    one, two = await house.both(agent), await house.gateway()
    request = message("hi", id="my-message")
    answers = await asyncio.gather(*(g.call("SendMessage", request) for g in (one, two, one, two)))
    assert all(answer == answers[0] for answer in answers)
    assert agent.runs == 1


async def test_an_idempotency_key_is_of_one_request(house: House) -> None:
    gateway = await house.both(echo)
    await gateway.call("SendMessage", message("buy one"), key="order-7")
    with pytest.raises(InvalidParams):
        await gateway.call("SendMessage", message("buy two"), key="order-7")


async def test_a_message_can_be_the_whole_answer(house: House) -> None:
    async def agent(run: Run) -> Event:
        return run.reply("Just so you know.")

    gateway = await house.both(agent)
    answer = await gateway.call("SendMessage", message("hi"))
    assert answer["message"]["parts"] == [{"text": "Just so you know."}]
    assert (await gateway.list())["tasks"] == []


async def test_cancel_stops_the_agent_wherever_it_runs(house: House) -> None:
    stopped = asyncio.Event()

    async def agent(run: Run) -> AsyncIterator[Event]:
        try:
            yield "Thinking"
            await asyncio.Event().wait()
        finally:
            stopped.set()

    gateway = await house.both(agent)
    task = await gateway.send("hi", returnImmediately=True)
    await house.state(task["id"], WORKING)
    assert (await gateway.call("CancelTask", {"id": task["id"]}))["status"]["state"] == CANCELED
    assert stopped.is_set()


async def test_a_worker_may_die_and_the_answer_is_there_once(house: House) -> None:
    lost, healthy = Slow(), Slow()
    healthy.finish.set()
    worker = await house.worker(lost)
    gateway = await house.gateway()
    task = await gateway.send("hi", returnImmediately=True)
    await house.state(task["id"], WORKING)
    await worker.kill()
    await house.worker(healthy)
    await house.lapse(task["id"])  # as it does by itself, 15 s after the worker died
    await house.state(task["id"], COMPLETED)
    assert text(await gateway.get(task["id"])) == "Hello"
    lost.finish.set()


async def test_a_worker_that_is_told_to_stop_hands_its_runs_on(house: House) -> None:
    slow, other = Slow(), Slow()
    other.finish.set()
    worker = await house.worker(slow)
    gateway = await house.gateway()
    task = await gateway.send("hi", returnImmediately=True)
    await house.state(task["id"], WORKING)
    await worker.drain()
    await house.worker(other)
    await house.state(task["id"], COMPLETED)
    assert text(await gateway.get(task["id"])) == "Hello"


async def test_a_task_is_its_callers_alone(house: House) -> None:
    gateway = await house.both(echo)
    task = await gateway.send("secret", caller="alice")
    with pytest.raises(TaskNotFound):
        await gateway.get(task["id"], caller="bob")
    assert (await gateway.list(caller="bob"))["tasks"] == []


async def test_a_list_is_read_page_by_page(house: House) -> None:
    gateway = await house.both(echo)
    sent = {(await gateway.send(f"number {n}"))["id"] for n in range(3)}
    first = await gateway.list(pageSize=2)
    second = await gateway.list(pageSize=2, pageToken=first["nextPageToken"])
    assert {task["id"] for page in (first, second) for task in page["tasks"]} == sent
    assert second["nextPageToken"] == ""
