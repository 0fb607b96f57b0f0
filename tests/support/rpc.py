"""A plain JSON-RPC client: what is on the wire, and nothing made of it."""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import httpx

from tests.support.wait import wait_until

__all__ = [
    "Event",
    "Rpc",
    "answer_in",
    "answer_of",
    "ends_in",
    "ended",
    "message",
    "state_of",
    "told_by",
    "until",
]

_numbers = itertools.count(1)
_TERMINAL = ("COMPLETED", "FAILED", "CANCELED", "REJECTED")
_PATIENCE = 60  # seconds; ends a test that would hang, and decides nothing else


def message(text: str, **more: Any) -> dict[str, Any]:
    """A user's message; its id is new unless `messageId` says otherwise."""
    fresh = {"messageId": f"m{next(_numbers)}", "role": "ROLE_USER", "parts": [{"text": text}]}
    return {**fresh, **more}


def state_of(event: Mapping[str, Any]) -> str:
    """The state that a Task, or a stream's event, is in; "" if it tells none."""
    inner = event.get("statusUpdate") or event.get("task") or event
    return str(inner.get("status", {}).get("state", "")).removeprefix("TASK_STATE_")


def answer_of(task: Mapping[str, Any]) -> str:
    """The text of all its artifacts."""
    return "".join(
        part.get("text", "") for artifact in task.get("artifacts", ()) for part in artifact["parts"]
    )


def told_by(task: Mapping[str, Any]) -> str:
    """The text of its status message; "" if it has none."""
    parts = task["status"].get("message", {}).get("parts", ())
    return "".join(part.get("text", "") for part in parts)


@dataclass(frozen=True)
class Event:
    """One event of a stream: its position and its StreamResponse."""

    id: str
    data: dict[str, Any]

    @property
    def state(self) -> str:
        return state_of(self.data)

    @property
    def kind(self) -> str:
        (kind,) = self.data
        return str(kind)

    @property
    def text(self) -> str:
        """The text of an artifact update; "" for all else."""
        artifact = self.data.get("artifactUpdate", {}).get("artifact", {})
        return "".join(part.get("text", "") for part in artifact.get("parts", ()))

    @property
    def told(self) -> str:
        """The text of a status message; "" for all else."""
        status = self.data.get("statusUpdate", {}).get("status", {})
        return "".join(part.get("text", "") for part in status.get("message", {}).get("parts", ()))

    @property
    def task_id(self) -> str:
        inner = next(iter(self.data.values()))
        return str(inner.get("id") or inner["taskId"])


async def until(events: AsyncIterator[Event], text: str) -> list[Event]:
    """The events up to and with the chunk `text`."""
    seen = []
    async for event in events:
        seen.append(event)
        if event.text == text:
            return seen
    raise AssertionError(f"the stream ended without {text!r}: {seen}")


def answer_in(events: Iterable[Event]) -> str:
    """The text of all artifacts, as a client puts it together that saw these events."""
    artifacts: dict[str, str] = {}
    for event in events:
        if task := event.data.get("task"):
            artifacts = {
                artifact["artifactId"]: answer_of({"artifacts": [artifact]})
                for artifact in task.get("artifacts", ())
            }
        elif update := event.data.get("artifactUpdate"):
            ident = update["artifact"]["artifactId"]
            before = artifacts[ident] if update.get("append") else ""
            artifacts[ident] = before + event.text
    return "".join(artifacts.values())


def ends_in(events: Iterable[Event]) -> list[str]:
    """The terminal states that these events tell; of a whole stream there is one."""
    return [event.state for event in events if event.state in _TERMINAL]


async def ended(client: Rpc, task_id: str) -> Any:
    """The task, once it has ended."""

    async def over() -> Any:
        task = await client.get(task_id)
        return task if state_of(task) in _TERMINAL else None

    return await wait_until(over, what="the task has ended", within=_PATIENCE)


class Rpc:
    """A client of one base URL; a new connection for each call."""

    def __init__(self, url: str) -> None:
        self.http = httpx.AsyncClient(
            base_url=url,
            timeout=_PATIENCE,
            verify=False,  # plain HTTP; reading the CA bundle would take longer than most calls
            headers={"A2A-Version": "1.0"},
            limits=httpx.Limits(max_keepalive_connections=0),
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.http.aclose()

    async def post(self, method: str, params: Any = None, **headers: str) -> httpx.Response:
        """The raw answer. Headers are given as names of Python: `Last_Event_ID`."""
        envelope = {"jsonrpc": "2.0", "id": next(_numbers), "method": method, "params": params}
        return await self.http.post("/", json=envelope, headers=_headers(headers))

    async def call(self, method: str, params: Any = None, **headers: str) -> Any:
        """The result; an error fails the test."""
        response = await self.post(method, params, **headers)
        assert response.status_code == 200, response.text
        answer = response.json()
        assert "result" in answer, answer
        return answer["result"]

    async def error(self, method: str, params: Any = None, **headers: str) -> int:
        """The code of the error that must be the answer."""
        answer = (await self.post(method, params, **headers)).json()
        assert "error" in answer, answer
        return int(answer["error"]["code"])

    async def send(self, text: str, *, now: bool = False, **more: Any) -> Any:
        """SendMessage; `now` asks for the Task at once."""
        params: dict[str, Any] = {"message": message(text, **more)}
        if now:
            params["configuration"] = {"returnImmediately": True}
        return await self.call("SendMessage", params)

    async def get(self, task_id: str, **more: Any) -> Any:
        return await self.call("GetTask", {"id": task_id, **more})

    @asynccontextmanager
    async def stream(
        self, method: str, params: Any, **headers: str
    ) -> AsyncIterator[AsyncIterator[Event]]:
        """The events of a streaming call; leaving the block closes the connection."""
        envelope = {"jsonrpc": "2.0", "id": next(_numbers), "method": method, "params": params}
        async with self.http.stream(
            "POST", "/", json=envelope, headers=_headers(headers)
        ) as response:
            kind = response.headers.get("content-type", "")
            if not kind.startswith("text/event-stream"):
                raise AssertionError(f"{response.status_code}: {(await response.aread()).decode()}")
            async with aclosing(_events(response)) as events:
                yield events

    async def whole_stream(self, method: str, params: Any, **headers: str) -> list[Event]:
        """All events of a stream that ends."""
        async with self.stream(method, params, **headers) as events:
            return [event async for event in events]


def _headers(given: Mapping[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in given.items()}


async def _events(response: httpx.Response) -> AsyncIterator[Event]:
    ident = ""
    async for line in response.aiter_lines():
        name, _, value = line.partition(": ")
        if name == "id":
            ident = value
        elif name == "event":
            raise AssertionError(f"the stream has an event {value!r}")
        elif name == "data":
            yield Event(ident, json.loads(value)["result"])
