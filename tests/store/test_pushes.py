"""Push configs: kept with their task, gone with it."""

from __future__ import annotations

from switchroom.protocol.model import TaskState
from switchroom.store import Store
from switchroom.store.scripts import command
from tests.support.acts import new_id, new_task, open_run, status


async def left(store: Store, task_id: str) -> list[int]:
    keys = store.keys
    found = await store.commit(
        command("PTTL", keys.task(task_id)), command("PTTL", keys.push(task_id))
    )
    return [int(ms) for ms in found]


async def test_what_is_put_is_there(store: Store) -> None:
    task_id, other = await new_task(store), await new_task(store)
    config = {"id": "b", "url": "https://x.test", "n": 10**30}
    assert await store.pushes.put(task_id, "b", config)
    assert await store.pushes.put(task_id, "a", {"id": "a"})
    assert await store.pushes.get(task_id, "b") == config
    assert await store.pushes.all(task_id) == [{"id": "a"}, config]
    assert await store.pushes.get(task_id, "c") is None
    assert await store.pushes.all(other) == []


async def test_put_again_it_is_replaced(store: Store) -> None:
    task_id = await new_task(store)
    for url in ("one", "two"):
        assert await store.pushes.put(task_id, "a", {"url": url})
    assert await store.pushes.all(task_id) == [{"url": "two"}]


async def test_there_may_be_so_many(store: Store) -> None:
    task_id = await new_task(store)
    for n in range(store.pushes.most):
        assert await store.pushes.put(task_id, f"{n:03}", {"id": n})
    assert not await store.pushes.put(task_id, "more", {})
    assert await store.pushes.put(task_id, "000", {"id": "again"})
    await store.pushes.delete(task_id, "001")
    assert await store.pushes.put(task_id, "more", {})
    assert len(await store.pushes.all(task_id)) == store.pushes.most


async def test_deleted_twice_is_deleted(store: Store) -> None:
    task_id = await new_task(store, configs=[("a", b"{}")])
    for _ in range(2):
        await store.pushes.delete(task_id, "a")
    assert await store.pushes.all(task_id) == []
    await store.pushes.delete(new_id(), "a")


async def test_of_an_absent_task_there_is_none(store: Store) -> None:
    task_id = new_id()
    assert not await store.pushes.put(task_id, "a", {})
    assert await store.pushes.all(task_id) == []


async def test_they_live_as_long_as_their_task(store: Store) -> None:
    task_id = await new_task(store)
    await store.commit(command("PEXPIRE", store.keys.task(task_id), 5_000))
    await store.pushes.put(task_id, "a", {})
    task, push = await left(store, task_id)
    assert 0 < push <= 5_000 and abs(task - push) < 100
    run = await open_run(store, task_id)
    await run.write(status(TaskState.WORKING))
    await run.flush()
    for last in await left(store, task_id):
        assert last > 1_000_000
    await run.write(status(TaskState.COMPLETED))
    await run.flush()
    ends = store.tasks.lifetimes.ended
    for last in await left(store, task_id):
        assert ends - 60_000 < last <= ends
