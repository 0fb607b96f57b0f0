"""Drive an agent in your own tests: no ports, no processes, no Redis.

    async def test_it_asks_for_the_city() -> None:
        async with converse(agent) as chat:
            task = await chat.send("Weather, please")
            assert task.status.state == TaskState.INPUT_REQUIRED
            await chat.send("Paris")
            assert chat.text == "Sunny in Paris"

Promises: the agent sees the runs, and the client the events and tasks, that a deployment would
make: the same driving, the same life cycle, the same fold. It leaves out what takes several
processes: lost attempts, limits, replay.
Relies on: `switchroom.worker.drive` and `switchroom.protocol`.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import TypeAlias, TypedDict, Unpack

from switchroom.agent import Agent, Content, Run, check_agent
from switchroom.protocol.errors import TaskNotCancelable, UnsupportedOperation
from switchroom.protocol.event import StreamResponse, decode, encode
from switchroom.protocol.lifecycle import fold, is_terminal, receive, submitted
from switchroom.protocol.model import (
    Json,
    Message,
    Part,
    Role,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatusUpdateEvent,
    timestamp,
)
from switchroom.worker.drive import drive

__all__ = ["Chat", "Told", "Update", "converse"]

Update: TypeAlias = Task | Message | TaskStatusUpdateEvent | TaskArtifactUpdateEvent
"""What a client reads from a stream."""


class Told(TypedDict, total=False):
    """What a run is told beside the message."""

    metadata: Json
    """The request's own."""
    accepted_output_modes: Sequence[str]
    """Media types the client wants."""
    extensions: Sequence[str]
    """URIs of the extensions the client asks for."""
    attempt: int
    """Above 1: earlier attempts of this turn were lost."""


@asynccontextmanager
async def converse(agent: Agent | None) -> AsyncIterator[Chat]:
    """A conversation with `agent`, in one context; None is the agent that only completes.

    At the end an agent that is still at work is cancelled.

    Raises:
        AgentError: `agent` is none.
    """
    chat = Chat(agent if agent is None else check_agent(agent))
    try:
        yield chat
    finally:
        await chat._stop()


class Chat:
    """A client's side of a conversation. Made by `converse`.

    A message continues the task that waits for input; where none does, it opens a new one.
    """

    def __init__(self, agent: Agent | None) -> None:
        self._agent = agent
        self._context_id = uuid.uuid4().hex
        self._task: Json | None = None
        self._turn = 0
        self._touched: set[str] = set()  # the artifacts of the last turn
        self._driven: AsyncGenerator[Json, None] | None = None  # the agent at work
        self._canceled: Update | None = None  # the event of it, in this turn

    @property
    def task(self) -> Task:
        """The task as it is now: what GetTask would answer.

        Raises:
            LookupError: There is none, because nothing was sent or the answer was a Message.
        """
        if self._task is None:
            raise LookupError("There is no task: send something first, to an agent that makes one.")
        return Task.model_validate(decode(encode(self._task)))

    @property
    def text(self) -> str:
        """The text of all artifacts that the last turn made or added to, in their order."""
        artifacts = (self._task or {}).get("artifacts", ())
        return "".join(
            part.get("text", "")
            for artifact in artifacts
            if artifact["artifactId"] in self._touched
            for part in artifact["parts"]
        )

    async def send(self, *content: Content, **told: Unpack[Told]) -> Task:
        """Sends a message and gives the task once it has ended or waits for the client.

        Args:
            content: The message's parts; a string is a text part.
            told: What else the run is told; see `Told`.

        Raises:
            TypeError: The agent answered with a Message; `message` takes those.
            Exception: What the agent raised. (A client would see a FAILED task and no reason.)
        """
        last = await self._last(content, told)
        if isinstance(last, Message):
            raise TypeError("The agent answered with a Message; use chat.message() to get it.")
        return self.task

    async def message(self, *content: Content, **told: Unpack[Told]) -> Message:
        """As `send`, to an agent that answers with a Message.

        Raises:
            TypeError: The agent made a task.
            Exception: What the agent raised.
        """
        last = await self._last(content, told)
        if not isinstance(last, Message):
            raise TypeError("The agent made a task; use chat.send() to get it.")
        return last

    async def stream(self, *content: Content, **told: Unpack[Told]) -> AsyncGenerator[Update, None]:
        """Sends a message and yields what a client would read: the Task and its updates in order,
        or one Message. Arguments and errors as for `send`.

        Breaking out of the stream leaves the agent where it is; `cancel`, or the end of the
        conversation, stops it.
        """
        run = self._begin(content, told)
        self._driven = drive(self._agent, run)
        shown = False
        try:
            async for event in self._driven:
                if "message" in event and not shown and run.turn == 1:
                    self._task = None
                    yield _read(event)
                    break
                stored = [_completed(event)] if "message" in event else [event]
                if not shown:
                    shown = True
                    yield self.task
                    if run.turn == 1:
                        stored.insert(0, _status(TaskState.WORKING))
                for each in stored:
                    if not self._canceled:
                        yield self._append(each)
        except Exception:
            self._driven = None
            self._append(_status(TaskState.FAILED))
            raise
        self._driven = None
        if self._canceled:
            yield self._canceled

    async def cancel(self) -> None:
        """As CancelTask: the agent, if at work, gets a CancelledError; the task is CANCELED.

        Raises:
            TaskNotCancelable: It has ended.
            LookupError: There is none.
        """
        if is_terminal(self.task.status.state):
            raise TaskNotCancelable
        await self._stop()
        self._canceled = self._append(_status(TaskState.CANCELED))

    async def _stop(self) -> None:
        driven, self._driven = self._driven, None
        if driven is not None:
            await driven.aclose()

    async def _last(self, content: Sequence[Content], told: Told) -> Update:
        async with aclosing(self.stream(*content, **told)) as updates:
            return [update async for update in updates][-1]

    def _begin(self, content: Sequence[Content], told: Told) -> Run:
        """Accepts the message: into the task that waits, else into a new one."""
        if self._driven is not None:
            raise UnsupportedOperation(
                "The agent is at work; it takes no message before it is done."
            )
        message = Message(
            message_id=uuid.uuid4().hex,
            role=Role.USER,
            parts=[Part(text=part) if isinstance(part, str) else part for part in content],
        ).to_dict()
        if self._task is None or is_terminal(self._task["status"]["state"]):
            self._turn = 1
            self._task = submitted(
                task_id=uuid.uuid4().hex, context_id=self._context_id, message=message, at=_now()
            )
        else:
            self._turn += 1
            self._task = receive(self._task, message, _now())
        self._touched.clear()
        self._canceled = None
        task = decode(encode(self._task))  # the run's own, as it stands now
        return Run(task, task["history"][-1], turn=self._turn, **told)

    def _append(self, event: Json) -> Update:
        assert self._task is not None
        if update := event.get("statusUpdate"):
            update["status"]["timestamp"] = timestamp(_now())
            ids = {"taskId": self._task["id"], "contextId": self._context_id}
            update |= ids
            if "message" in update["status"]:
                update["status"]["message"] |= ids
        else:
            self._touched.add(event["artifactUpdate"]["artifact"]["artifactId"])
        fold(self._task, event)
        return _read(event)


def _status(state: TaskState) -> Json:
    return {"statusUpdate": {"status": {"state": state.value}}}


def _completed(answer: Json) -> Json:
    """Where there is a task already, a Message is its last word."""
    event = _status(TaskState.COMPLETED)
    event["statusUpdate"]["status"]["message"] = answer["message"]
    return event


def _read(event: Json) -> Update:
    """As a client reads it: through the wire's JSON."""
    read = StreamResponse.model_validate(decode(encode(event)))
    update = read.message or read.status_update or read.artifact_update
    assert update is not None
    return update


def _now() -> int:
    return time.time_ns() // 1_000_000
