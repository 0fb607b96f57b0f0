"""The queue: each turn once, in order, under a lease. Its scripts, and what `RunQueue` makes of
them.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator

import pytest
from arq.constants import in_progress_key_prefix, job_key_prefix

from switchroom.settings import Settings
from switchroom.store import Store
from switchroom.store.keys import QueueKeys
from switchroom.store.scripts import SCRIPTS, command
from tests.support.acts import listed, new_id

LEASE = 60_000


def job_id(task_id: str, turn: int = 1) -> str:
    return f"run:{task_id}:{turn}"


async def take(store: Store, *, limit: int = 10, token: str = "me") -> list[str]:
    """The ids of the tasks whose jobs a worker gets."""
    keys = store.keys.queue
    (answer,) = await store.queue_commit(
        SCRIPTS.take(
            [keys.queue, keys.running],
            *(LEASE, limit, token, job_key_prefix, in_progress_key_prefix),
        )
    )
    found = answer[2]
    return [raw.decode().split(":")[1] for raw in found[::3]]


async def renew(
    store: Store, *task_ids: str, token: str = "me", ends: int | None = None
) -> list[str]:
    """ends: of the leases, as their owner knows it; by itself what it is."""
    keys, running = store.keys.queue, await listed(store, store.keys.queue.running)
    (answer,) = await store.queue_commit(
        SCRIPTS.renew(
            [keys.queue, keys.running],
            *(LEASE, token, in_progress_key_prefix, job_key_prefix),
            *(w for i in map(job_id, task_ids) for w in (i, ends or running.get(i, 0))),
        )
    )
    return [word.decode() for word in answer[2]]


def keys_of(store: Store, task_id: str) -> list[str]:
    keys, job = store.keys.queue, job_id(task_id)
    return [keys.queue, keys.running, job_key_prefix + job, in_progress_key_prefix + job]


async def finish(store: Store, task_id: str, *, token: str = "me", delay: int | str = "") -> str:
    (answer,) = await store.queue_commit(
        SCRIPTS.finish(
            keys_of(store, task_id), job_id(task_id), token, delay, store.keys.queue.bell
        )
    )
    outcome: str = answer[0].decode()
    return outcome


async def lapse(store: Store, task_id: str) -> None:
    """The lease of whoever has it is over."""
    keys, job = store.keys.queue, job_id(task_id)
    await store.queue_commit(
        command("ZADD", keys.queue, "XX", 1, job),
        command("ZADD", keys.running, "XX", 1, job),
        command("DEL", in_progress_key_prefix + job),
    )


async def all_keys(store: Store) -> set[str]:
    """Every key of the queue."""
    (names,) = await store.queue_commit(command("KEYS", "*"))
    return {n.decode() for n in names if b"queue" in n or n.startswith(b"arq:")}


class TestEnqueue:
    async def test_a_turn_is_queued_once(self, store: Store) -> None:
        task_id = new_id()
        await asyncio.gather(*(store.queue.enqueue(task_id, 1) for _ in range(10)))
        assert await store.queue.depth() == 1
        await store.queue.enqueue(task_id, 2)
        assert await store.queue.depth() == 2
        assert await take(store) == [task_id, task_id]
        await store.queue.enqueue(task_id, 1)
        assert await take(store) == []
        assert await store.queue.depth() == 2

    async def test_a_job_is_json_and_holds_only_ids(self, store: Store) -> None:
        task_id = new_id()
        await store.queue.enqueue(task_id, 3)
        key = job_key_prefix + job_id(task_id, 3)
        blob, left = await store.queue_commit(command("GET", key), command("PTTL", key))
        job = json.loads(blob)
        assert (job["f"], job["a"], job["k"]) == ("run", [task_id, 3], {})
        assert 0 < left <= 30 * 24 * 3_600_000

    async def test_one_that_a_worker_has_had_comes_first(self, store: Store) -> None:
        first, lost = new_id(), new_id()
        await store.queue.enqueue(first, 1)
        await store.queue.enqueue(lost, 1, begun=True)
        assert await take(store, limit=1) == [lost]
        assert await take(store) == [first]

    async def test_the_bell_rings(self, store: Store) -> None:
        rung = asyncio.Event()
        await store.queue_subscriber.subscribe(store.keys.queue.bell, lambda _: rung.set())
        await store.queue.enqueue(new_id(), 1)
        await rung.wait()
        store.queue_subscriber.unsubscribe(store.keys.queue.bell)

    async def test_what_the_queue_knows(self, store: Store) -> None:
        waiting, running, lost, unknown = (new_id() for _ in range(4))
        await store.queue.enqueue(running, 1)
        await take(store)
        await store.queue.enqueue(waiting, 1)
        await store.queue.enqueue(lost, 1)
        await store.queue_commit(command("DEL", job_key_prefix + job_id(lost)))
        asked = [(waiting, 1), (running, 1), (lost, 1), (unknown, 1), (waiting, 2)]
        assert await store.queue.is_queued(asked) == [True, True, False, False, False]
        assert await store.queue.is_queued([]) == []

    async def test_one_whose_job_was_lost_is_queued_again(self, store: Store) -> None:
        task_id = new_id()
        await store.queue.enqueue(task_id, 1)
        await store.queue_commit(command("DEL", job_key_prefix + job_id(task_id)))
        await store.queue.enqueue(task_id, 1)
        assert await take(store) == [task_id]

    async def test_depth_counts_waiting_and_running(self, store: Store) -> None:
        for _ in range(5):
            await store.queue.enqueue(new_id(), 1)
        taken = await take(store, limit=2)
        assert await store.queue.depth() == 5
        await finish(store, taken[0])
        assert await store.queue.depth() == 4


class TestBacklog:
    async def test_it_counts_what_is_due_and_says_since_when(self, store: Store) -> None:
        assert await store.queue.backlog() == (0, 0)
        waiting = [new_id() for _ in range(3)]
        for task_id in waiting:
            await store.queue.enqueue(task_id, 1)
        first = store.queue_clock.now() - 40_000
        await store.queue_commit(
            command("ZADD", store.keys.queue.queue, "XX", first, job_id(waiting[1]))
        )
        backlog = await store.queue.backlog()
        assert backlog.runs == 3 and 40_000 <= backlog.oldest < 50_000

    async def test_what_runs_or_is_not_due_yet_does_not_wait(self, store: Store) -> None:
        running, later, lapsed = (new_id() for _ in range(3))
        for task_id in (running, later, lapsed):
            await store.queue.enqueue(task_id, 1)
        await take(store)
        assert await store.queue.backlog() == (0, 0)
        await finish(store, later, delay=50_000)
        await lapse(store, lapsed)
        assert (await store.queue.backlog()).runs == 1


class TestTake:
    async def test_lapsed_and_released_come_before_waiting(self, store: Store) -> None:
        started = [new_id() for _ in range(3)]
        for task_id in started:
            await store.queue.enqueue(task_id, 1)
        assert set(await take(store)) == set(started)  # within one ms any may be first
        waiting = [new_id() for _ in range(4)]
        keys = store.keys.queue
        for at, task_id in enumerate(waiting):
            await store.queue.enqueue(task_id, 1)
            await store.queue_commit(command("ZADD", keys.queue, 1_000 + at, job_id(task_id)))
        assert await finish(store, started[1], delay=0) == "ok"
        await lapse(store, started[2])
        got = await take(store, limit=3, token="other")
        assert got == [started[2], started[1], waiting[0]]
        assert await take(store) == waiting[1:]
        assert await take(store) == []

    async def test_the_score_is_the_end_of_the_lease(self, store: Store) -> None:
        task_id = new_id()
        await store.queue.enqueue(task_id, 1)
        before = store.queue_clock.now()
        await take(store)
        keys = store.keys.queue
        for key in (keys.queue, keys.running):
            (score,) = (await listed(store, key)).values()
            assert before + LEASE - 1_000 < score <= store.queue_clock.now() + LEASE + 1_000
        (held,) = await store.queue_commit(command("GET", in_progress_key_prefix + job_id(task_id)))
        assert held == b"me"

    async def test_in_the_order_in_which_they_came(self, store: Store) -> None:
        """Also within a millisecond, and whatever their ids."""
        came = [f"t{n}" for n in range(9, 0, -1)]
        await store.queue_commit(*(store.queue.enqueueing(task_id, 1) for task_id in came))
        assert await take(store) == came

    async def test_no_more_than_asked_for(self, store: Store) -> None:
        made = {new_id() for _ in range(7)}
        for task_id in made:
            await store.queue.enqueue(task_id, 1)
        got = [await take(store, limit=3) for _ in range(4)]
        assert [len(some) for some in got] == [3, 3, 1, 0]
        assert {task_id for some in got for task_id in some} == made

    async def test_an_id_without_a_job_is_dropped(self, store: Store) -> None:
        task_id = new_id()
        await store.queue.enqueue(task_id, 1)
        await store.queue_commit(command("DEL", job_key_prefix + job_id(task_id)))
        assert await take(store) == []
        assert await all_keys(store) == set()


class TestRenew:
    async def test_each_outcome(self, store: Store) -> None:
        names = "held lapsed theirs released finished emptied jobless".split()
        ids = {name: new_id() for name in names}
        for task_id in ids.values():
            await store.queue.enqueue(task_id, 1)
        await take(store)
        await lapse(store, ids["lapsed"])
        await lapse(store, ids["theirs"])
        (other,) = await take(store, limit=1, token="other")
        if other != ids["theirs"]:
            ids["lapsed"], ids["theirs"] = ids["theirs"], ids["lapsed"]
        await finish(store, ids["finished"])
        await store.queue_commit(
            command("ZREM", store.keys.queue.queue, job_id(ids["emptied"])),
            command("DEL", job_key_prefix + job_id(ids["jobless"])),
        )
        outcome = dict(zip(ids, await renew(store, *ids.values()), strict=True))
        assert outcome == {
            "held": "held",
            "lapsed": "held",  # nobody was faster
            "theirs": "lost",
            "released": "held",
            "finished": "gone",
            "emptied": "gone",
            "jobless": "gone",
        }

    async def test_one_that_another_took_and_gave_back_is_lost(self, store: Store) -> None:
        """Or who slept past its lease would take the next attempt's job along when it ends."""
        task_id = new_id()
        await store.queue.enqueue(task_id, 1)
        await take(store)
        await lapse(store, task_id)
        (ended,) = (await listed(store, store.keys.queue.running)).values()
        assert await take(store, token="other") == [task_id]
        await finish(store, task_id, token="other", delay=5_000)
        assert await renew(store, task_id, ends=ended) == ["lost"]

    async def test_one_that_was_queued_anew_and_nobody_has_is_gone(self, store: Store) -> None:
        """The queue has lost its memory, and a repeated send was faster than the renewal."""
        task_id = new_id()
        await store.queue.enqueue(task_id, 1)
        await take(store)
        (ends,) = (await listed(store, store.keys.queue.running)).values()
        keys = store.keys.queue
        job = job_id(task_id)
        await store.queue_commit(
            command("DEL", keys.queue, keys.running),
            command("DEL", job_key_prefix + job, in_progress_key_prefix + job),
        )
        await store.queue.enqueue(task_id, 1)
        assert await renew(store, task_id, ends=ends) == ["gone"]

    async def test_the_lease_goes_on(self, store: Store) -> None:
        task_id = new_id()
        await store.queue.enqueue(task_id, 1)
        await take(store)
        keys, job = store.keys.queue, job_id(task_id)
        await store.queue_commit(command("ZADD", keys.queue, 5, job))
        assert await renew(store, task_id) == ["held"]
        for key in (keys.queue, keys.running):
            assert (await listed(store, key))[job] > store.queue_clock.now() + LEASE // 2
        (left,) = await store.queue_commit(command("PTTL", in_progress_key_prefix + job))
        assert LEASE - 10_000 < left <= LEASE

    async def test_nobody_else_gets_it_meanwhile(self, store: Store) -> None:
        task_id = new_id()
        await store.queue.enqueue(task_id, 1)
        await take(store)
        assert await take(store, token="other") == []


class TestFinish:
    async def test_done_leaves_nothing(self, store: Store) -> None:
        task_id = new_id()
        await store.queue.enqueue(task_id, 1)
        await take(store)
        assert await finish(store, task_id) == "ok"
        assert await all_keys(store) == set()
        assert await finish(store, task_id) == "lost"

    async def test_by_one_who_lost_it_it_changes_nothing(self, store: Store) -> None:
        task_id = new_id()
        await store.queue.enqueue(task_id, 1)
        await take(store)
        await lapse(store, task_id)
        assert await finish(store, task_id) == "lost"
        assert await take(store, token="other") == [task_id]
        for delay in ("", 0):
            assert await finish(store, task_id, delay=delay) == "lost"
        assert await store.queue.is_queued([(task_id, 1)]) == [True]
        assert await finish(store, task_id, token="other") == "ok"

    async def test_put_back_it_is_due_when_it_says(self, store: Store) -> None:
        task_id = new_id()
        await store.queue.enqueue(task_id, 1)
        await take(store)
        assert await finish(store, task_id, delay=50_000) == "ok"
        assert await take(store) == []
        (due,) = (await listed(store, store.keys.queue.running)).values()
        assert due > store.queue_clock.now() + 40_000
        await lapse(store, task_id)
        assert await take(store) == [task_id]


class TestPutBack:
    async def put_back(self, store: Store, task_id: str, token: str = "me") -> str:
        blob = json.dumps({"a": [task_id, 1]}).encode()
        (answer,) = await store.queue_commit(
            SCRIPTS.putback(keys_of(store, task_id), job_id(task_id), blob, 60_000, LEASE, token)
        )
        outcome: str = answer[0].decode()
        return outcome

    async def test_a_forgotten_job_is_written_anew_under_its_lease(self, store: Store) -> None:
        task_id = new_id()
        assert await self.put_back(store, task_id) == "held"
        assert await self.put_back(store, task_id) == "held"
        assert await renew(store, task_id) == ["held"]
        assert await take(store, token="other") == []
        assert await store.queue.depth() == 1
        await lapse(store, task_id)
        assert await take(store, token="other") == [task_id]

    async def test_unless_another_has_it_by_now(self, store: Store) -> None:
        task_id = new_id()
        await store.queue.enqueue(task_id, 1)
        await take(store, token="other")
        assert await self.put_back(store, task_id) == "lost"
        assert await renew(store, task_id, token="other") == ["held"]

    async def test_one_that_waits_again_is_ours(self, store: Store) -> None:
        """The reconciler was faster than we, but no worker."""
        task_id = new_id()
        await store.queue.enqueue(task_id, 1)
        assert await self.put_back(store, task_id) == "held"
        assert await take(store, token="other") == []


class TestNames:
    @pytest.fixture
    async def other(self, settings: Settings) -> AsyncIterator[Store]:
        """The queue of another agent on the same Redis."""
        store = await Store.open(settings.model_copy(update={"queue": "other"}))
        yield store
        await store.close()

    async def test_two_queues_do_not_mix(self, store: Store, other: Store) -> None:
        mine, theirs = new_id(), new_id()
        await store.queue.enqueue(mine, 1)
        await other.queue.enqueue(theirs, 1)
        assert (await store.queue.depth(), await other.queue.depth()) == (1, 1)
        assert await store.queue.is_queued([(theirs, 1)]) == [False]
        assert await take(store) == [mine]
        assert await take(other) == [theirs]
        await finish(store, mine)
        await finish(other, theirs)

    async def test_nor_do_their_bells(self, store: Store, other: Store) -> None:
        rung: list[str] = []
        for queue in (store, other):
            bell = queue.keys.queue.bell
            await queue.queue_subscriber.subscribe(
                bell,
                lambda _, bell=bell: rung.append(bell),  # type: ignore[misc]
            )
        await other.queue.enqueue(new_id(), 1)
        await other.queue_subscriber.subscribe("fence", lambda _: None)
        await store.queue_subscriber.subscribe("fence", lambda _: None)
        assert set(rung) <= {other.keys.queue.bell}
        await other.queue_commit(command("DEL", other.keys.queue.queue))

    def test_their_keys(self) -> None:
        a, b = QueueKeys("p:queue:a"), QueueKeys("p:queue:b")
        names = [k for q in (a, b) for k in (q.queue, q.running, q.bell, q.health("w"))]
        assert len(set(names)) == 8


async def test_a_queue_on_another_redis_has_a_lane_of_its_own(store: Store) -> None:
    there = f"fake://{uuid.uuid4().hex}"
    apart = await Store.open(store._settings.model_copy(update={"queue_url": there}))
    assert (store.queue.with_store, apart.queue.with_store) == (True, False)
    assert apart.queue_commit is not apart.commit
    assert apart.queue_subscriber is not apart.subscriber
    task_id = new_id()
    await apart.queue.enqueue(task_id, 1)
    assert (await store.queue.depth(), await apart.queue.depth()) == (0, 1)
    assert await take(apart) == [task_id]
    await apart.close()
