"""What callers and tenants may use: counted once for all gateways, as a whole or not at all."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from switchroom.protocol.model import TaskState
from switchroom.store import Store
from switchroom.store.keys import owner_key
from switchroom.store.limits import Admission, CallerLimits, Limits
from switchroom.store.scripts import command
from tests.support.acts import new_id, new_task, settled

ALICE, BOB = owner_key("acme", "alice"), owner_key("acme", "bob")
STRANGER = owner_key("other", "alice")


def limited(store: Store, **limits: Any) -> CallerLimits:
    return CallerLimits(
        store.commit,
        store.reads,
        Limits(**limits),
        keys=store.keys,
        clock=store.clock,
        lives=store.tasks.lifetimes.open,
    )


async def ask(store: Store, limits: CallerLimits, owner: str = ALICE, **what: str) -> Admission:
    (answer,) = await store.commit(limits.admitting(owner, **what))
    return limits.admission(answer)


async def send(store: Store, limits: CallerLimits, owner: str = ALICE) -> str:
    return (await ask(store, limits, owner, task_id=new_id())).outcome


async def pass_time(store: Store, key: str, ms: int) -> None:
    """The bucket was touched so long before."""
    (at,) = await store.commit(command("HGET", key, "at"))
    await store.commit(command("HSET", key, "at", int(at) - ms))


class TestRate:
    async def test_a_burst_then_one_by_one(self, store: Store) -> None:
        limits = limited(store, send_rate=2, send_burst=3)
        told = [await ask(store, limits, task_id=new_id()) for _ in range(4)]
        assert [each.outcome for each in told] == ["ok", "ok", "ok", "rate"]
        assert [each.limit for each in told] == [3, 3, 3, 3]
        assert [each.remaining for each in told] == [2, 1, 0, 0]
        assert 0 < told[3].wait <= 0.5
        bucket, _ = store.keys.send_buckets(ALICE)
        await pass_time(store, bucket, 500)
        assert await send(store, limits) == "ok"
        assert await send(store, limits) == "rate"
        await pass_time(store, bucket, 3_600_000)
        assert [await send(store, limits) for _ in range(4)] == ["ok", "ok", "ok", "rate"]

    async def test_each_caller_has_its_own(self, store: Store) -> None:
        limits = limited(store, send_rate=1, send_burst=1)
        for owner in (ALICE, BOB, STRANGER):
            assert await send(store, limits, owner) == "ok"
            assert await send(store, limits, owner) == "rate"

    async def test_callers_of_a_tenant_share_what_the_tenant_has(self, store: Store) -> None:
        limits = limited(store, send_rate=1, send_burst=2, tenant_send_rate=1, tenant_send_burst=3)
        told = [await send(store, limits, owner) for owner in (ALICE, ALICE, BOB, BOB, STRANGER)]
        assert told == ["ok", "ok", "ok", "rate", "ok"]

    async def test_who_is_refused_has_used_nothing_up(self, store: Store) -> None:
        limits = limited(store, send_rate=1, send_burst=1, tenant_send_rate=1, tenant_send_burst=2)
        assert [await send(store, limits) for _ in range(3)] == ["ok", "rate", "rate"]
        assert await send(store, limits, BOB) == "ok"

    async def test_many_at_once_get_no_more_than_there_is(self, store: Store) -> None:
        limits = limited(store, send_rate=0.001, send_burst=10)
        told = await asyncio.gather(*(send(store, limits) for _ in range(50)))
        assert told.count("ok") == 10

    async def test_a_stream_alone_is_no_send(self, store: Store) -> None:
        limits = limited(store, send_rate=1, send_burst=1)
        assert [(await ask(store, limits, stream=str(n))).outcome for n in range(3)] == ["ok"] * 3


class TestTasks:
    async def test_up_to_the_limit_of_caller_and_tenant(self, store: Store) -> None:
        limits = limited(store, tasks=2, tenant_tasks=3)
        told = [await send(store, limits, owner) for owner in (ALICE, ALICE, ALICE, BOB, BOB)]
        assert told == ["ok", "ok", "tasks", "ok", "tasks"]
        assert await send(store, limits, STRANGER) == "ok"

    async def test_one_that_has_landed_makes_room(self, store: Store) -> None:
        limits = limited(store, tasks=1, tenant_tasks=1)
        task_id = new_id()
        assert (await ask(store, limits, task_id=task_id)).counted
        limits.landed(ALICE, task_id)
        await settled(store)
        assert await send(store, limits, BOB) == "ok"

    async def test_a_task_counts_once(self, store: Store) -> None:
        limits = limited(store, tasks=1)
        task_id = new_id()
        first, again = [await ask(store, limits, task_id=task_id) for _ in range(2)]
        assert (first.outcome, first.counted) == ("ok", True)
        assert (again.outcome, again.counted) == ("ok", False)

    async def test_a_look_strikes_off_what_nobody_did(self, store: Store) -> None:
        """Whoever ended them died before it could."""
        limits = limited(store, tasks=3)
        waiting, ended, absent = await new_task(store), await new_task(store), new_id()
        await store.tasks.end(ended, TaskState.CANCELED, force=False)
        for task_id in (waiting, ended, absent):
            assert (await ask(store, limits, task_id=task_id)).outcome == "ok"
        assert await self.left(store, limits) == {waiting, absent}, "its accept may be on its way"
        own, _ = store.keys.tasks_in_flight(ALICE)
        await store.commit(command("ZINCRBY", own, -60_001, absent))
        assert await self.left(store, limits) == {waiting}

    async def left(self, store: Store, limits: CallerLimits) -> set[str]:
        """What is counted of alice after a look."""
        await limits.sweep(ALICE)
        own, all_of_it = store.keys.tasks_in_flight(ALICE)
        left, of_tenant = await store.reads(
            command("ZRANGE", own, 0, -1), command("ZRANGE", all_of_it, 0, -1)
        )
        assert set(left) == set(of_tenant)
        return {each.decode() for each in left}


class TestStreams:
    async def test_up_to_the_limit_and_again_when_one_has_ended(self, store: Store) -> None:
        limits = limited(store, streams=2)
        told = [(await ask(store, limits, stream=name)).outcome for name in "abc"]
        assert told == ["ok", "ok", "streams"]
        limits.closed(ALICE, "a")
        await settled(store)
        assert (await ask(store, limits, stream="c")).outcome == "ok"
        assert (await ask(store, limits, BOB, stream="d")).outcome == "ok"

    async def test_of_a_gateway_that_has_died_are_not_counted_for_long(self, store: Store) -> None:
        limits, key = limited(store, streams=1), store.keys.streams(ALICE)
        assert (await ask(store, limits, stream="dead")).outcome == "ok"
        assert (await ask(store, limits, stream="new")).outcome == "streams"
        await store.commit(command("ZADD", key, 1, "dead"))
        assert (await ask(store, limits, stream="new")).outcome == "ok"

    async def test_that_are_renewed_go_on(self, store: Store) -> None:
        limits, key = limited(store, streams=1), store.keys.streams(ALICE)
        await ask(store, limits, stream="open")
        await store.commit(command("ZADD", key, store.clock.now() + 5, "open"))
        await limits.renew([(ALICE, "open")])
        (score,) = await store.reads(command("ZSCORE", key, "open"))
        assert float(score) > store.clock.now() + 50_000
        await limits.renew([])


async def test_a_send_that_streams_gets_both_or_none(store: Store) -> None:
    limits = limited(store, send_rate=1, send_burst=2, streams=1, tasks=5)
    first = await ask(store, limits, task_id=new_id(), stream="a")
    assert first.outcome == "ok"
    assert (await ask(store, limits, task_id=new_id(), stream="b")).outcome == "streams"
    own, _ = store.keys.tasks_in_flight(ALICE)
    assert (await store.reads(command("ZCARD", own)))[0] == 1
    assert (await ask(store, limits, task_id=new_id())).outcome == "ok", "no token was used up"


async def test_without_a_limit_nothing_is_counted(store: Store) -> None:
    limits = limited(store)
    assert not (limits.limits.of_sends or limits.limits.of_tasks)
    assert (await ask(store, limits, task_id=new_id(), stream="a")).outcome == "ok"
    (keys,) = await store.reads(command("KEYS", "*:used:*"))
    assert keys == []


@pytest.mark.parametrize("kind", ["sends", "tasks", "streams"])
def test_names_of_callers_never_meet(store: Store, kind: str) -> None:
    keys = store.keys
    made = {"sends": keys.send_buckets, "tasks": keys.tasks_in_flight}
    owners = [owner_key(*pair) for pair in (("a", "b:c"), ("a:b", "c"), ("", "a"), ("a", ""))]
    if kind == "streams":
        assert len({keys.streams(owner) for owner in owners}) == len(owners)
    else:
        own = [made[kind](owner)[0] for owner in owners]
        assert len({*own, *(made[kind](owner)[1] for owner in owners)}) == len(owners) + 3
