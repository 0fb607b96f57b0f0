"""What a client sends may be only so large, part by part; what is refused leaves nothing."""

from __future__ import annotations

from typing import Any

import pytest

from switchroom.agent import Event, Run
from switchroom.protocol.errors import InvalidParams, UnsupportedOperation
from switchroom.protocol.model import Json
from tests.support.house import House, message


async def agent(run: Run) -> Event:
    return run.ask("Which?")


async def refused(house: House, params: Json, field: str, **settings: Any) -> str:
    gateway = await house.gateway(**settings)
    with pytest.raises(InvalidParams) as error:
        await gateway.call("SendMessage", params)
    assert (await gateway.list())["totalSize"] == 0
    ((path, fault),) = error.value.violations
    assert path == field
    return fault


async def test_parts_of_a_message(house: House) -> None:
    params = message("hi", returnImmediately=True)
    params["message"]["parts"] = [{"text": "x"}] * 4
    assert await refused(house, params, "message.parts", parts_limit=3) == "must not be more than 3"
    gateway = await house.gateway(parts_limit=4)
    await gateway.call("SendMessage", params)


@pytest.mark.parametrize(
    "field", ["metadata", "message.metadata", "message.parts[0].metadata", "message.parts[1].data"]
)
@pytest.mark.parametrize("inner", [{"a": {"a": {}}}, {"a": [[]]}, {"a": [{"b": 1}]}])
async def test_depth_of_what_is_free_form(house: House, field: str, inner: Json) -> None:
    params = message("hi", returnImmediately=True)
    parts = params["message"]["parts"]
    parts.append({"data": {}})
    places = {
        "metadata": (params, "metadata"),
        "message.metadata": (params["message"], "metadata"),
        "message.parts[0].metadata": (parts[0], "metadata"),
        "message.parts[1].data": (parts[1], "data"),
    }
    holder, name = places[field]
    holder[name] = inner
    fault = await refused(house, params, field, depth_limit=2)
    assert fault == "must not nest deeper than 2 levels"
    gateway = await house.gateway(depth_limit=3)
    await gateway.call("SendMessage", params)


async def test_messages_of_a_task(house: House) -> None:
    gateway = await house.both(agent, history_limit=5)
    task = await gateway.send("one")
    for words in ("two", "three"):
        task = await gateway.send(words, task=task["id"])
    assert len(task["history"]) == 5
    with pytest.raises(UnsupportedOperation, match="5 messages and takes no more"):
        await gateway.send("four", task=task["id"])
    assert await gateway.get(task["id"]) == task


async def test_push_configs_of_a_task_however_they_come(house: House) -> None:
    gateway = await house.both(agent, push_configs=2)

    def config(ident: str) -> Json:
        return {"id": ident, "url": "https://hooks.test/"}

    task = await gateway.send("one", taskPushNotificationConfig=config("a"))
    create = {"taskId": task["id"], **config("b")}
    await gateway.call("CreateTaskPushNotificationConfig", create)
    full = "at most 2 push configs"
    with pytest.raises(InvalidParams, match=full):
        await gateway.call("CreateTaskPushNotificationConfig", {**create, "id": "c"})
    with pytest.raises(InvalidParams, match=full):
        await gateway.send("two", task=task["id"], taskPushNotificationConfig=config("c"))
    assert await gateway.get(task["id"]) == task
    again = await gateway.send("two", task=task["id"], taskPushNotificationConfig=config("b"))
    assert again["id"] == task["id"]
