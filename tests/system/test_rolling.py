"""All processes are replaced, one after the other, under load: nothing is lost, nothing is doubled.

Clients do what clients do: one whose request fails repeats it once, at the other gateway; one whose
stream ends before its task goes on where it was.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

import httpx
import pytest
import pytest_asyncio

from tests.conftest import SOAK
from tests.support.processes import Deployment, deployment
from tests.support.rpc import (
    Event,
    Rpc,
    answer_in,
    answer_of,
    ended,
    ends_in,
    message,
    state_of,
)
from tests.support.wait import wait_until
from tests.system.conftest import AGENT, CARD, Gates

pytestmark = pytest.mark.requires("redis-server")

T = TypeVar("T")

# Longer than all of it takes: what goes on has been handed over.
SETTINGS = {"LEASE": "120", "DRAIN": "1", "CANCEL_GRACE": "0.3", "CANCEL_WAIT": "1"}
CLIENTS = 3
"""Of each kind."""
ROUNDS = 10 if SOAK else 1
CHUNKS = 5


@pytest_asyncio.fixture
async def rolling(
    tmp_path_factory: pytest.TempPathFactory, gates: Gates
) -> AsyncIterator[Deployment]:
    with deployment(
        tmp_path_factory.mktemp("rolling"),
        agent=AGENT,
        environ={"TEST_GATES": str(gates.folder)},
        CARD=CARD,
        **SETTINGS,
    ) as running:
        await running.start(gateways=2, workers=2)
        yield running


class Client:
    """One user, who asks for one thing after the other until told to stop."""

    def __init__(self, number: int, urls: list[str]) -> None:
        self.context = f"client-{number}"
        self._urls = itertools.cycle(urls[number % 2 :] + urls[: number % 2])
        self.completed: list[str] = []
        """The tasks that have completed for it, in order."""

    async def blocking(self, stop: asyncio.Event) -> None:
        """Sends, and waits for the answer."""
        while not stop.is_set():
            params = {"message": message(f"stream {CHUNKS} 60", contextId=self.context)}
            task = await self._at_one_or_the_other(partial(self._sent, params))
            assert state_of(task) == "COMPLETED", task
            _check(answer_of(task))
            self.completed.append(task["id"])

    async def streaming(self, stop: asyncio.Event) -> None:
        """Sends, and reads the stream."""
        while not stop.is_set():
            seen = await self.stream(f"stream {CHUNKS} 60")
            _check(answer_in(seen))

    async def stream(self, text: str) -> list[Event]:
        """One send and all events of its task, over as many streams as it takes."""
        params = {"message": message(text, contextId=self.context)}
        seen: list[Event] = []
        while not ends_in(seen):
            await self._at_one_or_the_other(partial(self._followed, params, seen))
        assert ends_in(seen) == ["COMPLETED"]
        seqs = [int(event.id.partition(".")[0]) for event in seen]
        assert seqs == [*range(1, len(seqs) + 1)], seen
        self.completed.append(seen[0].task_id)
        return seen

    async def _sent(self, params: Any, at: Rpc) -> Any:
        task = (await at.call("SendMessage", params))["task"]
        # A gateway that goes away answers with the task as it is.
        return task if state_of(task) == "COMPLETED" else await ended(at, task["id"])

    async def _followed(self, params: Any, seen: list[Event], at: Rpc) -> None:
        # The send again, where its stream broke off: that is the same stream going on.
        after = {"Last_Event_ID": seen[-1].id} if seen else {}
        async with at.stream("SendStreamingMessage", params, **after) as events:
            async for event in events:
                seen.append(event)  # noqa: PERF401  # what came before a break is kept

    async def _at_one_or_the_other(self, ask: Callable[[Rpc], Awaitable[T]]) -> T:
        """What one gateway answers, or, where that fails, what the other does."""
        try:
            async with Rpc(next(self._urls)) as client:
                return await ask(client)
        except (httpx.TransportError, AssertionError):
            async with Rpc(next(self._urls)) as client:
                return await ask(client)


def _check(answer: str) -> None:
    """Each chunk begins with its number."""
    assert [int(chunk.split()[0]) for chunk in answer.split("chunk")[:-1]] == [*range(CHUNKS)]


async def test_nobody_notices_but_by_a_repeat(rolling: Deployment, gates: Gates, gate: str) -> None:
    urls = [gateway.url for gateway in rolling.gateways]
    clients = [Client(number, urls) for number in range(2 * CLIENTS + 1)]
    *busy, patient = clients
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        for number, client in enumerate(busy):
            asks = client.blocking if number < CLIENTS else client.streaming
            group.create_task(asks(stop))
        whole = group.create_task(patient.stream(f"gate {gate} 3"))  # no drain is long enough
        for _ in range(ROUNDS):
            for process in [*rolling.gateways, *rolling.workers]:
                assert await process.stop() == 0
                await rolling.replace_the_dead()
                # The next one goes when nobody is about to repeat what this one has refused.
                before = [len(client.completed) for client in busy]
                await wait_until(
                    lambda was=before: all(  # type: ignore[misc]
                        len(client.completed) > count
                        for client, count in zip(busy, was, strict=True)
                    ),
                    what="each client got an answer since",
                    within=60,
                )
        stop.set()
        gates.open(gate)
    assert answer_in(await whole) == "0 1 2 3 4 5 "
    (held,) = patient.completed
    assert len(gates.runs(held)) > 1, "no worker handed it over"
    async with Rpc(rolling.gateways[0].url) as one:
        for client in clients:
            # Nothing is lost, and no send has made two tasks.
            assert {task["id"] for task in await listed(one, client.context)} == {*client.completed}
            assert len({*client.completed}) == len(client.completed)
            for task_id in client.completed:
                # Nothing has gone wrong: a run that was handed over counts as no attempt.
                assert {attempt for _, attempt, _ in gates.runs(task_id)} == {1}
                assert state_of(await one.get(task_id)) == "COMPLETED"
    assert [text for _, text in rolling.logs() if "Traceback" in text] == []


async def listed(client: Rpc, context: str) -> list[Any]:
    """All tasks of a conversation."""
    found: list[Any] = []
    token = ""
    while True:
        params = {"contextId": context, "pageSize": 100, "pageToken": token}
        page = await client.call("ListTasks", params)
        found += page["tasks"]
        if not (token := page["nextPageToken"]):
            return found
