"""Webhooks are told all that happens to their tasks, in order, whatever becomes of who tells them.

The requests themselves are in test_webhook.py; here a receiver is a function.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, Self

import pytest

from switchroom.protocol.model import Json, TaskState
from switchroom.settings import Settings
from switchroom.store import Store
from switchroom.store.deliveries import Record, member
from switchroom.store.entry import Position
from switchroom.store.scripts import command
from switchroom.worker.deliver import Deliverer, delay_of, delivery_id
from switchroom.worker.receivers import Receivers
from switchroom.worker.reconcile import Reconciler
from switchroom.worker.webhook import Failed
from tests.support.acts import (
    chunk,
    due,
    entries_of,
    follow_up,
    listed,
    message,
    new_task,
    open_run,
    status,
)
from tests.support.faults import Cut, How
from tests.support.wait import wait_until

WORKING, COMPLETED = TaskState.WORKING, TaskState.COMPLETED
URL = "https://receiver.test/hook"


class FakeWebhooks:
    """Stands for the requests.  told: what was taken, as (config id, delivery id, event)."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str, Json]] = []
        self.tried: list[tuple[str, str, Json]] = []
        self.answer: Callable[[Json, str], Any] = lambda config, delivery: None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def post(
        self, config: Json, body: bytes, *, version: str, task_id: str, delivery_id: str
    ) -> Failed | None:
        one = (config["id"], delivery_id, json.loads(body))
        self.tried.append(one)
        answer = self.answer(config, delivery_id)
        if asyncio.iscoroutine(answer):
            answer = await answer
        if answer is None:
            self.told.append(one)
        result: Failed | None = answer
        return result

    def events(self, config_id: str = "c") -> list[Json]:
        return [event for each, _, event in self.told if each == config_id]


def config(store: Store, config_id: str = "c", *, url: str = URL, version: str = "1.0") -> Any:
    said = {"id": config_id, "url": url}
    return (config_id, store.pushes.seal(said, version=version))


def texts(events: list[Json]) -> list[str]:
    """What each event says, in short."""
    said = []
    for event in events:
        match event:
            case {"task": task}:
                said.append("task " + task["status"]["state"].removeprefix("TASK_STATE_"))
            case {"statusUpdate": {"status": {"state": state}}}:
                said.append(state.removeprefix("TASK_STATE_"))
            case {"artifactUpdate": {"artifact": {"parts": [{"text": text}]}}}:
                said.append(text)
            case {"message": _}:
                said.append("message")
            case other:
                said.append(str(other.get("kind")))
    return said


@asynccontextmanager
async def delivering(
    store: Store, settings: Settings, webhooks: FakeWebhooks | None = None, **replaced: Any
) -> AsyncIterator[FakeWebhooks]:
    """A deliverer at work."""
    webhooks = webhooks or FakeWebhooks()
    settings = Settings.model_validate({**settings.model_dump(), **replaced})
    deliverer = Deliverer(store, settings, webhooks)  # type: ignore[arg-type]
    task = asyncio.create_task(deliverer.run())
    try:
        yield webhooks
        await deliverer.drain(timedelta(seconds=5))
        await task
    finally:
        task.cancel()
        await asyncio.wait([task])


async def all_told(store: Store) -> None:
    """Nothing is due any more."""

    async def empty() -> bool:
        return await listed(store, store.keys.pushes) == {}

    await wait_until(empty, what="all has been told")


async def hurry(store: Store, *names: str) -> None:
    """What waits to be tried again is due now."""
    for name in names or await listed(store, store.keys.pushes):
        await store.commit(command("ZADD", store.keys.pushes, "XX", 1, name))
    await store.commit(command("PUBLISH", store.keys.pushes_bell, "1"))


async def ran(store: Store, task_id: str, *events: Json) -> None:
    run = await open_run(store, task_id)
    for event in events:
        await run.write(event)
        await run.flush()


class TestEvents:
    async def test_all_of_them_in_order(self, store: Store, settings: Settings) -> None:
        task_id = await new_task(store, configs=[config(store)])
        async with delivering(store, settings) as webhooks:
            chunks = [chunk(f"{n}", append=n > 0) for n in range(20)]
            await ran(store, task_id, status(WORKING), *chunks, status(COMPLETED))
            await all_told(store)
        assert texts(webhooks.events()) == [
            "task SUBMITTED",
            "WORKING",
            *(f"{n}" for n in range(20)),
            "COMPLETED",
        ]
        entries = await entries_of(store, task_id)
        assert webhooks.events() == [json.loads(entry.data or b"") for entry in entries]
        assert len({delivery for _, delivery, _ in webhooks.told}) == len(entries)

    async def test_from_the_registration_on(self, store: Store, settings: Settings) -> None:
        task_id = await new_task(store)
        run = await open_run(store, task_id)
        for event in (status(WORKING), chunk("before")):
            await run.write(event)
        await run.flush()
        await store.pushes.put(task_id, "c", {"id": "c", "url": URL})
        async with delivering(store, settings) as webhooks:
            for event in (chunk("after", append=True), status(COMPLETED)):
                await run.write(event)
            await run.flush()
            await all_told(store)
        assert texts(webhooks.events()) == ["after", "COMPLETED"]

    async def test_of_each_turn_but_what_the_user_said(
        self, store: Store, settings: Settings
    ) -> None:
        task_id = await new_task(store, configs=[config(store)])
        async with delivering(store, settings) as webhooks:
            await ran(store, task_id, status(WORKING), status(TaskState.INPUT_REQUIRED))
            await follow_up(store, task_id)
            run = await open_run(store, task_id, turn=2)
            await run.write(status(COMPLETED))
            await run.flush()
            await all_told(store)
        assert texts(webhooks.events()) == [
            *("task SUBMITTED", "WORKING", "INPUT_REQUIRED", "COMPLETED")
        ]

    async def test_only_the_kinds_that_are_wanted(self, store: Store, settings: Settings) -> None:
        task_id = await new_task(store, configs=[config(store)])
        async with delivering(store, settings, push_events=("status",)) as webhooks:
            await ran(store, task_id, status(WORKING), chunk("a"), status(COMPLETED))
            await all_told(store)
        assert texts(webhooks.events()) == ["WORKING", "COMPLETED"]

    async def test_nothing_while_nobody_may_know_of_the_task(
        self, store: Store, settings: Settings
    ) -> None:
        task_id = await new_task(store, shown=False, configs=[config(store)])
        await store.deliveries.announce(task_id)
        async with delivering(store, settings) as webhooks:
            await all_told(store)
            assert webhooks.tried == []
            await ran(store, task_id, status(WORKING))
            await all_told(store)
        assert texts(webhooks.events()) == ["task SUBMITTED", "WORKING"]

    async def test_of_an_answer_the_message_alone(self, store: Store, settings: Settings) -> None:
        task_id = await new_task(store, shown=False, configs=[config(store)])
        run = await open_run(store, task_id)
        assert await run.answer({"message": message(role="ROLE_AGENT")})
        async with delivering(store, settings) as webhooks:
            await all_told(store)
        assert texts(webhooks.events()) == ["message"]

    async def test_each_config_for_itself(self, store: Store, settings: Settings) -> None:
        both = [config(store, "c"), config(store, "second one")]
        task_id = await new_task(store, configs=both)
        async with delivering(store, settings) as webhooks:
            webhooks.answer = lambda config, _: Failed("no") if config["id"] == "c" else None
            await ran(store, task_id, status(WORKING), status(COMPLETED))
            await wait_until(
                lambda: len(webhooks.events("second one")) == 3, what="the other heard all"
            )
        assert webhooks.events() == []

    async def test_for_0_3_the_task_as_it_is(self, store: Store, settings: Settings) -> None:
        task_id = await new_task(store, configs=[config(store, version="0.3")])
        async with delivering(store, settings) as webhooks:
            await ran(store, task_id, status(WORKING), chunk("a"), status(COMPLETED))
            await all_told(store)
        events = webhooks.events()
        assert {event["kind"] for event in events} == {"task"} and 1 <= len(events) <= 4
        assert events[-1]["id"] == task_id and events[-1]["status"]["state"] == "completed"
        assert events[-1]["artifacts"][0]["parts"] == [{"kind": "text", "text": "a"}]

    async def test_none_to_a_config_that_is_gone(self, store: Store, settings: Settings) -> None:
        task_id = await new_task(store, configs=[config(store)])
        async with delivering(store, settings) as webhooks:
            await all_told(store)
            await store.pushes.delete(task_id, "c")
            await ran(store, task_id, status(WORKING))
            await all_told(store)
        assert texts(webhooks.events()) == ["task SUBMITTED"]


class TestLost:
    async def test_where_events_are_missing_the_task_stands_for_them(
        self, store: Store, settings: Settings
    ) -> None:
        task_id = await new_task(store, configs=[config(store)])
        asked = status(TaskState.INPUT_REQUIRED)
        await ran(store, task_id, status(WORKING), chunk("a"), chunk("b", append=True), asked)
        await store.commit(command("XTRIM", store.keys.log(task_id), "MINID", 5))
        async with delivering(store, settings) as webhooks:
            await wait_until(lambda: len(webhooks.told) == 1, what="the Task came")
            await follow_up(store, task_id)
            run = await open_run(store, task_id, turn=2)
            await run.write(status(COMPLETED))
            await run.flush()
            await all_told(store)
        task, rest = webhooks.events()
        assert task["task"]["id"] == task_id
        assert [part["text"] for part in task["task"]["artifacts"][0]["parts"]] == ["a", "b"]
        assert texts([task, rest]) == ["task INPUT_REQUIRED", "COMPLETED"]

    async def test_so_it_does_when_the_log_is_gone(self, store: Store, settings: Settings) -> None:
        task_id = await new_task(store, configs=[config(store)])
        await ran(store, task_id, status(WORKING), chunk("a"), status(COMPLETED))
        await store.commit(command("DEL", store.keys.log(task_id)))
        async with delivering(store, settings) as webhooks:
            await all_told(store)
        assert texts(webhooks.events()) == ["task COMPLETED"]

    async def test_and_when_the_store_went_back_in_time(
        self, store: Store, settings: Settings
    ) -> None:
        task_id = await new_task(store, configs=[config(store)])
        run = await open_run(store, task_id)
        async with delivering(store, settings) as webhooks:
            await run.write(status(WORKING))
            await run.flush()
            await all_told(store)
            await store.commit(command("DEL", *store.keys.of_task(task_id)[:2]))
            await run.write(chunk("a"))
            await run.flush()
            await all_told(store)
            await run.write(status(COMPLETED))
            await run.flush()
            await all_told(store)
        # What was written anew has no entry in the log, so the next finds no place to go on from.
        assert texts(webhooks.events()) == [
            *("task SUBMITTED", "WORKING", "task WORKING", "task COMPLETED")
        ]

    async def test_a_task_that_is_gone_is_forgotten(self, store: Store, settings: Settings) -> None:
        task_id = await new_task(store, configs=[config(store)])
        await store.deliveries.announce(member(task_id, "c"))
        keys = (*store.keys.of_task(task_id), store.keys.sent(task_id))
        await store.commit(command("DEL", *keys))
        async with delivering(store, settings) as webhooks:
            await all_told(store)
        assert webhooks.tried == []


class TestInVain:
    async def test_it_is_tried_again_with_the_same_id(
        self, store: Store, settings: Settings
    ) -> None:
        task_id = await new_task(store, configs=[config(store)])
        async with delivering(store, settings) as webhooks:
            webhooks.answer = lambda _, __: Failed("HTTP 500") if len(webhooks.tried) < 4 else None
            for tries in (1, 2, 3):
                await wait_until(lambda n=tries: len(webhooks.tried) == n, what="it was tried")
                await self.waits(store, member(task_id, "c"))
                await hurry(store)
            await all_told(store)
        assert len(webhooks.tried) == 4 and len({tried[1] for tried in webhooks.tried}) == 1
        kept = await store.deliveries.look(task_id, "c")
        assert Record.decode(kept.record).attempts == 0

    async def waits(self, store: Store, name: str) -> Record:
        """Returns when it has been put back."""
        task_id, _, config_id = name.partition(" ")
        before = store.clock.now()

        async def put_back() -> bool:
            kept = await store.deliveries.look(task_id, config_id)
            score = (await listed(store, store.keys.pushes)).get(name, 0)
            late = Record.decode(kept.record).attempts > 0
            return late and before < score < before + store.deliveries.lease

        await wait_until(put_back, what="it waits to be tried again")
        return Record.decode((await store.deliveries.look(task_id, config_id)).record)

    async def test_what_comes_after_waits_for_it(self, store: Store, settings: Settings) -> None:
        task_id = await new_task(store, configs=[config(store)])
        async with delivering(store, settings) as webhooks:
            webhooks.answer = lambda _, __: Failed("HTTP 500") if len(webhooks.tried) < 2 else None
            record = await self.waits(store, member(task_id, "c"))
            assert (record.attempts, record.trouble) == (1, "HTTP 500")
            await ran(store, task_id, status(WORKING), status(COMPLETED))
            await hurry(store)
            await all_told(store)
        assert texts(webhooks.events()) == ["task SUBMITTED", "WORKING", "COMPLETED"]

    async def test_as_late_as_it_asks_for(self, store: Store, settings: Settings) -> None:
        task_id = await new_task(store, configs=[config(store)])
        before = store.clock.now()
        async with delivering(store, settings) as webhooks:
            webhooks.answer = lambda _, __: Failed("HTTP 429", retry_after=3_000)

            async def late() -> bool:
                scores = await listed(store, store.keys.pushes)
                return scores.get(member(task_id, "c"), 0) >= before + 3_000_000

            await wait_until(late, what="it waits")
        assert len(webhooks.tried) == 1

    async def test_one_that_wants_no_more_is_given_up(
        self, store: Store, settings: Settings
    ) -> None:
        task_id = await new_task(store, configs=[config(store)])
        async with delivering(store, settings) as webhooks:
            webhooks.answer = lambda _, __: Failed("HTTP 410", final=True)
            await all_told(store)
            await ran(store, task_id, status(WORKING), status(COMPLETED))
            await all_told(store)
        assert len(webhooks.tried) == 1
        ((name, _),) = await store.deliveries.dead(limit=10)
        assert name == member(task_id, "c")

    async def test_so_is_one_that_fails_for_too_long_and_redriven_it_goes_on(
        self, store: Store, settings: Settings
    ) -> None:
        task_id = await new_task(store, configs=[config(store)])
        webhooks = FakeWebhooks()
        async with delivering(store, settings, webhooks, push_give_up=0.001):
            webhooks.answer = lambda _, __: Failed("HTTP 500")

            async def dead() -> bool:
                await hurry(store)
                return bool(await store.deliveries.dead(limit=10))

            await wait_until(dead, what="it is given up")
            record = Record.decode((await store.deliveries.look(task_id, "c")).record)
            assert record.dead and record.attempts >= 2 and record.trouble == "HTTP 500"
            await ran(store, task_id, status(WORKING))
            await all_told(store)
            webhooks.answer = lambda _, __: None
            assert await store.deliveries.redrive(task_id, "c")
            await all_told(store)
        assert texts(webhooks.events()) == ["task SUBMITTED", "WORKING"]

    async def test_a_receiver_that_hangs_keeps_no_other_waiting(
        self, store: Store, settings: Settings
    ) -> None:
        free = asyncio.Event()

        async def hang() -> None:
            await free.wait()

        dead, live = "https://dead.test", "https://live.test"
        for _ in range(10):
            await new_task(store, configs=[config(store, "dead", url=dead)])
        async with delivering(store, settings, push_concurrency=4) as webhooks:
            webhooks.answer = lambda config, _: hang() if config["url"] == dead else None
            await wait_until(lambda: len(webhooks.tried) == 2, what="it hangs")
            for _ in range(5):
                await new_task(store, configs=[config(store, "live", url=live)])
            await wait_until(lambda: len(webhooks.events("live")) == 5, what="the others heard")
            assert webhooks.events("dead") == []
            free.set()
            await wait_until(lambda: len(webhooks.events("dead")) == 10, what="so did it")

    def test_each_wait_is_longer(self) -> None:
        waits = [delay_of(attempts) for attempts in range(1, 200)]
        assert all(1 <= wait <= 750 for wait in waits)
        assert all(2 ** (n - 1) <= delay_of(n) <= 1.25 * 2 ** (n - 1) for n in range(1, 10))
        assert all(wait >= 600 for wait in waits[10:])

    def test_receivers_share_the_places(self) -> None:
        places = Receivers(8)
        assert [places.enter("a") is None for _ in range(5)] == [True] * 4 + [False]
        assert places.enter("b") is None
        places.leave("a", failed=True)
        assert places.enter("a") is not None  # three are under way: more than a failing one gets
        for _ in range(3):
            places.leave("a", failed=False)
        assert [places.enter("a") is None for _ in range(5)] == [True] * 4 + [False]


class TestWhateverDies:
    @pytest.mark.parametrize("how", ["before", "between", "lost"])
    async def test_cut_at_each_step(self, store: Store, settings: Settings, how: How) -> None:
        """Each time another pipeline fails; what is due again is found when its lease is over."""
        for at in range(1, 14):
            task_id = await new_task(store, configs=[config(store)])
            await ran(store, task_id, status(WORKING), chunk("a"), status(COMPLETED))
            webhooks = FakeWebhooks()
            cut = Cut(store.commit, at=at, how=how)
            async with delivering(store, settings, webhooks):
                await wait_until(
                    lambda c=cut, w=webhooks: c.hit or len(w.told) >= 4, what="it is cut"
                )
                cut.heal()

                async def told() -> bool:
                    for name, score in (await listed(store, store.keys.pushes)).items():
                        if score > store.clock.now() + store.deliveries.lease / 2:
                            await hurry(store, name)
                    return await listed(store, store.keys.pushes) == {}

                await wait_until(told, what="all has been told")
            first: dict[str, Json] = {}
            for _, delivery, event in webhooks.told:
                assert first.setdefault(delivery, event) == event
            assert texts(list(first.values())) == ["task SUBMITTED", "WORKING", "a", "COMPLETED"]

    async def test_two_at_work_on_everything(self, store: Store, settings: Settings) -> None:
        """Leases end at random, and appends and their announcements are cut."""
        luck = random.Random(7)
        one, two = FakeWebhooks(), FakeWebhooks()
        one.answer = two.answer = lambda _, __: Failed("no") if luck.random() < 0.2 else None
        tasks = [await new_task(store, configs=[config(store, f"c{n}")]) for n in range(6)]
        async with delivering(store, settings, one), delivering(store, settings, two):
            runs = [await open_run(store, task_id) for task_id in tasks]
            for run in runs:
                await run.write(status(WORKING))
            for n in range(30):
                for run in runs:
                    await run.write(chunk(f"{n}", append=n > 0))
                if luck.random() < 0.3:
                    await hurry(store)
                await asyncio.sleep(0)
            for run in runs:
                await run.write(status(COMPLETED))
                await run.flush()

            one.answer = two.answer = lambda _, __: None
            looks = itertools.count()

            async def told() -> bool:
                # Leases go on ending: two that take each other's work away still get it done.
                if next(looks) % 25 == 0:
                    await hurry(store)
                return await listed(store, store.keys.pushes) == {}

            await wait_until(told, what="all has been told")
        for n in range(6):
            assert set(texts(one.events(f"c{n}") + two.events(f"c{n}"))) == {
                *("task SUBMITTED", "WORKING", "COMPLETED"),
                *(f"{n}" for n in range(30)),
            }

    async def test_an_announcement_that_was_lost_is_made_up_for(
        self, store: Store, settings: Settings
    ) -> None:
        task_id = await new_task(store, configs=[config(store)])
        await ran(store, task_id, status(WORKING), status(COMPLETED))
        await store.commit(command("DEL", store.keys.pushes))
        async with delivering(store, settings) as webhooks:
            await due(store, task_id)
            await Reconciler(store, settings).look()
            await wait_until(lambda: len(webhooks.told) == 3, what="all has been told")

    async def test_drained_it_leaves_the_rest_due_at_once(
        self, store: Store, settings: Settings
    ) -> None:
        await new_task(store, configs=[config(store)])
        never = asyncio.Event()

        async def hang() -> None:
            await never.wait()

        webhooks = FakeWebhooks()
        webhooks.answer = lambda _, __: hang()
        deliverer = Deliverer(store, settings, webhooks)  # type: ignore[arg-type]
        running = asyncio.create_task(deliverer.run())
        await wait_until(lambda: len(webhooks.tried) == 1, what="it is under way")
        await deliverer.drain(timedelta(milliseconds=1))
        await running
        async with delivering(store, settings) as webhooks:
            await all_told(store)
        assert texts(webhooks.events()) == ["task SUBMITTED"]


def test_an_id_is_of_one_delivery() -> None:
    made = {
        delivery_id(task, config, Position(seq, mark))
        for task in ("t", "u")
        for config in ("c", "d")
        for seq in (1, 2)
        for mark in ("m", "n")
    }
    assert len(made) == 16
    assert delivery_id("t", "c", Position(1, "m")) in made
