"""What an agent yields, and the events that come of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Annotated, Any

import pytest
from annotated_types import MaxLen
from pydantic import BaseModel, ValidationError

from switchroom.agent import Agent, Event, Message, Part, Retry, Run
from switchroom.protocol.errors import InvalidAgentResponse
from switchroom.protocol.lifecycle import fold
from switchroom.protocol.model import (
    Artifact,
    Json,
    Role,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)
from switchroom.worker.drive import drive


def run(text: str = "hi", *, turn: int = 1, artifacts: list[Json] | None = None) -> Run:
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": text}]}
    task: Json = {
        "id": "t",
        "contextId": "c",
        "status": {"state": "TASK_STATE_WORKING", "timestamp": "2026-01-02T03:04:05.678Z"},
        "history": [message],
    }
    if artifacts is not None:
        task["artifacts"] = artifacts
    return Run(task, message, turn=turn)


async def events(agent: Agent | None, on: Run | None = None) -> list[Json]:
    return [event async for event in drive(agent, on or run())]


def states(found: list[Json]) -> list[str]:
    return [e["statusUpdate"]["status"]["state"] for e in found if "statusUpdate" in e]


def chunk(text: str, artifact_id: str = "1-1", **flags: bool) -> Json:
    artifact = {"artifactId": artifact_id, "parts": [{"text": text}]}
    return {"artifactUpdate": {"taskId": "t", "contextId": "c", "artifact": artifact, **flags}}


def status(state: str, **more: Any) -> Json:
    told = {"state": f"TASK_STATE_{state}", **more}
    return {"statusUpdate": {"taskId": "t", "contextId": "c", "status": told}}


CLOSING = chunk("", append=True, lastChunk=True)


async def test_strings_are_chunks_of_one_artifact_closed_before_completion() -> None:
    async def agent(run: Run) -> AsyncIterator[str]:
        yield "Hel"
        yield "lo"

    assert await events(agent) == [
        chunk("Hel"),
        chunk("lo", append=True),
        CLOSING,
        status("COMPLETED"),
    ]


async def test_an_empty_string_sends_nothing() -> None:
    async def agent(run: Run) -> AsyncIterator[str]:
        yield ""

    assert await events(agent) == [status("COMPLETED")]


async def test_no_agent_only_completes() -> None:
    assert await events(None) == [status("COMPLETED")]


async def test_an_agent_that_yields_nothing_completes() -> None:
    async def agent(run: Run) -> AsyncIterator[str]:
        return
        yield

    assert await events(agent) == [status("COMPLETED")]


async def test_a_coroutine_answers_with_one_whole_artifact() -> None:
    async def agent(run: Run) -> str:
        return "Hello"

    assert await events(agent) == [chunk("Hello", lastChunk=True), status("COMPLETED")]


@pytest.mark.parametrize("nothing", [None, ""])
async def test_a_coroutine_may_answer_nothing(nothing: str | None) -> None:
    async def agent(run: Run) -> str | None:
        return nothing

    assert await events(agent) == [status("COMPLETED")]


async def test_a_coroutine_may_return_an_event() -> None:
    async def agent(run: Run) -> Event:
        return run.ask("Which city?")

    assert states(await events(agent)) == ["TASK_STATE_INPUT_REQUIRED"]


async def test_an_object_with_an_async_call_is_an_agent() -> None:
    class Greeter:
        async def __call__(self, run: Run) -> AsyncIterator[str]:
            yield "Hello"

    assert (await events(Greeter()))[0] == chunk("Hello")


@pytest.mark.parametrize(
    ("make", "state"),
    [
        (lambda run: run.ask("Where?"), "INPUT_REQUIRED"),
        (lambda run: run.authorize("Sign in"), "AUTH_REQUIRED"),
        (lambda run: run.reject("No"), "REJECTED"),
        (lambda run: run.fail("Broken"), "FAILED"),
        (lambda run: run.complete("Done"), "COMPLETED"),
    ],
)
async def test_an_open_answer_is_closed_before_any_end(make: Any, state: str) -> None:
    async def agent(run: Run) -> AsyncIterator[Event]:
        yield "thinking"
        yield make(run)

    found = await events(agent)
    assert found[:2] == [chunk("thinking"), CLOSING]
    assert states(found) == [f"TASK_STATE_{state}"]


async def test_nothing_is_asked_for_after_the_end_and_cleanup_runs() -> None:
    seen: list[str] = []

    async def agent(run: Run) -> AsyncIterator[Event]:
        try:
            yield run.complete()
            seen.append("went on")
        finally:
            await asyncio.sleep(0)
            seen.append("cleaned up")

    assert await events(agent) == [status("COMPLETED")]
    assert seen == ["cleaned up"]


async def test_what_cleanup_raises_after_the_end_is_logged_and_changes_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def agent(run: Run) -> AsyncIterator[Event]:
        try:
            yield run.complete()
        finally:
            raise RuntimeError("cleanup broke")

    assert await events(agent) == [status("COMPLETED")]
    assert "cleanup broke" in caplog.text


async def test_status_keeps_working_and_carries_words_under_the_tasks_ids() -> None:
    async def agent(run: Run) -> AsyncIterator[Event]:
        yield run.status("Reading the file", metadata={"page": 1})

    working = (await events(agent))[0]["statusUpdate"]
    assert working["status"]["state"] == "TASK_STATE_WORKING"
    assert working["metadata"] == {"page": 1}
    said = working["status"]["message"]
    assert (said["taskId"], said["contextId"], said["role"]) == ("t", "c", "ROLE_AGENT")
    assert said["parts"] == [{"text": "Reading the file"}]


async def test_foreign_ids_and_times_are_corrected() -> None:
    async def agent(run: Run) -> AsyncIterator[Event]:
        yield TaskArtifactUpdateEvent(
            task_id="x",
            context_id="y",
            artifact=Artifact(artifact_id="a", parts=[Part(text="1")]),
        )
        message = Message(
            message_id="m",
            role=Role.AGENT,
            parts=[Part(text="1")],
            task_id="x",
            context_id="y",
        )
        yield TaskStatusUpdateEvent(
            task_id="x",
            context_id="y",
            status=TaskStatus(
                state=TaskState.COMPLETED,
                timestamp=datetime(2020, 1, 1, tzinfo=UTC),
                message=message,
            ),
        )

    artifact, done = await events(agent)
    assert artifact == chunk("1", "a")
    assert "timestamp" not in done["statusUpdate"]["status"]
    for ids in (done["statusUpdate"], done["statusUpdate"]["status"]["message"]):
        assert (ids["taskId"], ids["contextId"]) == ("t", "c")


async def test_the_first_chunk_of_an_artifact_replaces_and_further_ones_append() -> None:
    async def agent(run: Run) -> AsyncIterator[Event]:
        yield run.artifact("report", "a")
        yield run.artifact("report", "b", append=True, last=True)

    first, second, _ = await events(agent)
    assert "append" not in first["artifactUpdate"]
    assert second["artifactUpdate"]["append"] is second["artifactUpdate"]["lastChunk"] is True


async def test_an_artifact_that_is_not_there_cannot_be_appended_to() -> None:
    async def agent(run: Run) -> AsyncIterator[Event]:
        yield run.artifact("other", "a")
        yield run.artifact("report", "b", append=True)

    with pytest.raises(InvalidAgentResponse, match="'report', which it has not begun"):
        await events(agent)


async def test_the_author_may_replace_an_artifact_in_the_same_turn() -> None:
    async def agent(run: Run) -> AsyncIterator[Event]:
        yield run.artifact("report", "draft")
        yield run.artifact("report", "final")

    assert "append" not in (await events(agent))[1]["artifactUpdate"]


HELD: Json = {
    "artifactId": "report",
    "name": "report",
    "parts": [{"text": "a"}, {"data": {"n": 10**30}}],
    "metadata": {"kept": 1, "old": 1},
}


async def test_continuing_an_earlier_turns_artifact_first_sends_it_whole() -> None:
    async def agent(run: Run) -> AsyncIterator[Event]:
        yield run.artifact("report", "b", append=True, metadata={"old": 2})
        yield run.artifact("report", "c", append=True)

    turn = run(turn=2, artifacts=[HELD])
    first, second, _ = await events(agent, turn)
    assert first["artifactUpdate"]["artifact"] == {
        "artifactId": "report",
        "name": "report",
        "parts": [{"text": "a"}, {"data": {"n": 10**30}}, {"text": "b"}],
        "metadata": {"kept": 1, "old": 2},
    }
    assert "append" not in first["artifactUpdate"]
    assert second["artifactUpdate"]["append"] is True
    assert len(HELD["parts"]) == 2, "the task itself is not touched"


async def test_a_new_attempt_makes_the_same_artifacts_so_the_task_holds_them_once() -> None:
    async def agent(run: Run) -> AsyncIterator[Event]:
        yield "answer"
        yield run.artifact(None, "extra")
        yield run.artifact("report", "b", append=True)

    def base() -> Json:
        task: Json = run(turn=2, artifacts=[{**HELD}])._task
        return task

    async def attempt(task: Json) -> Json:
        turn = Run(base(), base()["history"][0], turn=2)
        for event in await events(agent, turn):
            fold(task, event)
        return task

    once = await attempt(base())
    twice = await attempt(await attempt(base()))
    assert once["artifacts"] == twice["artifacts"]
    assert [a["artifactId"] for a in once["artifacts"]] == ["report", "2-1", "2-2"]


async def test_a_message_is_the_whole_answer() -> None:
    async def agent(run: Run) -> AsyncIterator[Event]:
        yield run.reply("Just a word")
        yield "never asked for"

    (found,) = await events(agent)
    assert found["message"]["contextId"] == "c"
    assert found["message"]["parts"] == [{"text": "Just a word"}]
    assert "taskId" not in found["message"]


@pytest.mark.parametrize("first", ["text", "status", "artifact"])
async def test_a_message_after_anything_else_is_refused(first: str) -> None:
    async def agent(run: Run) -> AsyncIterator[Event]:
        match first:
            case "text":
                yield "text"
            case "status":
                yield run.status("at it")
            case _:
                yield run.artifact("a", "1")
        yield run.reply("too late")

    with pytest.raises(InvalidAgentResponse, match="Message"):
        await events(agent)


async def test_a_working_task_cannot_be_submitted_again() -> None:
    async def agent(run: Run) -> AsyncIterator[Event]:
        yield TaskStatusUpdateEvent(
            task_id="t", context_id="c", status=TaskStatus(state=TaskState.SUBMITTED)
        )

    with pytest.raises(InvalidAgentResponse, match="SUBMITTED"):
        await events(agent)


async def test_text_that_no_json_can_carry_is_refused() -> None:
    async def agent(run: Run) -> AsyncIterator[str]:
        yield "✓"
        yield "half an emoji: \ud83d"

    with pytest.raises(InvalidAgentResponse, match="surrogate"):
        await events(agent)


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


SURROGATE = "\ud83d"
NAN = float("nan")
UNSENDABLE: list[tuple[str, Callable[[Run], Event], str]] = [
    ("nan", lambda run: Part(data={"n": NAN}), "data must not hold NaN"),
    ("nan in an artifact", lambda run: run.artifact("a", Part(data=NAN)), "data must not hold NaN"),
    ("nan in metadata", lambda run: run.status(metadata={"n": NAN}), "metadata must not hold NaN"),
    ("depth", lambda run: Part(data=nested(150)), "data must not nest deeper"),
    ("great depth", lambda run: Part(data=nested(50_000)), "data must not nest deeper"),
    ("depth in metadata", lambda run: run.reply("", metadata={"d": nested(150)}), "metadata must"),
    ("no json", lambda run: Part(data={1, 2}), "data must be a JSON value"),
    ("length", lambda run: Part(data=10**5_000), "a number of such length"),
    ("name", lambda run: run.artifact(SURROGATE, "x"), "without lone surrogates"),
    ("description", lambda run: run.artifact("a", "x", description=SURROGATE), "description must"),
    ("text", lambda run: run.artifact("a", SURROGATE), "text must be valid Unicode"),
    ("key", lambda run: run.artifact("a", "x", metadata={SURROGATE: 1}), "metadata must be valid"),
    ("status", lambda run: run.status(SURROGATE), "text must be valid Unicode"),
    ("question", lambda run: run.ask(SURROGATE), "text must be valid Unicode"),
    ("reply", lambda run: run.reply(SURROGATE), "text must be valid Unicode"),
    ("failure", lambda run: run.fail(SURROGATE), "text must be valid Unicode"),
    ("filename", lambda run: Part(raw=b"x", filename=SURROGATE), "filename must be valid Unicode"),
    ("media type", lambda run: Part(text="x", media_type=SURROGATE), "media_type must be valid"),
    ("url", lambda run: Part(url=SURROGATE), "url must be valid Unicode"),
]


@pytest.mark.parametrize(
    ("make", "said"), [pytest.param(make, said, id=name) for name, make, said in UNSENDABLE]
)
async def test_what_no_json_can_carry_is_refused_wherever_it_stands(
    make: Callable[[Run], Event], said: str
) -> None:
    async def generator(run: Run) -> AsyncIterator[Event]:
        yield make(run)

    async def coroutine(run: Run) -> Event:
        return make(run)

    for agent in (generator, coroutine):
        with pytest.raises(InvalidAgentResponse) as caught:
            await events(agent)
        sentence = str(caught.value)
        assert said in sentence
        assert "cannot be sent" in sentence
        assert sentence.isascii()


def changed(event: TaskArtifactUpdateEvent, what: str) -> TaskArtifactUpdateEvent:
    match what:
        case "nan":
            event.artifact.parts[0].data["n"] = NAN
        case "depth":
            event.artifact.parts[0].data["n"] = nested(150)
        case "great depth":
            event.artifact.parts[0].data["n"] = nested(5_000)
        case "object":
            event.artifact.parts[0].data["n"] = object()
        case "name":
            event.artifact.name = SURROGATE
        case "metadata":
            event.metadata = {"n": SURROGATE}
        case "nothing left":
            event.artifact.parts.clear()
    return event


@pytest.mark.parametrize(
    "what", ["nan", "depth", "great depth", "object", "name", "metadata", "nothing left"]
)
async def test_what_was_valid_when_it_was_made_is_checked_again(what: str) -> None:
    async def agent(run: Run) -> AsyncIterator[Event]:
        yield changed(run.artifact("a", Part(data={})), what)

    with pytest.raises(InvalidAgentResponse, match="TaskArtifactUpdateEvent cannot be sent: "):
        await events(agent)


async def test_a_fault_in_models_of_the_agents_own_is_its_own() -> None:
    class Weather(BaseModel):
        city: Annotated[str, MaxLen(9)]

    async def agent(run: Run) -> AsyncIterator[Event]:
        yield str(Weather(city=SURROGATE))

    with pytest.raises(ValidationError):
        await events(agent)


async def test_parts_of_any_kind_are_chunks_like_strings() -> None:
    async def agent(run: Run) -> AsyncIterator[Event]:
        yield Part(data={"n": 10**30})
        yield "text"
        yield Part(text="")
        yield Part(raw=b"tck", media_type="text/plain")
        yield Part(data=None)

    def part(part: Json, **flags: bool) -> Json:
        event = chunk("", **flags)
        event["artifactUpdate"]["artifact"]["parts"] = [part]
        return event

    assert await events(agent) == [
        part({"data": {"n": 10**30}}),
        chunk("text", append=True),
        part({"raw": "dGNr", "mediaType": "text/plain"}, append=True),
        part({"data": None}, append=True),
        CLOSING,
        status("COMPLETED"),
    ]


async def test_a_coroutine_may_return_a_part() -> None:
    async def agent(run: Run) -> Event:
        return Part(url="https://example.com/a")

    whole, done = await events(agent)
    assert whole["artifactUpdate"]["artifact"] == {
        "artifactId": "1-1",
        "parts": [{"url": "https://example.com/a"}],
    }
    assert whole["artifactUpdate"]["lastChunk"] is True
    assert done == status("COMPLETED")


@pytest.mark.parametrize("wrong", [None, 7, {"text": "x"}, b"bytes"])
async def test_what_is_no_event_is_refused_and_the_agent_closed(wrong: Any) -> None:
    closed: list[bool] = []

    async def agent(run: Run) -> AsyncIterator[Any]:
        try:
            yield wrong
        finally:
            closed.append(True)

    with pytest.raises(InvalidAgentResponse, match=type(wrong).__name__):
        await events(agent)
    assert closed == [True]


async def test_a_task_is_not_an_event_of_an_agent() -> None:
    async def agent(run: Run) -> AsyncIterator[Any]:
        yield Task(id="t", context_id="c", status=TaskStatus(state=TaskState.WORKING))

    with pytest.raises(InvalidAgentResponse, match="Task"):
        await events(agent)


async def test_a_call_that_gives_neither_generator_nor_awaitable_is_refused() -> None:
    def agent(run: Run) -> Any:
        return "text"

    with pytest.raises(InvalidAgentResponse, match="str"):
        await events(agent)


@pytest.mark.parametrize("error", [ValueError("mine"), Retry("busy")])
async def test_what_the_agent_raises_comes_out_unchanged(error: Exception) -> None:
    async def generator(run: Run) -> AsyncIterator[str]:
        yield "so far"
        raise error

    async def coroutine(run: Run) -> str:
        raise error

    for agent in (generator, coroutine):
        with pytest.raises(type(error)) as caught:
            await events(agent)
        assert caught.value is error


async def test_cancellation_reaches_an_agent_that_awaits() -> None:
    waiting = asyncio.Event()
    seen: list[str] = []

    async def agent(run: Run) -> AsyncIterator[str]:
        try:
            waiting.set()
            await asyncio.Event().wait()
            yield "never"
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise
        finally:
            await asyncio.sleep(0)
            seen.append("cleaned up")

    task = asyncio.ensure_future(events(agent))
    await waiting.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert seen == ["cancelled", "cleaned up"]


async def test_leaving_early_cancels_an_agent_that_waits_at_its_yield() -> None:
    seen: list[str] = []

    async def agent(run: Run) -> AsyncIterator[str]:
        try:
            yield "one"
            yield "two"
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise
        finally:
            await asyncio.sleep(0)
            seen.append("cleaned up")

    async with aclosing(drive(agent, run())) as driven:
        async for _ in driven:
            break
    assert seen == ["cancelled", "cleaned up"]


async def test_an_agent_that_answers_its_cancellation_with_more_is_still_closed() -> None:
    seen: list[str] = []

    async def agent(run: Run) -> AsyncIterator[str]:
        try:
            try:
                yield "one"
            except asyncio.CancelledError:
                yield "not now"
        finally:
            seen.append("cleaned up")

    async with aclosing(drive(agent, run())) as driven:
        await anext(driven)
    assert seen == ["cleaned up"]


async def test_an_agent_that_breaks_while_cancelled_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def agent(run: Run) -> AsyncIterator[str]:
        try:
            yield "one"
        finally:
            raise RuntimeError("cleanup broke")

    async with aclosing(drive(agent, run())) as driven:
        await anext(driven)
    assert "cleanup broke" in caplog.text


async def test_an_iterator_without_a_close_is_an_answer_too() -> None:
    class Words:
        def __init__(self) -> None:
            self.left = ["a", "b"]

        def __aiter__(self) -> Words:
            return self

        async def __anext__(self) -> str:
            if not self.left:
                raise StopAsyncIteration
            return self.left.pop(0)

    def agent(run: Run) -> AsyncIterator[str]:
        return Words()

    assert await events(agent) == [
        chunk("a"),
        chunk("b", append=True),
        CLOSING,
        status("COMPLETED"),
    ]
