"""A whole deployment inside one test: gateways and workers, each with a store of its own.

Nothing is shared but Redis, so what holds between two of them here holds between two machines.
When the house closes, every part must have let go of all it held.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any, NamedTuple

from switchroom.agent import Agent
from switchroom.gateway.context import CallContext
from switchroom.gateway.dispatch import StreamItem, encode_result
from switchroom.gateway.handlers import DistributedHandler
from switchroom.protocol.event import StreamResponse, decode
from switchroom.protocol.methods import METHODS
from switchroom.protocol.model import Json
from switchroom.settings import Settings
from switchroom.store import Store
from switchroom.store.leased import LeasedWorker
from switchroom.store.read import TaskView
from switchroom.store.scripts import command
from switchroom.worker.main import serve
from switchroom.worker.run import Runner
from tests.support.gateways import card_of
from tests.support.wait import wait_until

__all__ = [
    "Gateway",
    "House",
    "Item",
    "Stream",
    "WorkerOf",
    "house_of",
    "message",
    "quick",
    "said",
    "text",
]

_HANGS = 20
"""Seconds after which a call has failed to answer; decides nothing else."""


def quick(settings: Settings, **replaced: Any) -> Settings:
    """Settings for tests: pauses that only cost time are short. Durations in seconds."""
    shorts: dict[str, Any] = {
        "drain": 0.05,
        "cancel_grace": 0.2,
        "cancel_wait": 3,
        "retry_delays": (0.0001,),
    }
    return Settings.model_validate({**settings.model_dump(), **shorts, **replaced})


def message(words: str, *, task: str = "", context: str = "", id: str = "", **more: Any) -> Json:
    """Params of a send; `more` is its configuration, in camelCase."""
    said: Json = {
        "messageId": id or uuid.uuid4().hex,
        "role": "ROLE_USER",
        "parts": [{"text": words}],
    }
    if task:
        said["taskId"] = task
    if context:
        said["contextId"] = context
    return {"message": said, "configuration": more} if more else {"message": said}


def text(task: Json) -> str:
    """All text of a task's artifacts."""
    return "".join(
        part.get("text", "") for artifact in task.get("artifacts", ()) for part in artifact["parts"]
    )


def said(task: Json) -> str:
    """The text of the task's status message."""
    found: str = task["status"]["message"]["parts"][0]["text"]
    return found


class Item(NamedTuple):
    """One event of a stream, as a client has it."""

    id: str | None
    event: Json

    @property
    def state(self) -> str | None:
        """The state that a Task or a status update shows."""
        shown = self.event.get("task") or self.event.get("statusUpdate") or {}
        state: str | None = shown.get("status", {}).get("state")
        return state


class Stream:
    """An open stream, as a client has it: empty openings left out."""

    def __init__(self, items: AsyncIterator[StreamItem]) -> None:
        self._items = items

    async def next(self) -> Item:
        """The next event. Raises StopAsyncIteration when the server has closed the stream."""
        while True:
            async with asyncio.timeout(_HANGS):
                item = await self._items.__anext__()
            assert isinstance(item, StreamItem)
            if item.data:
                event = decode(item.data)
                assert StreamResponse.model_validate(event).to_dict() == event
                return Item(item.id, event)

    async def opened(self) -> None:
        """The server has opened the stream, and tells nothing yet."""
        async with asyncio.timeout(_HANGS):
            item = await self._items.__anext__()
        assert item.data == b""

    async def rest(self) -> list[Item]:
        """All events until the server closes."""
        items = []
        while True:
            try:
                items.append(await self.next())
            except StopAsyncIteration:
                return items

    async def until(self, state: str) -> list[Item]:
        """The events up to the one that shows `state`."""
        items = [await self.next()]
        while items[-1].state != state:
            items.append(await self.next())
        return items

    async def aclose(self) -> None:
        await self._items.aclose()  # type: ignore[attr-defined]


class Gateway:
    """One gateway, and a client of it."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self.store = store
        card = card_of(streaming=True, pushNotifications=True)
        self.handler = DistributedHandler(store, settings, card=card)

    async def _dispatch(
        self, method: str, params: Json | None, caller: str, key: str | None, after: str | None
    ) -> Any:
        context = CallContext("1.0", caller=caller, idempotency_key=key, last_event_id=after)
        async with asyncio.timeout(_HANGS):
            return await self.handler.dispatch(method, params, context)

    async def call(
        self,
        method: str,
        params: Json | None = None,
        *,
        caller: str = "alice",
        key: str | None = None,
    ) -> Json:
        """The result of one call; it must be exactly what the protocol's object for it holds."""
        result = decode(encode_result(await self._dispatch(method, params, caller, key, None)))
        if (model := METHODS[method].result) is not None:
            assert model.model_validate(result).to_dict() == result
        return result

    async def send(self, words: str, *, caller: str = "alice", **more: Any) -> Json:
        """Sends a message and returns the Task."""
        task: Json = (await self.call("SendMessage", message(words, **more), caller=caller))["task"]
        return task

    async def get(self, task_id: str, *, caller: str = "alice") -> Json:
        return await self.call("GetTask", {"id": task_id}, caller=caller)

    async def list(self, *, caller: str = "alice", **params: Any) -> Json:
        return await self.call("ListTasks", params, caller=caller)

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        params: Json,
        *,
        caller: str = "alice",
        key: str | None = None,
        after: str | None = None,
    ) -> AsyncIterator[Stream]:
        """An open stream; left, the client has gone away."""
        async with aclosing(
            Stream(await self._dispatch(method, params, caller, key, after))
        ) as opened:
            yield opened

    @asynccontextmanager
    async def subscribe(
        self, task_id: str, *, caller: str = "alice", after: str | None = None
    ) -> AsyncIterator[Stream]:
        async with self.stream(
            "SubscribeToTask", {"id": task_id}, caller=caller, after=after
        ) as opened:
            yield opened


class WorkerOf:
    """One worker process, as a task."""

    runner: Runner
    leased: LeasedWorker

    def __init__(self, store: Store, settings: Settings, agent: Agent | None) -> None:
        self.store = store
        self.stop = asyncio.Event()
        make = store.queue.worker

        def watched(runner: Any, **options: Any) -> LeasedWorker:
            self.runner = runner
            self.leased = make(runner, **options)
            return self.leased

        store.queue.worker = watched  # type: ignore[method-assign, assignment]
        self.task = asyncio.create_task(serve(settings, agent, store=store, stop=self.stop))

    async def drain(self) -> None:
        """SIGTERM, and waiting for the end."""
        self.stop.set()
        await self.task

    async def kill(self) -> None:
        """It renews, takes and hears nothing from now on. What its agents still do, they do as a
        process does that was only thought dead.
        """
        self.task.cancel()
        await asyncio.wait([self.task])


class House:
    """Makes gateways and workers, and closes them."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._stores: list[Store] = []
        self._workers: list[WorkerOf] = []

    def _settings(self, replaced: dict[str, Any]) -> Settings:
        return Settings.model_validate({**self.settings.model_dump(), **replaced})

    async def _store(self, settings: Settings) -> Store:
        store = await Store.open(settings)
        self._stores.append(store)
        return store

    async def gateway(self, **replaced: Any) -> Gateway:
        settings = self._settings(replaced)
        return Gateway(await self._store(settings), settings)

    async def worker(self, agent: Agent | None, **replaced: Any) -> WorkerOf:
        settings = self._settings(replaced)
        worker = WorkerOf(await self._store(settings), settings, agent)
        self._workers.append(worker)
        return worker

    async def both(self, agent: Agent | None, **replaced: Any) -> Gateway:
        """A gateway, and a worker behind it."""
        await self.worker(agent, **replaced)
        return await self.gateway(**replaced)

    @property
    def store(self) -> Store:
        """Any of the stores, to look at what Redis holds."""
        return self._stores[0]

    async def view(self, task_id: str) -> TaskView:
        view = await self.store.tasks.read(task_id)
        assert view is not None
        return view

    async def running(self, task_id: str) -> None:
        """Returns when a worker has begun the task's turn."""

        async def begun() -> bool:
            view = await self.store.tasks.read(task_id)
            return view is not None and view.running

        await wait_until(begun, what="the turn has begun")

    async def state(self, task_id: str, state: str) -> None:
        """Returns when the task has the state."""

        async def there() -> bool:
            view = await self.store.tasks.read(task_id)
            return view is not None and view.state == state

        await wait_until(there, what=f"the task is {state}")

    async def lapse(self, task_id: str, turn: int = 1) -> None:
        """The lease of whoever has the turn ends now."""
        queue, job = self.store.keys.queue, f"run:{task_id}:{turn}"
        await self.store.queue_commit(
            command("ZADD", queue.queue, "XX", 1, job),
            command("ZADD", queue.running, "XX", 1, job),
            command("PUBLISH", queue.bell, "1"),
        )

    async def close(self) -> None:
        for worker in self._workers:
            worker.stop.set()
        if self._workers:
            await asyncio.wait([worker.task for worker in self._workers])
        for worker in self._workers:
            if not worker.task.cancelled():
                worker.task.result()
            # What a killed worker left running ends when the test lets it.
            await wait_until(lambda w=worker: not w.leased.owned, what="the worker let go")
        followed = [store.feed.followed for store in self._stores]
        held = [(worker.runner.active, worker.leased.owned) for worker in self._workers]
        for store in self._stores:
            await store.close()
        assert not any(followed), "a gateway still follows a task"
        assert not any(active or owned for active, owned in held), "a worker still holds a run"


@asynccontextmanager
async def house_of(settings: Settings, **replaced: Any) -> AsyncIterator[House]:
    house = House(quick(settings, **replaced))
    try:
        yield house
    finally:
        async with asyncio.timeout(20):
            await house.close()
