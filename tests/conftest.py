"""What every test can rely on: capabilities, and two budgets.

`@pytest.mark.requires("redis-server")` leaves a test out where the machine lacks something; the run
lists at its end what it left out. With CI=true nothing may be left out: a skip is a failure.
SWITCHROOM_SOAK=1 gives the same tests the long budgets.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Generator

import hypothesis
import pytest

CI = os.environ.get("CI") == "true"
SOAK = os.environ.get("SWITCHROOM_SOAK") == "1"

CAPABILITIES: dict[str, Callable[[], bool]] = {
    "redis-server": lambda: bool(shutil.which("redis-server") or shutil.which("valkey-server")),
    "curl": lambda: bool(shutil.which("curl")),
    "node": lambda: bool(shutil.which("node") and shutil.which("npm")),
    "unix": lambda: sys.platform != "win32",
    "linux": lambda: sys.platform == "linux",
}

# No deadline: a test that fails because a neighbour was busy proves nothing.
hypothesis.settings.register_profile("test", deadline=None, max_examples=50, database=None)
hypothesis.settings.register_profile("soak", deadline=None, max_examples=2_000)
hypothesis.settings.load_profile("soak" if SOAK else "test")

_left_out = pytest.StashKey[Counter[str]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_left_out] = Counter()


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
        _count_skip(item.config, report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    if report.skipped:
        _count_skip(collector.config, report)
    return report


def _count_skip(config: pytest.Config, report: pytest.TestReport | pytest.CollectReport) -> None:
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    reason = reason.removeprefix("Skipped: ")
    config.stash[_left_out][reason] += 1
    if CI:
        report.outcome = "failed"
        report.longrepr = f"CI leaves nothing out, but this was skipped: {reason}"


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    if left_out := config.stash[_left_out]:
        terminalreporter.section("left out")
        for reason, count in left_out.most_common():
            terminalreporter.line(f"{count} test{'s' * (count > 1)}: {reason}")
