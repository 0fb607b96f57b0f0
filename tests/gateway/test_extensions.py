"""Extensions: which are active in a call, who is told, and the methods that they add."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette

from switchroom.agent import Event, Run
from switchroom.gateway.app import create_app
from switchroom.gateway.context import CallContext
from switchroom.gateway.dispatch import Answer, StreamItem
from switchroom.gateway.extensions import Answering
from switchroom.protocol.errors import PermissionDenied
from switchroom.protocol.methods import Method
from switchroom.protocol.model import Json, Model
from switchroom.protocol.params import decode
from switchroom.settings import Settings
from tests.support.gateways import V1, call, card_of, client_of
from tests.support.house import House, message, text
from tests.support.wires import WIRES, wire_of

A, B, MUST = "https://x.test/a/v1", "urn:b", "urn:must"
DECLARED = [{"uri": A}, {"uri": B}]

HEADERS = {"1.0": "a2a-extensions", "0.3": "x-a2a-extensions"}


async def agent(run: Run) -> AsyncIterator[Event]:
    yield f"{run.extensions}"


@asynccontextmanager
async def served(house: House, *extensions: Json, **more: Any) -> AsyncIterator[httpx.AsyncClient]:
    card = card_of(streaming=True, extensions=[*(extensions or DECLARED)])
    store = (await house.gateway()).store
    async with client_of(create_app(house.settings, card=card, store=store, **more)) as http:
        yield http


# -- activation


@pytest.mark.parametrize("name", WIRES)
@pytest.mark.parametrize("header", ["A2A-Extensions", "X-A2A-Extensions", "a2a-extensions"])
async def test_those_asked_for_and_declared_are_active_for_the_agent(
    house: House, name: str, header: str
) -> None:
    await house.worker(agent)
    async with served(house) as http:
        http.headers[header] = f"urn:other, {B},{A} ,, {B}, {A}/2, {A.upper()}"
        assert text(await wire_of(name, http).send(message("a"))) == f"{(B, A)}"
        del http.headers[header]
        assert text(await wire_of(name, http).send(message("a"))) == "()"


async def test_the_header_may_come_twice_and_under_both_names(house: House) -> None:
    await house.worker(agent)
    async with served(house) as http:
        headers = [*V1.items(), ("A2A-Extensions", A), ("X-A2A-Extensions", B)]
        answer = await http.post("/message:send", json=message("a"), headers=headers)
        assert text(answer.json()["task"]) == f"{(A, B)}"
        headers = [*V1.items(), ("A2A-Extensions", B), ("A2A-Extensions", A)]
        answer = await http.post("/message:send", json=message("a"), headers=headers)
        assert text(answer.json()["task"]) == f"{(B, A)}"


@pytest.mark.parametrize("name", WIRES)
async def test_every_answer_lists_the_active_ones(house: House, name: str) -> None:
    await house.worker(agent)
    wanted = HEADERS[name[:3]]
    (other,) = {*HEADERS.values()} - {wanted}
    async with served(house) as http:
        wire = wire_of(name, http)

        async def told(method: str, params: Json) -> None:
            answer = await http.send(wire.request(method, params))
            assert answer.headers[wanted] == f"{B}, {A}"
            assert other not in answer.headers

        http.headers["A2A-Extensions"] = f"{B}, urn:other, {A}"
        await told("SendMessage", wire.said(message("a")))
        await told("SendStreamingMessage", wire.said(message("a")))
        await told("GetTask", {"id": "absent"})
        await told("SubscribeToTask", {"id": "absent"})
        await told("SendMessage", {"message": 1})  # params that no version can read
        http.headers["A2A-Extensions"] = "urn:other"
        answer = await http.send(wire.request("GetTask", {"id": "absent"}))
        assert wanted not in answer.headers


# -- required ones


@pytest.mark.parametrize("name", WIRES)
async def test_a_client_that_lacks_a_required_one_is_told_which(house: House, name: str) -> None:
    await house.worker(agent)
    also = {"uri": "urn:also", "required": True}
    async with served(house, {"uri": MUST, "required": True}, also, {"uri": A}) as http:
        wire = wire_of(name, http)
        for asked in ("", A, f"{MUST}/2", MUST):
            http.headers["A2A-Extensions"] = asked
            answer = await http.send(wire.request("SendMessage", wire.said(message("a"))))
            assert "32008" in answer.text or "EXTENSION_SUPPORT_REQUIRED" in answer.text
            assert "urn:also" in answer.text
            assert (MUST in answer.text) is (asked != MUST)
        http.headers["A2A-Extensions"] = f"{MUST},urn:also"
        assert (await wire.send(message("a")))["status"]["state"].endswith("COMPLETED")
        assert (await http.get("/.well-known/agent-card.json")).status_code == 200


# -- methods


class Search(Model):
    """Params of a method that is not A2A's."""

    tenant: str = ""
    words: str
    limit: int = 5


class Hits(Model):
    """Its result."""

    hits: list[str]


SEARCH = Method(
    name="SearchTasks",
    params=Search,
    result=Hits,
    rest=(("GET", "/search/{words}"), ("POST", "/search")),
    v03="tasks/search",
    rest_v03=(("GET", "/v1/search/{words}"),),
    extension=A,
)
WATCH = Method(
    name="WatchTasks", params=Search, result=Hits, stream=True, v03="tasks/watch", extension=A
)
REBUILD = Method(name="Rebuild", params=Search, result=None, extension=B)


async def search(params: Json | None, context: CallContext) -> Answer:
    asked = decode(Search, params)
    if asked.words == "secret":
        raise PermissionDenied()
    said = f"{asked.words} {asked.limit} {context.version} {context.tenant}".strip()
    return Hits(hits=[said])


async def watch(params: Json | None, context: CallContext) -> Answer:
    async def hits() -> AsyncIterator[StreamItem]:
        for number in range(2):
            yield StreamItem(Hits(hits=[f"{number}"]).to_json())

    return hits()


async def rebuild(params: Json | None, context: CallContext) -> Answer:
    return None


METHODS: dict[Method, Answering] = {SEARCH: search, WATCH: watch, REBUILD: rebuild}


class Core:
    """The methods of the specification."""

    async def dispatch(self, method: str, params: Json | None, context: CallContext) -> Answer:
        return {"core": method}


def app_of(methods: dict[Method, Answering] | None = None, **settings: Any) -> Starlette:
    card = card_of(streaming=True, extensions=DECLARED)
    added = METHODS if methods is None else methods
    return create_app(Settings(**settings), handler=Core(), card=card, methods=added)


@pytest.fixture
async def http() -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(app_of()) as http:
        http.headers["A2A-Extensions"] = f"{A},{B}"
        yield http


async def test_a_row_and_a_coroutine_are_a_method_on_each_binding(http: httpx.AsyncClient) -> None:
    named = await call(http, "SearchTasks", {"words": "a", "limit": 2})
    assert named.json()["result"] == {"hits": ["a 2 1.0"]}
    got = await http.get("/search/a%20b", params={"limit": 3}, headers=V1)
    assert got.json() == {"hits": ["a b 3 1.0"]}
    posted = await http.post("/acme/search", json={"words": "a"}, headers=V1)
    assert posted.json() == {"hits": ["a 5 1.0 acme"]}
    assert (await call(http, "Rebuild")).json()["result"] == {}
    assert (await call(http, "GetTask")).json()["result"] == {"core": "GetTask"}


async def test_in_03_it_is_called_by_the_name_of_that(http: httpx.AsyncClient) -> None:
    old = await call(http, "tasks/search", {"words": "a"}, headers={})
    assert old.json()["result"] == {"hits": ["a 5 0.3"]}
    assert (await http.get("/v1/search/a")).json() == {"hits": ["a 5 0.3"]}
    assert (await call(http, "tasks/rebuild", headers={})).json()["error"]["code"] == -32601
    assert (await call(http, "SearchTasks", headers={})).json()["error"]["code"] == -32009
    bad = (await call(http, "tasks/search", {"limit": 1}, headers={})).json()["error"]
    assert (bad["code"], bad["message"]) == (-32602, "Invalid parameters: words is required")


@pytest.mark.parametrize(("method", "headers"), [("WatchTasks", V1), ("tasks/watch", {})])
async def test_it_may_stream_what_it_likes(
    http: httpx.AsyncClient, method: str, headers: dict[str, str]
) -> None:
    answer = await call(http, method, {"words": "a"}, headers=headers)
    assert answer.headers["content-type"] == "text/event-stream"
    assert answer.text.count('"result":{"hits":[') == 2


async def test_its_errors_are_told_like_any(http: httpx.AsyncClient) -> None:
    assert (await call(http, "SearchTasks", {"words": "secret"})).status_code == 403
    bad = (await call(http, "SearchTasks", {"limit": "x"})).json()["error"]
    assert bad["code"] == -32602
    assert {each["field"] for each in bad["data"][1]["fieldViolations"]} == {"words", "limit"}
    assert (await http.get("/search/secret", headers=V1)).json()["error"]["code"] == 403
    assert (await http.delete("/search", headers=V1)).status_code == 405


async def test_it_is_not_there_for_whom_its_extension_is_not_active(
    http: httpx.AsyncClient,
) -> None:
    http.headers["A2A-Extensions"] = B
    told = (await call(http, "SearchTasks", {"words": "a"})).json()["error"]
    assert told["code"] == -32601
    assert A in told["message"]
    assert told["data"][0]["metadata"] == {"method": "SearchTasks", "extension": A}
    assert (await http.get("/search/a", headers=V1)).status_code == 404
    assert (await call(http, "Rebuild")).json()["result"] == {}


async def test_the_openapi_document_has_it(http: httpx.AsyncClient) -> None:
    described = (await http.get("/openapi.json")).json()
    assert described["paths"]["/search/{words}"]["get"]["operationId"] == "SearchTasks"
    assert described["components"]["schemas"]["Hits"]["required"] == ["hits"]
    async with client_of(app_of({})) as plain:
        assert "/search" not in (await plain.get("/openapi.json")).json()["paths"]


def row(**more: Any) -> Method:
    return Method(**{"name": "New", "params": Search, "result": Hits, "extension": A, **more})


@pytest.mark.parametrize(
    ("added", "said"),
    [
        (row(extension=""), "which is not among capabilities.extensions of the card"),
        (row(extension="urn:other"), "'urn:other', which is not among capabilities.extensions"),
        (row(name="GetTask"), "there is GetTask already"),
        (row(v03="tasks/get"), "there is tasks/get already"),
        (row(rest=(("GET", "/tasks"),)), "there is GET /tasks already"),
        (row(name="SearchTasks"), "there is SearchTasks already"),
    ],
)
def test_one_that_cannot_be_added_is_refused_in_a_sentence(added: Method, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        app_of({SEARCH: search, added: search})
