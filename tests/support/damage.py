"""Damage to what is stored of a task: bits that rotted, keys that were evicted or overwritten."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from switchroom.store import Store
from switchroom.store.scripts import command

__all__ = ["Damage", "field", "garbled_entry", "lost_log", "no_hash", "no_log"]

Damage = Callable[[Store, str], Awaitable[None]]


def field(name: str, value: bytes | None) -> Damage:
    """One field of the task's hash is something else; None: it is not there."""

    async def damage(store: Store, task_id: str) -> None:
        key = store.keys.task(task_id)
        write = command("HDEL", key, name) if value is None else command("HSET", key, name, value)
        await store.commit(write)

    return damage


def garbled_entry(index: int, data: bytes = b'{"statusUp\xff') -> Damage:
    """One entry of the log, by its index from either end, has other bytes."""

    async def damage(store: Store, task_id: str) -> None:
        key = store.keys.log(task_id)
        (rows,) = await store.commit(command("XRANGE", key, "-", "+"))
        fields = rows[index][1]
        fields[fields.index(b"e") + 1] = data
        await store.commit(
            command("DEL", key),
            *(command("XADD", key, entry_id, *fields) for entry_id, fields in rows),
            command("PEXPIRE", key, 60_000),
        )

    return damage


async def lost_log(store: Store, task_id: str) -> None:
    await store.commit(command("DEL", store.keys.log(task_id)))


async def no_log(store: Store, task_id: str) -> None:
    """The log's key is no log."""
    await store.commit(command("SET", store.keys.log(task_id), "x", "PX", 60_000))


async def no_hash(store: Store, task_id: str) -> None:
    """The task's key is no hash."""
    await store.commit(command("SET", store.keys.task(task_id), "x", "PX", 60_000))
