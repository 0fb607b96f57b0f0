"""Two gateways and two workers on a real Redis, for the tests of this folder.

Promises that a failed test shows what every process said; and that a deployment which served many
tests leaves no key that would live for ever.
"""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import uuid
from collections.abc import AsyncIterator, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
import pytest_asyncio

from switchroom.settings import Settings
from switchroom.store.connect import connect
from switchroom.store.keys import Keys
from tests.support.processes import Deployment, Process, deployment
from tests.support.proxy import Proxy, proxy_over
from tests.support.redis import leaked
from tests.support.rpc import Rpc
from tests.support.wait import wait_until

AGENT = "tests/system/agent.py"
CARD = "tests/system/agent.json"

# How npm says that it cannot reach its registry.
_NO_REGISTRY = re.compile(
    r"\b(ENOTFOUND|EAI_AGAIN|E?CONNREFUSED|ECONNRESET|E?TIMEDOUT|ENETUNREACH)"
)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        for used in getattr(item, "funcargs", {}).values():
            if callable(logs := getattr(used, "logs", None)):
                report.sections += [(f"log of {name}", text) for name, text in logs()]
    return report


@dataclass(frozen=True)
class Gates:
    """Where the agent waits, and what it leaves."""

    folder: Path

    def new(self) -> str:
        """The name of a gate nobody has used."""
        return uuid.uuid4().hex

    def open(self, name: str) -> None:
        (self.folder / name).touch()

    def runs(self, task_id: str) -> list[tuple[int, int, int]]:
        """(turn, attempt, process id) of each time the agent was begun for this task."""
        return [(turn, attempt, pid) for turn, attempt, pid in self._lines("runs", task_id)]

    async def begun(self, task_id: str, times: int = 1) -> int:
        """Waits until the agent has been begun so often for this task; the last process id."""
        await wait_until(
            lambda: len(self.runs(task_id)) >= times, what=f"it was begun {times} times", within=60
        )
        return self.runs(task_id)[-1][2]

    def cancelled(self, task_id: str) -> list[int]:
        """The process ids in which the agent was cancelled while it waited at a gate."""
        return [pid for (pid,) in self._lines("cancelled", task_id)]

    def ended(self, task_id: str) -> list[int]:
        """The process ids in which an agent that was deaf to its cancellation has ended."""
        return [pid for (pid,) in self._lines("ended", task_id)]

    def _lines(self, name: str, task_id: str) -> list[list[int]]:
        file = self.folder / name
        rows = (line.split() for line in file.read_text().splitlines()) if file.exists() else ()
        return [[int(word) for word in words] for ident, *words in rows if ident == task_id]


@pytest.fixture(scope="session")
def gates(tmp_path_factory: pytest.TempPathFactory) -> Gates:
    return Gates(tmp_path_factory.mktemp("gates"))


@pytest.fixture
def gate(gates: Gates) -> str:
    return gates.new()


@contextmanager
def looking_away(workers: Sequence[Process]) -> Iterator[None]:
    """They are stopped meanwhile: they hear nothing, do nothing, and do not know it."""
    for worker in workers:
        worker.send(signal.SIGSTOP)
    try:
        yield
    finally:
        for worker in workers:
            worker.send(signal.SIGCONT)


async def stored(deployment: Deployment, task_id: str, *fields: str) -> list[int]:
    """Numbers of a task as they stand in Redis: `fence`, `attempt` …"""
    redis = connect(deployment.redis_url, timeout=Settings().redis_timeout)
    try:
        key = Keys(Settings().prefix, Settings().queue).task(task_id)
        return [int(value) for value in await redis.hmget(key, fields)]
    finally:
        await redis.aclose()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def deployed(
    tmp_path_factory: pytest.TempPathFactory, gates: Gates
) -> AsyncIterator[Deployment]:
    """Two gateways, two workers, with the settings of production. Tests leave them alive."""
    folder = tmp_path_factory.mktemp("deployed")
    environ = {"TEST_GATES": str(gates.folder)}
    with deployment(folder, agent=AGENT, environ=environ, CARD=CARD) as running:
        await running.start(gateways=2, workers=2)
        yield running
        assert all(process.alive for process in running.processes.all)
        redis = connect(running.redis_url, timeout=Settings().redis_timeout)
        try:
            keys = Keys(Settings().prefix, Settings().queue)
            assert await leaked(redis, keys.lives_for_ever) == []
        finally:
            await redis.aclose()
        assert [text for _, text in running.logs() if "Traceback" in text] == []


@pytest.fixture(scope="session")
def js_clients(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the scripts and the JavaScript clients that they use; nothing is installed in
    the project.
    """
    folder = tmp_path_factory.mktemp("js")
    shutil.copytree(Path(__file__).with_name("js"), folder, dirs_exist_ok=True)
    options = ("--no-audit", "--no-fund", "--no-package-lock", "--fetch-retries=1")
    command = ("npm", "install", *options)
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode and _NO_REGISTRY.search(done.stderr):
        pytest.skip("no npm registry here")
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
async def proxy(deployed: Deployment) -> AsyncIterator[Proxy]:
    """A load balancer without affinity over the two gateways."""
    async with proxy_over(deployed.ports) as opened:
        yield opened


@pytest.fixture
async def http() -> AsyncIterator[httpx.AsyncClient]:
    """What official clients send their requests with."""
    async with httpx.AsyncClient(timeout=60) as client:
        yield client


@pytest.fixture
async def one(deployed: Deployment) -> AsyncIterator[Rpc]:
    """A client of the first gateway."""
    async with Rpc(deployed.gateways[0].url) as client:
        yield client


@pytest.fixture
async def other(deployed: Deployment) -> AsyncIterator[Rpc]:
    """A client of the second gateway."""
    async with Rpc(deployed.gateways[1].url) as client:
        yield client
