"""TaskStore: what gateways do with tasks. Accept a message, read, show, cancel, end.

Each state change is one script. A caller is asked for with every task: absent and foreign look
alike.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from switchroom.protocol.event import encode
from switchroom.protocol.lifecycle import INTERRUPTED, fold
from switchroom.protocol.model import Json, TaskState, timestamp
from switchroom.store.commit import Clock, GroupCommit
from switchroom.store.deliveries import announcing
from switchroom.store.entry import Position
from switchroom.store.keys import Keys
from switchroom.store.limits import CallerLimits
from switchroom.store.lists import TaskLists
from switchroom.store.read import TaskView, read_call, view_of
from switchroom.store.scripts import SCRIPTS, Call, command
from switchroom.store.snapshot import snapshot_of

__all__ = ["Accepted", "Lifetimes", "Send", "TaskStore", "new_mark"]


def new_mark() -> str:
    """A random mark: one per run, accept, end and restore."""
    return f"{random.getrandbits(64):016x}"


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """How long things live, in ms: an open task since its last write, an ended one, its log, a
    Message answer; and how soon the reconciler looks at a task.
    """

    open: int
    ended: int
    log: int
    answered: int
    look: int

    @classmethod
    def of(
        cls,
        *,
        retention: timedelta,
        log_retention: timedelta,
        interrupted_limit: timedelta,
        run_limit: timedelta,
        claim_ttl: timedelta,
        look: timedelta,
    ) -> Lifetimes:
        # A day more than a task can stand still, so that the reconciler, not Redis, ends it.
        still = interrupted_limit + run_limit + timedelta(days=1)
        return cls(
            *(
                round(t / timedelta(milliseconds=1))
                for t in (still, retention, log_retention, claim_ttl, look)
            )
        )

    @property
    def longest(self) -> int:
        """The oldest status time that a task in a list can show."""
        return self.open + self.ended


@dataclass(frozen=True, slots=True)
class Send:
    """A message to be accepted.

    new: whether it makes a task.  context_id: of the task; for a follow-up '' means whichever it
    has.  digest, renewable: of its claim.  kind, event: the log entry (`task` with the SUBMITTED
    Task, or `input`).  input: the TurnInput's bytes. at: epoch ms of the status it causes, above
    that of the status before.  shown: whether the task is visible at once.  configs: push configs
    by id.
    """

    task_id: str
    new: bool
    owner: str
    context_id: str
    digest: str
    renewable: bool
    event: bytes
    input: bytes
    at: int
    shown: bool
    configs: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True, slots=True)
class Accepted:
    """What became of a send.

    outcome: `new` or `more` (it made a task, or a turn), `known` (it had done so before),
    `ended` (its claim is over), or why it was refused: `absent`, `context`, `terminal`, `busy`,
    `full` (of push configs).
    position: of the entry it made.  state: of the task now.
    """

    outcome: Literal[
        "new", "more", "known", "ended", "absent", "context", "terminal", "busy", "full"
    ]
    turn: int = 0
    position: Position = Position(0, "")
    state: str = ""


class TaskStore:
    """Tasks of one deployment.  commit: the lane of writes.  reads: the lane of reads."""

    def __init__(
        self,
        commit: GroupCommit,
        reads: GroupCommit,
        *,
        keys: Keys,
        clock: Clock,
        lists: TaskLists,
        limits: CallerLimits,
        lifetimes: Lifetimes,
        most_configs: int,
    ) -> None:
        self._most_configs = most_configs
        self.commit = commit
        self.reads = reads
        self.keys = keys
        self.clock = clock
        self.lists = lists
        self.limits = limits
        self.lifetimes = lifetimes

    async def accept(self, send: Send, *, then: Sequence[Call] = ()) -> Accepted:
        """Accepts a message, in one round trip; `then` goes out behind it, whatever the outcome.
        May be repeated.
        """
        state = TaskState.SUBMITTED if send.new else TaskState.WORKING
        calls = [self.look_at(send.task_id)]
        if send.shown:
            calls.append(
                self.lists.entering(
                    send.owner, send.context_id, state, task_id=send.task_id, at=send.at
                )
            )
        at = len(calls)
        calls.append(
            SCRIPTS.accept(
                (*self.keys.of_task(send.task_id), self.keys.sent(send.task_id)),
                "new" if send.new else "more",
                send.owner,
                send.context_id,
                send.digest,
                "1" if send.renewable else "0",
                new_mark(),
                "task" if send.new else "input",
                send.event,
                send.input,
                send.at,
                "1" if send.shown else "0",
                self.lifetimes.open,
                self.keys.live(send.task_id),
                self._most_configs,
                *(word for config in send.configs for word in config),
                weight=len(send.event) + len(send.input),
            )
        )
        if send.configs and send.shown:
            calls.append(announcing(self.keys, send.task_id))
        outcome, _, *rest = (await self.commit(*calls, *then))[at]
        match outcome.decode():
            case "new" | "more" | "known" as known:
                turn, seq, mark, now_state = rest[0], rest[1], rest[2].decode(), rest[3].decode()
                return Accepted(known, turn, Position(seq, mark), now_state)
            case "terminal" | "busy" as refused:
                return Accepted(refused, state=rest[0].decode())
            case "ended" | "absent" | "context" | "full" as refused:
                return Accepted(refused)
            case other:
                raise ValueError(f"accept answered {other!r}")

    def look_at(self, task_id: str) -> Call:
        """Tells the reconciler of a task; goes before the write that makes it one it must watch."""
        return command("ZADD", self.keys.open, self.clock.now() + self.lifetimes.look, task_id)

    async def read(self, task_id: str, *, owner: str | None = None) -> TaskView | None:
        """The task, whether shown or not; None if it is absent or not the owner's (None: any
        owner).
        """
        (answer,) = await self.reads(read_call(self.keys, task_id, owner=owner))
        return view_of(task_id, answer)

    async def show(self, task_id: str, *, owner: str, context_id: str, at: int) -> bool:
        """Makes the task visible for good; False if it has been answered with a Message (or is
        gone).
        """
        answers = await self.commit(
            self.look_at(task_id),
            self.lists.entering(owner, context_id, TaskState.SUBMITTED, task_id=task_id, at=at),
            SCRIPTS.show([self.keys.task(task_id)]),
        )
        if answers[-1][0] != b"shown":
            return False
        if answers[-1][2]:
            await self.commit(announcing(self.keys, task_id))
        return True

    async def request_cancel(
        self, task_id: str, *, owner: str
    ) -> tuple[Literal["absent", "terminal", "idle", "running"], str]:
        """Sets the durable flag and wakes the worker. -> what is the case, and the state."""
        (answer,) = await self.commit(
            SCRIPTS.cancel([self.keys.task(task_id)], owner, self.keys.control, task_id)
        )
        match answer[0].decode():
            case "terminal" | "idle" | "running" as found:
                return found, answer[2].decode()
            case _:
                return "absent", ""

    async def end(
        self, task_id: str, state: TaskState, *, message: Json | None = None, force: bool
    ) -> TaskView | None:
        """Ends a task: folds it where it stands, and writes the terminal event unless somebody was
        faster.

        message: the status message, as JSON.  force: takes the task from a run that has it;
        otherwise a running task is left alone. -> the task as it is afterwards (terminal, or
        still running), None if it is absent.
        """
        mark = new_mark()
        while True:
            view = await self.read(task_id)
            if view is None or view.terminal or (view.running and not force):
                return view
            if view.running:
                await self.commit(
                    SCRIPTS.fence([self.keys.task(task_id)], self.keys.control, task_id)
                )
                continue
            at = max(self.clock.now(), view.ts + 1)
            status: Json = {"state": state, "timestamp": timestamp(at)}
            if message is not None:
                status["message"] = message
            event: Json = {
                "statusUpdate": {"taskId": task_id, "contextId": view.context_id, "status": status}
            }
            was, data = view.state, encode(event)
            task = snapshot_of(fold(view.task, event))
            answer = (
                await self.commit(
                    self.lists.entering(view.owner, view.context_id, state, task_id=task_id, at=at),
                    SCRIPTS.end_(
                        self.keys.of_task(task_id),
                        view.position.seq,
                        mark,
                        data,
                        state,
                        at,
                        task.data,
                        self.lifetimes.ended,
                        self.lifetimes.log,
                        self.keys.live(task_id),
                        task.top,
                        weight=len(task.data),
                    ),
                )
            )[1]
            if answer[0] == b"ended":
                if answer[3]:
                    await self.commit(announcing(self.keys, task_id))
                # Where its turn came from is struck off by a run, and there may have been none.
                left = sorted({was, *INTERRUPTED})
                self.commit.soon(self.lists.leaving(view.owner, left, task_id=task_id, before=at))
                self.limits.landed(view.owner, task_id)
