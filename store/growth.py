"""How far a run may let its task grow. What exceeds a limit fails that run, and nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from switchroom.protocol.event import encode
from switchroom.protocol.model import Json
from switchroom.settings import Settings

__all__ = ["Growth", "LogLimits", "TooLarge"]

_ARTIFACT: Final = "artifact"


class TooLarge(Exception):
    """Something outgrew its limit; the text names the setting."""


@dataclass(frozen=True, slots=True)
class LogLimits:
    """Of one task: bytes of an event, of an artifact and of all of it; its events, and the messages
    of its history. And how many events and bytes an open one keeps for replay.
    """

    event: int
    artifact: int
    task: int
    events: int
    history: int
    replay_events: int
    replay_bytes: int

    @classmethod
    def of(cls, settings: Settings) -> LogLimits:
        return cls(
            event=settings.event_limit,
            artifact=settings.artifact_limit,
            task=settings.task_limit,
            events=settings.events_limit,
            history=settings.history_limit,
            replay_events=settings.replay_events,
            replay_bytes=settings.replay_bytes,
        )


class Growth:
    """The sizes of one task during one run.  size: its bytes.  events: in its log."""

    def __init__(self, limits: LogLimits, *, size: int, events: int) -> None:
        self.size = size
        self._limits = limits
        self._events = events
        self._artifacts: dict[str, int] = {}

    def add(self, task: Json, kind: str, event: Json, size: int, *, last: bool) -> None:
        """An event of `size` bytes is to be folded into `task`.

        last: it ends the task. That must always fit: a task that cannot even fail would run for
        ever. Raises TooLarge; then nothing has been added.
        """
        limits = self._limits
        self.check_event(size)
        if not last:
            if self._events >= limits.events:
                raise TooLarge(
                    f"the task has as many events as SWITCHROOM_EVENTS_LIMIT allows "
                    f"({limits.events})"
                )
            if self.size + size > limits.task:
                raise TooLarge(
                    f"the task has grown above SWITCHROOM_TASK_LIMIT ({limits.task} bytes)"
                )
            if kind == _ARTIFACT:
                self._add_chunk(task, event["artifactUpdate"], size)
            elif len(task.get("history", ())) >= limits.history and "message" in task["status"]:
                # The message of the status before moves there.
                raise TooLarge(
                    "the task has as many messages as SWITCHROOM_HISTORY_LIMIT allows "
                    f"({limits.history})"
                )
        self._events += 1
        self.size += size

    def check_event(self, size: int) -> None:
        """Raises TooLarge for an event of so many bytes."""
        if size > self._limits.event:
            raise TooLarge(f"one event of {size} bytes is above SWITCHROOM_EVENT_LIMIT")

    def _add_chunk(self, task: Json, update: Json, size: int) -> None:
        artifact_id = update["artifact"]["artifactId"]
        held = self._artifacts.get(artifact_id)
        if not update.get("append"):
            held = 0
        elif held is None:  # of an earlier turn
            found = (a for a in task.get("artifacts", ()) if a["artifactId"] == artifact_id)
            held = sum(len(encode(artifact)) for artifact in found)
        if held + size > self._limits.artifact:
            raise TooLarge(
                "an artifact has grown above SWITCHROOM_ARTIFACT_LIMIT "
                f"({self._limits.artifact} bytes)"
            )
        self._artifacts[artifact_id] = held + size
