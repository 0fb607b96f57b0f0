"""A task that cannot be run ends alone: not its worker, not the tasks beside it, and not never."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest

from switchroom.agent import Event, Run
from switchroom.store import Store
from switchroom.store.scripts import command
from switchroom.worker.reconcile import Reconciler
from tests.support.acts import due, open_tasks
from tests.support.agents import Held
from tests.support.damage import Damage, field, garbled_entry, lost_log, no_hash, no_log
from tests.support.faults import Cut, How
from tests.support.house import Gateway, House, message, said, text
from tests.support.wait import wait_until

WORKING, COMPLETED = "TASK_STATE_WORKING", "TASK_STATE_COMPLETED"
FAILED, ASKS = "TASK_STATE_FAILED", "TASK_STATE_INPUT_REQUIRED"

FATAL: dict[str, Damage] = {
    "no input": field("in", None),
    "another input": field("in", b"\x00{"),
    "no turn": field("turn", b"first"),
    "no fence": field("fence", b""),
}
"""Damage to a waiting task that no run survives."""

HARMLESS: dict[str, Damage] = {"its entry": garbled_entry(0), "its log": lost_log}
"""Damage to a waiting task that a run makes good, since it has what was asked."""

HOPELESS: dict[str, Damage] = {"the log is none": no_log, "the hash is none": no_hash}
"""What does not even allow an end."""


async def agent(run: Run) -> AsyncIterator[Event]:
    if run.text == "ask":
        yield run.ask("Which?")
    else:
        yield run.text


async def nothing_queued(store: Store) -> bool:
    return await store.queue.depth() == 0


@pytest.mark.parametrize("apart", [False, True], ids=["one redis", "a queue of its own"])
@pytest.mark.parametrize("damage", FATAL)
async def test_a_waiting_task_whose_turn_cannot_be_read_fails(
    house: House, caplog: pytest.LogCaptureFixture, damage: str, apart: bool
) -> None:
    where: dict[str, Any] = {"queue_url": f"fake://{id(house)}"} if apart else {}
    gateway = await house.gateway(**where)
    task = await gateway.send("hi", returnImmediately=True)
    await FATAL[damage](gateway.store, task["id"])
    await house.worker(agent, **where)
    await house.state(task["id"], FAILED)
    failed = await gateway.get(task["id"])
    found = re.fullmatch(r"The task cannot be continued\. Reference: (\w+)", said(failed))
    assert found and failed["status"]["message"]["contextId"] == task["contextId"]
    (line,) = [r.getMessage() for r in caplog.records if found[1] in r.getMessage()]
    assert task["id"] in line and ("cannot be read" in line or "numbers" in line)
    assert text(await gateway.send("and on")) == "and on"
    await wait_until(lambda: nothing_queued(gateway.store), what="its job is gone")


@pytest.mark.parametrize("damage", HARMLESS)
async def test_a_waiting_task_whose_log_cannot_be_read_runs(house: House, damage: str) -> None:
    gateway = await house.gateway()
    task = await gateway.send("hi", returnImmediately=True)
    await HARMLESS[damage](gateway.store, task["id"])
    assert (await gateway.get(task["id"]))["status"] == task["status"]
    await house.worker(agent)
    await house.state(task["id"], COMPLETED)
    assert text(await gateway.get(task["id"])) == "hi"


@pytest.mark.parametrize("damage", HOPELESS)
async def test_a_task_that_cannot_even_be_ended_is_left_alone(
    house: House, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    gateway = await house.gateway()
    task = await gateway.send("hi", returnImmediately=True)
    await HOPELESS[damage](gateway.store, task["id"])
    worker = await house.worker(agent, attempts=2)
    assert text(await gateway.send("and on")) == "and on"
    await wait_until(lambda: nothing_queued(gateway.store), what="its job is gone")
    await wait_until(lambda: f"task {task['id']}: it cannot be ended" in caplog.text, what="told")
    assert task["id"] not in await open_tasks(gateway.store)
    assert worker.leased.owned == {}


async def test_what_a_turn_began_with_cannot_be_read(house: House) -> None:
    gateway = await house.both(agent)
    task = await gateway.send("ask")
    await field("base", b"{")(gateway.store, task["id"])
    assert (await gateway.get(task["id"]))["status"]["state"] == ASKS
    failed = await gateway.send("on", task=task["id"])
    assert failed["status"]["state"] == FAILED and "cannot be continued" in said(failed)


async def test_a_run_whose_log_turns_bad_is_tried_as_often_as_it_may(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    held = Held()
    worker = await house.worker(held, attempts=2)
    gateway = await house.gateway()
    task = await gateway.send("hi", returnImmediately=True)
    await wait_until(lambda: held.attempts, what="the agent has begun")
    await house.state(task["id"], WORKING)
    await no_log(gateway.store, task["id"])
    held.go.set()
    await wait_until(lambda: nothing_queued(gateway.store), what="it was given up")
    assert held.attempts == [1, 2] and worker.leased.owned == {}
    assert "attempt 1 broke off" in caplog.text
    assert f"task {task['id']}: given up" in caplog.text


@pytest.mark.parametrize("damage", ["no turn", "the hash is none"])
async def test_the_reconciler_gets_past_it(house: House, damage: str) -> None:
    gateway = await house.gateway()
    store = gateway.store
    bad = await gateway.send("bad", returnImmediately=True)
    good = await gateway.send("good", returnImmediately=True)
    await (FATAL | HOPELESS)[damage](store, bad["id"])
    await store.commit(command("DEL", store.keys.queue.queue))
    await due(store, bad["id"], good["id"])
    await Reconciler(store, house.settings).look()
    assert await store.queue.is_queued([(good["id"], 1)]) == [True]
    assert [*await open_tasks(store)] == [good["id"]]
    if damage == "no turn":
        assert (await gateway.get(bad["id"]))["status"]["state"] == FAILED
    await house.worker(agent)
    await house.state(good["id"], COMPLETED)
    await store.commit(command("DEL", f"arq:job:run:{bad['id']}:1"))


async def test_renewals_get_past_it(house: House) -> None:
    """The others beside it are still heard, and keep their leases."""
    begun: list[str] = []

    async def silent(run: Run) -> str:
        begun.append(run.task_id)
        await asyncio.Event().wait()
        return ""

    worker = await house.worker(silent, lease=0.6, redis_timeout=0.5)
    gateway = await house.gateway()
    tasks = [await gateway.send(f"{n}", returnImmediately=True) for n in range(3)]
    await wait_until(lambda: len(begun) == 3, what="all have begun")
    await no_hash(gateway.store, tasks[0]["id"])
    # The flag without its message, so that only a renewal can find it.
    await gateway.store.commit(
        command("HSET", gateway.store.keys.task(tasks[1]["id"]), "cancel", 1)
    )
    await house.state(tasks[1]["id"], "TASK_STATE_CANCELED")
    assert f"run:{tasks[2]['id']}:1" in worker.leased.owned
    await gateway.call("CancelTask", {"id": tasks[2]["id"]})
    await gateway.store.commit(command("DEL", gateway.store.keys.task(tasks[0]["id"])))
    await house.state(tasks[0]["id"], WORKING)  # it is there again
    await gateway.call("CancelTask", {"id": tasks[0]["id"]})


@pytest.mark.parametrize("how", ["before", "between", "lost"])
async def test_giving_up_cut_at_any_step(house: House, how: How) -> None:
    gateway = await house.gateway()
    worker = await house.worker(agent, lease=0.3, redis_timeout=0.2)
    for at in range(1, 20):
        params = message("hi", returnImmediately=True)
        task_id = await damaged(gateway, params)
        cut = Cut(worker.store.commit, at=at, how=how)
        try:
            await gateway.store.queue.enqueue(task_id, 1)
            await house.state(task_id, FAILED)
            await wait_until(lambda: not worker.leased.owned, what="it was let go")
        finally:
            cut.heal()
        if not cut.hit:
            break
    else:
        raise AssertionError("it has fewer steps than that")
    assert at > 1


async def damaged(gateway: Gateway, params: dict[str, Any]) -> str:
    """A task without its input, that no queue knows."""
    store = gateway.store
    real = store.queue.enqueueing
    store.queue.enqueueing = lambda *_: command("PING")  # type: ignore[method-assign, assignment]
    try:
        task_id: str = (await gateway.call("SendMessage", params))["task"]["id"]
    finally:
        store.queue.enqueueing = real  # type: ignore[method-assign]
    await field("in", None)(store, task_id)
    return task_id
