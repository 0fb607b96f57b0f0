"""A message arrives: what `accept` makes of it, and of the same message again."""

from __future__ import annotations

import asyncio

import pytest

from switchroom.protocol.event import decode
from switchroom.protocol.model import TaskState
from switchroom.store import Store
from switchroom.store.scripts import command
from tests.support.acts import (
    CONTEXT,
    OWNER,
    entries_of,
    follow_up,
    intact,
    listed,
    message,
    new_id,
    new_task,
    open_run,
    send_of,
    status,
    stored,
    view_of_task,
    visible,
)


async def asking(store: Store, *, text: str = "Which city?", **send: object) -> str:
    """A task that waits for its client."""
    task_id = await new_task(store, **send)
    run = await open_run(store, task_id)
    await run.write(status(TaskState.WORKING))
    await run.write(status(TaskState.INPUT_REQUIRED, text))
    await run.flush()
    return task_id


async def ttl(store: Store, key: str) -> int:
    (left,) = await store.commit(command("PTTL", key))
    return int(left)


class TestNew:
    async def test_a_message_makes_a_submitted_task(self, store: Store) -> None:
        said, at = message("hello"), store.clock.now()
        send = send_of(store, new_id(), said=said, at=at)
        accepted = await store.tasks.accept(send)
        assert (accepted.outcome, accepted.turn, accepted.state) == (
            "new",
            1,
            TaskState.SUBMITTED,
        )
        view = await view_of_task(store, send.task_id)
        assert view.position == accepted.position
        assert (view.state, view.ts, view.turn, view.done) == (TaskState.SUBMITTED, at, 1, 0)
        assert (view.running, view.shown, view.cancel) == (False, True, False)
        assert [m["messageId"] for m in view.task["history"]] == [said["messageId"]]
        (entry,) = await entries_of(store, send.task_id)
        assert (entry.seq, entry.kind, entry.state, entry.turn) == (1, "task", view.state, 1)
        assert entry.data == send.event
        await intact(store, send.task_id)

    async def test_the_reconciler_and_the_lists_know_of_it(self, store: Store) -> None:
        at = store.clock.now()
        task_id = await new_task(store, at=at)
        keys = store.keys
        for key in (keys.tasks(OWNER), keys.context(OWNER, CONTEXT), keys.state(OWNER, "x")):
            expected = {} if key.endswith(":x") else {task_id: at}
            assert await listed(store, key) == expected
        assert await listed(store, keys.state(OWNER, TaskState.SUBMITTED)) == {task_id: at}
        (due,) = (await listed(store, keys.open)).values()
        assert due >= at + store.tasks.lifetimes.look

    async def test_one_that_is_not_shown_is_in_no_list_and_seen_by_nobody(
        self, store: Store
    ) -> None:
        task_id = await new_task(store, shown=False)
        assert await listed(store, store.keys.tasks(OWNER)) == {}
        assert await visible(store, task_id, owner=OWNER) is None
        assert task_id in await listed(store, store.keys.open)
        assert (await view_of_task(store, task_id)).visible is False
        refused = await store.tasks.accept(send_of(store, task_id, new=False))
        assert refused.outcome == "absent"

    async def test_its_push_configs_live_with_it(self, store: Store) -> None:
        config = (("cfg", b'{"id":"cfg"}'), ("two", b'{"id":"two"}'))
        task_id = await new_task(store, configs=config)
        assert await store.pushes.all(task_id) == [{"id": "cfg"}, {"id": "two"}]
        for key in store.keys.of_task(task_id):
            assert 0 < await ttl(store, key) <= store.tasks.lifetimes.open

    async def test_again_it_is_known_and_writes_nothing(self, store: Store) -> None:
        send = send_of(store, new_id(), shown=False)
        first = await store.tasks.accept(send)
        before = await stored(store, send.task_id)
        again = await store.tasks.accept(send)
        assert (again.outcome, again.turn, again.position) == ("known", 1, first.position)
        assert await stored(store, send.task_id) == before
        assert len(await entries_of(store, send.task_id)) == 1

    async def test_ten_at_once_make_one_task(self, store: Store) -> None:
        send = send_of(store, new_id())
        found = await asyncio.gather(*(store.tasks.accept(send) for _ in range(10)))
        assert sorted(a.outcome for a in found) == ["known"] * 9 + ["new"]
        assert {a.position for a in found} == {found[0].position}
        await intact(store, send.task_id)

    async def test_another_claim_on_the_same_id_is_over(self, store: Store) -> None:
        task_id = await new_task(store)
        assert (await store.tasks.accept(send_of(store, task_id))).outcome == "ended"

    async def test_the_id_of_another_owner_is_absent(self, store: Store) -> None:
        task_id = await new_task(store)
        before = await stored(store, task_id)
        for new in (True, False):
            send = send_of(store, task_id, new=new, owner="/mallory", shown=False)
            assert (await store.tasks.accept(send)).outcome == "absent"
        assert await stored(store, task_id) == before

    async def test_what_goes_out_behind_it_goes_out_whatever_the_outcome(
        self, store: Store
    ) -> None:
        send = send_of(store, new_id(), new=False)
        then = [store.queue.enqueueing(send.task_id, 1)]
        assert (await store.tasks.accept(send, then=then)).outcome == "absent"
        assert await store.queue.depth() == 1


class TestFollowUp:
    async def test_a_message_to_a_waiting_task_opens_the_next_turn(self, store: Store) -> None:
        task_id, said = await asking(store), message("Paris")
        before = await view_of_task(store, task_id)
        accepted = await follow_up(store, task_id, said=said)
        assert (accepted.outcome, accepted.turn) == ("more", 2)
        assert accepted.state == TaskState.WORKING
        view = await view_of_task(store, task_id)
        assert view.position == accepted.position
        assert view.position.seq == before.position.seq + 1
        assert (view.state, view.turn, view.done) == (TaskState.WORKING, 2, 1)
        assert (view.attempt, view.running) == (0, False)
        texts = [m["parts"][0]["text"] for m in view.task["history"]]
        assert texts == ["hello", "Which city?", "Paris"]
        assert "message" not in view.task["status"]
        await intact(store, task_id)

    async def test_any_context_or_the_right_one(self, store: Store) -> None:
        task_id = await asking(store)
        wrong = await follow_up(store, task_id, context="elsewhere")
        assert wrong.outcome == "context"
        assert (await follow_up(store, task_id, context="")).outcome == "more"

    async def test_a_busy_task_takes_none(self, store: Store) -> None:
        task_id = await new_task(store)
        for state in (TaskState.SUBMITTED, TaskState.WORKING):
            refused = await follow_up(store, task_id)
            assert (refused.outcome, refused.state) == ("busy", state)
            await (await open_run(store, task_id)).write(status(TaskState.WORKING))
            await store.commit()
        await intact(store, task_id)

    async def test_an_ended_task_takes_none(self, store: Store) -> None:
        task_id = await new_task(store)
        await store.tasks.end(task_id, TaskState.FAILED, force=False)
        refused = await follow_up(store, task_id)
        assert (refused.outcome, refused.state) == ("terminal", TaskState.FAILED)

    async def test_an_absent_task_takes_none_and_is_not_made(self, store: Store) -> None:
        send = send_of(store, new_id(), new=False)
        assert (await store.tasks.accept(send)).outcome == "absent"
        assert await store.tasks.read(send.task_id) is None

    async def test_of_two_at_once_one_wins(self, store: Store) -> None:
        task_id = await asking(store)
        found = await asyncio.gather(*(follow_up(store, task_id) for _ in range(5)))
        assert sorted(a.outcome for a in found) == ["busy"] * 4 + ["more"]
        await intact(store, task_id)

    async def test_again_it_is_one_message_and_one_turn(self, store: Store) -> None:
        task_id, said = await asking(store), message("Paris")
        first = await follow_up(store, task_id, said=said, digest="d2")
        again = await follow_up(store, task_id, said=said, digest="d2")
        assert (again.outcome, again.turn, again.position) == ("known", 2, first.position)
        await intact(store, task_id)

    async def test_it_may_bring_push_configs(self, store: Store) -> None:
        task_id = await asking(store, configs=[("a", b'{"id":"a"}')])
        await follow_up(store, task_id, configs=[("b", b'{"id":"b"}')])
        assert [c["id"] for c in await store.pushes.all(task_id)] == ["a", "b"]

    async def test_a_snapshot_of_the_turn_before_does_not_hide_it(self, store: Store) -> None:
        task_id = await asking(store)
        await store.commit(
            command("HSET", store.keys.task(task_id), "snap", b'{"id":"old"}', "snap_seq", "1")
        )
        await follow_up(store, task_id, said=message("Paris"))
        assert {"snap", "snap_seq"}.isdisjoint(await stored(store, task_id))


class TestRenewable:
    """A claim from a bare messageId is over once its caller provably has the answer."""

    @pytest.mark.parametrize("renewable", [True, False])
    async def test_when_the_task_has_gone_on(self, store: Store, renewable: bool) -> None:
        task_id = await asking(store, digest="d1", renewable=renewable)
        send = send_of(store, task_id, digest="d1", renewable=renewable)
        assert (await store.tasks.accept(send)).outcome == "known"
        await follow_up(store, task_id)
        over = "ended" if renewable else "known"
        assert (await store.tasks.accept(send)).outcome == over

    @pytest.mark.parametrize("renewable", [True, False])
    async def test_when_its_cancel_was_asked_for(self, store: Store, renewable: bool) -> None:
        task_id = await new_task(store, digest="d1", renewable=renewable)
        await store.tasks.request_cancel(task_id, owner=OWNER)
        send = send_of(store, task_id, digest="d1", renewable=renewable)
        over = "ended" if renewable else "known"
        assert (await store.tasks.accept(send)).outcome == over

    async def test_a_follow_up_used_up_may_be_said_again(self, store: Store) -> None:
        task_id = await asking(store)
        await follow_up(store, task_id, digest="yes")
        for turn in (2, 3):
            run = await open_run(store, task_id, turn)
            await run.write(status(TaskState.INPUT_REQUIRED, "More?"))
            await run.flush()
            if turn == 2:
                assert (await follow_up(store, task_id, digest="other")).turn == 3
        said_again = await follow_up(store, task_id, digest="yes")
        assert (said_again.outcome, said_again.turn) == ("more", 4)

    async def test_a_key_never_ends_early(self, store: Store) -> None:
        task_id = await asking(store)
        await follow_up(store, task_id, digest="key", renewable=False)
        run = await open_run(store, task_id, 2)
        await run.write(status(TaskState.COMPLETED))
        await run.flush()
        again = await follow_up(store, task_id, digest="key", renewable=False)
        assert (again.outcome, again.turn) == ("known", 2)


async def test_the_input_of_the_turn_is_kept_for_the_worker(store: Store) -> None:
    task_id = await asking(store)
    await follow_up(store, task_id, said=message("Paris"))
    kept = decode((await stored(store, task_id))["in"])
    assert kept["message"]["parts"] == [{"text": "Paris"}]
