"""Sending and following: blocking, at once, streamed, resumed; a Task or a Message."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from switchroom.agent import Event, Message, Run
from switchroom.protocol.errors import (
    InvalidParams,
    TaskNotFound,
    Unavailable,
    UnsupportedOperation,
)
from switchroom.protocol.event import encode
from switchroom.protocol.lifecycle import fold
from switchroom.protocol.model import Json
from switchroom.store.entry import Position
from tests.support.house import Gateway, House, Item, message, text
from tests.support.wait import wait_until

SUBMITTED, WORKING = "TASK_STATE_SUBMITTED", "TASK_STATE_WORKING"
COMPLETED, CANCELED = "TASK_STATE_COMPLETED", "TASK_STATE_CANCELED"
ASKS, WANTS_AUTH = "TASK_STATE_INPUT_REQUIRED", "TASK_STATE_AUTH_REQUIRED"


async def words(run: Run) -> AsyncIterator[Event]:
    """One chunk a word; `ask` asks, `auth` asks for credentials."""
    if run.text == "ask":
        yield run.ask("Which?")
    elif run.text == "auth":
        yield run.authorize("Log in at https://a.test")
    else:
        for word in run.text.split():
            yield word


class Held:
    """An agent that goes on when the test says so; `texts` are the runs it has begun."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.go = asyncio.Event()
        self.texts: list[str] = []

    async def __call__(self, run: Run) -> AsyncIterator[Event]:
        self.texts.append(run.text)
        self.begun.set()
        await self.go.wait()
        yield "done"


class Replies:
    """An agent whose whole answer is a Message."""

    def __init__(self, *, held: bool = False) -> None:
        self.go = asyncio.Event()
        self.tasks: list[str] = []
        if not held:
            self.go.set()

    async def __call__(self, run: Run) -> Message:
        self.tasks.append(run.task_id)
        await self.go.wait()
        return run.reply(f"You said {run.text}")


def said(answer: Json) -> str:
    found: str = answer["message"]["parts"][0]["text"]
    return found


def folded(items: list[Item]) -> Json:
    """The Task that a client has after these events."""
    task: Json = items[0].event["task"]
    for item in items[1:]:
        fold(task, item.event)
    return task


# -- blocking


@pytest.mark.parametrize(
    ("words_", "state"), [("a b", COMPLETED), ("ask", ASKS), ("auth", WANTS_AUTH)]
)
async def test_a_blocking_send_returns_when_the_turn_has_ended(
    house: House, words_: str, state: str
) -> None:
    gateway = await house.both(words)
    task = await gateway.send(words_)
    assert task["status"]["state"] == state
    assert await gateway.get(task["id"]) == task


async def test_without_an_agent_tasks_complete_without_output(house: House) -> None:
    gateway = await house.both(None)
    task = await gateway.send("hi")
    assert task["status"]["state"] == COMPLETED
    assert "artifacts" not in task


async def test_a_follow_up_waits_for_a_state_newer_than_itself(house: House) -> None:
    gateway = await house.both(words)
    task = await gateway.send("ask")
    task = await gateway.send("one two", task=task["id"])
    assert (task["status"]["state"], text(task)) == (COMPLETED, "onetwo")


async def test_a_follow_up_waits_although_it_is_asked_again(house: House) -> None:
    gateway = await house.both(words)
    task = await gateway.send("ask")
    again = await gateway.send("ask", task=task["id"])
    assert again["status"]["state"] == ASKS
    assert len(again["history"]) == 3  # both messages, and the first question between them


async def test_the_context_of_a_follow_up_is_the_tasks(house: House) -> None:
    gateway = await house.both(words)
    task = await gateway.send("ask")
    with pytest.raises(InvalidParams) as refused:
        await gateway.send("x", task=task["id"], context="another")
    assert refused.value.violations[0][0] == "message.contextId"
    assert await gateway.get(task["id"]) == task
    done = await gateway.send("x", task=task["id"], context=task["contextId"])
    assert done["contextId"] == task["contextId"]


async def test_a_task_that_has_ended_takes_no_message(house: House) -> None:
    gateway = await house.both(words)
    task = await gateway.send("hi")
    for method in ("SendMessage", "SendStreamingMessage"):
        with pytest.raises(UnsupportedOperation, match=COMPLETED):
            await gateway.call(method, message("more", task=task["id"]))
    assert await gateway.get(task["id"]) == task


async def test_a_busy_task_refuses_a_message_and_names_its_state(house: House) -> None:
    gateway = await house.gateway()
    task = await gateway.send("hi", returnImmediately=True)
    with pytest.raises(UnsupportedOperation, match=SUBMITTED):
        await gateway.send("more", task=task["id"])
    agent = Held()
    await house.worker(agent)
    await house.state(task["id"], WORKING)
    with pytest.raises(UnsupportedOperation, match=WORKING):
        await gateway.send("more", task=task["id"])
    agent.go.set()
    await house.state(task["id"], COMPLETED)
    assert agent.texts == ["hi"]


async def test_of_two_different_follow_ups_at_once_one_wins(house: House) -> None:
    ran: list[str] = []

    async def agent(run: Run) -> AsyncIterator[Event]:
        ran.append(run.text)
        if run.turn == 1:
            yield run.ask("Which?")

    one, two = await house.both(agent), await house.gateway()
    task = await one.send("ask")
    answers = await asyncio.gather(
        one.send("left", task=task["id"]),
        two.send("right", task=task["id"]),
        return_exceptions=True,
    )
    refused = [answer for answer in answers if isinstance(answer, UnsupportedOperation)]
    (won,) = [answer for answer in answers if isinstance(answer, dict)]
    assert len(refused) == 1 and len(ran) == 2
    assert [m["parts"][0]["text"] for m in won["history"]] == ["ask", "Which?", ran[1]]


@pytest.mark.parametrize("length", [0, 1, None])
async def test_the_answer_has_as_much_history_as_was_asked_for(
    house: House, length: int | None
) -> None:
    gateway = await house.both(words)
    task = await gateway.send("ask")
    limit = {} if length is None else {"historyLength": length}
    params = message("on", task=task["id"], **limit)
    history = (await gateway.call("SendMessage", params))["task"].get("history")
    texts = None if history is None else [said({"message": entry}) for entry in history]
    assert texts == {0: None, 1: ["on"], None: ["ask", "Which?", "on"]}[length]


async def test_a_wait_above_the_limit_answers_the_task_as_it_is_and_shows_it(house: House) -> None:
    agent = Held()
    await house.worker(agent)
    gateway = await house.gateway(blocking_limit=0.05)
    task = await gateway.send("hi")
    assert task["status"]["state"] == SUBMITTED
    assert (await gateway.list())["tasks"] == [task]
    agent.go.set()
    await house.state(task["id"], COMPLETED)
    assert text(await gateway.get(task["id"])) == "done"


async def test_a_follow_up_above_the_limit_is_answered_as_it_is(house: House) -> None:
    async def agent(run: Run) -> AsyncIterator[Event]:
        if run.turn == 1:
            yield run.ask("Which?")
        else:
            await asyncio.Event().wait()

    await house.worker(agent)
    gateway = await house.gateway(blocking_limit=0.1)
    task = await gateway.send("ask")
    task = await gateway.send("on", task=task["id"])
    assert task["status"]["state"] == WORKING
    await gateway.call("CancelTask", {"id": task["id"]})


async def test_a_gateway_that_goes_away_answers_the_task_as_it_is(house: House) -> None:
    agent = Held()
    gateway = await house.both(agent)
    sending = asyncio.create_task(gateway.send("hi"))
    await agent.begun.wait()
    gateway.handler.drain()
    task = await sending
    assert task["status"]["state"] == SUBMITTED
    agent.go.set()
    await house.state(task["id"], COMPLETED)


async def test_the_run_does_not_depend_on_the_request(house: House) -> None:
    agent = Held()
    gateway = await house.both(agent)
    sending = asyncio.create_task(gateway.send("hi"))
    await agent.begun.wait()
    sending.cancel()
    await asyncio.wait([sending])
    assert gateway.store.feed.followed == 0
    agent.go.set()
    page = await wait_until(
        lambda: completed(gateway), what="the task of the client that left is completed"
    )
    assert agent.texts == ["hi"] and page["totalSize"] == 1


async def completed(gateway: Gateway) -> Json | None:
    page = await gateway.list(status=COMPLETED)
    return page if page["tasks"] else None


# -- at once


async def test_a_send_that_does_not_wait_gets_the_task_as_it_was_made(house: House) -> None:
    gateway = await house.gateway()
    task = await gateway.send("hi", returnImmediately=True)
    assert task["status"]["state"] == SUBMITTED
    assert await gateway.get(task["id"]) == task
    assert [t["id"] for t in (await gateway.list())["tasks"]] == [task["id"]]


async def test_a_follow_up_that_does_not_wait_gets_the_task_at_work(house: House) -> None:
    gateway = await house.both(words)
    task = await gateway.send("ask")
    task = await gateway.send("on", task=task["id"], returnImmediately=True)
    assert task["status"]["state"] == WORKING
    await house.state(task["id"], COMPLETED)


# -- a Task or a Message


async def test_a_message_answers_a_blocking_send_and_leaves_no_task(house: House) -> None:
    agent = Replies()
    gateway = await house.both(agent)
    answer = await gateway.call("SendMessage", message("hi", context="talk"))
    assert [*answer] == ["message"] and said(answer) == "You said hi"
    assert answer["message"]["contextId"] == "talk" and "taskId" not in answer["message"]
    (task_id,) = agent.tasks
    for method in ("GetTask", "CancelTask", "SubscribeToTask"):
        with pytest.raises(TaskNotFound):
            await gateway.call(method, {"id": task_id})
    with pytest.raises(TaskNotFound):
        await gateway.send("more", task=task_id)
    for filters in ({}, {"contextId": "talk"}, {"status": SUBMITTED}, {"status": WORKING}):
        assert (await gateway.list(**filters))["tasks"] == []


async def test_a_message_is_the_whole_stream(house: House) -> None:
    gateway = await house.both(Replies())
    async with gateway.stream("SendStreamingMessage", message("hi")) as stream:
        (item,) = await stream.rest()
    assert said(item.event) == "You said hi"
    assert (await gateway.list())["tasks"] == []


async def test_a_task_nobody_has_been_shown_is_nobodys(house: House) -> None:
    agent = Replies(held=True)
    gateway = await house.both(agent)
    sending = asyncio.create_task(gateway.call("SendMessage", message("hi")))
    await wait_until(lambda: agent.tasks, what="the agent has begun")
    with pytest.raises(TaskNotFound):
        await gateway.get(agent.tasks[0])
    with pytest.raises(TaskNotFound):
        await gateway.call("CancelTask", {"id": agent.tasks[0]})
    assert (await gateway.list())["tasks"] == []
    agent.go.set()
    assert said(await sending) == "You said hi"


async def test_a_message_to_a_send_that_did_not_wait_completes_its_task(house: House) -> None:
    gateway = await house.both(Replies())
    task_id = (await gateway.send("hi", returnImmediately=True))["id"]
    await house.state(task_id, COMPLETED)
    task = await gateway.get(task_id)
    last = task["status"]["message"]
    assert last["parts"] == [{"text": "You said hi"}]
    assert (last["taskId"], last["contextId"]) == (task_id, task["contextId"])


async def test_a_message_that_takes_long_completes_the_task_shown_meanwhile(house: House) -> None:
    agent = Replies(held=True)
    gateway = await house.both(agent, show_after=0.02)
    sending = asyncio.create_task(gateway.call("SendMessage", message("hi")))
    await wait_until(lambda: agent.tasks, what="the agent has begun")
    await house.state(agent.tasks[0], WORKING)
    assert (await gateway.get(agent.tasks[0]))["status"]["state"] == WORKING
    agent.go.set()
    task = (await sending)["task"]
    assert task["status"]["state"] == COMPLETED
    assert said(task["status"]) == "You said hi"


async def test_a_stream_shows_the_task_before_a_message_that_takes_long(house: House) -> None:
    agent = Replies(held=True)
    await house.worker(agent)
    gateway = await house.gateway(show_after=0.02)
    async with gateway.stream("SendStreamingMessage", message("hi")) as stream:
        first = await stream.next()
        assert first.state == SUBMITTED
        assert (await gateway.list())["tasks"][0]["id"] == first.event["task"]["id"]
        agent.go.set()
        rest = await stream.rest()
    assert [item.state for item in rest] == [WORKING, COMPLETED]
    assert said(rest[-1].event["statusUpdate"]["status"]) == "You said hi"


async def test_a_message_to_a_follow_up_completes_the_task(house: House) -> None:
    async def agent(run: Run) -> AsyncIterator[Event]:
        yield run.ask("Which?") if run.turn == 1 else run.reply("That one")

    gateway = await house.both(agent)
    task = await gateway.send("hi")
    task = await gateway.send("on", task=task["id"])
    assert (task["status"]["state"], said(task["status"])) == (COMPLETED, "That one")


# -- streams


async def test_a_stream_is_the_task_then_all_that_follows_to_its_end(house: House) -> None:
    gateway = await house.both(words)
    async with gateway.stream("SendStreamingMessage", message("a b c")) as stream:
        items = await stream.rest()
    assert [*items[0].event] == ["task"] and items[0].state == SUBMITTED
    assert [item.state for item in items] == [SUBMITTED, WORKING, *[None] * 4, COMPLETED]
    task = folded(items)
    assert text(task) == "abc"
    assert task == await gateway.get(task["id"])
    seqs = [int((item.id or "").partition(".")[0]) for item in items]
    assert seqs == [*range(1, 8)]


async def test_a_stream_closes_when_the_client_is_asked(house: House) -> None:
    gateway = await house.both(words)
    async with gateway.stream("SendStreamingMessage", message("ask")) as stream:
        items = await stream.rest()
    assert [item.state for item in items] == [SUBMITTED, WORKING, ASKS]
    params = message("a", task=items[0].event["task"]["id"], historyLength=1)
    async with gateway.stream("SendStreamingMessage", params) as stream:
        more = await stream.rest()
    assert more[0].state == WORKING and len(more[0].event["task"]["history"]) == 1
    assert more[-1].state == COMPLETED
    assert not any(item.state == ASKS for item in more)


async def test_a_stream_stays_open_while_credentials_are_fetched(house: House) -> None:
    gateway = await house.both(words)
    async with gateway.stream("SendStreamingMessage", message("auth")) as stream:
        items = await stream.until(WANTS_AUTH)
        await gateway.send("a", task=items[0].event["task"]["id"])
        rest = await stream.rest()
    assert [item.state for item in rest][-1] == COMPLETED
    assert not any("task" in item.event for item in rest)


async def test_a_client_that_leaves_its_stream_stops_nothing(house: House) -> None:
    agent = Held()
    gateway = await house.both(agent, show_after=0.02)
    async with gateway.stream("SendStreamingMessage", message("hi")) as stream:
        task_id = (await stream.next()).event["task"]["id"]
    assert gateway.store.feed.followed == 0
    agent.go.set()
    await house.state(task_id, COMPLETED)
    assert text(await gateway.get(task_id)) == "done"


async def test_a_stream_that_is_never_read_holds_nothing(house: House) -> None:
    gateway = await house.both(words)
    async with gateway.stream("SendStreamingMessage", message("hi")):
        pass
    assert gateway.store.feed.followed == 0


async def test_every_event_is_sent_as_it_was_written(house: House) -> None:
    gateway = await house.both(words)
    async with gateway.stream("SendStreamingMessage", message("a b")) as stream:
        items = await stream.rest()
    task_id, first = items[0].event["task"]["id"], Position.parse(items[0].id)
    assert first is not None
    entries = await house.store.feed.since(task_id, first)
    assert entries is not None
    assert [(str(e.position), e.data) for e in entries] == [
        (item.id, encode(item.event)) for item in items[1:]
    ]


# -- subscribing


async def chunks(run: Run) -> AsyncIterator[Event]:
    """Two chunks and a question, then two chunks and the end."""
    yield "a"
    yield "b"
    if run.turn == 1:
        yield run.ask("More?")


async def test_a_subscription_is_the_task_then_all_after_it_through_every_turn(
    house: House,
) -> None:
    one, two = await house.both(chunks), await house.gateway()
    task = await one.send("go")
    async with two.subscribe(task["id"]) as stream:
        first = await stream.next()
        assert first.event == {"task": task}
        done = await one.send("on", task=task["id"])
        items = [first, *await stream.rest()]
    assert items[-1].state == COMPLETED
    assert not any("task" in item.event for item in items[1:])
    after = folded(items)
    # The message itself is no event of the stream; all that the agent did is.
    assert after["artifacts"] == done["artifacts"] and after["status"] == done["status"]


async def test_two_subscribers_on_two_gateways_see_the_same(house: House) -> None:
    agent = Held()
    gateways = [await house.both(agent), await house.gateway()]
    task = await gateways[0].send("hi", returnImmediately=True)
    await house.state(task["id"], WORKING)
    async with (
        gateways[0].subscribe(task["id"]) as left,
        gateways[1].subscribe(task["id"]) as right,
        gateways[1].subscribe(task["id"]) as leaving,
    ):
        firsts = [await stream.next() for stream in (left, right, leaving)]
        await leaving.aclose()
        agent.go.set()
        seen = [[firsts[0], *await left.rest()], [firsts[1], *await right.rest()]]
    assert seen[0] == seen[1] and firsts[2] == firsts[0]
    assert seen[0][-1].state == COMPLETED
    assert folded(seen[0]) == await gateways[0].get(task["id"])


async def test_a_subscriber_sees_its_task_canceled(house: House) -> None:
    gateway = await house.both(Held())
    task = await gateway.send("hi", returnImmediately=True)
    async with gateway.subscribe(task["id"]) as stream:
        await house.state(task["id"], WORKING)
        canceled = await gateway.call("CancelTask", {"id": task["id"]})
        items = await stream.rest()
    assert items[-1].state == CANCELED
    assert folded(items) == canceled


# -- going on where one was


async def whole_stream(house: House) -> tuple[str, list[Item]]:
    """A task that has waited for input and ended, and all of its events from the first Task on."""
    gateway = await house.both(chunks)
    task = await gateway.send("go", returnImmediately=True)
    async with gateway.subscribe(task["id"]) as stream:
        items = await stream.until(ASKS)
        await gateway.send("on", task=task["id"])
        items += await stream.rest()
    return task["id"], items


async def test_a_stream_goes_on_after_any_of_its_events(house: House) -> None:
    task_id, items = await whole_stream(house)
    gateway = await house.gateway()
    for at in range(len(items) - 1):
        async with gateway.subscribe(task_id, after=items[at].id) as stream:
            assert await stream.rest() == items[at + 1 :]
    with pytest.raises(UnsupportedOperation, match=COMPLETED):
        async with gateway.subscribe(task_id, after=items[-1].id):
            pass


async def test_a_stream_goes_on_while_its_task_does(house: House) -> None:
    agent = Held()
    one, two = await house.both(agent), await house.gateway()
    task = await one.send("hi", returnImmediately=True)
    async with one.subscribe(task["id"]) as stream:
        first = await stream.next()
        if first.state != WORKING:
            first = await stream.next()
    async with two.subscribe(task["id"], after=first.id) as stream:
        agent.go.set()
        items = await stream.rest()
    assert [item.state for item in items] == [None, None, COMPLETED]


@pytest.mark.parametrize("after", ["2.ffff", "99.ffff", "x", "1", "0.0", "-1.ab", "9" * 30 + ".a"])
async def test_an_unusable_id_counts_as_none(house: House, after: str) -> None:
    gateway = await house.both(words)
    waiting, ended = await gateway.send("ask"), await gateway.send("hi")
    async with gateway.subscribe(waiting["id"], after=after) as stream:
        assert (await stream.next()).event == {"task": waiting}
    async with gateway.subscribe(ended["id"], after=after) as stream:
        assert [item.event for item in await stream.rest()] == [{"task": ended}]


async def test_an_id_of_another_task_is_unusable(house: House) -> None:
    gateway = await house.both(words)
    one, two = await gateway.send("ask"), await gateway.send("ask")
    async with gateway.subscribe(one["id"]) as stream:
        position = (await stream.next()).id
    async with gateway.subscribe(two["id"], after=position) as stream:
        assert (await stream.next()).event == {"task": two}


async def test_a_repeat_whose_task_is_lost_as_it_is_found_may_be_sent_again(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was there when it was accepted, and not when it was read: a failover lay between."""
    gateway = await house.both(words)
    params = message("one")
    await gateway.call("SendMessage", params)

    async def lost(_: str, **__: object) -> None:
        return None

    with monkeypatch.context() as patched:
        patched.setattr(gateway.store.tasks, "read", lost)
        with pytest.raises(Unavailable):
            await gateway.call("SendMessage", params)
    assert text((await gateway.call("SendMessage", params))["task"]) == "one"


async def test_a_repeated_streaming_send_goes_on_where_its_client_was(house: House) -> None:
    one, two = await house.both(words), await house.gateway()
    params = message("a b c")
    async with one.stream("SendStreamingMessage", params) as stream:
        items = await stream.rest()
    for at in range(len(items)):
        async with two.stream("SendStreamingMessage", params, after=items[at].id) as stream:
            assert await stream.rest() == items[at + 1 :]
    async with two.stream("SendStreamingMessage", params) as stream:
        (task,) = await stream.rest()
    assert task.event == {"task": await one.get(items[0].event["task"]["id"])}


async def test_a_stream_that_goes_on_is_open_before_there_is_anything_to_tell(
    house: House,
) -> None:
    agent = Held()
    one, two = await house.both(agent), await house.gateway()
    params = message("hi")
    async with one.stream("SendStreamingMessage", params) as stream:
        first = (await stream.until(WORKING))[-1]
    task_id = first.event["statusUpdate"]["taskId"]
    async with (
        two.stream("SendStreamingMessage", params, after=first.id) as repeated,
        two.subscribe(task_id, after=first.id) as subscribed,
    ):
        for stream in (repeated, subscribed):
            await stream.opened()
        agent.go.set()
        assert await repeated.rest() == await subscribed.rest()


async def test_a_stream_that_waits_for_credentials_goes_on_waiting(house: House) -> None:
    """It is as open as before, though for the moment there is nothing to send."""
    gateway = await house.both(words)
    params = message("auth")
    async with gateway.stream("SendStreamingMessage", params) as stream:
        items = await stream.until(WANTS_AUTH)
    async with gateway.stream("SendStreamingMessage", params, after=items[-1].id) as stream:
        rest = asyncio.create_task(stream.rest())
        await wait_until(lambda: gateway.store.feed.followed, what="it follows the task")
        await gateway.call("CancelTask", {"id": items[0].event["task"]["id"]})
        assert [item.state for item in await rest] == [CANCELED]


async def test_a_message_that_its_client_has_is_not_sent_again(house: House) -> None:
    gateway = await house.both(Replies())
    params = message("hi")
    async with gateway.stream("SendStreamingMessage", params) as stream:
        (first,) = await stream.rest()
    for after, expected in ((None, [first]), ("1.ffff", [first]), (first.id, [])):
        async with gateway.stream("SendStreamingMessage", params, after=after) as stream:
            assert await stream.rest() == expected


async def test_an_event_id_means_nothing_to_a_new_send(house: House) -> None:
    gateway = await house.both(words)
    async with gateway.stream("SendStreamingMessage", message("a")) as stream:
        first = await stream.next()
    async with gateway.stream("SendStreamingMessage", message("b"), after=first.id) as stream:
        items = await stream.rest()
    assert items[0].state == SUBMITTED and text(folded(items)) == "b"


async def test_large_events_reach_every_stream(house: House) -> None:
    async def large(run: Run) -> AsyncIterator[Event]:
        for n in range(3):
            yield str(n) * 100_000

    gateway = await house.both(large)
    async with gateway.stream("SendStreamingMessage", message("go")) as stream:
        items = await stream.rest()
    assert text(folded(items)) == "0" * 100_000 + "1" * 100_000 + "2" * 100_000
