"""Starts what is measured: Switchroom as it is deployed, and the official SDK's server.

Promises: each is fresh, on free ports, ready when it is handed out, and gone afterwards. Redis
keeps nothing on disk; its CPU and memory are on Switchroom's bill.
Relies on: `redis-server` or `valkey-server` on PATH.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from pydantic_core import from_json

from tests.bench import wire

__all__ = ["SERVERS", "Cpus", "Server"]

PROJECT = Path(__file__).resolve().parents[2]
AGENT = "examples/scripted.py"
CARD = "examples/scripted.json"

Cpus = frozenset[int] | None
"""The cores the server may use; None: all."""


@dataclass(frozen=True, kw_only=True)
class Server:
    url: str
    pids: Mapping[str, int]


@contextmanager
def switchroom(cpus: Cpus = None) -> Iterator[Server]:
    """One gateway, one worker, one Redis."""
    binary = shutil.which("redis-server") or shutil.which("valkey-server")
    if binary is None:
        sys.exit("Put redis-server or valkey-server on PATH: the benchmark starts one of its own.")
    redis_port, port = _free_port(), _free_port()
    environment = {
        "SWITCHROOM_REDIS_URL": f"redis://127.0.0.1:{redis_port}",
        "SWITCHROOM_CARD": CARD,
    }
    redis_options = ["--save", "", "--appendonly", "no", "--maxmemory-policy", "noeviction"]
    cli = [sys.executable, "-c", "from switchroom.cli import main; main()"]
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        start = _starter(stack, folder, cpus, environment)
        redis = start("redis", [binary, "--port", str(redis_port), "--dir", folder, *redis_options])
        _wait_for_port(redis_port)
        worker = start("worker", [*cli, "worker", AGENT])
        gateway = start("gateway", [*cli, "gateway", "--host", "127.0.0.1", "--port", str(port)])
        url = f"http://127.0.0.1:{port}/"
        _wait_for_echo(url, folder)
        yield Server(url=url, pids={"gateway": gateway, "worker": worker, "redis": redis})


@contextmanager
def sdk(cpus: Cpus = None) -> Iterator[Server]:
    """The official SDK's server: one process, tasks in memory, no telemetry."""
    port = _free_port()
    environment = {"OTEL_INSTRUMENTATION_A2A_SDK_ENABLED": "false"}
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        start = _starter(stack, folder, cpus, environment)
        peer = start("sdk", [sys.executable, "-m", "tests.bench.sdk_peer", str(port)])
        url = f"http://127.0.0.1:{port}/"
        _wait_for_echo(url, folder)
        yield Server(url=url, pids={"sdk": peer})


SERVERS = {"switchroom": switchroom, "sdk": sdk}


def _starter(
    stack: ExitStack, folder: str, cpus: Cpus, environment: Mapping[str, str]
) -> Callable[[str, list[str]], int]:
    def start(name: str, command: list[str]) -> int:
        with open(f"{folder}/{name}.log", "wb") as log:
            process = subprocess.Popen(
                command,
                cwd=PROJECT,
                env={**os.environ, **environment},
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        if cpus is not None:
            os.sched_setaffinity(process.pid, cpus)
        stack.callback(_stop, process)
        return process.pid

    return start


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def _wait_for_port(port: int) -> None:
    ends = time.monotonic() + 10
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            if time.monotonic() > ends:
                raise
            time.sleep(0.02)


def _wait_for_echo(url: str, folder: str) -> None:
    """Ready means: an echo comes back through every process."""
    ends = time.monotonic() + 20
    while True:
        headers = {"Content-Type": "application/json", "A2A-Version": "1.0"}
        request = urllib.request.Request(url, wire.send("echo ready"), headers)
        try:
            with urllib.request.urlopen(request, timeout=5) as answer:
                found = from_json(answer.read())
            if "result" in found:
                return
        except OSError as error:
            found = error
        if time.monotonic() > ends:
            logs = "\n".join(
                f"--- {log.name}\n{log.read_text()[-3000:]}" for log in Path(folder).glob("*.log")
            )
            sys.exit(f"{url} did not come up within 20 s: {found}\n{logs}")
        time.sleep(0.1)
