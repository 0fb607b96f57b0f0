"""What each wire costs: the CPU of a send and of a streamed event, beside those of 1.0 JSON-RPC.

    python -m tests.bench.wires                  some two minutes
    python -m tests.bench.wires --rounds 10

One deployment answers all, in short interleaved runs, so that what else the machine does hits each
wire alike: a ratio is the median of those within one round. Events are those of one task's stream,
read by `--readers` at once.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import statistics
import sys
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import uvloop
from pydantic_core import from_json, to_json

from tests.bench.measure import Processes
from tests.bench.servers import Server, switchroom
from tests.bench.wire import Connection

__all__ = ["main"]

_EVENTS = 300
_numbers = itertools.count(1)


class Wire(NamedTuple):
    """How requests are said."""

    name: str
    version: str
    rest: bool

    def send(self, text: str, *, wait: bool) -> bytes:
        """The request of a send."""
        part: Any = {"text": text}
        message: Any = {"messageId": f"w{next(_numbers)}"}
        configuration: Any = {"returnImmediately": not wait}
        if self.version == "1.0":
            message |= {"role": "ROLE_USER", "parts": [part]}
        else:
            configuration = {"blocking": wait}
            if self.rest:
                message |= {"role": "ROLE_USER", "content": [part]}
            else:
                message |= {"role": "user", "parts": [{"kind": "text", **part}]}
        return self._said("message/send", {"message": message, "configuration": configuration})

    def follow(self, task_id: str) -> bytes:
        """The request of a subscription."""
        return self._said("tasks/resubscribe", {"id": task_id})

    def _said(self, method: str, params: Any) -> bytes:
        if self.rest:
            path = "/v1" if self.version == "0.3" else ""
            if method == "message/send":
                return self._post(f"{path}/message:send", params)
            return self._post(f"{path}/tasks/{params['id']}:subscribe", {})
        names = {"message/send": "SendMessage", "tasks/resubscribe": "SubscribeToTask"}
        name = names[method] if self.version == "1.0" else method
        call = {"jsonrpc": "2.0", "id": next(_numbers), "method": name, "params": params}
        return self._post("/", call)

    def _post(self, path: str, content: Any) -> bytes:
        body = to_json(content)
        head = (
            f"POST {path} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
            f"A2A-Version: {self.version}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body


WIRES = [
    Wire("1.0 JSON-RPC", "1.0", rest=False),
    Wire("1.0 REST", "1.0", rest=True),
    Wire("0.3 JSON-RPC", "0.3", rest=False),
    Wire("0.3 REST", "0.3", rest=True),
]


class _Deployment:
    def __init__(self, server: Server) -> None:
        self._processes = Processes(server.pids)
        self._address = urlsplit(server.url)

    async def connect(self) -> Connection:
        loop = asyncio.get_running_loop()
        host, port = self._address.hostname, self._address.port
        _, connection = await loop.create_connection(Connection, host, port)
        return connection

    async def cost(self, work: Callable[[], Awaitable[int]]) -> float:
        """Microseconds of CPU, of all its processes, per operation of `work`."""
        before = sum(self._processes.cpu().values())
        operations = await work()
        return (sum(self._processes.cpu().values()) - before) / operations * 1e6


async def _sends(deployment: _Deployment, wire: Wire, each: int) -> int:
    async def loop() -> None:
        connection = await deployment.connect()
        for _ in range(each):
            await _call(connection, wire.send("echo twelve words", wait=True))
        connection.transport.close()

    await asyncio.gather(*(loop() for _ in range(8)))
    return 8 * each


async def _stream(deployment: _Deployment, wire: Wire, readers: int) -> int:
    control = await deployment.connect()
    task = await _call(control, WIRES[0].send(f"stream {_EVENTS} 0 300", wait=False))
    task_id = task["result"]["task"]["id"]
    seen = 0

    def count(data: bytes, at: float) -> None:
        nonlocal seen
        seen += b'"text":"' in data

    connections = [await deployment.connect() for _ in range(readers)]
    await asyncio.gather(*(each.exchange(wire.follow(task_id), count) for each in connections))
    for each in (control, *connections):
        each.transport.close()
    if seen < _EVENTS * readers:
        sys.exit(f"{wire.name} lost events: {seen} of {_EVENTS * readers}")
    return seen


async def _call(connection: Connection, request: bytes) -> Any:
    await connection.exchange(request)
    body = b"".join(connection.body)
    if connection.status != 200 or b'"error"' in body:
        sys.exit(f"HTTP {connection.status}: {body.decode()[:500]}")
    return from_json(body)


async def _measure(server: Server, rounds: int, readers: int) -> None:
    deployment = _Deployment(server)
    sends: dict[str, list[float]] = {wire.name: [] for wire in WIRES}
    events: dict[str, list[float]] = {wire.name: [] for wire in WIRES}
    for number in range(rounds + 1):
        # In turn, so that none is always the one after the other.
        first = number % len(WIRES)
        for wire in WIRES[first:] + WIRES[:first]:
            send = await deployment.cost(lambda wire=wire: _sends(deployment, wire, 60))
            event = await deployment.cost(lambda wire=wire: _stream(deployment, wire, readers))
            if number:  # the first round warms up
                sends[wire.name].append(send)
                events[wire.name].append(event)
    _say(f"{'':<14}{'us per send':>14}{'':>8}{'us per event':>16}")
    for wire in WIRES:
        (send, more), (event, dearer) = (_beside_the_first(x, wire) for x in (sends, events))
        _say(f"{wire.name:<14}{send:>14.1f}{more:>7.2f}x{event:>16.2f}{dearer:>7.2f}x")


def _beside_the_first(costs: dict[str, list[float]], wire: Wire) -> tuple[float, float]:
    """What an operation costs on this wire, and how many times what it does on the first."""
    pairs = zip(costs[wire.name], costs[WIRES[0].name], strict=True)
    return statistics.median(costs[wire.name]), statistics.median(a / b for a, b in pairs)


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--readers", type=int, default=8, help="of each stream")
    options = parser.parse_args(argv)
    with switchroom() as server:
        uvloop.run(_measure(server, options.rounds, options.readers))


if __name__ == "__main__":
    main()
