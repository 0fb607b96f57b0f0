"""The judge of `make chaos`: from what is stored, marked and seen, every promise that was broken.

Promises that each breach names its task, what is wrong and the log around it; and that nothing of
the product's own code has a say. It looks at a deployment that is whole again and quiet, on a Redis
which has lost nothing: then nobody may have lost anything, either.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Container, Iterator, Mapping
from hashlib import blake2b
from typing import NamedTuple

from tests.chaos.dump import Dump, Entry, Task, tasks_in
from tests.chaos.logs import ENDED, check_log, check_work, short
from tests.chaos.marks import AgentRun
from tests.chaos.records import Records, Send
from tests.chaos.said import INTERRUPTED, artifacts_of, said
from tests.chaos.views import check_view

__all__ = ["Breach", "check"]

_OF_TASK = re.compile(r"switchroom:\{([^/}]+)\}:(task|log|push)")
_OF_OWNER = re.compile(r"switchroom:\{[^}]*/[^}]*\}:(tasks|ctx:\w+|state:\w+)")
_CLAIM = re.compile(r"switchroom:claim:\{[^}]*/[^}]*\}:\w+")
_HEALTH = re.compile(r"switchroom:queue:main:health:\w+")
_OPEN, _SECRET = "switchroom:open:main", "switchroom:cursor-secret"
_ALONE = {_OPEN, _SECRET, "switchroom:reconciler:main"}
_FOR_EVER = {_OPEN, _SECRET}
_AROUND = 12
"""Entries of a log that a breach shows."""


class Breach(NamedTuple):
    """A broken promise.  kind: one word.  task_id: '' where it is of none."""

    kind: str
    task_id: str
    text: str
    log: tuple[Entry, ...] = ()

    def __str__(self) -> str:
        lines = [f"BREACH ({self.kind}) task {self.task_id or '-'}: {self.text}"]
        shown = self.log if len(self.log) <= 2 * _AROUND else self.log[:_AROUND]
        lines += map(_line, shown)
        if shown is not self.log:
            lines += [f"    … {len(self.log) - 2 * _AROUND} more …"]
            lines += map(_line, self.log[-_AROUND:])
        return "\n".join(lines)


def _line(entry: Entry) -> str:
    text = said(entry.event).text if entry.kind not in ("input", "task") else ""
    state = entry.state or "-"
    return f"    {entry.seq} {entry.mark} {entry.kind} {state} turn {entry.turn} {text[:50]!r}"


def check(
    dump: Dump,
    runs: Mapping[str, AgentRun],
    records: Records,
    *,
    lapsed: Container[str] = frozenset(),
) -> list[Breach]:
    """Every breach there is.  dump: all of Redis.  runs: the marks, by the run's name.  lapsed:
    tasks whose worker has said that it lost its lease, as it may on a machine with too much to do.
    """
    tasks = tasks_in(dump)
    found = [
        Breach(kind, task_id, text, tasks[task_id].log)
        for task_id, task in tasks.items()
        for kind, text in (*check_log(task), *check_work(task_id, task, runs))
    ]
    found += _sends(tasks, records)
    for view in records.views:
        task = tasks.get(view.task_id)
        if task is not None:
            found += [
                Breach("view", view.task_id, text, task.log) for text in check_view(view, task)
            ]
    found += _runs(tasks, runs, records, lapsed)
    found += _keys(dump, tasks)
    found += _lists(dump, tasks)
    found += _looks(tasks, records)
    found += [Breach("strange", task_id, what) for task_id, what in records.strange]
    return found


# -- what clients were told


def _sends(tasks: Mapping[str, Task], records: Records) -> Iterator[Breach]:
    """Each accepted message made one task (or turn), everybody was told that one, and it ended."""
    by_key = defaultdict(list)
    for task_id, task in tasks.items():
        by_key[task.key].append(task_id)
    known = {send.key for send in records.sends}
    for key in by_key.keys() - known:
        for task_id in by_key[key]:
            yield Breach("foreign", task_id, "nobody asked for this task", tasks[task_id].log)
    for send in records.sends:
        stored, what = by_key[send.key], f"the send of {send.text!r}"
        log = tasks[stored[0]].log if stored else ()
        if len(stored) != 1 or not send.tasks <= set(stored):
            told = f"{sorted(send.tasks)} was told, {stored} is stored"
            yield Breach("tasks", "".join(stored[:1]), f"{what} should be one task; {told}", log)
            continue
        (task_id,) = stored
        yield from (Breach("send", task_id, f"{what}: {text}", log) for text in
                    _told_of(send, tasks[task_id]))  # fmt: skip
    for cancel in records.cancels:
        task = tasks.get(cancel.task_id)
        good = {"CANCELED", "-32002"} if task and task.state == "CANCELED" else {"-32002"}
        if task is not None and not set(cancel.answers) <= good:
            text = f"it ended as {task.state}, its cancels were answered {cancel.answers}"
            yield Breach("cancel", cancel.task_id, text, task.log)


def _told_of(send: Send, task: Task) -> Iterator[str]:
    if not send.settled:
        yield "its client never learnt how it ended"
    if task.state not in ENDED and not (send.left and task.state in INTERRUPTED):
        yield f"it never ended; it is {task.state}"
    if send.turn == 2 and [e.turn for e in task.log if e.kind == "input"] != [2]:
        yield "its message should be in the log once"
    if send.turn == 1 and task.text != send.text:
        yield f"the task was asked {task.text!r}"
    for answer in send.ends:
        whole = answer.get("task")  # 0.3 says it in other words, but has the same artifacts
        same = whole == task.snapshot if whole else said(answer).state == task.state
        if not same or artifacts_of(whole or answer) != artifacts_of(task.snapshot):
            yield f"it was answered {short(answer)}, stored is {short(task.snapshot)}"
    if send.replies:
        said_by = {said(e.event).text for e in task.log if e.kind == "message"}
        if send.replies != said_by:
            yield f"it was answered {send.replies}, the log holds {said_by}"


def _looks(tasks: Mapping[str, Task], records: Records) -> Iterator[Breach]:
    """When all was quiet, each gateway told the tasks as they are stored, and listed each once."""
    for task_id, looks in records.looks.items():
        task = tasks.get(task_id)
        if task is None or any(look != task.snapshot for look in looks):
            stored = task.snapshot if task else None
            yield Breach("look", task_id, f"GetTask told {looks}; stored is {stored}")
    visible = {ident for ident, task in tasks.items() if _visible(task)}
    listed = records.listed
    if records.looks and (len(listed) != len(set(listed)) or set(listed) != visible):
        doubled = sorted({ident for ident in listed if listed.count(ident) > 1})
        text = (
            f"ListTasks gave {len(listed)} of {len(visible)} tasks; missing "
            f"{sorted(visible - set(listed))}, not there {sorted(set(listed) - visible)}, "
            f"doubled {doubled}"
        )
        yield Breach("list", "", text)


# -- what agents did


def _runs(
    tasks: Mapping[str, Task],
    runs: Mapping[str, AgentRun],
    records: Records,
    lapsed: Container[str],
) -> Iterator[Breach]:
    """Agents ran for tasks that exist; and when nothing was broken any more, once for each turn."""
    turns = defaultdict(list)
    for run in runs.values():
        turns[run.key, run.turn].append(run)
        task = tasks.get(run.task_id)
        if task is None or task.key != run.key:
            yield Breach("foreign", run.task_id, f"an agent ran for a task that is not: {run}")
    for send in records.sends:
        ran, due = turns[send.key, send.turn], 2 if send.text.startswith("again") else 1
        if not send.calm or any(run.task_id in lapsed for run in ran):
            continue
        if len(ran) > due or (len(ran) < due and not send.cancelled):
            text = f"nothing was broken, and the agent ran {len(ran)} times: {ran}"
            yield Breach("runs", ran[0].task_id if ran else "", text)


# -- keys


def _keys(dump: Dump, tasks: Mapping[str, Task]) -> Iterator[Breach]:
    """Each key is of a stored task, or one of the few others; and lives for ever only if it may."""
    for name, key in dump.items():
        if found := _OF_TASK.fullmatch(name):
            owner = found[1]
        elif _CLAIM.fullmatch(name):
            owner = key.value.partition(" ")[0]
        else:
            owner = ""
            if not (name in _ALONE or _OF_OWNER.fullmatch(name) or _HEALTH.fullmatch(name)):
                yield Breach("orphan", "", f"the key {name} belongs to nothing: {short(key)}")
        if owner and owner not in tasks:
            yield Breach("orphan", owner, f"the key {name} is of a task that is not stored")
        if key.ttl == -1 and name not in _FOR_EVER:
            yield Breach("orphan", owner, f"the key {name} would live for ever")
    for task_id in dump.get(_OPEN, _NONE).value:
        if task_id not in tasks or tasks[task_id].state in ENDED:
            yield Breach("orphan", task_id, f"{_OPEN} still holds it")


def _lists(dump: Dump, tasks: Mapping[str, Task]) -> Iterator[Breach]:
    """A list may hold too much, never too little."""
    for task_id, task in tasks.items():
        fields = task.fields
        mine = f"switchroom:{{{fields['owner']}}}"
        due = []
        if _visible(task):
            context = blake2b(fields["ctx"].encode(), digest_size=16).hexdigest()
            due += [f"{mine}:tasks", f"{mine}:ctx:{context}", f"{mine}:state:{fields['state']}"]
        if task.state not in ENDED:
            due.append(_OPEN)
        for name in due:
            if task_id not in dump.get(name, _NONE).value:
                yield Breach("list", task_id, f"{name} does not hold it", task.log)


class _Nothing(NamedTuple):
    value: Mapping[str, float] = {}


_NONE = _Nothing()


def _visible(task: Task) -> bool:
    return task.fields.get("shown") == "1" and task.state != "answered"
