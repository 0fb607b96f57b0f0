"""Gateways under test: an app from a handler, a client for it, and a real server on a free port."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import httpx
from fastapi import FastAPI

from switchroom.gateway.app import create_app
from switchroom.gateway.context import CallContext
from switchroom.gateway.dispatch import Answer, RequestHandler
from switchroom.gateway.server import bind, serve
from switchroom.protocol.card import AgentCard
from switchroom.protocol.model import Json
from switchroom.settings import Settings

__all__ = ["V1", "Witness", "app_of", "call", "card_of", "client_of", "request", "serving"]

V1 = {"A2A-Version": "1.0"}


class Witness:
    """A handler that answers everything with nothing, and remembers who asked."""

    def __init__(self) -> None:
        self.contexts: list[CallContext] = []

    async def dispatch(self, method: str, params: Json | None, context: CallContext) -> Answer:
        self.contexts.append(context)
        return {}


def card_of(**capabilities: Any) -> AgentCard:
    """A small card with these capabilities."""
    return AgentCard.model_validate(
        {
            "name": "Test",
            "description": "A card for tests",
            "version": "1",
            "supportedInterfaces": [
                {"url": "http://a.test/", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
            ],
            "capabilities": capabilities,
            "defaultInputModes": ["*/*"],
            "defaultOutputModes": ["text/plain"],
            "skills": [{"id": "s", "name": "S", "description": "S", "tags": ["t"]}],
        }
    )


def app_of(handler: RequestHandler, *, card: AgentCard | None = None, **settings: Any) -> FastAPI:
    """A gateway over `handler`, without a store."""
    offered = card or card_of(streaming=True, pushNotifications=True, extendedAgentCard=True)
    return create_app(
        Settings(**{"push_allow": "*.test", **settings}), handler=handler, card=offered
    )


def client_of(app: FastAPI) -> httpx.AsyncClient:
    """A client that calls `app` without a socket; only for answers that end."""
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://gateway.test")


def request(method: str, params: Any = None, ident: Any = 1) -> dict[str, Any]:
    """A JSON-RPC request object."""
    envelope = {"jsonrpc": "2.0", "id": ident, "method": method}
    return envelope if params is None else {**envelope, "params": params}


async def call(
    client: httpx.AsyncClient,
    method: str,
    params: Any = None,
    *,
    headers: Mapping[str, str] = V1,
) -> httpx.Response:
    """POST one call."""
    return await client.post("/", json=request(method, params), headers=dict(headers))


@asynccontextmanager
async def serving(app: FastAPI) -> AsyncIterator[str]:
    """The base URL of `app` behind the real server, which drains and stops at the end.

    What happens meanwhile has half a minute: that ends a test that would hang, and decides nothing.
    """
    stop = asyncio.Event()
    with bind("127.0.0.1", 0) as listener:
        async with asyncio.timeout(30), asyncio.TaskGroup() as group:
            group.create_task(serve(app, listener, drain=timedelta(seconds=20), stop=stop))
            try:
                host, port = listener.getsockname()
                yield f"http://{host}:{port}"
            finally:
                stop.set()
