"""What 1.0 can say and 0.3 cannot, kept in `metadata` so that an echo brings it back.

Promises: what `keep` put away `restore` takes out again, and neither changes what it is given.
The key of its own is for what no other convention covers; data that is no object goes the way of
the official SDKs, whose clients undo it themselves.
"""

from __future__ import annotations

from typing import Any

from switchroom.protocol.model import Json

__all__ = ["keep", "restore", "unwrapped", "wrapped"]

_KEPT = "a2a-1.0"
_COMPAT = "data_part_compat"
_VALUE = "value"


def keep(metadata: Json | None, extra: Json) -> Json | None:
    """`metadata` that also holds `extra`."""
    return {**(metadata or {}), _KEPT: extra} if extra else metadata


def restore(metadata: Json | None) -> tuple[Json | None, Json]:
    """The metadata as it was, and what was kept in it."""
    if not metadata or not isinstance(extra := metadata.get(_KEPT), dict):
        return metadata, {}
    rest = {name: value for name, value in metadata.items() if name != _KEPT}
    return rest or None, extra


def wrapped(data: Any, metadata: Json | None) -> tuple[Json, Json | None]:
    """`data` as an object, since 0.3 knows no other, and metadata that says so if it was none."""
    if isinstance(data, dict):
        return data, metadata
    return {_VALUE: data}, {**(metadata or {}), _COMPAT: True}


def unwrapped(data: Json, metadata: Json | None) -> tuple[Any, Json | None]:
    """`data` and its metadata as they were before `wrapped`."""
    if not metadata or metadata.get(_COMPAT) is not True or _VALUE not in data:
        return data, metadata
    rest = {name: value for name, value in metadata.items() if name != _COMPAT}
    return data[_VALUE], rest or None
