"""Opening and closing a store: whatever comes between, nothing is left open."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from redis.asyncio import Redis
from redis.exceptions import ConnectionError as RedisConnectionError

from switchroom.settings import Settings
from switchroom.store import Store
from switchroom.store import store as module
from switchroom.store.connect import ServerError, connect
from tests.support.redis import open_connections


@pytest.fixture
def clients(monkeypatch: pytest.MonkeyPatch) -> list[Redis]:
    """The clients that stores have made."""
    made: list[Redis] = []

    def recorded(url: str, **options: Any) -> Redis:
        made.append(connect(url, **options))
        return made[-1]

    monkeypatch.setattr(module, "connect", recorded)
    return made


def left(clients: list[Redis]) -> list[Any]:
    return [found for redis in clients for found in open_connections(redis.connection_pool)]


async def test_told_to_stop_at_any_moment_of_opening_it_leaves_nothing(
    settings: Settings, clients: list[Redis]
) -> None:
    steps, stopped = 0, True
    while stopped:
        opening = asyncio.create_task(Store.open(settings))
        for _ in range(steps):
            await asyncio.sleep(0)
        stopped = opening.cancel()
        await asyncio.wait([opening])
        if not opening.cancelled():  # before Python 3.12, `asyncio.wait_for` can swallow it
            await opening.result().close()
        assert left(clients) == []
        steps = steps + 1 if steps < 20 else steps * 5 // 4
    assert steps > 20


@pytest.mark.parametrize("name", ["SCRIPT LOAD", "SET", "GET", "TIME"])
async def test_a_redis_that_goes_while_it_opens_is_one_sentence(
    settings: Settings, clients: list[Redis], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    execute = Redis.execute_command

    async def gone(redis: Redis, *words: Any, **options: Any) -> Any:
        if words[0] == name:
            raise RedisConnectionError("Connection closed by server.")
        return await execute(redis, *words, **options)

    monkeypatch.setattr(Redis, "execute_command", gone)
    with pytest.raises(ServerError, match=r"Redis at .* does not answer \(.*\); is it running\?"):
        await Store.open(settings)
    assert left(clients) == []


async def test_closed_it_opens_no_connection_again(
    settings: Settings, clients: list[Redis]
) -> None:
    store = await Store.open(settings)
    assert await store.ping(within=timedelta(seconds=5))
    await store.close()
    assert not await store.ping(within=timedelta(seconds=5))
    assert left(clients) == []
