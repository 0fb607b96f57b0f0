"""Every operation of more than one step, cut at each of them: before it, in the middle, and after
it with the answer lost. Repeated by whoever would repeat it, it must come out whole.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

import pytest

from switchroom.protocol.model import TaskState
from switchroom.store import Store
from switchroom.store.attempt import RunEnded
from switchroom.store.claims import claim_for
from switchroom.store.commit import GroupCommit, StoreUnavailable
from switchroom.store.scripts import command
from switchroom.store.tasks import Accepted, new_mark
from tests.support.acts import (
    CONTEXT,
    OWNER,
    begin,
    chunk,
    entries_of,
    follow_up,
    intact,
    message,
    new_id,
    new_task,
    open_run,
    pages,
    send_of,
    settled,
    status,
    view_of_task,
)
from tests.support.faults import Cut, How
from tests.support.wait import wait_until

T = TypeVar("T")
WORKING, ASKING = TaskState.WORKING, TaskState.INPUT_REQUIRED
COMPLETED, CANCELED = TaskState.COMPLETED, TaskState.CANCELED

pytestmark = pytest.mark.parametrize("how", ["before", "between", "lost"])


async def each_step(lane: GroupCommit, how: How) -> AsyncIterator[Callable[[], Cut]]:
    """Gives what cuts the lane from now on: at its first pipeline, then at its second, … until
    an operation is through before it is cut.
    """
    for at in range(1, 40):
        cuts: list[Cut] = []

        def arm(at: int = at, cuts: list[Cut] = cuts) -> Cut:
            cuts.append(Cut(lane, at=at, how=how))
            return cuts[-1]

        yield arm
        (cut,) = cuts
        cut.heal()
        if not cut.hit:
            assert at > 1, "nothing was cut"
            return
    raise AssertionError("it never passed uncut")


async def again(operation: Callable[[], Awaitable[T]]) -> T:
    """The operation, repeated until it is known how it went."""
    while True:
        try:
            return await operation()
        except StoreUnavailable:
            continue


async def asking(store: Store) -> str:
    task_id = await new_task(store)
    run = await open_run(store, task_id)
    await run.write(status(WORKING))
    await run.write(status(ASKING, "Which?"))
    await run.flush()
    await settled(store)
    return task_id


async def test_a_first_send(store: Store, how: How) -> None:
    made = 0
    async for arm in each_step(store.commit, how):
        task_id, owner = new_id(), f"/{new_id()}"
        claim = claim_for(
            "SendMessage",
            {"id": task_id},
            message_id="m",
            key=None,
            idempotency="request",
        )

        async def send(task_id: str = task_id, owner: str = owner) -> Accepted:
            # Each try is another gateway's, with a task id of its own.
            mine = task_id if not cut.hit else new_id()  # noqa: B023
            take = claim.take(store.keys, owner, mine, 60_000)  # noqa: B023
            (held,) = await store.commit(take)
            task = held.decode().split()[0] if held else mine
            asked = send_of(store, task, digest=claim.digest, owner=owner)  # noqa: B023
            return await store.tasks.accept(asked, then=[store.queue.enqueueing(task, 1)])

        cut = arm()
        accepted = await again(send)
        cut.heal()
        assert accepted.turn == 1
        made += 1
        page = await pages(store, size=10, owner=owner)
        ((task,),) = page
        await intact(store, task["id"], owner=owner)
        assert await store.queue.is_queued([(task["id"], 1)]) == [True]
    assert await store.queue.depth() == made


async def test_a_follow_up(store: Store, how: How) -> None:
    async for arm in each_step(store.commit, how):
        task_id = await asking(store)
        send = send_of(
            store, task_id, new=False, digest="d2", at=store.clock.now() + 10, said=message("Paris")
        )

        async def follow() -> None:
            accepted = await store.tasks.accept(send)  # noqa: B023
            assert accepted.outcome in ("more", "known")
            await store.queue.enqueue(task_id, accepted.turn)  # noqa: B023

        cut = arm()
        await again(follow)
        cut.heal()
        task = await intact(store, task_id)
        assert [m["parts"][0]["text"] for m in task["history"]] == ["hello", "Which?", "Paris"]
        assert await store.queue.is_queued([(task_id, 2)]) == [True]


async def whole_run(store: Store, task_id: str, turn: int, last: str) -> None:
    mark = new_mark()
    begun = await again(lambda: begin(store, task_id, turn, run=mark))
    run = store.runs.open(begun, lambda why: None)
    for event in (
        status(WORKING),
        chunk("1", f"{turn}"),
        chunk("2", f"{turn}", append=True),
        status(last, "said"),
    ):
        await run.write(event)
        await run.flush()
    await settled(store)


async def test_a_run_whose_worker_lives(store: Store, how: How) -> None:
    task_id, turn = await new_task(store), 1
    async for arm in each_step(store.commit, how):
        cut = arm()
        await whole_run(store, task_id, turn, ASKING)
        cut.heal()
        task = await intact(store, task_id)
        assert len(task["artifacts"]) == turn
        assert {len(a["parts"]) for a in task["artifacts"]} == {2}
        assert len(await entries_of(store, task_id)) == 5 * turn
        assert (await follow_up(store, task_id)).outcome == "more"
        turn += 1


@pytest.mark.parametrize("last", [COMPLETED, ASKING])
async def test_a_run_whose_worker_dies(store: Store, how: How, last: str) -> None:
    async for arm in each_step(store.commit, how):
        task_id = await new_task(store)
        cut = arm()
        run = None
        try:
            run = await open_run(store, task_id)
        except StoreUnavailable:
            pass
        if run is not None:

            async def work(run: object = run) -> None:
                for event in (status(WORKING), chunk("half"), chunk("er", append=True)):
                    await run.write(event)  # type: ignore[attr-defined]
                    await run.flush()  # type: ignore[attr-defined]
                await run.write(status(last, "said"))  # type: ignore[attr-defined]
                await run.flush()  # type: ignore[attr-defined]

            worker = asyncio.create_task(work())
            await wait_until(lambda: cut.hit or worker.done(), what="it dies or is through")  # noqa: B023
            worker.cancel()
            await asyncio.wait([worker])
            await run.close()
        cut.heal()
        await settled(store)
        lost = await view_of_task(store, task_id)
        if lost.done == 0:
            await whole_run(store, task_id, 1, last)
        else:
            with pytest.raises(RunEnded, match="stale"):
                await begin(store, task_id)
        task = await intact(store, task_id)
        assert task["status"]["state"] == last
        assert len(task["artifacts"]) == 1


@pytest.mark.parametrize("lane", ["commit", "reads"])
@pytest.mark.parametrize("running", [True, False])
async def test_a_cancel(store: Store, how: How, lane: str, running: bool) -> None:
    task_ids = [await new_task(store) for _ in range(12)]
    if running:
        for task_id in task_ids:
            await open_run(store, task_id)
    async for arm in each_step(getattr(store, lane), how):
        task_id = task_ids.pop()

        async def cancel(task_id: str = task_id) -> None:
            found, state = await store.tasks.request_cancel(task_id, owner=OWNER)
            if found == "terminal":
                assert state == CANCELED
            view = await store.tasks.end(task_id, CANCELED, force=True)
            assert view is not None and view.state == CANCELED

        cut = arm()
        await again(cancel)
        await settled(store)
        cut.heal()
        await intact(store, task_id)
        assert len(await entries_of(store, task_id)) == 2


async def test_showing(store: Store, how: How) -> None:
    async for arm in each_step(store.commit, how):
        task_id, at = await new_task(store, shown=False), store.clock.now()
        cut = arm()
        shown = await again(
            lambda: store.tasks.show(task_id, owner=OWNER, context_id=CONTEXT, at=at)  # noqa: B023
        )
        cut.heal()
        assert shown
        await intact(store, task_id)


async def test_giving_back(store: Store, how: How) -> None:
    task_ids = [await new_task(store) for _ in range(5)]
    runs = [await open_run(store, task_id) for task_id in task_ids]
    async for arm in each_step(store.commit, how):
        task_id, run = task_ids.pop(), runs.pop()
        cut = arm()
        await again(lambda: run.release(counted=False))  # noqa: B023
        cut.heal()
        view = await view_of_task(store, task_id)
        assert (view.running, view.attempt) == (False, 0)
        await intact(store, task_id)


async def test_a_page(store: Store, how: How) -> None:
    now = store.clock.now()
    made = [await new_task(store, at=now - 120_000 + at) for at in range(7)]
    for task_id in made[::3]:
        await store.commit(
            store.lists.entering(OWNER, CONTEXT, WORKING, task_id=task_id, at=now - 61_000)
        )
    for lane in (store.reads, store.commit):
        async for arm in each_step(lane, how):
            await settled(store)
            for task_id in made[::3]:
                await store.commit(command("ZADD", store.keys.tasks(OWNER), now - 61_000, task_id))
            arm()
            found = await again(lambda: pages(store, size=2))
            assert [task["id"] for page in found for task in page] == made[::-1]


async def test_a_push_config(store: Store, how: How) -> None:
    task_id = await new_task(store)
    kept = 0
    async for arm in each_step(store.commit, how):
        kept += 1
        name = f"c{kept}"
        arm()
        assert await again(lambda: store.pushes.put(task_id, name, {"id": name}))  # noqa: B023
        assert [c["id"] for c in await store.pushes.all(task_id)][-1] == name
    await again(lambda: store.pushes.delete(task_id, "c1"))
    assert len(await store.pushes.all(task_id)) == kept - 1


async def test_a_claim_that_is_replaced(store: Store, how: How) -> None:
    owner = "/o"
    claim = claim_for("SendMessage", {}, message_id="m", key=None, idempotency="request")
    old = "none yet"
    async for arm in each_step(store.commit, how):
        new = new_id()
        arm()
        await again(lambda: store.commit(claim.take(store.keys, owner, old, 60_000)))  # noqa: B023
        replace = claim.replace(store.keys, owner, claim.value(old), new, 60_000)
        (answer,) = await again(lambda: store.commit(replace))  # noqa: B023
        assert answer[2].decode() == claim.value(new)
        old = new
