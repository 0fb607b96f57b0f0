"""What `make chaos` hurts: gateways and workers, each with a path of its own to one Redis.

Promises that whoever ends is replaced, as an orchestrator does, a gateway at its port; and that an
end which nobody caused is written down. Redis keeps its data over any restart: nothing that it has
acknowledged is lost, so nothing else may be, either.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import redis

from tests.chaos.records import Records
from tests.support.link import Link, link_to
from tests.support.processes import Process, Processes, environment, processes, until_ready
from tests.support.redis import running_server

__all__ = ["Fleet", "LastingRedis", "Slot", "fleet_of"]

AGENT = "tests/chaos/agent.py"
CARD = "examples/scripted.json"

# A lease is what a worker's death costs, so it is short; the rest fits under it. Attempts are many:
# with three, tasks whose workers were killed thrice would rightly fail, and prove little.
SETTINGS = {
    "CARD": CARD,
    "LEASE": "2",
    "REDIS_TIMEOUT": "1",
    "POSITION_CHECK": "1",
    "RECONCILE_EVERY": "1",
    "CANCEL_WAIT": "1.5",
    "CANCEL_GRACE": "0.5",
    "HEARTBEAT": "1",
    "BLOCKING_LIMIT": "5",
    "ATTEMPTS": "10",
    "RETRY_DELAYS": "0.2,0.5",
    "CLIENT_BUFFER": "50",
}
# A gateway's requests end in time, whatever happens meanwhile; a worker's runs do not all.
_DRAIN = {"gateway": "6", "worker": "1"}
_OPTIONS = ("--appendonly", "yes", "--appendfsync", "always")
_NO_REDIS = "switchroom: Redis at"
"""How a process says that it could not begin for want of Redis; it is started again."""


class LastingRedis:
    """A Redis that can be killed and stopped, and comes back with all it has acknowledged."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running = ExitStack()
        self.url = self._running.enter_context(running_server(folder, *_OPTIONS))
        self.port = int(self.url.rpartition(":")[2])

    @property
    def pid(self) -> int:
        with redis.Redis.from_url(self.url) as client:
            return int(client.info("server")["process_id"])

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        self.stop()

    def stop(self) -> None:
        self._running.close()

    def start(self) -> None:
        """Again, at its old port, and loaded."""
        self._running.enter_context(running_server(self._folder, *_OPTIONS, port=self.port))


@dataclass(eq=False)
class Slot:
    """The place of one process.  busy: held by whoever hurts or replaces it."""

    kind: str
    number: int
    link: Link
    process: Process | None = None
    port: int = 0
    busy: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def name(self) -> str:
        return f"{self.kind} {self.number}"


class Fleet:
    """deaths: of processes that nobody had told to end, in words."""

    def __init__(
        self,
        running: Processes,
        server: LastingRedis,
        slots: list[Slot],
        *,
        folder: Path,
        marks: Path,
        records: Records,
        worker: tuple[str, ...],
    ) -> None:
        self.folder = folder
        self.redis = server
        self.slots = slots
        self.deaths: list[str] = []
        self._running = running
        self._marks = marks
        self._records = records
        self._worker = worker

    @property
    def gateways(self) -> list[Slot]:
        return [slot for slot in self.slots if slot.kind == "gateway"]

    @property
    def workers(self) -> list[Slot]:
        return [slot for slot in self.slots if slot.kind == "worker"]

    def urls(self) -> list[str]:
        return [f"http://127.0.0.1:{slot.port}" for slot in self.gateways]

    def logs(self) -> list[tuple[str, str]]:
        """All that each process ever said, by its name."""
        return [(process.log.stem, process.output) for process in self._running.all]

    async def start(self, slot: Slot) -> None:
        """Fill a slot; returns when its process is ready. Who cannot begin for want of Redis is
        started again.
        """
        environ = environment(REDIS_URL=slot.link.url, DRAIN=_DRAIN[slot.kind], **SETTINGS)
        environ["CHAOS_MARKS"] = str(self._marks)
        while True:
            if slot.kind == "gateway":
                process = self._running.switchroom(
                    "gateway", "--port", str(slot.port), name=slot.name, environ=environ
                )
                ready = r"gateway at http://[^ ]*:(\d+)"
            else:
                command = (sys.executable, *self._worker, "worker", AGENT)
                process = self._running.start(*command, name=slot.name, environ=environ)
                ready = "worker of queue"
            slot.process = process
            try:
                told = await process.said(ready)
                break
            except AssertionError:
                if _NO_REDIS in process.output and "Traceback" not in process.output:
                    self._records.counts["starts without Redis"] += 1
                else:
                    self.deaths.append(f"{process.log.stem} did not begin: {process.output[-500:]}")
                await asyncio.sleep(0.2)
        if slot.kind == "gateway":
            slot.port = process.port = int(told[1])

    async def watch(self) -> None:
        """Replaces whoever ends by itself, and writes it down; until cancelled."""
        while True:
            for slot in self.slots:
                process = slot.process
                if process is None or process.alive or slot.busy.locked():
                    continue
                async with slot.busy:
                    self.deaths.append(
                        f"{process.log.stem} ended by itself with {process.popen.returncode}: "
                        f"{process.output[-500:]}"
                    )
                    await self.start(slot)
            await asyncio.sleep(0.1)

    async def heal(self) -> None:
        """Waits until every process is there and ready."""
        for slot in self.slots:
            async with slot.busy:
                slot.link.release()
                if slot.process is not None and slot.kind == "gateway":
                    await until_ready(slot.process)

    async def stop(self) -> None:
        """All at once, in order; whoever does not end well is a death."""
        for slot in self.slots:
            await slot.busy.acquire()
        held = [slot.process for slot in self.slots if slot.process is not None]
        for process, code in zip(
            held, await asyncio.gather(*(process.stop() for process in held)), strict=True
        ):
            if code:
                self.deaths.append(f"{process.log.stem} was told to stop and ended with {code}")


@asynccontextmanager
async def fleet_of(
    folder: Path,
    *,
    gateways: int,
    workers: int,
    marks: Path,
    records: Records,
    worker: tuple[str, ...] = ("-c", "from switchroom.cli import main; main()"),
) -> AsyncIterator[Fleet]:
    """A running fleet that logs into `folder`.  worker: how Python is to start a worker."""
    async with AsyncExitStack() as stack:
        server = LastingRedis(folder)
        stack.callback(server.stop)
        kinds = ["gateway"] * gateways + ["worker"] * workers
        slots = [
            Slot(kind, number, await stack.enter_async_context(link_to(server.port)))
            for number, kind in enumerate(kinds, 1)
        ]
        running = stack.enter_context(processes(folder))
        fleet = Fleet(
            running, server, slots, folder=folder, marks=marks, records=records, worker=worker
        )
        await asyncio.gather(*map(fleet.start, slots))
        await asyncio.gather(*(until_ready(s.process) for s in fleet.gateways if s.process))
        yield fleet
