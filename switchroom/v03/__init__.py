"""Objects of A2A 0.3, for all who speak it: gateways answer with them, webhooks hear them."""

from __future__ import annotations

__all__: list[str] = []
