"""What every test can rely on: capabilities, and two budgets.

`@pytest.mark.requires("redis-server")` leaves a test out where the machine lacks something; the run
lists at its end what it left out. With CI=true nothing may be left out: a skip is a failure.
SWITCHROOM_SOAK=1 gives the same tests the long budgets.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import redis.asyncio

from switchroom.settings import Settings
from switchroom.store import Store
from switchroom.store.connect import connect
from switchroom.store.keys import Keys
from switchroom.store.pool import Pool
from tests.support.house import House, house_of
from tests.support.redis import leaked, open_connections, running_server

CI = os.environ.get("CI") == "true"
SOAK = os.environ.get("SWITCHROOM_SOAK") == "1"

CAPABILITIES: dict[str, Callable[[], bool]] = {
    "redis-server": lambda: bool(shutil.which("redis-server") or shutil.which("valkey-server")),
    "curl": lambda: bool(shutil.which("curl")),
    "node": lambda: bool(shutil.which("node") and shutil.which("npm")),
    "sdk-0.3": lambda: (Path(sys.prefix) / "sdk03").is_dir(),
    "unix": lambda: sys.platform != "win32",
    "linux": lambda: sys.platform == "linux",
}

# No deadline: a test that fails because a neighbour was busy proves nothing.
hypothesis.settings.register_profile("test", deadline=None, max_examples=50, database=None)
hypothesis.settings.register_profile("soak", deadline=None, max_examples=2_000)
hypothesis.settings.load_profile("soak" if SOAK else "test")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        for marker in item.iter_markers("requires"):
            for capability in marker.args:
                if capability not in CAPABILITIES:
                    raise pytest.UsageError(
                        f"{item.nodeid} requires {capability!r}; "
                        f"tests/conftest.py knows {', '.join(CAPABILITIES)}."
                    )
                if not CAPABILITIES[capability]():
                    item.add_marker(pytest.mark.skip(reason=f"no {capability} here"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.skipped and not hasattr(report, "wasxfail"):
        _refuse_in_ci(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    if report.skipped:
        _refuse_in_ci(report)
    return report


def _refuse_in_ci(report: pytest.TestReport | pytest.CollectReport) -> None:
    if CI:
        report.outcome = "failed"
        report.longrepr = f"CI leaves nothing out, but this was skipped: {_reason(report)}"


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return reason.removeprefix("Skipped: ")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if left_out := Counter(map(_reason, terminalreporter.stats.get("skipped", ()))):
        terminalreporter.section("left out")
        for reason, count in left_out.most_common():
            terminalreporter.line(f"{count} test{'s' * (count > 1)}: {reason}")


# -- connections: who opens one closes it


@pytest.fixture(autouse=True)
def no_connection_is_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A test, and what it uses, closes each client that it opens. A forgotten one would be found
    when garbage is collected, in some later test.
    """
    pools: list[Pool] = []
    make = Pool.__init__

    def made(pool: Pool, *args: Any, **options: Any) -> None:
        make(pool, *args, **options)
        pools.append(pool)

    monkeypatch.setattr(Pool, "__init__", made)
    yield
    left = [connection for pool in pools for connection in open_connections(pool)]
    assert left == [], "a client was not closed"


# -- stores: every test that asks for `store_url` runs on fakeredis and on a real server


@pytest.fixture(scope="session")
def server_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real Redis of this session's own."""
    with running_server(tmp_path_factory.mktemp("redis")) as url:
        yield url


@pytest.fixture(
    params=["fakeredis", pytest.param("redis-server", marks=pytest.mark.requires("redis-server"))]
)
async def store_url(request: pytest.FixtureRequest) -> AsyncIterator[str]:
    """The URL of an empty store; afterwards, no key may be left that would live for ever."""
    if request.param == "fakeredis":
        url = f"fake://{uuid.uuid4().hex}"
    else:
        url = request.getfixturevalue("server_url")
    async with _emptied(url) as client:
        yield url
        keys = Keys(Settings().prefix, Settings().queue)
        assert await leaked(client, keys.lives_for_ever) == []


@pytest.fixture
def settings(store_url: str) -> Settings:
    """Settings for the store under test; a test replaces fields with `settings.model_copy`."""
    return Settings(redis_url=store_url, push_allow=("*.test",))


@pytest.fixture
async def store(settings: Settings) -> AsyncIterator[Store]:
    opened = await Store.open(settings)
    yield opened
    await opened.close()


@pytest.fixture
async def house(settings: Settings) -> AsyncIterator[House]:
    """Gateways and workers, made by the test; afterwards all must have let go of all they held."""
    async with house_of(settings) as opened:
        yield opened


@contextlib.asynccontextmanager
async def _emptied(url: str) -> AsyncIterator[redis.asyncio.Redis]:
    client = connect(url, timeout=Settings().redis_timeout)
    try:
        await client.flushall()
        yield client
    finally:
        await client.aclose()
