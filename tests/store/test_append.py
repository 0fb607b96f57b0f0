"""Appending: dense numbers, one writer, and repeats that do no harm."""

from __future__ import annotations

import asyncio

import pytest

from switchroom.protocol.errors import InvalidAgentResponse
from switchroom.protocol.event import decode, encode
from switchroom.protocol.model import TaskState, timestamp
from switchroom.settings import Settings
from switchroom.store import Store
from switchroom.store.attempt import RunEnded
from switchroom.store.growth import TooLarge
from switchroom.store.scripts import ANSWERED, command
from switchroom.store.tasks import new_mark
from tests.support.acts import (
    OWNER,
    append,
    begin,
    chunk,
    entries_of,
    intact,
    listed,
    message,
    new_task,
    open_run,
    settled,
    status,
    stored,
    view_of_task,
    visible,
)
from tests.support.faults import Cut, How
from tests.support.wait import wait_until

WORKING, COMPLETED = TaskState.WORKING, TaskState.COMPLETED


def answer(text: str = "42") -> dict[str, object]:
    return {"message": message(text, role="ROLE_AGENT")}


class TestScript:
    """`append.lua`, called with whatever numbers."""

    async def test_the_next_events_get_the_next_numbers(self, store: Store) -> None:
        task_id = await new_task(store)
        begun = await begin(store, task_id)
        assert await append(store, begun, 1, status(WORKING), chunk("a")) == "ok"
        assert await append(store, begun, 3, status(COMPLETED)) == "ok"
        entries = await entries_of(store, task_id)
        assert [(e.seq, e.kind, e.state) for e in entries[1:]] == [
            (2, "status", WORKING),
            (3, "artifact", ""),
            (4, "status", COMPLETED),
        ]
        assert {e.mark for e in entries[1:]} == {begun.run}
        assert {e.turn for e in entries} == {1}
        kept = await stored(store, task_id)
        assert (kept["seq"], kept["n"], kept["mark"]) == (b"4", b"3", begun.run.encode())
        assert (kept["state"], kept["done"]) == (COMPLETED.encode(), b"1")

    @pytest.mark.parametrize("last", [WORKING, COMPLETED])
    async def test_the_same_numbers_again_write_nothing(self, store: Store, last: str) -> None:
        task_id = await new_task(store)
        begun = await begin(store, task_id)
        events = [status(WORKING), status(last)]
        assert await append(store, begun, 1, *events) == "ok"
        before = await stored(store, task_id), await entries_of(store, task_id)
        for first, again in [(1, events), (1, events[:1]), (2, events[1:])]:
            assert await append(store, begun, first, *again) == "ok"
        assert (await stored(store, task_id), await entries_of(store, task_id)) == before

    async def test_what_is_new_in_a_repeat_is_written(self, store: Store) -> None:
        task_id = await new_task(store)
        begun = await begin(store, task_id)
        await append(store, begun, 1, status(WORKING), chunk("a"))
        assert await append(store, begun, 2, chunk("a"), chunk("b", append=True)) == "ok"
        (artifact,) = (await view_of_task(store, task_id)).task["artifacts"]
        assert artifact["parts"] == [{"text": "a"}, {"text": "b"}]
        assert len(await entries_of(store, task_id)) == 4

    async def test_after_the_end_nothing_new_is_written(self, store: Store) -> None:
        task_id = await new_task(store)
        begun = await begin(store, task_id)
        await append(store, begun, 1, status(COMPLETED))
        assert await append(store, begun, 2, status(WORKING)) == "terminal"
        assert len(await entries_of(store, task_id)) == 2

    async def test_numbers_beyond_the_next_show_a_store_gone_back(self, store: Store) -> None:
        begun = await begin(store, await new_task(store))
        assert await append(store, begun, 2, status(WORKING)) == "lost"

    async def test_an_absent_task_shows_a_store_gone_back(self, store: Store) -> None:
        task_id = await new_task(store)
        begun = await begin(store, task_id)
        await store.commit(command("DEL", *store.keys.of_task(task_id)))
        assert await append(store, begun, 1, status(WORKING)) == "lost"
        assert await stored(store, task_id) == {}

    async def test_a_lower_fence_shows_a_store_gone_back(self, store: Store) -> None:
        task_id = await new_task(store)
        begun = await begin(store, task_id)
        await store.commit(command("HSET", store.keys.task(task_id), "fence", 0, "run", ""))
        assert await append(store, begun, 1, status(WORKING)) == "lost"

    async def test_another_run_is_fenced(self, store: Store) -> None:
        task_id = await new_task(store)
        begun = await begin(store, task_id)
        assert await append(store, begun, 1, status(WORKING), run=new_mark()) == "fenced"
        later = await begin(store, task_id)
        assert later.fence == begun.fence + 1
        assert await append(store, begun, 1, status(WORKING)) == "fenced"
        assert await append(store, later, 1, status(WORKING)) == "ok"
        assert [e.mark for e in (await entries_of(store, task_id))[1:]] == [later.run]

    async def test_a_message_cannot_be_the_answer_of_a_task_that_was_shown(
        self, store: Store
    ) -> None:
        task_id = await new_task(store, shown=True)
        begun = await begin(store, task_id)
        assert await append(store, begun, 1, answer(), show=False) == "shown"
        assert len(await entries_of(store, task_id)) == 1

    async def test_times(self, store: Store) -> None:
        """While open, after the end, and for a Message: each as long as it says."""
        lives = store.tasks.lifetimes

        async def times(task_id: str) -> list[int]:
            keys = store.keys.of_task(task_id)
            found = await store.commit(*(command("PTTL", key) for key in keys))
            return [round(int(left) / 60_000) for left in found]

        def minutes(*lifetimes: int) -> list[int]:
            return [round(lifetime / 60_000) for lifetime in lifetimes]

        config = [("c", b"{}")]
        task_id = await new_task(store, configs=config)
        begun = await begin(store, task_id)
        await append(store, begun, 1, status(WORKING))
        assert await times(task_id) == minutes(lives.open, lives.open, lives.open)
        await append(store, begun, 2, status(COMPLETED))
        assert await times(task_id) == minutes(lives.ended, lives.log, lives.ended)
        task_id = await new_task(store, configs=config, shown=False)
        await append(store, await begin(store, task_id), 1, answer(), show=False)
        assert await times(task_id) == minutes(lives.answered, lives.answered, lives.answered)


class TestRunLog:
    async def test_events_are_stored_as_they_were_encoded_once(self, store: Store) -> None:
        task_id = await new_task(store)
        run = await open_run(store, task_id)
        events = [status(WORKING), chunk("a"), chunk("b", append=True), status(COMPLETED, "done")]
        for event in events:
            await run.write(event)
        await run.flush()
        entries = await entries_of(store, task_id)
        assert [entry.data for entry in entries[1:]] == [encode(event) for event in events]
        assert run.ended
        assert encode(run.task) == encode(await intact(store, task_id))

    async def test_what_gathers_goes_out_together(self, store: Store) -> None:
        task_id = await new_task(store)
        run = await open_run(store, task_id)
        before = store.commit.round_trips
        for at in range(200):
            await run.write(chunk(str(at), append=at > 0) if at else status(WORKING))
            if at == 0:
                await run.write(chunk("", append=False))
        await run.write(status(COMPLETED))
        await run.flush()
        assert store.commit.round_trips - before <= 4
        task = await intact(store, task_id)
        assert len(task["artifacts"][0]["parts"]) == 200

    async def test_a_writer_that_runs_ahead_waits(self, store: Store) -> None:
        task_id = await new_task(store)
        run = await open_run(store, task_id)
        await run.write(status(WORKING))
        await run.write(chunk("x"))
        most = 0
        for _ in range(1000):
            await run.write(chunk("x", append=True))
            most = max(most, len(run._pending))
        await run.flush()
        assert most <= 256
        await intact(store, task_id)

    async def test_status_times_are_the_servers_and_never_go_back(self, store: Store) -> None:
        task_id = await new_task(store, at=store.clock.now() + 60_000)
        run = await open_run(store, task_id)
        first = status(WORKING)
        await run.write(first)
        store.clock.learn(1)
        last = status(COMPLETED)
        await run.write(last)
        await run.flush()
        made = (await view_of_task(store, task_id)).task
        times = [e["statusUpdate"]["status"]["timestamp"] for e in (first, last)]
        assert times == sorted(times)
        assert made["status"]["timestamp"] == times[-1]
        view = await view_of_task(store, task_id)
        assert timestamp(view.ts) == times[-1]
        assert decode((await entries_of(store, task_id))[1].data or b"") == first

    async def test_each_state_has_a_time_of_its_own(self, store: Store) -> None:
        """So that a list can tell a task that left it from one that came back."""
        at = store.clock.now() + 60_000
        task_id = await new_task(store, at=at)
        run = await open_run(store, task_id)
        await run.write(status(WORKING))
        await run.write(status(WORKING, "still"))
        await run.write(status(TaskState.INPUT_REQUIRED))
        await run.flush()
        await settled(store)
        view = await view_of_task(store, task_id)
        assert view.ts == at + 2
        for state in (TaskState.SUBMITTED, WORKING):
            assert await listed(store, store.keys.state(OWNER, state)) == {}

    async def test_what_may_not_follow_is_refused_and_not_written(self, store: Store) -> None:
        task_id = await new_task(store)
        run = await open_run(store, task_id)
        for event in (
            status(TaskState.INPUT_REQUIRED),
            status("TASK_STATE_DREAMING"),
            answer(),
            {"task": {}},
            chunk("x", append=True),
        ):
            with pytest.raises(InvalidAgentResponse):
                await run.write(event)
        await run.flush()
        assert len(await entries_of(store, task_id)) == 1

    @pytest.mark.parametrize("last", [COMPLETED, TaskState.INPUT_REQUIRED])
    async def test_after_the_last_event_there_is_none(self, store: Store, last: str) -> None:
        """Or a task that waits for its client would be at work, with nobody to do it."""
        task_id = await new_task(store)
        run = await open_run(store, task_id)
        await run.write(status(WORKING))
        await run.write(status(last))
        for event in (status(WORKING), chunk("late"), status(TaskState.FAILED)):
            with pytest.raises(InvalidAgentResponse):
                await run.write(event)
        await run.flush()
        assert (await intact(store, task_id))["status"]["state"] == last

    async def test_the_first_event_shows_the_task(self, store: Store) -> None:
        task_id = await new_task(store, shown=False)
        run = await open_run(store, task_id)
        await run.write(status(WORKING))
        await run.flush()
        assert (await view_of_task(store, task_id)).visible
        await intact(store, task_id)

    async def test_a_fenced_run_hears_of_it_once_and_writes_no_more(self, store: Store) -> None:
        task_id = await new_task(store)
        heard: list[str] = []
        run = store.runs.open(await begin(store, task_id), heard.append)
        later = await open_run(store, task_id)
        await run.write(status(WORKING))
        for _ in range(2):
            with pytest.raises(RunEnded, match="fenced"):
                await run.flush()
        with pytest.raises(RunEnded, match="fenced"):
            await run.write(chunk("a"))
        with pytest.raises(RunEnded, match="fenced"):
            await run.answer(answer())
        assert heard == ["fenced"] == [run.stopped]
        await later.write(status(WORKING))
        await later.flush()
        await intact(store, task_id)

    async def test_a_run_whose_task_was_ended_stops(self, store: Store) -> None:
        task_id = await new_task(store)
        run = await open_run(store, task_id)
        await store.tasks.end(task_id, TaskState.CANCELED, force=True)
        await run.write(status(WORKING))
        with pytest.raises(RunEnded, match="fenced"):
            await run.flush()
        assert (await intact(store, task_id))["status"]["state"] == TaskState.CANCELED

    async def test_a_writer_that_waits_is_let_go_when_the_run_ends(self, store: Store) -> None:
        task_id = await new_task(store)
        run = await open_run(store, task_id)
        await open_run(store, task_id)

        async def write() -> None:
            while True:
                await run.write(status(WORKING))

        with pytest.raises(RunEnded, match="fenced"):
            async with asyncio.timeout(10):
                await write()

    @pytest.mark.parametrize("how", ["before", "between", "lost"])
    async def test_a_lost_answer_is_asked_for_again_and_changes_nothing(
        self, store: Store, how: How
    ) -> None:
        for at in (1, 2, 3):
            task_id = await new_task(store)
            run = await open_run(store, task_id)
            cut = Cut(store.commit, at=at, how=how)
            for event in (status(WORKING), chunk("a"), status(COMPLETED, "done")):
                await run.write(event)
                await run.flush()
            cut.heal()
            assert cut.hit
            task = await intact(store, task_id)
            assert len(await entries_of(store, task_id)) == 4
            assert task["artifacts"][0]["parts"] == [{"text": "a"}]
        await settled(store)

    async def test_an_answer_that_redis_never_gives_a_script_breaks_the_run(
        self, store: Store, caplog: pytest.LogCaptureFixture
    ) -> None:
        task_id = await new_task(store)
        run = await open_run(store, task_id)
        await store.commit(command("DEL", store.keys.log(task_id)))
        await store.commit(command("SET", store.keys.log(task_id), "x", "PX", 60_000))
        await run.write(status(WORKING))
        with pytest.raises(RunEnded, match="broken"):
            await run.flush()
        assert "cannot be written" in caplog.text


class TestLimits:
    @pytest.fixture
    def settings(self, store_url: str) -> Settings:
        return Settings(redis_url=store_url, event_limit=1_000, task_limit=5_000)

    async def test_an_event_has_its_limit(self, store: Store) -> None:
        run = await open_run(store, await new_task(store, shown=False))
        with pytest.raises(TooLarge, match="SWITCHROOM_EVENT_LIMIT"):
            await run.answer(answer("x" * 1_000))
        await run.write(status(WORKING))
        with pytest.raises(TooLarge, match="SWITCHROOM_EVENT_LIMIT"):
            await run.write(chunk("x" * 1_000))
        await run.write(chunk("x" * 800))
        await run.write(status(TaskState.FAILED))
        await run.flush()

    async def test_a_task_has_its_limit_and_can_still_be_ended(self, store: Store) -> None:
        task_id = await new_task(store)
        run = await open_run(store, task_id)
        await run.write(status(WORKING))
        await run.write(chunk("x" * 800))
        with pytest.raises(TooLarge, match="SWITCHROOM_TASK_LIMIT"):
            for _ in range(10):
                await run.write(chunk("x" * 800, append=True))
        await run.write(status(TaskState.FAILED, "It grew too large."))
        await run.flush()
        task = await intact(store, task_id)
        assert len(encode(task)) < 6_000

    async def test_the_task_of_earlier_turns_counts(self, store: Store) -> None:
        task_id = await new_task(store, said=message("x" * 4_500))
        run = await open_run(store, task_id)
        await run.write(status(WORKING))
        with pytest.raises(TooLarge, match="SWITCHROOM_TASK_LIMIT"):
            await run.write(chunk("x" * 800))
        await run.close()


class TestAnswer:
    """A Message as the whole answer."""

    async def test_it_ends_a_task_that_nobody_saw(self, store: Store) -> None:
        task_id = await new_task(store, shown=False)
        run = await open_run(store, task_id)
        said = answer()
        assert await run.answer(said) is True
        assert run.ended
        view = await view_of_task(store, task_id)
        assert (view.state, view.done, view.visible, view.terminal) == (ANSWERED, 1, False, True)
        assert view.answer == encode(said)
        assert await listed(store, store.keys.tasks(OWNER)) == {}
        assert await visible(store, task_id, owner=OWNER) is None
        entry = (await entries_of(store, task_id))[-1]
        assert (entry.kind, entry.state, entry.data) == ("message", ANSWERED, encode(said))

    async def test_of_a_task_that_was_shown_meanwhile_it_is_not_the_answer(
        self, store: Store
    ) -> None:
        task_id = await new_task(store, shown=False)
        run = await open_run(store, task_id)
        assert await store.tasks.show(
            task_id, owner=OWNER, context_id="ctx-1", at=store.clock.now()
        )
        assert await run.answer(answer()) is False
        assert run.shown
        assert await run.answer(answer()) is False
        await run.write(status(WORKING))
        await run.write(status(COMPLETED, "42"))
        await run.flush()
        await intact(store, task_id)

    async def test_when_the_store_has_forgotten_the_task_the_run_is_over(
        self, store: Store
    ) -> None:
        task_id = await new_task(store, shown=False)
        run = await open_run(store, task_id)
        await store.commit(command("DEL", *store.keys.of_task(task_id)))
        with pytest.raises(RunEnded, match="absent"):
            await run.answer(answer())
        assert await store.tasks.read(task_id) is None

    @pytest.mark.parametrize("how", ["before", "between", "lost"])
    async def test_a_lost_answer_is_asked_for_again(self, store: Store, how: How) -> None:
        task_id = await new_task(store, shown=False)
        run = await open_run(store, task_id)
        cut = Cut(store.commit, at=1, how=how)
        assert await run.answer(answer()) is True
        cut.heal()
        assert cut.hit
        assert [e.kind for e in await entries_of(store, task_id)] == ["task", "message"]

    @pytest.mark.parametrize("how", ["before", "lost"])
    async def test_who_would_show_the_task_meanwhile_waits_for_its_outcome(
        self, store: Store, how: How
    ) -> None:
        """Or both would write under the same number, and one of them be taken for a repeat."""
        task_id = await new_task(store, shown=False)
        run = await open_run(store, task_id)
        cut = Cut(store.commit, at=1, how=how)
        said = asyncio.create_task(run.answer(answer()))
        await wait_until(lambda: cut.hit, what="the message was on its way")
        await run.write(status(WORKING))
        assert await said is True
        cut.heal()
        await run.flush()
        view = await view_of_task(store, task_id)
        assert view.state == ANSWERED
        assert [e.kind for e in await entries_of(store, task_id)] == ["task", "message"]

    async def test_an_agent_that_is_cancelled_while_it_answers_has_answered(
        self, store: Store
    ) -> None:
        task_id = await new_task(store, shown=False)
        run = await open_run(store, task_id)
        cut = Cut(store.commit, at=1, how="lost")
        said = asyncio.create_task(run.answer(answer()))
        await wait_until(lambda: cut.hit, what="the message was on its way")
        said.cancel()
        await asyncio.wait([said])
        await run.write(status(TaskState.CANCELED))
        await run.flush()
        cut.heal()
        assert run.state == ANSWERED
        assert (await view_of_task(store, task_id)).state == ANSWERED
