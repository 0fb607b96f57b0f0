"""`switchroom webhooks list | redrive`: what is still to be delivered, and what was given up.

Promises no secret of a webhook, of which a URL may hold one: only its scheme, host and port are
shown.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Final, TypeVar

import click

from switchroom.command import (
    Stopped,
    in_a_sentence,
    need_shared_redis,
    open_store,
    print_table,
)
from switchroom.protocol.model import Json
from switchroom.settings import Settings
from switchroom.store import Store
from switchroom.store.commit import StoreUnavailable
from switchroom.store.deliveries import Record
from switchroom.store.sealing import Sealed
from switchroom.worker.webhook import origin_of

__all__ = ["list_webhooks", "redrive"]

T = TypeVar("T")
_COLUMNS: Final = ("task", "config", "receiver", "state", "attempts", "next", "trouble")


@click.command("list")
@click.option("--dead", is_flag=True, help="Only what was given up.")
@click.option("--limit", type=click.IntRange(1, 100_000), default=1_000, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="For programs.")
@click.pass_obj
def list_webhooks(settings: Settings, dead: bool, limit: int, as_json: bool) -> None:
    """Tell of deliveries that are due, late or given up.

    NEXT is when a late one is tried again, or since when a dead one is given up.
    """
    with in_a_sentence():
        rows = _run(settings, lambda store: _rows(store, dead=dead, limit=limit))
    if as_json:
        click.echo(json.dumps(rows, indent=2))
    elif rows:
        print_table(_COLUMNS, [list(row.values()) for row in rows])
    else:
        click.echo("Nothing was given up." if dead else "Nothing is due.", err=True)


@click.command()
@click.argument("task", required=False)
@click.argument("config", required=False)
@click.option("--all", "everything", is_flag=True, help="Whatever was given up.")
@click.pass_obj
def redrive(settings: Settings, task: str | None, config: str | None, everything: bool) -> None:
    """Set deliveries going again that were given up: of TASK, or of its CONFIG alone.

    They go on behind the last event that was delivered.
    """
    with in_a_sentence():
        if bool(task) == everything:
            raise Stopped("Name a TASK (and a CONFIG of it), or say --all.", 2)
        done = _run(settings, lambda store: _redrive(store, task, config))
    if not done and task:
        raise Stopped("Nothing of that was given up; see `switchroom webhooks list --dead`.", 2)
    click.echo(f"{done} set going again.", err=True)


async def _rows(store: Store, *, dead: bool, limit: int) -> list[Json]:
    deliveries = store.deliveries
    found = [] if dead else [(*each, False) for each in await deliveries.due(limit=limit)]
    found += [(*each, True) for each in await deliveries.dead(limit=limit)]
    rows = []
    for name, at, given_up in found:
        task_id, _, config_id = name.partition(" ")
        if not config_id:
            continue  # its configs are about to be looked up
        kept = await deliveries.look(task_id, config_id)
        if kept.config is None:
            continue
        try:
            receiver = origin_of(store.pushes.open(kept.config)[0]["url"])
        except Sealed:
            receiver = "(sealed)"
        record = Record.decode(kept.record)
        state = "dead" if given_up else "late" if record.attempts else "due"
        when = datetime.fromtimestamp(at / 1000, UTC).isoformat(timespec="seconds")
        cells = (task_id, config_id, receiver, state, record.attempts, when, record.trouble)
        rows.append(dict(zip(_COLUMNS, cells, strict=True)))
    return rows


async def _redrive(store: Store, task: str | None, config: str | None) -> int:
    done = 0
    for name, _ in await store.deliveries.dead(limit=1_000_000):
        task_id, _, config_id = name.partition(" ")
        if task in (None, task_id) and config in (None, config_id):
            done += await store.deliveries.redrive(task_id, config_id)
    return done


def _run(settings: Settings, job: Callable[[Store], Awaitable[T]]) -> T:
    async def on_store() -> T:
        need_shared_redis(settings, "gateways and workers")
        async with open_store(settings) as store:
            try:
                return await job(store)
            except StoreUnavailable:
                raise Stopped("Redis does not answer; try again.", 1) from None

    return asyncio.run(on_store())
