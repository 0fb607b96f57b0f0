"""Records what this release stores, for the releases after it to read.

    python -m tests.store.record

writes tests/store/recorded/<version>/store.json: a task of each kind as a gateway and a worker
leave it, every key readable with its type. It is run once, when a release is made, and committed;
what was recorded is never recorded anew (docs/decisions/0012-stored-formats.md).
"""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import redis.asyncio

import switchroom
from switchroom.agent import Event, Run
from switchroom.protocol.model import Json
from switchroom.settings import Settings
from switchroom.store.connect import connect
from switchroom.store.keys import Keys
from tests.support.house import Gateway, House, WorkerOf, house_of, message, text
from tests.support.wait import wait_until

__all__ = ["RECORDED", "agent", "load"]

_over = asyncio.Event()
"""What was to be recorded is: the agents of dead workers may end."""
RECORDED = Path(__file__).parent / "recorded"
_TTL = 3_600_000
_TIMEOUT = timedelta(seconds=5)


async def agent(run: Run) -> AsyncIterator[Event]:
    """What made the recorded tasks, and goes on with them. Asked to hang, it does so once."""
    match run.text.split():
        case ["ask"]:
            yield run.artifact("draft", "half")
            yield run.ask("Which?")
        case ["reply"]:
            yield run.reply("No task")
        case ["hang", attempts]:
            yield "half "
            if run.attempt <= int(attempts):
                await _over.wait()
            yield "and half"
        case words:
            yield " ".join(words)


# -- recording


async def _record() -> Json:
    async with house_of(Settings(redis_url=f"fake://{uuid.uuid4().hex}")) as house:
        gateway = await house.gateway()
        tasks, sends = await _make(house, gateway)
        client = connect(house.settings.redis_url or "", timeout=_TIMEOUT)
        keys = [await _dump(client, key) for key in sorted(await client.keys())]
        await client.aclose()
        _over.set()
        return {
            "version": switchroom.__version__,
            "at": house.store.clock.now(),
            "tasks": tasks,
            "sends": sends,
            "keys": [key for key in keys if key is not None],
        }


async def _make(house: House, gateway: Gateway) -> tuple[dict[str, str], Json]:
    """Tasks by kind, and the sends that made some of them."""
    tasks: dict[str, str] = {}
    sends: Json = {}

    async def send(kind: str, words: str, *, key: str | None = None, **more: Any) -> None:
        params = message(words, returnImmediately=True, **more)
        answer = await gateway.call("SendMessage", params, key=key)
        sends[kind] = {"params": params, "key": key}
        tasks[kind] = answer["task"]["id"]

    config = {"id": "hook", "url": "https://example.com/hook", "token": "t"}
    worker = await house.worker(agent)
    await send("completed", "echo", key="a key", taskPushNotificationConfig=config)
    await send("waiting", "ask")
    await send("asked again", "ask")
    await send("canceled", "ask")
    await house.state(tasks["completed"], "TASK_STATE_COMPLETED")
    for kind in ("waiting", "asked again", "canceled"):
        await house.state(tasks[kind], "TASK_STATE_INPUT_REQUIRED")
    await gateway.call("CancelTask", {"id": tasks["canceled"]})
    params = message("reply")
    await gateway.call("SendMessage", params)
    sends["answered"] = {"params": params, "key": None}
    # A worker dies over a task; another over its second attempt of one.
    await send("at work", "hang 1", taskPushNotificationConfig=config)
    await send("at work again", "hang 2")
    await _dies(house, worker, gateway, tasks["at work"], tasks["at work again"])
    await house.lapse(tasks["at work again"])
    worker = await house.worker(agent)
    await _dies(house, worker, gateway, tasks["at work again"], attempt=2)
    # From here on no worker is left.
    await send("asked again", "go on", task=tasks["asked again"])
    await send("submitted", "echo", context="a context")
    return tasks, sends


async def _dies(
    house: House, worker: WorkerOf, gateway: Gateway, *task_ids: str, attempt: int = 1
) -> None:
    async def written(task_id: str) -> bool:
        view = await house.view(task_id)
        return view.attempt == attempt and text(view.task) == "half "

    for task_id in task_ids:
        await wait_until(lambda i=task_id: written(i), what="its agent has written")  # type: ignore[misc]
    await worker.kill()


async def _dump(client: redis.asyncio.Redis, key: bytes) -> Json | None:
    """One key, unless it belongs to a process, or is random."""
    name = key.decode()
    if any(word in name for word in (":health:", "arq:in-progress:", ":reconciler:", "-secret")):
        return None
    kind = (await client.type(key)).decode()
    value: Any
    match kind:
        case "string":
            value = (await client.get(key)).decode()
        case "hash":
            value = {k.decode(): v.decode() for k, v in (await client.hgetall(key)).items()}
        case "zset":
            found = await client.zrange(key, 0, -1, withscores=True)
            value = {member.decode(): score for member, score in found}
        case "stream":
            rows = await client.xrange(key)
            value = {i.decode(): {k.decode(): v.decode() for k, v in f.items()} for i, f in rows}
        case _:
            raise ValueError(f"{name} is a {kind}, which nothing here records")
    return {"key": name, "type": kind, "expires": await client.pttl(key) > 0, "value": value}


# -- loading


async def load(url: str, version: str) -> Json:
    """Puts what a release has recorded into an empty Redis; returns its tasks and sends by kind.

    It is a minute later then, for all that is to be done at its time: leases have lapsed.
    """
    recorded: Json = json.loads((RECORDED / version / "store.json").read_text())
    keys = Keys("switchroom", "main")
    timetables = {keys.open, keys.queue.queue, keys.queue.running}
    later = time.time_ns() // 1_000_000 - 60_000 - recorded["at"]
    client = connect(url, timeout=_TIMEOUT)
    for entry in recorded["keys"]:
        key, value = entry["key"], entry["value"]
        match entry["type"]:
            case "string":
                await client.set(key, value)
            case "hash":
                await client.hset(key, mapping=value)
            case "zset":
                shift = later if key in timetables else 0
                await client.zadd(key, {member: at + shift for member, at in value.items()})
            case "stream":
                for entry_id, fields in value.items():
                    await client.xadd(key, fields, id=entry_id)
        if entry["expires"]:
            await client.pexpire(key, _TTL)
    await client.aclose()
    return recorded


if __name__ == "__main__":
    text_of_it = json.dumps(asyncio.run(_record()), indent=1, ensure_ascii=False)
    folder = RECORDED / switchroom.__version__
    folder.mkdir(parents=True)
    (folder / "store.json").write_text(text_of_it + "\n")
