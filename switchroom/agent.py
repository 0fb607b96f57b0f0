"""The port an agent's author implements: `Agent`, and `Run`, which is what an agent sees.

Promises: an agent needs this module and nothing else. It is an async generator function over `Run`
(or a coroutine function that returns one answer), yields strings, parts, or events made by the
run's makers, and never meets the queue, the store or the wire.
Relies on: `switchroom.protocol` only.
"""

from __future__ import annotations

import inspect
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import Any, TypeAlias, cast

from switchroom.protocol.model import (
    Artifact,
    Json,
    Message,
    Part,
    Role,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)

__all__ = [
    "Agent",
    "AgentError",
    "Content",
    "Declared",
    "Event",
    "Message",
    "Part",
    "Retry",
    "Run",
    "check_agent",
]

Content: TypeAlias = str | Part
"""What a maker takes as a part: a string is a text part; `Part` is anything else."""

Event: TypeAlias = Content | Message | TaskStatusUpdateEvent | TaskArtifactUpdateEvent
"""What an agent yields. A string or a `Part` is the next chunk of the answer; the rest comes from
makers.
"""

Agent: TypeAlias = (
    Callable[["Run"], AsyncIterator[Event]] | Callable[["Run"], Awaitable[Event | None]]
)
"""An async generator function over `Run`, or a coroutine function, or an object called like one.

A string that it yields is the next chunk of its answer, which is one artifact; so is a `Part`, of
whatever kind: `Part(data=…)`, `Part(raw=…, media_type=…)`, `Part(url=…)`. Everything else that it
can say is made by the run: `run.status(…)`, `run.artifact(…)`, `run.ask(…)` and their like.

Returning without a final state completes the task. Raising fails it; the exception's text goes to
the log and never to the client. Cancellation arrives as `asyncio.CancelledError`. What is no event,
may not come now, is too large, or no JSON can carry (NaN, a lone surrogate, more than 100 levels of
nesting) fails the task too; the client is told only that, the log says why.
"""


class AgentError(Exception):
    """The agent cannot be used; one sentence for its author: what was found, and the fix."""


class Retry(Exception):
    """Raised by an agent to ask for another attempt of the same turn, from its beginning.

    The attempt counts. When all are spent, or the agent declares `retry = False`, the task fails.
    """


class Run:
    """One execution of an agent: a turn of a task, and the makers of events for it.

    A maker only makes: nothing is sent until the agent yields (or returns) what it made.

    Attributes:
        task_id: The task's id.
        context_id: The id of the conversation the task belongs to.
        turn: 1 for the message that opened the task, one more for each follow-up.
        attempt: 1, or more when an earlier attempt of this turn was lost or asked to be retried.
        metadata: The request's own metadata, as sent.
        accepted_output_modes: Media types the client wants; empty means anything.
        extensions: URIs of the extensions the client asked for.
    """

    def __init__(
        self,
        task: Json,
        message: Json,
        *,
        turn: int = 1,
        attempt: int = 1,
        metadata: Json | None = None,
        accepted_output_modes: Sequence[str] = (),
        extensions: Sequence[str] = (),
    ) -> None:
        """Made by the worker from stored JSON, which is parsed only if the agent asks for it."""
        self._task = task
        self._message = message
        self._unnamed = 0
        self.task_id: str = task["id"]
        self.context_id: str = task["contextId"]
        self.turn = turn
        self.attempt = attempt
        self.metadata: Mapping[str, Any] = metadata or {}
        self.accepted_output_modes = tuple(accepted_output_modes)
        self.extensions = tuple(extensions)

    @cached_property
    def task(self) -> Task:
        """The task as it stood when this turn began: history, artifacts and all."""
        return Task.model_validate(self._task)

    @cached_property
    def message(self) -> Message:
        """The message that this turn answers."""
        return Message.model_validate(self._message)

    @property
    def text(self) -> str:
        """The text parts of the message, one to a line; empty if it has none."""
        return "\n".join(part["text"] for part in self._message["parts"] if "text" in part)

    def held(self, artifact_id: str) -> Json | None:
        """The artifact of that id that the task held when the turn began, as JSON; else None."""
        for artifact in self._task.get("artifacts", ()):
            if artifact["artifactId"] == artifact_id:
                return cast(Json, artifact)
        return None

    def new_artifact_id(self) -> str:
        """The id for the next artifact without a name: `<turn>-<k>`, the same in each attempt."""
        self._unnamed += 1
        return f"{self.turn}-{self._unnamed}"

    def status(
        self, *content: Content, metadata: Mapping[str, Any] | None = None
    ) -> TaskStatusUpdateEvent:
        """Still WORKING; `content`, if any, says on what."""
        return self._status(TaskState.WORKING, content, metadata)

    def artifact(
        self,
        name: str | None,
        *parts: Content,
        append: bool = False,
        last: bool = False,
        description: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> TaskArtifactUpdateEvent:
        """A result, or a chunk of one.

        Args:
            name: Its name and, within the task, its id. None makes a new artifact at each call.
            parts: At least one.
            append: True adds the parts to the artifact of that name; False begins or replaces it.
            last: True for the artifact's last chunk.
            description: For people; taken from the first chunk.
            metadata: The artifact's own metadata.
        """
        if not parts:
            raise ValueError("An artifact needs at least one part; give a string or a Part.")
        told: dict[str, Any] = {"artifact_id": name or self.new_artifact_id()}
        if name is not None:
            told["name"] = name
        if description is not None:
            told["description"] = description
        if metadata is not None:
            told["metadata"] = dict(metadata)
        event = TaskArtifactUpdateEvent(
            task_id=self.task_id,
            context_id=self.context_id,
            artifact=Artifact(parts=_parts(parts), **told),
        )
        # Assigned only when true: what was never given is not written, and absent means false.
        if append:
            event.append = True
        if last:
            event.last_chunk = True
        return event

    def ask(
        self, content: Content, *more: Content, metadata: Mapping[str, Any] | None = None
    ) -> TaskStatusUpdateEvent:
        """INPUT_REQUIRED: ends the run; the client's next message begins the next turn."""
        return self._status(TaskState.INPUT_REQUIRED, (content, *more), metadata)

    def authorize(
        self, content: Content, *more: Content, metadata: Mapping[str, Any] | None = None
    ) -> TaskStatusUpdateEvent:
        """AUTH_REQUIRED: as `ask`, for credentials; the content must say which (§7.6)."""
        return self._status(TaskState.AUTH_REQUIRED, (content, *more), metadata)

    def complete(
        self, *content: Content, metadata: Mapping[str, Any] | None = None
    ) -> TaskStatusUpdateEvent:
        """COMPLETED, with a closing word. Without one, simply return: that completes too."""
        return self._status(TaskState.COMPLETED, content, metadata)

    def reject(
        self, *content: Content, metadata: Mapping[str, Any] | None = None
    ) -> TaskStatusUpdateEvent:
        """REJECTED: the agent will not do this; `content` tells the client why."""
        return self._status(TaskState.REJECTED, content, metadata)

    def fail(
        self, *content: Content, metadata: Mapping[str, Any] | None = None
    ) -> TaskStatusUpdateEvent:
        """FAILED, with words for the client. (An exception fails the task without any.)"""
        return self._status(TaskState.FAILED, content, metadata)

    def reply(
        self, content: Content, *more: Content, metadata: Mapping[str, Any] | None = None
    ) -> Message:
        """A Message instead of a task (§3.1.1): the first and only thing the agent yields."""
        return self._say((content, *more), metadata)

    def _status(
        self, state: TaskState, content: Sequence[Content], metadata: Mapping[str, Any] | None
    ) -> TaskStatusUpdateEvent:
        told: dict[str, Any] = {} if metadata is None else {"metadata": dict(metadata)}
        return TaskStatusUpdateEvent(
            task_id=self.task_id,
            context_id=self.context_id,
            status=TaskStatus(state=state, message=self._say(content, None))
            if content
            else TaskStatus(state=state),
            **told,
        )

    def _say(self, content: Sequence[Content], metadata: Mapping[str, Any] | None) -> Message:
        told: dict[str, Any] = {} if metadata is None else {"metadata": dict(metadata)}
        return Message(
            message_id=uuid.uuid4().hex,
            role=Role.AGENT,
            context_id=self.context_id,
            parts=_parts(content),
            **told,
        )


@dataclass(frozen=True, slots=True)
class Declared:
    """What an agent declares about itself, as attributes of the same names; workers apply it.

    Attributes:
        retry: False when a second attempt of a turn must never be made. Default True.
        run_limit: The longest a run may take; None leaves it to the worker's settings. It counts
            where it is less than those.
        inactivity_limit: The longest a run may be silent, likewise.
    """

    retry: bool = True
    run_limit: timedelta | None = None
    inactivity_limit: timedelta | None = None

    @classmethod
    def of(cls, agent: object) -> Declared:
        """Reads the attributes `retry`, `run_limit` and `inactivity_limit` (seconds or timedelta).

        Raises:
            AgentError: An attribute is there and has the wrong type.
        """
        retry = getattr(agent, "retry", True)
        if not isinstance(retry, bool):
            raise AgentError(f"The agent's `retry` is {retry!r}; it must be True or False.")
        return cls(
            retry=retry,
            run_limit=_limit(agent, "run_limit"),
            inactivity_limit=_limit(agent, "inactivity_limit"),
        )


def check_agent(obj: object) -> Agent:
    """Gives `obj` back as an Agent, if it is one.

    Raises:
        AgentError: It is neither an async generator function nor a coroutine function nor an
            object whose `__call__` is one, or it does not take exactly one argument.
    """
    if inspect.isclass(obj):
        raise AgentError(
            f"The agent is the class {obj.__name__}; give an instance of it: {obj.__name__}()."
        )
    if not callable(obj):
        raise AgentError(
            f"The agent is {type(obj).__name__}, which cannot be called; "
            "write `async def agent(run: Run)` with `yield` in it."
        )
    # A decorator may wrap an async function in a plain one that hands its generator on.
    if not any(map(_is_async, (obj, inspect.unwrap(obj), getattr(obj, "__call__", None)))):  # noqa: B004
        name = getattr(obj, "__name__", type(obj).__name__)
        raise AgentError(
            f"The agent {name} is not asynchronous; write `async def` before it, so that the "
            "worker can run it beside others."
        )
    try:
        inspect.signature(obj).bind(None)
    except TypeError as error:
        raise AgentError(
            f"The agent must take exactly one argument, the run, but calling it so fails: {error}."
        ) from error
    return cast(Agent, obj)


def _is_async(obj: object) -> bool:
    return inspect.isasyncgenfunction(obj) or inspect.iscoroutinefunction(obj)


def _limit(agent: object, name: str) -> timedelta | None:
    limit = found = getattr(agent, name, None)
    if isinstance(found, (int, float)) and not isinstance(found, bool):
        limit = timedelta(seconds=found)
    if limit is None or (isinstance(limit, timedelta) and limit > timedelta(0)):
        return limit
    raise AgentError(
        f"The agent's `{name}` is {found!r}; it must be a timedelta or a number of seconds above 0."
    )


def _parts(content: Sequence[Content]) -> list[Part]:
    return [Part(text=part) if isinstance(part, str) else part for part in content]
