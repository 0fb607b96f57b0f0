"""Content that an agent does not take is refused before there is a task; what it should answer in
is for the agent to see.
"""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from switchroom.agent import Event, Run
from switchroom.gateway.app import create_app
from switchroom.gateway.content import InputModes
from switchroom.protocol.card import AgentCard
from switchroom.protocol.errors import ContentTypeNotSupported
from switchroom.protocol.model import Json, Message
from tests.support.gateways import card_of, client_of
from tests.support.house import House, message, text
from tests.support.wires import WIRES, Refused, wire_of


def card(modes: list[str], *skills: list[str]) -> AgentCard:
    offered = card_of(streaming=True).to_dict()
    (skill,) = offered["skills"]
    offered["defaultInputModes"] = modes
    offered["skills"] = [skill, *({**skill, "inputModes": each} for each in skills)]
    return AgentCard.model_validate(offered)


def message_of(*parts: Json) -> Message:
    said = {"messageId": "m", "role": "ROLE_USER", "parts": list(parts)}
    return Message.model_validate(said)


FILE = {"raw": base64.b64encode(b"tck").decode()}


@pytest.mark.parametrize(
    ("modes", "skills", "media_type"),
    [
        (["text/plain"], [], "text/plain"),
        (["text/plain"], [], "TEXT/Plain; charset=utf-8"),
        (["Text/Plain;charset=utf-8"], [], "text/plain"),
        (["text/plain"], [["application/pdf"], ["image/png"]], "image/png"),
        (["text/plain"], [["image/png"]], "text/plain"),
        (["text/*"], [], "text/markdown"),
        (["text/plain", "*/*"], [], "application/x-anything"),
        (["text/plain"], [["*/*"]], "application/x-anything"),
        (["text"], [], "text/markdown"),
        (["text", "file"], [], "image/png"),
    ],
)
def test_a_part_is_taken_if_a_skill_takes_its_type(
    modes: list[str], skills: list[list[str]], media_type: str
) -> None:
    InputModes(card(modes, *skills)).check(message_of({**FILE, "mediaType": media_type}))


@pytest.mark.parametrize(
    ("modes", "skills", "media_type"),
    [
        (["text/plain"], [], "application/x-unsupported-tck-type"),
        (["text/plain"], [["application/json"]], "text/markdown"),
        (["text/*"], [], "texts/plain"),
        (["text/plain"], [], "text/plainer"),
        (["text/plain"], [], "*/*"),
        (["text/plain"], [], "text"),
    ],
)
def test_else_it_is_refused_and_told_what_would_be_taken(
    modes: list[str], skills: list[list[str]], media_type: str
) -> None:
    checked = InputModes(card(modes, *skills))
    with pytest.raises(ContentTypeNotSupported) as caught:
        checked.check(message_of({"text": "Hello"}, {**FILE, "mediaType": media_type}))
    assert str(caught.value).startswith("message.parts[1].mediaType is not among ")
    assert all(mode in str(caught.value) for mode in [*modes, *sum(skills, [])])
    assert media_type not in str(caught.value).replace(",", "").split()


@pytest.mark.parametrize("content", [{"text": "a"}, {"data": {"a": 1}}, {"url": "http://a/"}, FILE])
def test_a_part_that_does_not_say_its_type_is_taken(content: Json) -> None:
    InputModes(card(["image/png"])).check(message_of(content))


async def agent(run: Run) -> AsyncIterator[Event]:
    yield f"{run.accepted_output_modes}"


@pytest.fixture
async def http(house: House) -> AsyncIterator[httpx.AsyncClient]:
    await house.worker(agent)
    store = (await house.gateway()).store
    async with client_of(
        create_app(house.settings, card=card(["text/plain"]), store=store)
    ) as http:
        yield http


FIELDS = dict(
    zip(
        WIRES,
        (
            r"message\.parts\[0\]\.mediaType",
            r"message\.parts\[0\]\.mediaType",
            r"message\.parts\[0\]\.file\.mimeType",
            r"message\.content\[0\]\.file\.mimeType",
        ),
        strict=True,
    )
)


def params(**part: Any) -> Json:
    said = message("")
    said["message"]["parts"] = [{**FILE, **part}]
    return said


@pytest.mark.parametrize("name", WIRES)
async def test_on_each_wire_before_there_is_a_task(
    house: House, http: httpx.AsyncClient, name: str
) -> None:
    wire = wire_of(name, http)
    with pytest.raises(Refused, match=FIELDS[name]) as refused:
        await wire.send(params(mediaType="application/x-unsupported-tck-type"))
    assert refused.value.code == -32005
    with pytest.raises(Refused) as refused:
        async with wire.stream(params(mediaType="image/png")) as events:
            await anext(events)
    assert refused.value.code == -32005
    assert not (await wire_of("1.0 JSON-RPC", http).call("ListTasks", {}))["tasks"]
    assert (await wire.send(params(mediaType="text/plain")))["status"]["state"].endswith(
        "COMPLETED"
    )


@pytest.mark.parametrize("name", WIRES)
async def test_the_agent_sees_what_it_should_answer_in(http: httpx.AsyncClient, name: str) -> None:
    wire = wire_of(name, http)
    modes = ["image/png", "text/plain"]
    assert text(await wire.send(message("a", acceptedOutputModes=modes))) == f"{tuple(modes)}"
    assert text(await wire.send(message("a"))) == "()"
