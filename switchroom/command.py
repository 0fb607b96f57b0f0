"""What the commands share: one sentence for what goes wrong, and a store to work on.

Promises exit 2 for what the user has to say differently, exit 1 for what could not be had.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import IO, Any

import click

from switchroom.agent import AgentError
from switchroom.gateway.card_files import CardError
from switchroom.gateway.server import BindError
from switchroom.importing import ImportFailed
from switchroom.settings import Settings, SettingsError
from switchroom.store import Store
from switchroom.store.api_keys import KeyRefused
from switchroom.store.connect import ServerError, UrlError

__all__ = ["Stopped", "in_a_sentence", "need_shared_redis", "open_store", "print_table"]

log = logging.getLogger("switchroom")


class Stopped(click.ClickException):
    """One sentence on stderr, and the exit code that says whose fault it is."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code  # type: ignore[misc]  # click reads it from the instance

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(f"switchroom: {self.message}", err=True)


@contextmanager
def in_a_sentence() -> Iterator[None]:
    """What is raised within it, as Stopped, if its text is a sentence for users."""
    try:
        yield
    except (SettingsError, AgentError, CardError, ImportFailed, UrlError, KeyRefused) as error:
        log.debug("the cause", exc_info=error)
        raise Stopped(str(error), 2) from error
    except (ServerError, BindError) as error:
        raise Stopped(str(error), 1) from error


def need_shared_redis(settings: Settings, who: str) -> None:
    """Raises SettingsError where the Redis is none that several processes can share."""
    found = settings.redis_url or ""
    if not found or found.startswith("fake:"):
        raise SettingsError(
            f"SWITCHROOM_REDIS_URL is {found or 'not set'}; it should be the Redis that all {who} "
            "share, such as redis://127.0.0.1:6379 (`switchroom dev` needs none)."
        )


@asynccontextmanager
async def open_store(settings: Settings) -> AsyncIterator[Store]:
    """Raises UrlError and ServerError."""
    store = await Store.open(settings)
    try:
        yield store
    finally:
        await store.close()


def print_table(names: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Columns under their names; what is nothing is a dash."""
    table = [[name.upper() for name in names]]
    table += [["-" if cell in (None, "") else str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for line in table:
        cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        click.echo("  ".join(cells).rstrip())
