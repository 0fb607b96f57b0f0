"""An owner's lists of tasks, newest first: all, per context, per state.

Lists are supersets: an id is put in before the write that the list announces, and taken out
after. So a crash leaves too much, never too little, and a reader checks each hit against the
task and mends what cannot be a write under way. The score is `status.timestamp` in ms, which is
what a page shows and is sorted by.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from switchroom.protocol.errors import InvalidParams
from switchroom.protocol.model import Json, TaskState
from switchroom.store.commit import Clock, GroupCommit
from switchroom.store.keys import Keys
from switchroom.store.read import TaskView, read_call, view_of
from switchroom.store.scripts import ANSWERED, SCRIPTS, Call, command

__all__ = ["Cursor", "Page", "TaskLists"]

_SCAN: Final = 500
"""Ids looked at in one call at most; a page may be short and still have a token (§3.1.4)."""
_WHOLE: Final = 4
"""Tasks read at a time together with their artifacts."""
_COUNT: Final = 1_000
"""With two filters the total is counted up to this many hits of the narrower list."""
_DOUBT: Final = 3_600_000
"""An id whose task is absent stays in a list this long (ms): its accept may still be on its way."""

_UNDER_WAY: Final = 60_000
"""A status announced so short a time ago (ms) may still be written: its id stays where it is."""


class Cursor(NamedTuple):
    """The last task of a page: the next one begins strictly after it."""

    score: int
    task_id: str


@dataclass(frozen=True, slots=True)
class Page:
    tasks: list[Json]
    next: Cursor | None
    total: int


class TaskLists:
    """Reads and writes the lists.  longest: the oldest status time, in ms before now, that any
    task can show.
    """

    def __init__(
        self, commit: GroupCommit, reads: GroupCommit, *, keys: Keys, clock: Clock, longest: int
    ) -> None:
        self._commit = commit
        self._reads = reads
        self._keys = keys
        self._clock = clock
        self._longest = longest
        self.secret = b""
        """Signs page tokens; one for the whole deployment, so that any gateway reads any token."""

    # -- writing: calls to be sent before, or after, the write they belong to

    def entering(self, owner: str, context_id: str, state: str, *, task_id: str, at: int) -> Call:
        """Puts the task into its owner's lists under `state`; goes before the write."""
        return SCRIPTS.index(
            [
                self._keys.tasks(owner),
                self._keys.context(owner, context_id),
                self._keys.state(owner, state),
            ],
            task_id,
            at,
            self._clock.now() - self._longest,
            self._longest,
        )

    def leaving(self, owner: str, states: Sequence[str], *, task_id: str, before: int) -> Call:
        """Takes the task out of the lists of states it has left; goes after the write. `before`:
        the new status time.
        """
        return SCRIPTS.unindex([self._keys.state(owner, s) for s in states], task_id, before - 1)

    # -- reading

    async def page(
        self,
        owner: str,
        *,
        context_id: str | None,
        state: TaskState | None,
        since: int | None,
        size: int,
        after: Cursor | None,
        artifacts: bool = True,
    ) -> Page:
        """One page: at most `size` tasks after the cursor, with `status.timestamp` >= `since`
        (ms), and the total.
        """
        if context_id is not None:
            key = self._keys.context(owner, context_id)
        elif state is not None:
            key = self._keys.state(owner, state)
        else:
            key = self._keys.tasks(owner)
        least = max(since or 0, self._clock.now() - self._longest)
        tasks: list[Json] = []
        total, scanned, last, more = 0, 0, after, True
        while more and len(tasks) < size and scanned < _SCAN:
            # One more than is missing, to know whether another page follows.
            want = size - len(tasks) + 1
            (answer,) = await self._reads(
                SCRIPTS.page([key], *(last if last else ("", "")), want, least)
            )
            rows = list(
                zip(
                    (i.decode() for i in answer[3][::2]),
                    map(int, map(float, answer[3][1::2])),
                    strict=True,
                )
            )
            total, more = answer[2], len(rows) == want
            scanned += len(rows)
            if more:
                rows.pop()
            low: list[Call] = []
            for (task_id, score), view in zip(
                rows, await self._read(rows, artifacts=artifacts), strict=True
            ):
                belongs = view is not None and (
                    context_id is not None or state in (None, view.state)
                )
                never = view is not None and view.ts < score < self._clock.now() - _UNDER_WAY
                if view is not None and never and belongs and view.state != ANSWERED:
                    # It stands where it belongs again, and is met there: the walk goes on from
                    # before the first of these, since they may belong anywhere after.
                    low.append(command("ZADD", key, "XX", view.ts, task_id))
                if low:
                    continue
                last = Cursor(score, task_id)
                if view is None:
                    if score < self._clock.now() - _DOUBT:
                        self._strike(key, task_id, score)
                    continue
                if view.state == ANSWERED or (not belongs and (never or view.ts >= score)):
                    self._strike(key, task_id, score)
                elif (
                    view.visible
                    and view.owner == owner
                    and view.ts >= least
                    and context_id in (None, view.context_id)
                    and state in (None, view.state)
                ):
                    tasks.append(view.task)
                    if view.ts > score:
                        self._commit.soon(command("ZADD", key, "XX", "GT", view.ts, task_id))
            if low:
                await self._commit(*low)
                more = True
        if context_id is not None and state is not None:
            total = await self._count(owner, context_id, state, least)
        return Page(tasks, last if more else None, total)

    async def _read(
        self, rows: Sequence[tuple[str, int]], *, artifacts: bool
    ) -> list[TaskView | None]:
        views: list[TaskView | None] = []
        # Whole tasks may be large: a few at a time, so that no answer holds up the lane for long.
        step = _WHOLE if artifacts else _SCAN
        for at in range(0, len(rows), step):
            ids = [task_id for task_id, _ in rows[at : at + step]]
            answers = await self._reads(
                *(read_call(self._keys, task_id, artifacts=artifacts) for task_id in ids)
            )
            views += map(view_of, ids, answers)
        return views

    def _strike(self, key: str, task_id: str, score: int) -> None:
        self._commit.soon(SCRIPTS.unindex([key], task_id, score))

    async def _count(self, owner: str, context_id: str, state: str, least: int) -> int:
        (answer,) = await self._reads(
            SCRIPTS.page([self._keys.context(owner, context_id)], "", "", _COUNT, least)
        )
        ids = [task_id.decode() for task_id in answer[3][::2]]
        if not ids:
            return 0
        found = await self._reads(
            *(Call(("HMGET", self._keys.task(i), "state", "ctx", "shown")) for i in ids)
        )
        return sum(row == [state.encode(), context_id.encode(), b"1"] for row in found)

    # -- page tokens: authenticated, and bound to owner and filters

    def token(self, cursor: Cursor, *, owner: str, filters: Sequence[str]) -> str:
        body = json.dumps([cursor.score, cursor.task_id], separators=(",", ":")).encode()
        return (
            base64.urlsafe_b64encode(self._mac(body, owner, filters) + body).rstrip(b"=").decode()
        )

    def cursor(self, token: str, *, owner: str, filters: Sequence[str]) -> Cursor:
        """The cursor in a token. Raises InvalidParams for one that is not ours, not this
        owner's, or of other filters.
        """
        try:
            raw = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            raw = b""
        body = raw[16:]
        if not hmac.compare_digest(raw[:16], self._mac(body, owner, filters)) or not body:
            raise InvalidParams(
                violations=[
                    (
                        "pageToken",
                        "is not a token of this list; take nextPageToken of the same filters",
                    )
                ]
            )
        score, task_id = json.loads(body)
        return Cursor(score, task_id)

    def _mac(self, body: bytes, owner: str, filters: Sequence[str]) -> bytes:
        seal = hmac.new(self.secret, digestmod=hashlib.sha256)
        seal.update(json.dumps([owner, *filters]).encode() + b"\0" + body)
        return seal.digest()[:16]
