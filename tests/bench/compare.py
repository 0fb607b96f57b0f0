"""Measures Switchroom and the official SDK's server side by side, in interleaved rounds.

    python -m tests.bench                        everything, some minutes
    python -m tests.bench --only send-blocking --rounds 5
    python -m tests.bench --json figures.json    all figures of all rounds

Each run has fresh processes. The generator has the last core for itself, the servers the others.
Exit code 1 if any run was not perfect.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.bench.servers import PROJECT, SERVERS, Cpus, Server

__all__ = ["main"]

Figures = dict[str, Any]

RUNS: dict[str, list[str]] = {
    "send-blocking": ["send-blocking", "--concurrency=16"],
    "send-unloaded": ["send-blocking", "--concurrency=1"],
    "send-nonblocking": ["send-nonblocking", "--concurrency=16"],
    "stream": ["stream", "--concurrency=8", "--events=100"],
    "stream-paced": ["stream", "--concurrency=16", "--events=50", "--delay-ms=20"],
    "stream-10000": ["stream", "--concurrency=2", "--events=10000", "--seconds=10"],
    "fanout": ["fanout", "--concurrency=100", "--events=40", "--delay-ms=50"],
    "idle-sse": ["idle-sse", "--connections=1000"],
    "list-tasks": ["list-tasks", "--concurrency=4", "--tasks=1000"],
}
ALONE = {"stream-10000"}  # quadratic in the peer: minutes for a single stream

SHOWN: dict[str, str] = {
    "server_cpu_us_per_op": "CPU, us per operation",
    "rate_per_s": "operations per s",
    "events_per_s": "events per s",
    "latency_ms.p50": "latency p50, ms",
    "latency_ms.p99": "latency p99, ms",
    "time_to_completed_ms.p50": "completed after p50, ms",
    "time_to_first_event_ms.p50": "first event p50, ms",
    "event_delay_ms.p50": "event delay p50, ms",
    "event_delay_ms.p99": "event delay p99, ms",
    "kb_per_connection": "kB per subscription",
    "echo_with_idle_ms.p50": "echo meanwhile p50, ms",
    "resumed": "streams resumed",
    "server_rss_mb": "memory, MB",
}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=RUNS, action="append", help="a run; repeatable")
    parser.add_argument("--server", choices=SERVERS, action="append", help="a side; repeatable")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3, help="the window of each run")
    parser.add_argument("--json", type=Path, help="write all figures here")
    options = parser.parse_args(argv)

    server_cpus, generator_cpu = _split_cores()
    found: list[Figures] = []
    for run in options.only or RUNS:
        for round_ in range(options.rounds):
            for name in options.server or SERVERS:
                if name != "switchroom" and run in ALONE:
                    continue
                _say(f"{run}, round {round_ + 1} of {options.rounds}: {name}")
                with SERVERS[name](server_cpus) as server:
                    figures = _drive(run, server, options.seconds, generator_cpu)
                if not figures["perfect"]:
                    _say(f"  NOT PERFECT: {figures['faults']}")
                found.append({"run": run, "server": name, "round": round_, **figures})
        sys.stdout.write(table(run, [f for f in found if f["run"] == run]) + "\n")
        sys.stdout.flush()
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    return 0 if all(figures["perfect"] for figures in found) else 1


def table(run: str, found: list[Figures]) -> str:
    """Medians over the rounds, a column for each server; with two, their ratio."""
    names = [name for name in SERVERS if any(f["server"] == name for f in found)]
    lines = [f"\n{run:<28}" + "".join(f"{name:>14}" for name in names)]
    rows = [(label, _medians(path, names, found)) for path, label in SHOWN.items()]
    parts = {p for f in found for p in f.get("cpu_us_per_op_by_process", ())} - set(names)
    rows += [
        (f"CPU of {part}", _medians(f"cpu_us_per_op_by_process.{part}", names, found))
        for part in sorted(parts)
    ]
    for label, medians in rows:
        if any(median is not None for median in medians):
            cells = "".join(f"{'' if m is None else f'{m:.1f}':>14}" for m in medians)
            lines.append(f"  {label:<26}{cells}{_ratio(medians)}")
    perfect = [sum(f["perfect"] for f in found if f["server"] == name) for name in names]
    runs = len(found) // len(names)
    lines.append(f"  {'perfect runs':<26}" + "".join(f"{f'{p} of {runs}':>14}" for p in perfect))
    return "\n".join(lines)


def _medians(path: str, names: list[str], found: list[Figures]) -> list[float | None]:
    medians: list[float | None] = []
    for name in names:
        values = [_at(path, f) for f in found if f["server"] == name]
        known = [value for value in values if value is not None]
        medians.append(statistics.median(known) if known else None)
    return medians


def _at(path: str, figures: Figures) -> float | None:
    value: Any = figures
    for key in path.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, (int, float)) else None


def _ratio(medians: list[float | None]) -> str:
    match medians:
        case [float() | int() as ours, float() | int() as theirs] if ours and theirs:
            return f"{theirs / ours:>10.2f} x"
        case _:
            return ""


def _drive(run: str, server: Server, seconds: float, cpu: int | None) -> Figures:
    """A process of its own for the generator, so that no run inherits another's heap."""
    command = [sys.executable, "-m", "tests.bench.bench", "--seconds", str(seconds), *RUNS[run]]
    command += ["--url", server.url, *(f"--pid={name}={pid}" for name, pid in server.pids.items())]
    if cpu is not None:
        command.append(f"--cpu={cpu}")
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    if not done.stdout:
        return {"perfect": False, "faults": {done.stderr[-2000:]: 1}}
    figures: Figures = json.loads(done.stdout)
    return figures


def _split_cores() -> tuple[Cpus, int | None]:
    if not hasattr(os, "sched_getaffinity"):
        return None, None
    *servers, generator = sorted(os.sched_getaffinity(0))
    return (frozenset(servers), generator) if servers else (None, None)


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")


if __name__ == "__main__":
    sys.exit(main())
