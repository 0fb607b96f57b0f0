"""Every call is asked who makes it, before its body is read; what it may do depends on that."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from switchroom.gateway.app import create_app
from switchroom.gateway.auth.caller import Caller, Request
from switchroom.gateway.auth.gate import Gate, Way
from switchroom.gateway.context import CallContext
from switchroom.gateway.dispatch import Answer
from switchroom.protocol.errors import AuthenticationFailed, Unavailable
from switchroom.protocol.methods import METHODS, SCOPES
from switchroom.protocol.model import Json
from switchroom.settings import Settings
from switchroom.store import Store
from tests.support.gateways import V1, call, card_of, client_of, request

MESSAGE = {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]}}


class Spoken(Way):
    """Believes `X-Says: name tenant scopes`; `bad` is no good, `unknown` cannot be told."""

    challenge = 'Spoken realm="a2a"'

    def __init__(self, header: bytes = b"x-says") -> None:
        self.header = header
        self.told: list[str] = []

    @property
    def schemes(self) -> Mapping[str, Json]:
        name = self.header.decode()
        return {name: {"apiKeySecurityScheme": {"location": "header", "name": name}}}

    async def caller(self, request: Request) -> Caller | None:
        said = request.headers.get(self.header, b"").decode()
        if not said:
            return None
        if said == "bad":
            raise AuthenticationFailed()
        if said == "unknown":
            raise Unavailable()
        name, tenant, *scopes = said.split(" ")
        allowed = frozenset(scope for scope in SCOPES if scope in scopes)
        return Caller(name, tenant, allowed or SCOPES, credential="spoken")

    @asynccontextmanager
    async def running(self, store: Store | None) -> AsyncIterator[None]:
        self.told.append("begun")
        yield
        self.told.append("ended")


class Bearer(Spoken):
    challenge = 'Bearer realm="a2a"'

    def __init__(self) -> None:
        super().__init__(b"x-bears")


class Handler:
    """Answers everything with nothing, and remembers who asked."""

    def __init__(self) -> None:
        self.contexts: list[CallContext] = []

    async def dispatch(self, method: str, params: Json | None, context: CallContext) -> Answer:
        self.contexts.append(context)
        return {}


def served(handler: Handler, *ways: Way, **settings: Any) -> httpx.AsyncClient:
    card = card_of(streaming=True, pushNotifications=True, extendedAgentCard=True)
    return client_of(create_app(Settings(**settings), handler=handler, card=card, gate=Gate(ways)))


def says(words: str) -> dict[str, str]:
    return {**V1, "X-Says": words}


async def test_with_no_way_everybody_may_do_all() -> None:
    handler = Handler()
    async with served(handler) as client:
        assert (await call(client, "GetTask", {"id": "t", "tenant": "acme"})).status_code == 200
    (context,) = handler.contexts
    assert (context.caller, context.tenant, context.scopes) == ("", "acme", SCOPES)


async def test_the_handler_is_told_who_calls() -> None:
    handler = Handler()
    async with served(handler, Spoken()) as client:
        await call(client, "GetTask", {"id": "t"}, headers=says("alice acme tasks:read"))
    (context,) = handler.contexts
    assert (context.caller, context.tenant, context.credential) == ("alice", "acme", "spoken")
    assert context.scopes == {"tasks:read"}
    assert context.owner == CallContext("1.0", tenant="acme", caller="alice").owner


@pytest.mark.parametrize(
    ("headers", "message", "error"),
    [
        ({}, "Authentication required", ""),
        ({"X-Says": "bad"}, "Authentication failed", ', error="invalid_token"'),
    ],
)
async def test_without_a_good_credential_a_call_is_refused_before_its_body_is_read(
    headers: dict[str, str], message: str, error: str
) -> None:
    handler = Handler()
    challenges = ['Spoken realm="a2a"', f'Bearer realm="a2a"{error}']
    async with served(handler, Spoken(), Bearer()) as client:
        rpc = await client.post("/", content=b"not JSON", headers={**V1, **headers})
        assert rpc.status_code == 401
        assert rpc.headers.get_list("www-authenticate") == challenges
        assert rpc.json()["id"] is None
        assert rpc.json()["error"]["code"] == -32040
        assert rpc.json()["error"]["message"] == message
        rest = await client.post("/message:send", content=b"not JSON", headers={**V1, **headers})
        assert rest.status_code == 401
        assert rest.headers.get_list("www-authenticate") == challenges
        assert rest.json()["error"]["status"] == "UNAUTHENTICATED"
        old = await client.get("/v1/tasks/t", headers=headers)
        assert old.status_code == 401
        assert old.headers.get_list("www-authenticate") == challenges
    assert handler.contexts == []


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"X-Says": "alice ", "X-Bears": "bad"}, 200),
        ({"X-Says": "bad", "X-Bears": "alice "}, 200),
        ({"X-Says": "unknown", "X-Bears": "alice "}, 200),
        ({"X-Says": "unknown"}, 503),
        ({"X-Says": "unknown", "X-Bears": "bad"}, 503),
        ({"X-Says": "x" * 257 + " "}, 401),
        ({"X-Says": " acme"}, 401),
        ({"X-Says": "alice " + "x" * 257}, 401),
    ],
)
async def test_one_good_credential_is_enough(headers: dict[str, str], status: int) -> None:
    async with served(Handler(), Spoken(), Bearer()) as client:
        response = await call(client, "GetTask", {"id": "t"}, headers={**V1, **headers})
    assert response.status_code == status


async def test_what_is_public_stays_so() -> None:
    async with served(Handler(), Spoken()) as client:
        for path in ("/.well-known/agent-card.json", "/livez", "/openapi.json"):
            assert (await client.get(path)).status_code == 200


async def test_the_card_names_the_ways_each_of_which_is_enough() -> None:
    async with served(Handler(), Spoken(), Bearer()) as client:
        card = (await client.get("/.well-known/agent-card.json")).json()
    assert set(card["securitySchemes"]) == {"x-says", "x-bears"}
    assert card["securityRequirements"] == [
        {"schemes": {"x-says": {}}},
        {"schemes": {"x-bears": {}}},
    ]
    assert card["security"] == [{"x-says": []}, {"x-bears": []}]


class TestTenant:
    @pytest.mark.parametrize(
        ("named", "status"), [("", 200), ("acme", 200), ("other", 403), ("ACME", 403)]
    )
    async def test_of_a_request_must_be_that_of_the_credential(
        self, named: str, status: int
    ) -> None:
        handler = Handler()
        async with served(handler, Spoken()) as client:
            params = {"id": "t", "tenant": named}
            rpc = await call(client, "GetTask", params, headers=says("alice acme"))
            path = f"/{named}/tasks/t" if named else "/tasks/t"
            rest = await client.get(path, headers=says("alice acme"))
        assert [rpc.status_code, rest.status_code] == [status, status]
        assert {context.tenant for context in handler.contexts} == (
            {"acme"} if status == 200 else set()
        )

    async def test_whose_credential_has_none_names_none(self) -> None:
        async with served(Handler(), Spoken()) as client:
            params = {"id": "t", "tenant": "acme"}
            assert (
                await call(client, "GetTask", params, headers=says("alice "))
            ).status_code == 403


class TestScopes:
    NEEDED = {
        "SendMessage": "tasks:send",
        "SendStreamingMessage": "tasks:send",
        "GetTask": "tasks:read",
        "ListTasks": "tasks:read",
        "CancelTask": "tasks:cancel",
        "SubscribeToTask": "tasks:read",
        "CreateTaskPushNotificationConfig": "push:write",
        "GetTaskPushNotificationConfig": "tasks:read",
        "ListTaskPushNotificationConfigs": "tasks:read",
        "DeleteTaskPushNotificationConfig": "push:write",
        "GetExtendedAgentCard": None,
    }

    def test_each_method_has_its_own(self) -> None:
        assert {name: row.scope for name, row in METHODS.items()} == self.NEEDED

    @pytest.mark.parametrize(("method", "scope"), NEEDED.items())
    async def test_without_it_a_call_is_refused_which_names_it(
        self, method: str, scope: str | None
    ) -> None:
        handler = Handler()
        others = " ".join(SCOPES - {scope, "admin"})
        async with served(handler, Spoken()) as client:
            response = await call(client, method, headers=says(f"alice acme {others}"))
        if scope is None:
            assert response.status_code == 200
            return
        assert response.status_code == 403
        error = response.json()["error"]
        assert (error["code"], error["message"]) == (-32041, "Permission denied")
        assert error["data"][0]["metadata"] == {"scope": scope}
        assert handler.contexts == []

    async def test_admin_is_all_of_them(self) -> None:
        handler = Handler()
        async with served(handler, Spoken()) as client:
            await call(client, "CancelTask", headers=says("root acme admin"))
        assert len(handler.contexts) == 1


async def test_the_ways_run_as_long_as_the_lifespan() -> None:
    way = Spoken()
    app = create_app(Settings(), handler=Handler(), card=card_of(), gate=Gate([way]))
    async with app.router.lifespan_context(app):
        assert way.told == ["begun"]
    assert way.told == ["begun", "ended"]


async def test_old_codes_are_answered_to_who_asks_for_them() -> None:
    headers = {**V1, "Content-Type": "text/plain"}
    codes = []
    async with served(Handler(), Spoken(), legacy_error_codes=True) as client:
        for sent in (V1, says("bad"), {**headers, **says("alice ")}):
            response = await client.post("/", json=request("GetTask"), headers=sent)
            codes.append((response.status_code, response.json()["error"]["code"]))
        found = await call(client, "NoMethod", headers=says("alice "))
    assert codes == [(401, -32001), (401, -32002), (415, -32000)]
    assert found.json()["error"]["code"] == -32601
