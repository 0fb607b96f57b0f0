"""A short storm leaves nothing broken, and one over workers that check no fence is found out."""

from __future__ import annotations

import os
import secrets
import signal
import sys
from pathlib import Path

import pytest

from switchroom.store.scripts import SCRIPTS
from tests.chaos.broken import unfenced
from tests.conftest import SOAK
from tests.support.processes import processes
from tests.support.wait import wait_until

pytestmark = pytest.mark.requires("redis-server")

# The storm of the suite is the same each time; whoever has more time looks elsewhere.
MINUTES, SEED = (2.0, secrets.token_hex(3)) if SOAK else (0.2, "suite")


async def chaos(folder: Path, *options: str) -> tuple[int, str]:
    """A run of its own: the exit code, and all it said."""
    with processes(folder) as running:
        command = (sys.executable, "-m", "tests.chaos", *options)
        environ = {**os.environ, "TMPDIR": str(folder)}
        process = running.start(*command, name="chaos", environ=environ)
        try:
            within = 60 * MINUTES + 300
            await wait_until(lambda: not process.alive, what="the storm is over", within=within)
        finally:
            if process.alive:
                process.send(signal.SIGINT)  # it takes those with it whom it has started
            code = await process.ended()
        return code, process.output


async def test_nobody_could_have_noticed(tmp_path: Path) -> None:
    options = ("--minutes", str(MINUTES), "--calm", "10", "--seed", SEED)
    code, output = await chaos(tmp_path, *options)
    last = output.splitlines()[-1]
    assert code == 0, output
    assert last.startswith("chaos: OK ")
    assert last.endswith(f"seed {SEED}")


async def test_workers_that_check_no_fence_are_found_out(tmp_path: Path) -> None:
    # Who wakes must do so while its successor has said as much as it had itself: within seconds
    # some do, and then the storm ends.
    options = ("--broken", "--faults", "oversleep", "--minutes", "2", "--calm", "0")
    code, output = await chaos(tmp_path, *options)
    assert code == 1, output
    assert "BREACH (overlap) task " in output
    assert output.splitlines()[-1].startswith("chaos: BREACH ")


def test_the_broken_script_lacks_the_fence_and_nothing_else() -> None:
    whole = SCRIPTS.append.body
    lost = set(whole.splitlines()) - set(unfenced(whole).splitlines())
    assert any("'fenced'" in line for line in lost)
    assert all("'lost'" in line or "fence" in line or line.strip() == "end" for line in lost)
