"""A2A 0.3, spoken at the edge only: requests become 1.0, what is answered becomes 0.3."""

from __future__ import annotations

__all__: list[str] = []
