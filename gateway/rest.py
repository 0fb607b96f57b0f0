"""The HTTP+JSON skin: paths and verbs of the method table over `dispatch` (§11), in 1.0 and in 0.3.

Promises a JSON error with a status of its own for whatever goes wrong, while that is possible. The
path says which version is spoken: all of 0.3 is under /v1. Plain ASGI, like JSON-RPC and for the
same reason. Relies on `dispatch` for everything about methods.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, get_args
from urllib.parse import parse_qsl

from pydantic_core import to_json
from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope, Send

from switchroom.gateway.body import (
    CLOSE,
    ClientLeft,
    WrongContentType,
    headers_of,
    parse_object,
    read_body,
)
from switchroom.gateway.context import negotiate, read_context, request_id
from switchroom.gateway.dispatch import (
    Answer,
    Event,
    RequestHandler,
    activated,
    as_fault,
    dispatch,
)
from switchroom.gateway.sse import SSE_HEADERS, EventStreams
from switchroom.gateway.v03.errors import described
from switchroom.gateway.v03.wire import RestWire
from switchroom.gateway.wire import CoreWire, Wire
from switchroom.protocol.card import AgentCard
from switchroom.protocol.errors import A2AError, InvalidParams, Unavailable, VersionNotSupported
from switchroom.protocol.methods import METHODS, Method
from switchroom.protocol.model import Json

__all__ = ["Rest", "paths"]

_JSON, _A2A = b"application/json", b"application/a2a+json"

# Their REST clients of 0.3 encode a file's bytes twice, and read them so (`v03/proto.py`).
_BASE64_TEXT = (b"python-httpx/", b"Java-http-client/")


@dataclass(frozen=True, slots=True)
class _Route:
    """A path of the table, and the methods behind its verbs."""

    path: str
    pattern: re.Pattern[str]
    version: str
    methods: Mapping[str, Method]


def _routes() -> Iterator[_Route]:
    for version in ("0.3", "1.0"):
        found: dict[str, dict[str, Method]] = {}
        for row in METHODS.values():
            for verb, path in row.rest_v03 if version == "0.3" else row.rest:
                found.setdefault(path, {})[verb] = row
        for path, methods in found.items():
            # An id holds no slash; nor does a task's hold a colon, which begins a verb.
            pattern = re.sub(r"\\{(\w+)\\}", r"(?P<\1>[^/]+)", re.escape(path))
            pattern = pattern.replace("tasks/(?P<id>[^/]+)", "tasks/(?P<id>[^/:]+)")
            if version == "1.0":
                pattern = r"(?:/(?P<tenant>(?!v1/)[^/]+))??" + pattern
            yield _Route(path, re.compile(pattern), version, methods)


_ROUTES = tuple(_routes())


def paths() -> dict[str, list[str]]:
    """Each path of the table, and of 1.0 also behind a tenant, with its verbs."""
    served = {route.path: list(route.methods) for route in _ROUTES}
    tenants = {"/{tenant}" + r.path: list(r.methods) for r in _ROUTES if r.version == "1.0"}
    return {**served, **tenants}


class Rest:
    """The ASGI endpoint of every path of the table."""

    def __init__(
        self,
        *,
        card: AgentCard,
        streams: EventStreams,
        draining: asyncio.Event,
        body_limit: int,
        handler: RequestHandler | None = None,
    ) -> None:
        """`body_limit` in bytes. Without a `handler` yet, calls are answered Unavailable."""
        self.handler = handler
        self._card = card
        self._streams = streams
        self._draining = draining
        self._body_limit = body_limit
        self._core = CoreWire()
        self._v03 = RestWire()
        self._v03_text = RestWire(base64_text=True)

    def serves(self, scope: Scope) -> bool:
        """Whether there is such a path and verb."""
        return _find(scope) is not None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        found = _find(scope)
        if found is None:  # HEAD, which a router lets pass where there is GET
            raise HTTPException(405, headers={"Allow": "GET"})
        route, variables = found
        call = _Call(scope, receive, route, variables)
        call.wire = self._wire(route, call.given)
        try:
            answer = await self._answer(call)
            if isinstance(answer, AsyncIterator):
                await self._stream(answer, call, send)
                return
            status, headers, body = 200, call.headers, call.wire.result(call.row, answer)
            headers.append((b"content-type", call.media_type))
        except ClientLeft:
            return
        except Exception as error:
            status, headers, body = call.failure(error)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # Not this request, but something the handler waited for, was cancelled.
            status, headers, body = call.failure(error)
        headers.append((b"content-length", b"%d" % len(body)))
        if self._draining.is_set():
            headers.append(CLOSE)
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def _wire(self, route: _Route, headers: Mapping[bytes, bytes]) -> Wire:
        if route.version == "1.0":
            return self._core
        twice = headers.get(b"user-agent", b"").startswith(_BASE64_TEXT)
        return self._v03_text if twice else self._v03

    async def _answer(self, call: _Call) -> Answer:
        # Body and params are this frame's: they must not live as long as a stream does.
        body = await read_body(call.given, call.receive, limit=self._body_limit)
        params = parse_object(body) if body else {}
        _check_version(call)
        if call.scope["method"] != "POST":
            params = _queried(call.row, call.scope["query_string"])
        tenant = _tenant(call, params)
        params.update(call.variables)
        call.row, asked = call.wire.request(call.row, params)
        context = read_context(
            call.given,
            raw_headers=call.scope["headers"],
            version=call.wire.version,
            tenant=tenant,
            request_id=call.request_id,
        )
        call.extensions = activated(context, self._card)
        if self.handler is None:
            raise Unavailable("This gateway is starting; try again", retry_after=1)
        return await dispatch(
            self.handler,
            call.row,
            asked,
            context,
            card=self._card,
            draining=self._draining.is_set(),
        )

    async def _stream(self, source: AsyncIterator[Event], call: _Call, send: Send) -> None:
        await self._streams.serve(
            call.wire.stream(call.row, source),
            before=b"",
            after=b"",
            error=lambda error: call.failure(error)[2],
            headers=[*SSE_HEADERS, *call.headers],
            receive=call.receive,
            send=send,
        )


class _Call:
    """What is known of one call so far: enough to answer it, whatever goes wrong."""

    __slots__ = (
        "extensions",
        "given",
        "receive",
        "request_id",
        "row",
        "scope",
        "variables",
        "wire",
    )

    wire: Wire

    def __init__(
        self, scope: Scope, receive: Receive, route: _Route, variables: dict[str, str]
    ) -> None:
        self.scope = scope
        self.receive = receive
        self.given: dict[bytes, bytes] = dict(scope["headers"])
        self.row = route.methods[scope["method"]]
        self.variables = variables
        self.request_id = request_id(self.given)
        self.extensions: tuple[str, ...] = ()

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        headers = [
            (b"a2a-version", self.wire.version.encode()),
            (b"x-request-id", self.request_id.encode()),
            (b"x-content-type-options", b"nosniff"),
        ]
        if self.extensions:
            headers.append((b"a2a-extensions", ", ".join(self.extensions).encode("latin-1")))
        return headers

    @property
    def media_type(self) -> bytes:
        """Of a result: what the client sends or asks for, else that of A2A 1.0."""
        accepts = self.given.get(b"accept", b"").lower()
        sends = self.given.get(b"content-type", b"").lower()
        plain = _JSON in accepts and _A2A not in accepts
        if self.wire.version != "1.0" or plain or sends.startswith(_JSON):
            return _JSON
        return _A2A

    def failure(self, error: BaseException) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
        """Status, headers and body that tell the client of `error`."""
        fault = as_fault(error, method=self.row.name, request_id=self.request_id)
        fault = self.wire.fault(self.row, fault)
        status = 415 if isinstance(error, WrongContentType) else fault.http
        headers = [*self.headers, *headers_of(fault), (b"content-type", _JSON)]
        if self.wire.version != "1.0":
            return status, headers, to_json(described(fault))
        return status, headers, to_json(_status(fault, status))


def _find(scope: Scope) -> tuple[_Route, dict[str, str]] | None:
    path = scope["path"].removeprefix(scope.get("root_path", ""))
    for route in _ROUTES:
        if scope["method"] in route.methods and (match := route.pattern.fullmatch(path)):
            return route, {name: text for name, text in match.groupdict().items() if text}
    return None


def _check_version(call: _Call) -> None:
    """Who names a version must mean that of the path; who names none means it."""
    named = b"a2a-version" in call.given or b"a2a-version" in call.scope["query_string"].lower()
    version = negotiate(call.given, call.scope["query_string"]) if named else call.wire.version
    if version != call.wire.version:
        raise VersionNotSupported(
            f"This path speaks A2A {call.wire.version}, not {version}",
            metadata={"requested": version, "supportedVersions": call.wire.version},
        )


def _queried(method: Method, query: bytes) -> Json:
    """The fields that a query names; those that are flags as such."""
    params: Json = dict(parse_qsl(query.decode("latin-1"), keep_blank_values=True))
    for field in method.params.model_fields.values():
        name = field.alias or ""
        if bool in _types(field.annotation) and params.get(name) in ("true", "false"):
            params[name] = params[name] == "true"
    return params


def _types(annotation: Any) -> list[Any]:
    return [annotation, *(found for each in get_args(annotation) for found in _types(each))]


def _tenant(call: _Call, params: Json) -> str:
    """The tenant of the path; a body may repeat it."""
    tenant = call.variables.get("tenant", "")
    if call.wire.version == "1.0" and (params.get("tenant") or tenant) != tenant:
        raise InvalidParams(violations=[("tenant", "is not the tenant of the path")])
    return tenant


def _status(fault: A2AError, status: int) -> Json:
    """The error as a google.rpc.Status (§11.6)."""
    described = {
        "code": status,
        "status": fault.status,
        "message": str(fault),
        "details": fault.data(),
    }
    return {"error": described}
