"""The bytes of a folded task: everything but the artifacts first, so that lists need not read
these.
"""

from __future__ import annotations

from typing import NamedTuple

from switchroom.protocol.event import encode
from switchroom.protocol.model import Json

__all__ = ["Snapshot", "snapshot_of"]


class Snapshot(NamedTuple):
    """data: the Task as JSON.  head: how many of its bytes come before the artifacts; these bytes,
    with their last one replaced by a closing brace, are the Task without artifacts.
    """

    data: bytes
    head: int


def snapshot_of(task: Json) -> Snapshot:
    artifacts = task.get("artifacts")
    if not artifacts:
        data = encode(task)
        return Snapshot(data, len(data))
    head = encode({name: value for name, value in task.items() if name != "artifacts"})
    return Snapshot(b"".join((head[:-1], b',"artifacts":', encode(artifacts), b"}")), len(head))
