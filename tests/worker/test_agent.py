"""What an agent sees of its run, what it may declare, and what is taken for an agent."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any

import pytest

from switchroom.agent import AgentError, Declared, Message, Part, Run, check_agent
from switchroom.protocol.model import Json, Task

MESSAGE: Json = {
    "messageId": "m",
    "role": "ROLE_USER",
    "parts": [{"text": "one"}, {"data": {"n": 1}}, {"text": "two"}],
}
TASK: Json = {
    "id": "t",
    "contextId": "c",
    "status": {"state": "TASK_STATE_WORKING"},
    "history": [MESSAGE],
    "artifacts": [{"artifactId": "report", "parts": [{"text": "a"}]}],
}


def test_a_run_shows_the_task_and_the_message_it_answers() -> None:
    run = Run(TASK, MESSAGE, turn=2, attempt=3, metadata={"k": 1}, extensions=["urn:x"])
    assert isinstance(run.task, Task)
    assert isinstance(run.message, Message)
    assert (run.task_id, run.context_id, run.turn, run.attempt) == ("t", "c", 2, 3)
    assert run.task.to_dict() == TASK
    assert run.message.to_dict() == MESSAGE
    assert run.metadata == {"k": 1}
    assert run.extensions == ("urn:x",)
    assert run.accepted_output_modes == ()


def test_the_text_is_the_text_parts_one_to_a_line() -> None:
    assert Run(TASK, MESSAGE).text == "one\ntwo"
    assert Run(TASK, {**MESSAGE, "parts": [{"url": "https://example.com/a"}]}).text == ""


def test_an_artifacts_name_is_its_id() -> None:
    artifact = Run(TASK, MESSAGE).artifact("report", "text", description="d").artifact
    assert artifact.to_dict() == {
        "artifactId": "report",
        "name": "report",
        "description": "d",
        "parts": [{"text": "text"}],
    }


def test_artifacts_without_a_name_are_numbered_within_the_turn() -> None:
    run = Run(TASK, MESSAGE, turn=2)
    ids = [run.artifact(None, "x").artifact.artifact_id for _ in range(2)]
    assert ids == ["2-1", "2-2"]


def test_a_part_may_be_anything_the_protocol_has() -> None:
    file = Part(raw=b"tck", filename="a.txt", media_type="text/plain")
    artifact = Run(TASK, MESSAGE).artifact("a", file, Part(data=None)).artifact
    assert artifact.to_dict()["parts"] == [
        {"raw": "dGNr", "filename": "a.txt", "mediaType": "text/plain"},
        {"data": None},
    ]


def test_an_artifact_without_parts_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one part"):
        Run(TASK, MESSAGE).artifact("a")


def test_each_message_has_an_id_of_its_own() -> None:
    run = Run(TASK, MESSAGE)
    assert run.reply("a").message_id != run.reply("a").message_id


async def generator(run: Run) -> AsyncIterator[str]:
    yield run.text


async def coroutine(run: Run) -> str:
    return run.text


class Called:
    async def __call__(self, run: Run) -> str:
        return run.text

    async def method(self, run: Run) -> AsyncIterator[str]:
        yield run.text


async def configured(prefix: str, run: Run) -> str:
    return prefix + run.text


def traced(agent: Any) -> Callable[[Run], Any]:
    @functools.wraps(agent)
    def wrapper(run: Run) -> Any:
        return agent(run)

    return wrapper


@pytest.mark.parametrize(
    "agent",
    [
        generator,
        coroutine,
        Called(),
        Called().method,
        functools.partial(configured, "> "),
        traced(generator),
    ],
)
def test_these_are_agents(agent: object) -> None:
    assert check_agent(agent) is agent


def plain(run: Run) -> str:
    return run.text


def plain_generator(run: Run) -> Any:
    yield run.text


async def no_argument() -> str:
    return ""


async def two_arguments(run: Run, more: int) -> str:
    return ""


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (plain, "plain is not asynchronous"),
        (plain_generator, "plain_generator is not asynchronous"),
        (lambda run: run.text, "not asynchronous"),
        (Called, "give an instance of it: Called()"),
        (None, "NoneType"),
        ("module:agent", "str"),
        (object(), "cannot be called"),
        (no_argument, "exactly one argument"),
        (two_arguments, "exactly one argument"),
    ],
)
def test_these_are_not_and_the_error_says_what_was_found(found: object, says: str) -> None:
    with pytest.raises(AgentError) as caught:
        check_agent(found)
    assert says in str(caught.value)


def test_an_agent_that_declares_nothing_may_be_retried_without_limits_of_its_own() -> None:
    assert Declared.of(generator) == Declared(retry=True, run_limit=None, inactivity_limit=None)
    assert Declared.of(None) == Declared()


def test_declarations_are_attributes_and_durations_may_be_seconds() -> None:
    class Careful:
        retry = False
        run_limit = timedelta(minutes=5)
        inactivity_limit = 1.5

    assert Declared.of(Careful()) == Declared(
        retry=False, run_limit=timedelta(minutes=5), inactivity_limit=timedelta(seconds=1.5)
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [("retry", "no"), ("retry", 0), ("run_limit", "1h"), ("run_limit", 0), ("run_limit", True)],
)
def test_a_declaration_of_the_wrong_type_is_refused(name: str, value: object) -> None:
    class Wrong:
        pass

    setattr(Wrong, name, value)
    with pytest.raises(AgentError, match=name):
        Declared.of(Wrong())
