"""Names of keys: who shares what with whom, and what may live for ever."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from switchroom.protocol.methods import SCOPES
from switchroom.protocol.model import TaskState
from switchroom.store import Store
from switchroom.store.api_key import new_key
from switchroom.store.keys import Keys, owner_key
from switchroom.store.scripts import command
from tests.support.acts import chunk, message, new_task, open_run, status

NAMES = st.text(max_size=12)


def every_key(keys: Keys) -> list[str]:
    queue = keys.queue
    return [
        *keys.of_task("t"),
        keys.live("t"),
        keys.claim("o", "d"),
        keys.tasks("o"),
        keys.context("o", "c"),
        keys.state("o", "s"),
        *(keys.open, keys.control, keys.reconciler, keys.cursor_secret),
        *(keys.api_keys, keys.api_keys_changed),
        *(queue.queue, queue.running, queue.bell, queue.health("w")),
    ]


def test_no_two_are_the_same() -> None:
    keys = every_key(Keys("p", "main"))
    assert len(set(keys)) == len(keys)


def test_all_of_one_task_lies_in_one_slot_and_so_does_all_of_one_owner() -> None:
    keys = Keys("p", "main")
    for key in (*keys.of_task("t"), keys.live("t")):
        assert "{t}" in key
    for key in (
        keys.claim("o", "d"),
        keys.tasks("o"),
        keys.context("o", "c"),
        keys.state("o", "s"),
    ):
        assert "{o}" in key


def test_deployments_and_agents_never_meet() -> None:
    for one, other in combinations([Keys("p", "main"), Keys("q", "main")], 2):
        assert set(every_key(one)).isdisjoint(every_key(other))
    one, other = Keys("p", "a"), Keys("p", "b")
    shared = set(every_key(one)) & set(every_key(other))
    assert {one.open, one.queue.queue, one.queue.running, one.reconciler}.isdisjoint(shared)


@given(NAMES, NAMES, NAMES, NAMES)
def test_callers_and_tenants_never_meet(a: str, b: str, c: str, d: str) -> None:
    assert (owner_key(a, b) == owner_key(c, d)) == ((a, b) == (c, d))
    assert not set("{}: ") & set(owner_key(a, b))


@given(st.text(max_size=2_000))
def test_a_context_is_a_short_key_whatever_its_id(context: str) -> None:
    keys = Keys("p", "main")
    assert len(keys.context("o", context)) < 60
    assert keys.context("o", context) != keys.context("o", context + "x")


async def test_only_the_shortlist_lives_for_ever(store: Store) -> None:
    """After a bit of everything; and it is short."""
    task_id = await new_task(store, configs=[("c", b"{}")])
    await store.queue.enqueue(task_id, 1)
    run = await open_run(store, task_id)
    await run.write(status(TaskState.WORKING))
    await run.write(chunk("a"))
    await run.flush()
    _, key = new_key("alice", scopes=SCOPES, now=0)
    await store.api_keys.add(key)
    silent = await new_task(store, shown=False)
    await (await open_run(store, silent)).answer({"message": message(role="ROLE_AGENT")})
    (names,) = await store.commit(command("KEYS", "*"))
    keys = [name.decode() for name in names]
    lives = await store.commit(*(command("PTTL", key) for key in keys))
    for_ever = {key for key, ttl in zip(keys, lives, strict=True) if ttl == -1}
    keys_of = store.keys
    assert for_ever <= {
        keys_of.open,
        keys_of.pushes,
        keys_of.cursor_secret,
        keys_of.api_keys,
        keys_of.queue.queue,
    }
    assert all(store.keys.lives_for_ever(key) for key in for_ever)
    assert not any(store.keys.lives_for_ever(key) for key in set(keys) - for_ever)
