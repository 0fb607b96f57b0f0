"""What it costs a gateway to know its callers: CPU per call with a key, a token and limits, beside
the same call on an open server.

    python -m tests.bench.callers                some ten seconds

One process, no sockets: the application is called as the HTTP server calls it, by a few clients at
once, in short interleaved runs. A read asks for an absent task; a send is accepted, and no worker
runs it. Redis is real.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import statistics
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import uvloop
from pydantic_core import to_json

from switchroom.gateway.app import create_app
from switchroom.gateway.auth.api_keys import ApiKeys
from switchroom.gateway.auth.caller import ORDINARY
from switchroom.gateway.auth.gate import Gate, Way
from switchroom.gateway.auth.jwt import JwtBearer
from switchroom.settings import Settings
from switchroom.store import Store
from switchroom.store.api_key import new_key
from tests.support.gateways import card_of
from tests.support.issuer import AUDIENCE, issuer_at_work
from tests.support.redis import running_server

__all__ = ["main"]

Header = tuple[bytes, bytes]

_HIGH: dict[str, Any] = {
    "send_rate": 1e6,
    "send_burst": 1_000_000,
    "tenant_send_rate": 1e6,
    "tenant_send_burst": 1_000_000,
    "caller_tasks": 1_000_000,
    "tenant_tasks": 1_000_000,
}
"""Limits that are counted and never reached."""

_CLIENTS = 8
"""At once: one alone would measure how a process falls asleep and wakes while Redis answers it."""

_numbers = itertools.count(1)


def _read() -> tuple[str, Any]:
    return "GetTask", {"id": "absent"}


def _send() -> tuple[str, Any]:
    message = {
        "messageId": f"c{next(_numbers)}",
        "role": "ROLE_USER",
        "parts": [{"text": "hello"}],
    }
    return "SendMessage", {"message": message, "configuration": {"returnImmediately": True}}


class _Served:
    """One way to serve, and what it costs."""

    def __init__(self, name: str, app: Any, header: Header | None) -> None:
        self.name = name
        self.reads: list[float] = []
        self.sends: list[float] = []
        self._app = app
        self._headers = [(b"a2a-version", b"1.0"), *([header] if header else [])]

    async def round(self, calls: int) -> None:
        self.reads.append(await self._cost(_read, calls))
        self.sends.append(await self._cost(_send, calls))

    async def _cost(self, make: Any, calls: int) -> float:
        each = calls // _CLIENTS

        async def client() -> None:
            for _ in range(each):
                assert await self._call(*make()) == 200, self.name

        before = time.process_time()
        await asyncio.gather(*(client() for _ in range(_CLIENTS)))
        return (time.process_time() - before) / (each * _CLIENTS) * 1e6

    async def _call(self, method: str, params: Any) -> int:
        body = to_json({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
        scope = {
            "type": "http",
            "method": "POST",
            "path": "/",
            "query_string": b"",
            "headers": self._headers,
            "client": ("127.0.0.1", 1),
        }
        status = 0

        async def receive() -> Any:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Any) -> None:
            nonlocal status
            status = message.get("status", status)

        await self._app(scope, receive, send)
        return status


async def _measure(url: str, rounds: int, calls: int) -> None:
    async with AsyncExitStack() as stack:
        issuer = await stack.enter_async_context(issuer_at_work())
        trusted = Settings(jwt_issuer=issuer.url, jwt_audience=AUDIENCE)
        secret, key = new_key("alice", tenant="acme", scopes=ORDINARY, now=time.time())

        async def served(
            name: str, *ways: Way, header: Header | None = None, **limits: Any
        ) -> _Served:
            settings = Settings(redis_url=url, waiting_limit=0, prefix=name, **limits)
            store = await Store.open(settings)
            stack.push_async_callback(store.close)
            await store.api_keys.add(key)
            app = create_app(settings, card=card_of(), store=store, gate=Gate(ways))
            await stack.enter_async_context(app.router.lifespan_context(app))
            return _Served(name, app, header)

        bearer = (b"authorization", b"Bearer " + issuer.token().encode())
        kinds = [
            await served("open"),
            await served("key", ApiKeys(), header=(b"x-api-key", secret.encode())),
            await served("token", JwtBearer(trusted), header=bearer),
            await served("limits", **_HIGH),
        ]
        for _ in range(rounds):
            for kind in kinds:
                await kind.round(calls)
    print(f"{'':8}{'read':>8}{'':>8}{'send':>8}")  # noqa: T201
    for kind in kinds:
        cells = []
        for costs, base in ((kind.reads, kinds[0].reads), (kind.sends, kinds[0].sends)):
            more = statistics.median(a - b for a, b in zip(costs, base, strict=True))
            cells.append(f"{statistics.median(costs):6.0f} µs {more:+6.0f}")
        print(f"{kind.name:8}" + "  ".join(cells))  # noqa: T201


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--calls", type=int, default=200)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, running_server(Path(folder)) as url:
        uvloop.run(_measure(url, asked.rounds, asked.calls))


if __name__ == "__main__":
    main()
