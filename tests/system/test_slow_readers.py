"""Who reads slowly, or not at all, or has vanished, hurts nobody: what is kept for it is bounded
and let go, others see no difference, and if it comes back it has missed nothing.
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio
from redis.asyncio import Redis

from switchroom.settings import Settings
from switchroom.store.keys import Keys
from tests.conftest import SOAK
from tests.support.link import link_to
from tests.support.processes import Deployment, Process, deployment
from tests.support.rpc import Event, Rpc, answer_in, ends_in, message
from tests.support.wait import wait_until
from tests.system.conftest import AGENT, CARD, Gates

pytestmark = pytest.mark.requires("redis-server", "linux")

CHUNKS, SIZE = 400, 4_000
STALLED = 1_000 if SOAK else 200
_NOBODYS = ("06", "0A")  # TIME_WAIT, LISTEN
_WHOLE_EVENT = re.compile(rb"id: (\S+)\ndata: [^\n]*\n\n")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def patient(
    tmp_path_factory: pytest.TempPathFactory, gates: Gates
) -> AsyncIterator[Deployment]:
    """Two seconds are long enough to wait for somebody who takes nothing."""
    folder, environ = tmp_path_factory.mktemp("patient"), {"TEST_GATES": str(gates.folder)}
    with deployment(folder, agent=AGENT, environ=environ, CARD=CARD, HEARTBEAT="0.5") as running:
        await running.start(gateways=2, workers=1)
        yield running


@pytest.fixture
async def one(patient: Deployment) -> AsyncIterator[Rpc]:
    async with Rpc(patient.gateways[0].url) as client:
        yield client


@pytest.fixture
async def other(patient: Deployment) -> AsyncIterator[Rpc]:
    async with Rpc(patient.gateways[1].url) as client:
        yield client


class Slow:
    """A client that subscribes, and reads what and when the test says."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.port = int(sock.getsockname()[1])
        self.got = b""

    @property
    def ids(self) -> list[str]:
        """The positions of the events that it has."""
        return [ident.decode() for ident in _WHOLE_EVENT.findall(self.got)]

    async def read(self, size: int) -> bytes:
        data = await asyncio.get_running_loop().sock_recv(self.sock, size)
        self.got += data
        return data

    async def begun(self) -> None:
        """Reads until its first event is there."""
        while not self.ids:
            assert await self.read(1_000)

    async def read_on(self) -> None:
        """A byte at a time."""
        while await self.read(1):  # noqa: ASYNC110  # that is what it is for
            await asyncio.sleep(0.01)

    async def read_the_rest(self) -> None:
        try:
            while await self.read(100_000):
                pass
        except ConnectionResetError:
            pass  # it was given up


@asynccontextmanager
async def subscribed(task_id: str, port: int) -> AsyncIterator[Slow]:
    params = {"jsonrpc": "2.0", "id": 1, "method": "SubscribeToTask", "params": {"id": task_id}}
    body = json.dumps(params).encode()
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)  # the least that there is
        sock.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(sock, ("127.0.0.1", port))
        head = b"POST / HTTP/1.1\r\nHost: x\r\nA2A-Version: 1.0\r\nContent-Length: %d\r\n\r\n"
        await loop.sock_sendall(sock, head % len(body) + body)
        slow = Slow(sock)
        await slow.begun()
        yield slow


def clients_of(gateway: Process) -> set[int]:
    """The ports of those whom the gateway is connected to, or still writes to."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    ends = [(int(row[1][-4:], 16), int(row[2][-4:], 16)) for row in rows if row[3] not in _NOBODYS]
    return {theirs for ours, theirs in ends if ours == gateway.port}


def memory_of(process: Process) -> int:
    """Resident, in MB."""
    text = Path(f"/proc/{process.pid}/status").read_text()
    (kilobytes,) = re.findall(r"VmRSS:\s+(\d+) kB", text)
    return int(kilobytes) // 1024


async def given_up(gateway: Process, slow: Iterable[Slow]) -> None:
    ports = {each.port for each in slow}
    await wait_until(
        lambda: not ports & clients_of(gateway), what="who does not read is given up", within=60
    )


async def not_followed(patient: Deployment, task_id: str) -> None:
    """Waits until no gateway has anybody left who follows the task."""
    channel = Keys(Settings().prefix, Settings().queue).live(task_id)
    async with Redis.from_url(patient.redis_url) as redis:

        async def nobody() -> bool:
            ((_, count),) = await redis.pubsub_numsub(channel)
            return int(count) == 0

        await wait_until(nobody, what="nobody follows the task", within=60)


async def flooding(client: Rpc, gate: str) -> str:
    """A task that writes 1.6 MB when its gate opens."""
    task = (await client.send(f"flood {gate} {CHUNKS} {SIZE}", now=True))["task"]
    return str(task["id"])


async def flooded(events: AsyncIterator[Event]) -> list[Event]:
    """The events up to the flood's last."""
    seen: list[Event] = []
    while sum(len(event.text) == SIZE for event in seen) < CHUNKS:
        seen.append(await anext(events))
    return seen


@pytest.mark.parametrize("reads", [False, True], ids=["nothing", "a-byte-at-a-time"])
async def test_one_is_given_up_and_comes_back(
    reads: bool, patient: Deployment, one: Rpc, other: Rpc, gates: Gates, gate: str
) -> None:
    gateway = patient.gateways[0]
    task_id = await flooding(one, gate)
    async with one.stream("SubscribeToTask", {"id": task_id}) as events:
        first = await anext(events)
        async with subscribed(task_id, gateway.port) as slow, asyncio.TaskGroup() as group:
            reading = group.create_task(slow.read_on()) if reads else None
            gates.open(gate)
            seen = [first, *await flooded(events)]
            # Another task of the same gateway is served meanwhile.
            assert answer_in(await one.whole_stream("SendStreamingMessage", echo())) == "hi"
            await given_up(gateway, [slow])
            if reading is not None:
                reading.cancel()
            gates.open(f"{gate}-end")
            seen += [event async for event in events]
            await slow.read_the_rest()
    assert ends_in(seen) == ["COMPLETED"]
    # It had less than there was; with what it gets elsewhere it has all of it, once.
    had = slow.ids
    assert len(had) < CHUNKS
    rest = await other.whole_stream("SubscribeToTask", {"id": task_id}, Last_Event_ID=had[-1])
    assert [*had, *(event.id for event in rest)] == [
        event.id for event in seen if event.id in had or event in rest
    ]
    assert [event.id for event in seen][-len(rest) - 1] == had[-1]
    await not_followed(patient, task_id)


def echo() -> dict[str, object]:
    return {"message": message("echo hi")}


async def test_many_hold_little_and_nobody_up(
    patient: Deployment, one: Rpc, gates: Gates, gate: str
) -> None:
    gateway = patient.gateways[0]
    task_id = await flooding(one, gate)
    async with AsyncExitStack() as stack:
        clients = [subscribed(task_id, gateway.port) for _ in range(STALLED)]
        slow = await asyncio.gather(*map(stack.enter_async_context, clients))
        watching = [
            await stack.enter_async_context(one.stream("SubscribeToTask", {"id": task_id}))
            for _ in range(2)
        ]
        before = memory_of(gateway)
        gates.open(gate)
        seen = await asyncio.gather(*map(flooded, watching))
        held = memory_of(gateway) - before
        assert answer_in(await one.whole_stream("SendStreamingMessage", echo())) == "hi"
        await given_up(gateway, slow)
        gates.open(f"{gate}-end")
        for before_it, events in zip(seen, watching, strict=True):
            before_it += [event async for event in events]
            assert before_it == seen[0]
            assert ends_in(before_it) == ["COMPLETED"]
    # Each was to get 1.6 MB; kept are some buffers each, and what all share.
    assert held < STALLED * CHUNKS * SIZE / 1_000_000 / 4
    await not_followed(patient, task_id)


async def test_one_whose_network_is_gone_is_given_up_and_comes_back(
    patient: Deployment, one: Rpc, other: Rpc, gates: Gates, gate: str
) -> None:
    """Half-open: nothing comes through any more, and neither end is told."""
    gateway = patient.gateways[0]
    task_id = await flooding(one, gate)
    async with link_to(gateway.port) as link:
        direct = clients_of(gateway)
        async with Rpc(link.url.replace("redis", "http")) as lost:
            async with lost.stream("SubscribeToTask", {"id": task_id}) as events:
                seen = [await anext(events)]
                (through,) = clients_of(gateway) - direct
                link.hold()
                gates.open(gate)
                await not_followed(patient, task_id)
                await wait_until(
                    lambda: through not in clients_of(gateway),
                    what="its connection is gone",
                    within=60,
                )
    gates.open(f"{gate}-end")
    position = seen[-1].id
    rest = await other.whole_stream("SubscribeToTask", {"id": task_id}, Last_Event_ID=position)
    assert answer_in(seen + rest) == "ready " + "x" * SIZE * CHUNKS + "over "
    assert ends_in(seen + rest) == ["COMPLETED"]
