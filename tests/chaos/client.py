"""A client of all gateways, in 1.0 and 0.3: it expects that anything breaks, and nothing wrong.

Whatever a client may repeat (a gateway that is gone, one that says 503, a connection that breaks)
is `Away`. An error of the protocol is `Refused`, for whoever asked to judge. What no client should
ever get is written down as strange.
"""

from __future__ import annotations

import itertools
import json
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any

import httpx

from tests.chaos.records import Event, Records

__all__ = ["Away", "Client", "Refused"]

_OLD_NAMES = {
    "SendMessage": "message/send",
    "SendStreamingMessage": "message/stream",
    "GetTask": "tasks/get",
    "CancelTask": "tasks/cancel",
    "SubscribeToTask": "tasks/resubscribe",
}
_BARE = ("GetTask", "CancelTask")
# Above what a gateway may take in good health: BLOCKING_LIMIT, CANCEL_WAIT, four heartbeats. Who
# waits longer has a gateway that is stopped.
_PATIENCE = 10.0
_numbers = itertools.count(1)


class Away(Exception):
    """No answer, or one that says: later, or elsewhere."""


class Refused(Exception):
    """An error of the protocol."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code}: {text}")
        self.code = code


class Client:
    """urls: of the gateways now; a number chooses one.  A new connection for each call."""

    def __init__(self, urls: Callable[[], list[str]], records: Records) -> None:
        self._urls = urls
        self._records = records
        limits = httpx.Limits(max_keepalive_connections=0, max_connections=None)
        self._http = httpx.AsyncClient(timeout=_PATIENCE, limits=limits)
        # Little room on the way, so that who reads slowly is felt at the gateway.
        narrow = httpx.AsyncHTTPTransport(
            limits=limits, socket_options=[(socket.SOL_SOCKET, socket.SO_RCVBUF, 16384)]
        )
        self._slow = httpx.AsyncClient(timeout=_PATIENCE, transport=narrow)

    async def close(self) -> None:
        await self._http.aclose()
        await self._slow.aclose()

    async def ask(
        self, method: str, params: Any, *, at: int, version: str = "1.0", **headers: str
    ) -> Any:
        """The result; a Task that stands alone is wrapped as a send's answer is."""
        try:
            response = await self._http.post(**self._request(method, params, at, version, headers))
        except httpx.TransportError as error:
            self._records.counts[f"calls broken off ({type(error).__name__})"] += 1
            raise Away(repr(error)) from error
        answer = self._open(method, response)
        if "error" in answer:
            raise self._refused(method, answer["error"])
        result = answer["result"]
        return {"task": result} if version == "1.0" and method in _BARE else result

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        params: Any,
        *,
        at: int,
        version: str = "1.0",
        slow: bool = False,
        **headers: str,
    ) -> AsyncIterator[AsyncIterator[Event]]:
        """The events of one connection; leaving the block closes it."""
        request = self._request(method, params, at, version, headers)
        http = self._slow if slow else self._http
        try:
            async with http.stream("POST", **request) as response:
                kind = response.headers.get("content-type", "")
                if not kind.startswith("text/event-stream"):
                    await response.aread()
                    raise self._refused(method, self._open(method, response).get("error", {}))
                async with aclosing(self._events(method, response)) as events:
                    yield events
        except httpx.TransportError as error:
            self._records.counts[f"streams broken off ({type(error).__name__})"] += 1
            raise Away(repr(error)) from error

    async def _events(self, method: str, response: httpx.Response) -> AsyncGenerator[Event, None]:
        ident = kind = ""
        async for line in response.aiter_lines():
            name, _, value = line.partition(": ")
            if name == "id":
                ident = value
            elif name == "event":
                kind = value
            elif name == "data":
                answer = json.loads(value)
                if "error" in answer:
                    refused = self._refused(method, answer["error"])
                    # A stream that has begun may fail with its store; who comes back goes on.
                    raise Away(str(refused)) if kind == "error" else refused
                yield Event(ident, answer["result"])
                ident = kind = ""

    def _open(self, method: str, response: httpx.Response) -> Any:
        """The envelope of an answer that is one."""
        if response.status_code == 503:
            self._records.counts["503"] += 1
            if not response.headers.get("retry-after", "").isdigit():
                self._strange(f"{method}: 503 without Retry-After: {response.text}")
            raise Away("503")
        if response.status_code != 200:
            self._strange(f"{method}: {response.status_code} {response.text}")
            raise Away(f"{response.status_code}")
        return response.json()

    def _refused(self, method: str, error: Mapping[str, Any]) -> Refused:
        refused = Refused(int(error.get("code", 0)), str(error.get("message", error)))
        if refused.code == -32603:
            self._strange(f"{method}: {refused}")
        return refused

    def _strange(self, what: str) -> None:
        self._records.strange.append(("", what))

    def _request(
        self, method: str, params: Any, at: int, version: str, headers: Mapping[str, str]
    ) -> dict[str, Any]:
        urls = self._urls()
        name = method if version == "1.0" else _OLD_NAMES[method]
        return {
            "url": urls[at % len(urls)] + "/",
            "json": {"jsonrpc": "2.0", "id": next(_numbers), "method": name, "params": params},
            "headers": {
                **({"A2A-Version": "1.0"} if version == "1.0" else {}),
                **{header.replace("_", "-"): value for header, value in headers.items() if value},
            },
        }
