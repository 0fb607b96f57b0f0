"""Following a task: every entry once and in order, whatever is lost on the way."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from switchroom.protocol.event import encode
from switchroom.protocol.model import TaskState
from switchroom.settings import Settings
from switchroom.store import Store
from switchroom.store.commit import StoreUnavailable
from switchroom.store.entry import Entry, Position, parse_live
from switchroom.store.feed import Follower
from switchroom.store.runlog import RunLog
from switchroom.store.scripts import LIVE_LIMIT, command
from tests.support.acts import (
    chunk,
    entries_of,
    follow_up,
    message,
    new_id,
    new_task,
    open_run,
    status,
    view_of_task,
)
from tests.support.faults import Cut
from tests.support.wait import wait_until

WORKING, ASKING, COMPLETED = TaskState.WORKING, TaskState.INPUT_REQUIRED, TaskState.COMPLETED

on_a_real_server = pytest.mark.parametrize(
    "store_url",
    [pytest.param("redis-server", marks=pytest.mark.requires("redis-server"))],
    indirect=True,
)


class Reader:
    """Reads a follower to its end."""

    def __init__(self, follower: Follower, after: Position, *, catch_up: bool = False) -> None:
        self.got: list[Entry] = []
        self.follower = follower
        self._after = after
        self._catch_up = catch_up
        self.task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for entry in self.follower.follow(self._after, catch_up=self._catch_up):
            self.got.append(entry)

    @property
    def seqs(self) -> list[int]:
        return [entry.seq for entry in self.got]

    async def until(self, seq: int) -> None:
        await wait_until(
            lambda: self.task.done() or (self.got and self.got[-1].seq >= seq),
            what=f"entry {seq} has come",
        )
        assert not self.task.done()

    async def ended(self) -> None:
        async with asyncio.timeout(20):
            await self.task

    async def close(self) -> None:
        self.follower.close()
        await self.ended()


@asynccontextmanager
async def reading(
    store: Store, task_id: str, after: Position | None = None, *, catch_up: bool = False
) -> AsyncIterator[Reader]:
    """A reader from where the task stands, or from a position."""
    follower = await store.feed.subscribe(task_id)
    reader = Reader(
        follower, after or (await view_of_task(store, task_id)).position, catch_up=catch_up
    )
    yield reader
    await reader.close()
    assert store.feed.followed == 0
    assert store.subscriber.channels == 0


async def write_some(run: RunLog, count: int, *, flush: Callable[[], bool] = lambda: True) -> None:
    for _ in range(count):
        await run.write(status(WORKING, "still"))
        if flush():
            await run.flush()
    await run.flush()


def losing(store: Store, lost: Callable[[Entry], bool]) -> Callable[[], None]:
    """From now on the live entries that `lost` names do not arrive; call the answer to stop it."""
    receive = store.subscriber._receive

    def drop(incoming: Any) -> bytes | None:
        if isinstance(incoming, list) and incoming[0] == b"message":
            if any(lost(entry) for entry in parse_live(incoming[2])):
                return None
        return receive(incoming)

    store.subscriber._receive = drop  # type: ignore[method-assign]

    def stop() -> None:
        store.subscriber._receive = receive  # type: ignore[method-assign]

    return stop


async def whole(store: Store, task_id: str, reader: Reader, after: int = 1) -> None:
    """What was read is the log, from the entry after `after`."""
    log = [entry for entry in await entries_of(store, task_id) if entry.seq > after]
    await reader.until(log[-1].seq)
    assert reader.got == log


class TestFollow:
    async def test_what_is_written_arrives_as_it_is(self, store: Store) -> None:
        task_id = await new_task(store)
        run = await open_run(store, task_id)
        async with reading(store, task_id) as reader:
            events = [status(WORKING), chunk("ä\n\n"), chunk("", append=True), status(ASKING, "?")]
            for event in events:
                await run.write(event)
            await run.flush()
            await reader.until(5)
            assert [entry.data for entry in reader.got] == [encode(event) for event in events]
            accepted = await follow_up(store, task_id, said=message("Paris"))
            await reader.until(6)
            assert reader.got[-1].kind == "input" and reader.got[-1].turn == 2
            assert reader.got[-1].position == accepted.position
            await store.tasks.end(task_id, TaskState.CANCELED, force=False)
            await reader.until(7)
            await whole(store, task_id, reader)

    async def test_a_message_answer_arrives(self, store: Store) -> None:
        task_id = await new_task(store, shown=False)
        run = await open_run(store, task_id)
        async with reading(store, task_id) as reader:
            said = {"message": message("42", role="ROLE_AGENT")}
            await run.answer(said)
            await reader.until(2)
            assert (reader.got[0].kind, reader.got[0].data) == ("message", encode(said))

    @pytest.mark.parametrize("seed", range(3))
    async def test_there_is_no_seam_between_replay_and_live(self, store: Store, seed: int) -> None:
        """Followers come and go at any moment, from any position, while it is being written."""
        dice = random.Random(seed)
        task_id = await new_task(store)
        run = await open_run(store, task_id)
        readers: list[tuple[int, Reader]] = []
        for _ in range(40):
            await run.write(status(WORKING, "x" * dice.choice([1, 1, LIVE_LIMIT])))
            if dice.random() < 0.7:
                await run.flush()
            if dice.random() < 0.3:
                log = await entries_of(store, task_id)
                follower = await store.feed.subscribe(task_id)
                after = dice.choice(log).position
                readers.append((after.seq, Reader(follower, after, catch_up=True)))
        await run.write(status(COMPLETED))
        await run.flush()
        for after_seq, reader in readers:
            await whole(store, task_id, reader, after_seq)
            await reader.close()
        assert store.feed.followed == 0

    async def test_many_followers_share_one_subscription(self, store: Store) -> None:
        task_id, other = await new_task(store), await new_task(store)
        run = await open_run(store, task_id)
        followers = await asyncio.gather(*(store.feed.subscribe(task_id) for _ in range(20)))
        position = (await view_of_task(store, task_id)).position
        readers = [Reader(follower, position) for follower in followers]
        stranger = Reader(
            await store.feed.subscribe(other), (await view_of_task(store, other)).position
        )
        assert (store.feed.followed, store.subscriber.channels) == (2, 2)
        await write_some(run, 5)
        for reader in readers:
            await whole(store, task_id, reader)
        assert stranger.got == []
        for reader in readers[1:]:
            await reader.close()
        assert store.feed.followed == 2
        await write_some(run, 5)
        await whole(store, task_id, readers[0])
        await readers[0].close()
        await stranger.close()
        assert (store.feed.followed, store.subscriber.channels) == (0, 0)

    async def test_who_left_and_came_back_misses_nothing(self, store: Store) -> None:
        task_id = await new_task(store)
        run = await open_run(store, task_id)
        last = (await view_of_task(store, task_id)).position
        seen: list[Entry] = []
        for at in range(10):
            async with reading(store, task_id, last, catch_up=True) as reader:
                await write_some(run, 2)
                await reader.until(2 * at + 3)
            seen += reader.got
            last = seen[-1].position
        assert seen == (await entries_of(store, task_id))[1:]

    async def test_a_client_that_stops_reading_lets_go(self, store: Store) -> None:
        task_id = await new_task(store)
        follower = await store.feed.subscribe(task_id)
        entries = follower.follow((await view_of_task(store, task_id)).position)
        waiting = asyncio.ensure_future(anext(entries))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        await entries.aclose()
        follower.close()
        follower.close()
        assert (store.feed.followed, store.subscriber.channels) == (0, 0)

    async def test_when_the_store_closes_they_end(self, settings: Settings) -> None:
        store = await Store.open(settings)
        task_id = await new_task(store)
        follower = await store.feed.subscribe(task_id)
        reader = Reader(follower, (await view_of_task(store, task_id)).position)
        await store.feed.close()
        await reader.ended()
        await store.close()


class TestLost:
    """Live messages that never arrive."""

    @pytest.mark.parametrize("seed", range(4))
    async def test_a_hole_is_filled_from_the_log(self, store: Store, seed: int) -> None:
        dice = random.Random(seed)
        task_id = await new_task(store)
        run = await open_run(store, task_id)
        stop = losing(store, lambda entry: dice.random() < 0.4)
        async with reading(store, task_id) as reader:
            await write_some(run, 40, flush=lambda: dice.random() < 0.6)
            stop()
            await write_some(run, 1)
            await whole(store, task_id, reader)

    async def test_a_large_event_is_announced_without_its_bytes(self, store: Store) -> None:
        task_id = await new_task(store)
        run = await open_run(store, task_id)
        heard: list[Entry] = []
        stop = losing(store, lambda entry: bool(heard.append(entry)))  # type: ignore[func-returns-value]
        async with reading(store, task_id) as reader:
            await run.write(status(WORKING))
            await run.write(chunk("x" * LIVE_LIMIT))
            await run.write(chunk("y", append=True))
            await run.flush()
            await whole(store, task_id, reader)
            sizes = [None if entry.data is None else len(entry.data) for entry in heard]
            assert sizes[1] is None and sizes[0] is not None and sizes[2] is not None
        stop()

    async def test_a_batch_announces_so_many_bytes(self, store: Store) -> None:
        task_id = await new_task(store)
        run = await open_run(store, task_id)
        heard: list[int] = []
        receive = store.subscriber._receive

        def weigh(incoming: Any) -> bytes | None:
            if incoming[0] == b"message":
                heard.append(len(incoming[2]))
            return receive(incoming)

        store.subscriber._receive = weigh  # type: ignore[method-assign]
        async with reading(store, task_id) as reader:
            await run.write(status(WORKING))
            for at in range(30):
                await run.write(chunk("x" * (LIVE_LIMIT - 1_000), append=at > 0))
            await run.flush()
            await whole(store, task_id, reader)
        assert max(heard) < 9 * LIVE_LIMIT

    async def test_the_last_one_is_found_by_looking(self, settings: Settings) -> None:
        """It has no successor that would reveal it."""
        store = await Store.open(settings.model_copy(update={"position_check": ms(30)}))
        task_id = await new_task(store)
        run = await open_run(store, task_id)
        async with reading(store, task_id) as reader:
            stop = losing(store, lambda entry: True)
            await write_some(run, 3)
            await whole(store, task_id, reader)
            stop()
            await write_some(run, 1)
            await whole(store, task_id, reader)
        await store.close()

    @on_a_real_server
    async def test_a_broken_connection_is_made_anew(self, store: Store) -> None:
        task_id, quiet = await new_task(store), await new_task(store)
        run = await open_run(store, task_id)
        silent = Reader(
            await store.feed.subscribe(quiet), (await view_of_task(store, quiet)).position
        )
        follower = await store.feed.subscribe(task_id)
        reader = Reader(follower, (await view_of_task(store, task_id)).position)
        for _ in range(5):
            await write_some(run, 3)
            await store.commit(command("CLIENT", "KILL", "TYPE", "pubsub"))
            await write_some(run, 3)
            await wait_until(lambda: store.subscriber.connected, what="it is connected again")
        await whole(store, task_id, reader)
        # What was published while nobody heard it is caught up by everyone, not only where more
        # follows.
        last = await open_run(store, quiet)
        await store.commit(command("CLIENT", "KILL", "TYPE", "pubsub"))
        await last.write(status(WORKING))
        await last.flush()
        await whole(store, quiet, silent)
        await reader.close()
        await silent.close()

    @on_a_real_server
    async def test_who_subscribes_while_it_is_broken_is_served_when_it_is_back(
        self, store: Store
    ) -> None:
        task_ids = [await new_task(store) for _ in range(5)]
        for task_id in task_ids:
            run = await open_run(store, task_id)
            await store.commit(command("CLIENT", "KILL", "TYPE", "pubsub"))
            async with reading(store, task_id) as reader:
                await write_some(run, 2)
                await whole(store, task_id, reader)

    async def test_a_connection_that_says_nothing_is_tried_and_dropped(
        self, settings: Settings, caplog: pytest.LogCaptureFixture
    ) -> None:
        store = await Store.open(settings.model_copy(update={"position_check": ms(30)}))
        task_id = await new_task(store)
        run = await open_run(store, task_id)
        async with reading(store, task_id) as reader:
            back = asyncio.Event()
            store.subscriber.on_gap(back.set)
            connection = store.subscriber._connection
            assert connection is not None
            read, silences = connection.read_response, [None, None]

            async def read_nothing(*args: Any, **options: Any) -> Any:
                return silences.pop() if silences else await read(*args, **options)

            connection.read_response = read_nothing  # type: ignore[method-assign]
            await back.wait()
            await write_some(run, 2)
            await whole(store, task_id, reader)
        await store.close()
        assert "pub/sub connection lost" in caplog.text


def ms(count: int) -> timedelta:
    return timedelta(milliseconds=count)


class TestSlowReaders:
    @pytest.fixture
    def settings(self, store_url: str) -> Settings:
        return Settings(redis_url=store_url, client_buffer=5)

    async def test_one_that_lags_reads_the_log_instead(self, store: Store) -> None:
        task_id = await new_task(store)
        run = await open_run(store, task_id)
        follower = await store.feed.subscribe(task_id)
        entries = follower.follow((await view_of_task(store, task_id)).position)
        await write_some(run, 3)
        got = [await anext(entries)]
        await write_some(run, 40)
        await wait_until(lambda: follower._stale, what="it lags too far behind")
        assert len(follower._live) <= 5
        got += [await anext(entries) for _ in range(42)]
        assert got == (await entries_of(store, task_id))[1:]
        await write_some(run, 1)
        assert (await anext(entries)).seq == 45
        await entries.aclose()
        follower.close()

    async def test_one_that_lags_behind_the_log_ends(self, store: Store) -> None:
        """Its client comes back, and gets the Task first."""
        task_id = await new_task(store)
        run = await open_run(store, task_id)
        follower = await store.feed.subscribe(task_id)
        entries = follower.follow((await view_of_task(store, task_id)).position)
        await write_some(run, 3)
        assert (await anext(entries)).seq == 2
        await write_some(run, 20)
        await store.commit(command("XTRIM", store.keys.log(task_id), "MINID", "10"))
        await wait_until(lambda: follower._stale, what="it lags too far behind")
        assert [entry async for entry in entries] == []
        follower.close()

    async def test_one_that_nobody_reads_holds_little(self, store: Store) -> None:
        task_id = await new_task(store)
        run = await open_run(store, task_id)
        follower = await store.feed.subscribe(task_id)
        for at in range(100):
            await run.write(status(WORKING, "x" * 30_000) if at else status(WORKING))
        await run.flush()
        await wait_until(lambda: follower._stale, what="it lags too far behind")
        assert sum(len(entry.data or b"") for entry in follower._live) <= 5 * 32_000
        follower.close()

    async def test_one_that_nobody_reads_holds_nothing_besides_what_it_was_given(
        self, store: Store
    ) -> None:
        """While it has the log to read, what is appended need not wait here too."""
        task_id = await new_task(store)
        run = await open_run(store, task_id)
        async with reading(store, task_id) as witness:
            await write_some(run, 3)
            await witness.until(4)
            follower = await store.feed.subscribe(task_id)
            entries = follower.follow(witness._after, catch_up=True)
            assert (await anext(entries)).seq == 2
            await write_some(run, 4)
            await witness.until(8)
            assert not follower._live
            got = [(await anext(entries)).seq for _ in range(6)]
            assert got == [3, 4, 5, 6, 7, 8]
            await entries.aclose()
            follower.close()

    async def test_one_is_given_little_at_a_time(self, store: Store) -> None:
        """However large the events are: as many readers may stop where they are."""
        task_id = await new_task(store)
        run = await open_run(store, task_id)
        for at in range(12):
            await run.write(status(WORKING, "x" * 100_000) if at else status(WORKING))
        await run.flush()
        (first, *log) = await entries_of(store, task_id)
        given = await store.feed.since(task_id, first.position)
        assert given == log[:4]  # the first is small, and a quarter of a megabyte is enough


class TestGoneBack:
    async def test_a_restored_task_ends_its_followers(self, store: Store) -> None:
        task_id = await new_task(store)
        run = await open_run(store, task_id)
        await write_some(run, 3)
        async with reading(store, task_id) as reader:
            await store.commit(command("DEL", *store.keys.of_task(task_id)))
            await write_some(run, 1)
            await reader.ended()
            assert reader.got == []

    async def test_an_entry_where_one_was_already_ends_them(self, store: Store) -> None:
        """Older entries are written anew by somebody else: the position is not good any more."""
        task_id = await new_task(store)
        run = await open_run(store, task_id)
        await write_some(run, 1)
        await run.write(status(ASKING, "?"))
        await run.flush()
        async with reading(store, task_id) as reader:
            later = await open_run_of_next_turn(store, task_id)
            await write_some(later, 3)
            await reader.until(7)
            await store.commit(
                command("DEL", store.keys.log(task_id)),
                command(
                    *("HSET", store.keys.task(task_id), "seq", 3, "state", ASKING, "done", 2),
                    *("mark", "0ther"),
                ),
            )
            await follow_up(store, task_id)
            await reader.ended()

    async def test_a_task_that_is_gone_ends_them_at_the_next_look(self, settings: Settings) -> None:
        store = await Store.open(settings.model_copy(update={"position_check": ms(30)}))
        task_id = await new_task(store)
        async with reading(store, task_id) as reader:
            await store.commit(command("DEL", *store.keys.of_task(task_id)))
            await reader.ended()
        await store.close()

    async def test_a_look_that_fails_for_one_of_them_is_not_the_last(
        self, settings: Settings, caplog: pytest.LogCaptureFixture
    ) -> None:
        store = await Store.open(settings.model_copy(update={"position_check": ms(30)}))
        gone, damaged = await new_task(store), await new_task(store)
        async with reading(store, gone) as reader:
            follower, key = await store.feed.subscribe(damaged), store.keys.task(damaged)
            await store.commit(command("DEL", key), command("SET", key, "no task", "PX", 60_000))
            await wait_until(
                lambda: f"{damaged} cannot be compared" in caplog.text, what="a look fails"
            )
            await store.commit(command("DEL", *store.keys.of_task(gone)))
            await reader.ended()
            follower.close()
        await store.close()


async def open_run_of_next_turn(store: Store, task_id: str) -> RunLog:
    accepted = await follow_up(store, task_id)
    return await open_run(store, task_id, accepted.turn)


class TestPositions:
    async def test_a_good_one_gives_what_follows(self, store: Store) -> None:
        task_id = await new_task(store)
        run = await open_run(store, task_id)
        await write_some(run, 5)
        log = await entries_of(store, task_id)
        for entry in log:
            assert await store.feed.since(task_id, entry.position) == log[entry.seq :]

    async def test_any_other_gives_nothing(self, store: Store) -> None:
        task_id, other = await new_task(store), await new_task(store)
        run = await open_run(store, task_id)
        await write_some(run, 3)
        log = await entries_of(store, task_id)
        mark = log[-1].mark
        foreign = (await view_of_task(store, other)).position
        wrong = [
            Position(4, foreign.mark),
            Position(2, log[0].mark),
            Position(1, mark),
            Position(5, mark),
            Position(999_999_999_999_999, mark),
            Position(0, mark),
            Position(0, ""),
            foreign,
        ]
        for position in wrong:
            assert await store.feed.since(task_id, position) is None, position
        assert await store.feed.since(new_id(), log[0].position) is None

    async def test_one_that_was_trimmed_gives_nothing(self, store: Store) -> None:
        task_id = await new_task(store)
        run = await open_run(store, task_id)
        await write_some(run, 9)
        log = await entries_of(store, task_id)
        await store.commit(command("XTRIM", store.keys.log(task_id), "MINID", "5"))
        assert await store.feed.since(task_id, log[3].position) is None
        assert await store.feed.since(task_id, log[4].position) == log[5:]
        assert await store.feed.since(task_id, log[-1].position) == []

    async def test_much_comes_in_parts(self, store: Store) -> None:
        task_id = await new_task(store)
        run = await open_run(store, task_id)
        await run.write(status(WORKING))
        for at in range(1_300):
            await run.write(chunk("x", append=at > 0))
        await run.flush()
        log = await entries_of(store, task_id)
        first = await store.feed.since(task_id, log[0].position)
        assert first is not None and 500 <= len(first) < 600
        async with reading(store, task_id, log[0].position, catch_up=True) as reader:
            await whole(store, task_id, reader)

    async def test_in_parts_of_so_many_bytes(self, store: Store) -> None:
        task_id = await new_task(store)
        run = await open_run(store, task_id)
        await run.write(status(WORKING))
        for at in range(100):
            await run.write(chunk("x" * 100_000, append=at > 0))
        await run.flush()
        log = await entries_of(store, task_id)
        first = await store.feed.since(task_id, log[0].position)
        assert first is not None and 0 < len(first) < 100
        async with reading(store, task_id, log[0].position, catch_up=True) as reader:
            await whole(store, task_id, reader)

    @pytest.mark.parametrize(
        "text", ["", ".", "1", "1.", ".ab", "x.ab", "-1.ab", "1.a b", "1.ä", "٣.ab", f"{10**15}.a"]
    )
    def test_what_cannot_be_one_is_none(self, text: str) -> None:
        assert Position.parse(text) is None
        assert Position.parse(None) is None

    def test_as_text(self) -> None:
        assert Position.parse("12.0a") == Position(12, "0a")
        assert str(Position(12, "0a")) == "12.0a"


class TestSubscribing:
    async def test_one_who_leaves_takes_nobody_along(self, store: Store) -> None:
        """The first of three asks for the subscription, and is gone before it is there."""
        task_id = await new_task(store)
        run = await open_run(store, task_id)
        tries = [asyncio.create_task(store.feed.subscribe(task_id)) for _ in range(3)]
        await asyncio.sleep(0)
        tries[0].cancel()
        followers = [await task for task in tries[1:]]
        position = (await view_of_task(store, task_id)).position
        readers = [Reader(follower, position) for follower in followers]
        await write_some(run, 2)
        for reader in readers:
            await whole(store, task_id, reader)
            await reader.close()
        assert (store.feed.followed, store.subscriber.channels) == (0, 0)

    async def test_when_all_leave_nothing_is_left(self, store: Store) -> None:
        tries = [asyncio.create_task(store.feed.subscribe("t")) for _ in range(3)]
        await asyncio.sleep(0)
        for task in tries:
            task.cancel()
        await asyncio.wait(tries)
        assert (store.feed.followed, store.subscriber.channels) == (0, 0)

    async def test_what_is_not_confirmed_is_unavailable_to_all(self, store: Store) -> None:
        await wait_until(lambda: store.subscriber.connected, what="it is connected")
        store.subscriber._patience = 0.05
        send = store.subscriber._send
        store.subscriber._send = lambda verb, name: None  # type: ignore[method-assign]
        tries = [asyncio.create_task(store.feed.subscribe("t")) for _ in range(3)]
        for task in tries:
            with pytest.raises(StoreUnavailable):
                await task
        store.subscriber._send = send  # type: ignore[method-assign]
        assert (store.feed.followed, store.subscriber.channels) == (0, 0)
        follower = await store.feed.subscribe("t")
        follower.close()

    async def test_an_old_confirmation_does_not_count(self, store: Store) -> None:
        """SUBSCRIBE, UNSUBSCRIBE, SUBSCRIBE: the first answer says nothing of the third."""
        subscriber, held = store.subscriber, list[Any]()
        receive = subscriber._receive

        def hold(incoming: Any) -> bytes | None:
            held.append(incoming)
            return None

        await wait_until(lambda: subscriber.connected, what="it is connected")
        subscriber._receive = hold  # type: ignore[method-assign]
        first = asyncio.create_task(subscriber.subscribe("c", lambda _: None))
        await wait_until(lambda: len(held) == 1, what="the first is confirmed")
        first.cancel()
        await asyncio.wait([first])
        second = asyncio.create_task(subscriber.subscribe("c", lambda _: None))
        await wait_until(lambda: len(held) == 3, what="the second is confirmed")
        assert [incoming[0] for incoming in held] == [b"subscribe", b"unsubscribe", b"subscribe"]
        confirmed = subscriber._channels[b"c"].confirmed
        for incoming, is_confirmed in zip(held, (False, False, True), strict=True):
            receive(incoming)
            assert confirmed.done() is is_confirmed
        await second
        subscriber._receive = receive  # type: ignore[method-assign]
        subscriber.unsubscribe("c")

    async def test_reads_that_fail_for_a_while_only_delay(self, store: Store) -> None:
        task_id = await new_task(store)
        run = await open_run(store, task_id)
        position = (await view_of_task(store, task_id)).position
        await write_some(run, 3)
        cut = Cut(store.reads, at=1, how="before")
        async with reading(store, task_id, position, catch_up=True) as reader:
            await whole(store, task_id, reader)
        assert cut.hit
        cut.heal()
