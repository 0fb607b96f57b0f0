"""What each caller and each tenant may use of a deployment, counted for all gateways at once.

Promises that what is asked for is granted as a whole or not at all, in one step by Redis's own
clock; that a gateway which dies holds its streams no longer than their lease; and that tasks which
have ended are not counted for long, whoever failed to strike them off: a list of them holds too
much, never too little, and is looked through before anybody is refused for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Literal, NamedTuple

from switchroom.protocol.lifecycle import is_interrupted, is_terminal
from switchroom.settings import Settings
from switchroom.store.commit import Clock, GroupCommit
from switchroom.store.keys import Keys
from switchroom.store.scripts import ANSWERED, SCRIPTS, Call, command

__all__ = ["Admission", "CallerLimits", "Limits"]

_LEASE: Final = 60_000
"""How long (ms) a stream is counted after its gateway was last heard of."""
_YOUNG: Final = 60_000
"""A task that is not there is counted this long (ms): its accept may still be on its way."""
_SWEEP: Final = 500
"""Tasks that one look strikes off at most."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Of one caller, and of all callers of a tenant; 0 is no limit.

    send_rate: sends per second, after a burst of `send_burst` at once.  tasks: submitted or
    working.  streams: open ones.
    """

    send_rate: float = 0
    send_burst: int = 1
    tenant_send_rate: float = 0
    tenant_send_burst: int = 1
    tasks: int = 0
    tenant_tasks: int = 0
    streams: int = 0

    @classmethod
    def of(cls, settings: Settings) -> Limits:
        return cls(
            send_rate=settings.send_rate,
            send_burst=settings.send_burst,
            tenant_send_rate=settings.tenant_send_rate,
            tenant_send_burst=settings.tenant_send_burst,
            tasks=settings.caller_tasks,
            tenant_tasks=settings.tenant_tasks,
            streams=settings.caller_streams,
        )

    @property
    def of_sends(self) -> bool:
        """Whether a send can be refused."""
        return bool(self.send_rate or self.tenant_send_rate or self.of_tasks)

    @property
    def of_tasks(self) -> bool:
        """Whether tasks are counted."""
        return bool(self.tasks or self.tenant_tasks)


class Admission(NamedTuple):
    """What became of a request for a send, a stream, or both.

    outcome: `ok`, or the limit that is reached.  limit, remaining: of that limit, or of sends at
    once.  wait: seconds until it is worth trying again.  counted: whether the task was not counted
    before.
    """

    outcome: Literal["ok", "rate", "tasks", "streams"]
    limit: int
    remaining: int
    wait: float
    counted: bool


class CallerLimits:
    """Counts.  lives: ms that the list of a caller's tasks may stay untouched."""

    def __init__(
        self,
        commit: GroupCommit,
        reads: GroupCommit,
        limits: Limits,
        *,
        keys: Keys,
        clock: Clock,
        lives: int,
    ) -> None:
        self.limits = limits
        self._commit = commit
        self._reads = reads
        self._keys = keys
        self._clock = clock
        # In one word: what a call costs the sender grows with the number of its words.
        self._given = " ".join(
            map(
                str,
                (
                    limits.send_rate,
                    limits.send_burst,
                    limits.tenant_send_rate,
                    limits.tenant_send_burst,
                    limits.tasks,
                    limits.tenant_tasks,
                    limits.streams,
                    lives,
                    _LEASE,
                ),
            )
        )

    def admitting(self, owner: str, *, task_id: str = "", stream: str = "") -> Call:
        """Asks for a send about this task, for this stream, or for both."""
        return SCRIPTS.admit(self._keys.used(owner), task_id, stream, self._given)

    def admission(self, answer: Sequence[Any]) -> Admission:
        """What the call was answered."""
        outcome, _, limit, remaining, wait, counted = answer
        return Admission(outcome.decode(), limit, remaining, wait / 1000, bool(counted))

    # -- tasks

    def landed(self, owner: str, task_id: str) -> None:
        """The task is not in flight any more; if that is lost, a later look finds it."""
        if self.limits.of_tasks:
            self._commit.soon(
                *(command("ZREM", key, task_id) for key in self._keys.tasks_in_flight(owner))
            )

    async def sweep(self, owner: str) -> None:
        """Strikes off what is not in flight any more. Raises StoreUnavailable."""
        keys = self._keys.tasks_in_flight(owner)
        found = await self._reads(
            *(command("ZRANGE", key, 0, _SWEEP - 1, "WITHSCORES") for key in keys)
        )
        counted = {
            key: dict(zip(rows[::2], map(float, rows[1::2]), strict=True))
            for key, rows in zip(keys, found, strict=True)
        }
        since: dict[bytes, float] = {}
        for rows in counted.values():
            for ident, at in rows.items():
                since[ident] = min(at, since.get(ident, at))
        states = await self._reads(
            *(command("HGET", self._keys.task(ident.decode()), "state") for ident in since)
        )
        young = self._clock.now() - _YOUNG
        over = {
            ident
            for (ident, at), state in zip(since.items(), states, strict=True)
            if (at < young if state is None else _is_over(state.decode()))
        }
        calls = [
            command("ZREM", key, *gone)
            for key, rows in counted.items()
            if (gone := over & rows.keys())
        ]
        if calls:
            await self._commit(*calls)

    # -- streams

    def closed(self, owner: str, stream: str) -> None:
        """The stream has ended; if that is lost, its lease ends."""
        self._commit.soon(command("ZREM", self._keys.streams(owner), stream))

    async def renew(self, streams: Iterable[tuple[str, str]]) -> None:
        """These (owner, stream) are still open. Raises StoreUnavailable."""
        until = self._clock.now() + _LEASE
        calls: list[Call] = []
        for owner, stream in streams:
            key = self._keys.streams(owner)
            calls += (command("ZADD", key, until, stream), command("PEXPIRE", key, _LEASE))
        if calls:
            await self._commit(*calls)

    @property
    def renew_every(self) -> timedelta:
        """How often open streams are to be renewed: two renewals may be lost."""
        return timedelta(milliseconds=_LEASE) / 3


def _is_over(state: str) -> bool:
    return state == ANSWERED or is_terminal(state) or is_interrupted(state)
