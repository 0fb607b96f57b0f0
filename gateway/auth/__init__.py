"""Who calls: the ways to prove it, and the gate that asks."""

from __future__ import annotations

__all__: list[str] = []
