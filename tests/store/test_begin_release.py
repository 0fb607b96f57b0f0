"""An attempt begins, and a turn is given back."""

from __future__ import annotations

import pytest

from switchroom.protocol.event import decode
from switchroom.protocol.model import TaskState
from switchroom.store import Store
from switchroom.store.attempt import RunEnded
from switchroom.store.tasks import new_mark
from tests.support.acts import (
    CONTEXT,
    OWNER,
    begin,
    chunk,
    entries_of,
    follow_up,
    intact,
    message,
    new_id,
    new_task,
    open_run,
    status,
    stored,
    view_of_task,
)

WORKING, ASKING = TaskState.WORKING, TaskState.INPUT_REQUIRED


class TestBegin:
    async def test_it_gives_the_turn_to_one_worker(self, store: Store) -> None:
        at, said = store.clock.now(), message("hello")
        task_id = await new_task(store, at=at, said=said, digest="d1")
        begun = await begin(store, task_id)
        assert (begun.turn, begun.attempt, begun.fence) == (1, 1, 1)
        assert (begun.owner, begun.context_id, begun.claim) == (OWNER, CONTEXT, "d1")
        assert (begun.state, begun.ts, begun.seq) == (TaskState.SUBMITTED, at, 1)
        assert (begun.shown, begun.cancel, begun.base, begun.base_seq) == (True, False, b"", 0)
        assert begun.input.message == said
        view = await view_of_task(store, task_id)
        assert (view.running, view.attempt) == (True, 1)
        assert begun.task() == view.task
        assert len(await entries_of(store, task_id)) == 1

    async def test_again_with_the_same_mark_it_is_the_same_attempt(self, store: Store) -> None:
        task_id, run = await new_task(store), new_mark()
        first = await begin(store, task_id, run=run)
        # However late: it had begun in time.
        again = await store.runs.begin(task_id, 1, run=run, deadline=1)
        assert again == first

    async def test_with_another_mark_it_is_the_next_attempt(self, store: Store) -> None:
        task_id = await new_task(store)
        first, second = await begin(store, task_id), await begin(store, task_id)
        assert (second.fence, second.attempt) == (first.fence + 1, 2)
        assert (await stored(store, task_id))["n"] == b"0"

    async def test_whose_lease_has_passed_is_late_and_fences_nobody(self, store: Store) -> None:
        task_id = await new_task(store)
        first = await open_run(store, task_id)
        with pytest.raises(RunEnded, match="late"):
            await store.runs.begin(task_id, 1, run=new_mark(), deadline=store.clock.now() - 1_000)
        await first.write(status(WORKING))
        await first.flush()
        assert (await view_of_task(store, task_id)).attempt == 1

    async def test_a_job_that_only_the_queue_thinks_new_fences_nobody(self, store: Store) -> None:
        task_id, deadline = await new_task(store), store.clock.now() + 60_000
        run = new_mark()
        first = await store.runs.begin(task_id, 1, run=run, deadline=deadline, new=True)
        with pytest.raises(RunEnded, match="held"):
            await store.runs.begin(task_id, 1, run=new_mark(), deadline=deadline, new=True)
        again = await store.runs.begin(task_id, 1, run=run, deadline=deadline, new=True)
        assert again == first
        await store.runs.open(first, lambda why: None).release(counted=False)
        second = await store.runs.begin(task_id, 1, run=new_mark(), deadline=deadline, new=True)
        assert (second.attempt, second.fence) == (1, first.fence + 1)

    async def test_of_an_absent_task(self, store: Store) -> None:
        with pytest.raises(RunEnded, match="absent"):
            await begin(store, new_id())

    async def test_only_the_turn_that_is_due(self, store: Store) -> None:
        task_id = await new_task(store)
        for turn in (0, 2):
            with pytest.raises(RunEnded, match="stale"):
                await begin(store, task_id, turn)
        run = await open_run(store, task_id)
        await run.write(status(WORKING))
        await run.write(status(ASKING, "?"))
        await run.flush()
        for turn in (1, 2):
            with pytest.raises(RunEnded, match="stale"):
                await begin(store, task_id, turn)
        await follow_up(store, task_id)
        with pytest.raises(RunEnded, match="stale"):
            await begin(store, task_id, 1)
        begun = await begin(store, task_id, 2)
        assert (begun.turn, begun.attempt) == (2, 1)

    async def test_not_of_a_task_that_has_ended(self, store: Store) -> None:
        task_id = await new_task(store)
        await store.tasks.end(task_id, TaskState.CANCELED, force=False)
        with pytest.raises(RunEnded, match="stale"):
            await begin(store, task_id)

    async def test_it_says_that_a_cancel_was_asked_for(self, store: Store) -> None:
        task_id = await new_task(store)
        await store.tasks.request_cancel(task_id, owner=OWNER)
        assert (await begin(store, task_id)).cancel

    async def test_a_later_turn_finds_the_task_with_its_message(self, store: Store) -> None:
        task_id = await new_task(store, said=message("weather?"))
        run = await open_run(store, task_id)
        await run.write(status(WORKING))
        await run.write(chunk("asking around"))
        await run.write(status(ASKING, "Which city?"))
        await run.flush()
        await follow_up(store, task_id, said=message("Paris"))
        begun = await begin(store, task_id, 2)
        view = await view_of_task(store, task_id)
        assert begun.task() == view.task
        assert decode(begun.base)["status"]["state"] == ASKING
        assert begun.base_seq == 4 and begun.seq == 5
        texts = [m["parts"][0]["text"] for m in begun.task()["history"]]
        assert texts == ["weather?", "Which city?", "Paris"]

    async def test_an_attempt_begins_where_its_turn_did(self, store: Store) -> None:
        """What a lost attempt left is replaced, and the task holds the answer once."""
        task_id = await new_task(store)
        lost = await open_run(store, task_id)
        await lost.write(status(WORKING))
        await lost.write(chunk("half of th"))
        await lost.write(chunk("only the first attempt makes this", "extra"))
        await lost.flush()
        run = await open_run(store, task_id)
        await run.write(status(WORKING, "Attempt 2"))
        await run.write(chunk("half of "))
        await run.write(chunk("the answer", append=True))
        await run.write(status(TaskState.COMPLETED))
        await run.flush()
        task = await intact(store, task_id)
        assert [a["artifactId"] for a in task["artifacts"]] == ["a"]
        assert "".join(p["text"] for p in task["artifacts"][0]["parts"]) == "half of the answer"

    @pytest.mark.parametrize("counted", [True, False])
    async def test_from_its_first_event_on_it_shows_nothing_of_the_attempt_before(
        self, store: Store, counted: bool
    ) -> None:
        task_id = await new_task(store)
        lost = await open_run(store, task_id)
        await lost.write(status(WORKING, "Here I begin."))
        await lost.write(chunk("half"))
        await lost.flush()
        await lost.release(counted=counted)
        run = await open_run(store, task_id)
        await run.write(status(WORKING, "Here I begin again."))
        await run.flush()
        task = await intact(store, task_id)
        assert "artifacts" not in task
        await run.write(status(TaskState.COMPLETED))
        await run.flush()
        texts = [said["parts"][0]["text"] for said in (await intact(store, task_id))["history"]]
        assert texts == ["hello", "Here I begin again."]

    async def test_until_it_writes_the_task_shows_the_attempt_before(self, store: Store) -> None:
        task_id = await new_task(store)
        lost = await open_run(store, task_id)
        await lost.write(status(WORKING))
        await lost.write(chunk("half"))
        await lost.flush()
        await begin(store, task_id)
        task = await intact(store, task_id)
        assert task["artifacts"][0]["parts"] == [{"text": "half"}]


class TestRelease:
    @pytest.mark.parametrize(("counted", "attempt"), [(False, 0), (True, 1)])
    async def test_the_turn_is_given_back(self, store: Store, counted: bool, attempt: int) -> None:
        task_id = await new_task(store)
        run = await open_run(store, task_id)
        await run.write(status(WORKING))
        await run.flush()
        await run.release(counted=counted)
        view = await view_of_task(store, task_id)
        assert (view.running, view.attempt, view.state) == (False, attempt, WORKING)
        begun = await begin(store, task_id)
        assert (begun.attempt, begun.fence) == (attempt + 1, 2)

    async def test_afterwards_the_run_cannot_write(self, store: Store) -> None:
        task_id = await new_task(store)
        run = await open_run(store, task_id)
        await run.release(counted=False)
        await run.write(status(WORKING))
        with pytest.raises(RunEnded, match="fenced"):
            await run.flush()
        assert len(await entries_of(store, task_id)) == 1

    async def test_by_one_who_was_fenced_it_changes_nothing(self, store: Store) -> None:
        task_id = await new_task(store)
        lost = await open_run(store, task_id)
        run = await open_run(store, task_id)
        before = await stored(store, task_id)
        await lost.release(counted=False)
        assert await stored(store, task_id) == before
        await run.write(status(WORKING))
        await run.flush()

    async def test_of_a_turn_that_has_ended_it_changes_nothing(self, store: Store) -> None:
        task_id = await new_task(store)
        run = await open_run(store, task_id)
        await run.write(status(WORKING))
        await run.write(status(ASKING))
        await run.flush()
        before = await stored(store, task_id)
        await run.release(counted=False)
        assert await stored(store, task_id) == before

    async def test_what_was_not_sent_yet_is_dropped(self, store: Store) -> None:
        task_id = await new_task(store)
        run = await open_run(store, task_id)
        await run.write(status(WORKING))
        await run.release(counted=False)
        assert len(await entries_of(store, task_id)) <= 2
        await intact(store, task_id)
