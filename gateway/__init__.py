"""The gateway: speaks to clients; keeps no state, so any gateway can answer any request."""

from __future__ import annotations

__all__: list[str] = []
