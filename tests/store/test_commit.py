"""The lane of commands: together, in order, and never twice."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from redis.exceptions import (
    ConnectionError,
    OutOfMemoryError,
    ReadOnlyError,
    ResponseError,
    TimeoutError,
)

from switchroom.store import Store
from switchroom.store.commit import Clock, GroupCommit, StoreUnavailable, _as_error
from switchroom.store.scripts import SCRIPTS, Call, command
from tests.support.faults import Cut, How
from tests.support.wait import wait_until

KEY = "switchroom:test"

on_a_real_server = pytest.mark.parametrize(
    "store_url",
    [pytest.param("redis-server", marks=pytest.mark.requires("redis-server"))],
    indirect=True,
)


@pytest.fixture(autouse=True)
async def no_key_is_left(store: Store) -> Any:
    yield
    await store.commit(command("DEL", KEY))


def add(word: str) -> Call:
    return command("RPUSH", KEY, word)


async def written(store: Store) -> list[bytes]:
    found: list[bytes] = (await store.reads(command("LRANGE", KEY, 0, -1)))[0]
    return found


class TestTogether:
    async def test_answers_come_in_the_order_of_the_calls(self, store: Store) -> None:
        assert await store.commit(add("a"), add("b"), command("LLEN", KEY)) == [1, 2, 2]
        assert await store.commit() == []

    async def test_what_is_asked_meanwhile_goes_out_together(self, store: Store) -> None:
        before = store.commit.round_trips
        asked = [asyncio.create_task(store.commit(add(str(n)))) for n in range(100)]
        answers = [await task for task in asked]
        assert answers == [[n + 1] for n in range(100)]
        assert await written(store) == [str(n).encode() for n in range(100)]
        assert store.commit.round_trips - before <= 2

    async def test_a_later_one_is_never_applied_before_an_earlier(self, store: Store) -> None:
        async def one(n: int) -> None:
            for part in "ab":
                await store.commit(add(f"{n}{part}"))

        await asyncio.gather(*(one(n) for n in range(50)))
        found = [word.decode() for word in await written(store)]
        assert [word for word in found if word.endswith("a")] == [f"{n}a" for n in range(50)]

    async def test_much_goes_out_in_parts(self, store: Store) -> None:
        """A round trip stays short, whatever gathers."""
        sizes: list[int] = []
        send = store.commit._pipeline

        async def pipeline(calls: Sequence[Call]) -> list[Any]:
            sizes.append(len(calls))
            return await send(calls)

        store.commit._pipeline = pipeline  # type: ignore[method-assign]
        heavy = Call(("SET", KEY, b"x", "PX", 60_000), None, 400_000)
        await asyncio.gather(*(store.commit(heavy) for _ in range(20)))
        store.commit._pipeline = send  # type: ignore[method-assign]
        assert sum(sizes) == 20 and max(sizes) < 10

    async def test_two_lanes_do_not_wait_for_each_other(self, store: Store) -> None:
        held = asyncio.Event()
        send = store.commit._pipeline

        async def wait(calls: Sequence[Call]) -> list[Any]:
            await held.wait()
            return await send(calls)

        store.commit._pipeline = wait  # type: ignore[method-assign]
        slow = store.commit.ask(add("a"))
        assert await store.reads(command("LLEN", KEY)) == [0]
        held.set()
        assert await slow == [1]
        store.commit._pipeline = send  # type: ignore[method-assign]


class TestRefused:
    async def test_only_who_asked_hears_of_it(self, store: Store) -> None:
        good, wrong, after = (
            store.commit.ask(add("a")),
            store.commit.ask(command("HGET", KEY, "f"), add("b")),
            store.commit.ask(add("c")),
        )
        assert await good == [1]
        with pytest.raises(ResponseError, match="WRONGTYPE"):
            await wrong
        assert await after == [3]

    async def test_a_script_that_fails_is_an_error_of_ours(self, store: Store) -> None:
        await store.commit(add("a"))
        with pytest.raises(ResponseError):
            await store.commit(SCRIPTS.show([KEY]))

    @pytest.mark.parametrize(
        "refused",
        [
            ReadOnlyError("You can't write against a read only replica."),
            OutOfMemoryError("command not allowed when used memory > 'maxmemory'."),
            ResponseError("OOM command not allowed when used memory > 'maxmemory'. script: 1f"),
            ResponseError("Error running script: -READONLY You can't write against a read only"),
            ResponseError("MISCONF Redis is configured to save RDB snapshots"),
            ResponseError("BUSY Redis is busy running a script."),
        ],
    )
    def test_not_now_is_unavailable(self, refused: Exception) -> None:
        error = _as_error(refused)
        assert isinstance(error, StoreUnavailable)
        assert error.__cause__ is refused
        assert error.retry_after

    @on_a_real_server
    async def test_a_full_server_is_unavailable_and_then_well_again(self, store: Store) -> None:
        await store.reads(command("CONFIG", "SET", "maxmemory", "1mb"))
        with pytest.raises(StoreUnavailable):
            await store.commit(add("x"))
        with pytest.raises(StoreUnavailable):
            await store.queue.enqueue("t", 1)
        await store.reads(command("CONFIG", "SET", "maxmemory", "0"))
        assert await store.commit(add("x")) == [1]


class TestAway:
    @pytest.mark.parametrize("how", ["before", "between", "lost"])
    async def test_nothing_is_sent_twice_on_our_own_account(self, store: Store, how: How) -> None:
        cut = Cut(store.commit, at=1, how=how)
        with pytest.raises(StoreUnavailable):
            await store.commit(add("a"), add("b"))
        cut.heal()
        applied = {"before": [], "between": [b"a"], "lost": [b"a", b"b"]}[how]
        assert await written(store) == applied
        assert await store.commit(add("c")) == [len(applied) + 1]

    @pytest.mark.parametrize("error", [ConnectionError("x"), TimeoutError("x"), OSError(5, "x")])
    async def test_whatever_way_it_is_away(self, store: Store, error: Exception) -> None:
        send = store.commit._pipeline

        async def fail(calls: Sequence[Call]) -> list[Any]:
            raise error

        store.commit._pipeline = fail  # type: ignore[method-assign]
        with pytest.raises(StoreUnavailable) as refused:
            await store.commit(add("a"))
        assert refused.value.__cause__ is error
        store.commit._pipeline = send  # type: ignore[method-assign]

    @on_a_real_server
    async def test_an_answer_that_does_not_come_is_not_waited_for(self, store: Store) -> None:
        """And what comes too late is not taken for the next one's."""
        await store.commit(command("DEL", KEY))
        store.commit._patience = 0.05
        await store.reads(command("CLIENT", "PAUSE", 60_000, "WRITE"))
        with pytest.raises(StoreUnavailable):
            await store.commit(add("a"))
        await store.reads(command("CLIENT", "UNPAUSE"))
        store.commit._patience = 5.0
        assert await store.commit(command("ECHO", "b"), command("ECHO", "c")) == [b"b", b"c"]

    @on_a_real_server
    async def test_a_connection_closed_while_idle_is_no_reason_to_refuse(
        self, store: Store
    ) -> None:
        await store.commit(add("a"))
        await store.reads(command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"))
        connection: Any = store.commit._connection
        await wait_until(
            lambda: connection._reader is None or connection._reader.at_eof(), what="it is closed"
        )
        assert await store.commit(add("b")) == [2]

    async def test_who_stops_waiting_harms_nobody(self, store: Store) -> None:
        waiting = asyncio.create_task(store.commit(add("a")))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        assert await store.commit(command("ECHO", "b")) == [b"b"]
        assert await written(store) == [b"a"]

    async def test_what_is_sent_soon_fails_in_silence(self, store: Store) -> None:
        cut = Cut(store.commit, at=1, how="before")
        store.commit.soon(add("a"))
        store.commit.soon(command("HGET", KEY, "f"))
        with pytest.raises(StoreUnavailable):
            await store.commit(add("b"))
        cut.heal()
        assert await store.commit(add("c")) == [1]

    async def test_closing_waits_for_what_was_asked(self, store: Store) -> None:
        lane = GroupCommit(store._clients[1], clock=Clock(), patience=5)
        asked = [lane.ask(add(str(n))) for n in range(10)]
        await lane.close()
        assert all(future.done() for future in asked)
        assert len(await written(store)) == 10

    async def test_a_closed_lane_opens_no_connection_again(self, store: Store) -> None:
        lane = GroupCommit(store.commit._redis, clock=Clock(), patience=1.0)
        assert await lane(add("a")) == [1]
        await lane.close()
        lane.soon(add("b"))
        with pytest.raises(StoreUnavailable):
            await lane(add("c"))
        assert await written(store) == [b"a"]
        assert lane._connection is None


class TestForgotten:
    async def test_only_what_was_not_known_is_sent_again(self, store: Store) -> None:
        await store.commit(command("SCRIPT", "FLUSH"))
        answers = await store.commit(
            add("a"), SCRIPTS.show(["switchroom:none"]), add("b"), SCRIPTS.show(["switchroom:none"])
        )
        assert (answers[0], answers[2]) == (1, 2)
        assert [answer[0] for answer in answers[1::2]] == [b"absent", b"absent"]
        assert await written(store) == [b"a", b"b"]

    async def test_when_it_goes_away_before_it_has_learnt_that_is_unavailable(
        self, store: Store
    ) -> None:
        await store.commit(command("SCRIPT", "FLUSH"))
        cut = Cut(store.commit, at=2, how="before")
        with pytest.raises(StoreUnavailable):
            await store.commit(SCRIPTS.show(["switchroom:none"]))
        cut.heal()
        assert (await store.commit(SCRIPTS.show(["switchroom:none"])))[0][0] == b"absent"


def test_the_clock_is_the_servers() -> None:
    clock = Clock()
    here = clock.now()
    clock.learn(here + 3_600_000)
    assert 3_599_000 < clock.now() - here < 3_700_000
