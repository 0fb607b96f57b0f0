"""The extended card: for callers who are known, made for each, in the shape of each version."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from a2a.client.card_resolver import parse_agent_card
from a2a.compat.v0_3 import types
from a2a.types.a2a_pb2 import AgentCard as SdkCard
from a2a.utils.signing import create_signature_verifier
from google.protobuf.json_format import ParseDict

from switchroom.gateway.app import create_app
from switchroom.gateway.card_files import CardError
from switchroom.gateway.context import CallContext
from switchroom.gateway.dispatch import Answer
from switchroom.gateway.handlers import DistributedHandler
from switchroom.protocol.errors import PermissionDenied
from switchroom.protocol.model import Json
from switchroom.settings import Settings
from tests.gateway.test_signing import key_of, written
from tests.gateway.v03.test_card import CARD
from tests.support.gateways import V1, call, card_of, client_of
from tests.support.house import House
from tests.support.wires import WIRES, Refused, wire_of

PUBLIC = card_of(extendedAgentCard=True)


class Knowing:
    """Authenticates everybody, as ann."""

    def __init__(self, inner: DistributedHandler) -> None:
        self._inner = inner

    async def dispatch(self, method: str, params: Json | None, context: CallContext) -> Answer:
        return await self._inner.dispatch(method, params, replace(context, caller="ann"))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    (tmp_path / "card.json").write_text(json.dumps({**CARD, "signatures": []}))
    return tmp_path


@asynccontextmanager
async def gateway(
    house: House, extended: str | None, *, known: bool = True, **settings: Any
) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a gateway with this extended card; known: whether it is authenticated."""
    made = house.settings.model_copy(update={"extended_card": extended, **settings})
    app = create_app(made, card=PUBLIC, store=(await house.gateway()).store)
    if known:
        endpoint = app.router.routes[-1].endpoint  # type: ignore[attr-defined]
        endpoint.handler = Knowing(endpoint.handler)
    async with client_of(app) as http:
        yield http


METHOD = "GetExtendedAgentCard"


@pytest.mark.parametrize("name", WIRES)
async def test_a_file_in_the_shape_of_each_version(house: House, name: str) -> None:
    async with gateway(house, "card.json") as http:
        card = await wire_of(name, http).call(METHOD, {})
    if name.startswith("1.0"):
        ParseDict(card, SdkCard())  # as old clients do: a field they do not know is an error
        urls = [each["url"] for each in card["supportedInterfaces"]]
        assert urls == ["http://gateway.test/", "http://gateway.test"] * 2
    else:
        read = types.AgentCard.model_validate(card)
        assert read.url == "http://gateway.test/" and read.protocol_version == "0.3.0"
        assert read.supports_authenticated_extended_card is True
        assert "supportedInterfaces" not in card
    assert [skill["id"] for skill in card["skills"]] == ["echo", "two"]


@pytest.mark.parametrize("attribute", ["sync", "later", "model", "fixed", "Made"])
async def test_one_that_is_made_for_the_call(house: House, folder: Path, attribute: str) -> None:
    (folder / "cards.py").write_text(
        "import json\n"
        "from switchroom.protocol.card import AgentCard\n"
        "from pathlib import Path\n"
        "fixed = json.loads(Path('card.json').read_text())\n"
        "def sync(call): return {**fixed, 'name': f'For {call.caller}'}\n"
        "async def later(call): return sync(call)\n"
        "def model(call): return AgentCard.model_validate(sync(call))\n"
        "class Made:\n"
        "    async def __call__(self, call): return sync(call)\n"
        "Made = Made()\n"
    )
    async with gateway(house, f"{folder}/cards.py:{attribute}") as http:
        card = await wire_of(WIRES[0], http).call(METHOD, {})
    assert card["name"] == ("Echo" if attribute == "fixed" else "For ann")


async def test_what_making_it_raises_reaches_the_client_only_if_it_is_for_it(
    house: House, folder: Path
) -> None:
    (folder / "cards.py").write_text(
        "from switchroom.protocol.errors import PermissionDenied\n"
        "def denied(call): raise PermissionDenied()\n"
        "def broken(call): raise RuntimeError('secret')\n"
        "def wrong(call): return {'name': 'secret'}\n"
    )
    codes = {"denied": PermissionDenied.code, "broken": -32603, "wrong": -32603}
    for attribute, code in codes.items():
        async with gateway(house, f"{folder}/cards.py:{attribute}") as http:
            with pytest.raises(Refused) as refused:
                await wire_of(WIRES[0], http).call(METHOD, {})
        assert refused.value.code == code
        assert "secret" not in str(refused.value)


@pytest.mark.parametrize("name", WIRES)
async def test_one_for_all_is_for_nobody_who_is_not_authenticated(house: House, name: str) -> None:
    async with gateway(house, "card.json", known=False) as http:
        with pytest.raises(Refused, match="authenticat") as refused:
            await wire_of(name, http).call(METHOD, {})
    assert refused.value.code == -32007


async def test_what_makes_it_decides_about_who_is_not_authenticated(
    house: House, folder: Path
) -> None:
    (folder / "cards.py").write_text(
        "import json\n"
        "from pathlib import Path\n"
        "from switchroom.protocol.errors import Unauthenticated\n"
        "card = json.loads(Path('card.json').read_text())\n"
        "def any(call): return {**card, 'name': f'For {call.caller!r}'}\n"
        "def known(call): raise Unauthenticated()\n"
    )
    async with gateway(house, f"{folder}/cards.py:any", known=False) as http:
        card = await wire_of(WIRES[0], http).call(METHOD, {})
    assert card["name"] == "For ''"
    async with gateway(house, f"{folder}/cards.py:known", known=False) as http:
        answer = await http.get("/extendedAgentCard", headers=V1)
    assert answer.status_code == 401 and "www-authenticate" in answer.headers


@pytest.mark.parametrize("name", WIRES)
async def test_where_none_is_configured(house: House, name: str) -> None:
    async with gateway(house, None) as http:
        with pytest.raises(Refused) as refused:
            await wire_of(name, http).call(METHOD, {})
    assert refused.value.code == -32007


async def test_no_cache_keeps_it(house: House) -> None:
    async with gateway(house, "card.json") as http:
        got = await http.get("/extendedAgentCard", headers=V1)
        posted = await call(http, METHOD)
    assert got.headers["cache-control"] == "no-store"
    # What was posted is kept by no cache that is not told to (RFC 9110 §9.3.3).
    assert "cache-control" not in posted.headers
    assert "etag" not in {*got.headers, *posted.headers}


async def test_it_is_signed_as_the_public_one_is(house: House, folder: Path) -> None:
    settings = {"card_keys": (written(folder),), "public_url": "https://agents.example.com"}
    async with gateway(house, "card.json", **settings) as http:
        card = await wire_of(WIRES[0], http).call(METHOD, {})
        keys = (await http.get("/.well-known/jwks.json")).json()
        old = await wire_of(WIRES[2], http).call(METHOD, {})
    assert card["supportedInterfaces"][0]["url"] == "https://agents.example.com/"
    create_signature_verifier(lambda kid, jku: key_of(keys, kid), ["ES256"])(parse_agent_card(card))
    assert "signatures" not in old, "it would not hold for another shape"


@pytest.mark.parametrize(
    ("spec", "public", "said"),
    [
        ("card.json", card_of(), "set capabilities.extendedAgentCard in it to true."),
        ("absent.json", PUBLIC, "There is no card 'absent.json'"),
        ("no_such_m:card", PUBLIC, "A card is a .json file or an import string."),
    ],
)
def test_what_cannot_be_one_is_a_sentence_at_the_start(spec: str, public: Any, said: str) -> None:
    with pytest.raises(CardError) as caught:
        create_app(Settings(extended_card=spec), card=public)
    assert str(caught.value).startswith(f"SWITCHROOM_EXTENDED_CARD is {spec!r}: ")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
