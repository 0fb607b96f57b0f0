"""An owner's lists: sorted, paged, counted, and mended where a crash left too much."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest

from switchroom.protocol.errors import InvalidParams
from switchroom.protocol.model import Json, TaskState, timestamp
from switchroom.store import Store
from switchroom.store.lists import Cursor, Page
from switchroom.store.read import read_call
from switchroom.store.scripts import command
from tests.support.acts import (
    CONTEXT,
    OWNER,
    chunk,
    follow_up,
    listed,
    new_id,
    new_task,
    open_run,
    pages,
    settled,
    status,
    view_of_task,
)
from tests.support.wait import wait_until

SUBMITTED, WORKING, ASKING = TaskState.SUBMITTED, TaskState.WORKING, TaskState.INPUT_REQUIRED
COMPLETED = TaskState.COMPLETED


async def page(store: Store, *, owner: str = OWNER, size: int = 50, **filters: Any) -> Page:
    given = {"context_id": None, "state": None, "since": None, "after": None, **filters}
    return await store.lists.page(owner, size=size, **given)


async def ids(store: Store, **filters: Any) -> list[str]:
    return [task["id"] for task in (await page(store, **filters)).tasks]


async def run_to(store: Store, task_id: str, *states: TaskState, turn: int = 1) -> None:
    run = await open_run(store, task_id, turn)
    for state in states:
        await run.write(status(state))
    await run.flush()
    await settled(store)


def walked(found: list[list[Json]]) -> list[str]:
    return [task["id"] for tasks in found for task in tasks]


class TestOrder:
    async def test_by_time_then_id_both_descending(self, store: Store) -> None:
        now = store.clock.now()
        numbers = random.sample(range(999), 12)
        made = [(now + (5, 3, 9)[i % 3], f"{i:04}") for i in numbers]
        for at, task_id in random.sample(made, len(made)):
            await new_task(store, task_id, at=at)
        assert await ids(store) == [task_id for _, task_id in sorted(made, reverse=True)]
        shown = (await page(store)).tasks
        times = [task["status"]["timestamp"] for task in shown]
        assert times == [timestamp(at) for at, _ in sorted(made, reverse=True)]

    async def test_a_new_status_moves_a_task_to_the_top(self, store: Store) -> None:
        first, second = await new_task(store), await new_task(store, at=store.clock.now() + 5)
        assert await ids(store) == [second, first]
        await run_to(store, first, WORKING, WORKING)
        view = await view_of_task(store, first)
        await store.commit(
            command("ZADD", store.keys.tasks(OWNER), view.ts - 1_000, second)
        )  # else they share a moment
        await store.commit(command("HSET", store.keys.task(second), "ts", view.ts - 1_000))
        assert await ids(store) == [first, second]


class TestPages:
    @pytest.mark.parametrize("size", [1, 2, 3, 7, 12, 13, 100])
    async def test_a_walk_meets_each_task_once(self, store: Store, size: int) -> None:
        now = store.clock.now()
        for at in (0, 0, 0, 0, 1, 1, 1, 2, 3, 3, 3, 3):
            await new_task(store, at=now + at)
        found = await pages(store, size=size)
        whole = await ids(store)
        assert walked(found) == whole and len(set(whole)) == 12
        assert [len(tasks) for tasks in found[:-1]] == [size] * (len(found) - 1)
        assert found[-1]

    @pytest.mark.parametrize("size", [1, 3, 10])
    async def test_many_at_one_moment(self, store: Store, size: int) -> None:
        at = store.clock.now()
        made = await asyncio.gather(*(new_task(store, at=at) for _ in range(40)))
        assert walked(await pages(store, size=size)) == sorted(made, reverse=True)

    async def test_tasks_that_do_not_change_are_met_once_while_others_do(
        self, store: Store
    ) -> None:
        now, still, moving = store.clock.now(), set[str](), []
        for at in range(30):
            task_id = await new_task(store, at=now + at // 4)
            if at % 3:
                still.add(task_id)
            else:
                moving.append(task_id)
        seen: list[str] = []
        after: Cursor | None = None
        while True:
            found = await page(store, size=4, after=after)
            seen += [task["id"] for task in found.tasks]
            after = found.next
            if after is None:
                break
            if moving:
                await run_to(store, moving.pop(random.randrange(len(moving))), WORKING, COMPLETED)
            await new_task(store, at=now + 40_000)
        assert sorted(task for task in seen if task in still) == sorted(still)
        assert len(set(seen)) == len(seen)

    async def test_the_last_page_says_that_it_is(self, store: Store) -> None:
        for _ in range(4):
            await new_task(store)
        first = await page(store, size=2)
        assert first.next is not None
        second = await page(store, size=2, after=first.next)
        assert second.next is None and len(second.tasks) == 2
        assert (await page(store, owner="/nobody")) == Page([], None, 0)

    async def test_a_cursor_whose_task_is_gone_still_stands(self, store: Store) -> None:
        at = store.clock.now()
        made = sorted([await new_task(store, at=at) for _ in range(6)], reverse=True)
        first = await page(store, size=3)
        await store.commit(command("ZREM", store.keys.tasks(OWNER), made[2]))
        rest = await page(store, size=3, after=first.next)
        assert [task["id"] for task in rest.tasks] == made[3:]

    async def test_a_call_looks_at_so_many_and_says_where_it_was(self, store: Store) -> None:
        """A page may be short, even empty, and still have a token (§3.1.4)."""
        at = store.clock.now()
        wanted = await new_task(store, at=at)
        rows = [(word, new_id()) for word in range(at + 1, at + 1_201)]
        key = store.keys.tasks(OWNER)
        await store.commit(command("ZADD", key, *(w for row in rows for w in row)))
        found = await pages(store, size=10)
        assert len(found) > 2
        assert walked(found) == [wanted]


class TestFilters:
    async def test_each_and_both(self, store: Store) -> None:
        now = store.clock.now()
        made: dict[tuple[str, TaskState], list[str]] = {}
        for i in range(12):
            context, ends = ("left", "right")[i % 2], (SUBMITTED, WORKING, COMPLETED)[i % 3]
            task_id = await new_task(store, context=context, at=now - 100 + i)
            if ends != SUBMITTED:
                await run_to(store, task_id, *((WORKING, COMPLETED)[: i % 3]))
            made.setdefault((context, ends), []).append(task_id)

        def those(fits: Callable[[str, TaskState], bool]) -> set[str]:
            return {i for (c, s), tasks in made.items() for i in tasks if fits(c, s)}

        for context in ("left", "right", None):
            for state in (SUBMITTED, WORKING, COMPLETED, TaskState.FAILED, None):
                expected = those(lambda c, s: context in (None, c) and state in (None, s))  # noqa: B023
                for size in (1, 50):
                    found = await pages(store, size=size, context_id=context, state=state)
                    assert set(walked(found)) == expected
                    assert len(walked(found)) == len(expected)
                one = await page(store, size=1, context_id=context, state=state)
                assert one.total == len(expected), (context, state)

    async def test_since_is_inclusive(self, store: Store) -> None:
        now = store.clock.now()
        made = [await new_task(store, at=now + at) for at in range(5)]
        found = await page(store, since=now + 2)
        assert [task["id"] for task in found.tasks] == made[:1:-1]
        assert found.total == 3
        by_context = await page(store, since=now + 2, context_id=CONTEXT, state=SUBMITTED)
        assert by_context.total == 3
        assert (await page(store, since=now + 5)).total == 0

    async def test_owners_see_only_their_own(self, store: Store) -> None:
        mine, theirs = await new_task(store), await new_task(store, owner="/mallory")
        assert await ids(store) == [mine]
        assert await ids(store, context_id=CONTEXT, owner="/mallory") == [theirs]
        assert await ids(store, state=SUBMITTED, owner="/alice/") == []


class TestTotals:
    async def test_they_are_exact_through_the_states_of_a_task(self, store: Store) -> None:
        """However quickly one follows the other: each state has a moment of its own."""
        made = [await new_task(store) for _ in range(3)]
        for task_id in made:
            await run_to(store, task_id, WORKING, ASKING)
            await follow_up(store, task_id)
            await run_to(store, task_id, WORKING, WORKING, COMPLETED, turn=2)
        for state, count in ((SUBMITTED, 0), (WORKING, 0), (ASKING, 0), (COMPLETED, 3)):
            assert (await page(store, size=1, state=state)).total == count, state
        assert (await page(store, size=1)).total == 3
        assert (await page(store, size=1, context_id=CONTEXT)).total == 3

    async def test_a_task_ended_between_two_turns_counts_once(self, store: Store) -> None:
        task_id = await new_task(store)
        await run_to(store, task_id, WORKING, ASKING)
        await follow_up(store, task_id)
        await store.tasks.end(task_id, TaskState.CANCELED, force=False)
        await settled(store)
        for state in (WORKING, ASKING):
            assert (await page(store, state=state)).total == 0
        assert (await page(store, state=TaskState.CANCELED)).total == 1


class TestTooMuch:
    """What a crash leaves in the lists, and what a reader makes of it."""

    @pytest.mark.parametrize("state", [WORKING, SUBMITTED])
    async def test_a_write_under_way_is_waited_for(self, store: Store, state: TaskState) -> None:
        """Until it is there, the task is met as it is; and afterwards it is in every list."""
        task_id = await new_task(store)
        others = [await new_task(store, at=store.clock.now() + at) for at in (10, 20, 2_000)]
        view = await view_of_task(store, task_id)
        at = view.ts + 1_000
        await store.commit(store.lists.entering(OWNER, CONTEXT, state, task_id=task_id, at=at))
        for _ in range(2):
            for size in (1, 2, 10):
                for filters in ({}, {"context_id": CONTEXT}, {"state": SUBMITTED}):
                    found = walked(await pages(store, size=size, **filters))  # type: ignore[arg-type]
                    assert sorted(found) == sorted([task_id, *others])
                assert walked(await pages(store, size=size, state=WORKING)) == []
            assert task_id not in await ids(store, since=at)
        await store.commit(command("HSET", store.keys.task(task_id), "state", state, "ts", at))
        assert await ids(store, state=state, since=at) == [others[2], task_id][state == WORKING :]
        assert await ids(store, context_id=CONTEXT) == [others[2], task_id, *others[1::-1]]

    async def test_announced_long_ago_and_never_written_it_is_met_where_it_belongs(
        self, store: Store
    ) -> None:
        now = store.clock.now() - 120_000
        task_id, other = await new_task(store, at=now), await new_task(store, at=now + 10)
        entering = store.lists.entering(OWNER, CONTEXT, WORKING, task_id=task_id, at=now + 1_000)
        await store.commit(entering)
        for _ in range(2):
            assert await ids(store) == [other, task_id]
            assert await ids(store, context_id=CONTEXT) == [other, task_id]
            assert await ids(store, state=SUBMITTED) == [other, task_id]
            assert await ids(store, state=WORKING) == []
        await settled(store)
        assert (await listed(store, store.keys.tasks(OWNER)))[task_id] == now
        assert await _total_is(store, 0, state=WORKING)

    @pytest.mark.parametrize("size", [1, 2, 5])
    async def test_a_walk_over_such_meets_each_once(self, store: Store, size: int) -> None:
        now = store.clock.now() - 120_000
        made = [await new_task(store, at=now + at) for at in range(10)]
        for task_id in made[::2]:
            at = now + 1_000
            await store.commit(
                store.lists.entering(OWNER, CONTEXT, WORKING, task_id=task_id, at=at)
            )
        found = await pages(store, size=size)
        assert walked(found) == made[::-1]

    @pytest.mark.parametrize("size", [1, 2, 6])
    @pytest.mark.parametrize("bumped", [[1], [1, 2], [1, 2, 3], [1, 3], [0, 5], [0, 1, 2, 3, 4, 5]])
    async def test_neighbours_announced_and_never_written_are_met_once(
        self, store: Store, bumped: list[int], size: int
    ) -> None:
        now = store.clock.now() - 120_000
        made = [await new_task(store, at=now + 50 * at) for at in range(6)]
        for at in bumped:
            await store.commit(
                command("ZADD", store.keys.tasks(OWNER), now + 50 * at + 5, made[at])
            )
        assert walked(await pages(store, size=size)) == made[::-1]
        assert walked(await pages(store, size=size)) == made[::-1]

    async def test_a_page_does_not_read_what_its_tasks_weigh(self, store: Store) -> None:
        """Lists answer from what stands beside a task's artifacts."""
        task_id = await new_task(store)
        run = await open_run(store, task_id)
        await run.write(status(WORKING))
        await run.write(chunk("x" * 100_000))
        await run.write(status(COMPLETED))
        await run.flush()
        (answer,) = await store.reads(read_call(store.keys, task_id, artifacts=False))
        assert len(answer[14]) < 1_000
        assert answer[16] == []
        listed_task = (await page(store, artifacts=False)).tasks[0]
        assert "artifacts" not in listed_task
        assert listed_task["status"]["state"] == COMPLETED

    async def test_one_mended_wrongly_is_met_all_the_same(self, store: Store) -> None:
        """A reader mended the list between an announcement and its write."""
        made = [await new_task(store) for _ in range(3)]
        view = await view_of_task(store, made[1])
        for key in (store.keys.tasks(OWNER), store.keys.context(OWNER, CONTEXT)):
            await store.commit(command("ZADD", key, view.ts - 5_000, made[1]))
        for size in (1, 2, 5):
            await store.commit(command("ZADD", store.keys.tasks(OWNER), view.ts - 5_000, made[1]))
            assert sorted(walked(await pages(store, size=size))) == sorted(made)
            await settled(store)
            assert (await listed(store, store.keys.tasks(OWNER)))[made[1]] == view.ts

    async def test_of_another_state_it_is_struck_off(self, store: Store) -> None:
        task_id = await new_task(store)
        await run_to(store, task_id, WORKING, COMPLETED)
        view = await view_of_task(store, task_id)
        await store.commit(command("ZADD", store.keys.state(OWNER, WORKING), view.ts, task_id))
        assert await ids(store, state=WORKING) == []
        await wait_until(lambda: _total_is(store, 0, state=WORKING), what="it is struck off")
        assert await ids(store) == [task_id]

    async def test_of_a_task_not_shown_it_stays_and_is_not_seen(self, store: Store) -> None:
        task_id = await new_task(store, shown=False)
        at = store.clock.now()
        await store.commit(store.lists.entering(OWNER, CONTEXT, SUBMITTED, task_id=task_id, at=at))
        assert await ids(store) == []
        await store.tasks.show(task_id, owner=OWNER, context_id=CONTEXT, at=at)
        assert await ids(store) == [task_id]

    async def test_of_a_message_answer_it_is_struck_off(self, store: Store) -> None:
        task_id = await new_task(store, shown=False)
        at = store.clock.now()
        await store.commit(store.lists.entering(OWNER, CONTEXT, SUBMITTED, task_id=task_id, at=at))
        run = await open_run(store, task_id)
        await run.answer({"message": {"messageId": "m", "role": "ROLE_AGENT", "parts": []}})
        assert await ids(store) == []
        await wait_until(lambda: _total_is(store, 0), what="it is struck off")

    async def test_of_an_absent_task_it_is_struck_off_once_nobody_can_be_making_it(
        self, store: Store
    ) -> None:
        now, key = store.clock.now(), store.keys.tasks(OWNER)
        await store.commit(command("ZADD", key, now, "young", now - 7_200_000, "old"))
        assert await ids(store) == []
        await wait_until(lambda: _total_is(store, 1), what="the old one is struck off")
        assert await listed(store, key) == {"young": now}
        await store.commit(command("DEL", key))

    async def test_what_no_task_can_be_as_old_as_goes_with_a_later_write(
        self, store: Store
    ) -> None:
        key = store.keys.tasks(OWNER)
        ancient = store.clock.now() - store.tasks.lifetimes.longest - 1_000
        await store.commit(command("ZADD", key, ancient, "ancient"))
        assert (await page(store)).total == 0

        async def dropped() -> bool:
            await new_task(store)
            return "ancient" not in await listed(store, key)

        await wait_until(dropped, what="it is dropped")
        (left,) = await store.commit(command("PTTL", key))
        assert 0 < left <= store.tasks.lifetimes.longest

    async def test_an_announcement_that_comes_late_moves_nothing_back(self, store: Store) -> None:
        task_id = await new_task(store)
        await run_to(store, task_id, WORKING, ASKING)
        view = await view_of_task(store, task_id)
        late = store.lists.entering(OWNER, CONTEXT, ASKING, task_id=task_id, at=view.ts - 1)
        await store.commit(late)
        for key in (store.keys.tasks(OWNER), store.keys.state(OWNER, ASKING)):
            assert await listed(store, key) == {task_id: view.ts}

    async def test_a_task_that_comes_back_to_a_state_is_not_struck_off(self, store: Store) -> None:
        """The removal asked for when it left comes after it has returned."""
        task_id = await new_task(store)
        await run_to(store, task_id, WORKING, ASKING)
        left_at = (await view_of_task(store, task_id)).ts
        await follow_up(store, task_id)
        late = store.lists.leaving(OWNER, [WORKING], task_id=task_id, before=left_at)
        await store.commit(late)
        assert await ids(store, state=WORKING) == [task_id]


async def _total_is(store: Store, total: int, **filters: Any) -> bool:
    return (await page(store, **filters)).total == total


class TestTokens:
    FILTERS = ("ctx", "TASK_STATE_WORKING", "")

    def test_a_token_gives_its_cursor_back(self, store: Store) -> None:
        for cursor in (Cursor(1_767_312_245_678, new_id()), Cursor(0, "ä\n")):
            token = store.lists.token(cursor, owner=OWNER, filters=self.FILTERS)
            assert token.isascii() and " " not in token
            found = store.lists.cursor(token, owner=OWNER, filters=self.FILTERS)
            assert found == cursor

    async def test_any_gateway_reads_it(self, store: Store) -> None:
        other = await Store.open(store._settings)
        token = store.lists.token(Cursor(1, "t"), owner=OWNER, filters=self.FILTERS)
        assert other.lists.cursor(token, owner=OWNER, filters=self.FILTERS) == Cursor(1, "t")
        await other.close()

    def test_nothing_else_is_one(self, store: Store) -> None:
        lists = store.lists
        token = lists.token(Cursor(1, "t"), owner=OWNER, filters=self.FILTERS)
        flipped = [
            token[:at] + ("A" if token[at] != "A" else "B") + token[at + 1 :]
            for at in range(len(token) - 1)
        ]
        others: list[str] = ["", "x", "ä", "====", "a" * 10_000, "\ud800", token[:-3], "A" + token]
        for wrong in [*flipped, *others]:
            with pytest.raises(InvalidParams) as refused:
                lists.cursor(wrong, owner=OWNER, filters=self.FILTERS)
            assert "pageToken" in str(refused.value.data())

    def test_it_is_one_owners_and_of_one_list(self, store: Store) -> None:
        lists = store.lists
        token = lists.token(Cursor(1, "t"), owner=OWNER, filters=self.FILTERS)
        with pytest.raises(InvalidParams):
            lists.cursor(token, owner="/mallory", filters=self.FILTERS)
        for filters in (("ctx", "", ""), ("", "", ""), ("ctx", self.FILTERS[1], "5")):
            with pytest.raises(InvalidParams):
                lists.cursor(token, owner=OWNER, filters=filters)


async def test_a_page_shows_the_tasks_whole(store: Store) -> None:
    task_id = await new_task(store)
    run = await open_run(store, task_id)
    await run.write(status(WORKING, "thinking"))
    await run.write(chunk("a"))
    await run.write(chunk("b", append=True))
    await run.flush()
    (task,) = (await page(store)).tasks
    assert task == (await view_of_task(store, task_id)).task
