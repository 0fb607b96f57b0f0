"""What one task's log must be: dense, ended once, written by one after the other, and whole."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby

from tests.chaos.dump import Entry, Task
from tests.chaos.marks import AgentRun
from tests.chaos.said import TERMINAL, artifacts_of, said

__all__ = ["ENDED", "check_log", "check_work", "overlaps", "short"]

ENDED = TERMINAL | {"answered"}
"""The states after which nothing may come."""

_CHUNK = re.compile(r"(\w+)\.(\d+) ")
_SPENT = re.compile(r"The task was begun \d+ times, and its worker lost each time\.")


def check_log(task: Task) -> Iterator[tuple[str, str]]:
    """Dense, told of truly by its hash, ended once, and written by one after the other."""
    log, fields = task.log, task.fields
    if not log:
        yield "gap", "the log is gone"
        return
    numbers = [entry.seq for entry in log]
    if numbers != list(range(1, len(log) + 1)):
        missing = sorted(set(range(1, numbers[-1] + 1)) - set(numbers))
        yield "gap", f"the log has {len(log)} entries up to {numbers[-1]}; missing: {missing}"
    last = log[-1]
    state = next((entry.state for entry in reversed(log) if entry.state), "")
    told = (int(fields["seq"]), fields["mark"], task.state)
    if told != (last.seq, last.mark, state):
        yield "hash", f"the hash says {told}, the log {(last.seq, last.mark, state)}"
    ends = [entry for entry in log if entry.state in ENDED]
    if len(ends) > 1 or (ends and ends[0] is not last):
        at = ", ".join(f"{entry.seq} ({entry.state})" for entry in ends)
        yield "end", f"it should end once, with its last entry; it ended at {at} of {last.seq}"
    for mark in overlaps(task):
        yield "overlap", f"the run {mark} wrote again after another had begun to"


def overlaps(task: Task) -> list[str]:
    """The marks of the runs that wrote again after another had begun to."""
    writers = [mark for mark, _ in groupby(task.log, key=lambda entry: entry.mark)]
    return sorted({mark for mark in writers if writers.count(mark) > 1})


def check_work(task_id: str, task: Task, runs: Mapping[str, AgentRun]) -> Iterator[tuple[str, str]]:
    """What each run of the agent has in the log is in order, and what it ended is whole."""
    answers: dict[str, str] = {}
    asked = {1: task.text}
    for entry in task.log:
        if entry.kind == "input":
            asked[entry.turn] = entry.event["message"]["parts"][0]["text"]
    for (_, turn), block in groupby(task.log, key=lambda entry: (entry.mark, entry.turn)):
        entries = [entry for entry in block if entry.kind in ("status", "artifact")]
        names, numbers = _told(entries, runs)
        if len(names) > 1:
            yield "overlap", f"one run of turn {turn} holds the words of {sorted(names)}"
        if numbers != list(range(len(numbers))):
            yield "chunks", f"chunks of turn {turn} are out of order or missing: {numbers}"
        for name in names & runs.keys():
            run = runs[name]
            if (run.task_id, run.turn, run.key) != (task_id, turn, task.key):
                yield "foreign", f"turn {turn} holds words of {run}"
            if len(numbers) > run.chunks:
                yield "marks", f"{name} has {len(numbers)} chunks in the log, {run.chunks} marks"
        last = entries[-1].state if entries else ""
        if last in ("COMPLETED", "INPUT_REQUIRED"):
            due = int(asked[turn].split()[2]) if asked[turn].split()[0] != "reply" else 0
            if len(numbers) != due:
                yield "chunks", f"turn {turn} ended as {last} with {len(numbers)} of {due} chunks"
            answers[f"{turn}-1"] = "".join(
                said(entry.event).text for entry in entries if entry.kind == "artifact"
            )
    if task.state in ("COMPLETED", "INPUT_REQUIRED"):
        held = artifacts_of(task.snapshot)
        due_texts = {name: text for name, text in answers.items() if text}
        if held != due_texts:
            yield "answer", f"the final Task holds {short(held)}, the log {short(due_texts)}"
        if said({"task": task.snapshot}).state != task.state:
            yield "answer", f"the final Task is not {task.state}: {task.snapshot.get('status')}"
    yield from _outcome(task)


def _told(entries: Iterable[Entry], runs: Mapping[str, AgentRun]) -> tuple[set[str], list[int]]:
    """Whose words these are (each run of the agent says its name), and the chunks' numbers."""
    names, numbers = set[str](), list[int]()
    for entry in entries:
        text = said(entry.event).text
        if entry.kind == "artifact":
            if found := _CHUNK.match(text):
                names.add(found[1])
                numbers.append(int(found[2]))
        elif (word := text.partition(" ")[0]) in runs:
            names.add(word)
    return names, numbers


def _outcome(task: Task) -> Iterator[tuple[str, str]]:
    verb = task.text.partition(" ")[0]
    text = said(task.log[-1].event).text if task.log and task.log[-1].kind == "status" else ""
    match task.state, verb:
        case ("answered", "reply") | ("COMPLETED", "work" | "again" | "ask" | "deaf" | "reply"):
            pass
        case ("FAILED", "fail") if text.endswith(f" {task.key}"):
            pass
        case ("FAILED", _) if _SPENT.fullmatch(text):
            pass
        case ("CANCELED", _) if task.fields.get("cancel"):
            pass
        case ("INPUT_REQUIRED", "ask") if task.fields["turn"] == "1":
            pass
        case _:
            yield "outcome", f"{task.text!r} ended as {task.state}: {text!r}"


def short(value: object) -> str:
    """A value as a breach shows it."""
    text = str(value)
    return text if len(text) <= 400 else f"{text[:400]}…"
