"""A task is its snapshot plus the log's tail: the same, whenever it is read, as all of its events
folded; and writing it costs what its events cost.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as bounded
from hypothesis import strategies as st

from switchroom.protocol.event import decode, encode
from switchroom.protocol.lifecycle import fold, receive
from switchroom.protocol.model import Json, TaskState
from switchroom.settings import Settings
from switchroom.store import Store, runlog
from switchroom.store.growth import LogLimits
from switchroom.store.read import read_call, view_of
from switchroom.store.runlog import RunLog
from switchroom.store.scripts import Call, command
from tests.support.acts import (
    begin,
    chunk,
    entries_of,
    follow_up,
    intact,
    message,
    new_task,
    open_run,
    status,
    stored,
    view_of_task,
)

WORKING, ASKING, COMPLETED = TaskState.WORKING, TaskState.INPUT_REQUIRED, TaskState.COMPLETED


class Model:
    """A task and its run, and beside them what a reader must see."""

    def __init__(self, store: Store, task_id: str) -> None:
        self.store = store
        self.task_id = task_id
        self.turn = 1
        self.seen: Json = {}
        self.base: Json = {}
        self.anew = False
        self.artifacts: set[str] = set()
        self.run: RunLog

    async def attempt(self) -> None:
        if not self.anew:
            self.base = decode(encode((await view_of_task(self.store, self.task_id)).task))
            self.seen = decode(encode(self.base))
        self.run = await open_run(self.store, self.task_id, self.turn)
        self.artifacts = {a["artifactId"] for a in self.base.get("artifacts", ())}

    async def write(self, event: Json) -> None:
        if self.anew:
            self.seen, self.anew = decode(encode(self.base)), False
        await self.run.write(event)
        fold(self.seen, decode(encode(event)))

    async def next_turn(self, text: str) -> None:
        await self.write(status(ASKING, text))
        await self.run.flush()
        said = message(text)
        await follow_up(self.store, self.task_id, said=said)
        view = await view_of_task(self.store, self.task_id)
        ids = {"taskId": self.task_id, "contextId": view.context_id}
        self.seen = receive(self.seen, {**said, **ids}, view.ts)
        self.turn += 1
        self.anew = False
        await self.attempt()

    async def die(self) -> None:
        await self.run.flush()
        await self.run.close()
        self.anew = True
        await self.attempt()

    async def check(self) -> None:
        await self.run.flush()
        view = await view_of_task(self.store, self.task_id)
        assert _plain(view.task) == _plain(self.seen)
        (answer,) = await self.store.reads(
            read_call(self.store.keys, self.task_id, artifacts=False)
        )
        head = view_of(self.task_id, answer)
        assert head is not None
        assert head.position == view.position
        without = {name: value for name, value in self.seen.items() if name != "artifacts"}
        assert _plain(head.task) == _plain(without)


def _plain(task: Json) -> str:
    """A task for comparing: with its numbers as they are, whatever the order of its members."""
    return json.dumps(task, sort_keys=True)


TEXT = st.text("ab\nä", max_size=60)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("chunk"), st.integers(0, 3), TEXT, st.booleans()),
        st.tuples(st.just("chunk"), st.just(0), TEXT, st.just(True)),
        st.tuples(st.just("status"), TEXT, st.dictionaries(st.sampled_from("xyz"), TEXT)),
        st.tuples(st.just("turn"), TEXT),
        st.tuples(st.just("die")),
        st.tuples(st.just("read")),
    ),
    max_size=40,
)


@bounded(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(steps=STEPS, window=st.integers(1, 12), small=st.sampled_from([1, 200, 16_384]))
async def test_a_read_is_the_fold_of_all_events(
    store: Store, monkeypatch: pytest.MonkeyPatch, steps: Sequence[Any], window: int, small: int
) -> None:
    monkeypatch.setattr(runlog, "_SMALL", small)
    limits = LogLimits.of(Settings(replay_events=window, replay_bytes=2_000, event_limit=2_000))
    monkeypatch.setattr(store.runs, "_limits", limits)
    model = Model(store, await new_task(store))
    await model.attempt()
    await model.write(status(WORKING))
    for step in steps:
        match step:
            case ("chunk", number, text, append):
                name = f"{model.turn}-{number}"
                known = append and name in model.artifacts
                await model.write(chunk(text, name, append=known))
                model.artifacts.add(name)
            case ("status", text, metadata):
                await model.write(status(WORKING, text, metadata=metadata))
            case ("turn", text):
                await model.next_turn(text)
            case ("die",):
                await model.die()
            case _:
                await model.check()
        assert model.run.stopped is None
    await model.check()
    await model.write(status(COMPLETED, "done"))
    await model.check()
    view = await view_of_task(store, model.task_id)
    seqs = [entry.seq for entry in await entries_of(store, model.task_id)]
    assert seqs == list(range(seqs[0], view.position.seq + 1))


@pytest.fixture
def settings(store_url: str, request: pytest.FixtureRequest) -> Settings:
    return Settings(redis_url=store_url, **getattr(request, "param", {}))


class TestTrimming:
    """What an open task's log keeps."""

    @pytest.mark.parametrize("settings", [{"replay_events": 50}], indirect=True)
    async def test_so_many_events_and_whatever_no_snapshot_covers(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(runlog, "_SMALL", 500)
        task_id = await new_task(store)
        run = await open_run(store, task_id)
        await run.write(status(WORKING))
        await run.write(chunk("x"))
        least, most = 1_000, 0
        for at in range(400):
            await run.write(chunk(f"{at}", append=True))
            if at % 3 == 0:
                await run.flush()
                kept, log = await stored(store, task_id), await entries_of(store, task_id)
                snapshot = int(kept.get("snap_seq", 0))
                assert log[0].seq <= snapshot + 1, "the log lacks what no snapshot covers"
                seq = int(kept["seq"])
                assert log[0].seq <= max(1, seq - 49), "the replay window is short"
                assert [e.seq for e in log] == list(range(log[0].seq, seq + 1))
                if snapshot:
                    most = max(most, snapshot - log[0].seq + 1)
                    least = min(least, len(log))
        assert most < 100, "it keeps what it need not"
        await run.write(status(COMPLETED))
        await run.flush()
        task = (await view_of_task(store, task_id)).task
        assert len(task["artifacts"][0]["parts"]) == 401

    @pytest.mark.parametrize(
        "settings", [{"replay_bytes": 20_000, "event_limit": 5_000}], indirect=True
    )
    async def test_so_many_bytes(self, store: Store) -> None:
        task_id = await new_task(store)
        run = await open_run(store, task_id)
        await run.write(status(WORKING))
        for at in range(200):
            await run.write(chunk("x" * 1_000, append=at > 0))
            await run.flush()
        log = await entries_of(store, task_id)
        snapshot = int((await stored(store, task_id))["snap_seq"])
        covered = sum(len(entry.data or b"") for entry in log if entry.seq <= snapshot)
        assert 15_000 < covered <= 20_000

    @pytest.mark.parametrize("settings", [{"replay_events": 20}], indirect=True)
    async def test_many_short_turns_do_not_pile_up(self, store: Store) -> None:
        task_id = await new_task(store)
        for turn in range(1, 16):
            run = await open_run(store, task_id, turn)
            await run.write(status(WORKING))
            await run.write(status(ASKING, f"{turn}?"))
            await run.flush()
            await follow_up(store, task_id)
        log = await entries_of(store, task_id)
        assert 20 <= len(log) <= 22
        assert len((await view_of_task(store, task_id)).task["history"]) == 31


def bytes_sent(store: Store, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Counts, pipeline by pipeline, what the writing lane sends from now on."""
    counted: list[int] = []
    send = store.commit._pipeline

    async def pipeline(calls: Sequence[Call]) -> list[Any]:
        counted.append(
            sum(len(w) if isinstance(w, str | bytes) else 8 for c in calls for w in c.words)
        )
        return await send(calls)

    monkeypatch.setattr(store.commit, "_pipeline", pipeline)
    return counted


class TestCost:
    async def test_what_is_sent_grows_with_the_events_and_no_faster(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def cost(count: int) -> int:
            run = await open_run(store, await new_task(store))
            await run.write(status(WORKING))
            counted = bytes_sent(store, monkeypatch)
            for at in range(count):
                await run.write(chunk("x" * 1_000, append=at > 0))
                await run.flush()
            await run.write(status(COMPLETED))
            await run.flush()
            monkeypatch.undo()
            return sum(counted)

        costs = [await cost(count) / count for count in (50, 100, 200, 400)]
        # A chunk, and at most thrice its bytes in snapshots.
        assert max(costs) < 5 * 1_000
        assert costs[-1] < 1.5 * costs[0]

    async def test_what_is_read_is_at_most_twice_the_task(self, store: Store) -> None:
        task_id = await new_task(store)
        run = await open_run(store, task_id)
        await run.write(status(WORKING))
        for at in range(150):
            await run.write(chunk("x" * 1_000, append=at > 0))
            await run.flush()
            kept = await stored(store, task_id)
            snapshot, covered = len(kept.get("snap", b"")), int(kept.get("snap_seq", 0))
            tail = (
                sum(len(e.data or b"") for e in await entries_of(store, task_id) if e.seq > covered)
                if at % 10 == 0
                else 0
            )
            assert tail <= max(snapshot, 16 * 1024) + 2_000


class TestTheEnd:
    @pytest.mark.parametrize("last", [COMPLETED, ASKING])
    async def test_the_event_that_ends_a_turn_carries_the_task(
        self, store: Store, last: TaskState
    ) -> None:
        task_id = await new_task(store)
        run = await open_run(store, task_id)
        await run.write(status(WORKING))
        await run.write(chunk("x" * 40_000))
        await run.flush()
        assert "snap" in await stored(store, task_id)
        await run.write(status(last, "said"))
        await run.flush()
        kept = await stored(store, task_id)
        assert {"snap", "snap_seq"}.isdisjoint(kept)
        assert decode(kept["base"]) == run.task
        assert kept["base_seq"] == kept["seq"]

    async def test_when_its_log_is_gone_the_task_is_still_there(self, store: Store) -> None:
        task_id = await new_task(store)
        run = await open_run(store, task_id)
        await run.write(status(WORKING))
        await run.write(chunk("a"))
        await run.write(status(COMPLETED))
        await run.flush()
        before = await intact(store, task_id)
        await store.commit(command("DEL", store.keys.log(task_id)))
        view = await view_of_task(store, task_id)
        assert view.task == before and view.terminal
        assert await store.feed.since(task_id, view.position) == []

    async def test_an_attempt_after_a_snapshot_begins_where_the_turn_did(
        self, store: Store
    ) -> None:
        task_id = await new_task(store)
        lost = await open_run(store, task_id)
        await lost.write(status(WORKING))
        await lost.write(chunk("x" * 40_000))
        await lost.flush()
        begun = await begin(store, task_id)
        assert "artifacts" not in begun.task()
        run = store.runs.open(begun, lambda why: None)
        await run.write(status(WORKING, "Attempt 2"))
        await run.flush()
        assert "artifacts" not in (await view_of_task(store, task_id)).task
