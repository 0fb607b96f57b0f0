"""A stream that broke off goes on at any gateway, after any of its events, on each wire; and what
its client has then, from both connections together, is the task's log.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import httpx
import pytest
import pytest_asyncio

from switchroom.protocol.model import Json
from switchroom.settings import Settings
from switchroom.store.connect import connect
from switchroom.store.entry import Entry, parse_log
from switchroom.store.keys import Keys
from tests.support.processes import Deployment, deployment
from tests.support.rpc import Rpc, answer_in, answer_of, message, until
from tests.support.wires import WIRES, Event, Refused, Wire, wire_of
from tests.system.conftest import AGENT, CARD, Gates

pytestmark = pytest.mark.requires("redis-server")

on_each_wire = pytest.mark.parametrize("name", WIRES)
WHOLE = "0 1 2 3 4 5 "
KEPT = 5


@pytest.fixture
async def wires(name: str, deployed: Deployment) -> AsyncIterator[list[Wire]]:
    """A client of each gateway."""
    async with AsyncExitStack() as stack:
        clients = [httpx.AsyncClient(base_url=g.url, timeout=60) for g in deployed.gateways]
        yield [wire_of(name, await stack.enter_async_context(client)) for client in clients]


async def log_of(deployment: Deployment, task_id: str) -> list[Entry]:
    """What the store holds of it, but for what was said to it."""
    redis = connect(deployment.redis_url, timeout=Settings().redis_timeout)
    try:
        rows = await redis.xrange(Keys(Settings().prefix, Settings().queue).log(task_id))
    finally:
        await redis.aclose()
    words = [(ident, [word for pair in fields.items() for word in pair]) for ident, fields in rows]
    return [entry for entry in map(parse_log, words) if entry.kind != "input"]


def ids(events: list[Event]) -> list[str]:
    return [event.id for event in events]


def chunk_of(event: Event) -> str:
    return answer_of({"artifacts": [event.data.get("artifactUpdate", {}).get("artifact", EMPTY)]})


EMPTY: Json = {"parts": []}


@asynccontextmanager
async def held(wire: Wire, params: Json) -> AsyncIterator[tuple[list[Event], AsyncIterator[Event]]]:
    """A stream of `gate … 3` up to its gate, and what follows."""
    async with wire.stream(params) as events:
        seen = [await anext(events)]
        while chunk_of(seen[-1]) != "2 ":
            seen.append(await anext(events))
        yield seen, events


def resuming(wires: list[Wire], params: Json, task_id: str) -> Any:
    """The ways in which a client may come back: at each gateway, with each method."""
    for wire in wires:
        yield lambda after, wire=wire: wire.stream(params, after=after)
        yield lambda after, wire=wire: wire.subscribe(task_id, after=after)


@on_each_wire
async def test_after_each_event_while_it_runs_and_when_it_has_ended(
    wires: list[Wire], deployed: Deployment, gates: Gates, gate: str
) -> None:
    params = {"message": message(f"gate {gate} 3")}
    async with held(wires[0], params) as (seen, events), AsyncExitStack() as stack:
        task_id = seen[0].data["task"]["id"]
        ways = list(resuming(wires, params, task_id))
        going_on = [
            (at, await stack.enter_async_context(way(event.id)))
            for at, event in enumerate(seen)
            for way in ways
        ]
        gates.open(gate)
        whole = seen + [event async for event in events]
        for at, rest in going_on:
            assert [event async for event in rest] == whole[at + 1 :]
    assert "".join(map(chunk_of, whole)) == WHOLE
    assert ids(whole) == [str(entry.position) for entry in await log_of(deployed, task_id)]

    for (at, event), way in itertools.product(enumerate(whole[:-1]), ways):
        async with way(event.id) as rest:
            assert [event async for event in rest] == whole[at + 1 :]
    for wire in wires:
        # With nothing left to send, a send's stream is over, and there is none to subscribe to.
        async with wire.stream(params, after=whole[-1].id) as rest:
            assert [event async for event in rest] == []
        for after in (whole[-1].id, None):
            with pytest.raises(Refused) as refused:
                async with wire.subscribe(task_id, after=after) as rest:
                    assert [event async for event in rest] == []
            assert refused.value.code == -32004
    assert len(gates.runs(task_id)) == 1


@on_each_wire
async def test_an_id_that_is_no_position_of_it_brings_the_task_first(
    wires: list[Wire], gates: Gates, gate: str
) -> None:
    """Never the middle, never an error; the client has all the same."""
    another = {"message": message("echo other")}
    async with wires[0].stream(another) as events:
        foreign = [event.id async for event in events]
    params = {"message": message(f"gate {gate} 3")}
    async with held(wires[0], params) as (seen, events), AsyncExitStack() as stack:
        task_id, (seq, mark) = seen[0].data["task"]["id"], seen[-1].id.split(".")
        garbled = ["", "x", ".", f"{seq}.", f".{mark}", f"-{seq}.{mark}", f"{seq}.{mark}.1", "0.0"]
        others = [f"{int(seq) - 1}.{foreign[0].split('.')[1]}", f"{seq}.{mark[::-1]}"]
        future = [f"{int(seq) + 1}.{mark}", f"{'9' * 15}.{mark}", f"{'9' * 40}.{mark}"]
        bad = [*foreign, *garbled, *others, *future]
        ways = list(resuming(wires, params, task_id))
        anew = [
            await stack.enter_async_context(way(after))
            for after, way in zip(bad, itertools.cycle(ways), strict=False)
        ]
        firsts = [await anext(rest) for rest in anew]
        for first in firsts:
            assert answer_of(first.data["task"]) == "0 1 2 "
            assert first.id == seen[-1].id
        gates.open(gate)
        end = [event async for event in events]
        for rest in anew:
            assert [event async for event in rest] == end

    # What was yet to come has come.
    still_bad = [after for after in bad if after and after != end[0].id]
    for after, way in itertools.product(still_bad[::2], ways):
        async with way(after) as rest:
            task, *closing = [event async for event in rest]
        assert answer_of(task.data["task"]) == WHOLE
        assert task.id == end[-1].id
        assert ids(closing) == ([end[-1].id] if wires[0].name.startswith("0.3") else [])


@on_each_wire
async def test_a_client_that_leaves_after_every_event_misses_none(
    wires: list[Wire], deployed: Deployment
) -> None:
    """While it is written as fast as can be: wherever replay ends and live events begin."""
    params = {"message": message("stream 30 1")}
    async with wires[0].stream(params) as events:
        seen = [await anext(events)]
    task_id = seen[0].data["task"]["id"]
    for way in itertools.cycle(resuming(wires, params, task_id)):
        async with way(seen[-1].id) as events:
            seen.append(await anext(events))
        status = seen[-1].data.get("statusUpdate", {}).get("status", {})
        if status.get("state") == "TASK_STATE_COMPLETED":
            break
    assert ids(seen) == [str(entry.position) for entry in await log_of(deployed, task_id)]


# -- what the log does not hold any more


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def forgetful(
    tmp_path_factory: pytest.TempPathFactory, gates: Gates
) -> AsyncIterator[Deployment]:
    """Its tasks keep the last few events only."""
    folder, environ = tmp_path_factory.mktemp("forgetful"), {"TEST_GATES": str(gates.folder)}
    with deployment(
        folder, agent=AGENT, environ=environ, CARD=CARD, REPLAY_EVENTS=str(KEPT)
    ) as running:
        await running.start(gateways=1, workers=1)
        yield running


async def test_what_was_trimmed_is_in_the_task_that_comes_first(
    forgetful: Deployment, gates: Gates, gate: str
) -> None:
    params = {"message": message(f"gate {gate} 500", contextId=str(uuid.uuid4()))}
    methods = [("SubscribeToTask", lambda ident: {"id": ident}), ("SendStreamingMessage", None)]
    async with Rpc(forgetful.gateways[0].url) as client:
        async with client.stream("SendStreamingMessage", params) as events:
            seen = await until(events, "499 ")
            task_id = seen[0].task_id
            kept = {str(entry.position) for entry in await log_of(forgetful, task_id)}
            assert 0 < len(kept) < len(seen)
            good = next(at for at, event in enumerate(seen) if event.id in kept)
            tried = [0, 1, good - 1, good, good + 1, len(seen) - 1]
            async with AsyncExitStack() as stack:
                rests = []
                for at, (method, of) in itertools.product(tried, methods):
                    asked = of(task_id) if of else params
                    opened = client.stream(method, asked, Last_Event_ID=seen[at].id)
                    rests.append((at, await stack.enter_async_context(opened)))
                gates.open(gate)
                whole = seen + [event async for event in events]
                for at, rest in rests:
                    got = [event async for event in rest]
                    assert (got[0].kind == "task") == (at < good)
                    assert answer_in(whole[: at + 1] + got) == answer_in(whole)
                    assert got[-1] == whole[-1]
                    if at >= good:
                        assert got == whole[at + 1 :]

        # It ended with more events than it keeps, whichever they were.
        log = [str(entry.position) for entry in await log_of(forgetful, task_id)]
        assert len(log) == KEPT
        assert log == [event.id for event in whole[-KEPT:]]
        for at in range(len(whole) - KEPT - 2, len(whole) - 1):
            for method, of in methods:
                asked = of(task_id) if of else params
                got = await client.whole_stream(method, asked, Last_Event_ID=whole[at].id)
                if whole[at].id in log:
                    assert got == whole[at + 1 :]
                else:
                    assert [answer_of(event.data["task"]) for event in got] == [answer_in(whole)]
