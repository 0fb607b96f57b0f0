"""All of a Redis as plain values, and the tasks in it, as docs/architecture.md says they are kept.

Read with nothing of the store's own code: what that believes of its keys is what is to be checked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import redis

__all__ = ["Dump", "Entry", "Key", "Task", "dump_of", "tasks_in"]


class Key(NamedTuple):
    """kind: Redis's type.  ttl: in ms, -1 for none.  value: str, dict (hash; zset with its scores),
    or list of (id, fields) (stream).
    """

    kind: str
    ttl: int
    value: Any


Dump = Mapping[str, Key]


class Entry(NamedTuple):
    """One entry of a task's log; `state` as 1.0 names it, without its prefix."""

    seq: int
    mark: str
    kind: str
    state: str
    turn: int
    event: Mapping[str, Any]


@dataclass(frozen=True)
class Task:
    """A stored task: its hash, and its log."""

    fields: Mapping[str, str]
    log: tuple[Entry, ...]

    @property
    def state(self) -> str:
        return _bare(self.fields.get("state", ""))

    @property
    def text(self) -> str:
        """What the message that made it says."""
        if not self.log or "task" not in self.log[0].event:
            return ""
        return str(self.log[0].event["task"]["history"][0]["parts"][0]["text"])

    @property
    def key(self) -> str:
        """Of the work that it is."""
        return (self.text.split() + ["", ""])[1]

    @property
    def snapshot(self) -> Mapping[str, Any]:
        """The task as it stood when its last turn ended."""
        found: Mapping[str, Any] = json.loads(self.fields.get("base") or "{}")
        return found


_TASK = re.compile(r"switchroom:\{([^/}]+)\}:task")


def tasks_in(dump: Dump) -> dict[str, Task]:
    """Every task that has a hash, by its id."""
    tasks = {}
    for name, key in dump.items():
        if found := _TASK.fullmatch(name):
            log = dump.get(f"switchroom:{{{found[1]}}}:log")
            rows = log.value if log is not None else []
            tasks[found[1]] = Task(key.value, tuple(_entry(*row) for row in rows))
    return tasks


def _entry(ident: str, fields: Mapping[str, str]) -> Entry:
    return Entry(
        int(ident.partition("-")[0]),
        fields["m"],
        fields["k"],
        _bare(fields["s"]),
        int(fields["t"]),
        json.loads(fields["e"]),
    )


def _bare(state: str) -> str:
    return state.removeprefix("TASK_STATE_")


def dump_of(url: str) -> dict[str, Key]:
    """Everything that Redis holds."""
    with redis.Redis.from_url(
        url, decode_responses=True, encoding_errors="surrogateescape"
    ) as client:
        return {name: _key(client, name) for name in client.scan_iter(count=1000)}


def _key(client: redis.Redis, name: str) -> Key:
    kind, ttl = client.type(name), client.pttl(name)
    match kind:
        case "hash":
            value: Any = client.hgetall(name)
        case "stream":
            value = client.xrange(name)
        case "zset":
            value = dict(client.zrange(name, 0, -1, withscores=True))
        case "string":
            value = client.get(name)
        case _:
            value = None
    return Key(str(kind), int(ttl), value)
