"""`switchroom webhooks`: what operators see of deliveries, and what they can do about them."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from switchroom.settings import Settings
from switchroom.store import Store
from switchroom.store.deliveries import Record, member
from tests.support.acts import new_task
from tests.support.processes import CLI, environment

pytestmark = pytest.mark.requires("redis-server")
T = TypeVar("T")


def on_store(url: str, job: Callable[[Store], Awaitable[T]]) -> T:
    async def run() -> T:
        store = await Store.open(Settings(redis_url=url))
        try:
            return await job(store)
        finally:
            await store.close()

    return asyncio.run(run())


def said(url: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*CLI, "webhooks", *words],
        env=environment(REDIS_URL=url),
        capture_output=True,
        text=True,
        timeout=60,
    )


async def _one_dead_one_late(store: Store) -> list[str]:
    made = []
    for dead in (True, False):
        config = store.pushes.seal({"id": "c", "url": "https://x.test/?token=tell-nobody"})
        task_id = await new_task(store, configs=[("c", config)])
        await store.deliveries.announce(member(task_id, "c"))
        taken, _ = await store.deliveries.take(10)
        one = next(each for each in taken if each.member == member(task_id, "c"))
        was = (await store.deliveries.look(task_id, "c")).record
        record = Record.decode(was).failed("HTTP 500", now=store.clock.now())
        if dead:
            await store.deliveries.bury(one, was=was, record=record)
        else:
            await store.deliveries.advance(task_id, "c", was=was, record=record)
        made.append(task_id)
    return made


def test_they_are_listed_and_redriven(server_url: str) -> None:
    dead, late = on_store(server_url, _one_dead_one_late)
    listed = said(server_url, "list", "--json")
    assert listed.returncode == 0 and "tell-nobody" not in listed.stdout
    rows = {row["task"]: row for row in json.loads(listed.stdout)}
    assert rows[dead]["state"] == "dead" and rows[late]["state"] == "late"
    assert rows[late]["receiver"] == "https://x.test" and rows[late]["trouble"] == "HTTP 500"
    table = said(server_url, "list", "--dead").stdout
    assert dead in table and late not in table and "tell-nobody" not in table
    assert said(server_url, "redrive", late).returncode == 2
    assert said(server_url, "redrive", dead).returncode == 0
    rows = {row["task"]: row for row in json.loads(said(server_url, "list", "--json").stdout)}
    assert rows[dead]["state"] == "due" and rows[dead]["attempts"] == 0
    assert json.loads(said(server_url, "list", "--dead", "--json").stdout) == []


@pytest.mark.parametrize("words", [("redrive",), ("redrive", "t", "--all")])
def test_what_to_redrive_is_to_be_said(server_url: str, words: tuple[str, ...]) -> None:
    done = said(server_url, *words)
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and "--all" in done.stderr


def test_without_a_redis_it_says_so() -> None:
    done = subprocess.run(
        [*CLI, "webhooks", "list"], env=environment(), capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2 and "SWITCHROOM_REDIS_URL is not set" in done.stderr
