"""Asking for a cancel, and ending a task that nobody runs, or nobody may run any longer."""

from __future__ import annotations

import asyncio

import pytest

from switchroom.protocol.event import decode
from switchroom.protocol.model import TaskState
from switchroom.store import Store
from switchroom.store.scripts import SCRIPTS, command
from tests.support.acts import (
    CONTEXT,
    OWNER,
    begin,
    chunk,
    entries_of,
    follow_up,
    intact,
    listed,
    message,
    new_id,
    new_task,
    open_run,
    settled,
    status,
    stored,
    view_of_task,
    visible,
)

WORKING, ASKING, CANCELED = TaskState.WORKING, TaskState.INPUT_REQUIRED, TaskState.CANCELED


class TestRequestCancel:
    async def test_what_is_the_case(self, store: Store) -> None:
        async def found(task_id: str, owner: str = OWNER) -> tuple[str, str]:
            return await store.tasks.request_cancel(task_id, owner=owner)

        assert await found(new_id()) == ("absent", "")
        assert await found(await new_task(store, shown=False)) == ("absent", "")
        task_id = await new_task(store)
        assert await found(task_id, "/mallory") == ("absent", "")
        assert not (await view_of_task(store, task_id)).cancel
        assert await found(task_id) == ("idle", TaskState.SUBMITTED)
        run = await open_run(store, task_id)
        assert await found(task_id) == ("running", TaskState.SUBMITTED)
        await run.write(status(WORKING))
        await run.write(status(ASKING))
        await run.flush()
        assert await found(task_id) == ("idle", ASKING)
        await store.tasks.end(task_id, CANCELED, force=False)
        assert await found(task_id) == ("terminal", CANCELED)

    async def test_the_flag_stays_and_the_worker_hears_of_it(self, store: Store) -> None:
        task_id = await new_task(store)
        await begin(store, task_id)
        heard: asyncio.Queue[bytes] = asyncio.Queue()
        await store.subscriber.subscribe(store.keys.control, heard.put_nowait)
        await store.tasks.request_cancel(task_id, owner=OWNER)
        assert await heard.get() == f"cancel {task_id}".encode()
        assert (await view_of_task(store, task_id)).cancel
        store.subscriber.unsubscribe(store.keys.control)

    async def test_it_writes_no_event(self, store: Store) -> None:
        task_id = await new_task(store)
        await store.tasks.request_cancel(task_id, owner=OWNER)
        await intact(store, task_id)
        assert len(await entries_of(store, task_id)) == 1


class TestEnd:
    async def test_it_writes_the_last_event_and_the_snapshot(self, store: Store) -> None:
        task_id = await new_task(store)
        said = message("Nobody answered.", role="ROLE_AGENT")
        view = await store.tasks.end(task_id, TaskState.FAILED, message=said, force=False)
        assert view is not None and view.terminal and view.state == TaskState.FAILED
        assert view.task["status"]["message"] == said
        assert await intact(store, task_id) == view.task
        (_, entry) = await entries_of(store, task_id)
        assert decode(entry.data or b"")["statusUpdate"]["taskId"] == task_id
        kept = await stored(store, task_id)
        assert decode(kept["base"]) == view.task
        assert (kept["base_seq"], kept["done"], kept["run"]) == (b"2", b"1", b"")

    async def test_how_long_it_lives(self, store: Store) -> None:
        task_id, lives = await new_task(store, configs=[("c", b"{}")]), store.tasks.lifetimes
        await store.tasks.end(task_id, CANCELED, force=False)
        found = await store.commit(*(command("PTTL", k) for k in store.keys.of_task(task_id)))
        for left, ends in zip(found, (lives.ended, lives.log, lives.ended), strict=True):
            assert ends - 60_000 < left <= ends

    async def test_the_lists_follow(self, store: Store) -> None:
        task_id = await new_task(store)
        await store.tasks.end(task_id, CANCELED, force=False)
        await settled(store)
        assert await listed(store, store.keys.state(OWNER, TaskState.SUBMITTED)) == {}
        assert task_id in await listed(store, store.keys.state(OWNER, CANCELED))

    async def test_its_time_is_after_that_of_the_state_before(self, store: Store) -> None:
        at = store.clock.now() + 60_000
        task_id = await new_task(store, at=at)
        view = await store.tasks.end(task_id, CANCELED, force=False)
        assert view is not None and view.ts > at

    async def test_who_comes_second_finds_it_ended(self, store: Store) -> None:
        task_id = await new_task(store)
        ends = [TaskState.CANCELED, TaskState.FAILED, TaskState.REJECTED] * 2
        found = await asyncio.gather(
            *(store.tasks.end(task_id, state, force=False) for state in ends)
        )
        view = await view_of_task(store, task_id)
        assert {f.state for f in found if f is not None} == {view.state}
        await intact(store, task_id)

    async def test_of_an_absent_task_there_is_none(self, store: Store) -> None:
        assert await store.tasks.end(new_id(), CANCELED, force=True) is None

    async def test_a_running_task_is_left_alone(self, store: Store) -> None:
        task_id = await new_task(store)
        run = await open_run(store, task_id)
        view = await store.tasks.end(task_id, CANCELED, force=False)
        assert view is not None and view.running
        await run.write(status(WORKING))
        await run.flush()
        await intact(store, task_id)

    async def test_unless_by_force_and_its_run_cannot_write_any_more(self, store: Store) -> None:
        task_id = await new_task(store)
        heard: asyncio.Queue[bytes] = asyncio.Queue()
        await store.subscriber.subscribe(store.keys.control, heard.put_nowait)
        stopped: asyncio.Queue[str] = asyncio.Queue()
        run = store.runs.open(await begin(store, task_id), stopped.put_nowait)
        await run.write(status(WORKING))
        await run.write(chunk("half"))
        await run.flush()
        view = await store.tasks.end(task_id, CANCELED, force=True)
        assert view is not None and view.state == CANCELED
        assert await heard.get() == f"fence {task_id}".encode()
        await run.write(status(TaskState.COMPLETED))
        assert await stopped.get() == "fenced"
        task = await intact(store, task_id)
        assert task["artifacts"][0]["parts"] == [{"text": "half"}]
        store.subscriber.unsubscribe(store.keys.control)

    async def test_events_that_came_meanwhile_are_in_it(self, store: Store) -> None:
        """It folds again when the task has moved on between its look and its script."""
        task_id = await new_task(store)
        run = await open_run(store, task_id)
        await run.write(status(WORKING))
        await run.write(status(ASKING, "?"))
        await run.flush()
        read, moved = store.tasks.read, asyncio.Event()

        async def read_then_move(task_id: str, *, owner: str | None = None) -> object:
            view = await read(task_id, owner=owner)
            if not moved.is_set():
                moved.set()
                await follow_up(store, task_id, said=message("late"))
            return view

        store.tasks.read = read_then_move  # type: ignore[method-assign, assignment]
        await store.tasks.end(task_id, CANCELED, force=False)
        store.tasks.read = read  # type: ignore[method-assign]
        task = await intact(store, task_id)
        assert task["status"]["state"] == CANCELED
        assert [m["parts"][0]["text"] for m in task["history"]] == ["hello", "?", "late"]

    async def test_each_outcome_of_the_script(self, store: Store) -> None:
        async def end(task_id: str, seq: int, mark: str = "m1") -> str:
            event = b'{"statusUpdate":{}}'
            (answer,) = await store.commit(
                SCRIPTS.end_(
                    store.keys.of_task(task_id),
                    *(seq, mark, event, CANCELED, store.clock.now(), b"{}"),
                    *(60_000, 60_000, store.keys.live(task_id), b""),
                )
            )
            outcome: str = answer[0].decode()
            return outcome

        assert await end(new_id(), 1) == "absent"
        task_id = await new_task(store)
        assert await end(task_id, 2) == "moved"
        run = await open_run(store, task_id)
        assert await end(task_id, 1) == "running"
        await run.release(counted=False)
        assert await end(task_id, 1) == "ended"
        assert await end(task_id, 1) == "ended"  # again: its own mark
        assert await end(task_id, 2, "m2") == "terminal"
        assert len(await entries_of(store, task_id)) == 2

    async def test_each_outcome_of_the_fence(self, store: Store) -> None:
        async def fence(task_id: str) -> str:
            key = store.keys.task(task_id)
            (answer,) = await store.commit(SCRIPTS.fence([key], store.keys.control, task_id))
            outcome: str = answer[0].decode()
            return outcome

        assert await fence(new_id()) == "absent"
        task_id = await new_task(store)
        assert await fence(task_id) == "idle"
        begun = await begin(store, task_id)
        assert await fence(task_id) == "fenced"
        assert await fence(task_id) == "idle"
        kept = await stored(store, task_id)
        assert (kept["run"], int(kept["fence"])) == (b"", begun.fence + 1)
        await store.tasks.end(task_id, CANCELED, force=True)
        assert await fence(task_id) == "terminal"


class TestShow:
    async def test_for_good(self, store: Store) -> None:
        task_id, at = await new_task(store, shown=False), store.clock.now()
        for _ in range(2):
            assert await store.tasks.show(task_id, owner=OWNER, context_id=CONTEXT, at=at)
        assert await visible(store, task_id, owner=OWNER) is not None
        assert await visible(store, task_id, owner="/mallory") is None
        await intact(store, task_id)

    async def test_not_what_was_answered_or_is_gone(self, store: Store) -> None:
        task_id, at = await new_task(store, shown=False), store.clock.now()
        run = await open_run(store, task_id)
        await run.answer({"message": message("42", role="ROLE_AGENT")})
        for gone in (task_id, new_id()):
            assert not await store.tasks.show(gone, owner=OWNER, context_id=CONTEXT, at=at)
        assert await visible(store, task_id, owner=OWNER) is None

    @pytest.mark.parametrize("known_to", [OWNER, None])
    async def test_whether_shown_or_not_a_read_knows_it(
        self, store: Store, known_to: str | None
    ) -> None:
        task_id = await new_task(store, shown=False)
        assert await store.tasks.read(task_id, owner=known_to) is not None
        assert await store.tasks.read(task_id, owner="/mallory") is None
