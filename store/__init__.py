"""The store: Redis, and only here Redis."""

from __future__ import annotations

from switchroom.store.store import Store

__all__ = ["Store"]
