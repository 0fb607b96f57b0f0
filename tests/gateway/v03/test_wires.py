"""Two versions on two bindings, and one truth: the same said on each wire is the same task, and
read on each it is the same again; what is wrong on one is wrong in the same way on all.
"""

from __future__ import annotations

import asyncio
import itertools
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from copy import deepcopy
from typing import Any

import httpx
import pytest
from a2a.types import a2a_pb2
from google.protobuf.json_format import MessageToDict
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from switchroom.agent import Event, Part, Run
from switchroom.gateway.app import create_app
from switchroom.protocol.model import Json
from tests.support import objects
from tests.support.gateways import card_of, client_of, serving
from tests.support.house import House, text
from tests.support.wires import WIRES, Refused, Wire, proto, sayable, wire_of

pairs = pytest.mark.parametrize(
    ("one", "other"),
    list(itertools.permutations(WIRES, 2)),
    ids=lambda name: name.replace(" ", "-"),
)


class Agent:
    """Echoes all parts, on word as it is told: `ask`, `wait` for the test, `fail`."""

    def __init__(self) -> None:
        self.go = asyncio.Event()

    async def __call__(self, run: Run) -> AsyncIterator[Event]:
        match run.text:
            case "ask":
                yield run.ask("What more?")
            case "wait":
                yield "one "
                await self.go.wait()
                yield "two "
            case _:
                parts = [Part.model_validate(part.to_dict()) for part in run.message.parts]
                yield run.artifact("echo", *parts, metadata=run.metadata or None, last=True)


@pytest.fixture
def agent() -> Agent:
    return Agent()


@pytest.fixture
async def app(house: House, agent: Agent) -> Any:
    gateway = await house.both(agent)
    card = card_of(streaming=True, pushNotifications=True)
    return create_app(house.settings, handler=gateway.handler, card=card)


@pytest.fixture
async def wires(app: Any) -> AsyncIterator[list[Wire]]:
    async with client_of(app) as http:
        yield [wire_of(name, http) for name in WIRES]


def message(words: str = "hi", **more: Any) -> Json:
    fresh = {"messageId": uuid.uuid4().hex, "role": "ROLE_USER", "parts": [{"text": words}]}
    return {"message": {**fresh, **more}}


def anonymous(task: Json, wanted: Json) -> Json:
    """A task without what is its own: ids that the server or the client made, times; and without
    metadata that says nothing.
    """
    canonical = MessageToDict(proto(a2a_pb2.Task, task))
    known = {task["id"]: "TASK", task["contextId"]: "CONTEXT", wanted["messageId"]: "MESSAGE"}

    def walk(value: Any) -> Any:
        if isinstance(value, dict):
            dull = [("timestamp", value.get("timestamp")), ("metadata", {})]
            return {n: walk(each) for n, each in value.items() if (n, each) not in dull}
        if isinstance(value, list):
            return [walk(each) for each in value]
        return known.get(value, value) if isinstance(value, str) else value

    walked: Json = walk(canonical)
    return walked


sends = st.fixed_dictionaries(
    {"message": objects.messages("ROLE_USER")},
    optional={
        "metadata": objects.structs,
        "configuration": st.fixed_dictionaries(
            {}, optional={"acceptedOutputModes": st.lists(objects.media_types, max_size=2)}
        ),
    },
)
each_example = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    max_examples=settings().max_examples // 2,
)


@each_example
@given(params=sends)
async def test_the_same_request_leads_to_the_same_task(
    wires: list[Wire], house: House, params: Json
) -> None:
    params = sayable(params)
    stored, read = [], []
    for wire in wires:
        wanted = {**params["message"], "messageId": uuid.uuid4().hex}
        answered = await wire.send({**params, "message": wanted})
        task = (await house.view(answered["id"])).task
        stored.append(anonymous(task, wanted))
        told = [answered] + [await reader.get(task["id"]) for reader in wires]
        read += [anonymous(each, wanted) for each in told]
    for seen in stored + read:
        assert seen == stored[0]


# -- what is wrong


def struct(value: Any) -> bool:
    return isinstance(value, dict)


def array(value: Any) -> bool:
    return isinstance(value, list)


def string(value: Any) -> bool:
    return isinstance(value, str)


# Where a request can be wrong, and what may stand there. `parts` is `content` in the proto of 0.3.
PLACES: list[tuple[tuple[str | int, ...], Any]] = [
    (("message",), struct),
    (("message", "messageId"), string),
    (("message", "role"), lambda value: False),
    (("message", "parts"), array),
    (("message", "parts", 0), struct),
    (("message", "parts", 0, "text"), string),
    (("message", "parts", 0, "metadata"), struct),
    (("message", "metadata"), struct),
    (("message", "contextId"), string),
    (("message", "taskId"), string),
    (("message", "extensions"), array),
    (("configuration",), struct),
    (("configuration", "historyLength"), lambda value: value == 0),
    (("configuration", "acceptedOutputModes"), array),
    (("metadata",), struct),
]
junk = (
    st.booleans() | st.integers(-9, -1) | st.text(max_size=3) | st.lists(st.none() | st.integers())
) | st.dictionaries(st.text(max_size=3), st.integers(), max_size=2)


def misplaced(wire: Wire, params: Json, place: tuple[str | int, ...], value: Any) -> Json:
    """The params of a send as the wire has them, but for one place."""
    said = deepcopy(wire.said(params))
    inner: Any = said
    for step in place[:-1]:
        inner = inner[step if step in inner or isinstance(step, int) else "content"]
    last = place[-1]
    inner["content" if last == "parts" and "content" in inner else last] = value
    return said


async def code_of(job: Any) -> int | None:
    try:
        await job
    except Refused as refused:
        return refused.code
    return None


@each_example
@given(place=st.sampled_from(PLACES), value=junk)
async def test_the_same_invalid_request_is_refused_in_the_same_way(
    wires: list[Wire], place: tuple[tuple[str | int, ...], Any], value: Any
) -> None:
    path, allowed = place
    assume(not allowed(value))
    params = {**message(), "configuration": {"historyLength": 1}}
    codes = {
        wire.name: await code_of(wire.call("SendMessage", misplaced(wire, params, path, value)))
        for wire in wires
    }
    assert codes == dict.fromkeys(WIRES, -32602)


async def test_what_a_task_does_not_allow_is_refused_in_the_same_way(wires: list[Wire]) -> None:
    first = wires[0]
    ended = (await first.send(message("done")))["id"]
    asking = (await first.send(message("ask")))["id"]
    absent = str(uuid.uuid4())
    for wire in wires:

        async def followed(task_id: str, wire: Wire = wire) -> None:
            async with wire.subscribe(task_id) as events:
                async for _ in events:
                    pass

        async def streamed(params: Json, wire: Wire = wire) -> None:
            async with wire.stream(params) as events:
                async for _ in events:
                    pass

        jobs = {
            -32001: (
                wire.get(absent),
                wire.cancel(absent),
                followed(absent),
                wire.send(message(taskId=absent)),
                streamed(message(taskId=absent)),
            ),
            -32002: (wire.cancel(ended),),
            -32004: (
                wire.send(message(taskId=ended)),
                streamed(message(taskId=ended)),
                followed(ended),
            ),
            -32602: (
                wire.send(message(taskId=asking, contextId="another")),
                streamed(message(taskId=asking, contextId="another")),
                streamed({"message": {**message()["message"], "messageId": ""}}),
                wire.get(asking, historyLength=-1),
            ),
        }
        for code, refused in jobs.items():
            assert [await code_of(job) for job in refused] == [code] * len(refused), wire.name


# -- one task, several wires


@pairs
async def test_a_conversation_goes_on_on_another_wire(
    wires: list[Wire], one: str, other: str
) -> None:
    by_name = {wire.name: wire for wire in wires}
    asked = await by_name[one].send(message("ask"))
    assert asked["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    answered = await by_name[other].send(message("this", taskId=asked["id"]))
    assert (answered["id"], answered["contextId"]) == (asked["id"], asked["contextId"])
    assert (answered["status"]["state"], text(answered)) == ("TASK_STATE_COMPLETED", "this")
    again = await by_name[one].get(asked["id"], historyLength=1)
    assert [each["parts"][0]["text"] for each in again["history"]] == ["this"]


@pytest.mark.parametrize("name", ["historyLength", "history_length"])
async def test_the_history_of_a_query_by_either_name(wires: list[Wire], name: str) -> None:
    """The conformance kit of 0.3 says it as the proto does."""
    old = wires[WIRES.index("0.3 REST")]
    asked = await old.send(message("ask"))
    await old.send(message("this", taskId=asked["id"]))
    for length, texts in (("1", ["this"]), ("0", ["ask", "What more?", "this"])):
        response = await old.http.get(f"/v1/tasks/{asked['id']}", params={name: length})
        history = response.json()["history"]
        assert [each["content"][0]["text"] for each in history] == texts
    refused = await old.http.get(f"/v1/tasks/{asked['id']}", params={name: "-1"})
    assert (refused.status_code, refused.json()["code"]) == (400, -32602)


@pairs
async def test_a_task_is_cancelled_on_another_wire(
    app: Any, one: str, other: str, agent: Agent
) -> None:
    async with opened(app, one, other) as (first, second), first.stream(message("wait")) as events:
        seen = [await anext(events)]
        canceled = await second.cancel(seen[0].data["task"]["id"])
        assert canceled["status"]["state"] == "TASK_STATE_CANCELED"
        seen += [event async for event in events]
        assert state_of(seen[-1].data) == "TASK_STATE_CANCELED"


@pairs
async def test_a_stream_goes_on_on_another_wire(
    app: Any, one: str, other: str, agent: Agent
) -> None:
    """With the position it is the same stream; without it the Task comes first."""
    async with opened(app, one, other) as (first, second):
        async with first.stream(message("wait")) as events:
            seen = [await anext(events)]
            while chunk_of(seen[-1].data) != "one ":
                seen.append(await anext(events))
        task_id = seen[0].data["task"]["id"]
        async with second.subscribe(task_id, after=seen[-1].id) as same:
            async with second.subscribe(task_id) as anew:
                whole = await anext(anew)
                agent.go.set()
                rest = [event async for event in anew]
            resumed = [event async for event in same]
    assert text(whole.data["task"]) == "one "
    assert resumed == rest
    assert "".join(chunk_of(event.data) for event in rest) == "two "
    assert state_of(rest[-1].data) == "TASK_STATE_COMPLETED"


@pytest.mark.parametrize("name", WIRES)
async def test_a_stream_that_a_lost_answer_repeats_ends_as_streams_end(app: Any, name: str) -> None:
    """The task has ended meanwhile: it is told as it is; 0.3 wants a last status besides."""
    async with opened(app, name) as (wire,):
        said = message("done")
        for _ in range(2):
            async with wire.stream(said) as events:
                seen = [event.data async for event in events]
    first, *more = seen
    assert text(first["task"]) == "done"
    assert [state_of(event) for event in more] == (
        ["TASK_STATE_COMPLETED"] if name.startswith("0.3") else []
    )


def state_of(event: Json) -> str:
    state: str = (event.get("statusUpdate") or event["task"])["status"]["state"]
    return state


def chunk_of(event: Json) -> str:
    """The text of an artifact update; "" for all else."""
    return (
        text({"artifacts": [event["artifactUpdate"]["artifact"]]})
        if "artifactUpdate" in event
        else ""
    )


@asynccontextmanager
async def opened(app: Any, *names: str) -> AsyncIterator[list[Wire]]:
    """Clients of a real server, which streams."""
    async with serving(app) as url, httpx.AsyncClient(base_url=url, timeout=60) as http:
        yield [wire_of(name, http) for name in names]
