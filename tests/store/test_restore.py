"""The store goes back in time under a run: its worker writes the task anew."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from switchroom.protocol.event import encode
from switchroom.protocol.model import TaskState
from switchroom.store import Store
from switchroom.store.attempt import RunEnded
from switchroom.store.runlog import RunLog
from switchroom.store.scripts import Call, command
from tests.support.acts import (
    OWNER,
    begin,
    chunk,
    entries_of,
    follow_up,
    listed,
    message,
    new_task,
    open_run,
    send_of,
    status,
    stored,
    view_of_task,
)
from tests.support.faults import Cut, How

WORKING, ASKING, COMPLETED = TaskState.WORKING, TaskState.INPUT_REQUIRED, TaskState.COMPLETED


class Save:
    """What a save, or a replica, holds of a task; `back` makes it all there is."""

    def __init__(self, store: Store, task_id: str) -> None:
        self._store = store
        self._keys = (*store.keys.of_task(task_id), *_lists(store))
        self._dumps: list[tuple[bytes | None, int]] = []

    async def take(self) -> Save:
        words = [w for key in self._keys for w in (("DUMP", key), ("PTTL", key))]
        found = await self._store.commit(*(command(*w) for w in words))
        self._dumps = list(zip(found[::2], found[1::2], strict=True))
        return self

    async def back(self) -> None:
        await self._store.commit(command("DEL", *self._keys))
        for key, (dump, ttl) in zip(self._keys, self._dumps, strict=True):
            if dump is not None:
                await self._store.commit(command("RESTORE", key, max(ttl, 0), dump))


def _lists(store: Store) -> list[str]:
    keys = store.keys
    states = [keys.state(OWNER, state) for state in TaskState]
    return [keys.open, keys.tasks(OWNER), keys.context(OWNER, "ctx-1"), *states]


def texts(task: dict[str, Any], artifact: int = 0) -> list[str]:
    return [part["text"] for part in task["artifacts"][artifact]["parts"]]


@pytest.mark.parametrize("lost", ["all", "the task", "the run", "its last events"])
async def test_the_run_goes_on_as_if_nothing_had_been(store: Store, lost: str) -> None:
    task_id = await new_task(store, said=message("hello"))
    saves = {"all": await Save(store, "no such task").take()}
    saves["the run"] = await Save(store, task_id).take()
    run = await open_run(store, task_id)
    await run.write(status(WORKING))
    await run.write(chunk("1"))
    await run.flush()
    saves["its last events"] = await Save(store, task_id).take()
    for text in ("2", "3"):
        await run.write(chunk(text, append=True))
        await run.flush()
    before = await view_of_task(store, task_id)
    if lost == "all":
        await store.commit(command("FLUSHALL"))
    elif lost == "the task":
        await store.commit(command("DEL", *store.keys.of_task(task_id)))
    else:
        await saves[lost].back()
    await run.write(chunk("4", append=True))
    await run.flush()
    view = await view_of_task(store, task_id)
    assert texts(view.task) == ["1", "2", "3", "4"]
    assert view.position.seq > before.position.seq
    assert (view.running, view.visible, view.state) == (True, True, WORKING)
    await run.write(chunk("5", append=True))
    await run.write(status(COMPLETED, "done"))
    await run.flush()
    view = await view_of_task(store, task_id)
    assert texts(view.task) == ["1", "2", "3", "4", "5"]
    assert (view.state, view.terminal) == (COMPLETED, True)
    assert encode(view.task) == encode(run.task)
    for key in (store.keys.tasks(OWNER), store.keys.state(OWNER, COMPLETED)):
        assert task_id in await listed(store, key)


async def test_no_older_position_stays_good(store: Store) -> None:
    task_id = await new_task(store)
    run = await open_run(store, task_id)
    await run.write(status(WORKING))
    await run.flush()
    save = await Save(store, task_id).take()
    await run.write(chunk("1"))
    await run.flush()
    positions = [entry.position for entry in await entries_of(store, task_id)]
    for position in positions:
        assert await store.feed.since(task_id, position) is not None
    await save.back()
    await run.write(chunk("2", append=True))
    await run.flush()
    for position in positions:
        assert await store.feed.since(task_id, position) is None
    now = (await view_of_task(store, task_id)).position
    assert await store.feed.since(task_id, now) == []


@pytest.mark.parametrize("last", [COMPLETED, ASKING, TaskState.REJECTED])
async def test_with_its_last_event_the_turn_is_over(store: Store, last: str) -> None:
    task_id = await new_task(store)
    save = await Save(store, task_id).take()
    run = await open_run(store, task_id)
    await run.write(status(WORKING))
    await run.flush()
    await save.back()
    await run.write(chunk("1"))
    await run.write(status(last))
    await run.flush()
    view = await view_of_task(store, task_id)
    assert (view.state, view.done, view.running) == (last, 1, False)
    assert texts(view.task) == ["1"]
    (left,) = await store.commit(command("PTTL", store.keys.task(task_id)))
    ends = store.tasks.lifetimes.ended if last != ASKING else store.tasks.lifetimes.open
    assert ends - 60_000 < left <= ends
    if last == ASKING:
        assert (await follow_up(store, task_id)).turn == 2


async def test_a_later_turn_keeps_where_it_began(store: Store) -> None:
    task_id = await new_task(store)
    first = await open_run(store, task_id)
    await first.write(status(WORKING))
    await first.write(chunk("first"))
    await first.write(status(ASKING, "more?"))
    await first.flush()
    await follow_up(store, task_id)
    run = await open_run(store, task_id, 2)
    await run.write(chunk("half", "b"))
    await run.flush()
    await store.commit(command("DEL", *store.keys.of_task(task_id)))
    await run.write(chunk("er", "b", append=True))
    await run.flush()
    again = await begin(store, task_id, 2)
    assert again.attempt == 2
    assert [a["artifactId"] for a in again.task()["artifacts"]] == ["a"]
    later = store.runs.open(again, lambda why: None)
    await later.write(status(WORKING))
    await later.write(chunk("whole", "b"))
    await later.write(status(COMPLETED))
    await later.flush()
    view = await view_of_task(store, task_id)
    assert [texts(view.task, at) for at in (0, 1)] == [["first"], ["whole"]]


async def test_whom_somebody_took_over_does_not_restore(store: Store) -> None:
    task_id = await new_task(store)
    run = await open_run(store, task_id)
    await run.write(status(WORKING))
    await run.flush()
    save = await Save(store, task_id).take()
    await run.write(chunk("1"))
    await run.flush()
    await save.back()
    await open_run(store, task_id)
    await run.write(chunk("2", append=True))
    with pytest.raises(RunEnded, match="fenced"):
        await run.flush()
    assert "artifacts" not in (await view_of_task(store, task_id)).task


async def test_who_was_not_there_yet_cannot_fence_out_who_restored(store: Store) -> None:
    """A failover lost the second attempt's begin: its fence is above the first one's for good."""
    task_id = await new_task(store)
    first = await open_run(store, task_id)
    save = await Save(store, task_id).take()
    second = await open_run(store, task_id)
    await save.back()
    await second.write(status(WORKING, "second"))
    await second.flush()
    await first.write(status(WORKING, "first"))
    with pytest.raises(RunEnded, match="fenced"):
        await first.flush()
    said = (await view_of_task(store, task_id)).task["status"]["message"]
    assert said["parts"] == [{"text": "second"}]


@pytest.mark.parametrize("lost", ["all", "its last events"])
async def test_a_repeated_send_still_finds_its_turn(store: Store, lost: str) -> None:
    send = send_of(store, await new_task(store, digest="d1"), digest="d1")
    save = await Save(store, send.task_id).take()
    run = await open_run(store, send.task_id)
    await run.write(status(WORKING))
    await run.flush()
    if lost == "all":
        await store.commit(command("DEL", *store.keys.of_task(send.task_id)))
    else:
        await save.back()
    await run.write(status(WORKING))
    await run.flush()
    accepted = await store.tasks.accept(send)
    assert (accepted.outcome, accepted.turn) == ("known", 1)


async def test_a_cancel_that_came_meanwhile_stays_asked_for(store: Store) -> None:
    task_id = await new_task(store)
    save = await Save(store, task_id).take()
    run = await open_run(store, task_id)
    await run.write(status(WORKING))
    await run.flush()
    await save.back()
    await store.tasks.request_cancel(task_id, owner=OWNER)
    await run.write(chunk("1"))
    await run.flush()
    assert (await view_of_task(store, task_id)).cancel


async def test_push_configs_stay(store: Store) -> None:
    task_id = await new_task(store, configs=[("c", b'{"id":"c"}')])
    run = await open_run(store, task_id)
    await run.write(status(WORKING))
    await run.flush()
    await store.commit(command("DEL", *store.keys.of_task(task_id)[:2]))
    await run.write(status(WORKING))
    await run.flush()
    assert await store.pushes.all(task_id) == [{"id": "c"}]


@pytest.mark.parametrize("how", ["before", "between", "lost"])
async def test_cut_at_each_step(store: Store, how: How) -> None:
    for at in range(1, 10):
        task_id = await new_task(store)
        run = await open_run(store, task_id)
        await run.write(status(WORKING))
        await run.write(chunk("1"))
        await run.flush()
        await store.commit(command("DEL", *store.keys.of_task(task_id)))
        cut = Cut(store.commit, at=at, how=how)
        await run.write(chunk("2", append=True))
        await run.flush()
        await run.write(status(COMPLETED))
        await run.flush()
        cut.heal()
        view = await view_of_task(store, task_id)
        assert texts(view.task) == ["1", "2"]
        assert view.state == COMPLETED
        seqs = [entry.seq for entry in await entries_of(store, task_id)]
        assert seqs == list(range(seqs[0], seqs[0] + len(seqs)))
        if not cut.hit:
            return
    raise AssertionError("it never passed uncut")


async def look(store: Store, run: RunLog) -> list[bytes | None]:
    """What a renewal reads of a run: fence, mark, number of events."""
    found: list[bytes | None] = (await store.reads(run.look()))[0][:3]
    return found


@pytest.mark.parametrize("lost", ["all", "the run", "its last events"])
async def test_a_silent_run_is_written_anew_by_a_look(store: Store, lost: str) -> None:
    task_id = await new_task(store)
    saves = {"the run": await Save(store, task_id).take()}
    run = await open_run(store, task_id)
    await run.write(status(WORKING))
    await run.flush()
    saves["its last events"] = await Save(store, task_id).take()
    await run.write(chunk("1"))
    await run.flush()
    before = await view_of_task(store, task_id)
    if lost == "all":
        await store.commit(command("FLUSHALL"))
    else:
        await saves[lost].back()
    run.compare(run.known, *await look(store, run))
    await run.flush()
    view = await view_of_task(store, task_id)
    assert texts(view.task) == ["1"]
    assert (view.running, view.visible, view.attempt) == (True, True, 1)
    assert view.position.seq > before.position.seq and view.position.mark != before.position.mark
    run.compare(run.known, *await look(store, run))
    await run.flush()
    assert (await view_of_task(store, task_id)).position == view.position, "it is in order now"
    await run.write(chunk("2", append=True))
    await run.write(status(COMPLETED))
    await run.flush()
    assert texts((await view_of_task(store, task_id)).task) == ["1", "2"]


async def test_a_look_at_a_store_in_order_changes_nothing(store: Store) -> None:
    task_id = await new_task(store)
    run = await open_run(store, task_id)
    await run.write(status(WORKING))
    await run.flush()
    before = await stored(store, task_id)
    run.compare(run.known, *await look(store, run))
    await run.flush()
    assert await stored(store, task_id) == before


async def test_a_look_that_is_older_than_an_append_says_nothing(store: Store) -> None:
    task_id = await new_task(store)
    run = await open_run(store, task_id)
    known, found = run.known, await look(store, run)
    await run.write(status(WORKING))
    await run.flush()
    before = await stored(store, task_id)
    run.compare(known, *found)
    await run.flush()
    assert await stored(store, task_id) == before


async def test_a_look_finds_that_another_took_over(store: Store) -> None:
    task_id = await new_task(store)
    stopped: list[str] = []
    run = store.runs.open(await begin(store, task_id), stopped.append)
    await run.write(status(WORKING))
    await run.flush()
    await open_run(store, task_id)
    before = await stored(store, task_id)
    run.compare(run.known, *await look(store, run))
    assert stopped == ["fenced"]
    assert await stored(store, task_id) == before


async def test_what_nobody_was_shown_is_not_written_anew_by_a_look(store: Store) -> None:
    task_id = await new_task(store, shown=False)
    run = await open_run(store, task_id)
    await store.commit(command("DEL", *store.keys.of_task(task_id)))
    run.compare(run.known, *await look(store, run))
    await run.flush()
    assert await store.tasks.read(task_id) is None


@pytest.mark.parametrize("how", ["before", "between", "lost"])
async def test_a_look_cut_at_each_step(store: Store, how: How) -> None:
    for at in range(1, 10):
        task_id = await new_task(store)
        run = await open_run(store, task_id)
        await run.write(status(WORKING))
        await run.write(chunk("1"))
        await run.flush()
        await store.commit(command("DEL", *store.keys.of_task(task_id)))
        cut = Cut(store.commit, at=at, how=how)
        run.compare(run.known, *await look(store, run))
        await run.flush()
        cut.heal()
        view = await view_of_task(store, task_id)
        assert (texts(view.task), view.running, view.attempt) == (["1"], True, 1)
        if not cut.hit:
            return
    raise AssertionError("it never passed uncut")


async def test_what_is_written_while_it_restores_is_not_lost(store: Store) -> None:
    """The first try's snapshot stands, however often it is sent."""
    task_id = await new_task(store)
    run = await open_run(store, task_id)
    await run.write(status(WORKING))
    await run.write(chunk("1"))
    await run.flush()
    await store.commit(command("DEL", *store.keys.of_task(task_id)))
    restoring = asyncio.Event()
    send = store.commit._pipeline

    async def lose_the_answer(calls: Sequence[Call]) -> list[Any]:
        answers = await send(calls)
        if not restoring.is_set() and any(c.script and c.script.name == "restore" for c in calls):
            restoring.set()
            raise ConnectionError
        return answers

    store.commit._pipeline = lose_the_answer  # type: ignore[method-assign]
    await run.write(chunk("2", append=True))
    await restoring.wait()
    await run.write(chunk("3", append=True))
    await run.write(status(COMPLETED))
    await run.flush()
    store.commit._pipeline = send  # type: ignore[method-assign]
    view = await view_of_task(store, task_id)
    assert texts(view.task) == ["1", "2", "3"]
    assert (await stored(store, task_id))["state"] == COMPLETED.encode()
