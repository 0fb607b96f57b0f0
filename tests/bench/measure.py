"""Figures: percentiles, and what processes cost, read from /proc (Linux).

Promises: CPU time is exact (schedstat: all threads, all descendants), so it hardly moves with what
else the machine does; rates and latencies do move.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["Faults", "Processes", "Window", "milliseconds"]


def milliseconds(seconds: Sequence[float]) -> dict[str, float]:
    """Percentiles, maximum and mean of durations, in milliseconds."""
    if not seconds:
        return {}
    ordered = sorted(seconds)
    figures = {
        f"p{p}": ordered[min(len(ordered) - 1, len(ordered) * p // 100)] for p in (50, 90, 99)
    }
    figures |= {"max": ordered[-1], "mean": sum(ordered) / len(ordered)}
    return {name: round(value * 1e3, 3) for name, value in figures.items()}


class Faults(dict[str, int]):
    """What went wrong, by kind, and how often. Empty means perfect."""

    def add(self, kind: str) -> None:
        self[kind] = self.get(kind, 0) + 1

    def extend(self, kinds: Iterable[str]) -> None:
        for kind in kinds:
            self.add(kind)


class Processes:
    """The server's processes by name, each with its descendants."""

    def __init__(self, pids: Mapping[str, int]) -> None:
        self._pids = pids

    def cpu(self) -> dict[str, float]:
        """Seconds on a CPU so far, by name."""
        return {name: _cpu(_family(pid)) for name, pid in self._pids.items()}

    def rss(self) -> int:
        """Bytes resident now, of all together."""
        page = os.sysconf("SC_PAGE_SIZE")
        pages = 0
        for pid in (pid for root in self._pids.values() for pid in _family(root)):
            if fields := _read(f"/proc/{pid}/statm").split():
                pages += int(fields[1])
        return pages * page


class Window:
    """The cost of everything between `open` and `close`."""

    def __init__(self, processes: Processes) -> None:
        self._processes = processes
        self.cpu: dict[str, float] = {}

    def open(self) -> None:
        self._started = time.perf_counter()
        self._generator = _cpu([os.getpid()])
        self._before = self._processes.cpu()

    def close(self) -> dict[str, Any]:
        wall = time.perf_counter() - self._started
        self.cpu = {
            name: after - self._before[name] for name, after in self._processes.cpu().items()
        }
        return {
            "wall_s": round(wall, 3),
            "generator_cpu_pct": round(100 * (_cpu([os.getpid()]) - self._generator) / wall, 1),
            "server_cpu_pct": round(100 * sum(self.cpu.values()) / wall, 1),
            "server_rss_mb": round(self._processes.rss() / 1e6, 1),
        }

    def per(self, operations: int) -> dict[str, Any]:
        """The server's CPU per operation in microseconds: together, and by process."""
        if not (operations and self.cpu):
            return {}
        each = {name: round(cpu / operations * 1e6, 1) for name, cpu in self.cpu.items()}
        total = sum(self.cpu.values()) / operations * 1e6
        return {"server_cpu_us_per_op": round(total, 1), "cpu_us_per_op_by_process": each}


def _family(pid: int) -> list[int]:
    found = [pid]
    for thread in _threads(pid):
        for child in _read(f"/proc/{pid}/task/{thread}/children").split():
            found += _family(int(child))
    return found


def _cpu(pids: Iterable[int]) -> float:
    nanoseconds = 0
    for pid in pids:
        for thread in _threads(pid):
            if fields := _read(f"/proc/{pid}/task/{thread}/schedstat").split():
                nanoseconds += int(fields[0])
    return nanoseconds / 1e9


def _threads(pid: int) -> list[str]:
    try:
        return os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []


def _read(path: str) -> str:
    """Empty for a process that has just ended."""
    try:
        return Path(path).read_text()
    except OSError:
        return ""
