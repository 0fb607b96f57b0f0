"""What is stored of one task is damaged: it is shown as far as it can be read, can be ended, and
the tasks beside it never notice.
"""

from __future__ import annotations

import pytest

from switchroom.protocol.model import Task, TaskState
from switchroom.store import Store
from switchroom.store.attempt import Unreadable
from tests.support.acts import (
    OWNER,
    begin,
    chunk,
    entries_of,
    follow_up,
    message,
    new_task,
    open_run,
    pages,
    status,
    view_of_task,
)
from tests.support.damage import Damage, field, garbled_entry, lost_log, no_hash

WORKING, ASKING, FAILED = TaskState.WORKING, TaskState.INPUT_REQUIRED, TaskState.FAILED

WAITING: dict[str, Damage] = {
    "no base": field("base", b'{"id":'),
    "another base": field("base", b"[1]"),
    "an empty base": field("base", b""),
    "no number": field("base_seq", b"x"),
}
"""Damage to a task whose turn is over."""

AT_WORK: dict[str, Damage] = {
    "the first entry": garbled_entry(0),
    "the last entry": garbled_entry(-1),
    "an entry of no kind": garbled_entry(1, b'{"other":{}}'),
    "an entry of no shape": garbled_entry(1, b"7"),
    "no log": lost_log,
    "a snapshot": field("snap", b"{}x"),
}
"""Damage to a task while a run is at work."""


async def waiting(store: Store) -> str:
    """A task that waits for its user."""
    task_id = await new_task(store, said=message("hello"))
    run = await open_run(store, task_id)
    await run.write(status(WORKING))
    await run.write(chunk("1"))
    await run.write(status(ASKING, "Which?"))
    await run.flush()
    return task_id


async def at_work(store: Store) -> str:
    """A task whose run has written."""
    task_id = await new_task(store, said=message("hello"))
    await open_run(store, task_id)  # so that the second attempt writes a snapshot
    run = await open_run(store, task_id)
    await run.write(status(WORKING))
    await run.flush()
    await run.write(chunk("1"))
    await run.flush()
    await run.write(chunk("2", append=True))
    await run.flush()
    return task_id


@pytest.mark.parametrize("damage", [*WAITING, *AT_WORK])
async def test_a_damaged_task_is_shown_and_can_be_ended(
    store: Store, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    task_id = await (waiting if damage in WAITING else at_work)(store)
    whole = await new_task(store)
    before = await view_of_task(store, task_id)
    await (WAITING | AT_WORK)[damage](store, task_id)
    view = await view_of_task(store, task_id)
    assert (view.state, view.position, view.visible) == (before.state, before.position, True)
    task = view.task
    assert Task.model_validate(task).to_dict() == task
    assert (task["id"], task["contextId"]) == (task_id, before.context_id)
    assert task["status"]["state"] == before.state
    for artifacts in (True, False):
        page = await store.lists.page(
            OWNER, context_id=None, state=None, since=None, size=10, after=None, artifacts=artifacts
        )
        assert {task["id"] for task in page.tasks} == {task_id, whole}
    said = message("It cannot go on.", role="ROLE_AGENT")
    ended = await store.tasks.end(task_id, FAILED, message=said, force=True)
    assert ended is not None and ended.state == FAILED
    assert ended.task["status"]["message"] == said
    assert Task.model_validate(ended.task).to_dict() == ended.task
    assert (await entries_of(store, task_id))[-1].state == FAILED
    caplog.clear()
    assert (await view_of_task(store, task_id)).task == ended.task
    assert caplog.records == [], "what was written at the end is whole"


async def test_what_can_be_read_is_shown(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    task_id = await at_work(store)
    await garbled_entry(-1)(store, task_id)
    task = (await view_of_task(store, task_id)).task
    assert task["artifacts"][0]["parts"] == [{"text": "1"}]
    assert [m["parts"][0]["text"] for m in task["history"]] == ["hello"]
    assert f"task {task_id}: what is stored of it is damaged" in caplog.text


async def test_what_follows_a_hole_is_not_shown(store: Store) -> None:
    task_id = await at_work(store)
    run = await open_run(store, task_id)  # its first append is a snapshot
    await run.write(chunk("one"))
    await run.flush()
    await run.write(chunk("two", append=True))
    await run.flush()
    await lost_log(store, task_id)
    await run.write(chunk("three", append=True))
    await run.flush()
    parts = (await view_of_task(store, task_id)).task["artifacts"][0]["parts"]
    assert parts == [{"text": "one"}]


async def test_a_run_that_goes_on_heals_its_task(store: Store) -> None:
    task_id = await new_task(store)
    run = await open_run(store, task_id)
    await run.write(status(WORKING))
    await run.write(chunk("1"))
    await run.flush()
    await garbled_entry(-1)(store, task_id)
    await run.write(chunk("2", append=True))
    await run.write(status(TaskState.COMPLETED))
    await run.flush()
    task = (await view_of_task(store, task_id)).task
    assert task["artifacts"][0]["parts"] == [{"text": "1"}, {"text": "2"}]


@pytest.mark.parametrize(
    "damage",
    [
        field("in", b"{"),
        field("in", b'{"at":1}'),
        field("in", None),
        field("turn", b"x"),
        field("done", None),
        field("fence", b""),
        field("attempt", b"many"),
        field("owner", None),
        no_hash,
    ],
)
async def test_a_turn_that_cannot_be_read_says_so(store: Store, damage: Damage) -> None:
    task_id = await new_task(store)
    await damage(store, task_id)
    with pytest.raises(Unreadable):
        await begin(store, task_id)


@pytest.mark.parametrize("base", [b"{", b"[]", b"{}"])
async def test_so_does_the_task_that_a_turn_begins_with(store: Store, base: bytes) -> None:
    task_id = await waiting(store)
    await follow_up(store, task_id)
    await field("base", base)(store, task_id)
    begun = await begin(store, task_id, 2)
    with pytest.raises(Unreadable):
        store.runs.open(begun, lambda why: None)


async def test_walks_through_lists_meet_every_other_task(store: Store) -> None:
    ids = [await new_task(store) for _ in range(7)]
    for task_id in ids[::2]:
        await garbled_entry(0)(store, task_id)
    assert {task["id"] for page in await pages(store, size=2) for task in page} == {*ids}
