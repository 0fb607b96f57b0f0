"""The Lua scripts of this package, and one call of one command.

Each `.lua` file is one atomic step and opens with its contract. Every script answers a list
whose first item says what happened and whose second is the server's clock in ms (0 where the
script does not look at it), so answers also teach us Redis time. Names of states come from
`protocol.lifecycle`: Lua knows only which are terminal and which are interrupted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha1
from importlib.resources import files
from typing import Final, NamedTuple

from switchroom.protocol.lifecycle import INTERRUPTED, TERMINAL
from switchroom.protocol.model import TaskState
from switchroom.store.formats import READS, WRITES

__all__ = ["ANSWERED", "LIVE_LIMIT", "SCRIPTS", "Arg", "Call", "Script", "command"]

ANSWERED: Final = "answered"
"""Internal terminal state of a send whose whole answer was a Message; never on the wire."""

LIVE_LIMIT: Final = 32 * 1024
"""Bytes of an event that are announced with it; followers of a larger one read the log."""

LIGHT: Final = 500
"""About how many bytes a call has besides events and snapshots."""

Arg = str | bytes | int


class Call(NamedTuple):
    """One command to send: its words, the script to load should the server not know it, and about
    how many bytes it has.
    """

    words: tuple[Arg, ...]
    script: Script | None = None
    weight: int = LIGHT


def command(*words: Arg) -> Call:
    """A plain Redis command."""
    return Call(words)


@dataclass(frozen=True, slots=True)
class Script:
    """A Lua script; calling it makes a `Call`, and sends nothing."""

    name: str
    body: str
    sha: str
    tells_time: bool

    def __call__(self, keys: Sequence[str], *args: Arg, weight: int = 0) -> Call:
        """weight: bytes of what is large among the arguments."""
        return Call(("EVALSHA", self.sha, len(keys), *keys, *args), self, LIGHT + weight)


def _lua_set(states: Sequence[str]) -> str:
    return "{" + ", ".join(f"['{state}'] = true" for state in sorted(states)) + "}"


_CLOCK = """\
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
"""
_STATES = (
    f"local SUBMITTED, WORKING = '{TaskState.SUBMITTED}', '{TaskState.WORKING}'\n"
    f"local ANSWERED = '{ANSWERED}'\n"
    f"local TERMINAL = {_lua_set([*TERMINAL, ANSWERED])}\n"
    f"local INTERRUPTED = {_lua_set([*INTERRUPTED])}\n"
)
_FORMATS = f"local WRITES, READS = {WRITES}, {READS}\n"
# What should be a number and is none counts as 0: a damaged task can still be read, and ended.
_NUMBER = "local function num(x) return tonumber(x) or 0 end\n"
# Entries of a log and their announcement, one message for all of a batch. Each is a line
# `seq mark kind state turn size` and its bytes; size is `-` where the bytes are in the log only.
_WRITE = f"""\
local told, told_bytes = {{}}, 0
local function write(log, seq, mark, kind, state, turn, event)
  redis.call('XADD', log, seq .. '-0', 'e', event, 'k', kind, 's', state, 't', turn, 'm', mark)
  local small = #event <= {LIVE_LIMIT} and told_bytes + #event <= {8 * LIVE_LIMIT}
  local line = {{seq, mark, kind, state == '' and '-' or state, turn, small and #event or '-'}}
  told[#told + 1] = table.concat(line, ' ') .. '\\n'
  if small then told[#told + 1] = event; told_bytes = told_bytes + #event end
end
local function announce(channel) redis.call('PUBLISH', channel, table.concat(told)) end
"""


def _source(name: str) -> str:
    return files(__package__).joinpath("lua", f"{name}.lua").read_text()


def _load(name: str) -> Script:
    source = _source(name)
    if "pcall(begin," in source:
        source = f"local function begin(KEYS, ARGV)\n{_source('begin')}end\n{source}"
    # Asking for the time costs a fifth of a small script: only where more is done with it than
    # told.
    used = re.findall(r"\w+", re.sub(r"--.*|return \{'\w+', now", "", source))
    tells_time = "now" in used or "clock" in used
    parts = [_CLOCK if tells_time else "local now = 0\n"]
    if any(
        word in source for word in ("TERMINAL", "INTERRUPTED", "SUBMITTED", "WORKING", "ANSWERED")
    ):
        parts.append(_STATES)
    if "WRITES" in source or "READS" in source:
        parts.append(_FORMATS)
    if "num(" in source:
        parts.append(_NUMBER)
    if "write(" in source:
        parts.append(_WRITE)
    body = "".join(parts) + source
    sha = sha1(body.encode(), usedforsecurity=False).hexdigest()
    return Script(name, body, sha, tells_time)


class _Scripts:
    """Every script of the store, by the name of its file (`end` is `end_`: the word is
    Python's).
    """

    def __iter__(self) -> Iterator[Script]:
        return (script for script in vars(type(self)).values() if isinstance(script, Script))

    accept = _load("accept")
    begin = _load("begin")
    append = _load("append")
    show = _load("show")
    release = _load("release")
    cancel = _load("cancel")
    fence = _load("fence")
    end_ = _load("end")
    restore = _load("restore")
    read = _load("read")
    since = _load("since")
    index = _load("index")
    unindex = _load("unindex")
    page = _load("page")
    reopen = _load("reopen")
    replace_claim = _load("replace_claim")
    enqueue = _load("enqueue")
    take = _load("take")
    renew = _load("renew")
    finish = _load("finish")
    putback = _load("putback")
    backlog = _load("backlog")
    admit = _load("admit")
    configure = _load("configure")
    announce = _load("announce")
    due = _load("due")
    settle = _load("settle")
    advance = _load("advance")
    api_key = _load("api_key")


SCRIPTS: Final = _Scripts()
