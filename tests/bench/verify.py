"""What is asked of every answer: an echo is exact, a stream whole and in order.

Relies on: generator and server sharing a clock (one machine), since chunks carry their time.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from pydantic_core import from_json

__all__ = ["TERMINAL", "Chunks", "Wrong", "check_echo"]

TERMINAL = {f"TASK_STATE_{s}" for s in ("COMPLETED", "FAILED", "CANCELED", "REJECTED")}


class Wrong(Exception):
    """An answer that is not what was asked for."""


def check_echo(task: Any, text: str) -> None:
    if task["status"]["state"] != "TASK_STATE_COMPLETED":
        raise Wrong(f"state {task['status']['state']}")
    found = [part.get("text") for a in task.get("artifacts", ()) for part in a["parts"]]
    if found != [text]:
        raise Wrong("the artifact differs")


class Chunks:
    """Reads one stream of `stream E D [W]` and verifies chunks 0 to E-1, each once, in order."""

    def __init__(self, expected: int) -> None:
        self._expected = expected
        self._began = time.perf_counter()
        self.resumed = 0
        self.first: float | None = None  # seconds to the first event of any kind
        self.delays: list[float] = []  # from the agent's yield to here
        self.arrived: list[float] = []
        self.faults: list[str] = []
        self.task_id = ""
        self.state = ""

    def __call__(self, data: bytes, at: float) -> None:
        wall = time.time_ns()
        if self.first is None:
            self.first = at - self._began
        answer = from_json(data)
        match answer.get("result"):
            case {"artifactUpdate": {"artifact": {"parts": parts}}}:
                self._take(parts, wall, at)
            case {"statusUpdate": {"status": {"state": state}}}:
                self.state = state
            case {"task": task}:
                self.task_id = task["id"]
                self.state = task["status"]["state"]
                for artifact in task.get("artifacts", ()):
                    self._take(artifact["parts"], wall, at)
            case _:
                self.faults.append(f"unexpected: {str(answer)[:80]}")

    def _take(self, parts: Iterable[Any], wall: int, at: float) -> None:
        for part in parts:
            if not part.get("text"):
                continue  # the closing chunk
            number, emitted, *_ = part["text"].split(" ", 2)
            if int(number) != len(self.delays):
                self.faults.append(f"chunk {number} where {len(self.delays)} was due")
            self.delays.append((wall - int(emitted)) / 1e9)
            self.arrived.append(at)

    def verdict(self) -> list[str]:
        found = list(self.faults)
        if len(self.delays) != self._expected:
            found.append(f"{len(self.delays)} of {self._expected} chunks")
        if self.state != "TASK_STATE_COMPLETED":
            found.append(f"ended in {self.state or 'nothing'}")
        return found
