"""A worker process: takes turns from the queue and runs the agent, until it is asked to stop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta

from switchroom.agent import Agent
from switchroom.settings import Settings
from switchroom.store import Store
from switchroom.store.commit import StoreUnavailable
from switchroom.store.leased import LeasedJob
from switchroom.worker.deliver import Deliverer
from switchroom.worker.reconcile import Reconciler
from switchroom.worker.run import Runner
from switchroom.worker.webhook import Webhooks

__all__ = ["serve"]

_log = logging.getLogger("switchroom.worker")


async def serve(
    settings: Settings, agent: Agent | None, *, store: Store | None = None, stop: asyncio.Event
) -> None:
    """Works until `stop` is set, then drains: running turns finish within `settings.drain`, the
    rest go back to the front of the queue, no attempt counted.

    agent: None moves states only.  store: an open one to share; otherwise one is opened and closed.
    Raises `connect.ServerError` if Redis cannot be used at the start; later outages are survived.
    """
    mine = store is None
    store = store or await Store.open(settings)
    try:
        await _work(settings, agent, store, stop)
    finally:
        if mine:
            await store.close()


async def _work(settings: Settings, agent: Agent | None, store: Store, stop: asyncio.Event) -> None:
    runner = Runner(store, agent, settings)
    deliverer = Deliverer(store, settings, Webhooks(settings))

    async def on_renewed(held: Sequence[LeasedJob], gone: Sequence[LeasedJob]) -> None:
        await runner.renewed(worker, held, gone)

    worker = store.queue.worker(
        runner,
        subscriber=store.queue_subscriber,
        lease=settings.lease,
        concurrency=settings.concurrency,
        on_renewed=on_renewed,
        # An answer to `take` that is lost costs an attempt then: not for agents that have only one.
        begins=store.keys.task("%s") if runner.attempts > 1 else None,
    )
    while not stop.is_set():
        with suppress(StoreUnavailable):  # which it says only after it has waited
            await store.subscriber.subscribe(store.keys.control, runner.hear)
            break
    try:
        async with asyncio.TaskGroup() as group:
            works = group.create_task(worker.main())
            reconciles = group.create_task(Reconciler(store, settings).run())
            delivers = group.create_task(deliverer.run())
            await stop.wait()
            reconciles.cancel()
            _log.info("draining: %d runs in progress", len(runner.active))
            drained = group.create_task(deliverer.drain(settings.drain))
            await worker.drain(settings.drain)
            runner.release_all()
            await worker.drain(settings.cancel_grace + timedelta(seconds=2))
            await drained
            works.cancel()
            delivers.cancel()
    finally:
        store.subscriber.unsubscribe(store.keys.control)
        await worker.close()
