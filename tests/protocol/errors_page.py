"""Writes the table of docs/errors.md: `python -m tests.protocol.errors_page`."""

from __future__ import annotations

import re
from pathlib import Path

from switchroom.protocol.errors import ERRORS, A2AError

__all__ = ["PAGE", "page"]

PAGE = Path(__file__).parents[2] / "docs" / "errors.md"

_HEAD = """\
| code | HTTP | status | reason | what it says | when |
| --- | --- | --- | --- | --- | --- |
"""


def page() -> str:
    """The page as it should be: what is written there, and the table."""
    written, _, _ = PAGE.read_text().partition(_HEAD)
    return written + _HEAD + "".join(_row(error) for error in ERRORS)


def _row(error: type[A2AError]) -> str:
    http, status = str(error.http), error.status
    if error.before:
        before = error.before
        http += f" [{before[0]}]" if before[0] != error.http else ""
        status += f" [{before[1]}]" if before[1] != error.status else ""
    when = re.sub(r"\s+", " ", error.__doc__ or "").strip()
    cells = (error.code, http + ("\\*" if error.edge else ""), status, error.reason, error.message)
    return "| " + " | ".join(map(str, cells)) + f" | {when} |\n"


if __name__ == "__main__":
    PAGE.write_text(page())
