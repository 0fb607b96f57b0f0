"""Switchroom: a distributed A2A server. Import what you need from its parts; importing this is instant."""

from __future__ import annotations

__all__ = ["__version__"]

__version__ = "0.1.0"
