"""A worker with a broken heart: its append does not look at the fence. `make chaos` must find out.

    python -m tests.chaos.broken worker AGENT

The lines are taken out of the script as it is loaded; the product knows nothing of it.
"""

from __future__ import annotations

import re
from dataclasses import replace
from hashlib import sha1

from switchroom.cli import main
from switchroom.store.scripts import SCRIPTS

__all__ = ["unfenced"]

_CHECK = re.compile(r"^if theirs ~= fence or .*?^end\n", re.MULTILINE | re.DOTALL)


def unfenced(body: str) -> str:
    """The script without the block that refuses another run's appends."""
    broken, found = _CHECK.subn("", body)
    if found != 1:
        raise ValueError("append.lua does not check the fence as it did; tell this module how")
    return broken


if __name__ == "__main__":
    body = unfenced(SCRIPTS.append.body)
    sha = sha1(body.encode(), usedforsecurity=False).hexdigest()
    type(SCRIPTS).append = replace(SCRIPTS.append, body=body, sha=sha)
    main()
