"""What the agent of `make chaos` has left outside Redis, read back."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

__all__ = ["AgentRun", "read_marks"]


class AgentRun(NamedTuple):
    """One run of the agent.

    chunks: how many it was about to say.  end: `ended` when it went through, `cancelled`, or
    nothing for one that died (or still runs).
    """

    name: str
    key: str
    task_id: str
    turn: int
    attempt: int
    pid: int
    at: float
    chunks: int = 0
    end: str = ""


def read_marks(file: Path) -> dict[str, AgentRun]:
    """Every run that left a mark, by its name. A deaf one may have been cancelled and end yet."""
    runs: dict[str, AgentRun] = {}
    for line in file.read_text().splitlines() if file.exists() else ():
        at, name, key, task_id, turn, attempt, pid, word = line.split()
        if word == "begun":
            runs[name] = AgentRun(name, key, task_id, int(turn), int(attempt), int(pid), float(at))
        elif word.isdigit():
            runs[name] = runs[name]._replace(chunks=int(word) + 1)
        else:
            runs[name] = runs[name]._replace(end=word)
    return runs
