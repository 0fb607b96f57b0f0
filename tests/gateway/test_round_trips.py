"""How often a gateway waits for Redis. Each wait is latency that every client pays."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from switchroom.agent import Event, Run
from switchroom.store.feed import Follower
from tests.support.house import Gateway, House, message
from tests.support.wait import wait_until


async def agent(run: Run) -> Event:
    return run.ask("Which?") if run.text == "ask" else run.complete()


class Trips(NamedTuple):
    """Awaited round trips of one kind each: pipelines of writes, of reads, to the queue's own
    Redis; and SUBSCRIBEs.
    """

    writes: int
    reads: int
    queue: int
    subscribes: int


def so_far(gateway: Gateway) -> Trips:
    store = gateway.store
    apart = store.queue_commit is not store.commit
    return Trips(
        store.commit.round_trips,
        store.reads.round_trips,
        store.queue_commit.round_trips if apart else 0,
        store.subscriber.round_trips,
    )


async def trips(gateway: Gateway, send: Callable[[], Awaitable[object]]) -> Trips:
    """The round trips of a send. Its SUBSCRIBE is held back until the first pipeline is under way,
    which would never be if one waited for the other.
    """
    before = so_far(gateway)
    subscribe = gateway.store.feed.subscribe

    async def beside(task_id: str) -> Follower:
        await wait_until(
            lambda: so_far(gateway).writes > before.writes, what="SUBSCRIBE goes beside the claim"
        )
        return await subscribe(task_id)

    gateway.store.feed.subscribe = beside  # type: ignore[method-assign]
    await send()
    gateway.store.feed.subscribe = subscribe  # type: ignore[method-assign]
    return Trips(*(now - then for now, then in zip(so_far(gateway), before, strict=True)))


async def test_a_first_send_waits_twice(house: House) -> None:
    """The claim beside the SUBSCRIBE; then accept, enqueue and all else in one pipeline."""
    gateway = await house.both(agent)
    expected = Trips(writes=2, reads=0, queue=0, subscribes=1)
    assert await trips(gateway, lambda: gateway.send("hi")) == expected
    assert await trips(gateway, lambda: gateway.send("hi", returnImmediately=True)) == expected


async def test_a_follow_up_waits_three_times(house: House) -> None:
    """The claim and a read beside the SUBSCRIBE; accept; and enqueue, which needs the turn."""
    gateway = await house.both(agent)
    task = await gateway.send("ask")
    assert await trips(gateway, lambda: gateway.send("on", task=task["id"])) == Trips(
        writes=3, reads=0, queue=0, subscribes=1
    )


async def test_with_a_redis_of_its_own_for_the_queue_a_send_waits_three_times(
    house: House,
) -> None:
    gateway = await house.both(agent, queue_url=f"fake://{uuid.uuid4().hex}")
    expected = Trips(writes=2, reads=0, queue=1, subscribes=1)
    assert await trips(gateway, lambda: gateway.send("ask")) == expected
    task = await gateway.send("ask")
    assert await trips(gateway, lambda: gateway.send("on", task=task["id"])) == expected


async def test_a_stream_waits_as_a_blocking_send_does(house: House) -> None:
    gateway = await house.both(agent)

    async def stream() -> None:
        async with gateway.stream("SendStreamingMessage", message("hi")) as opened:
            await opened.rest()

    assert await trips(gateway, stream) == Trips(writes=2, reads=0, queue=0, subscribes=1)


async def test_reading_a_task_waits_once(house: House) -> None:
    gateway = await house.both(agent)
    task = await gateway.send("ask")
    before = so_far(gateway)
    await gateway.get(task["id"])
    assert so_far(gateway) == before._replace(reads=before.reads + 1)
