"""The Procfile, as `make up` starts it: every process serves, and all stop in order."""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.processes import ROOT, Process, Processes, environment, processes
from tests.support.redis import running_server
from tests.support.rpc import Rpc, answer_of, message
from tests.support.wait import wait_until

pytestmark = [pytest.mark.requires("redis-server"), pytest.mark.requires("unix")]

GATEWAYS = WORKERS = 2


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Processes]:
    with processes(tmp_path) as running:
        try:
            yield running
        finally:
            for honcho in running.all:
                end_children(honcho)


def end_children(honcho: Process) -> None:
    """End what honcho has started and not stopped: each is in a session of its own."""
    if honcho.alive:
        honcho.send(signal.SIGKILL)  # first, so that it starts nobody more
    pids = dict(re.findall(r"(\w+\.\d) started \(pid=(\d+)\)", honcho.output))
    for name in re.findall(r"(\w+\.\d) stopped \(", honcho.output):
        del pids[name]
    for pid in pids.values():
        with suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)


def free_ports() -> int:
    """The first of as many free ports in a row as there are gateways."""
    for _ in range(100):
        # Below the range that the system hands out by itself: nobody gets them by chance.
        first = random.randrange(20_000, 30_000)
        try:
            for port in range(first, first + GATEWAYS):
                socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        return first
    raise AssertionError("no two free ports in a row")


@pytest.mark.skipif(not shutil.which("make"), reason="no make here")
@pytest.mark.parametrize(
    ("settings", "port"),
    [({}, 8000), ({"PORT": "9100"}, 9100), ({"SWITCHROOM_PORT": "9200"}, 9200)],
)
def test_make_up_counts_ports_from_the_one_that_is_set(
    settings: dict[str, str], port: int, tmp_path: Path
) -> None:
    honcho = tmp_path / "honcho"
    honcho.write_text('#!/bin/sh\necho "$* [$SWITCHROOM_PORT]"\n')
    honcho.chmod(0o755)
    # `make test` may be what runs this: a make within a make would say where it is.
    command = [
        "make",
        "--no-print-directory",
        "--old-file=.venv/dev.stamp",
        "up",
        f"BIN={tmp_path}",
    ]
    environ = {**environment(), **settings}
    said = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True)
    assert said.returncode == 0, said.stderr
    # One for all would be no use: honcho gives each process its own PORT.
    assert said.stdout.strip().endswith(f"-p {port} []"), said.stdout


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_it_serves_at_every_port_and_stops_in_order(
    number: signal.Signals, started: Processes, tmp_path: Path
) -> None:
    port = free_ports()
    with running_server(tmp_path) as url:
        environ = environment(
            REDIS_URL=url,
            AGENT="examples/scripted.py",
            CARD="examples/scripted.json",
            DRAIN="4",
        )
        environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environ['PATH']}"
        counts = f"gateway={GATEWAYS},worker={WORKERS}"
        honcho = started.start(
            sys.executable,
            "-m",
            "honcho",
            "start",
            "-c",
            counts,
            "-p",
            str(port),
            name="honcho",
            environ=environ,
        )
        for line in ("gateway at http", "worker of queue"):
            await wait_until(
                lambda line=line: honcho.output.count(line) == 2,
                what=f"{line!r} was said twice",
                within=60,
            )
        for gateway in range(port, port + GATEWAYS):
            async with Rpc(f"http://127.0.0.1:{gateway}") as client:
                assert answer_of((await client.send("echo hello"))["task"]) == "hello"
        async with Rpc(f"http://127.0.0.1:{port}") as client:
            params = {"message": message("stream 1000 20")}
            async with client.stream("SendStreamingMessage", params) as events:
                async for event in events:
                    if event.text:
                        break
                honcho.send(number)
                rest = [event async for event in events]  # ends, and without an error
        await honcho.ended()
    assert "COMPLETED" not in [event.state for event in rest]
    output = honcho.output
    assert "Traceback" not in output
    for kind in ("gateway", "worker"):
        assert len(re.findall(rf"{kind} stopped$", output, re.M)) == 2, output
        assert len(re.findall(rf"{kind}\.\d stopped \(rc=0\)", output)) == 2, output
    assert "SIGKILL" not in output
