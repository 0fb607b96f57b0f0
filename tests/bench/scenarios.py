"""The scenarios: each drives `examples/scripted.py`'s contract, and checks every answer.

Promises: a scenario's figures come with `faults`, and count only if that is empty: no loss, no
duplicate, in order.
Relies on: `verify` for what an answer must be.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httptools

from tests.bench import wire
from tests.bench.measure import Faults, Processes, Window, milliseconds
from tests.bench.verify import TERMINAL, Chunks, Wrong, check_echo
from tests.bench.wire import Client, Connection, Refused

__all__ = ["SCENARIOS", "Bench"]

Figures = dict[str, Any]

now = time.perf_counter
UNUSABLE = (OSError, TimeoutError, httptools.HttpParserError)  # the connection is of no more use


@dataclass(kw_only=True)
class Bench:
    """One scenario against one server. The numbers are what the scenario's text says."""

    url: str
    processes: Processes
    concurrency: int = 16
    seconds: float = 3
    warmup: float = 1
    events: int = 100
    delay_ms: float = 0
    wait_ms: float = 0
    connections: int = 1000
    tasks: int = 1000
    within: float = 30
    faults: Faults = field(default_factory=Faults)

    def __post_init__(self) -> None:
        self.client = Client(self.url)
        self.window = Window(self.processes)

    async def call(self, connection: Connection, body: bytes) -> Any:
        return await self.client.call(connection, body, within=self.within)


def fault(error: Exception) -> str:
    match error:
        case Refused():
            return error.kind
        case Wrong():
            return str(error)
        case _:
            return f"{type(error).__name__}: {error}"


@contextmanager
def noting(faults: Faults) -> Iterator[None]:
    """Turns what may go wrong in an exchange into a fault."""
    try:
        yield
    except (Refused, Wrong, *UNUSABLE) as error:
        faults.add(fault(error))


async def closed_loop(
    bench: Bench, operation: Callable[[Connection, int], Awaitable[None]]
) -> Figures:
    """`operation(connection, number)` over and over on `concurrency` connections.

    Only operations that began and ended within the window count.
    """
    durations: list[float] = []
    numbers = itertools.count()
    opens = now() + bench.warmup
    closes = opens + bench.seconds

    async def loop() -> None:
        connection = await bench.client.connect()
        while (began := now()) < closes:
            if connection.closed or not connection.keep_alive:
                connection.transport.close()
                connection = await bench.client.connect()
            try:
                await operation(connection, next(numbers))
            except (Refused, Wrong, *UNUSABLE) as error:
                bench.faults.add(fault(error))
                if isinstance(error, UNUSABLE):
                    connection.transport.close()
                    connection = await bench.client.connect()
            else:
                if began >= opens and (ended := now()) <= closes:
                    durations.append(ended - began)
        connection.transport.close()

    async with asyncio.TaskGroup() as group:
        for _ in range(bench.concurrency):
            group.create_task(loop())
        await asyncio.sleep(bench.warmup)
        bench.window.open()
        await asyncio.sleep(bench.seconds)
        cost = bench.window.close()
    return {
        "count": len(durations),
        "rate_per_s": round(len(durations) / bench.seconds, 1),
        "latency_ms": milliseconds(durations),
        **cost,
        **bench.window.per(len(durations)),
    }


async def send_blocking(bench: Bench) -> Figures:
    """SendMessage that waits for the echo; the artifact is compared."""

    async def operation(connection: Connection, number: int) -> None:
        text = f"t{number}" + "x" * 32
        answer = await bench.call(connection, wire.send(f"echo {text}"))
        check_echo(answer["task"], text)

    return await closed_loop(bench, operation)


async def send_nonblocking(bench: Bench) -> Figures:
    """SendMessage with returnImmediately; one task in 20 is polled until it is done, and at the end
    the last 100 accepted and 200 random ones must be completed."""
    accepted: list[tuple[str, int]] = []
    completed: list[float] = []
    sample: asyncio.Queue[tuple[float, str, int]] = asyncio.Queue()
    early = 0

    async def operation(connection: Connection, number: int) -> None:
        nonlocal early
        began = now()
        task = (await bench.call(connection, wire.send(f"echo t{number}", wait=False)))["task"]
        accepted.append((task["id"], number))
        early += task["status"]["state"] not in TERMINAL
        if number % 20 == 0:
            sample.put_nowait((began, task["id"], number))

    async def poll(connection: Connection, task_id: str, number: int) -> None:
        while True:
            task = await bench.call(connection, wire.get(task_id))
            if task["status"]["state"] in TERMINAL:
                return check_echo(task, f"t{number}")
            await asyncio.sleep(0.002)

    async def poller() -> None:
        connection = await bench.client.connect()
        while True:
            began, task_id, number = await sample.get()
            with noting(bench.faults):
                async with asyncio.timeout(60):
                    await poll(connection, task_id, number)
                completed.append(now() - began)
            sample.task_done()

    pollers = [asyncio.create_task(poller()) for _ in range(8)]
    figures = await closed_loop(bench, operation)
    began = now()
    connection = await bench.client.connect()
    checked = accepted[-100:] + random.sample(accepted, min(200, len(accepted)))
    for task_id, number in checked:
        with noting(bench.faults):
            async with asyncio.timeout(60):
                await poll(connection, task_id, number)
    await sample.join()
    for each in pollers:
        each.cancel()
    return figures | {
        "time_to_completed_ms": milliseconds(completed),
        "answered_before_done_pct": round(100 * early / max(1, len(accepted)), 1),
        "checked_at_end": len(checked),
        "drain_s": round(now() - began, 3),
    }


async def read_to_the_end(
    bench: Bench, connection: Connection, body: bytes, chunks: Chunks
) -> None:
    """Reads the stream and, as a client does, resumes it where the server has closed it early."""
    within = bench.within + bench.events * bench.delay_ms / 1e3
    await bench.client.stream(connection, body, chunks, within=within)
    while chunks.state not in TERMINAL and (after := connection.last_event_id):
        chunks.resumed += 1
        if not connection.keep_alive:
            raise Wrong("the stream was closed early, and its connection too")
        again = wire.subscribe(chunks.task_id)
        await bench.client.stream(connection, again, chunks, within=within, after=after)


async def stream(bench: Bench) -> Figures:
    """SendStreamingMessage `stream E D` over and over."""
    first: list[float] = []
    delays: list[float] = []
    in_window = resumed = 0
    opens = now() + bench.warmup
    closes = opens + bench.seconds

    async def operation(connection: Connection, number: int) -> None:
        nonlocal in_window, resumed
        chunks = Chunks(bench.events)
        body = wire.send(f"stream {bench.events} {bench.delay_ms}", stream=True)
        await read_to_the_end(bench, connection, body, chunks)
        resumed += chunks.resumed
        in_window += sum(opens <= at <= closes for at in chunks.arrived)
        first.append(chunks.first or 0)
        delays.extend(chunks.delays)
        bench.faults.extend(chunks.verdict())

    figures = await closed_loop(bench, operation)
    figures |= {
        "streams": figures.pop("count"),
        "resumed": resumed,
        "stream_ms": figures.pop("latency_ms"),
        "events_per_s": round(in_window / bench.seconds, 1),
        "time_to_first_event_ms": milliseconds(first),
        "event_delay_ms": milliseconds(delays),
    }
    del figures["rate_per_s"]
    return figures | bench.window.per(in_window)


async def fanout(bench: Bench) -> Figures:
    """One task, `concurrency` subscribers, all attached before its first chunk."""
    wait_ms = bench.wait_ms or max(1500, bench.concurrency * 8)
    control = await bench.client.connect()
    text = f"stream {bench.events} {bench.delay_ms} {wait_ms}"
    task = (await bench.call(control, wire.send(text, wait=False)))["task"]
    began = now()
    body = wire.subscribe(task["id"])
    subscribers = [Chunks(bench.events) for _ in range(bench.concurrency)]
    connections = [await bench.client.connect() for _ in subscribers]

    async def follow(connection: Connection, chunks: Chunks) -> None:
        with noting(bench.faults):
            await read_to_the_end(bench, connection, body, chunks)

    for connection in connections:
        connection.answering = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        for connection, chunks in zip(connections, subscribers, strict=True):
            group.create_task(follow(connection, chunks))
        await _answering(connections, within=10)
        attached = now() - began
        if attached > wait_ms / 1e3:
            bench.faults.add("not all were attached before the first chunk")
        bench.window.open()
    cost = bench.window.close()
    for chunks in subscribers:
        bench.faults.extend(chunks.verdict())
    deliveries = sum(len(chunks.delays) for chunks in subscribers)
    # What the last of them sees of each event.
    slowest = [max(column) for column in zip(*(c.delays for c in subscribers), strict=False)]
    for connection in (control, *connections):
        connection.transport.close()
    return {
        "subscribers": len(subscribers),
        "attach_s": round(attached, 3),
        "deliveries": deliveries,
        "resumed": sum(chunks.resumed for chunks in subscribers),
        "event_delay_ms": milliseconds([d for c in subscribers for d in c.delays]),
        "slowest_subscriber_ms": milliseconds(slowest),
        **cost,
        **bench.window.per(deliveries),
    }


async def idle_sse(bench: Bench) -> Figures:
    """`connections` subscriptions to ten sleeping tasks; memory before and after, and the latency
    of an echo meanwhile."""
    control = await bench.client.connect()
    sleeping = [
        (await bench.call(control, wire.send("sleep 3600000", wait=False)))["task"]["id"]
        for _ in range(10)
    ]
    await asyncio.sleep(0.5)
    before = bench.processes.rss()
    began = now()
    connections: list[Connection] = []
    followers: list[asyncio.Task[None]] = []

    async def follow(connection: Connection, task_id: str) -> None:
        with noting(bench.faults):
            await bench.client.stream(connection, wire.subscribe(task_id), lambda data, at: None)

    for start in range(0, bench.connections, 100):
        batch = [await bench.client.connect() for _ in range(min(100, bench.connections - start))]
        for number, connection in enumerate(batch):
            connection.answering = asyncio.Event()
            followers.append(asyncio.create_task(follow(connection, sleeping[number % 10])))
        await _answering(batch, within=20)
        connections += batch
    opened = now() - began
    await asyncio.sleep(1)
    after = bench.processes.rss()
    bench.window.open()
    await asyncio.sleep(bench.seconds)
    cost = bench.window.close()
    control.transport.close()  # idle for seconds: the server may have closed it
    control = await bench.client.connect()
    echoes = []
    for number in range(50):
        began = now()
        check_echo((await bench.call(control, wire.send(f"echo t{number}")))["task"], f"t{number}")
        echoes.append(now() - began)
    if lost := sum(connection.closed for connection in connections):
        bench.faults.add(f"{lost} streams were closed")
    for follower in followers:
        follower.cancel()
    for connection in (control, *connections):
        connection.transport.close()
    return {
        "open": len(connections),
        "open_s": round(opened, 2),
        "rss_before_mb": round(before / 1e6, 1),
        "rss_after_mb": round(after / 1e6, 1),
        "kb_per_connection": round((after - before) / 1e3 / len(connections), 1),
        "echo_with_idle_ms": milliseconds(echoes),
        **cost,
    }


async def list_tasks(bench: Bench) -> Figures:
    """`tasks` tasks, all pages of 50 walked once, then the first page over and over."""
    connections = [await bench.client.connect() for _ in range(16)]
    left = iter(range(bench.tasks))

    async def seed(connection: Connection) -> None:
        for number in left:
            await bench.call(connection, wire.send(f"echo s{number}"))

    await asyncio.gather(*map(seed, connections))
    began = now()
    ids: list[str] = []
    token, pages = "", 0
    while token or not pages:
        page = await bench.call(connections[0], wire.list_tasks(page_token=token))
        ids += [task["id"] for task in page["tasks"]]
        token, pages = page["nextPageToken"], pages + 1
    walked = now() - began
    if len(ids) != len(set(ids)):
        bench.faults.add("a task was listed twice")
    if len(ids) != page["totalSize"] or len(ids) < bench.tasks:
        bench.faults.add(f"{len(ids)} tasks listed of {page['totalSize']}")
    for connection in connections:
        connection.transport.close()
    length = min(50, len(ids))

    async def operation(connection: Connection, number: int) -> None:
        first = await bench.call(connection, wire.list_tasks())
        if len(first["tasks"]) != length:
            raise Wrong("the page's length differs")

    figures = await closed_loop(bench, operation)
    return figures | {"tasks": len(ids), "pages": pages, "walk_s": round(walked, 2)}


async def _answering(connections: Iterable[Connection], *, within: float) -> None:
    async with asyncio.timeout(within):
        for connection in connections:
            assert connection.answering
            await connection.answering.wait()


SCENARIOS: dict[str, Callable[[Bench], Awaitable[Figures]]] = {
    "send-blocking": send_blocking,
    "send-nonblocking": send_nonblocking,
    "stream": stream,
    "fanout": fanout,
    "idle-sse": idle_sse,
    "list-tasks": list_tasks,
}
