"""What each method answers besides sending: reading, listing, cancelling, push configs; and whose
tasks a caller can touch.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from switchroom.agent import Event, Part, Run
from switchroom.gateway.context import CallContext
from switchroom.gateway.handlers import DistributedHandler
from switchroom.protocol.errors import (
    A2AError,
    ExtendedAgentCardNotConfigured,
    InvalidParams,
    MethodNotImplemented,
    PermissionDenied,
    PushNotificationNotSupported,
    TaskNotCancelable,
    TaskNotFound,
    UnsupportedOperation,
)
from switchroom.protocol.methods import METHODS
from switchroom.protocol.model import Json
from tests.support.gateways import card_of
from tests.support.house import House, message, text
from tests.support.wait import wait_until

SUBMITTED, WORKING = "TASK_STATE_SUBMITTED", "TASK_STATE_WORKING"
COMPLETED, CANCELED = "TASK_STATE_COMPLETED", "TASK_STATE_CANCELED"
ASKS = "TASK_STATE_INPUT_REQUIRED"


async def agent(run: Run) -> AsyncIterator[Event]:
    """Says the text; asks when told to."""
    if run.text == "ask":
        yield run.ask("Which?")
        return
    yield run.status("Thinking")
    yield run.text


async def test_get_task_answers_the_task_as_it_is_on_any_gateway(house: House) -> None:
    one, two = await house.both(agent), await house.gateway()
    task = await one.send("hello")
    assert await two.get(task["id"]) == task
    assert task["status"]["state"] == COMPLETED and text(task) == "hello"


async def test_history_is_in_order_and_its_length_is_kept_to(house: House) -> None:
    gateway = await house.both(agent)
    task = await gateway.send("ask")
    task = await gateway.send("go on", task=task["id"])
    said = [part["text"] for entry in task["history"] for part in entry["parts"]]
    assert said == ["ask", "Which?", "go on", "Thinking"]
    assert [entry["role"] for entry in task["history"]] == [
        "ROLE_USER",
        "ROLE_AGENT",
        "ROLE_USER",
        "ROLE_AGENT",
    ]

    async def at_most(length: int) -> Json:
        return await gateway.call("GetTask", {"id": task["id"], "historyLength": length})

    assert (await at_most(2))["history"] == task["history"][-2:]
    assert await at_most(100) == task
    assert "history" not in await at_most(0)
    with pytest.raises(InvalidParams):
        await at_most(-1)


async def test_every_message_of_the_history_bears_the_tasks_own_ids(house: House) -> None:
    gateway = await house.both(agent)
    task = await gateway.send("ask", context="talk")
    task = await gateway.send("go on", task=task["id"])
    assert task["contextId"] == "talk"
    for said in task["history"]:
        assert (said["taskId"], said["contextId"]) == (task["id"], "talk")


UNKNOWN = "00000000-0000-4000-8000-000000000000"


def touching(task_id: str) -> dict[str, Json]:
    """Params of every method that names a task."""
    return {
        "SendMessage": message("hi", task=task_id),
        "SendStreamingMessage": message("hi", task=task_id),
        "GetTask": {"id": task_id},
        "CancelTask": {"id": task_id},
        "SubscribeToTask": {"id": task_id},
        "CreateTaskPushNotificationConfig": {"taskId": task_id, "url": "https://a.test/hook"},
        "GetTaskPushNotificationConfig": {"taskId": task_id, "id": "1"},
        "ListTaskPushNotificationConfigs": {"taskId": task_id},
        "DeleteTaskPushNotificationConfig": {"taskId": task_id, "id": "1"},
    }


def test_the_methods_that_name_a_task_are_all_here() -> None:
    assert {*touching("t")} == {*METHODS} - {"ListTasks", "GetExtendedAgentCard"}


@pytest.mark.parametrize("method", touching("t"))
async def test_a_foreign_task_is_answered_as_an_unknown_one(house: House, method: str) -> None:
    gateway = await house.both(agent)
    task = await gateway.send("ask")
    await gateway.call(
        "CreateTaskPushNotificationConfig",
        {"taskId": task["id"], "id": "1", "url": "https://a.test/hook"},
    )

    async def refusal(task_id: str) -> A2AError:
        with pytest.raises(TaskNotFound) as refused:
            await gateway.call(method, touching(task_id)[method], caller="bob")
        return refused.value

    foreign, unknown = await refusal(task["id"]), await refusal(UNKNOWN)
    assert (str(foreign), foreign.data()) == (str(unknown), unknown.data())
    assert await gateway.get(task["id"]) == task


async def test_one_caller_lists_nothing_of_another(house: House) -> None:
    gateway = await house.both(agent)
    task = await gateway.send("hi", context="shared")
    theirs = await gateway.send("hi", context="shared", caller="bob")
    assert theirs["contextId"] == task["contextId"]
    for filters in ({}, {"contextId": "shared"}, {"status": COMPLETED}):
        mine = await gateway.list(**filters)
        assert [found["id"] for found in mine["tasks"]] == [task["id"]]
        assert mine["totalSize"] == 1


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("SendMessage", None),
        ("SendMessage", {}),
        ("SendMessage", {"message": {"messageId": "m", "role": "ROLE_USER", "parts": []}}),
        ("SendStreamingMessage", message("x", historyLength=-1)),
        ("GetTask", {}),
        ("GetTask", {"id": ""}),
        ("ListTasks", {"pageSize": 0}),
        ("ListTasks", {"pageSize": 101}),
        ("ListTasks", {"pageToken": "of another server"}),
        ("ListTasks", {"status": "TASK_STATE_WAITING"}),
        ("ListTasks", {"historyLength": -1}),
        ("ListTasks", {"statusTimestampAfter": "yesterday"}),
        ("CancelTask", {}),
        ("SubscribeToTask", None),
        ("CreateTaskPushNotificationConfig", {"taskId": UNKNOWN}),
        ("CreateTaskPushNotificationConfig", {"taskId": UNKNOWN, "url": "a.test/hook"}),
        ("CreateTaskPushNotificationConfig", {"url": "https://a.test/hook"}),
        ("GetTaskPushNotificationConfig", {"taskId": UNKNOWN}),
        ("ListTaskPushNotificationConfigs", {}),
        ("DeleteTaskPushNotificationConfig", {"id": "1"}),
    ],
)
async def test_bad_params_are_refused_before_anything_is_done(
    house: House, method: str, params: Json | None
) -> None:
    gateway = await house.gateway()
    asked = gateway.store.commit.round_trips, gateway.store.reads.round_trips
    with pytest.raises(InvalidParams) as refused:
        await gateway.call(method, params)
    assert refused.value.violations
    assert asked == (gateway.store.commit.round_trips, gateway.store.reads.round_trips)


async def test_a_method_outside_the_table_is_not_implemented(house: House) -> None:
    gateway = await house.gateway()
    with pytest.raises(MethodNotImplemented):
        await gateway.handler.dispatch("DeleteTask", {}, CallContext("1.0"))


async def test_there_is_no_extended_card_unless_it_is_configured(house: House) -> None:
    gateway = await house.gateway()
    with pytest.raises(ExtendedAgentCardNotConfigured):
        await gateway.call("GetExtendedAgentCard")


# -- listing


async def test_an_empty_list_has_all_its_members(house: House) -> None:
    gateway = await house.gateway()
    assert await gateway.list() == {
        "tasks": [],
        "nextPageToken": "",
        "pageSize": 50,
        "totalSize": 0,
    }


async def test_pages_show_each_task_once_newest_first_on_any_gateway(house: House) -> None:
    gateways = [await house.both(agent), await house.gateway()]
    sent = [(await gateways[0].send(f"say {n}"))["id"] for n in range(5)]
    seen: list[str] = []
    token = ""
    for turn in range(3):
        page = await gateways[turn % 2].list(pageSize=2, pageToken=token)
        assert page["pageSize"] == 2 and page["totalSize"] == 5
        seen += [task["id"] for task in page["tasks"]]
        token = page["nextPageToken"]
    assert token == ""
    assert sorted(seen) == sorted(sent)
    tasks = (await gateways[1].list())["tasks"]
    order = [(task["status"]["timestamp"], task["id"]) for task in tasks]
    assert order == sorted(order, reverse=True) and [i for _, i in order] == seen


async def test_a_page_token_is_of_one_list_and_one_caller(house: House) -> None:
    gateway = await house.both(agent)
    for n in range(2):
        await gateway.send(f"say {n}")
    token = (await gateway.list(pageSize=1))["nextPageToken"]
    assert token
    for caller, filters in [("bob", {}), ("alice", {"status": COMPLETED})]:
        with pytest.raises(InvalidParams):
            await gateway.list(caller=caller, pageSize=1, pageToken=token, **filters)


async def test_lists_filter_by_context_and_state(house: House) -> None:
    gateway = await house.both(agent)
    asked = await gateway.send("ask", context="a")
    done = await gateway.send("hi", context="a")
    other = await gateway.send("hi", context="b")

    async def ids(**filters: str) -> set[str]:
        return {task["id"] for task in (await gateway.list(**filters))["tasks"]}

    assert await ids() == {asked["id"], done["id"], other["id"]}
    assert await ids(contextId="a") == {asked["id"], done["id"]}
    assert await ids(status=COMPLETED) == {done["id"], other["id"]}
    assert await ids(status=ASKS) == {asked["id"]}
    assert await ids(status=WORKING) == set()
    assert await ids(contextId="a", status=COMPLETED) == {done["id"]}
    assert await ids(status="TASK_STATE_UNSPECIFIED") == await ids()
    assert await ids(contextId="c") == set()


async def test_the_time_filter_is_inclusive(house: House) -> None:
    gateway = await house.both(agent)
    task = await gateway.send("hi")
    at = task["status"]["timestamp"]
    assert [t["id"] for t in (await gateway.list(statusTimestampAfter=at))["tasks"]] == [task["id"]]
    later = at.replace("Z", "001Z")  # a microsecond more
    assert (await gateway.list(statusTimestampAfter=later))["tasks"] == []


async def test_artifacts_are_listed_only_when_asked_for(house: House) -> None:
    gateway = await house.both(agent)
    said, asked = await gateway.send("hi"), await gateway.send("ask")
    assert all("artifacts" not in task for task in (await gateway.list())["tasks"])
    page = await gateway.list(includeArtifacts=True, historyLength=0)
    found = {task["id"]: task for task in page["tasks"]}
    assert found[said["id"]]["artifacts"] == said["artifacts"]
    assert found[asked["id"]]["artifacts"] == []
    assert all("history" not in task for task in page["tasks"])


# -- cancelling


async def test_a_task_that_waits_for_its_user_is_canceled_at_once(house: House) -> None:
    gateway = await house.both(agent)
    task = await gateway.send("ask")
    canceled = await gateway.call("CancelTask", {"id": task["id"]})
    assert canceled["status"]["state"] == CANCELED
    assert canceled["history"][-1]["parts"] == [{"text": "Which?"}]
    assert await gateway.get(task["id"]) == canceled


async def test_a_task_that_no_worker_has_begun_is_canceled_at_once(house: House) -> None:
    gateway = await house.gateway()
    task = await gateway.send("hi", returnImmediately=True)
    assert task["status"]["state"] == SUBMITTED
    canceled = await gateway.call("CancelTask", {"id": task["id"]})
    assert canceled["status"]["state"] == CANCELED


async def test_a_canceled_task_never_runs(house: House) -> None:
    ran: list[str] = []

    async def counting(run: Run) -> str:
        ran.append(run.text)
        return ""

    gateway = await house.gateway()
    task = await gateway.send("canceled", returnImmediately=True)
    await gateway.call("CancelTask", {"id": task["id"]})
    await house.worker(counting)
    await gateway.send("next")
    assert ran == ["next"]
    assert (await gateway.get(task["id"]))["status"]["state"] == CANCELED


@pytest.mark.parametrize("state", [COMPLETED, CANCELED])
async def test_what_has_ended_cannot_be_canceled(house: House, state: str) -> None:
    gateway = await house.both(agent)
    task = await gateway.send("ask" if state == CANCELED else "hi")
    if state == CANCELED:
        await gateway.call("CancelTask", {"id": task["id"]})
    before = await gateway.get(task["id"])
    with pytest.raises(TaskNotCancelable, match=state):
        await gateway.call("CancelTask", {"id": task["id"]})
    assert await gateway.get(task["id"]) == before


async def test_two_cancels_at_once_give_both_callers_the_canceled_task(house: House) -> None:
    both_have_asked = asyncio.Event()

    async def tidy(run: Run) -> str:
        try:
            await asyncio.Event().wait()
        finally:
            await both_have_asked.wait()
        return ""

    one, two = await house.both(tidy), await house.gateway()
    task = await one.send("wait", returnImmediately=True)
    await house.running(task["id"])
    asked = one.store.commit.round_trips, two.store.commit.round_trips
    cancels = asyncio.gather(
        one.call("CancelTask", {"id": task["id"]}), two.call("CancelTask", {"id": task["id"]})
    )
    await wait_until(
        lambda: one.store.commit.round_trips > asked[0] and two.store.commit.round_trips > asked[1],
        what="both gateways have asked for the cancel",
    )
    both_have_asked.set()
    answers = await cancels
    assert answers[0] == answers[1]
    assert answers[0]["status"]["state"] == CANCELED


# -- subscribing to what has ended


async def test_nothing_follows_on_a_task_that_has_ended(house: House) -> None:
    gateway = await house.both(agent)
    task = await gateway.send("hi")
    with pytest.raises(UnsupportedOperation, match=COMPLETED):
        async with gateway.subscribe(task["id"]):
            pass


# -- push configs


async def test_a_push_config_is_kept_and_its_credentials_are_not_told(house: House) -> None:
    gateway, other = await house.both(agent), await house.gateway()
    task_id = (await gateway.send("ask"))["id"]
    given = {
        "taskId": task_id,
        "id": "hook",
        "url": "https://a.test/hook",
        "token": "t",
        "authentication": {"scheme": "Bearer", "credentials": "secret"},
    }
    assert await gateway.call("CreateTaskPushNotificationConfig", given) == given
    told = {**given, "authentication": {"scheme": "Bearer"}}
    named = {"taskId": task_id, "id": "hook"}
    assert await other.call("GetTaskPushNotificationConfig", named) == told
    listed = await other.call("ListTaskPushNotificationConfigs", {"taskId": task_id})
    assert listed == {"configs": [told], "nextPageToken": ""}


async def test_the_same_config_id_again_replaces_it(house: House) -> None:
    gateway = await house.both(agent)
    task_id = (await gateway.send("hi"))["id"]  # allowed on what has ended, too
    for url in ("https://a.test/1", "https://a.test/2"):
        await gateway.call(
            "CreateTaskPushNotificationConfig", {"taskId": task_id, "id": "1", "url": url}
        )
    listed = await gateway.call("ListTaskPushNotificationConfigs", {"taskId": task_id})
    assert [config["url"] for config in listed["configs"]] == ["https://a.test/2"]


async def test_a_config_without_an_id_gets_one_of_its_own(house: House) -> None:
    gateway = await house.both(agent)
    task_id = (await gateway.send("ask"))["id"]
    params = {"taskId": task_id, "url": "https://a.test/hook"}
    one = await gateway.call("CreateTaskPushNotificationConfig", params)
    two = await gateway.call("CreateTaskPushNotificationConfig", params)
    listed = await gateway.call("ListTaskPushNotificationConfigs", {"taskId": task_id})
    assert {config["id"] for config in listed["configs"]} == {one["id"], two["id"]}
    assert len({one["id"], two["id"], task_id}) == 3


async def test_a_deleted_config_is_gone_and_may_be_deleted_again(house: House) -> None:
    gateway = await house.both(agent)
    task_id = (await gateway.send("ask"))["id"]
    named = {"taskId": task_id, "id": "1"}
    await gateway.call("CreateTaskPushNotificationConfig", {**named, "url": "https://a.test/"})
    assert await gateway.call("DeleteTaskPushNotificationConfig", named) == {}
    assert await gateway.call("DeleteTaskPushNotificationConfig", named) == {}
    with pytest.raises(TaskNotFound):
        await gateway.call("GetTaskPushNotificationConfig", named)


async def test_a_task_has_only_so_many_configs(house: House) -> None:
    gateway = await house.both(agent)
    params = {"taskId": (await gateway.send("ask"))["id"], "url": "https://a.test/hook"}
    for _ in range(32):
        await gateway.call("CreateTaskPushNotificationConfig", params)
    with pytest.raises(InvalidParams, match="at most 32"):
        await gateway.call("CreateTaskPushNotificationConfig", params)


async def test_a_send_may_bring_its_push_config(house: House) -> None:
    gateway = await house.both(agent)
    hook = {"url": "https://a.test/hook", "token": "t"}
    task = await gateway.send("ask", taskPushNotificationConfig=hook)
    listed = await gateway.call("ListTaskPushNotificationConfigs", {"taskId": task["id"]})
    (config,) = listed["configs"]
    assert config == {**hook, "taskId": task["id"], "id": config["id"]}


async def test_a_bad_webhook_in_a_send_is_refused_before_there_is_a_task(house: House) -> None:
    gateway = await house.both(agent)
    with pytest.raises(InvalidParams) as refused:
        await gateway.send("hi", taskPushNotificationConfig={"url": "ftp://a.test/hook"})
    assert refused.value.violations[0][0] == "configuration.taskPushNotificationConfig.url"
    assert (await gateway.list())["totalSize"] == 0


async def test_a_send_with_a_webhook_is_refused_where_there_are_none(house: House) -> None:
    gateway = await house.both(agent)
    gateway.handler = DistributedHandler(gateway.store, house.settings, card=card_of())
    with pytest.raises(PushNotificationNotSupported):
        await gateway.send("hi", taskPushNotificationConfig={"url": "https://a.test/hook"})


async def test_any_json_in_data_comes_back_as_it_was(house: House) -> None:
    data = {"n": 2**70, "float": 1.0, "deep": [[], {}, None, True], "ä": "€"}

    async def reflecting(run: Run) -> AsyncIterator[Event]:
        yield run.artifact("back", Part(data=run.message.parts[0].data))

    gateway = await house.both(reflecting)
    params = message("x")
    params["message"]["parts"] = [{"data": data}]
    task = (await gateway.call("SendMessage", params))["task"]
    assert task["history"][0]["parts"] == [{"data": data}]
    assert task["artifacts"][0]["parts"] == [{"data": data}]


async def test_a_push_config_that_comes_with_a_send_needs_its_own_scope(house: House) -> None:
    gateway = await house.gateway()
    params = message("hi", taskPushNotificationConfig={"url": "https://hooks.test/"})
    context = CallContext("1.0", caller="alice", scopes=frozenset({"tasks:send"}))
    with pytest.raises(PermissionDenied) as refused:
        await gateway.handler.dispatch("SendMessage", params, context)
    assert refused.value.metadata == {"scope": "push:write"}
    assert (await gateway.list())["totalSize"] == 0
