"""A gateway with a worker behind it, on an event loop of its own: for tests that are no coroutines.

Promises that a request which is not answered fails its test, and that a stream is left after its
first event. Relies on ASGI only, so that any bytes can be sent.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from starlette.types import Message

from switchroom.agent import Event, Run
from switchroom.gateway.app import create_app
from switchroom.settings import Settings
from tests.support.gateways import card_of
from tests.support.house import house_of, message

__all__ = ["Answer", "Answering", "answering", "ask"]

_HANGS = 30
"""Seconds after which a request was not answered; decides nothing else."""


@dataclass(frozen=True)
class Answer:
    """What came back, of a stream as much as one event."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def is_stream(self) -> bool:
        return self.headers["content-type"] == "text/event-stream"

    @property
    def json(self) -> Any:
        """The JSON of the answer, or of the stream's first event."""
        body = self.body
        if self.is_stream:
            lines = [line for line in body.splitlines() if line.startswith(b"data: ")]
            body = lines[0].removeprefix(b"data: ")
        return json.loads(body)


class Answering:
    """The gateway. `done` and `open` are ids of tasks: an ended one, and one that waits."""

    def __init__(self, runner: asyncio.Runner, app: Any) -> None:
        self._runner = runner
        self._app = app
        self.done = self._task("done")
        self.open = self._task("ask")

    def _task(self, words: str) -> str:
        body = json.dumps({"jsonrpc": "2.0", "method": "SendMessage", "params": message(words)})
        answer = self.ask("POST", "/", body.encode(), {"A2A-Version": "1.0"})
        ident: str = answer.json["result"]["task"]["id"]
        return ident

    def ask(self, verb: str, target: str, body: bytes, headers: dict[str, str]) -> Answer:
        """The answer to one request; `target` as it stands in the request line."""
        return self._runner.run(ask(self._app, verb, target, body, headers))


async def ask(app: Any, verb: str, target: str, body: bytes, headers: dict[str, str]) -> Answer:
    """The answer of `app` to one request; `target` as it stands in the request line. A stream is
    left after its first event.
    """
    raw, _, query = target.partition("?")
    encoded = [(k.lower().encode(), v.encode("latin-1")) for k, v in headers.items()]
    scope = {
        "type": "http",
        "http_version": "1.1",
        "scheme": "http",
        "method": verb,
        "path": unquote(raw),
        "raw_path": raw.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(b"host", b"gateway.test"), *encoded],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }
    to_read = [{"type": "http.request", "body": body, "more_body": False}]
    left = asyncio.Event()
    status, told, said = 0, {}, b""

    async def receive() -> Message:
        if to_read:
            return to_read.pop()
        await left.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        nonlocal status, told, said
        if message["type"] == "http.response.start":
            assert not status
            status = message["status"]
            told = {k.decode(): v.decode("latin-1") for k, v in message["headers"]}
        else:
            said += message["body"]
            if told["content-type"] == "text/event-stream" and b"data: " in said:
                left.set()

    async with asyncio.timeout(_HANGS):
        await app(scope, receive, send)
    return Answer(status, told, said)


async def _agent(run: Run) -> Event:
    return run.ask("And?") if run.text == "ask" else run.complete()


@contextmanager
def answering(**settings: Any) -> Iterator[Answering]:
    """The gateway of these settings, with all capabilities; closed with the block."""
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()

        async def opened() -> Any:
            made = Settings(
                redis_url=f"fake://{uuid.uuid4().hex}", **{"push_allow": "*.test", **settings}
            )
            house = await stack.enter_async_context(house_of(made))
            gateway = await house.both(_agent)
            card = card_of(streaming=True, pushNotifications=True, extendedAgentCard=True)
            return create_app(house.settings, card=card, store=gateway.store)

        app = runner.run(opened())
        try:
            yield Answering(runner, app)
        finally:
            runner.run(stack.aclose())
