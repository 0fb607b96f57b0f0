"""A load that goes on while Redis fails over, and an account of what became of it.

As a program it measures what a failover costs and loses, and prints a line for each:

    python -m tests.system.failover [ROUNDS]
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from tests.support.processes import Deployment, deployment
from tests.support.rpc import Rpc, answer_of, ended, message, state_of
from tests.support.sentinel import Watched, watched_redis
from tests.support.wait import wait_until
from tests.system.conftest import AGENT, CARD

__all__ = ["Account", "Load", "Sent", "failed_over", "loaded", "repeated"]

_UNKNOWN = -32001
_CASES = (
    ("1 replica", 1, ()),
    ("1 replica, min 1", 1, ("--min-replicas-to-write", "1")),
    ("2 replicas, min 1", 2, ("--min-replicas-to-write", "1")),
    ("2 replicas, min 2", 2, ("--min-replicas-to-write", "2")),
)


@dataclass(frozen=True)
class Sent:
    """A send that was answered with a task.  at: monotonic seconds.  tries: 1 if at once."""

    params: dict[str, Any]
    task_id: str
    at: float
    tries: int


@dataclass
class Account:
    """What became of the tasks that clients were told of.

    lost: those that are not there any more.  reopened: those that were shown ended, and had to end
    again.  wrong: those that ended otherwise than they had to.
    """

    sent: int = 0
    repeats: int = 0
    lost: list[Sent] = field(default_factory=list)
    reopened: list[Sent] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


class Load:
    """Clients that send all the time, each at its own gateway; what is refused is sent again."""

    def __init__(self, clients: Sequence[Rpc]) -> None:
        self._clients = clients
        self._stopped = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        self.sent: list[Sent] = []

    def start(self, width: int) -> None:
        """So many clients begin to send."""
        self._running = asyncio.create_task(self._send_all(width))

    async def close(self) -> None:
        """Returns when all are done. Raises what one of them met with and may not have."""
        self.stop()
        if self._running is not None:
            await self._running

    def stop(self) -> None:
        """No more new sends; those under way are brought to their answers."""
        self._stopped.set()

    async def after(self, moment: float, count: int) -> None:
        """Returns when so many sends have been answered since."""

        def answered() -> bool:
            if self._running is not None and self._running.done():
                self._running.result()
            return sum(sent.at > moment for sent in self.sent) >= count

        await wait_until(answered, what="sends are answered again", within=60)

    async def _send_all(self, width: int) -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(width):
                group.create_task(self._send(self._clients[number % len(self._clients)], number))

    async def _send(self, client: Rpc, number: int) -> None:
        count = 0
        while not self._stopped.is_set():
            params = {"message": message(f"echo {number}-{count}")}
            self.sent.append(await repeated(client, params))
            count += 1

    async def account(self) -> Account:
        """Of all that was sent, once each task has ended."""
        account = Account(len(self.sent), sum(sent.tries - 1 for sent in self.sent))
        client = self._clients[0]
        for sent in self.sent:
            answer = (await client.post("GetTask", {"id": sent.task_id})).json()
            if answer.get("error", {}).get("code") == _UNKNOWN:
                account.lost.append(sent)
                continue
            task = answer["result"]
            if state_of(task) in ("SUBMITTED", "WORKING"):
                account.reopened.append(sent)
                task = await ended(client, sent.task_id)
            asked = sent.params["message"]["parts"][0]["text"].removeprefix("echo ")
            if state_of(task) != "COMPLETED" or answer_of(task) != asked:
                account.wrong.append(f"{sent}: {task}")
        return account


async def repeated(client: Rpc, params: dict[str, Any]) -> Sent:
    """Sends, and sends the same again while there is a 503, until a task is the answer."""
    tries = 0
    while True:
        tries += 1
        response = await client.post("SendMessage", params)
        if response.status_code == 200:
            assert "result" in response.json(), response.text
            task = response.json()["result"]["task"]
            return Sent(params, task["id"], time.monotonic(), tries)
        assert response.status_code == 503, response.text
        assert int(response.headers["Retry-After"]) >= 1
        await asyncio.sleep(0.05)  # sooner than it is told to: the more to survive


async def failed_over(watched: Watched, how: str) -> None:
    """Returns when another is the master.  how: `kill` or `demote`."""
    victim = watched.kill_master() if how == "kill" else watched.demote_master()
    await wait_until(
        lambda: watched.master is not victim and watched.master.role() == "master",
        what="another is the master",
        within=60,
    )


@asynccontextmanager
async def loaded(running: Deployment, *, width: int) -> AsyncIterator[Load]:
    """A load on all gateways for as long as the block lasts."""
    clients = [Rpc(gateway.url) for gateway in running.gateways]
    load = Load(clients)
    load.start(width)
    try:
        yield load
    finally:
        try:
            await load.close()
        finally:
            for client in clients:
                await client.http.aclose()


async def _measure(watched: Watched, running: Deployment, how: str) -> str:
    async with loaded(running, width=16) as load:
        await load.after(time.monotonic(), 300)
        began = time.monotonic()
        await failed_over(watched, how)
        took = time.monotonic() - began
        # Whatever restarts dead processes restarts this one.
        await asyncio.to_thread(watched.settle)
        await load.after(time.monotonic(), 300)
        load.stop()
        answered = sorted(sent.at for sent in load.sent)
        # The longest time in which nothing at all was answered.
        away = max(after - before for before, after in zip(answered, answered[1:], strict=False))
        rate = sum(began - 2 < at < began for at in answered) / 2
        account = await load.account()
    return (
        f"{rate:6.0f} sends/s  another master after {took:4.1f} s  nothing answered for "
        f"{away:4.1f} s  {account.sent:6d} accepted  "
        f"{len(account.lost):4d} lost  {len(account.reopened):4d} ended twice  "
        f"{len(account.wrong):3d} wrong"
    )


async def _main(rounds: int) -> None:
    for name, replicas, options in _CASES:
        with tempfile.TemporaryDirectory() as folder:
            gates = Path(folder) / "gates"
            gates.mkdir()
            with (
                watched_redis(Path(folder), *options, replicas=replicas) as watched,
                deployment(
                    Path(folder),
                    agent=AGENT,
                    environ={"TEST_GATES": str(gates)},
                    CARD=CARD,
                    REDIS_URL=watched.url,
                    QUEUE_URL=f"{watched.url}/1",
                    LEASE="6",
                    RECONCILE_EVERY="2",
                ) as running,
            ):
                await running.start(gateways=2, workers=2)
                for how in ("kill", "demote") * rounds:
                    told = await _measure(watched, running, how)
                    sys.stdout.write(f"{name:18} {how:7} {told}\n")
                    sys.stdout.flush()


if __name__ == "__main__":
    try:
        asyncio.run(_main(int(sys.argv[1]) if len(sys.argv) > 1 else 3))
    except httpx.HTTPError as error:
        sys.exit(f"a gateway cannot be asked: {error!r}")
