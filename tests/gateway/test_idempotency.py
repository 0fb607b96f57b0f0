"""Who says "again" gets the same task: on any gateway, at the same time or later, and after a send
that broke off at any of its steps.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, NamedTuple

import pytest

from switchroom.agent import Event, Message, Run
from switchroom.protocol.errors import (
    InvalidParams,
    TaskNotFound,
    Unavailable,
    UnsupportedOperation,
)
from switchroom.protocol.model import Json
from switchroom.store.commit import GroupCommit
from switchroom.store.scripts import Call
from tests.support.faults import Cut, How
from tests.support.house import Gateway, House, message

COMPLETED, CANCELED = "TASK_STATE_COMPLETED", "TASK_STATE_CANCELED"
ASKS, WORKING = "TASK_STATE_INPUT_REQUIRED", "TASK_STATE_WORKING"


class Counts:
    """An agent that counts its runs by text. `ask…` asks; `reply` answers with a Message."""

    def __init__(self) -> None:
        self.runs: Counter[str] = Counter()

    async def __call__(self, run: Run) -> AsyncIterator[Event]:
        self.runs[run.text] += 1
        if run.text.startswith("ask"):
            yield run.ask("Which?")
        elif run.text == "reply":
            yield run.reply("No task")
        else:
            yield run.text


class Waits:
    """An agent that never ends by itself."""

    def __init__(self) -> None:
        self.runs = 0

    async def __call__(self, run: Run) -> Message:
        self.runs += 1
        await asyncio.Event().wait()
        raise AssertionError


def texts(task: Json) -> list[str]:
    return [part["text"] for said in task["history"] for part in said["parts"]]


async def two_gateways(house: House, agent: object, **replaced: object) -> list[Gateway]:
    await house.worker(agent, **replaced)  # type: ignore[arg-type]
    return [await house.gateway(**replaced), await house.gateway(**replaced)]


async def at_once(gateways: list[Gateway], params: Json, times: int = 10) -> list[Json]:
    """The answers to one request sent many times at the same moment."""
    return await asyncio.gather(
        *(gateways[n % 2].call("SendMessage", params) for n in range(times))
    )


# -- the same request


async def test_ten_equal_sends_at_once_are_one_task_and_one_run(house: House) -> None:
    agent = Counts()
    gateways = await two_gateways(house, agent)
    answers = await at_once(gateways, message("hi"))
    assert all(answer == answers[0] for answer in answers)
    assert agent.runs == {"hi": 1}
    assert (await gateways[0].list())["totalSize"] == 1
    assert await gateways[1].call("SendMessage", message("hi", id="other")) != answers[0]


async def test_ten_equal_sends_at_once_get_one_message(house: House) -> None:
    agent = Counts()
    gateways = await two_gateways(house, agent)
    params = message("reply")
    answers = await at_once(gateways, params)
    assert all(answer == answers[0] for answer in answers) and "message" in answers[0]
    assert await gateways[1].call("SendMessage", params) == answers[0]
    assert agent.runs == {"reply": 1}


async def test_ten_equal_follow_ups_at_once_are_one_message_and_one_turn(house: House) -> None:
    agent = Counts()
    gateways = await two_gateways(house, agent)
    task = await gateways[0].send("ask")
    answers = await at_once(gateways, message("on", task=task["id"]))
    assert all(answer == answers[0] for answer in answers)
    assert texts(answers[0]["task"]) == ["ask", "Which?", "on"]
    assert agent.runs == {"ask": 1, "on": 1}


async def test_a_repeated_follow_up_gets_the_answer_of_its_turn(house: House) -> None:
    agent = Counts()
    one, two = await two_gateways(house, agent)
    task = await one.send("ask")
    params = message("ask more", task=task["id"])
    answer = await one.call("SendMessage", params)
    assert answer["task"]["status"]["state"] == ASKS
    assert await two.call("SendMessage", params) == answer
    assert agent.runs == {"ask": 1, "ask more": 1}


async def test_equal_streams_are_one_task_and_one_run(house: House) -> None:
    agent = Counts()
    gateways = await two_gateways(house, agent)
    params = message("hi")

    async def stream(gateway: Gateway) -> list[Json]:
        async with gateway.stream("SendStreamingMessage", params) as opened:
            return [item.event for item in await opened.rest()]

    streams = await asyncio.gather(*(stream(gateways[n % 2]) for n in range(6)))
    assert agent.runs == {"hi": 1}
    assert len({events[0]["task"]["id"] for events in streams}) == 1
    for events in streams:
        last = events[-1]
        shown = last.get("statusUpdate") or last["task"]
        assert shown["status"]["state"] == COMPLETED


async def test_a_repeat_that_does_not_wait_gets_the_task_as_it_is(house: House) -> None:
    agent = Waits()
    one, two = await two_gateways(house, agent)
    params = message("hi", returnImmediately=True)
    task = (await one.call("SendMessage", params))["task"]
    await house.state(task["id"], WORKING)
    again = (await two.call("SendMessage", params))["task"]
    assert (again["id"], again["status"]["state"]) == (task["id"], WORKING)
    await one.call("CancelTask", {"id": task["id"]})
    assert agent.runs == 1


async def test_the_spelling_of_a_request_does_not_make_it_another(house: House) -> None:
    agent = Counts()
    one, two = await two_gateways(house, agent)
    params = message("hi", id="m", historyLength=5)
    spelled = {
        "configuration": {"history_length": 5},
        "message": {"parts": [{"text": "hi"}], "role": "ROLE_USER", "message_id": "m"},
        "unknown": 1,
    }
    assert await one.call("SendMessage", params) == await two.call("SendMessage", spelled)
    assert agent.runs == {"hi": 1}


async def test_another_callers_equal_request_is_another(house: House) -> None:
    agent = Counts()
    one, two = await two_gateways(house, agent)
    params = message("hi")
    for key in (None, "k"):
        mine = await one.call("SendMessage", params, key=key)
        theirs = await two.call("SendMessage", params, caller="bob", key=key)
        assert mine["task"]["id"] != theirs["task"]["id"]


# -- when a claim has ended


async def test_a_used_up_task_is_not_given_to_the_same_request_again(house: House) -> None:
    agent = Counts()
    gateways = await two_gateways(house, agent)
    params = message("ask")
    first = (await gateways[0].call("SendMessage", params))["task"]
    await gateways[0].send("on", task=first["id"])
    answers = await at_once(gateways, params)
    assert all(answer == answers[0] for answer in answers)
    assert answers[0]["task"]["id"] != first["id"]
    assert agent.runs == {"ask": 2, "on": 1}


async def test_a_canceled_task_is_not_given_to_the_same_request_again(house: House) -> None:
    agent = Counts()
    one, two = await two_gateways(house, agent)
    params = message("ask")
    first = (await one.call("SendMessage", params))["task"]
    await one.call("CancelTask", {"id": first["id"]})
    again = (await two.call("SendMessage", params))["task"]
    assert again["id"] != first["id"] and again["status"]["state"] == ASKS


async def test_the_same_follow_up_is_a_new_turn_once_the_task_moved_on(house: House) -> None:
    agent = Counts()
    one, two = await two_gateways(house, agent)
    task = await one.send("ask")
    params = message("ask a", task=task["id"])
    await one.call("SendMessage", params)
    await one.send("ask b", task=task["id"])
    answer = (await two.call("SendMessage", params))["task"]
    said = [text for text in texts(answer) if text != "Which?"]
    assert said == ["ask", "ask a", "ask b", "ask a"]


async def test_a_refused_send_leaves_no_claim(house: House) -> None:
    agent = Waits()
    one, two = await two_gateways(house, agent)
    task = await one.send("hi", returnImmediately=True)
    params = message("more", task=task["id"])
    for _ in range(2):
        with pytest.raises(UnsupportedOperation):
            await one.call("SendMessage", params, key="k")
    unknown = message("more", task="unknown")
    with pytest.raises(TaskNotFound):
        await two.call("SendMessage", unknown, key="k")
    await one.call("CancelTask", {"id": task["id"]})
    # The key is still free: nothing was done under it.
    done = await two.call("SendMessage", message("x", returnImmediately=True), key="k")
    await one.call("CancelTask", {"id": done["task"]["id"]})


# -- Idempotency-Key


async def test_a_key_makes_different_requests_one_and_other_params_are_refused(
    house: House,
) -> None:
    agent = Counts()
    one, two = await two_gateways(house, agent)
    params = message("hi")
    answer = await one.call("SendMessage", params, key="k")
    assert await two.call("SendMessage", params, key="k") == answer
    with pytest.raises(InvalidParams, match="idempotency key"):
        await two.call("SendMessage", message("other"), key="k")
    with pytest.raises(InvalidParams, match="idempotency key"):
        await two.call("SendMessage", message("hi", task=answer["task"]["id"]), key="k")
    assert agent.runs == {"hi": 1}
    assert (await one.list())["totalSize"] == 1


async def test_the_claim_of_a_key_outlives_its_task(house: House) -> None:
    agent = Counts()
    one, two = await two_gateways(house, agent)
    params = message("ask")
    task = (await one.call("SendMessage", params, key="k"))["task"]
    done = await one.send("on", task=task["id"])
    assert (await two.call("SendMessage", params, key="k"))["task"] == done
    assert agent.runs == {"ask": 1, "on": 1}


async def test_the_key_of_a_follow_up_is_one_turn_for_ever(house: House) -> None:
    agent = Counts()
    one, two = await two_gateways(house, agent)
    task = await one.send("ask")
    params = message("ask a", task=task["id"])
    await one.call("SendMessage", params, key="k")
    done = await one.send("on", task=task["id"])
    assert (await two.call("SendMessage", params, key="k"))["task"] == done
    assert agent.runs == {"ask": 1, "ask a": 1, "on": 1}


async def test_without_the_key_the_same_request_is_another_claim(house: House) -> None:
    agent = Counts()
    one, two = await two_gateways(house, agent)
    params = message("hi")
    keyed = await one.call("SendMessage", params, key="k")
    plain = await two.call("SendMessage", params)
    assert keyed["task"]["id"] != plain["task"]["id"]


# -- the setting


async def test_a_message_id_can_be_the_key(house: House) -> None:
    agent = Counts()
    gateways = await two_gateways(house, agent, idempotency="message-id")
    answers = await at_once(gateways, message("hi", id="m"))
    assert all(answer == answers[0] for answer in answers)
    with pytest.raises(InvalidParams):
        await gateways[1].call("SendMessage", message("other", id="m"))
    assert agent.runs == {"hi": 1}


async def test_of_two_requests_under_one_used_up_message_id_one_is_refused(house: House) -> None:
    agent = Counts()
    one, two = await two_gateways(house, agent, idempotency="message-id")
    task = (await one.call("SendMessage", message("ask", id="m")))["task"]
    await one.send("on", task=task["id"])
    with pytest.raises(InvalidParams):
        await two.call("SendMessage", message("other", id="m"))
    assert agent.runs == {"ask": 1, "on": 1}


async def test_only_the_header_can_be_the_key(house: House) -> None:
    agent = Counts()
    one, two = await two_gateways(house, agent, idempotency="header")
    params = message("hi")
    first, second = await one.call("SendMessage", params), await two.call("SendMessage", params)
    assert first["task"]["id"] != second["task"]["id"]
    keyed = [await g.call("SendMessage", params, key="k") for g in (one, two)]
    assert keyed[0] == keyed[1]
    assert agent.runs == {"hi": 3}


# -- cut at each step


class CutAt(NamedTuple):
    """Where a send is cut: at its nth pipeline, so and so, after so many of its calls."""

    at: int
    how: How
    sent: int | None = None


async def every_cut(lane: GroupCommit, send: Callable[[], Awaitable[object]]) -> list[CutAt]:
    """Each cut that the lane's pipelines in one undisturbed send allow."""
    sizes: list[int] = []
    pipeline = lane._pipeline

    async def measured(calls: Sequence[Call]) -> list[Any]:
        sizes.append(len(calls))
        return await pipeline(calls)

    lane._pipeline = measured  # type: ignore[method-assign]
    await send()
    lane._pipeline = pipeline  # type: ignore[method-assign]
    cuts = []
    for at, size in enumerate(sizes, 1):
        cuts += [CutAt(at, "before"), CutAt(at, "lost")]
        cuts += [CutAt(at, "between", sent) for sent in range(1, size)]
    return cuts


async def cut_and_repeated(
    gateways: list[Gateway], lane: GroupCommit, cut: CutAt, params: Json, key: str | None
) -> Json:
    """The answer to a send that was cut, and repeated until it got through."""
    cutting = Cut(lane, at=cut.at, how=cut.how, sent=cut.sent)
    try:
        answer = await gateways[0].call("SendMessage", params, key=key)
    except Unavailable as unavailable:
        assert unavailable.retry_after
        answer = None
    finally:
        cutting.heal()
    assert cutting.hit
    return answer or await gateways[1].call("SendMessage", params, key=key)


@pytest.mark.parametrize("key", [None, "k"])
@pytest.mark.parametrize("at_once_", [False, True])
@pytest.mark.parametrize("apart", [False, True])
async def test_a_first_send_cut_anywhere_and_repeated_is_one_task_and_one_run(
    house: House, key: str | None, at_once_: bool, apart: bool
) -> None:
    agent = Counts()
    replaced = {"queue_url": f"fake://{uuid.uuid4().hex}"} if apart else {}
    gateways = await two_gateways(house, agent, **replaced)
    store = gateways[0].store
    more: Json = {"returnImmediately": True} if at_once_ else {}
    lanes = (
        [store.commit, store.reads, store.queue_commit] if apart else [store.commit, store.reads]
    )
    count = 0
    for lane in lanes:
        for cut in await every_cut(lane, lambda: gateways[0].send("whole", **more)):
            count += 1
            words = f"ask {count}"
            params = message(words, **more)
            task = (await cut_and_repeated(gateways, lane, cut, params, key and str(count)))["task"]
            await house.state(task["id"], ASKS)
            assert agent.runs[words] == 1, cut
            task = await gateways[0].get(task["id"])
            assert texts(task) == [words], cut
            found = await gateways[1].list(status=ASKS)
            assert found["totalSize"] == count, cut
            assert len(found["tasks"]) == count, cut
    assert count >= 6


@pytest.mark.parametrize("key", [None, "k"])
@pytest.mark.parametrize("apart", [False, True])
async def test_a_follow_up_cut_anywhere_and_repeated_is_one_message_and_one_turn(
    house: House, key: str | None, apart: bool
) -> None:
    agent = Counts()
    replaced = {"queue_url": f"fake://{uuid.uuid4().hex}"} if apart else {}
    gateways = await two_gateways(house, agent, **replaced)
    store = gateways[0].store
    lanes = (
        [store.commit, store.reads, store.queue_commit] if apart else [store.commit, store.reads]
    )
    task = await gateways[1].send("ask")
    count = 0

    async def whole() -> None:
        await gateways[0].send("ask more", task=task["id"])

    for lane in lanes:
        for cut in await every_cut(lane, whole):
            count += 1
            before = (await gateways[1].get(task["id"]))["history"]
            words = f"ask {count}"
            params = message(words, task=task["id"])
            answer = await cut_and_repeated(gateways, lane, cut, params, key and str(count))
            after = answer["task"]
            assert after["status"]["state"] == ASKS, cut
            assert agent.runs[words] == 1, cut
            assert texts(after)[len(before) :] == ["Which?", words], cut
    assert count >= 8
