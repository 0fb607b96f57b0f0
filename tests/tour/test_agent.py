"""How to write an agent, one idea per test.

Every agent here runs unchanged in a deployment: `switchroom dev my_agent.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest

from switchroom.agent import Event, Message, Part, Run
from switchroom.protocol.errors import InvalidAgentResponse, TaskNotCancelable, UnsupportedOperation
from switchroom.protocol.model import (
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatusUpdateEvent,
)
from switchroom.testing import converse


async def test_an_agent_is_an_async_generator_and_its_strings_are_the_answer() -> None:
    async def agent(run: Run) -> AsyncIterator[str]:
        for word in run.text.split():
            yield word.upper() + " "

    async with converse(agent) as chat:
        task = await chat.send("good morning")
        assert task.status.state == TaskState.COMPLETED
        assert chat.text == "GOOD MORNING "


async def test_a_coroutine_that_returns_its_answer_is_an_agent_too() -> None:
    async def agent(run: Run) -> str:
        return f"You said: {run.text}"

    async with converse(agent) as chat:
        await chat.send("hi")
        assert chat.text == "You said: hi"


async def test_a_client_reads_the_task_first_then_every_chunk_as_it_is_yielded() -> None:
    async def agent(run: Run) -> AsyncIterator[str]:
        yield "Hel"
        yield "lo"

    async with converse(agent) as chat:
        updates = [update async for update in chat.stream("hi")]

    task, working, first, second, closing, completed = updates
    assert isinstance(task, Task)
    assert isinstance(working, TaskStatusUpdateEvent)
    assert isinstance(first, TaskArtifactUpdateEvent) and not first.append
    assert isinstance(second, TaskArtifactUpdateEvent) and second.append
    assert isinstance(closing, TaskArtifactUpdateEvent) and closing.last_chunk
    assert isinstance(completed, TaskStatusUpdateEvent)


async def test_status_tells_what_the_agent_is_at() -> None:
    async def agent(run: Run) -> AsyncIterator[Event]:
        yield run.status("Reading the file")
        yield "It is empty."

    async with converse(agent) as chat:
        task = await chat.send("What is in it?")
        assert task.history[-1].parts[0].text == "Reading the file"
        assert chat.text == "It is empty."


async def test_artifacts_have_names_and_any_content() -> None:
    async def agent(run: Run) -> AsyncIterator[Event]:
        yield run.artifact("numbers", Part(data=[1, 2, 3]))
        yield run.artifact("report", Part(raw=b"%PDF", media_type="application/pdf"))

    async with converse(agent) as chat:
        numbers, report = (await chat.send("go")).artifacts
        assert numbers.parts[0].data == [1, 2, 3]
        assert report.parts[0].raw == b"%PDF"


async def test_an_artifact_may_be_sent_in_chunks_and_continued_in_a_later_turn() -> None:
    async def agent(run: Run) -> AsyncIterator[Event]:
        yield run.artifact("log", f"line {run.turn}\n", append=run.turn > 1)
        yield run.ask("More?")

    async with converse(agent) as chat:
        await chat.send("go")
        (log,) = (await chat.send("yes")).artifacts
        assert [part.text for part in log.parts] == ["line 1\n", "line 2\n"]


async def test_asking_ends_the_run_and_the_answer_begins_the_next_turn_of_the_same_task() -> None:
    async def agent(run: Run) -> AsyncIterator[Event]:
        if run.turn == 1:
            yield run.ask("Which city?")
        else:
            question = run.task.history[-2]
            yield f"{question.parts[0].text} {run.text}!"

    async with converse(agent) as chat:
        asked = await chat.send("Weather, please")
        assert asked.status.state == TaskState.INPUT_REQUIRED
        answered = await chat.send("Paris")
        assert answered.id == asked.id
        assert chat.text == "Which city? Paris!"


async def test_an_ended_task_stays_ended_and_the_conversation_goes_on_with_a_new_one() -> None:
    async def agent(run: Run) -> str:
        return run.text

    async with converse(agent) as chat:
        first, second = await chat.send("one"), await chat.send("two")
        assert first.id != second.id
        assert first.context_id == second.context_id


async def test_rejecting_says_why() -> None:
    async def agent(run: Run) -> AsyncIterator[Event]:
        yield run.reject("I only do sums.")

    async with converse(agent) as chat:
        status = (await chat.send("Sing!")).status
        assert status.state == TaskState.REJECTED
        assert status.message and status.message.parts[0].text == "I only do sums."


async def test_an_agent_may_answer_with_a_message_and_make_no_task() -> None:
    async def agent(run: Run) -> Message:
        return run.reply("Hello!")

    async with converse(agent) as chat:
        assert (await chat.message("hi")).parts[0].text == "Hello!"
        with pytest.raises(LookupError):
            _ = chat.task


async def test_raising_fails_the_task_and_a_test_sees_the_exception() -> None:
    async def agent(run: Run) -> AsyncIterator[str]:
        yield "so far, so good"
        raise ConnectionError("the database is gone")

    async with converse(agent) as chat:
        with pytest.raises(ConnectionError):
            await chat.send("hi")
        assert chat.task.status.state == TaskState.FAILED
        assert chat.task.status.message is None, "a client never reads the exception's text"


async def test_failing_with_words_is_a_maker_too() -> None:
    async def agent(run: Run) -> AsyncIterator[Event]:
        yield run.fail("That file is damaged.")

    async with converse(agent) as chat:
        assert (await chat.send("Open it")).status.state == TaskState.FAILED


async def test_cancellation_arrives_as_a_cancelled_error() -> None:
    cleaned_up = []

    async def agent(run: Run) -> AsyncIterator[str]:
        try:
            while True:
                yield "still here "
        except asyncio.CancelledError:
            cleaned_up.append(run.task_id)
            raise

    async with converse(agent) as chat:
        async for update in chat.stream("go"):
            if isinstance(update, TaskArtifactUpdateEvent):
                await chat.cancel()
        assert isinstance(update, TaskStatusUpdateEvent)
        assert update.status.state == TaskState.CANCELED
        assert cleaned_up == [chat.task.id]
        with pytest.raises(TaskNotCancelable):
            await chat.cancel()


async def test_a_task_may_be_cancelled_before_its_agent_has_said_anything() -> None:
    async def agent(run: Run) -> AsyncIterator[str]:
        yield "never read"

    async with converse(agent) as chat:
        states = []
        async for update in chat.stream("go"):
            assert isinstance(update, Task | TaskStatusUpdateEvent)
            states.append(update.status.state)
            if isinstance(update, Task):
                await chat.cancel()
        assert states == [TaskState.SUBMITTED, TaskState.CANCELED]


async def test_a_message_in_a_later_turn_is_the_tasks_last_word() -> None:
    async def agent(run: Run) -> Event:
        return run.ask("Anything else?") if run.turn == 1 else run.reply("Goodbye!")

    async with converse(agent) as chat:
        await chat.send("hi")
        status = (await chat.send("No")).status
        assert status.state == TaskState.COMPLETED
        assert status.message and status.message.parts[0].text == "Goodbye!"


async def test_an_agent_at_work_takes_no_message() -> None:
    async def agent(run: Run) -> AsyncIterator[str]:
        yield "one"
        yield "two"

    async with converse(agent) as chat:
        async for _ in chat.stream("go"):
            break
        with pytest.raises(UnsupportedOperation):
            await chat.send("and this")


async def test_a_task_that_waits_can_be_cancelled_without_its_agent() -> None:
    async def agent(run: Run) -> AsyncIterator[Event]:
        yield run.ask("Which city?")

    async with converse(agent) as chat:
        await chat.send("Weather, please")
        await chat.cancel()
        assert chat.task.status.state == TaskState.CANCELED


async def test_the_end_of_the_conversation_stops_an_agent_that_is_still_at_work() -> None:
    stopped = []

    async def agent(run: Run) -> AsyncIterator[str]:
        try:
            yield "one"
            yield "two"
        finally:
            stopped.append(True)

    async with converse(agent) as chat:
        async with aclosing(chat.stream("go")) as updates:
            await anext(updates)
    assert stopped


async def test_a_later_attempt_can_go_on_its_own_way() -> None:
    async def agent(run: Run) -> str:
        return "from the checkpoint" if run.attempt > 1 else "from the start"

    async with converse(agent) as chat:
        await chat.send("go", attempt=2)
        assert chat.text == "from the checkpoint"


async def test_an_agent_reads_what_the_client_told_about_itself() -> None:
    async def agent(run: Run) -> str:
        return f"{run.metadata['user']}, {run.accepted_output_modes}, {run.extensions}"

    async with converse(agent) as chat:
        await chat.send(
            "hi",
            metadata={"user": "ada"},
            accepted_output_modes=["text/plain"],
            extensions=["urn:example"],
        )
        assert chat.text == "ada, ('text/plain',), ('urn:example',)"


async def test_what_is_no_event_is_named() -> None:
    async def agent(run: Run) -> AsyncIterator[object]:
        yield 42

    async with converse(agent) as chat:  # type: ignore[arg-type]
        with pytest.raises(InvalidAgentResponse, match="int"):
            await chat.send("hi")


async def test_no_agent_at_all_completes_every_task() -> None:
    async with converse(None) as chat:
        assert (await chat.send("hi")).status.state == TaskState.COMPLETED
