"""Webhooks hear of everything in order, while receivers fail in every way and workers die."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from redis.asyncio import Redis

from switchroom.store.keys import Keys
from tests.support.processes import Deployment, deployment
from tests.support.receiver import Answer, Heard, receiver
from tests.support.rpc import Rpc, message
from tests.support.wait import wait_until
from tests.system.conftest import AGENT, CARD, Gates

pytestmark = pytest.mark.requires("redis-server")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def tellers(
    tmp_path_factory: pytest.TempPathFactory, gates: Gates
) -> AsyncIterator[Deployment]:
    with deployment(
        tmp_path_factory.mktemp("tellers"),
        agent=AGENT,
        environ={"TEST_GATES": str(gates.folder)},
        CARD=CARD,
        LEASE="2",
        REDIS_TIMEOUT="1",
        RECONCILE_EVERY="1",
        DRAIN="1",
        PUSH_HTTP="true",
        PUSH_PORTS="any",
        PUSH_ALLOW="127.0.0.1",
        PUSH_TIMEOUT="1",
    ) as running:
        await running.start(gateways=2, workers=2)
        yield running


async def test_all_is_told_in_order_whatever_dies(tellers: Deployment, gates: Gates) -> None:
    """Each attempt at a delivery bears the same id and the same body; no event is missed."""
    trouble = itertools.cycle([500, 200, 0, 200, 429, -1, 200, 503, 200])

    def answer(heard: Heard) -> Answer:
        return Answer(next(trouble), {"Retry-After": "1"})

    keys = Keys("switchroom", "main")
    async with (
        Redis.from_url(tellers.redis_url) as redis,
        receiver() as hook,
        Rpc(tellers.gateways[0].url) as one,
    ):
        hook.answering = answer
        tasks = {}
        for n in range(4):
            config = {"url": hook.url(f"/{n}"), "token": "t"}
            sent = {
                "message": message(f"gate hook-{n} 3"),
                "configuration": {
                    "returnImmediately": True,
                    "taskPushNotificationConfig": config,
                },
            }
            tasks[f"/{n}"] = (await one.call("SendMessage", sent))["task"]["id"]
        for task_id in tasks.values():
            await wait_until(lambda t=task_id: gates.runs(t), what="each task is begun")
        # Both that there are, one after the other: every task loses its worker.
        for _ in range(2):
            await tellers.workers[0].kill()
            await tellers.replace_the_dead()
        for n in range(4):
            gates.open(f"hook-{n}")
        hook.answering = lambda heard: Answer()
        for path in tasks:
            await hook.until_state("TASK_STATE_COMPLETED", path)
        for path, task_id in tasks.items():
            mine = [heard for heard in hook.taken if heard.path == path]
            bodies: dict[str, bytes] = {}
            for heard in mine:
                assert bodies.setdefault(heard.delivery, heard.body) == heard.body
                assert heard.headers["x-a2a-notification-token"] == "t"
            rows = await redis.xrange(keys.log(task_id))
            log = [fields[b"e"] for _, fields in rows if fields[b"k"] != b"input"]
            assert list(bodies.values()) == log
            attempts = {turn[1] for turn in gates.runs(task_id)}
            assert len(log) >= 8 and max(attempts) > 1
