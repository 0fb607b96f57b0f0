"""Switchroom: a distributed A2A server. Import its parts; importing this alone is instant."""

from __future__ import annotations

__all__ = ["__version__"]

__version__ = "0.1.0"
