"""The master of the tasks' Redis and of the queue's fails over, while there is work."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from tests.support.processes import Deployment, deployment
from tests.support.rpc import Event, Rpc, answer_in, answer_of, ends_in, message
from tests.support.sentinel import Watched, watched_redis
from tests.system.conftest import AGENT, CARD, Gates
from tests.system.failover import failed_over, loaded, repeated

pytestmark = pytest.mark.requires("redis-server")

# Longer than a failover: whoever runs when it begins is not given up.
SETTINGS = {"LEASE": "10", "POSITION_CHECK": "1", "RECONCILE_EVERY": "1"}
WHOLE = "0 1 2 3 4 5 "
WIDTH = 12


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    with watched_redis(tmp_path_factory.mktemp("watched")) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def followers(
    tmp_path_factory: pytest.TempPathFactory, gates: Gates, watched: Watched
) -> AsyncIterator[Deployment]:
    """Two gateways and two workers, which know nothing but the Sentinels."""
    with deployment(
        tmp_path_factory.mktemp("followers"),
        agent=AGENT,
        environ={"TEST_GATES": str(gates.folder)},
        CARD=CARD,
        REDIS_URL=watched.url,
        QUEUE_URL=f"{watched.url}/1",
        **SETTINGS,
    ) as running:
        await running.start(gateways=2, workers=2)
        yield running
        assert all(process.alive for process in (*running.gateways, *running.workers))
        assert [text for _, text in running.logs() if "Traceback" in text] == []


async def followed(client: Rpc, text: str, heard: list[Event]) -> None:
    """A stream to its end. Should the server end it before, it is resumed."""
    async with client.stream("SendStreamingMessage", {"message": message(text)}) as events:
        heard += [event async for event in events]
    while not ends_in(heard):
        subscribed = {"id": heard[0].task_id}
        async with client.stream(
            "SubscribeToTask", subscribed, Last_Event_ID=heard[-1].id
        ) as events:
            heard += [event async for event in events]


@pytest.mark.parametrize("how", ["kill", "demote"])
async def test_every_task_ends_and_every_stream_goes_on(
    followers: Deployment, watched: Watched, gates: Gates, how: str
) -> None:
    watched.settle()
    gate = gates.new()
    views: list[list[Event]] = [[], []]
    async with (
        Rpc(followers.gateways[0].url) as one,
        Rpc(followers.gateways[1].url) as other,
        loaded(followers, width=WIDTH) as load,
        asyncio.TaskGroup() as group,
    ):
        for client, heard in zip((one, other), views, strict=True):
            group.create_task(followed(client, f"gate {gate} 3", heard))
        await load.after(time.monotonic(), 3 * WIDTH)
        with watched.master.client() as admin:
            # With one replica this is what keeps a demoted master from taking more; a killed one
            # leaves nobody to be that replica.
            admin.config_set("min-replicas-to-write", int(how == "demote"))
        await failed_over(watched, how)
        over = time.monotonic()
        await load.after(over, 3 * WIDTH)
        gates.open(gate)
        load.stop()
        account = await load.account()

    # Each stream told all of its task, and its end once, though the server has changed meanwhile.
    for heard in views:
        assert ends_in(heard) == ["COMPLETED"]
        assert answer_in(heard) == WHOLE
        async with Rpc(followers.gateways[0].url) as client:
            assert answer_of(await client.get(heard[0].task_id)) == WHOLE
        assert [attempt for _, attempt, _ in gates.runs(heard[0].task_id)] == [1]
    assert account.wrong == []
    # What the old master had just taken when it ceased to be one: at most what was under way.
    assert len(account.lost) <= WIDTH
    assert all(sent.at < over for sent in account.lost)
    async with Rpc(followers.gateways[1].url) as client:
        for sent in account.lost:
            again = await repeated(client, sent.params)
            asked = sent.params["message"]["parts"][0]["text"]
            assert answer_of(await client.get(again.task_id)) == asked.removeprefix("echo ")


async def test_check_says_where_it_is(followers: Deployment) -> None:
    check = followers.processes.switchroom("check", environ=followers.environ)
    assert await check.ended() == 0
    assert "redis  ok: mymaster by Sentinel at 127.0.0.1:" in check.output
