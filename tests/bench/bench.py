"""Drives one scenario against an A2A server, checks every answer, and writes one JSON object.

    python -m tests.bench.bench send-blocking --url http://127.0.0.1:8000/ --pid gateway=123

Exit code 1 if anything was lost, doubled, out of order or refused.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import resource
import sys
from typing import Any

import uvloop

from tests.bench.measure import Processes
from tests.bench.scenarios import SCENARIOS, Bench

__all__ = ["main"]


def main(argv: list[str] | None = None) -> int:
    options = _options(argv)
    if options.cpu is not None:
        os.sched_setaffinity(0, {options.cpu})
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    # What was imported never becomes garbage; scanning it again would show up in the latencies.
    gc.freeze()
    figures = uvloop.run(_run(options))
    sys.stdout.write(json.dumps(figures, indent=1) + "\n")
    return 0 if figures["perfect"] else 1


async def _run(options: argparse.Namespace) -> dict[str, Any]:
    told = {name: value for name, value in vars(options).items() if value is not None}
    scenario, pids = told.pop("scenario"), told.pop("pid")
    told.pop("cpu", None)
    bench = Bench(processes=Processes(dict(pids)), **told)
    figures = await SCENARIOS[scenario](bench)
    return {
        "scenario": scenario,
        "perfect": not bench.faults,
        "faults": bench.faults,
        **figures,
    }


def _options(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("scenario", choices=SCENARIOS)
    add("--url", required=True, help="the JSON-RPC endpoint")
    add(
        "--pid",
        action="append",
        default=[],
        type=_pid,
        metavar="NAME=PID",
        help="a process of the server, to count its CPU and memory; repeatable",
    )
    add("--cpu", type=int, help="pin the generator to this core")
    add("--concurrency", type=int, help="connections; fanout: subscribers (16)")
    add("--seconds", type=float, help="the window (3)")
    add("--warmup", type=float, help="before the window (1)")
    add("--events", type=int, help="E, chunks of a stream (100)")
    add("--delay-ms", type=float, help="D, between chunks (0)")
    add("--wait-ms", type=float, help="fanout: W, before the first chunk")
    add("--connections", type=int, help="idle-sse: how many (1000)")
    add("--tasks", type=int, help="list-tasks: how many are stored first (1000)")
    add("--within", type=float, help="seconds that an answer may take (30)")
    return parser.parse_args(argv)


def _pid(text: str) -> tuple[str, int]:
    name, _, pid = text.rpartition("=")
    return name or pid, int(pid)


if __name__ == "__main__":
    sys.exit(main())
