"""Tasks that were accepted and that no queue knows: a worker finds them, and runs them once."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import httpx
import pytest
import pytest_asyncio
from redis.asyncio import Redis

from switchroom.settings import Settings
from switchroom.store.keys import Keys
from tests.support.processes import Deployment, Process, deployment
from tests.support.rpc import Rpc, answer_of, ended, message, state_of
from tests.system.conftest import AGENT, CARD, Gates

pytestmark = pytest.mark.requires("redis-server")

KEYS = Keys(Settings().prefix, Settings().queue)
_COMMAND = re.compile(rb"\*\d+\r\n\$7\r\nEVALSHA")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def orphanage(
    tmp_path_factory: pytest.TempPathFactory, gates: Gates
) -> AsyncIterator[Deployment]:
    """A gateway, and workers that look often; each test starts its own."""
    folder, environ = tmp_path_factory.mktemp("orphanage"), {"TEST_GATES": str(gates.folder)}
    with deployment(
        folder, agent=AGENT, environ=environ, CARD=CARD, RECONCILE_EVERY="0.3", LEASE="2"
    ) as running:
        await running.start(gateways=1)
        yield running


@pytest.fixture
async def worker(orphanage: Deployment) -> AsyncIterator[Callable[[], Awaitable[Process]]]:
    """Starts a worker, which ends with the test."""

    async def start() -> Process:
        await orphanage.start(workers=1)
        return orphanage.workers[-1]

    yield start
    for each in orphanage.workers:
        if each.alive:
            await each.kill()
    orphanage.workers.clear()


@pytest.fixture
async def redis(orphanage: Deployment) -> AsyncIterator[Redis]:
    async with Redis.from_url(orphanage.redis_url) as client:
        yield client


@pytest.fixture
async def one(orphanage: Deployment) -> AsyncIterator[Rpc]:
    async with Rpc(orphanage.gateways[0].url) as client:
        yield client


async def completed(client: Rpc, task_id: str, answer: str) -> None:
    task = await ended(client, task_id)
    assert (state_of(task), answer_of(task)) == ("COMPLETED", answer)


@asynccontextmanager
async def deadly(redis_port: int) -> AsyncIterator[tuple[str, Callable[[Process, int], None]]]:
    """A way to Redis at whose end a gateway dies: of the pipeline that accepts its next message, so
    many scripts get through.
    """
    victims: list[tuple[Process, int]] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back, target = await asyncio.open_connection("127.0.0.1", redis_port)
        answers = asyncio.create_task(pass_on(back, writer))
        with suppress(OSError, asyncio.CancelledError):
            while data := await reader.read(1_000_000):
                if victims and b"arq:job:" in data:
                    victim, count = victims.pop()
                    starts = [match.start() for match in _COMMAND.finditer(data)]
                    data = data[: starts[count]] if count < len(starts) else data
                    target.write(data)
                    await target.drain()
                    await victim.kill()
                    break
                target.write(data)
                await target.drain()
        # In order: what has been passed on is done, whoever asked for it.
        target.close()
        answers.cancel()
        writer.close()

    async def pass_on(back: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await back.read(1_000_000):
                writer.write(data)
                await writer.drain()

    server = await asyncio.start_server(serve, "127.0.0.1")
    try:
        port = server.sockets[0].getsockname()[1]
        yield f"redis://127.0.0.1:{port}", lambda *victim: victims.append(victim)
    finally:
        server.close()


async def test_a_gateway_is_killed_while_it_accepts(
    orphanage: Deployment,
    one: Rpc,
    redis: Redis,
    worker: Callable[[], Awaitable[Process]],
    gates: Gates,
) -> None:
    """After each command. Nobody repeats the send: it was accepted and runs, once, or was not and
    nothing is left of it.
    """
    await redis.flushdb()
    async with deadly(int(orphanage.redis_url.rpartition(":")[2])) as (url, at_next):
        await orphanage.start(gateways=4, REDIS_URL=url)
        victims, orphanage.gateways[1:] = orphanage.gateways[1:], []
        for passed, victim in enumerate(victims):
            at_next(victim, passed)
            async with Rpc(victim.url) as client:
                with pytest.raises(httpx.TransportError):
                    await client.send(f"echo {passed}", now=True)
    await worker()

    keys = [key.decode() async for key in redis.scan_iter(KEYS.task("*"))]
    accepted = [key.split("{")[1].split("}")[0] for key in keys]
    tasks = [await ended(one, task_id) for task_id in accepted]
    # The scripts are: into the lists, accept, enqueue.
    assert sorted(map(answer_of, tasks)) == ["2", "3"]
    assert [len(gates.runs(task_id)) for task_id in accepted] == [1, 1]
    listed = await one.call("ListTasks", {})
    assert {task["id"] for task in listed["tasks"]} == set(accepted)


async def test_a_queue_forgets_what_waits(
    one: Rpc, redis: Redis, worker: Callable[[], Awaitable[Process]], gates: Gates
) -> None:
    """The jobs, their places, or both: evicted, deleted, flushed."""
    sent = [(await one.send(f"echo {number}", now=True))["task"]["id"] for number in range(6)]
    jobs = [f"run:{task_id}:1" for task_id in sent]
    await redis.delete(*(f"arq:job:{job}" for job in jobs[:4]))
    await redis.zrem(KEYS.queue.queue, *jobs[2:])
    await worker()
    for number, task_id in enumerate(sent):
        await completed(one, task_id, str(number))
        assert len(gates.runs(task_id)) == 1


async def test_a_queue_forgets_what_ran_on_a_worker_that_has_died(
    one: Rpc,
    redis: Redis,
    worker: Callable[[], Awaitable[Process]],
    gates: Gates,
    gate: str,
) -> None:
    """Nobody is left to put the job back."""
    params: dict[str, Any] = {"message": message(f"gate {gate} 3")}
    first = await worker()
    async with one.stream("SendStreamingMessage", params) as events:
        task_id = (await anext(events)).task_id
        assert await gates.begun(task_id) == first.pid
        await first.kill()
        names = [name async for name in redis.scan_iter("arq:*")]
        await redis.delete(KEYS.queue.queue, KEYS.queue.running, *names)
        gates.open(gate)
        await worker()
        async for _ in events:
            pass
    await completed(one, task_id, "0 1 2 3 4 5 ")
    assert [attempt for _, attempt, _ in gates.runs(task_id)] == [1, 2]
