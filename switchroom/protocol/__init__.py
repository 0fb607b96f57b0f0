"""A2A 1.0 and nothing else: pure, no I/O, no Redis, no web."""

from __future__ import annotations

__all__: list[str] = []
