"""The worker: runs agents; holds a lease for each run, so any worker can die."""

from __future__ import annotations

__all__: list[str] = []
