"""What the card does not offer is refused before any work, and the card tells it as it is."""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from switchroom.agent import Event, Run
from switchroom.gateway.app import create_app
from switchroom.gateway.card import CARD_PATH
from switchroom.protocol.methods import METHODS
from switchroom.protocol.model import Json
from tests.support.gateways import call, card_of, client_of, request
from tests.support.house import House, message
from tests.support.wires import WIRES, Refused, wire_of

FLAGS = ("streaming", "pushNotifications", "extendedAgentCard")
REFUSALS = {"streaming": -32004, "push_notifications": -32003, "extended_agent_card": -32004}


async def agent(run: Run) -> Event:
    return run.complete()


@asynccontextmanager
async def gateway(house: House, flags: dict[str, Any]) -> AsyncIterator[httpx.AsyncClient]:
    store = (await house.gateway()).store
    async with client_of(create_app(house.settings, card=card_of(**flags), store=store)) as http:
        yield http


@pytest.mark.parametrize("offered", [*itertools.product([True, False, None], repeat=3)])
async def test_each_is_offered_or_refused_by_itself(
    house: House, offered: tuple[bool | None, ...]
) -> None:
    flags = {name: flag for name, flag in zip(FLAGS, offered, strict=True) if flag is not None}
    async with gateway(house, flags) as http:
        card = (await http.get(CARD_PATH)).json()
        assert card["capabilities"] == flags
        assert card.get("supportsAuthenticatedExtendedCard") == flags.get("extendedAgentCard")
        needed = {row.name: row.needs for row in METHODS.values() if row.needs}
        camel = dict(zip(REFUSALS, FLAGS, strict=True))
        for method, needs in needed.items():
            # Params that are wrong are not even looked at.
            code = (await call(http, method, {"id": 1, "message": 1})).json()["error"]["code"]
            if not flags.get(camel[needs]):
                assert code == REFUSALS[needs], method
            else:
                assert code == (-32007 if needs == "extended_agent_card" else -32602), method


async def test_it_is_refused_before_its_params_are_in_either_version(house: House) -> None:
    wrong = {"id": 1, "message": 1, "tenant": 1}
    async with gateway(house, {}) as http:
        for row in (row for row in METHODS.values() if row.needs):
            code = REFUSALS[row.needs or ""]
            for version, name in (("1.0", row.name), ("0.3", row.v03)):
                asked = request(str(name), wrong)
                said = await http.post("/", json=asked, headers={"A2A-Version": version})
                answer = json.loads(said.text.removeprefix("data: "))
                assert answer["error"]["code"] == code, name
        for path in ("/v1/message:stream", "/v1/tasks/t/pushNotificationConfigs"):
            answer = (await http.post(path, json=wrong)).json()
            assert (
                answer["code"] == REFUSALS["push_notifications" if "push" in path else "streaming"]
            )
    required = {"extensions": [{"uri": "https://ext.test", "required": True}]}
    async with gateway(house, required) as http:
        for name in ("message/send", "tasks/get"):
            answer = (await http.post("/", json=request(name, wrong))).json()
            assert answer["error"]["code"] == -32008


HOOK = {"url": "https://hook.test/"}


@pytest.mark.parametrize("name", WIRES)
async def test_a_config_within_a_message_is_refused_before_there_is_a_task(
    house: House, name: str
) -> None:
    await house.worker(agent)
    asks: Json = message("a", taskPushNotificationConfig=HOOK)
    async with gateway(house, {"streaming": True}) as http:
        wire = wire_of(name, http)
        with pytest.raises(Refused) as refused:
            await wire.send(asks)
        assert refused.value.code == -32003
        with pytest.raises(Refused) as refused:
            async with wire.stream(asks) as events:
                await anext(events)
        assert refused.value.code == -32003
        assert not (await wire_of(WIRES[0], http).call("ListTasks", {}))["tasks"]
    async with gateway(house, {"pushNotifications": True}) as http:
        assert (await wire_of(name, http).send(asks))["status"]["state"].endswith("COMPLETED")


@pytest.mark.parametrize("name", WIRES)
async def test_a_stream_is_refused_on_each_wire(house: House, name: str) -> None:
    async with gateway(house, {"pushNotifications": True}) as http:
        wire = wire_of(name, http)
        for opened in (wire.stream(message("a")), wire.subscribe("any")):
            with pytest.raises(Refused) as refused:
                async with opened as events:
                    await anext(events)
            assert refused.value.code == -32004
