"""The formats in which tasks are stored, by number: docs/decisions/0012-stored-formats.md.

A task says in its field `v` how it is written, all of it: hash, log entries, snapshots, input. What
was written before there were numbers is format 0.
"""

from __future__ import annotations

from typing import Final

from switchroom.protocol.errors import Unavailable

__all__ = ["READS", "WRITES", "NewerFormat"]

WRITES: Final = 1
"""The format that this release writes. Every process of the release before can read it."""

READS: Final = 1
"""The newest that it reads; it reads all before, down to that of the release before."""


class NewerFormat(Unavailable):
    """The task was written by a release that is too new for this process, which leaves it alone."""

    message = "This task was written by a newer release; ask again when all gateways are upgraded"
