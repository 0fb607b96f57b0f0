"""RunLog: one run's pen on its task's log.

Events are numbered by the run, gathered while one append is under way, and sent again after a lost
answer, which does no harm. When the store turns out to have gone back in time, the run writes the
task anew from what it knows and goes on.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from switchroom.protocol.errors import InvalidAgentResponse
from switchroom.protocol.event import encode, kind_of
from switchroom.protocol.lifecycle import INTERRUPTED, fold, is_interrupted, is_terminal, may_follow
from switchroom.protocol.model import Json, timestamp
from switchroom.store.attempt import Begun, RunEnded
from switchroom.store.commit import patiently
from switchroom.store.deliveries import announcing
from switchroom.store.growth import Growth, LogLimits
from switchroom.store.scripts import ANSWERED, SCRIPTS, Call, command
from switchroom.store.snapshot import Snapshot, snapshot_of
from switchroom.store.tasks import TaskStore, new_mark

__all__ = ["RunLog"]

_log = logging.getLogger("switchroom.store")
_GATHER: Final = 256
_GATHER_BYTES: Final = 1024 * 1024
_SMALL: Final = 16 * 1024
"""A tail below this many bytes is not worth a snapshot."""


@dataclass(frozen=True, slots=True)
class _Written:
    kind: str
    state: str
    ts: int
    data: bytes


class RunLog:
    """One run's pen. `task` is the task folded up to the last event written, whether sent or not.

    on_stop: called once, when the store refuses this run from now on.
    """

    def __init__(
        self, store: TaskStore, begun: Begun, limits: LogLimits, on_stop: Callable[[str], None]
    ) -> None:
        self._store = store
        self._begun = begun
        self._limits = limits
        self._on_stop = on_stop
        self.task = begun.task()
        self.state = begun.state
        self.shown = begun.shown
        self.stopped: str | None = None
        self._ts = begun.ts
        self._hooks = begun.hooks
        self._listed = {begun.state} if begun.shown else set[str]()
        if begun.turn > 1:
            self._listed |= INTERRUPTED
        self._fence, self._run, self._n, self._seq = begun.fence, begun.run, 0, begun.seq
        self._pending: list[_Written] = []
        self._pending_bytes = 0
        self._snapshot_size = begun.size
        self._growth = Growth(limits, size=begun.size, events=begun.seq)
        self._tail = 0
        # Some run of this turn has written before, whether its attempt was counted or not: what it
        # left is no part of the task from this run's first event on.
        self._anew = begun.seq > begun.base_seq + 1
        self._kept: deque[tuple[int, int]] = deque()
        self._kept_bytes = 0
        self._back = False
        self._sender: asyncio.Task[None] | None = None
        self._drained = asyncio.Event()
        self._drained.set()

    @property
    def ended(self) -> bool:
        """Whether the last event written ends the turn."""
        return self.state == ANSWERED or is_terminal(self.state) or is_interrupted(self.state)

    @property
    def known(self) -> tuple[int, str, int]:
        """What the store has acknowledged: this run's fence, its mark, and its events."""
        return self._fence, self._run, self._n

    def look(self) -> Call:
        """Asks for what `compare` takes, and for the cancel flag."""
        key = self._store.keys.task(self._begun.task_id)
        return command("HMGET", key, "fence", "run", "n", "cancel")

    def compare(
        self, known: tuple[int, str, int], fence: bytes | None, run: bytes | None, n: bytes | None
    ) -> None:
        """Acts on a look at the store, which was asked for when `known` was: another's fence stops
        the run; a task that is gone, or knows less than it did, is written anew, so that those who
        ask for it find it though the agent is silent.
        """
        if self._sender is not None or known != self.known or self.stopped is not None:
            return  # an append is under way, or was: its answer says more
        theirs = -1 if fence is None else int(fence)
        mine = theirs == self._fence and run == self._run.encode()
        if theirs < self._fence or (mine and int(n or 0) < self._n):
            # What was never visible is asked for by nobody; its next append finds out.
            if self.shown:
                self._back = True
                self._start()
        elif not mine:
            self._stop("fenced")

    async def write(self, event: Json) -> None:
        """Appends one event (StreamResponse JSON); status events get their timestamp here. Returns
        at once unless much waits already. The first event written makes the task visible.

        Raises RunEnded, TooLarge, and InvalidAgentResponse for an event that may not follow.
        """
        self._check()
        if self.ended:
            raise InvalidAgentResponse(f"nothing may follow {self.state} in a turn")
        kind, state = kind_of(event), ""
        if kind == "status":
            status = event["statusUpdate"]["status"]
            state = status["state"]
            if not may_follow(self.state, state):
                raise InvalidAgentResponse(f"{state} may not follow {self.state}")
            # Each state has a time of its own: lists tell by it who left and who came back.
            self._ts = max(self._store.clock.now(), self._ts + (state != self.state))
            status["timestamp"] = timestamp(self._ts)
        elif kind != "artifact":
            raise InvalidAgentResponse(f"a {kind} may not follow {self.state}")
        data = encode(event)
        self._growth.add(self.task, kind, event, len(data), last=is_terminal(state))
        fold(self.task, event)
        if state:
            self.state = state
        self.shown = True
        self._put(_Written(kind, state, self._ts, data))
        if len(self._pending) >= _GATHER or self._pending_bytes >= _GATHER_BYTES:
            self._drained.clear()
            await self._drained.wait()
            self._check()

    async def answer(self, event: Json) -> bool:
        """A Message as the whole answer. False if the task has been shown: then a Message cannot
        be it any more.
        """
        self._check()
        if self.shown:
            return False
        data = encode(event)
        self._growth.check_event(len(data))
        self._put(_Written("message", ANSWERED, max(self._store.clock.now(), self._ts), data))
        await self.flush()
        return self.state == ANSWERED

    async def flush(self) -> None:
        """Returns when all that was written is in the store. Raises RunEnded."""
        while self._sender is not None:
            await asyncio.wait([self._sender])
        self._check()

    async def release(self, *, counted: bool) -> None:
        """Gives the turn back; `counted`: whether the attempt is used up. Nothing may be written
        afterwards.
        """
        await self.close()
        await self._store.commit(
            SCRIPTS.release(
                [self._store.keys.task(self._begun.task_id)],
                self._fence,
                self._run,
                0 if counted else 1,
            )
        )

    async def close(self) -> None:
        """Stops sending; what is not in the store yet is dropped."""
        if self._sender is not None:
            self._sender.cancel()
            await asyncio.wait([self._sender])

    def _put(self, written: _Written) -> None:
        self._pending.append(written)
        self._pending_bytes += len(written.data)
        self._start()

    def _start(self) -> None:
        if self._sender is None:
            self._sender = asyncio.get_running_loop().create_task(self._send_all())

    def _take(self) -> list[_Written]:
        """What goes out next: all that waits, but a Message alone, since only its outcome says
        whether anything may follow.
        """
        count = 1 if self._pending[0].kind == "message" else len(self._pending)
        batch, self._pending = self._pending[:count], self._pending[count:]
        self._pending_bytes = sum(len(written.data) for written in self._pending)
        return batch

    def _check(self) -> None:
        if self.stopped is not None:
            raise RunEnded(self.stopped)

    def _stop(self, why: str) -> None:
        if self.stopped is None:
            self.stopped = why
            self._on_stop(why)
        self._drained.set()

    async def _send_all(self) -> None:
        try:
            while (self._pending or self._back) and self.stopped is None:
                if self._back:
                    await self._restore()
                    continue
                batch = self._take()
                self._drained.set()
                answers = batch[0].kind == "message"
                match await self._append(batch, show=not answers):
                    case "ok" if answers:
                        # Whoever wanted to show the task meanwhile came too late.
                        self.state, self._pending, self._pending_bytes = ANSWERED, [], 0
                    case "ok":
                        pass
                    case "shown":
                        self.shown = True
                    case "lost" if answers:
                        # Nothing of this task was ever visible, and the store has forgotten it:
                        # its sender will ask again.
                        self._stop("absent")
                    case "lost":
                        await self._restore()
                    case outcome:
                        self._stop(outcome)
        except Exception:
            _log.exception("task %s: its events cannot be written", self._begun.task_id)
            self._stop("broken")
        finally:
            self._sender = None
            self._drained.set()

    async def _append(self, batch: list[_Written], *, show: bool) -> str:
        """Sends one batch until its answer is known. -> ok|terminal|fenced|shown|lost"""
        begun, keys, lives = self._begun, self._store.keys, self._store.lifetimes
        size = sum(len(written.data) for written in batch)
        state = next((written.state for written in reversed(batch) if written.state), "")
        ends = bool(state) and (is_terminal(state) or is_interrupted(state))
        field, snapshot, trim = "", Snapshot(b"", b""), ""
        self._tail += size
        self._keep(self._seq + len(batch), size)
        if ends:
            field, snapshot, trim = "base", snapshot_of(self.task), self._trim()
        elif show and (self._anew or self._tail >= max(self._snapshot_size, _SMALL)):
            field, snapshot, trim = "snap", snapshot_of(self.task), self._trim()
        held = len(snapshot.data)
        if field:
            self._snapshot_size, self._tail, self._growth.size = held, 0, held
        self._anew = False
        append = SCRIPTS.append(
            keys.of_task(begun.task_id),
            self._fence,
            self._run,
            self._n + 1,
            keys.live(begun.task_id),
            lives.open,
            lives.ended,
            lives.log,
            lives.answered,
            "1" if show else "0",
            field,
            *snapshot,
            trim,
            *(w for e in batch for w in (e.kind, e.state, e.ts, e.data)),
            weight=size + held,
        )
        calls = [append]
        if show and state:
            calls.insert(
                0,
                self._store.lists.entering(
                    begun.owner, begun.context_id, state, task_id=begun.task_id, at=batch[-1].ts
                ),
            )
        at = len(calls) - 1
        if told := self._hooks:
            calls.append(announcing(keys, begun.task_id))
        answer = (await self._commit(*calls))[at]
        outcome = str(answer[0].decode())
        if outcome == "ok":
            if answer[3] and not told:  # registered since this run began
                self._hooks = True
                await self._commit(announcing(keys, begun.task_id))
            self._n += len(batch)
            self._seq = answer[2]
            if show and state:
                self._left(state, batch[-1].ts)
            if ends or state == ANSWERED:
                self._store.limits.landed(begun.owner, begun.task_id)
        return outcome

    def _left(self, state: str, ts: int) -> None:
        begun = self._begun
        left = [was for was in self._listed if was != state]
        self._listed = {state}
        if left:
            self._store.commit.soon(
                self._store.lists.leaving(begun.owner, left, task_id=begun.task_id, before=ts)
            )

    def _keep(self, seq: int, size: int) -> None:
        """Counts what the log holds of this run, to know from where on it fits the replay
        window.
        """
        self._kept.append((seq, size))
        self._kept_bytes += size

    def _trim(self) -> str:
        """The first entry that the replay window keeps, or '' if all fits. Of earlier turns only
        the number of entries counts.
        """
        last = self._kept[-1][0]
        first = last - self._limits.replay_events + 1
        while len(self._kept) > 1 and (
            self._kept_bytes > self._limits.replay_bytes or self._kept[0][0] < first
        ):
            seq, size = self._kept.popleft()
            self._kept_bytes -= size
            first = max(first, seq + 1)
        return str(first) if first > 1 else ""

    async def _restore(self) -> None:
        """Writes the task anew, with all events written so far in it."""
        begun, store, run = self._begun, self._store, new_mark()
        # All that is pending is folded already; a snapshot that holds it needs no append of it.
        # What comes while the answer is awaited is not in it: a repeat sends the same snapshot.
        self._pending, self._pending_bytes, self._back = [], 0, False
        self._drained.set()
        state, ts, task = self.state, self._ts, snapshot_of(self.task)
        done = self.ended
        if done:
            snapshot: tuple[str | bytes | int, ...] = ("base", task.data, "base_top", task.top)
        else:
            snapshot = ("base", begun.base, "base_seq", begun.base_seq)
            snapshot += ("snap", task.data, "snap_top", task.top)
        restore = SCRIPTS.restore(
            store.keys.of_task(begun.task_id),
            self._fence,
            self._run,
            run,
            self._seq,
            "1" if done else "0",
            store.lifetimes.ended if is_terminal(state) else store.lifetimes.open,
            store.keys.live(begun.task_id),
            begun.claim,
            begun.turn,
            *("owner", begun.owner, "ctx", begun.context_id, "state", state, "ts", ts),
            *("turn", begun.turn, "done", begun.turn if done else begun.turn - 1),
            *("attempt", begun.attempt, "shown", "1", "in", begun.input.encode()),
            *snapshot,
            weight=len(task.data),
        )
        entering = store.lists.entering(
            begun.owner, begun.context_id, state, task_id=begun.task_id, at=ts
        )
        calls = [store.look_at(begun.task_id), entering, restore]
        if self._hooks:
            calls.append(announcing(store.keys, begun.task_id))
        answer = (await self._commit(*calls))[2]
        if answer[0] == b"restored":
            self._fence, self._run, self._n, self._seq = answer[2], run, 0, answer[3]
            size = len(task.data)
            self._snapshot_size, self._tail, self._growth.size = size, 0, size
            self._listed = {state}
        else:
            self._stop("fenced")

    async def _commit(self, *calls: Call) -> list[Any]:
        """Sends calls that may be repeated, until their answer is known."""
        return await patiently(lambda: self._store.commit(*calls))
