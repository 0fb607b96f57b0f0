"""A gateway's and a worker's part, acted on a store without either: sends, runs, events, and what
must be true of a task afterwards.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Sequence
from typing import Any

from switchroom.protocol.event import decode, encode
from switchroom.protocol.lifecycle import is_interrupted, is_terminal
from switchroom.protocol.model import Json, TaskState, timestamp
from switchroom.store import Store
from switchroom.store.attempt import Begun
from switchroom.store.entry import Entry, fold_entries, parse_log
from switchroom.store.read import TaskView
from switchroom.store.runlog import RunLog
from switchroom.store.scripts import ANSWERED, SCRIPTS, Arg, command
from switchroom.store.tasks import Accepted, Send, new_mark
from switchroom.store.turn import TurnInput
from tests.support.wait import wait_until

__all__ = [
    "CONTEXT",
    "OWNER",
    "append",
    "begin",
    "chunk",
    "due",
    "entries_of",
    "follow_up",
    "intact",
    "listed",
    "message",
    "new_id",
    "new_task",
    "open_run",
    "open_tasks",
    "pages",
    "send_of",
    "settled",
    "status",
    "stored",
    "view_of_task",
    "visible",
]

OWNER = "/alice"
CONTEXT = "ctx-1"
_LEASE = 60_000


def new_id() -> str:
    return str(uuid.uuid4())


def message(text: str = "hello", *, id: str | None = None, role: str = "ROLE_USER") -> Json:
    return {"messageId": id or uuid.uuid4().hex, "role": role, "parts": [{"text": text}]}


def send_of(
    store: Store,
    task_id: str,
    *,
    said: Json | None = None,
    new: bool = True,
    owner: str = OWNER,
    context: str = CONTEXT,
    digest: str | None = None,
    renewable: bool = True,
    shown: bool = True,
    at: int | None = None,
    configs: Sequence[tuple[str, bytes]] = (),
) -> Send:
    """A send as a gateway makes it; by itself each one is a claim of its own."""
    asked = TurnInput(at or store.clock.now(), said or message())
    data = asked.encode()
    if new:
        event = encode({"task": asked.apply(None, task_id=task_id, context_id=context)})
    else:
        event = data
    return Send(
        task_id=task_id,
        new=new,
        owner=owner,
        context_id=context,
        digest=digest or uuid.uuid4().hex,
        renewable=renewable,
        event=event,
        input=data,
        at=asked.at,
        shown=shown,
        configs=tuple(configs),
    )


async def new_task(store: Store, task_id: str | None = None, **send: Any) -> str:
    """A SUBMITTED task; returns its id."""
    task_id = task_id or new_id()
    accepted = await store.tasks.accept(send_of(store, task_id, **send))
    assert accepted.outcome == "new"
    return task_id


async def follow_up(store: Store, task_id: str, **send: Any) -> Accepted:
    """The next message to a task, stamped as a gateway does."""
    view = await view_of_task(store, task_id)
    at = send.pop("at", None) or max(store.clock.now(), view.ts + 1)
    return await store.tasks.accept(send_of(store, task_id, new=False, at=at, **send))


async def begin(store: Store, task_id: str, turn: int = 1, *, run: str | None = None) -> Begun:
    return await store.runs.begin(
        task_id, turn, run=run or new_mark(), deadline=store.clock.now() + _LEASE
    )


async def open_run(store: Store, task_id: str, turn: int = 1) -> RunLog:
    return store.runs.open(await begin(store, task_id, turn), lambda why: None)


def status(state: str, text: str | None = None, *, metadata: Json | None = None) -> Json:
    """A status event as an agent makes it, without a timestamp."""
    update: Json = {"status": {"state": str(state)}}
    if text is not None:
        update["status"]["message"] = message(text, role="ROLE_AGENT")
    if metadata is not None:
        update["metadata"] = metadata
    return {"statusUpdate": update}


def chunk(
    text: str, artifact: str = "a", *, append: bool = False, last: bool = False, **metadata: Any
) -> Json:
    update: Json = {"artifact": {"artifactId": artifact, "parts": [{"text": text}]}}
    if metadata:
        update["artifact"]["metadata"] = metadata
    if append:
        update["append"] = True
    if last:
        update["lastChunk"] = True
    return {"artifactUpdate": update}


async def append(
    store: Store,
    begun: Begun,
    first: int,
    *events: Json,
    fence: int | None = None,
    run: str | None = None,
    show: bool = True,
    field: str = "",
    snapshot: bytes = b"",
    trim: str = "",
) -> str:
    """Calls the script as RunLog does, with whatever numbers; returns its outcome."""
    keys, lives = store.keys, store.tasks.lifetimes
    words: list[Arg] = []
    for event in events:
        (kind,) = event
        state, ts = "", store.clock.now()
        if kind == "statusUpdate":
            state = event[kind]["status"]["state"]
            event[kind]["status"]["timestamp"] = timestamp(ts)
        if kind == "message":
            state = ANSWERED
        names = {"statusUpdate": "status", "artifactUpdate": "artifact", "message": "message"}
        words += (names[kind], state, ts, encode(event))
    (answer,) = await store.commit(
        SCRIPTS.append(
            keys.of_task(begun.task_id),
            begun.fence if fence is None else fence,
            run or begun.run,
            first,
            keys.live(begun.task_id),
            lives.open,
            lives.ended,
            lives.log,
            lives.answered,
            "1" if show else "0",
            field,
            snapshot,
            b"",
            trim,
            *words,
        )
    )
    outcome: str = answer[0].decode()
    return outcome


# -- looking


async def view_of_task(store: Store, task_id: str) -> TaskView:
    view = await store.tasks.read(task_id)
    assert view is not None
    return view


async def visible(store: Store, task_id: str, *, owner: str) -> TaskView | None:
    """The task as this owner may see it."""
    view = await store.tasks.read(task_id, owner=owner)
    return view if view is not None and view.visible else None


async def stored(store: Store, task_id: str) -> dict[str, bytes]:
    """The hash of a task, field by field."""
    (raw,) = await store.commit(command("HGETALL", store.keys.task(task_id)))
    words = [word for pair in raw.items() for word in pair] if isinstance(raw, dict) else raw
    return {k.decode(): v for k, v in zip(words[::2], words[1::2], strict=True)}


async def entries_of(store: Store, task_id: str) -> list[Entry]:
    """The whole log."""
    (rows,) = await store.commit(command("XRANGE", store.keys.log(task_id), "-", "+"))
    return [parse_log(row) for row in rows]


async def listed(store: Store, key: str) -> dict[str, int]:
    """A list's ids with their scores."""
    (rows,) = await store.commit(command("ZRANGE", key, 0, -1, "WITHSCORES"))
    return {i.decode(): int(float(s)) for i, s in zip(rows[::2], rows[1::2], strict=True)}


async def pages(
    store: Store,
    *,
    size: int,
    owner: str = OWNER,
    context_id: str | None = None,
    state: TaskState | None = None,
    since: int | None = None,
) -> list[list[Json]]:
    """A whole walk through a list, page by page."""
    found, after = [], None
    while True:
        page = await store.lists.page(
            owner, context_id=context_id, state=state, since=since, size=size, after=after
        )
        found.append(page.tasks)
        after = page.next
        if after is None:
            return found


async def intact(store: Store, task_id: str, *, owner: str = OWNER, context: str = CONTEXT) -> Json:
    """What must be true of every task at rest, whatever happened on the way; returns it folded.

    Dense log; nothing after the terminal entry; each turn made once and ended at most once; each
    message once in the history; read = fold of all; in every list it belongs to.
    """
    view, entries = await view_of_task(store, task_id), await entries_of(store, task_id)
    seqs = [entry.seq for entry in entries]
    assert seqs == list(range(1, len(seqs) + 1)), "the log has a gap or a double"
    assert entries[-1].position == view.position
    ends = [e for e in entries if is_terminal(e.state) or e.state == ANSWERED]
    assert len(ends) <= 1 and (not ends or ends == entries[-1:]), "more than one end"
    assert view.terminal == bool(ends)
    over = Counter(e.turn for e in entries if is_interrupted(e.state))
    assert all(count == 1 for count in over.values()), "a turn was interrupted twice"
    opened = [entry.turn for entry in entries if entry.kind in ("task", "input")]
    assert opened == list(range(1, view.turn + 1)), "a turn was made twice, or never"
    said = [m["messageId"] for m in view.task.get("history", ())]
    assert len(set(said)) == len(said), "a message is in the history twice"
    assert encode(view.task) in [
        encode(_refolded(view, entries, anew=anew)) for anew in (False, True)
    ]
    if view.visible:
        keys = store.keys
        for key in (
            keys.tasks(owner),
            keys.context(owner, context),
            keys.state(owner, view.state),
        ):
            assert (await listed(store, key)).get(task_id, 0) >= view.ts, f"not in {key}"
    if not view.terminal:
        assert task_id in await listed(store, store.keys.open)
    return view.task


def _refolded(view: TaskView, entries: Sequence[Entry], *, anew: bool) -> Json:
    """All entries folded from the first: each attempt from where its turn began.

    anew: whether an end that comes alone is an attempt's (begun again, and spent at once), or was
    written from outside over what there was.
    """
    ids = {"task_id": view.task_id, "context_id": view.context_id}
    task: Json | None = None
    for turn in range(1, view.turn + 1):
        mine = [entry for entry in entries if entry.turn == turn]
        task = fold_entries(task, mine[:1], **ids)
        began, run = encode(task or {}), ""
        for entry in mine[1:]:
            if entry.mark != run and (anew or not is_terminal(entry.state)):
                task, run = decode(began), entry.mark
            task = fold_entries(task, [entry], **ids)
    return task or {}


async def settled(store: Store) -> None:
    """Returns when what was sent `soon` has been done."""
    await wait_until(lambda: store.commit._sender is None, what="the lane is empty")


# -- the reconciler's time


async def due(store: Store, *task_ids: str) -> None:
    """The reconciler's time to look at these tasks has come. What said "seen absent once" stays."""
    for task_id in task_ids:
        (score,) = await store.commit(command("ZSCORE", store.keys.open, task_id))
        seen = float(score) % 1
        await store.commit(command("ZADD", store.keys.open, str(1 + seen), task_id))


async def open_tasks(store: Store) -> dict[str, float]:
    """The tasks that the reconciler will look at again, and when."""
    (rows,) = await store.commit(command("ZRANGE", store.keys.open, 0, -1, "WITHSCORES"))
    return {i.decode(): float(s) for i, s in zip(rows[::2], rows[1::2], strict=True)}
