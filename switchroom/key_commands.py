"""`switchroom keys create | list | revoke`: API keys, wherever the setting `api_keys` says.

Promises that a key is shown once, on stdout and alone there, and only when it is kept; that what
was asked of a Redis whose answer was lost is asked again; and one sentence for what goes wrong.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Final, TypeVar

import click

from switchroom.command import (
    Stopped,
    in_a_sentence,
    need_shared_redis,
    open_store,
    print_table,
)
from switchroom.gateway.auth.caller import ORDINARY
from switchroom.protocol.methods import SCOPES, Scope
from switchroom.settings import Settings, SettingsError
from switchroom.store.api_key import API_KEY, ApiKey, is_name, new_key
from switchroom.store.api_keys import KeyBook, KeyRing
from switchroom.store.commit import StoreUnavailable
from switchroom.store.key_file import FileKeys

__all__ = ["add_key", "create", "list_keys", "revoke", "revoke_key"]

T = TypeVar("T")

_TRIES: Final = 3
_UNITS: Final = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_COLUMNS: Final = ("id", "principal", "tenant", "scopes", "created", "expires", "note")


@click.command()
@click.argument("name")
@click.option("--tenant", default="", help="Whom the caller belongs to.  [default: nobody]")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    help=f"What it may do: {', '.join(sorted(SCOPES))}; repeat it.  [default: all but admin]",
)
@click.option("--expires", help="How long it works: 90d, 12h or 30m.  [default: for ever]")
@click.option("--note", default="", help="What it is for, to be shown in the list.")
@click.pass_obj
def create(
    settings: Settings,
    name: str,
    tenant: str,
    scopes: tuple[str, ...],
    expires: str | None,
    note: str,
) -> None:
    """Make a key for the caller NAME, and print it: this once.

    Callers see only their own tasks; whoever has a key of a NAME (and tenant) is that caller. To
    replace a key make another of the same NAME, let its clients use that, then revoke the old one.
    """
    with in_a_sentence():
        now = time.time()
        text, key = new_key(
            _named("NAME", name),
            tenant=tenant and _named("--tenant", tenant),
            scopes=_scopes(scopes),
            now=now,
            expires=now + _duration(expires).total_seconds() if expires is not None else None,
            note=note and _named("--note", note),
        )
        live = _run(settings, lambda book: add_key(book, key))
    click.echo(text)
    end = f"until {_shown(key)['expires']}" if key.expires else "for ever"
    click.echo(
        f"The key {key.id} is {_whose(key)}: {', '.join(sorted(key.scopes))}, {end}.", err=True
    )
    click.echo("Only its hash is kept, so it is not shown again.", err=True)
    if len(live) > 1:
        click.echo(
            f"{len(live)} live keys are {_whose(key)}: {', '.join(each.id for each in live)}.",
            err=True,
        )


@click.command("list")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
@click.pass_obj
def list_keys(settings: Settings, as_json: bool) -> None:
    """Tell of every key; a secret is never shown."""
    with in_a_sentence():
        ring = _run(settings, _read)
    keys = sorted(ring.keys.values(), key=lambda key: (key.tenant, key.principal, key.created))
    now = time.time()
    if as_json:
        click.echo(json.dumps([{**_shown(key), "live": key.live(now)} for key in keys], indent=2))
    elif keys:
        _print_table(keys, now)
    else:
        click.echo("There is no key yet: `switchroom keys create NAME` makes one.", err=True)
    for ident, fault in ring.faults.items():
        click.echo(f"The key {ident!r} is refused: its record {fault}.", err=True)


@click.command()
@click.argument("ident", metavar="ID")
@click.pass_obj
def revoke(settings: Settings, ident: str) -> None:
    """End a key: no gateway takes it any more.

    ID is as the list shows it; the whole key will do, where that is what was found.
    """
    with in_a_sentence():
        if found := API_KEY.fullmatch(ident.encode(errors="replace")):
            ident = found[1].decode()
        _run(settings, lambda book: revoke_key(book, ident))
    click.echo(f"The key {ident} is revoked.", err=True)


async def add_key(book: KeyBook, key: ApiKey) -> list[ApiKey]:
    """Keeps a key; returns the live ones of its caller, if that can be told.

    Raises Stopped where it is not known to be kept, KeyRefused, SettingsError.
    """
    for _ in range(_TRIES):
        with contextlib.suppress(StoreUnavailable):
            await book.add(key)
            break
    else:
        raise Stopped(
            f"Redis does not answer. The key {key.id} may be kept, and is shown to nobody: revoke "
            "it if `switchroom keys list` has it, and make another.",
            1,
        )
    ring = KeyRing({key.id: key}, {})
    with contextlib.suppress(StoreUnavailable):
        ring = await book.read()
    whose = (key.tenant, key.principal)
    return [
        each
        for each in ring.keys.values()
        if (each.tenant, each.principal) == whose and each.live(key.created)
    ]


async def revoke_key(book: KeyBook, ident: str) -> None:
    """Ends a key. Raises Stopped where there is none or it is not known to have ended,
    SettingsError.
    """
    for attempt in range(_TRIES):
        with contextlib.suppress(StoreUnavailable):
            # After a lost answer it may be gone because of us.
            if not await book.revoke(ident) and attempt == 0:
                # What is longer than an id may be a secret.
                shown = repr(ident) if len(ident) <= 10 else "of that id"
                raise Stopped(f"There is no key {shown}; see `switchroom keys list`.", 2)
            return
    raise Stopped(f"Redis does not answer. The key {ident} may still work: try again.", 1)


async def _read(book: KeyBook) -> KeyRing:
    try:
        return await book.read()
    except StoreUnavailable:
        raise Stopped("Redis does not answer; try again.", 1) from None


def _run(settings: Settings, job: Callable[[KeyBook], Awaitable[T]]) -> T:
    return asyncio.run(_on_book(settings, job))


async def _on_book(settings: Settings, job: Callable[[KeyBook], Awaitable[T]]) -> T:
    if settings.api_keys is None:
        raise SettingsError(
            "SWITCHROOM_API_KEYS is not set; it should be redis, or the path of the file that "
            "keeps API keys, as for the gateways."
        )
    if settings.api_keys != "redis":
        return await job(FileKeys(settings.api_keys))
    need_shared_redis(settings, "gateways")
    async with open_store(settings) as store:
        return await job(store.api_keys)


def _named(what: str, text: str) -> str:
    if not is_name(text):
        raise SettingsError(
            f"{what} is {text[:100]!r}; it should be 1 to 256 printable characters, without spaces "
            "around them."
        )
    return text


def _scopes(asked: tuple[str, ...]) -> frozenset[Scope]:
    for scope in asked:
        if scope not in SCOPES:
            raise SettingsError(
                f"--scope is {scope[:100]!r}; it should be one of {', '.join(sorted(SCOPES))}, and "
                "may be repeated."
            )
    return frozenset(scope for scope in SCOPES if scope in asked) or ORDINARY


def _duration(text: str) -> timedelta:
    found = re.fullmatch(r"0*([1-9][0-9]{0,4})([mhdw])", text.strip(), re.ASCII)
    if found is None:
        raise SettingsError(
            f"--expires is {text[:100]!r}; it should be a number of minutes, hours, days or weeks, "
            "such as 30m, 12h, 90d or 2w."
        )
    return timedelta(**{_UNITS[found[2]]: int(found[1])})


def _whose(key: ApiKey) -> str:
    return f"{key.principal}'s" + (f" of {key.tenant}" if key.tenant else "")


def _shown(key: ApiKey) -> dict[str, object]:
    record = key.to_record()
    return {name: record.get(name) for name in _COLUMNS}


def _print_table(keys: list[ApiKey], now: float) -> None:
    rows = []
    for key in keys:
        shown = _shown(key)
        shown["scopes"] = ",".join(sorted(key.scopes))
        shown["expires"] = shown["expires"] or "never"
        if not key.live(now):
            shown["expires"] = f"EXPIRED {shown['expires']}"
        rows.append(list(shown.values()))
    print_table(_COLUMNS, rows)
