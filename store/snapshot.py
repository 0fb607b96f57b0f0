"""The bytes of a folded task, and those of the task without artifacts: lists read only these."""

from __future__ import annotations

from typing import NamedTuple

from switchroom.protocol.event import encode
from switchroom.protocol.model import Json

__all__ = ["Snapshot", "snapshot_of"]


class Snapshot(NamedTuple):
    """data: the Task as JSON.  top: the same without artifacts, or nothing if it has none."""

    data: bytes
    top: bytes


def snapshot_of(task: Json) -> Snapshot:
    artifacts = task.get("artifacts")
    if not artifacts:
        return Snapshot(encode(task), b"")
    top = encode({name: value for name, value in task.items() if name != "artifacts"})
    # Encoded once: what is large is not in the top.
    return Snapshot(b"".join((top[:-1], b',"artifacts":', encode(artifacts), b"}")), top)
