"""Deliveries: what webhooks have been told of their tasks, and what is due to be told.

A delivery is a config's cursor into its task's log, never a copy of it. Whoever appends announces
the task behind the append, in the same pipeline; the zset of what is due then holds the task, or
the configs of it that are behind. Promises that nothing which was announced leaves the zset before
somebody has looked at the log afterwards: an announcement moves the score, and striking off
compares it. Of all who took the same, because leases had ended, the last decides, and the others
leave. What a crash keeps from being announced, the reconciler announces: it strikes off no task
before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from switchroom.store.commit import Clock, GroupCommit
from switchroom.store.entry import Position
from switchroom.store.keys import Keys
from switchroom.store.scripts import ANSWERED, SCRIPTS, Call, command

__all__ = [
    "START",
    "Deliveries",
    "Kept",
    "Record",
    "Taken",
    "announcing",
    "forgotten",
    "member",
]

START: Final = Position(0, "*")
"""Before the first entry of a log."""

_DEAD: Final = "dead"


def member(task_id: str, config_id: str = "") -> str:
    """How the zset names a config's deliveries; without the config, the task, whose configs are
    looked up when it is due.
    """
    return f"{task_id} {config_id}" if config_id else task_id


def announcing(keys: Keys, *members: str) -> Call:
    """Says that there may be something to deliver. Goes behind the write that it announces."""
    return SCRIPTS.announce([keys.pushes], keys.pushes_bell, *members)


@dataclass(frozen=True, slots=True)
class Record:
    """How far a config has been told of its task.

    position: of the last entry delivered.  attempts: made in vain since.  since: epoch ms of the
    first of them.  dead: given up.  trouble: what the last one came to, for operators.
    """

    position: Position
    attempts: int = 0
    since: int = 0
    dead: bool = False
    trouble: str = ""

    def encode(self) -> str:
        seq, mark = self.position
        if not self.attempts and not self.dead:
            return f"{seq} {mark}"
        word = _DEAD if self.dead else "late"
        return f"{seq} {mark} {word} {self.attempts} {self.since} {self.trouble}"

    @classmethod
    def decode(cls, kept: bytes) -> Record:
        """Without one, nothing has been told. Raises ValueError."""
        if not kept:
            return cls(START)
        seq, mark, *rest = kept.decode().split(" ", 5)
        position = Position(int(seq), mark)
        if not rest:
            return cls(position)
        word, attempts, since, trouble = rest
        return cls(position, int(attempts), int(since), word == _DEAD, trouble)

    def failed(self, trouble: str, *, now: int) -> Record:
        """After one more attempt in vain."""
        return replace(
            self, attempts=self.attempts + 1, since=self.since or now, trouble=trouble[:200]
        )


@dataclass(slots=True, eq=False)
class Taken:
    """What was due, and is ours until the lease ends.  ends: epoch ms; the score while nothing was
    announced, and its whole part after.
    """

    member: str
    ends: int

    @property
    def ids(self) -> tuple[str, str]:
        """The task's, and the config's or an empty string."""
        task_id, _, config_id = self.member.partition(" ")
        return task_id, config_id


class Kept(NamedTuple):
    """A config as it is kept, None if it is gone, and its record.  visible: whether its task may be
    told of: it is shown, or answered with a Message.
    """

    config: bytes | None
    record: bytes
    visible: bool
    answered: bool


class Deliveries:
    """The zset of what is due, the records, and what was given up.

    lease: ms that a taker has before another may take it.  longest: ms that a task can live.
    """

    def __init__(
        self,
        commit: GroupCommit,
        reads: GroupCommit,
        *,
        keys: Keys,
        clock: Clock,
        lease: int,
        longest: int,
    ) -> None:
        self.lease = lease
        self._commit = commit
        self._reads = reads
        self._keys = keys
        self._clock = clock
        self._longest = longest

    async def announce(self, *members: str) -> None:
        """Says that there may be something to deliver."""
        await self._commit(announcing(self._keys, *members))

    # -- taking

    async def take(self, limit: int) -> tuple[list[Taken], float | None]:
        """What is due, and in how many seconds the next will be; None if there is none."""
        (answer,) = await self._commit(SCRIPTS.due([self._keys.pushes], self.lease, limit))
        _, _, members, ends, wait = answer
        taken = [Taken(name.decode(), ends) for name in members]
        return taken, None if wait < 0 else wait / 1000

    async def hold(self, taken: Taken) -> bool:
        """Goes on holding it; False if another took it meanwhile, who looks at the log after that.
        What was announced before is forgotten: the log must be looked at before it is struck off.
        """
        ends = self._clock.now() + self.lease
        if await self._settle(taken, str(ends)) != b"ok":
            return False
        taken.ends = ends
        return True

    async def strike_off(self, taken: Taken) -> bool:
        """Nothing is left to deliver; False if something was announced meanwhile, and it is to be
        held and looked at again. What another took meanwhile is the other's to strike off: of all
        who have it, the last to take or hold it decides, so that no two keep it going.
        """
        return await self._settle(taken, "") != b"announced"

    async def put_back(self, taken: Taken, *, delay: float) -> None:
        """Due again after so many seconds, unless another took it meanwhile."""
        await self._settle(taken, str(self._clock.now() + round(delay * 1000)))

    async def _settle(self, taken: Taken, score: str) -> bytes:
        (answer,) = await self._commit(
            SCRIPTS.settle([self._keys.pushes], taken.member, taken.ends, score)
        )
        return bytes(answer[0])

    async def spread(self, taken: Taken) -> None:
        """A task becomes its configs, each of which is taken by itself."""
        task_id, _ = taken.ids
        (names,) = await self._commit(command("HKEYS", self._keys.push(task_id)))
        if names:
            await self.announce(*(member(task_id, name.decode()) for name in names))

    # -- one config

    async def look(self, task_id: str, config_id: str) -> Kept:
        keys = self._keys
        config, record, (shown, state) = await self._reads(
            command("HGET", keys.push(task_id), config_id),
            command("HGET", keys.sent(task_id), config_id),
            command("HMGET", keys.task(task_id), "shown", "state"),
        )
        answered = state == ANSWERED.encode()
        return Kept(config, record or b"", shown == b"1" or answered, answered)

    async def advance(self, task_id: str, config_id: str, *, was: bytes, record: Record) -> bool:
        """Keeps a new record; False if the config is gone, or somebody else is at work on it."""
        keys = self._keys
        (answer,) = await self._commit(
            SCRIPTS.advance(
                [keys.task(task_id), keys.push(task_id), keys.sent(task_id)],
                config_id,
                was,
                record.encode(),
            )
        )
        return bool(answer[0] == b"ok")

    # -- dead letters

    async def bury(self, taken: Taken, *, was: bytes, record: Record) -> bool:
        """Gives it up; the record says why. Redriven, it goes on where it was. False if the config
        is gone, or somebody else is at work on it.
        """
        keys, now = self._keys, self._clock.now()
        task_id, config_id = taken.ids
        # Listed first: what is dead and not listed, no operator finds.
        await self._commit(
            command("ZREMRANGEBYSCORE", keys.dead_letters, "-inf", now - self._longest),
            command("ZADD", keys.dead_letters, now, taken.member),
        )
        if not await self.advance(task_id, config_id, was=was, record=replace(record, dead=True)):
            kept = await self.look(task_id, config_id)
            if not Record.decode(kept.record).dead:
                await self._commit(command("ZREM", keys.dead_letters, taken.member))
            return False
        await self._commit(command("ZREM", keys.pushes, taken.member))
        return True

    async def redrive(self, task_id: str, config_id: str) -> bool:
        """Sets a given-up delivery going again; False if there is none (any more)."""
        keys, name = self._keys, member(task_id, config_id)
        kept = await self.look(task_id, config_id)
        found = kept.config is not None
        if found:
            record = Record.decode(kept.record)
            if record.dead:
                await self.advance(
                    task_id, config_id, was=kept.record, record=Record(record.position)
                )
            await self.announce(name)
        await self._commit(command("ZREM", keys.dead_letters, name))
        return found

    # -- for operators

    async def due(self, *, limit: int) -> list[tuple[str, float]]:
        """What is not delivered yet, by when it is due: names and epoch ms."""
        return await self._listed(self._keys.pushes, limit)

    async def dead(self, *, limit: int) -> list[tuple[str, float]]:
        """What was given up, and when."""
        return await self._listed(self._keys.dead_letters, limit)

    async def _listed(self, key: str, limit: int) -> list[tuple[str, float]]:
        (rows,) = await self._reads(command("ZRANGE", key, 0, limit - 1, "WITHSCORES"))
        return [(n.decode(), float(s)) for n, s in zip(rows[::2], rows[1::2], strict=True)]

    async def count(self) -> tuple[int, int]:
        """How many are due or late, and how many were given up."""
        due, dead = await self._reads(
            command("ZCARD", self._keys.pushes), command("ZCARD", self._keys.dead_letters)
        )
        return int(due), int(dead)


def forgotten(keys: Keys, task_id: str, config_id: str) -> Sequence[Call]:
    """Drops all that is known of a config's deliveries; goes behind its removal."""
    name = member(task_id, config_id)
    return (
        command("HDEL", keys.sent(task_id), config_id),
        command("ZREM", keys.pushes, name),
        command("ZREM", keys.dead_letters, name),
    )
