"""Several callers, one server: whatever anybody asks, on any wire, nothing of another's task is
told or changed, and what is another's cannot be told from what is not there.
"""

from __future__ import annotations

import asyncio
import json
import re
import uuid
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from switchroom.agent import Event, Run
from switchroom.gateway.app import create_app
from switchroom.gateway.auth.gate import Gate
from switchroom.protocol.model import Json
from switchroom.settings import Settings
from tests.conftest import SOAK
from tests.support.acts import settled
from tests.support.answering import Answer, ask
from tests.support.callers import Believed, says
from tests.support.gateways import card_of
from tests.support.house import house_of

CALLERS = ("/alice", "acme/alice", "acme/bob")
ABSENT = "00000000-0000-4000-8000-000000000000"
URL = "https://receiver.test/"


async def agent(run: Run) -> Event:
    word, _, secret = run.text.partition(" ")
    match word:
        case "ask":
            return run.ask(f"More of {secret}?")
        case "reply":
            return run.reply(f"Said {secret}")
        case _:
            return run.complete(f"Done {secret}")


@dataclass(frozen=True)
class Spoken:
    """One request, in one spelling."""

    verb: str
    target: str
    body: Json | None = None
    headers: dict[str, str] = field(default_factory=dict)


def rpc(method: str, params: Json) -> Spoken:
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return Spoken("POST", "/", body, {"A2A-Version": "1.0"})


def old(method: str, params: Json) -> Spoken:
    return Spoken("POST", "/", {"jsonrpc": "2.0", "id": 1, "method": method, "params": params})


def rest(verb: str, path: str, body: Json | None = None) -> Spoken:
    return Spoken(verb, path, body, {"A2A-Version": "1.0"})


def said(text: str, ident: str, **more: str) -> Json:
    return {"messageId": ident, "role": "ROLE_USER", "parts": [{"text": text}], **more}


def said_of_old(text: str, ident: str, **more: str) -> Json:
    parts = [{"kind": "text", "text": text}]
    return {"kind": "message", "messageId": ident, "role": "user", "parts": parts, **more}


def about(task: str, secret: str) -> list[Spoken]:
    """Every way to ask something about one task."""
    push, words, ident = f"/tasks/{task}/pushNotificationConfigs", f"more {secret}", secret
    message = {"message": said(words, ident, taskId=task)}
    old_message = {"message": said_of_old(words, ident, taskId=task)}
    config = {"taskId": task, "id": "c", "url": URL}
    old_config = {"taskId": task, "pushNotificationConfig": {"id": "c", "url": URL}}
    named, of_config = {"id": task}, {"taskId": task, "id": "c"}
    return [
        rpc("GetTask", named),
        rpc("CancelTask", named),
        rpc("SubscribeToTask", named),
        rpc("SendMessage", message),
        rpc("SendStreamingMessage", message),
        rpc("CreateTaskPushNotificationConfig", config),
        rpc("GetTaskPushNotificationConfig", of_config),
        rpc("ListTaskPushNotificationConfigs", {"taskId": task}),
        rpc("DeleteTaskPushNotificationConfig", of_config),
        rest("GET", f"/tasks/{task}"),
        rest("POST", f"/tasks/{task}:cancel"),
        rest("GET", f"/tasks/{task}:subscribe"),
        rest("POST", "/message:send", message),
        rest("POST", "/message:stream", message),
        rest("POST", push, {"id": "c", "url": URL}),
        rest("GET", f"{push}/c"),
        rest("GET", push),
        rest("DELETE", f"{push}/c"),
        old("tasks/get", named),
        old("tasks/cancel", named),
        old("tasks/resubscribe", named),
        old("message/send", old_message),
        old("message/stream", old_message),
        old("tasks/pushNotificationConfig/set", old_config),
        old("tasks/pushNotificationConfig/get", {"id": task}),
        old("tasks/pushNotificationConfig/list", named),
        old("tasks/pushNotificationConfig/delete", {"id": task, "pushNotificationConfigId": "c"}),
        Spoken("GET", f"/v1/tasks/{task}"),
        Spoken("POST", f"/v1/tasks/{task}:cancel"),
        Spoken("GET", f"/v1/tasks/{task}:subscribe"),
        Spoken("GET", f"/v1/tasks/{task}/pushNotificationConfigs"),
    ]


KINDS = len(about("", ""))


class World:
    """A gateway and a worker on one Redis, and what its callers own."""

    def __init__(self) -> None:
        self.runner = asyncio.Runner()
        self._stack = AsyncExitStack()
        self.app = self.runner.run(self._open())
        self.owner_of: dict[str, str] = {}
        self.secrets: dict[str, set[str]] = {caller: set() for caller in CALLERS}

    async def _open(self) -> Any:
        made = Settings(redis_url=f"fake://{uuid.uuid4().hex}", push_allow=("*.test",))
        self.house = await self._stack.enter_async_context(house_of(made))
        self.store = (await self.house.both(agent)).store
        card = card_of(streaming=True, pushNotifications=True)
        return create_app(self.house.settings, card=card, store=self.store, gate=Gate([Believed()]))

    def close(self) -> None:
        self.runner.run(self._stack.aclose())
        self.runner.close()

    def settle(self) -> None:
        """What nobody waits for has been written."""
        self.runner.run(settled(self.store))

    def secret(self, caller: str) -> str:
        """A word of this caller's that nobody else knows."""
        word = uuid.uuid4().hex
        self.secrets[caller].add(word)
        return word

    def ask(self, caller: str, spoken: Spoken, **headers: str) -> Answer:
        body = b"" if spoken.body is None else json.dumps(spoken.body).encode()
        sent = {**spoken.headers, **says(caller), **headers}
        answer = self.runner.run(ask(self.app, spoken.verb, spoken.target, body, sent))
        self._reveals_nothing(caller, spoken, answer)
        return answer

    def _reveals_nothing(self, caller: str, spoken: Spoken, answer: Answer) -> None:
        known = json.dumps(spoken.body) + spoken.target
        for other in CALLERS:
            if other == caller:
                continue
            tasks = [task for task, owner in self.owner_of.items() if owner == other]
            for word in (*self.secrets[other], *tasks):
                assert word.encode() not in answer.body or word in known, (caller, spoken)

    def send(self, caller: str, words: str, spelling: str, **more: str) -> Answer:
        text = f"{words} {self.secret(caller)}"
        ident = more.pop("ident", uuid.uuid4().hex)
        match spelling:
            case "rpc":
                spoken = rpc("SendMessage", {"message": said(text, ident, **more)})
            case "stream":
                spoken = rpc("SendStreamingMessage", {"message": said(text, ident, **more)})
            case "rest":
                spoken = rest("POST", "/message:send", {"message": said(text, ident, **more)})
            case _:
                spoken = old("message/send", {"message": said_of_old(text, ident, **more)})
        answer = self.ask(caller, spoken)
        self.owned(caller, answer)
        return answer

    def owned(self, caller: str, answer: Answer) -> None:
        """Remembers whose the task is that an answer tells of."""
        told = answer.json.get("result", answer.json)
        task = told.get("task", told)
        if ident := task.get("id") if "status" in task else None:
            assert self.owner_of.setdefault(ident, caller) == caller, "a task changed its owner"

    def tasks(self, caller: str) -> dict[str, Json]:
        """All that the caller sees, by ListTasks."""
        listed = self.ask(caller, rpc("ListTasks", {"pageSize": 100, "includeArtifacts": True}))
        return {task["id"]: task for task in listed.json["result"]["tasks"]}


callers = st.sampled_from(CALLERS)
contexts = st.sampled_from(["", "shared"])


class Isolation(RuleBasedStateMachine):
    """Random calls by several callers, who use the same ids wherever a client may choose them."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()

    def teardown(self) -> None:
        self.world.close()

    @rule(
        caller=callers,
        words=st.sampled_from(["do", "ask", "reply"]),
        spelling=st.sampled_from(["rpc", "stream", "rest", "old"]),
        context=contexts,
        ident=st.sampled_from(["m1", "m2"]),
    )
    def send(self, caller: str, words: str, spelling: str, context: str, ident: str) -> None:
        more = {"contextId": context} if context else {}
        self.world.send(caller, words, spelling, ident=ident, **more)

    @rule(caller=callers, key=st.sampled_from(["k1", "k2"]), ident=st.sampled_from(["m1", "m2"]))
    def send_with_a_key(self, caller: str, key: str, ident: str) -> None:
        body = {"message": said("do it", ident)}
        answer = self.world.ask(
            caller, rest("POST", "/message:send", body), **{"Idempotency-Key": key}
        )
        self.world.owned(caller, answer)

    @precondition(lambda self: self.world.owner_of)
    @rule(caller=callers, data=st.data(), kind=st.integers(0, KINDS - 1), position=st.booleans())
    def ask_about(self, caller: str, data: st.DataObject, kind: int, position: bool) -> None:
        task = data.draw(st.sampled_from(sorted(self.world.owner_of)))
        owner, secret = self.world.owner_of[task], self.world.secret(caller)
        headers = {"Last-Event-ID": "1.0000000000000000"} if position else {}
        if owner == caller:
            self.world.ask(caller, about(task, secret)[kind], **headers)
            return
        before = self.world.tasks(owner)
        foreign = self.world.ask(caller, about(task, secret)[kind], **headers)
        assert self.world.tasks(owner) == before, "a stranger changed it"
        absent = self.world.ask(caller, about(ABSENT, secret)[kind], **headers)
        assert _said(foreign, task) == _said(absent, ABSENT)

    @rule(caller=callers, context=contexts)
    def list_tasks(self, caller: str, context: str) -> None:
        more = {"contextId": context} if context else {}
        listed = self.world.ask(caller, rpc("ListTasks", {"pageSize": 2, **more}))
        for task in listed.json["result"]["tasks"]:
            assert self.world.owner_of.get(task["id"], caller) == caller
        if token := listed.json["result"]["nextPageToken"]:
            for other in CALLERS:
                if other != caller:
                    params = {"pageSize": 2, "pageToken": token, **more}
                    stolen = self.world.ask(other, rpc("ListTasks", params))
                    assert stolen.json["error"]["code"] == -32602

    @rule(caller=callers, tenant=st.sampled_from(["acme", "other"]))
    def name_a_tenant(self, caller: str, tenant: str) -> None:
        answer = self.world.ask(caller, rest("GET", f"/{tenant}/tasks"))
        assert answer.status == (200 if caller.startswith(f"{tenant}/") else 403)

    @invariant()
    def each_sees_its_own(self) -> None:
        for caller in CALLERS:
            for task in self.world.tasks(caller):
                assert self.world.owner_of.setdefault(task, caller) == caller


def _said(answer: Answer, task: str) -> Any:
    """What a client is told, but for what differs with every answer."""
    kept = {"content-type", "www-authenticate", "retry-after", "content-length"}
    headers = {name: value for name, value in answer.headers.items() if name in kept}
    return answer.status, headers, re.sub(task.encode(), b"TASK", answer.body)


TestIsolation = Isolation.TestCase
TestIsolation.settings = hypothesis_settings(
    max_examples=200 if SOAK else 12, stateful_step_count=40 if SOAK else 25, deadline=None
)


@pytest.fixture
def world() -> Iterator[World]:
    opened = World()
    yield opened
    opened.close()


@pytest.mark.parametrize("kind", range(KINDS), ids=lambda n: f"{about('', '')[n].verb}-{n}")
def test_a_foreign_task_costs_the_store_what_an_absent_one_does(world: World, kind: int) -> None:
    owned = world.send("/alice", "ask", "rpc").json["result"]["task"]["id"]

    def cost(task: str) -> tuple[Any, list[int]]:
        lanes = (world.store.commit, world.store.reads)
        before = [lane.round_trips for lane in lanes]
        answer = world.ask("acme/bob", about(task, world.secret("acme/bob"))[kind])
        world.settle()
        spent = [lane.round_trips - n for lane, n in zip(lanes, before, strict=True)]
        return _said(answer, task), spent

    assert cost(owned) == cost(ABSENT)
