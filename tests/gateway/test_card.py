"""The card is found, completed with our address, and served with a tag."""

from __future__ import annotations

import json
import sys
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Route

from switchroom.gateway.app import create_app
from switchroom.gateway.card import CARD_PATH, CardSource, load_card
from switchroom.gateway.card_files import CardError, card_beside, minimal_card
from switchroom.gateway.context import CallContext
from switchroom.gateway.dispatch import Answer
from switchroom.protocol.card import AgentCard
from switchroom.protocol.model import Json
from switchroom.settings import Settings
from tests.support.gateways import serving

CARD: dict[str, Any] = {
    "name": "Echo",
    "description": "Says what you said.",
    "version": "1.2.3",
    "capabilities": {"streaming": True},
    "defaultInputModes": ["text/plain"],
    "defaultOutputModes": ["text/plain"],
    "skills": [{"id": "echo", "name": "Echo", "description": "Echoes.", "tags": ["demo"]}],
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    return tmp_path


def written(path: Path, card: Any = CARD) -> str:
    path.write_text(card if isinstance(card, str) else json.dumps(card))
    return str(path)


def refusal(spec: str) -> str:
    with pytest.raises(CardError) as caught:
        load_card(spec, Settings())
    assert "\n" not in str(caught.value)
    return str(caught.value)


class Nothing:
    """A handler that is never asked."""

    async def dispatch(self, method: str, params: Json | None, context: CallContext) -> Answer:
        raise AssertionError(method)


def client(source: CardSource, base_url: str = "http://gateway:8000") -> httpx.AsyncClient:
    app = Starlette(routes=[Route(CARD_PATH, source.respond)])
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=base_url)


async def served(source: CardSource, **headers: str) -> httpx.Response:
    async with client(source) as http:
        return await http.get(
            CARD_PATH, headers={k.replace("_", "-"): v for k, v in headers.items()}
        )


class TestFound:
    def test_in_a_file(self, folder: Path) -> None:
        assert load_card(written(folder / "echo.json"), Settings()).card.version == "1.2.3"

    def test_by_an_import_string(self, folder: Path) -> None:
        (folder / "card_m.py").write_text(
            f"card = {CARD!r}\n"
            "from switchroom.gateway.card_files import minimal_card\n"
            "made = minimal_card(name='Made')\n"
        )
        assert load_card("card_m", Settings()).card.name == "Echo"
        for spec in ("card_m:made", "card_m.py:made", str(folder / "card_m.py:made")):
            assert load_card(spec, Settings()).card.name == "Made"
        assert load_card("card_m.py", Settings()).card.name == "Echo"

    def test_nowhere_it_is_minimal_and_named_after_the_queue(self) -> None:
        assert load_card(None, Settings()).card.name == "Agent"
        assert load_card(None, Settings(queue="travel")).card.name == "travel"
        fallback = minimal_card(name="Mine", description="Does things.", version="2")
        assert load_card(None, Settings(), fallback=fallback).card is fallback

    def test_the_minimal_one_is_valid_and_promises_only_what_is_so(self) -> None:
        card = minimal_card(name="Bot")
        assert AgentCard.model_validate(card.to_dict()) == card
        assert card.capabilities.streaming is True
        assert not card.capabilities.push_notifications
        assert not card.capabilities.extended_agent_card

    def test_beside_the_agent_without_importing_it(self, folder: Path) -> None:
        (folder / "bot_m.py").write_text("raise RuntimeError('imported')")
        assert card_beside("bot_m.py") is None
        written(folder / "bot_m.json")
        for spec in (
            "bot_m.py",
            "bot_m.py:agent",
            "bot_m",
            "bot_m:agent",
            str(folder / "bot_m.py"),
        ):
            found = card_beside(spec)
            assert found is not None
            assert found.resolve() == folder / "bot_m.json"
        assert card_beside("no_such_m:agent") is None

    @pytest.mark.parametrize("shape", ["0.3", "both"])
    def test_whichever_version_it_was_written_for(self, folder: Path, shape: str) -> None:
        old: dict[str, Any] = CARD | {
            "url": "https://old.test/",
            "protocolVersion": "0.3.0",
            "preferredTransport": "GRPC",
            "supportsAuthenticatedExtendedCard": True,
            "securitySchemes": {"tok": {"type": "http", "scheme": "bearer"}},
            "security": [{"tok": []}],
            "capabilities": {"streaming": True, "stateTransitionHistory": True},
        }
        if shape == "both":
            old |= {
                "supportedInterfaces": [
                    {"url": "https://o/", "protocolBinding": "GRPC", "protocolVersion": "1.0"}
                ],
                "securityRequirements": [{"schemes": {"tok": {"list": []}}}],
            }
            old["securitySchemes"]["tok"]["httpAuthSecurityScheme"] = {"scheme": "bearer"}
        card = load_card(written(folder / "a.json", old), Settings()).card
        assert card.capabilities.extended_agent_card is True
        assert card.security_schemes["tok"].to_dict() == {
            "httpAuthSecurityScheme": {"scheme": "bearer"}
        }
        (required,) = card.security_requirements
        assert required.to_dict() == {"schemes": {"tok": {"list": []}}}


class TestRefused:
    def test_an_absent_file(self, folder: Path) -> None:
        assert refusal("absent.json") == f"There is no card 'absent.json' in {folder}."

    @pytest.mark.parametrize(
        ("content", "said"),
        [
            (b"{'name': 1}", "is not JSON: Expecting property name"),
            (b"# A card", "is not JSON: Expecting value: line 1 column 1"),
            (b"[" * 100_000, "is not JSON: it nests too deep; it should hold a JSON object."),
            (b" \n", "is empty; it should hold a JSON object."),
            (b"\x89PNG\r\n\x1a\n\0\0", "is no text; it should be a JSON file in UTF-8."),
            (b"\x7fELF\0\0\0\0", "is no text; it should be a JSON file in UTF-8."),
        ],
    )
    @pytest.mark.parametrize("name", ["a.json", "a.txt", "a"])
    def test_a_file_that_is_not_json(
        self, folder: Path, name: str, content: bytes, said: str
    ) -> None:
        (folder / name).write_bytes(content)
        assert f"The card {name} {said}" in refusal(name)

    @pytest.mark.parametrize("spec", [".", "..", "/", "./a", "a/"])
    def test_a_folder(self, folder: Path, spec: str) -> None:
        (folder / "a").mkdir()
        assert refusal(spec) == f"{spec!r} is a folder; a card is a .json file or an import string."
        (folder / "a.json").mkdir()
        assert refusal("a.json") == "The card a.json is a folder; it should be a JSON file."

    def test_a_package_without_one(self, folder: Path) -> None:
        (folder / "bots_m").mkdir()
        (folder / "bots_m" / "__init__.py").write_text("")
        assert refusal("bots_m").startswith("bots_m has no 'card'; ")

    def test_a_name_that_no_file_can_have(self) -> None:
        for spec in ("a" * 300, f"{'a' * 300}.json", ""):
            refusal(spec)

    @pytest.mark.parametrize(
        ("change", "said"),
        [
            ({"skills": []}, "skills"),
            ({"name": None}, "name is required"),
            ({"skills": [{"id": "x"}]}, "skills[0].name is required"),
            ({"capabilities": {"streaming": "maybe"}}, "capabilities.streaming"),
            ({"security": "none"}, "securityRequirements must be an array"),
            ({"security": ["none"]}, "securityRequirements[0]"),
            ({"security": [{"tok": "all"}]}, "securityRequirements[0].schemes.tok.list"),
            ({"securitySchemes": {"tok": {"type": "basic"}}}, "securitySchemes.tok needs exactly"),
            ({"securitySchemes": {"tok": {"type": "http"}}}, ".httpAuthSecurityScheme.scheme is "),
            ({"securitySchemes": [{"type": "http"}]}, "securitySchemes must be an object"),
            ({"skills": "all"}, "skills must be an array"),
        ],
    )
    def test_a_wrong_field_by_its_path(
        self, folder: Path, change: dict[str, Any], said: str
    ) -> None:
        sentence = refusal(written(folder / "a.json", CARD | change))
        assert sentence.startswith(f"The card {folder / 'a.json'} is not valid: ")
        assert said in sentence

    def test_something_that_is_no_object(self, folder: Path) -> None:
        assert "is a list" in refusal(written(folder / "a.json", []))

    def test_an_import_string_that_leads_nowhere(self) -> None:
        assert refusal("no_such_m").endswith("A card is a .json file or an import string.")


class TestServed:
    async def test_at_the_public_url_if_there_is_one(self, folder: Path) -> None:
        spec = written(folder / "a.json")
        for url in ("https://agents.example.com/echo", "https://agents.example.com/echo/"):
            for versions in (("1.0",), ("0.3", "1.0")):
                settings = Settings(public_url=url, protocol_versions=versions)
                answer = await served(load_card(spec, settings))
                assert answer.json()["supportedInterfaces"] == [
                    {
                        "url": f"https://agents.example.com/echo{slash}",
                        "protocolBinding": binding,
                        "protocolVersion": version,
                    }
                    for version in reversed(versions)
                    for binding, slash in (("JSONRPC", "/"), ("HTTP+JSON", ""))
                ]

    async def test_else_where_the_request_came_to(self, folder: Path) -> None:
        stale = [{"url": "http://old/", "protocolBinding": "GRPC", "protocolVersion": "0.3"}]
        spec = written(folder / "a.json", CARD | {"supportedInterfaces": stale})
        source = load_card(spec, Settings())
        async with client(source, "http://other:9000") as http:
            interface, *_ = (await http.get(CARD_PATH)).json()["supportedInterfaces"]
        assert interface["url"] == "http://other:9000/"
        assert interface["protocolBinding"] == "JSONRPC"

    @pytest.mark.parametrize(
        "host",
        ['evil"<>/x', "a/b", "user@evil", "evil:port", "evil:70000", "a b", "evil?x", "evil#x", ""],
    )
    async def test_else_at_the_address_it_is_bound_to_if_host_is_none(self, host: str) -> None:
        scope = {
            "type": "http",
            "method": "GET",
            "path": CARD_PATH,
            "query_string": b"",
            "headers": [(b"host", host.encode())],
            "server": ("127.0.0.1", 8000),
        }
        answer = await load_card(None, Settings()).respond(Request(scope))
        interface, *_ = json.loads(answer.body)["supportedInterfaces"]
        assert interface["url"] == "http://127.0.0.1:8000/"

    async def test_else_where_a_trusted_proxy_says(self, folder: Path) -> None:
        told = {"X-Forwarded-Proto": "https", "X-Forwarded-Host": "a.test"}
        for trusted, url in (((), ""), (("127.0.0.1",), "https://a.test/")):
            settings = Settings(trusted_proxies=trusted)
            source = load_card(None, settings)
            async with (
                serving(create_app(settings, handler=Nothing(), card=source)) as base_url,
                httpx.AsyncClient(base_url=base_url) as http,
            ):
                answer = await http.get(CARD_PATH, headers=told)
                plain = await http.get(CARD_PATH)
            interface, *_ = answer.json()["supportedInterfaces"]
            assert interface["url"] == (url or f"{base_url}/")
            assert (answer.headers["etag"] == plain.headers["etag"]) is not bool(trusted)
            assert ("X-Forwarded-Host" in answer.headers.get("vary", "")) is bool(trusted)

    async def test_to_readers_of_03_too_unless_they_are_not_served(self, folder: Path) -> None:
        spec = written(folder / "a.json", CARD | {"capabilities": {"extendedAgentCard": True}})
        settings = Settings(public_url="https://agents.example.com/echo")
        card = (await served(load_card(spec, settings))).json()
        assert card["protocolVersion"] == "0.3.0"
        assert (card["url"], card["preferredTransport"]) == (
            "https://agents.example.com/echo/",
            "JSONRPC",
        )
        assert [each["transport"] for each in card["additionalInterfaces"]] == [
            "JSONRPC",
            "HTTP+JSON",
        ]
        assert card["supportsAuthenticatedExtendedCard"] is True
        only = settings.model_copy(update={"protocol_versions": ("1.0",)})
        assert (await served(load_card(spec, only))).json().keys() == {*CARD, "supportedInterfaces"}

    async def test_without_what_is_but_a_default(self, folder: Path) -> None:
        wordy = {
            "capabilities": {"streaming": False, "extensions": [{"uri": "u", "required": False}]},
            "securityRequirements": [],
            "skills": [{**CARD["skills"][0], "examples": [], "tags": ["demo"]}],
        }
        spec = written(folder / "a.json", CARD | wordy)
        card = (await served(load_card(spec, Settings()))).json()
        assert card["capabilities"] == {"streaming": False, "extensions": [{"uri": "u"}]}
        assert card["skills"] == CARD["skills"]
        assert "securityRequirements" not in card

    async def test_otherwise_as_it_was_written(self, folder: Path) -> None:
        only = Settings(protocol_versions=("1.0",))
        answer = await served(load_card(written(folder / "a.json"), only))
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "application/json"
        body = answer.json()
        assert body.pop("supportedInterfaces")
        assert body == CARD

    async def test_a_signed_one_is_not_touched(self, folder: Path) -> None:
        signed = CARD | {
            "url": "https://a/",
            "provider": {"organization": "", "url": ""},
            "supportedInterfaces": [
                {"url": "https://a/", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
            ],
            "signatures": [{"protected": "e30", "signature": "c2ln"}],
        }
        answer = await served(load_card(written(folder / "a.json", signed), Settings()))
        assert answer.json() == signed

    async def test_alike_by_every_gateway(self, folder: Path) -> None:
        spec = written(folder / "a.json")
        settings = Settings(public_url="https://agents.example.com")
        one, two = [await served(load_card(spec, settings)) for _ in range(2)]
        assert one.content == two.content
        assert one.headers == two.headers

    async def test_with_a_tag_that_saves_the_body(self, folder: Path) -> None:
        source = load_card(written(folder / "a.json"), Settings())
        first = await served(source)
        tag = first.headers["etag"]
        assert first.headers["cache-control"].startswith("public, max-age=")
        assert first.headers["x-content-type-options"] == "nosniff"
        assert parsedate_to_datetime(first.headers["last-modified"])
        for held in (tag, f"W/{tag}", f'"other", {tag}', "*"):
            answer = await served(source, if_none_match=held)
            assert (answer.status_code, answer.content) == (304, b"")
            assert answer.headers["etag"] == tag
            assert "cache-control" in answer.headers
            assert answer.headers["x-content-type-options"] == "nosniff"
        assert (await served(source, if_none_match='"other"')).status_code == 200

    async def test_another_card_has_another_tag(self, folder: Path) -> None:
        one = await served(load_card(written(folder / "a.json"), Settings()))
        changed = CARD | {"version": "1.2.4"}
        two = await served(load_card(written(folder / "a.json", changed), Settings()))
        assert one.headers["etag"] != two.headers["etag"]

    async def test_to_many_hosts_without_remembering_them_all(self, folder: Path) -> None:
        source = load_card(written(folder / "a.json"), Settings())
        async with client(source) as http:
            for number in range(100):
                await http.get(CARD_PATH, headers={"host": f"host-{number}"})
        assert source._at.cache_info().currsize <= 16
