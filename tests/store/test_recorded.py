"""What each release has stored is read by this one, and gone on with. And what is too new is left
alone.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

import switchroom
from switchroom.protocol.errors import Unavailable, UnsupportedOperation
from switchroom.protocol.model import Json
from switchroom.settings import Settings
from switchroom.store import Store
from switchroom.store.attempt import RunEnded
from switchroom.store.formats import READS, WRITES, NewerFormat
from switchroom.store.scripts import command
from switchroom.worker.reconcile import Reconciler
from tests.store.record import RECORDED, agent, load
from tests.support.acts import begin, chunk, new_task, open_run, status, stored
from tests.support.house import Gateway, House, house_of, text
from tests.support.wait import wait_until

VERSIONS = sorted(folder.name for folder in RECORDED.iterdir())
CENTURY = 3_000_000_000
STATES = {
    "completed": "TASK_STATE_COMPLETED",
    "waiting": "TASK_STATE_INPUT_REQUIRED",
    "asked again": "TASK_STATE_WORKING",
    "canceled": "TASK_STATE_CANCELED",
    "at work": "TASK_STATE_WORKING",
    "at work again": "TASK_STATE_WORKING",
    "submitted": "TASK_STATE_SUBMITTED",
}
TEXTS = {
    "completed": "echo",
    "waiting": "half",
    "asked again": "half",
    "canceled": "half",
    "at work": "half ",
    "at work again": "half ",
    "submitted": "",
}
ENDS = {**TEXTS, "asked again": "halfgo on", "submitted": "echo"}
ENDS |= dict.fromkeys(("at work", "at work again"), "half and half")


def test_this_release_is_recorded() -> None:
    assert switchroom.__version__ in VERSIONS, "run: python -m tests.store.record"


@pytest.fixture
async def old_house(settings: Settings) -> AsyncIterator[House]:
    """However long ago it was recorded."""
    lives = {"retention": CENTURY, "interrupted_limit": CENTURY}
    async with house_of(settings, push_allow="example.com", **lives) as opened:
        yield opened


@pytest.fixture(params=VERSIONS)
async def recorded(request: pytest.FixtureRequest, store_url: str) -> Json:
    return await load(store_url, request.param)


@pytest.fixture
async def gateway(recorded: Json, old_house: House) -> Gateway:
    return await old_house.gateway()


def follow_up(task_id: str) -> Json:
    return {"message": {"messageId": "m", "role": "ROLE_USER", "taskId": task_id, "parts": ECHO}}


ECHO = [{"text": "go on"}]


async def test_a_gateway_reads_and_lists_it(recorded: Json, gateway: Gateway) -> None:
    listed = {task["id"]: task for task in (await gateway.list(includeArtifacts=True))["tasks"]}
    assert set(listed) == set(recorded["tasks"].values())
    for kind, task_id in recorded["tasks"].items():
        task = await gateway.get(task_id)
        assert (task["status"]["state"], text(task)) == (STATES[kind], TEXTS[kind]), kind
        assert listed[task_id] == {"artifacts": [], **task}, kind
    for state in set(STATES.values()):
        page = await gateway.list(status=state)
        found = {task["id"] for task in page["tasks"]}
        assert found == {recorded["tasks"][kind] for kind in STATES if STATES[kind] == state}
    (one,) = (await gateway.list(contextId="a context"))["tasks"]
    assert one["id"] == recorded["tasks"]["submitted"]


async def test_a_gateway_follows_it(recorded: Json, gateway: Gateway) -> None:
    for kind, task_id in recorded["tasks"].items():
        view = await gateway.store.tasks.read(task_id)
        assert view is not None
        rows = next(k["value"] for k in recorded["keys"] if k["key"].endswith(f"{task_id}}}:log"))
        positions = [f"{i.partition('-')[0]}.{fields['m']}" for i, fields in rows.items()]
        for missed, position in enumerate(reversed(positions[:-1]), 1):
            async with gateway.subscribe(task_id, after=position) as stream:
                # An accepted input is not shown.
                shown = positions[-missed:]
                shown = [p for p in shown if rows[f"{p.partition('.')[0]}-0"]["k"] != "input"]
                assert [(await stream.next()).id for _ in shown] == shown, kind
        if view.terminal:
            with pytest.raises(UnsupportedOperation):
                await gateway.call("SubscribeToTask", {"id": task_id})
        else:
            async with gateway.subscribe(task_id) as stream:
                first = await stream.next()
                assert (first.id, first.event["task"]) == (
                    positions[-1],
                    await gateway.get(task_id),
                )


async def test_a_repeated_send_is_one(recorded: Json, gateway: Gateway) -> None:
    depth = await gateway.store.queue.depth()
    for kind, sent in recorded["sends"].items():
        answer = await gateway.call("SendMessage", sent["params"], key=sent["key"])
        if kind == "answered":
            assert answer["message"]["parts"] == [{"text": "No task"}]
        elif kind != "canceled":  # whose claim has ended with it
            assert answer["task"]["id"] == recorded["tasks"][kind], kind
    new = await gateway.store.queue.depth() - depth
    assert new <= len(recorded["sends"])
    listed = (await gateway.list())["tasks"]
    assert len(listed) == len(recorded["tasks"]) + 1


async def test_push_configs_are_kept(recorded: Json, gateway: Gateway) -> None:
    for kind in ("completed", "at work"):
        found = await gateway.call(
            "ListTaskPushNotificationConfigs", {"taskId": recorded["tasks"][kind]}
        )
        (config,) = found["configs"]
        assert (config["id"], config["url"]) == ("hook", "https://example.com/hook")


async def test_a_worker_goes_on_with_it(recorded: Json, gateway: Gateway, old_house: House) -> None:
    tasks = recorded["tasks"]
    assert await gateway.store.queue.depth() == 4
    await old_house.worker(agent)
    for kind in ("at work", "at work again", "asked again", "submitted"):
        await old_house.state(tasks[kind], "TASK_STATE_COMPLETED")
    answer = await gateway.call("SendMessage", follow_up(tasks["waiting"]))
    assert answer["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
    for kind, task_id in tasks.items():
        task = await gateway.get(task_id)
        assert text(task) == ENDS[kind] + ("go on" if kind == "waiting" else ""), kind


async def test_the_reconciler_looks_after_it(
    recorded: Json, gateway: Gateway, old_house: House
) -> None:
    store = gateway.store
    await store.commit(command("DEL", store.keys.queue.queue, store.keys.queue.running))
    (due,) = await store.commit(command("ZRANGE", store.keys.open, 0, -1))
    reconciler = Reconciler(store, old_house.settings)
    for _ in range(2):
        rows = [w for task_id in due for w in ("1.5", task_id)]
        await store.commit(command("ZADD", store.keys.open, *rows))
        await reconciler.look()
    assert await store.queue.depth() == 4
    (left,) = await store.commit(command("ZRANGE", store.keys.open, 0, -1))
    ended = {recorded["tasks"][kind] for kind in ("completed", "canceled")}
    assert {i.decode() for i in left} == {*recorded["tasks"].values()} - ended


# -- what is too new


async def newer(store: Store, task_id: str) -> None:
    """A release after the next has written it."""
    await store.commit(command("HSET", store.keys.task(task_id), "v", READS + 1, "in", "?"))


async def test_what_this_release_writes_bears_its_number(store: Store) -> None:
    assert WRITES <= READS
    task_id = await new_task(store)
    assert (await stored(store, task_id))["v"] == b"%d" % WRITES
    run = await open_run(store, task_id)
    await run.write(status("TASK_STATE_WORKING"))
    await run.flush()
    await store.commit(command("DEL", *store.keys.of_task(task_id)))
    await run.write(chunk("1"))
    await run.flush()
    assert (await stored(store, task_id))["v"] == b"%d" % WRITES


async def test_what_has_no_number_is_read(store: Store) -> None:
    task_id = await new_task(store)
    await store.commit(command("HDEL", store.keys.task(task_id), "v"))
    assert await store.tasks.read(task_id) is not None
    assert (await begin(store, task_id)).attempt == 1


async def test_a_gateway_says_that_it_is_too_old(house: House) -> None:
    gateway = await house.gateway()
    task_id = (await gateway.send("hi", returnImmediately=True))["id"]
    before = await gateway.get(task_id)
    await newer(gateway.store, task_id)
    calls: dict[str, Any] = {
        "GetTask": {"id": task_id},
        "ListTasks": {},
        "SubscribeToTask": {"id": task_id},
        "CancelTask": {"id": task_id},
        "SendMessage": follow_up(task_id),
    }
    for method, params in calls.items():
        with pytest.raises(Unavailable, match="newer release") as refused:
            await gateway.call(method, params)
        assert refused.value.retry_after
    assert (before["status"]["state"], await gateway.store.queue.depth()) == (
        "TASK_STATE_SUBMITTED",
        1,
    )


async def test_a_worker_leaves_it_for_a_newer_one(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    gateway = await house.gateway()
    store = gateway.store
    task_id = (await gateway.send("too new", returnImmediately=True))["id"]
    await newer(store, task_id)
    before = await stored(store, task_id)
    with pytest.raises(RunEnded, match="newer"):
        await begin(store, task_id)
    worker = await house.worker(agent)
    assert text(await gateway.send("fine")) == "fine"
    await wait_until(lambda: not worker.leased.owned, what="it holds nothing")
    assert await store.queue.is_queued([(task_id, 1)]) == [True]
    assert await stored(store, task_id) == before
    assert f"task {task_id}: left for a worker of a newer release" in caplog.text
    await store.commit(command("ZADD", store.keys.open, 1, task_id))
    await store.commit(command("DEL", store.keys.queue.queue))
    await Reconciler(store, house.settings).look()
    (score,) = await store.commit(command("ZSCORE", store.keys.open, task_id))
    assert float(score) > store.clock.now(), "it is looked at again, and nothing is done"
    assert await store.queue.depth() == 0
    assert await stored(store, task_id) == before
    with pytest.raises(NewerFormat):
        await store.tasks.end(task_id, "TASK_STATE_CANCELED", force=True)  # type: ignore[arg-type]


async def test_its_worker_comes(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    gateway = await house.gateway()
    monkeypatch.setattr("switchroom.worker.run._NEWER", 0.05)
    task_id = (await gateway.send("hi", returnImmediately=True))["id"]
    key = gateway.store.keys.task(task_id)
    await gateway.store.commit(command("HSET", key, "v", READS + 1))
    worker = await house.worker(agent)
    await wait_until(
        lambda: hasattr(worker, "leased") and worker.leased.jobs_complete >= 2,
        what="it was declined twice",
    )
    await gateway.store.commit(command("HSET", key, "v", READS))
    await house.state(task_id, "TASK_STATE_COMPLETED")
    assert (await house.view(task_id)).attempt == 1
