"""The store: Redis, and only here Redis."""

from __future__ import annotations

__all__: list[str] = []
