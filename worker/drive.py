"""From what an agent yields to the task's events: ids, chunks, closing, completion.

Promises: every event carries the ids of the task and obeys the transition table; the first chunk of
an artifact in an attempt replaces, the later ones append; an open answer is closed before the turn
ends; when `drive` is left, however it is left, the agent's own cleanup has run.
Relies on: `Run` and the protocol. No Redis, no clock: whoever appends an event stamps it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Iterator
from contextlib import contextmanager
from typing import Any, cast

from pydantic import ValidationError

from switchroom.agent import Agent, Event, Run
from switchroom.protocol.errors import InvalidAgentResponse, InvalidParams
from switchroom.protocol.lifecycle import is_interrupted, is_terminal, may_follow
from switchroom.protocol.model import (
    Artifact,
    Json,
    Message,
    Model,
    Part,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)
from switchroom.protocol.params import decode

__all__ = ["drive"]

log = logging.getLogger(__name__)


async def drive(agent: Agent | None, run: Run) -> AsyncGenerator[Json, None]:
    """Runs the agent for one turn and yields its events as StreamResponse JSON (§3.2.3).

    Status events have no timestamp yet. The last event is a terminal or interrupted status, or a
    Message answer; what the agent would yield after it is never asked for. A Message answer has no
    `taskId`: whether it names a task is for the caller, who knows if there is one to see.

    Args:
        agent: None stands for the agent that only completes.
        run: The turn.

    Raises:
        InvalidAgentResponse: The agent yielded something that is no event, or not allowed now, or
            made one that no JSON can carry.
        Exception: Whatever else the agent raises, unchanged.
    """
    turn = _Turn(run)
    if agent is None:
        for event in turn.end():
            yield event
        return
    called: object = agent(run)
    if not isinstance(called, AsyncIterator):
        with _told():
            answer = await _await(called)
        for event in turn.whole(answer):
            yield event
        return
    try:
        with _told():
            async for item in called:
                if isinstance(item, str):
                    if item:
                        yield turn.text(item)
                    continue
                for event in turn.take(item):
                    yield event
                if turn.over:
                    return
        for event in turn.end():
            yield event
    except GeneratorExit:
        await _cancel(called)
        raise
    finally:
        await _close(called)


class _Turn:
    """The events of one turn so far, as far as the next one depends on them."""

    __slots__ = ("_answer", "_begun", "_context", "_run", "_silent", "_task", "over")

    def __init__(self, run: Run) -> None:
        self._run = run
        self._task = run.task_id
        self._context = run.context_id
        self._answer: str | None = None  # the id of the open answer
        self._begun: set[str] = set()  # artifacts that this attempt has sent
        self._silent = True
        self.over = False

    def text(self, text: str) -> Json:
        """The next chunk of the answer. The hot path: plain dicts, no models."""
        if not text.isascii():
            _check_unicode(text)
        return self._chunk({"text": text})

    def whole(self, answer: object) -> Iterator[Json]:
        """The events of a coroutine's one answer."""
        if isinstance(answer, str):
            events = iter([self.text(answer)] if answer else [])
        else:
            events = self.take(answer) if answer is not None else iter(())
        for event in events:
            if self._answer is not None:  # it has no other chunk
                event["artifactUpdate"]["lastChunk"] = True
                self._answer = None
            yield event
        if not self.over:
            yield from self.end()

    def take(self, item: object) -> Iterator[Json]:
        """The events of anything but a string that the agent yielded."""
        match item:
            case Part():
                if (part := _sendable(item)) != {"text": ""}:  # as an empty string
                    yield self._chunk(part)
            case TaskStatusUpdateEvent():
                yield from self._status(_sendable(item))
            case TaskArtifactUpdateEvent():
                yield self._artifact(_sendable(item))
            case Message():
                yield self._message(_sendable(item))
            case _:
                raise InvalidAgentResponse(
                    f"The agent yielded {type(item).__name__}; yield strings, parts, or events "
                    "made by run.status(), run.artifact(), run.ask() and their like."
                )

    def end(self) -> Iterator[Json]:
        """The events of an agent that returned without a final state."""
        yield from self._status({"status": {"state": TaskState.COMPLETED.value}})

    def _chunk(self, part: Json) -> Json:
        artifact: Json = {"artifactId": self._answer, "parts": [part]}
        update: Json = {"taskId": self._task, "contextId": self._context, "artifact": artifact}
        if self._answer is None:
            artifact["artifactId"] = self._answer = self._run.new_artifact_id()
            self._begun.add(self._answer)
            self._silent = False
        else:
            update["append"] = True
        return {"artifactUpdate": update}

    def _status(self, update: Json) -> Iterator[Json]:
        status = update["status"]
        state = status["state"]
        # A run is at work, whatever its task's stored state may still say.
        if not may_follow(TaskState.WORKING, state):
            raise InvalidAgentResponse(
                f"The agent set the state {state}, which a working task cannot take."
            )
        status.pop("timestamp", None)
        if "message" in status:
            status["message"].update(taskId=self._task, contextId=self._context)
        self._silent = False
        if is_terminal(state) or is_interrupted(state):
            self.over = True
            if self._answer is not None:
                yield self._closing()
        yield {"statusUpdate": {**update, "taskId": self._task, "contextId": self._context}}

    def _closing(self) -> Json:
        artifact = {"artifactId": self._answer, "parts": [{"text": ""}]}
        return {
            "artifactUpdate": {
                "taskId": self._task,
                "contextId": self._context,
                "artifact": artifact,
                "append": True,
                "lastChunk": True,
            }
        }

    def _artifact(self, update: Json) -> Json:
        artifact = update["artifact"]
        artifact_id = artifact["artifactId"]
        if artifact_id not in self._begun:
            self._begun.add(artifact_id)
            if update.pop("append", False):
                if (held := self._run.held(artifact_id)) is None:
                    raise InvalidAgentResponse(
                        f"The agent appended to the artifact {artifact_id!r}, which it has not "
                        "begun; its first chunk goes without append."
                    )
                # A lost attempt may have appended to it already, so the first chunk replaces.
                update["artifact"] = _extended(held, artifact)
        self._silent = False
        return {"artifactUpdate": {**update, "taskId": self._task, "contextId": self._context}}

    def _message(self, message: Json) -> Json:
        if not self._silent:
            raise InvalidAgentResponse(
                "The agent yielded a Message after other events; a Message can only be its whole "
                "answer: use run.status() or run.complete() for words along the way."
            )
        self.over = True
        message.pop("taskId", None)
        message["contextId"] = self._context
        return {"message": message}


@contextmanager
def _told() -> Iterator[None]:
    """Names what the agent tried to put into a part or an event that no JSON can carry."""
    try:
        yield
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False)[0]
        # By name: the agent may have models of its own, whose faults are its own affair.
        if error.title not in _MODELS or found["type"] not in _UNSENDABLE:
            raise
        field = ".".join(str(step) for step in found["loc"])
        fault = "must be valid Unicode, without lone surrogates"
        if found["type"] != "string_unicode":
            fault = found["msg"]
        raise InvalidAgentResponse(
            f"The agent's {error.title} cannot be sent: {field} {fault}."
        ) from error


_MODELS = {
    model.__name__
    for model in (
        Part,
        Artifact,
        Message,
        TaskStatus,
        TaskStatusUpdateEvent,
        TaskArtifactUpdateEvent,
    )
}
_UNSENDABLE = {"string_unicode", "unicode", "finite", "depth", "digits", "json"}


def _sendable(made: Model) -> Json:
    """`made` as JSON. Checked once more: the agent may have changed it since it was made, and what
    is not valid in the log could never be read again.
    """
    try:
        found = made.to_dict()
        decode(type(made), found)
    except InvalidParams as error:
        field, fault = error.violations[0]
        reason = f"{field} {fault}"
    except (ValueError, TypeError, RecursionError) as error:
        reason = str(error).partition("\n")[0].rstrip(".")
    else:
        return found
    raise InvalidAgentResponse(f"The agent's {type(made).__name__} cannot be sent: {reason}.")


def _check_unicode(text: str) -> None:
    # What models refuse by themselves; found later, it would fail where the event is encoded.
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidAgentResponse(
            "The agent yielded text with a lone surrogate, which is not valid Unicode; "
            "decode its source as UTF-8."
        ) from None


def _extended(held: Json, chunk: Json) -> Json:
    """The held artifact with the chunk's parts and metadata added, as the fold would (§4.2.2)."""
    artifact = {**held, "parts": [*held["parts"], *chunk["parts"]]}
    if "metadata" in chunk:
        artifact["metadata"] = {**held.get("metadata", {}), **chunk["metadata"]}
    return artifact


async def _await(called: object) -> Any:
    if not isinstance(called, Awaitable):
        raise InvalidAgentResponse(
            f"Calling the agent gave {type(called).__name__}; an agent is an async generator "
            "function or a coroutine function."
        )
    return await called


async def _cancel(items: AsyncIterator[Event]) -> None:
    """Lets an agent that waits at a `yield` see the same CancelledError as one that awaits."""
    if not isinstance(items, AsyncGenerator):
        return
    cancelled = asyncio.CancelledError()
    try:
        await items.athrow(cancelled)
    except asyncio.CancelledError as error:
        if error is not cancelled:
            raise
    except StopAsyncIteration:
        pass
    except Exception:
        log.exception("The agent raised while it was being cancelled")


async def _close(items: AsyncIterator[Event]) -> None:
    """Runs the agent's cleanup. Its outcome is settled, so what it raises now is only logged."""
    if isinstance(items, AsyncGenerator):
        try:
            await cast(AsyncGenerator[Event, None], items).aclose()
        except Exception:
            log.exception("The agent raised while it was being closed")
