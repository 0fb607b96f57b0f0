"""Probes: alive while the loop turns, ready while the store answers and nothing drains."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest
from starlette.applications import Starlette

from switchroom.gateway.app import create_app
from switchroom.gateway.context import CallContext
from switchroom.gateway.dispatch import Answer
from switchroom.gateway.health import Ping, health_routes
from switchroom.protocol.model import Json
from switchroom.settings import Settings
from tests.support.gateways import call, card_of, client_of


def probed(ready: Ping, draining: asyncio.Event | None = None) -> httpx.AsyncClient:
    routes = health_routes(ready=ready, draining=draining or asyncio.Event())
    transport = httpx.ASGITransport(app=Starlette(routes=routes))
    return httpx.AsyncClient(transport=transport, base_url="http://gateway.test")


async def fine() -> None: ...


async def broken() -> None:
    raise ConnectionError("no route to Redis")


async def test_ready_while_the_store_answers() -> None:
    async with probed(fine) as client:
        response = await client.get("/readyz")
        assert (response.status_code, response.json()) == (200, {"status": "ok"})
        assert response.headers["cache-control"] == "no-store"


async def test_without_the_store_alive_but_not_ready() -> None:
    async with probed(broken) as client:
        response = await client.get("/readyz")
        assert response.status_code == 503
        assert response.json() == {"status": "unavailable", "reason": "store"}
        assert (await client.get("/livez")).json() == {"status": "ok"}


async def test_a_store_that_hangs_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("switchroom.gateway.health._PING_LIMIT", 0.01)
    async with probed(asyncio.Event().wait) as client:
        assert (await client.get("/readyz")).json()["reason"] == "store"


async def test_draining_is_told_before_the_store_is_asked() -> None:
    draining = asyncio.Event()
    draining.set()
    async with probed(broken, draining) as client:
        assert (await client.get("/readyz")).json()["reason"] == "draining"
        assert (await client.get("/livez")).status_code == 200


async def test_a_gateway_whose_store_is_not_open_yet() -> None:
    app = create_app(Settings(), card=card_of())
    async with client_of(app) as client:
        assert (await client.get("/readyz")).status_code == 503
        response = await call(client, "GetTask")
        assert response.status_code == 503
        assert response.json()["error"]["code"] == -32043


async def test_the_lifespan_opens_and_closes_the_store() -> None:
    settings = Settings(redis_url="fake://health-test")
    app = create_app(settings, card=card_of())
    async with app.router.lifespan_context(app), client_of(app) as client:
        assert (await client.get("/readyz")).status_code == 200
        error = (await call(client, "GetTask", {"id": "nothing"})).json()["error"]
        assert error["code"] == -32001


async def test_a_handler_runs_as_long_as_the_lifespan() -> None:
    class Handler:
        async def dispatch(self, method: str, params: Json | None, context: CallContext) -> Answer:
            raise AssertionError("nothing is asked")

        @asynccontextmanager
        async def running(self) -> AsyncIterator[None]:
            told.append("begun")
            yield
            told.append("ended")

    told: list[str] = []
    app = create_app(Settings(), handler=Handler(), card=card_of())
    assert told == []
    async with app.router.lifespan_context(app):
        assert told == ["begun"]
    assert told == ["begun", "ended"]
