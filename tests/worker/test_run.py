"""One run: how it begins, what ends it, and what becomes of its task when it is lost."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from switchroom.agent import Event, Message, Part, Retry, Run
from switchroom.protocol.errors import TaskNotCancelable
from switchroom.protocol.model import Json
from switchroom.settings import Settings
from switchroom.store.scripts import command
from switchroom.worker.main import serve
from tests.support.agents import Held
from tests.support.faults import Cut, How
from tests.support.house import House, WorkerOf, house_of, message, quick, said, text
from tests.support.redis import running_server
from tests.support.wait import wait_until

SUBMITTED, WORKING = "TASK_STATE_SUBMITTED", "TASK_STATE_WORKING"
COMPLETED, FAILED = "TASK_STATE_COMPLETED", "TASK_STATE_FAILED"
CANCELED, ASKS = "TASK_STATE_CANCELED", "TASK_STATE_INPUT_REQUIRED"


# -- the beginning


async def test_a_task_that_is_shown_is_at_work_before_its_agent_speaks(house: House) -> None:
    async def silent(run: Run) -> str:
        await asyncio.Event().wait()
        return ""

    gateway = await house.both(silent)
    task = await gateway.send("hi", returnImmediately=True)
    await house.state(task["id"], WORKING)
    await gateway.call("CancelTask", {"id": task["id"]})


async def test_a_task_that_is_not_shown_is_at_work_with_its_agents_first_event(
    house: House,
) -> None:
    gateway = await house.both(Held())
    async with gateway.stream("SendStreamingMessage", message("hi")) as stream:
        items = [await stream.next() for _ in range(3)]
    assert [item.state for item in items] == [SUBMITTED, WORKING, None]
    await gateway.call("CancelTask", {"id": items[0].event["task"]["id"]})


async def test_a_silent_agent_is_shown_at_work_after_a_while(house: House) -> None:
    begun: list[str] = []

    async def silent(run: Run) -> str:
        begun.append(run.task_id)
        await asyncio.Event().wait()
        return ""

    gateway = await house.both(silent, show_after=0.02)
    sending = asyncio.create_task(gateway.send("hi"))
    await wait_until(lambda: begun, what="the agent has begun")
    await house.state(begun[0], WORKING)
    (listed,) = (await gateway.list())["tasks"]
    assert listed["id"] == begun[0]
    await gateway.call("CancelTask", {"id": begun[0]})
    assert (await sending)["status"]["state"] == CANCELED


async def test_a_run_sees_what_was_asked(house: House) -> None:
    runs: list[Run] = []

    async def agent(run: Run) -> Event:
        runs.append(run)
        return run.ask("Which?") if run.turn == 1 else run.complete()

    gateway = await house.both(agent)
    params = message("one", context="talk", acceptedOutputModes=["text/plain"])
    params["metadata"] = {"n": 1}
    task = (await gateway.call("SendMessage", params))["task"]
    await gateway.send("two", task=task["id"])
    first, second = runs
    assert (first.task_id, first.context_id) == (task["id"], "talk")
    assert (first.text, first.turn, first.attempt) == ("one", 1, 1)
    assert (first.metadata, first.accepted_output_modes) == ({"n": 1}, ("text/plain",))
    assert (second.text, second.turn, second.attempt) == ("two", 2, 1)
    assert (second.metadata, second.context_id) == ({}, "talk")
    assert [said.parts[0].text for said in second.task.history] == ["one", "Which?", "two"]


# -- what an agent does wrong


async def test_an_exception_fails_the_task_and_stays_in_the_log(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    async def agent(run: Run) -> AsyncIterator[Event]:
        yield "half"
        raise RuntimeError("the password is 1234")

    gateway = await house.both(agent)
    task = await gateway.send("hi")
    assert task["status"]["state"] == FAILED and text(task) == "half"
    assert "password" not in str(task) and "RuntimeError" not in str(task)
    found = re.fullmatch(r"The agent failed\. Reference: (\w+)", said(task))
    assert found
    (line,) = [r for r in caplog.records if found[1] in r.getMessage()]
    assert task["id"] in line.getMessage() and line.exc_info
    assert "the password is 1234" in str(line.exc_info[1])
    assert (task["status"]["message"]["taskId"], task["status"]["message"]["contextId"]) == (
        task["id"],
        task["contextId"],
    )


async def test_an_exception_before_anything_is_shown_still_makes_a_failed_task(
    house: House,
) -> None:
    async def agent(run: Run) -> str:
        raise RuntimeError

    gateway = await house.both(agent)
    task = await gateway.send("hi")
    assert task["status"]["state"] == FAILED
    assert await gateway.get(task["id"]) == task


async def test_an_exception_after_the_end_changes_nothing(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    async def agent(run: Run) -> AsyncIterator[Event]:
        try:
            yield run.complete("Done")
        finally:
            raise RuntimeError("too late")

    gateway = await house.both(agent)
    task = await gateway.send("hi")
    assert (task["status"]["state"], said(task)) == (COMPLETED, "Done")


@pytest.mark.parametrize("leaving", [SystemExit, KeyboardInterrupt, GeneratorExit])
async def test_an_agent_that_leaves_the_program_fails_its_task_and_the_worker_stays(
    house: House, leaving: type[BaseException]
) -> None:
    async def agent(run: Run) -> AsyncIterator[Event]:
        if run.text == "leave":
            raise leaving
        yield "here"

    gateway = await house.both(agent)
    assert (await gateway.send("leave"))["status"]["state"] == FAILED
    assert text(await gateway.send("stay")) == "here"


async def test_an_agent_that_cancels_itself_has_failed(house: House) -> None:
    async def agent(run: Run) -> str:
        raise asyncio.CancelledError

    gateway = await house.both(agent)
    assert (await gateway.send("hi"))["status"]["state"] == FAILED


async def no_event(run: Run) -> AsyncIterator[Any]:
    yield 42


async def message_after_artifact(run: Run) -> AsyncIterator[Event]:
    yield "a"
    yield run.reply("b")


async def append_to_nothing(run: Run) -> AsyncIterator[Event]:
    yield run.artifact("report", "b", append=True)


async def not_json(run: Run) -> AsyncIterator[Event]:
    yield Part(data={"n": float("nan")})


async def no_unicode(run: Run) -> AsyncIterator[Event]:
    yield "\ud800"


async def no_part(run: Run) -> AsyncIterator[Event]:
    yield Part()


async def number_as_part(run: Run) -> AsyncIterator[Any]:
    yield run.artifact("a", 7)  # type: ignore[arg-type]


async def too_large(run: Run) -> AsyncIterator[Event]:
    yield "x" * 5_000


async def much_too_large(run: Run) -> AsyncIterator[Event]:
    for _ in range(10):
        yield "x" * 900


async def message_too_large(run: Run) -> Message:
    return run.reply("x" * 5_000)


WRONG = {
    no_event: ("The agent's answer cannot be used.", "yielded int"),
    message_after_artifact: ("The agent's answer cannot be used.", "Message after other events"),
    append_to_nothing: ("The agent's answer cannot be used.", "'report', which it has not begun"),
    not_json: ("The agent's answer cannot be used.", "Part cannot be sent"),
    no_unicode: ("The agent's answer cannot be used.", "lone surrogate"),
    no_part: ("The agent", "Part"),
    number_as_part: ("The agent failed.", "Artifact"),
    too_large: ("The agent's answer is larger than it may be.", "SWITCHROOM_EVENT_LIMIT"),
    much_too_large: ("The agent's answer is larger than it may be.", "SWITCHROOM_TASK_LIMIT"),
    message_too_large: ("The agent's answer is larger than it may be.", "SWITCHROOM_EVENT_LIMIT"),
}
"""Agents that say what they may not: what the client is told, and what the log names."""


@pytest.mark.parametrize("agent", WRONG, ids=lambda agent: agent.__name__)
async def test_what_an_agent_may_not_say_fails_its_task_and_the_log_says_why(
    house: House, caplog: pytest.LogCaptureFixture, agent: Any
) -> None:
    told, why = WRONG[agent]
    gateway = await house.both(agent, event_limit=2_000, task_limit=6_000)
    task = await gateway.send("hi")
    assert task["status"]["state"] == FAILED
    found = re.fullmatch(re.escape(told) + r".* Reference: (\w+)", said(task))
    assert found and why not in said(task)
    (line,) = [r.getMessage() for r in caplog.records if found[1] in r.getMessage()]
    assert task["id"] in line and why in line
    assert await gateway.get(task["id"]) == task


# -- limits


async def test_a_run_that_grows_above_a_limit_fails_alone(house: House) -> None:
    async def agent(run: Run) -> AsyncIterator[Event]:
        if run.text == "much":
            for _ in range(10):
                yield "x" * 600
        yield "fine"

    gateway = await house.both(agent, event_limit=900, task_limit=3_000)
    much, little = await asyncio.gather(gateway.send("much"), gateway.send("little"))
    assert much["status"]["state"] == FAILED
    assert (little["status"]["state"], text(little)) == (COMPLETED, "fine")
    assert await gateway.get(much["id"]) == much


LIMITS = {"run_limit": "longer", "inactivity_limit": "silent"}
"""Each limit, and the word that the task says of it."""


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize(
    ("allowed", "asked"), [(0.05, None), (0.05, 3_600), (3_600, 0.05)], ids=["none", "more", "less"]
)
async def test_a_run_may_take_so_long_and_its_agent_ask_for_less(
    house: House, limit: str, allowed: float, asked: float | None
) -> None:
    agent = Held()
    if asked is not None:
        setattr(agent, limit, asked)
    gateway = await house.both(agent, **{limit: allowed})
    task = await gateway.send("hi")
    assert task["status"]["state"] == FAILED and LIMITS[limit] in said(task)
    assert "Reference" not in said(task), "nothing of the agent's went wrong"
    assert (text(task), agent.cleaned) == ("a", 1)


async def test_each_event_begins_the_silence_anew(house: House) -> None:
    go = asyncio.Event()

    async def agent(run: Run) -> AsyncIterator[Event]:
        yield "a"
        await go.wait()
        yield "b"
        await asyncio.Event().wait()

    worker = await house.worker(agent, inactivity_limit=3_600)
    gateway = await house.gateway()
    task = await gateway.send("hi", returnImmediately=True)

    async def silent_for(seconds: float, *, after: str) -> None:
        await wait_until(lambda: has_text(gateway, task["id"], after), what=f"it said {after}")
        (run,) = worker.runner.active.values()
        run._heard -= seconds
        run._poke()

    await silent_for(3_000, after="a")
    go.set()
    await silent_for(3_000, after="ab")
    assert (await gateway.get(task["id"]))["status"]["state"] == WORKING
    await silent_for(700, after="ab")
    await house.state(task["id"], FAILED)
    assert "silent" in said(await gateway.get(task["id"]))


# -- another attempt


async def test_an_agent_may_ask_for_another_attempt(house: House) -> None:
    attempts: list[int] = []

    async def agent(run: Run) -> AsyncIterator[Event]:
        attempts.append(run.attempt)
        if run.attempt < 3:
            yield run.artifact("draft", f"draft {run.attempt}")
            raise Retry
        yield run.artifact("final", "done")

    gateway = await house.both(agent)
    async with gateway.stream("SendStreamingMessage", message("hi")) as stream:
        items = await stream.rest()
    assert attempts == [1, 2, 3]
    words = [
        part["text"]
        for item in items
        for part in item.event.get("statusUpdate", {})
        .get("status", {})
        .get("message", {})
        .get("parts", ())
    ]
    assert words == ["Attempt 2 of 3: begun again.", "Attempt 3 of 3: begun again."]
    task = await gateway.get(items[0].event["task"]["id"])
    assert task["status"]["state"] == COMPLETED
    assert [artifact["name"] for artifact in task["artifacts"]] == ["final"]


async def test_a_blocking_send_through_attempts_gets_the_task_as_it_is_kept(house: House) -> None:
    async def agent(run: Run) -> AsyncIterator[Event]:
        yield run.status(f"Try {run.attempt}")
        yield run.artifact(f"draft {run.attempt}", "x")
        if run.attempt < 3:
            raise Retry

    gateway = await house.both(agent)
    task = await gateway.send("hi")
    assert task == await gateway.get(task["id"])
    assert [artifact["name"] for artifact in task["artifacts"]] == ["draft 3"]


async def test_attempts_end(house: House) -> None:
    attempts: list[int] = []

    async def agent(run: Run) -> str:
        attempts.append(run.attempt)
        raise Retry("the model is away")

    gateway = await house.both(agent, attempts=2)
    task = await gateway.send("hi")
    assert attempts == [1, 2]
    assert task["status"]["state"] == FAILED and "2 attempts" in said(task)
    assert "model" not in said(task)


async def test_an_agent_may_refuse_a_second_attempt(house: House) -> None:
    class Once:
        retry = False
        attempts = 0

        async def __call__(self, run: Run) -> str:
            self.attempts += 1
            raise Retry

    agent = Once()
    gateway = await house.both(agent)
    task = await gateway.send("hi")
    assert (task["status"]["state"], agent.attempts) == (FAILED, 1)


async def test_a_task_that_waits_for_its_next_attempt_can_be_canceled(house: House) -> None:
    async def agent(run: Run) -> str:
        raise Retry

    gateway = await house.both(agent, retry_delays=(3_600,))
    task = await gateway.send("hi", returnImmediately=True)

    async def waits() -> bool:
        view = await house.view(task["id"])
        return view.attempt == 1 and not view.running

    await wait_until(waits, what="the attempt was given back")
    assert (await gateway.call("CancelTask", {"id": task["id"]}))["status"]["state"] == CANCELED


async def test_each_turn_has_its_own_attempts(house: House) -> None:
    async def agent(run: Run) -> AsyncIterator[Event]:
        if run.attempt < 3:
            raise Retry
        yield run.ask("Which?") if run.turn == 1 else run.complete()

    gateway = await house.both(agent)
    task = await gateway.send("hi")
    assert task["status"]["state"] == ASKS
    assert (await gateway.send("on", task=task["id"]))["status"]["state"] == COMPLETED


# -- cancelling


async def test_cancel_reaches_a_silent_run_and_lets_it_clean_up(house: House) -> None:
    held = Held()
    gateway = await house.both(held)
    async with gateway.stream("SendStreamingMessage", message("hi")) as stream:
        task_id = (await stream.next()).event["task"]["id"]
        canceled = await gateway.call("CancelTask", {"id": task_id})
        items = await stream.rest()
    assert canceled["status"]["state"] == CANCELED and text(canceled) == "a"
    assert held.cleaned == 1
    assert [item.state for item in items if item.state] == [WORKING, CANCELED]


async def test_what_a_cancelled_agent_says_last_is_kept(house: House) -> None:
    begun = asyncio.Event()

    async def agent(run: Run) -> AsyncIterator[Event]:
        try:
            begun.set()
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            yield "half a thought"
            raise

    gateway = await house.both(agent)
    task = await gateway.send("hi", returnImmediately=True)
    await begun.wait()
    canceled = await gateway.call("CancelTask", {"id": task["id"]})
    assert (canceled["status"]["state"], text(canceled)) == (CANCELED, "half a thought")


async def test_an_agent_that_ends_before_the_cancel_does_wins(house: House) -> None:
    begun = asyncio.Event()

    async def agent(run: Run) -> AsyncIterator[Event]:
        try:
            begun.set()
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            yield run.complete("Just done")

    gateway = await house.both(agent)
    task = await gateway.send("hi", returnImmediately=True)
    await begun.wait()
    with pytest.raises(TaskNotCancelable, match=COMPLETED):
        await gateway.call("CancelTask", {"id": task["id"]})
    assert said(await gateway.get(task["id"])) == "Just done"


async def test_an_agent_that_does_not_listen_writes_nothing_after_its_grace(house: House) -> None:
    begun, go = asyncio.Event(), asyncio.Event()

    async def agent(run: Run) -> AsyncIterator[Event]:
        begun.set()
        while not go.is_set():
            try:
                await go.wait()
            except asyncio.CancelledError:
                continue
        yield "still here"

    worker = await house.worker(agent)
    gateway = await house.gateway()
    task = await gateway.send("hi", returnImmediately=True)
    await begun.wait()
    try:
        canceled = await gateway.call("CancelTask", {"id": task["id"]})
        assert canceled["status"]["state"] == CANCELED
        await wait_until(lambda: not worker.runner.active, what="the run was given up")
        assert len(worker.runner.deaf) == 1
    finally:
        go.set()
    await wait_until(lambda: not worker.runner.deaf, what="the agent ended after all")
    assert await gateway.get(task["id"]) == canceled


async def test_a_worker_that_hears_nothing_loses_the_task_that_is_canceled(house: House) -> None:
    held = Held()
    worker = await house.worker(held)
    gateway = await house.gateway(cancel_wait=0.3)
    async with gateway.stream("SendStreamingMessage", message("hi")) as stream:
        task_id = (await stream.next()).event["task"]["id"]
        await stream.until(WORKING)
        await worker.kill()
        canceled = await gateway.call("CancelTask", {"id": task_id})
        assert canceled["status"]["state"] == CANCELED
        assert (await stream.rest())[-1].state == CANCELED
    held.go.set()
    await wait_until(lambda: not worker.leased.owned, what="the lost run has ended")
    assert await gateway.get(task_id) == canceled


async def test_a_lost_cancel_message_is_found_with_the_next_renewal(house: House) -> None:
    held = Held()
    await house.worker(held, lease=0.3, redis_timeout=0.2)
    gateway = await house.gateway()
    task = await gateway.send("hi", returnImmediately=True)
    await wait_until(lambda: held.attempts, what="the agent has begun")
    # The flag without its message: as if the worker's pub/sub connection had been away.
    await house.store.commit(command("HSET", house.store.keys.task(task["id"]), "cancel", 1))
    await house.state(task["id"], CANCELED)
    assert held.cleaned == 1


async def test_a_cancel_that_nobody_carried_out_is_by_the_next_run(house: House) -> None:
    held = Held()
    gateway = await house.gateway()
    task = await gateway.send("hi", returnImmediately=True)
    await house.store.commit(command("HSET", house.store.keys.task(task["id"]), "cancel", 1))
    await house.worker(held)
    await house.state(task["id"], CANCELED)
    assert held.attempts == []


# -- a worker that goes away


async def test_a_draining_worker_finishes_what_it_can_and_takes_nothing_new(house: House) -> None:
    held = Held()
    worker = await house.worker(held, drain=20)
    gateway = await house.gateway()
    task = await gateway.send("hi", returnImmediately=True)
    await wait_until(lambda: held.attempts, what="the agent has begun")
    draining = asyncio.create_task(worker.drain())
    await wait_until(lambda: not worker.leased.allow_pick_jobs, what="the worker drains")
    waiting = await gateway.send("more", returnImmediately=True)
    held.go.set()
    await draining
    assert (await gateway.get(task["id"]))["status"]["state"] == COMPLETED
    assert (await gateway.get(waiting["id"]))["status"]["state"] == SUBMITTED
    assert await house.store.queue.depth() == 1
    assert held.attempts == [1]


async def test_what_a_draining_worker_cannot_finish_goes_to_another_uncounted(
    house: House,
) -> None:
    first, second = Held(), Held()
    second.go.set()
    worker = await house.worker(first)
    gateway = await house.gateway()
    sending = asyncio.create_task(gateway.send("hi"))
    await wait_until(lambda: first.attempts, what="the agent has begun")
    await worker.drain()
    assert first.cleaned == 1
    await house.worker(second)
    task = await sending
    assert (first.attempts, second.attempts) == ([1], [1])
    assert (task["status"]["state"], text(task)) == (COMPLETED, "ab")
    assert await gateway.get(task["id"]) == task


async def test_a_released_run_comes_before_what_waits(house: House) -> None:
    order: list[str] = []

    async def agent(run: Run) -> str:
        order.append(run.text)
        return ""

    held = Held()
    worker = await house.worker(held, concurrency=1)
    gateway = await house.gateway()
    tasks = [await gateway.send("begun", returnImmediately=True)]
    await wait_until(lambda: held.attempts, what="the agent has begun")
    tasks.append(await gateway.send("waiting", returnImmediately=True))
    await worker.drain()
    await house.worker(agent, concurrency=1)
    for task in tasks:
        await house.state(task["id"], COMPLETED)
    assert order == ["begun", "waiting"]


async def lost(house: House, worker: WorkerOf, task_id: str, turn: int = 1) -> None:
    """The worker is dead, as far as anybody can tell, and its lease has ended."""
    await worker.kill()
    await house.lapse(task_id, turn)


async def test_another_worker_takes_over_and_the_task_holds_the_answer_once(house: House) -> None:
    first, second = Held(), Held()
    second.go.set()
    one = await house.worker(first)
    gateway = await house.gateway()
    async with gateway.stream("SendStreamingMessage", message("hi")) as stream:
        items = [await stream.next() for _ in range(3)]
        task_id = items[0].event["task"]["id"]
        await lost(house, one, task_id)
        await house.worker(second)
        items += await stream.rest()
    task = await gateway.get(task_id)
    assert second.attempts == [2]
    assert (task["status"]["state"], text(task)) == (COMPLETED, "ab")
    assert [item.state for item in items if item.state] == [
        SUBMITTED,
        WORKING,
        WORKING,
        COMPLETED,
    ]
    seqs = [int((item.id or "").partition(".")[0]) for item in items]
    assert seqs == [*range(1, len(items) + 1)]
    # The first worker was only slow. All that it still does is refused.
    first.go.set()
    await wait_until(lambda: not one.leased.owned, what="the lost run has ended")
    assert first.cleaned == 1
    assert await gateway.get(task_id) == task


async def test_artifacts_of_a_lost_attempt_are_replaced(house: House) -> None:
    hang = asyncio.Event()

    async def losing(run: Run) -> AsyncIterator[Event]:
        yield run.status("First")
        yield run.artifact("report", "old ", "draft")
        yield run.artifact("only here", "x")
        await hang.wait()

    async def agent(run: Run) -> AsyncIterator[Event]:
        yield run.artifact("report", "new")
        yield run.artifact("report", " text", append=True)

    one = await house.worker(losing)
    gateway = await house.gateway()
    sending = asyncio.create_task(gateway.call("SendMessage", message("hi")))
    listed = await wait_until(
        lambda: with_artifacts(gateway.list), what="the first attempt has written"
    )
    await lost(house, one, listed["id"])
    await house.worker(agent)
    task = (await sending)["task"]
    assert task == await gateway.get(listed["id"])
    assert [(a["name"], text({"artifacts": [a]})) for a in task["artifacts"]] == [
        ("report", "new text")
    ]
    hang.set()


async def with_artifacts(listing: Any) -> Json | None:
    page = await listing(includeArtifacts=True)
    return next((task for task in page["tasks"] if len(task["artifacts"]) == 2), None)


async def test_a_turn_that_is_begun_again_finds_the_task_as_the_turn_began(house: House) -> None:
    found: list[list[str | None]] = []
    hang = asyncio.Event()

    async def agent(run: Run) -> AsyncIterator[Event]:
        if run.turn == 1:
            yield run.artifact("list", "a")
            yield run.ask("More?")
            return
        found.append([part.text for part in run.task.artifacts[0].parts])
        yield run.artifact("list", "b", append=True)
        if run.attempt == 1:
            await hang.wait()

    one = await house.worker(agent)
    gateway = await house.gateway()
    task = await gateway.send("go")
    await gateway.send("on", task=task["id"], returnImmediately=True)
    await wait_until(lambda: has_text(gateway, task["id"], "ab"), what="attempt 1 has appended")
    await lost(house, one, task["id"], 2)
    await house.worker(agent)
    await house.state(task["id"], COMPLETED)
    assert text(await gateway.get(task["id"])) == "ab"
    assert found == [["a"], ["a"]]
    hang.set()


async def has_text(gateway: Any, task_id: str, words: str) -> bool:
    return text(await gateway.get(task_id)) == words


async def test_a_task_whose_workers_all_die_fails(house: House) -> None:
    held = Held()
    gateway = await house.gateway()
    task = await gateway.send("hi", returnImmediately=True)
    for attempt in (1, 2):
        worker = await house.worker(held, attempts=2)
        await wait_until(lambda n=attempt: held.attempts[-1:] == [n], what="the attempt begins")
        await lost(house, worker, task["id"])
    await house.worker(held, attempts=2)
    await house.state(task["id"], FAILED)
    failed = await gateway.get(task["id"])
    assert "begun 2 times" in said(failed)
    held.go.set()


async def test_an_agent_that_must_not_run_twice_fails_with_its_worker(house: House) -> None:
    class Once(Held):
        retry = False

    agent = Once()
    gateway = await house.gateway()
    worker = await house.worker(agent)
    task = await gateway.send("hi", returnImmediately=True)
    await wait_until(lambda: agent.attempts, what="the agent has begun")
    await lost(house, worker, task["id"])
    await house.worker(agent)
    await house.state(task["id"], FAILED)
    assert agent.attempts == [1]
    agent.go.set()


async def test_a_message_of_a_lost_attempt_is_nobodys(house: House) -> None:
    hang = asyncio.Event()
    begun: list[str] = []

    async def losing(run: Run) -> Message:
        begun.append(run.task_id)
        await hang.wait()
        return run.reply("from the first")

    async def agent(run: Run) -> Message:
        return run.reply("from the second")

    one = await house.worker(losing)
    gateway = await house.gateway()
    sending = asyncio.create_task(gateway.call("SendMessage", message("hi")))
    await wait_until(lambda: begun, what="the agent has begun")
    await lost(house, one, begun[0])
    await house.worker(agent)
    task = (await sending)["task"]  # begun again, so it is a Task for good
    assert (task["status"]["state"], said(task)) == (COMPLETED, "from the second")
    hang.set()
    await wait_until(lambda: not one.leased.owned, what="the lost run has ended")
    assert await gateway.get(task["id"]) == task


async def test_a_lease_that_is_lost_stops_the_agent(house: House) -> None:
    held = Held()
    worker = await house.worker(held, lease=0.3, redis_timeout=0.2)
    gateway = await house.gateway()
    task = await gateway.send("hi", returnImmediately=True)
    await wait_until(lambda: held.attempts, what="the agent has begun")
    (job,) = worker.leased.owned
    queue, ends = house.store.keys.queue, house.store.clock.now() + 60_000
    await house.store.commit(  # as another takes it
        command("SET", f"arq:in-progress:{job}", "another", "PX", 60_000),
        command("ZADD", queue.queue, ends, job),
        command("ZADD", queue.running, ends, job),
    )
    await wait_until(lambda: held.cleaned, what="the agent was stopped")
    await wait_until(lambda: not worker.leased.owned, what="the job was let go")
    view = await house.view(task["id"])
    assert (view.running, view.attempt) == (False, 0)
    await gateway.call("CancelTask", {"id": task["id"]})


async def test_a_run_that_is_well_is_run_once_however_many_leases_it_takes(house: House) -> None:
    held = Held()
    one, two = [await house.worker(held, lease=1.2, redis_timeout=1) for _ in range(2)]
    gateway = await house.gateway()
    task = await gateway.send("hi", returnImmediately=True)
    await wait_until(lambda: held.attempts, what="the agent has begun")
    (busy,) = (worker for worker in (one, two) if worker.leased.owned)
    (job,) = busy.leased.owned.values()
    ends = {job.ends}
    await wait_until(
        lambda: ends.add(job.ends) or len(ends) > 8,  # type: ignore[func-returns-value]
        what="eight renewals were granted",
    )
    assert max(ends) - min(ends) > 2 * 1_200, "the last lease began when the first was long over"
    held.go.set()
    await house.state(task["id"], COMPLETED)
    assert held.attempts == [1]
    assert (await house.view(task["id"])).attempt == 1


@pytest.mark.requires("redis-server")
async def test_who_blocks_its_event_loop_past_the_lease_has_lost_its_run(
    tmp_path: Path,
) -> None:
    """It is another's by then; whoever wakes is told at once, and nothing that it says is kept."""
    unblock, blocked, cancelled = threading.Event(), threading.Event(), threading.Event()

    async def blocking(run: Run) -> AsyncIterator[Event]:
        yield "a"
        blocked.set()
        unblock.wait()
        try:
            yield "too late"
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    with running_server(tmp_path) as url:
        settings = quick(Settings(redis_url=url), lease=1, redis_timeout=0.8)
        with worker_in_a_thread(settings, blocking):
            async with house_of(settings, lease=15) as house:
                gateway = await house.gateway()
                task = await gateway.send("hi", returnImmediately=True)
                await wait_until(blocked.is_set, what="its event loop is blocked")
                held = Held()
                await house.worker(held)
                await wait_until(lambda: held.attempts, what="another has taken over")
                unblock.set()
                await wait_until(cancelled.is_set, what="the first agent was cancelled")
                held.go.set()
                await house.state(task["id"], COMPLETED)
                assert text(await gateway.get(task["id"])) == "ab"
                assert held.attempts == [2]


@contextmanager
def worker_in_a_thread(settings: Settings, agent: Any) -> Iterator[None]:
    """A worker with an event loop of its own."""
    stopping: list[Callable[[], object]] = []

    async def work() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        stopping.append(lambda: loop.call_soon_threadsafe(stop.set))
        await serve(settings, agent, stop=stop)

    thread = threading.Thread(target=asyncio.run, args=(work(),))
    thread.start()
    try:
        yield
    finally:
        stopping[0]()
        thread.join()


# -- every step of a run, cut


@pytest.mark.parametrize("how", ["before", "between", "lost"])
async def test_a_run_cut_at_any_step_ends_with_its_answer_once(house: House, how: How) -> None:
    async def agent(run: Run) -> AsyncIterator[Event]:
        yield "a"
        yield run.artifact("b", "b")
        yield run.status("nearly")
        yield run.complete()

    # A lost answer to `take` costs a lease.
    worker = await house.worker(agent, lease=0.3, redis_timeout=0.2)
    gateway = await house.gateway()
    for at in range(1, 20):
        cut = Cut(worker.store.commit, at=at, how=how)
        try:
            task = await gateway.send(f"cut {at}")
            await wait_until(lambda: not worker.leased.owned, what="the run is over")
        finally:
            cut.heal()
        assert (task["status"]["state"], text(task)) == (COMPLETED, "ab"), at
        assert await gateway.get(task["id"]) == task, at
        if not cut.hit:
            break
    else:
        raise AssertionError("a run has fewer steps than that")
    assert at > 2
