"""The JSON-RPC skin: one POST endpoint over `dispatch`.

Promises one well-formed JSON-RPC answer to whatever is posted, with the checks in the order size,
content type, JSON, envelope, version, method, params; the body is parsed once, the result's bytes
are passed on untouched. It is plain ASGI: this is the path every call takes, and a framework's
request machinery costs more than all of it. Relies on `dispatch` for everything about methods.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from pydantic_core import to_json
from starlette.types import Receive, Scope, Send

from switchroom.gateway.body import (
    CLOSE,
    JSON_HEADERS,
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
    Result,
    activated,
    as_fault,
    dispatch,
)
from switchroom.gateway.sse import SSE_HEADERS, EventStreams
from switchroom.gateway.v03.wire import JsonRpcWire
from switchroom.gateway.wire import CoreWire, NamedWire
from switchroom.protocol.card import AgentCard
from switchroom.protocol.errors import (
    InvalidParams,
    InvalidRequest,
    PayloadTooLarge,
    PermissionDenied,
    RateLimited,
    Unauthenticated,
    Unavailable,
)
from switchroom.protocol.methods import Method
from switchroom.protocol.model import Json

__all__ = ["JsonRpc"]

# JSON-RPC errors travel with HTTP 200, except these (§3.3.2: credentials and system errors).
_EDGE = (Unauthenticated, PermissionDenied, RateLimited, Unavailable, PayloadTooLarge)


class JsonRpc:
    """The ASGI endpoint; POST only, which its route sees to."""

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
        spoken: tuple[NamedWire, ...] = (CoreWire(), JsonRpcWire())
        self._wires = {wire.version: wire for wire in spoken}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        call = _Call(scope, receive)
        try:
            answer = await self._answer(call)
            if isinstance(answer, AsyncIterator):
                await self._stream(answer, call, send)
                return
            body = call.success(answer)
            status, headers = 200, [*JSON_HEADERS, *call.headers]
        except ClientLeft:
            return
        except Exception as error:
            status, headers, body = call.refusal(error)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # Not this request, but something the handler waited for, was cancelled.
            status, headers, body = call.refusal(error)
        headers.append((b"content-length", b"%d" % len(body)))
        if self._draining.is_set():
            headers.append(CLOSE)  # the client's next call should reach another gateway
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _answer(self, call: _Call) -> Answer:
        # Body and params are this frame's: they must not live as long as a stream does.
        headers = dict(call.scope["headers"])
        call.request_id = request_id(headers)
        body = await read_body(headers, call.receive, limit=self._body_limit)
        envelope = parse_object(body)
        call.id = _id(envelope)
        call.method = _method(envelope)
        wire = call.wire = self._wires[negotiate(headers, call.scope["query_string"])]
        call.row = wire.method(call.method)
        call.row, params = wire.request(call.row, _params(envelope))
        context = read_context(
            headers,
            raw_headers=call.scope["headers"],
            version=wire.version,
            tenant=_tenant(params),
            request_id=call.request_id,
        )
        call.extensions = activated(context, self._card)
        if self.handler is None:
            raise Unavailable("This gateway is starting; try again", retry_after=1)
        return await dispatch(
            self.handler,
            call.row,
            params,
            context,
            card=self._card,
            draining=self._draining.is_set(),
        )

    async def _stream(self, source: AsyncIterator[Event], call: _Call, send: Send) -> None:
        assert call.row is not None
        await self._streams.serve(
            call.wire.stream(call.row, source),
            before=b'{"jsonrpc":"2.0","id":' + call.id + b',"result":',
            after=b"}",
            error=lambda error: call.failure(error)[2],
            headers=[*SSE_HEADERS, *call.headers],
            receive=call.receive,
            send=send,
        )


class _Call:
    """What is known of one call so far: enough to answer it, whatever goes wrong."""

    __slots__ = ("extensions", "id", "method", "receive", "request_id", "row", "scope", "wire")

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self.scope = scope
        self.receive = receive
        self.id = b"null"
        self.method = ""
        self.row: Method | None = None
        self.request_id = ""
        self.wire: NamedWire = _UNKNOWN
        self.extensions: tuple[str, ...] = ()

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        headers = [
            (b"a2a-version", self.wire.version.encode()),
            (b"x-request-id", self.request_id.encode()),
        ]
        if self.extensions:
            headers.append((b"a2a-extensions", ", ".join(self.extensions).encode("latin-1")))
        return headers

    def success(self, result: Result) -> bytes:
        assert self.row is not None
        said = self.wire.result(self.row, result)
        return b'{"jsonrpc":"2.0","id":' + self.id + b',"result":' + said + b"}"

    def failure(self, error: BaseException) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
        """Status, headers and body that tell the client of `error`."""
        fault = as_fault(error, method=self.method, request_id=self.request_id)
        if self.row is not None:
            fault = self.wire.fault(self.row, fault)
        status = fault.http if isinstance(fault, _EDGE) else 200
        if isinstance(error, WrongContentType):
            status = 415
        headers = [*self.headers, *headers_of(fault)]
        described = {"code": fault.code, "message": str(fault), "data": fault.data()}
        body = b'{"jsonrpc":"2.0","id":' + self.id + b',"error":' + to_json(described) + b"}"
        return status, headers, body

    def refusal(self, error: BaseException) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
        """The same as the whole answer."""
        status, headers, body = self.failure(error)
        if status == 200 and self.row and self.row.stream and self.wire.refuses_in_stream:
            return status, [*SSE_HEADERS, *headers], b"data: " + body + b"\n\n"
        return status, [*JSON_HEADERS, *headers], body


# Until a version is known, what goes wrong is said as 1.0 says it.
_UNKNOWN = CoreWire()


def _id(envelope: Json) -> bytes:
    match envelope.get("id"):
        case None:
            return b"null"  # a notification too: A2A knows none
        case bool():
            pass
        case int() | str() as ident:
            return to_json(ident)
    raise InvalidRequest('"id" is a string or an integer')


def _method(envelope: Json) -> str:
    if envelope.get("jsonrpc") != "2.0":
        raise InvalidRequest('"jsonrpc" is "2.0"')
    method = envelope.get("method")
    if not isinstance(method, str):
        raise InvalidRequest('"method" is a string')
    return method


def _params(envelope: Json) -> Json | None:
    params = envelope.get("params")
    if params is not None and not isinstance(params, dict):
        raise InvalidParams("Params are an object", violations=[("params", "is not an object")])
    return params


def _tenant(params: Json | None) -> str:
    tenant = params.get("tenant") if params else None
    if tenant is None:
        return ""
    if not isinstance(tenant, str):
        raise InvalidParams(violations=[("tenant", "is not a string")])
    return tenant
