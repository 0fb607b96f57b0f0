"""Switchroom as it is deployed: gateways, workers and a Redis, each a process of its own.

Promises free ports, processes that are ready when they are handed out, everything they said at
hand when a test fails, and nobody left at the end. Relies on what a gateway logs for its port:
so nobody else can take the port meanwhile, and any number of suites may run beside each other.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from tests.support.redis import running_server
from tests.support.wait import wait_until

__all__ = [
    "CLI",
    "ROOT",
    "Deployment",
    "Process",
    "Processes",
    "deployment",
    "environment",
    "processes",
    "until_ready",
]

ROOT = Path(__file__).resolve().parents[2]
CLI = (sys.executable, "-c", "from switchroom.cli import main; main()")
_TOLD = 8_000  # characters of a log that a failed test shows


def environment(**settings: str) -> dict[str, str]:
    """This process's environment with these SWITCHROOM_* settings and no others."""
    outer = {
        name: value
        for name, value in os.environ.items()
        if name != "PORT" and not name.startswith("SWITCHROOM_")
    }
    # No machine resolves these names, so nothing that tests register is looked up or told.
    settings = {"PUSH_ALLOW": "*.test", **settings}
    return {**outer, **{f"SWITCHROOM_{name}": value for name, value in settings.items()}}


@dataclass(kw_only=True, eq=False)
class Process:
    """One process and what it says. `port` is a gateway's."""

    name: str
    popen: subprocess.Popen[bytes]
    log: Path
    port: int = 0

    @property
    def pid(self) -> int:
        return self.popen.pid

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def alive(self) -> bool:
        return self.popen.poll() is None

    @property
    def output(self) -> str:
        """Everything it has said on stdout and stderr."""
        return self.log.read_text(errors="replace")

    def send(self, number: signal.Signals) -> None:
        self.popen.send_signal(number)

    async def said(self, pattern: str) -> re.Match[str]:
        """The first match of `pattern` in what it says; fails if it ends without saying so."""

        def found() -> re.Match[str] | None:
            ended = not self.alive
            match = re.search(pattern, self.output)
            assert match or not ended, f"{self.name} ended without saying {pattern!r}"
            return match

        match = await wait_until(found, what=f"{self.name} says {pattern!r}", within=60)
        assert match is not None
        return match

    async def ended(self) -> int:
        """Its exit code, once it has ended by itself or by a signal."""
        await wait_until(lambda: not self.alive, what=f"{self.name} has ended", within=60)
        code = self.popen.returncode
        assert code is not None
        return code

    async def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Ask it to stop; its exit code."""
        self.send(number)
        return await self.ended()

    async def kill(self) -> None:
        """SIGKILL."""
        await self.stop(signal.SIGKILL)


class Processes:
    """Processes that end with this object, however they are."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.all: list[Process] = []

    def start(
        self, *command: str, name: str, environ: Mapping[str, str], cwd: Path = ROOT
    ) -> Process:
        """Start `command` in a session of its own: a Ctrl-C for the tests is not for it."""
        log = self._folder / f"{len(self.all)}-{name}.log"
        with log.open("wb") as output:
            popen = subprocess.Popen(
                command,
                cwd=cwd,
                env=dict(environ),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        process = Process(name=name, popen=popen, log=log)
        self.all.append(process)
        return process

    def switchroom(
        self, *args: str, name: str = "", environ: Mapping[str, str], cwd: Path = ROOT
    ) -> Process:
        """Start the `switchroom` command."""
        return self.start(*CLI, *args, name=name or args[0], environ=environ, cwd=cwd)

    def logs(self) -> list[tuple[str, str]]:
        """What each process said, by its name; of long logs the end."""
        return [(process.log.stem, process.output[-_TOLD:]) for process in self.all]

    def end(self) -> None:
        for process in self.all:
            # The whole session: what it started itself goes with it, also if it died before.
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.popen.wait()


@contextmanager
def processes(folder: Path) -> Iterator[Processes]:
    """Processes that log into `folder`, and end with the block."""
    running = Processes(folder)
    try:
        yield running
    finally:
        running.end()


@dataclass(kw_only=True, eq=False)
class Deployment:
    """Gateways and workers on one Redis. What died is replaced by starting another."""

    processes: Processes
    redis_url: str
    agent: str
    environ: Mapping[str, str]
    gateways: list[Process] = field(default_factory=list)
    workers: list[Process] = field(default_factory=list)

    def logs(self) -> list[tuple[str, str]]:
        return self.processes.logs()

    @property
    def ports(self) -> list[int]:
        return [gateway.port for gateway in self.gateways]

    def worker(self, pid: int) -> Process:
        """The worker whose process that is."""
        (found,) = (worker for worker in self.workers if worker.pid == pid)
        return found

    async def start(
        self, *, gateways: int = 0, workers: int = 0, port: int = 0, **settings: str
    ) -> None:
        """Start so many more, all at once, and wait until they are ready.  port: the gateway's.
        settings: SWITCHROOM_* that are theirs alone.
        """
        own = {f"SWITCHROOM_{name}": value for name, value in settings.items()}
        environ = {**self.environ, **own}
        new_gateways = [
            self.processes.switchroom("gateway", "--port", str(port), environ=environ)
            for _ in range(gateways)
        ]
        new_workers = [
            self.processes.switchroom("worker", self.agent, environ=environ) for _ in range(workers)
        ]
        for gateway in new_gateways:
            gateway.port = int((await gateway.said(r"gateway at http://[^ ]*:(\d+)"))[1])
            await until_ready(gateway)
        for worker in new_workers:
            await worker.said("worker of queue")
        self.gateways += new_gateways
        self.workers += new_workers

    async def replace_the_dead(self) -> None:
        """As an orchestrator does; gateways come back at their ports. Then all are ready."""
        dead = [gateway for gateway in self.gateways if not gateway.alive]
        self.gateways = [gateway for gateway in self.gateways if gateway.alive]
        lost = sum(not worker.alive for worker in self.workers)
        self.workers = [worker for worker in self.workers if worker.alive]
        for gateway in dead:
            await self.start(gateways=1, port=gateway.port)
        await self.start(workers=lost)
        for gateway in self.gateways:
            await until_ready(gateway)


async def until_ready(gateway: Process) -> None:
    """Wait until /readyz says yes."""

    async def ready() -> bool:
        assert gateway.alive, f"{gateway.name} has ended"
        try:
            return (await http.get("/readyz")).status_code == 200
        except httpx.TransportError:
            return False

    # Plain HTTP: without `verify`, no CA bundle is read, which takes long.
    async with httpx.AsyncClient(base_url=gateway.url, timeout=10, verify=False) as http:
        await wait_until(ready, what=f"{gateway.name} is ready", within=60)


@contextmanager
def deployment(
    folder: Path, *, agent: str, environ: Mapping[str, str] | None = None, **settings: str
) -> Iterator[Deployment]:
    """A Redis of its own, and what is started on it.

    settings: SWITCHROOM_* of all; REDIS_URL names another Redis.  environ: what else they get.
    """
    with ExitStack() as stack:
        if "REDIS_URL" not in settings:
            settings["REDIS_URL"] = stack.enter_context(running_server(folder))
        yield Deployment(
            processes=stack.enter_context(processes(folder)),
            redis_url=settings["REDIS_URL"],
            agent=agent,
            environ={**environment(**settings), **(environ or {})},
        )
