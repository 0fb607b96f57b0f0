"""A sharing policy may let others at a task; it is asked for each of them, and for nothing else."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from switchroom.agent import Event, Run
from switchroom.gateway.access import Shared, load_policy
from switchroom.gateway.auth.caller import Caller
from switchroom.gateway.context import CallContext
from switchroom.gateway.handlers import DistributedHandler
from switchroom.protocol.errors import TaskNotFound
from switchroom.protocol.event import decode
from switchroom.protocol.model import Json
from switchroom.settings import Settings, SettingsError
from tests.support.gateways import card_of
from tests.support.house import House, message, said

OWNER = CallContext("1.0", tenant="acme", caller="alice/1")
FRIEND = CallContext("1.0", tenant="acme", caller="bob", credential="key:1")
STRANGER = CallContext("1.0", tenant="other", caller="bob")


async def agent(run: Run) -> Event:
    return run.ask("Which?") if run.text == "ask" else run.complete(run.text)


class Policy:
    """Friends may do what `allowed` says."""

    def __init__(self, *allowed: str) -> None:
        self.allowed = allowed
        self.asked: list[tuple[str, str, str, str]] = []

    async def __call__(self, caller: Caller, action: str, task: Shared) -> bool:
        self.asked.append((caller.principal, action, task.tenant, task.principal))
        assert task.task["id"] and task.task["status"]
        return caller.tenant == task.tenant and action in self.allowed


@asynccontextmanager
async def shared(house: House, policy: Policy) -> AsyncIterator[tuple[DistributedHandler, str]]:
    """A handler with this policy, and the id of a task of `OWNER`'s that waits for input."""
    gateway = await house.both(agent)
    card = card_of(streaming=True, pushNotifications=True)
    handler = DistributedHandler(gateway.store, house.settings, card=card, policy=policy)
    task = (await call(handler, "SendMessage", message("ask"), OWNER))["task"]
    yield handler, task["id"]


async def call(handler: DistributedHandler, method: str, params: Json, who: CallContext) -> Json:
    answer = await handler.dispatch(method, params, who)
    if isinstance(answer, AsyncIterator):
        item = await anext(answer)
        await answer.aclose()  # type: ignore[attr-defined]
        answer = item.data  # type: ignore[union-attr]
    return decode(answer) if isinstance(answer, bytes) else dict(answer or {})  # type: ignore[call-overload]


def calls(task_id: str) -> dict[str, tuple[str, Json]]:
    """Each method that is about one task: what it needs, and its params."""
    config = {"taskId": task_id, "id": "c", "url": "https://hooks.test/"}
    return {
        "GetTask": ("tasks:read", {"id": task_id}),
        "SubscribeToTask": ("tasks:read", {"id": task_id}),
        "CreateTaskPushNotificationConfig": ("push:write", config),
        "GetTaskPushNotificationConfig": ("tasks:read", {"taskId": task_id, "id": "c"}),
        "ListTaskPushNotificationConfigs": ("tasks:read", {"taskId": task_id}),
        "DeleteTaskPushNotificationConfig": ("push:write", {"taskId": task_id, "id": "c"}),
        "SendMessage": ("tasks:send", message("more", task=task_id)),
        "CancelTask": ("tasks:cancel", {"id": task_id}),
    }


async def test_what_it_allows_is_done_to_the_owners_task(house: House) -> None:
    policy = Policy("tasks:send", "tasks:read", "push:write")
    async with shared(house, policy) as (handler, task_id):
        for method, (action, params) in calls(task_id).items():
            if method != "CancelTask":
                await call(handler, method, params, FRIEND)
                assert policy.asked[-1] == ("bob", action, "acme", "alice/1")
        task = await call(handler, "GetTask", {"id": task_id}, OWNER)
        assert said(task) == "more"
        # It is still the owner's alone in lists.
        assert (await call(handler, "ListTasks", {}, FRIEND))["tasks"] == []
        assert len((await call(handler, "ListTasks", {}, OWNER))["tasks"]) == 1


async def test_a_cancel_too(house: House) -> None:
    async with shared(house, Policy("tasks:cancel")) as (handler, task_id):
        task = await call(handler, "CancelTask", {"id": task_id}, FRIEND)
        assert task["status"]["state"] == "TASK_STATE_CANCELED"


async def test_what_it_does_not_allow_is_not_there(house: House) -> None:
    policy = Policy()
    async with shared(house, policy) as (handler, task_id):
        for method, (_, params) in calls(task_id).items():
            for who in (FRIEND, STRANGER):
                with pytest.raises(TaskNotFound):
                    await call(handler, method, params, who)
        assert len(policy.asked) == 2 * len(calls(task_id))


async def test_it_is_not_asked_about_ones_own_nor_about_what_is_not_there(house: House) -> None:
    policy = Policy("tasks:read")
    async with shared(house, policy) as (handler, task_id):
        await call(handler, "GetTask", {"id": task_id}, OWNER)
        with pytest.raises(TaskNotFound):
            await call(handler, "GetTask", {"id": "absent"}, FRIEND)
    assert policy.asked == []


async def test_the_same_words_of_two_callers_are_two_messages(house: House) -> None:
    """One who shares a task answers it with the very message that its owner sent before."""
    async with shared(house, Policy("tasks:send", "tasks:read")) as (handler, task_id):
        params = message("ask", task=task_id)
        await call(handler, "SendMessage", params, OWNER)
        task = (await call(handler, "SendMessage", params, FRIEND))["task"]
        assert [each["parts"][0]["text"] for each in task["history"]].count("ask") == 3
        again = (await call(handler, "SendMessage", params, FRIEND))["task"]
        assert again == task


class TestSetting:
    def test_names_a_callable(self, tmp_path: Path) -> None:
        file = tmp_path / "rules.py"
        file.write_text("def may(caller, action, task): return True\n")
        policy = load_policy(Settings(sharing=str(file)))
        assert policy and policy(Caller("a"), "tasks:read", Shared("", "b", {})) is True
        assert load_policy(Settings()) is None

    @pytest.mark.parametrize(
        ("source", "fault"),
        [
            ("", "has no 'may'"),
            ("may = 3", "found int, which cannot be called as may(caller, action, task)"),
            ("def may(caller): ...", "found function, which cannot be called as"),
        ],
    )
    def test_that_names_none_is_refused(self, tmp_path: Path, source: str, fault: str) -> None:
        file = tmp_path / "bad_rules.py"
        file.write_text(source)
        with pytest.raises(SettingsError, match="SWITCHROOM_SHARING") as refused:
            load_policy(Settings(sharing=str(file)))
        assert fault in str(refused.value)
