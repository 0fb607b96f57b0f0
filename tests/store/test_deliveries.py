"""What is due to be told to webhooks: announced behind each write, struck off only when all is
told.
"""

from __future__ import annotations

import string
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchroom.protocol.model import TaskState
from switchroom.settings import Settings
from switchroom.store import Store
from switchroom.store.deliveries import START, Record, Taken, member
from switchroom.store.entry import Position
from switchroom.store.scripts import command
from switchroom.worker.reconcile import Reconciler
from tests.support.acts import (
    OWNER,
    chunk,
    due,
    entries_of,
    follow_up,
    listed,
    message,
    new_id,
    new_task,
    open_run,
    status,
)
from tests.support.faults import Cut
from tests.support.wait import wait_until

CONFIG = b'{"id": "c", "url": "https://x.test"}'
INLINE: dict[str, Any] = {"configs": [("c", CONFIG)]}


async def due_now(store: Store) -> set[str]:
    return set(await listed(store, store.keys.pushes))


async def taken_of(store: Store, name: str) -> Taken:
    found, _ = await store.deliveries.take(100)
    (one,) = [each for each in found if each.member == name]
    return one


async def nothing_due(store: Store) -> None:
    await store.commit(command("DEL", store.keys.pushes))


class TestAnnounced:
    async def test_what_has_no_webhook_never_is(self, store: Store) -> None:
        task_id = await new_task(store)
        run = await open_run(store, task_id)
        for event in (status(TaskState.WORKING), chunk("a"), status(TaskState.COMPLETED)):
            await run.write(event)
            await run.flush()
        assert await due_now(store) == set()

    async def test_with_the_send_that_brings_it(self, store: Store) -> None:
        task_id = await new_task(store, **INLINE)
        assert await due_now(store) == {task_id}

    async def test_not_while_nobody_may_know_of_the_task(self, store: Store) -> None:
        task_id = await new_task(store, shown=False, **INLINE)
        assert await due_now(store) == set()
        assert not (await store.deliveries.look(task_id, "c")).visible
        assert await store.tasks.show(task_id, owner=OWNER, context_id="ctx", at=store.clock.now())
        assert await due_now(store) == {task_id}
        assert (await store.deliveries.look(task_id, "c")).visible

    async def test_behind_each_append(self, store: Store) -> None:
        task_id = await new_task(store, **INLINE)
        run = await open_run(store, task_id)
        for event in (status(TaskState.WORKING), chunk("a"), status(TaskState.COMPLETED)):
            await nothing_due(store)
            await run.write(event)
            await run.flush()
            assert await due_now(store) == {task_id}

    async def test_also_where_it_was_registered_under_the_run(self, store: Store) -> None:
        task_id = await new_task(store)
        run = await open_run(store, task_id)
        await run.write(status(TaskState.WORKING))
        await run.flush()
        assert await store.pushes.put(task_id, "c", {"id": "c"})
        assert await due_now(store) == set()  # it has missed nothing
        for event in (chunk("a"), chunk("b")):
            await nothing_due(store)
            await run.write(event)
            await run.flush()
            assert await due_now(store) == {task_id}

    async def test_with_an_answer(self, store: Store) -> None:
        task_id = await new_task(store, shown=False, **INLINE)
        run = await open_run(store, task_id)
        assert await run.answer({"message": message(role="ROLE_AGENT")})
        assert await due_now(store) == {task_id}
        kept = await store.deliveries.look(task_id, "c")
        assert kept.visible and kept.answered

    async def test_with_an_end_that_no_run_writes(self, store: Store) -> None:
        task_id = await new_task(store, **INLINE)
        await nothing_due(store)
        await store.tasks.end(task_id, TaskState.CANCELED, force=False)
        assert await due_now(store) == {task_id}

    async def test_with_a_task_that_is_written_anew(self, store: Store) -> None:
        task_id = await new_task(store, **INLINE)
        run = await open_run(store, task_id)
        await run.write(status(TaskState.WORKING))
        await run.flush()
        await store.commit(command("DEL", *store.keys.of_task(task_id)[:2]))
        await nothing_due(store)
        await run.write(chunk("a"))
        await run.flush()
        assert await due_now(store) == {task_id}
        record = Record.decode((await store.deliveries.look(task_id, "c")).record)
        assert await store.feed.since(task_id, record.position) is None

    @pytest.mark.parametrize("sent", [1, 2])
    async def test_by_the_reconciler_where_a_crash_came_between(
        self, store: Store, settings: Settings, sent: int
    ) -> None:
        """Cut between the append and its announcement, by a worker that does not come back."""
        task_id = await new_task(store, **INLINE)
        run = await open_run(store, task_id)
        await run.write(status(TaskState.WORKING))
        await run.flush()
        await nothing_due(store)
        cut = Cut(store.commit, at=1, how="between", sent=sent)
        await run.write(status(TaskState.COMPLETED))
        await wait_until(lambda: cut.hit, what="the append is cut")
        await run.close()
        cut.heal()
        assert await due_now(store) == set()
        written = len(await entries_of(store, task_id)) == 3
        await due(store, task_id)
        await Reconciler(store, settings).look()
        assert (task_id in await due_now(store)) and written == (sent == 2)


class TestTaken:
    async def test_what_is_taken_is_due_for_nobody_else(self, store: Store) -> None:
        task_id = await new_task(store, **INLINE)
        await taken_of(store, task_id)
        found, wait = await store.deliveries.take(10)
        assert found == [] and wait is not None and wait > 1

    async def test_unless_its_lease_is_over(self, store: Store) -> None:
        task_id = await new_task(store, **INLINE)
        await taken_of(store, task_id)
        await store.commit(command("ZADD", store.keys.pushes, 1, task_id))
        await taken_of(store, task_id)

    async def test_no_more_than_asked_for(self, store: Store) -> None:
        made = {await new_task(store, **INLINE) for _ in range(5)}
        got = [await store.deliveries.take(2) for _ in range(4)]
        assert [len(found) for found, _ in got] == [2, 2, 1, 0]
        assert {taken.member for found, _ in got for taken in found} == made

    async def test_a_task_becomes_its_configs(self, store: Store) -> None:
        both = [("c", CONFIG), ("other one", CONFIG)]
        task_id = await new_task(store, configs=both)
        taken = await taken_of(store, task_id)
        assert taken.ids == (task_id, "")
        await store.deliveries.spread(taken)
        assert await store.deliveries.strike_off(taken)
        assert await due_now(store) == {member(task_id, "c"), member(task_id, "other one")}
        assert (await taken_of(store, member(task_id, "other one"))).ids == (task_id, "other one")

    async def test_put_back_it_is_due_when_it_says(self, store: Store) -> None:
        task_id = await new_task(store, **INLINE)
        taken = await taken_of(store, task_id)
        await store.deliveries.put_back(taken, delay=0)
        taken = await taken_of(store, task_id)
        await store.deliveries.put_back(taken, delay=60)
        found, wait = await store.deliveries.take(10)
        assert found == [] and wait is not None and 55 < wait <= 60

    async def test_an_announcement_changes_nothing_of_when_it_is_due(self, store: Store) -> None:
        task_id = await new_task(store, **INLINE)
        await store.deliveries.put_back(await taken_of(store, task_id), delay=60)
        for _ in range(20):
            await store.deliveries.announce(task_id)
        found, wait = await store.deliveries.take(10)
        assert found == [] and wait is not None and 55 < wait <= 61

    @pytest.mark.parametrize("times", [1, 2, 1_000])
    async def test_what_was_announced_meanwhile_is_not_struck_off(
        self, store: Store, times: int
    ) -> None:
        task_id = await new_task(store, **INLINE)
        taken = await taken_of(store, task_id)
        for _ in range(times):
            await store.deliveries.announce(task_id)
        assert not await store.deliveries.strike_off(taken)
        assert await store.deliveries.hold(taken)
        assert await store.deliveries.strike_off(taken)
        assert await due_now(store) == set()

    async def test_of_two_that_have_it_the_last_decides(self, store: Store) -> None:
        task_id = await new_task(store, **INLINE)
        mine = await taken_of(store, task_id)
        theirs = Taken(task_id, mine.ends + 7)
        await store.commit(command("ZADD", store.keys.pushes, theirs.ends, task_id))
        await store.deliveries.announce(task_id)
        before = await listed(store, store.keys.pushes)
        assert await store.deliveries.strike_off(mine)
        assert not await store.deliveries.hold(mine)
        await store.deliveries.put_back(mine, delay=0)
        assert await listed(store, store.keys.pushes) == before
        assert not await store.deliveries.strike_off(theirs)
        assert await store.deliveries.hold(theirs)
        assert await store.deliveries.strike_off(theirs)
        assert await due_now(store) == set()

    async def test_struck_off_twice_it_is_off(self, store: Store) -> None:
        """Its first answer was lost."""
        task_id = await new_task(store, **INLINE)
        taken = await taken_of(store, task_id)
        assert await store.deliveries.strike_off(taken)
        assert await store.deliveries.strike_off(taken)

    async def test_the_bell_rings_for_what_was_not_there(self, store: Store) -> None:
        heard: list[bytes] = []
        await store.subscriber.subscribe(store.keys.pushes_bell, heard.append)
        await store.deliveries.announce("t1")
        await store.deliveries.announce("t1")
        await store.deliveries.announce("t2")
        await wait_until(lambda: len(heard) == 2, what="the bell has rung")
        store.subscriber.unsubscribe(store.keys.pushes_bell)


class TestRecord:
    async def test_what_comes_with_a_new_task_begins_before_it(self, store: Store) -> None:
        task_id = await new_task(store, **INLINE)
        record = Record.decode((await store.deliveries.look(task_id, "c")).record)
        assert record == Record(START)
        entries = await store.feed.since(task_id, START)
        assert entries is not None and [entry.kind for entry in entries] == ["task"]

    async def test_what_is_registered_later_begins_where_the_log_stands(self, store: Store) -> None:
        task_id = await new_task(store)
        await store.pushes.put(task_id, "c", {})
        record = Record.decode((await store.deliveries.look(task_id, "c")).record)
        assert await store.feed.since(task_id, record.position) == []

    async def test_what_a_follow_up_brings_begins_behind_it(self, store: Store) -> None:
        task_id = await new_task(store, **INLINE)
        run = await open_run(store, task_id)
        await run.write(status(TaskState.WORKING))
        await run.write(status(TaskState.INPUT_REQUIRED))
        await run.flush()
        await follow_up(store, task_id, configs=[("c", CONFIG), ("d", CONFIG)])
        record = Record.decode((await store.deliveries.look(task_id, "d")).record)
        assert await store.feed.since(task_id, record.position) == []
        record = Record.decode((await store.deliveries.look(task_id, "c")).record)
        assert record.position == START  # it goes on

    async def test_replaced_it_goes_on_where_it_was(self, store: Store) -> None:
        task_id = await new_task(store, **INLINE)
        await store.pushes.put(task_id, "c", {"new": 1})
        record = Record.decode((await store.deliveries.look(task_id, "c")).record)
        assert record.position == START

    async def test_replaced_after_it_was_given_up_it_begins_anew(self, store: Store) -> None:
        task_id = await new_task(store, **INLINE)
        await store.deliveries.announce(member(task_id, "c"))
        taken = await taken_of(store, member(task_id, "c"))
        was = (await store.deliveries.look(task_id, "c")).record
        await store.deliveries.bury(taken, was=was, record=Record(START).failed("no", now=1))
        await store.pushes.put(task_id, "c", {"new": 1})
        record = Record.decode((await store.deliveries.look(task_id, "c")).record)
        assert not record.dead and await store.feed.since(task_id, record.position) == []

    async def test_it_lives_as_long_as_its_task(self, store: Store) -> None:
        task_id = await new_task(store, **INLINE)
        run = await open_run(store, task_id)
        await run.write(status(TaskState.WORKING))
        await run.write(status(TaskState.COMPLETED))
        await run.flush()
        was = (await store.deliveries.look(task_id, "c")).record
        new = Record(Position(2, "m"))
        assert await store.deliveries.advance(task_id, "c", was=was, record=new)
        keys = store.keys
        task, sent = await store.commit(
            command("PTTL", keys.task(task_id)), command("PTTL", keys.sent(task_id))
        )
        assert 0 < sent <= task + 1_000

    async def test_it_moves_only_from_where_it_was_read(self, store: Store) -> None:
        task_id = await new_task(store, **INLINE)
        deliveries = store.deliveries
        was = (await deliveries.look(task_id, "c")).record
        mine, theirs = Record(Position(1, "mine")), Record(Position(1, "theirs"))
        assert await deliveries.advance(task_id, "c", was=was, record=mine)
        assert await deliveries.advance(task_id, "c", was=was, record=mine)  # a lost answer
        assert not await deliveries.advance(task_id, "c", was=was, record=theirs)
        assert (await deliveries.look(task_id, "c")).record == mine.encode().encode()

    async def test_of_a_config_that_is_gone_there_is_none(self, store: Store) -> None:
        task_id = await new_task(store, **INLINE)
        await store.deliveries.announce(member(task_id, "c"))
        was = (await store.deliveries.look(task_id, "c")).record
        await store.pushes.delete(task_id, "c")
        assert member(task_id, "c") not in await due_now(store)
        assert not await store.deliveries.advance(task_id, "c", was=was, record=Record(START))
        assert (await store.deliveries.look(task_id, "c")).config is None
        (left,) = await store.commit(command("EXISTS", store.keys.sent(task_id)))
        assert left == 0

    @given(
        seq=st.integers(0, 10**12),
        attempts=st.integers(1, 10**6),
        since=st.integers(1, 2**45),
        dead=st.booleans(),
        trouble=st.text(string.printable, max_size=50),
    )
    def test_it_is_read_as_it_was_written(
        self, seq: int, attempts: int, since: int, dead: bool, trouble: str
    ) -> None:
        for record in (
            Record(Position(seq, "mark")),
            Record(Position(seq, "mark"), attempts, since, dead, trouble),
        ):
            assert Record.decode(record.encode().encode()) == record
        assert Record.decode(b"") == Record(START)


class TestDeadLetters:
    async def buried(self, store: Store) -> str:
        task_id = await new_task(store, **INLINE)
        await store.deliveries.announce(member(task_id, "c"))
        taken = await taken_of(store, member(task_id, "c"))
        was = (await store.deliveries.look(task_id, "c")).record
        record = Record(START).failed("HTTP 500", now=store.clock.now())
        await store.deliveries.bury(taken, was=was, record=record)
        return task_id

    @pytest.mark.parametrize("dead", [True, False])
    async def test_what_another_has_moved_is_listed_if_the_other_gave_it_up(
        self, store: Store, dead: bool
    ) -> None:
        task_id = await new_task(store, **INLINE)
        await store.deliveries.announce(member(task_id, "c"))
        taken = await taken_of(store, member(task_id, "c"))
        was = (await store.deliveries.look(task_id, "c")).record
        mine, now = Record(START).failed("no", now=1), store.clock.now()
        if dead:
            theirs = Record(START).failed("HTTP 500", now=now)
            assert await store.deliveries.bury(taken, was=was, record=theirs)
        else:
            told = Record(Position(1, "m"))
            assert await store.deliveries.advance(task_id, "c", was=was, record=told)
        assert not await store.deliveries.bury(taken, was=was, record=mine)
        listed_now = [name for name, _ in await store.deliveries.dead(limit=10)]
        assert listed_now == ([member(task_id, "c")] if dead else [])

    async def test_given_up_it_is_listed_and_not_due(self, store: Store) -> None:
        task_id = await self.buried(store)
        name = member(task_id, "c")
        assert name not in await due_now(store)
        ((found, at),) = await store.deliveries.dead(limit=10)
        assert found == name and abs(at - store.clock.now()) < 60_000
        record = Record.decode((await store.deliveries.look(task_id, "c")).record)
        assert record.dead and record.trouble == "HTTP 500" and record.attempts == 1
        assert await store.deliveries.count() == (1, 1)  # the task itself was announced

    async def test_redriven_it_is_due_where_it_was(self, store: Store) -> None:
        task_id = await self.buried(store)
        for _ in range(2):
            assert await store.deliveries.redrive(task_id, "c")
            assert member(task_id, "c") in await due_now(store)
        assert await store.deliveries.dead(limit=10) == []
        record = Record.decode((await store.deliveries.look(task_id, "c")).record)
        assert record == Record(START)

    async def test_of_a_task_that_is_gone_nothing_is_redriven(self, store: Store) -> None:
        task_id = await self.buried(store)
        await store.commit(command("DEL", *store.keys.of_task(task_id)))
        assert not await store.deliveries.redrive(task_id, "c")
        assert await store.deliveries.dead(limit=10) == []

    async def test_what_is_older_than_any_task_is_dropped(self, store: Store) -> None:
        await store.commit(command("ZADD", store.keys.dead_letters, 1, f"{new_id()} c"))
        task_id = await self.buried(store)
        assert [name for name, _ in await store.deliveries.dead(limit=10)] == [member(task_id, "c")]

    async def test_deleted_it_is_no_letter_any_more(self, store: Store) -> None:
        task_id = await self.buried(store)
        await store.pushes.delete(task_id, "c")
        assert await store.deliveries.dead(limit=10) == []
