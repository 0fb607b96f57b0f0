"""What the bindings of a gateway share: how a call is answered, whatever it is spoken in.

Promises one answer to each call: a result, a stream, or an error of the protocol with its status;
and that a stream which cannot begin is an error, not a stream. Plain ASGI: this is the path every
call takes, and a framework's request machinery costs more than all of it.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from typing import ClassVar, TypeAlias

from starlette.types import Receive, Scope, Send

from switchroom.gateway.address import Address
from switchroom.gateway.audit import Audit
from switchroom.gateway.auth.caller import ANYBODY, Request
from switchroom.gateway.auth.gate import Gate
from switchroom.gateway.body import CLOSE, ClientLeft, read_body
from switchroom.gateway.context import (
    EXTENSION_HEADERS,
    CallContext,
    Notes,
    active_extensions,
    read_context,
    request_id,
)
from switchroom.gateway.dispatch import (
    Answer,
    Event,
    RequestHandler,
    Result,
    as_fault,
    dispatch,
    require,
)
from switchroom.gateway.sse import SSE_HEADERS, EventStreams
from switchroom.gateway.wire import Wire
from switchroom.protocol.card import AgentCard
from switchroom.protocol.errors import A2AError, ErrorTable, InvalidParams, Unavailable
from switchroom.protocol.methods import Method
from switchroom.protocol.model import Json

__all__ = ["Call", "Endpoint", "Reply"]

Reply: TypeAlias = tuple[int, list[tuple[bytes, bytes]], bytes]
"""Status, headers and body."""


class Call(ABC):
    """What is known of one call so far: enough to answer it, whatever goes wrong.

    It lives as long as its stream does, so it holds neither body nor params.
    """

    __slots__ = ("caller", "ended", "extensions", "notes", "receive", "request_id", "row", "scope")

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self.scope = scope
        self.receive = receive
        self.row: Method | None = None
        self.request_id = ""
        self.caller = ANYBODY
        self.notes = Notes()
        self.ended: A2AError | None = None
        self.extensions: tuple[str, ...] = ()

    binding: ClassVar[str]
    """What the card calls the way it is made (§4.4.6)."""

    @property
    @abstractmethod
    def wire(self) -> Wire:
        """What it is answered in; 1.0 until a version is known."""

    @property
    def before(self) -> bytes:
        """What stands before each event of a stream."""
        return b""

    @property
    def after(self) -> bytes:
        """What stands after it."""
        return b""

    @abstractmethod
    async def answer(self) -> Answer:
        """Read the request and have it answered; what goes wrong is raised."""

    @abstractmethod
    def success(self, result: Result) -> Reply:
        """The answer with this result."""

    @abstractmethod
    def failure(self, error: BaseException) -> Reply:
        """The answer that tells the client of `error`; in a stream, its body is the last event."""

    def refusal(self, error: BaseException) -> Reply:
        """The same where it is the whole answer."""
        return self.failure(error)

    def fault(self, error: BaseException) -> A2AError:
        """The error that the client may see, in the words of its version."""
        name = self.row.name if self.row is not None else ""
        fault = self.ended = as_fault(error, method=name, request_id=self.request_id)
        return fault if self.row is None else self.wire.fault(self.row, fault)

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """Headers of every answer."""
        headers = [
            (b"a2a-version", self.wire.version.encode()),
            (b"x-request-id", self.request_id.encode()),
        ]
        if self.extensions:
            listed = ", ".join(self.extensions).encode("latin-1")
            headers.append((EXTENSION_HEADERS[self.wire.version], listed))
        return headers + self.notes.headers


class Endpoint:
    """Answers the calls of all bindings of one gateway."""

    def __init__(
        self,
        *,
        card: AgentCard,
        gate: Gate,
        audit: Audit,
        address: Address,
        streams: EventStreams,
        draining: asyncio.Event,
        body_limit: int,
        patience: float,
        error_table: ErrorTable,
        legacy_codes: bool,
        added: RequestHandler,
        handler: RequestHandler | None = None,
    ) -> None:
        """`body_limit` in bytes, `patience` for a body in seconds; `added` answers the methods of
        extensions. Without a `handler` yet, calls are answered Unavailable.
        """
        self.handler = handler
        self.error_table: ErrorTable = error_table
        self.legacy_codes = legacy_codes
        self._card = card
        self._gate = gate
        self._audit = audit
        self._address = address
        self._added = added
        self._extensions = frozenset(e.uri for e in card.capabilities.extensions)
        self._streams = streams
        self._draining = draining
        self._body_limit = body_limit
        self._patience = patience

    async def serve(self, call: Call, send: Send) -> None:
        """Answer one call."""
        try:
            answer = await call.answer()
            if isinstance(answer, AsyncIterator):
                self._note(call)
                await self._stream(answer, call, send)
                return
            status, headers, body = call.success(answer)
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
        self._note(call)
        headers.append((b"content-length", b"%d" % len(body)))
        if self._draining.is_set():
            headers.append(CLOSE)
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def _note(self, call: Call) -> None:
        peer = call.scope.get("client")
        self._audit.note(
            method=call.row,
            caller=call.caller,
            peer=peer[0] if peer else "",
            request_id=call.request_id,
            binding=call.binding,
            version=call.wire.version,
            task_id=call.notes.task_id,
            fault=call.ended,
        )

    async def admit(self, call: Call, headers: dict[bytes, bytes]) -> None:
        """Find out who calls. Raises what `Gate.caller` raises."""
        call.request_id = request_id(headers)
        peer = call.scope.get("client")
        call.caller = await self._gate.caller(Request(headers, peer[0] if peer else ""))

    async def read(self, call: Call, headers: dict[bytes, bytes]) -> bytes:
        """The body of a call. Raises what `read_body` raises."""
        return await read_body(headers, call.receive, limit=self._body_limit, within=self._patience)

    async def ask(self, call: Call, params: Json | None, headers: dict[bytes, bytes]) -> Answer:
        """The handler's answer to a call whose row and wire are known; `params` are of the wire."""
        assert call.row is not None
        call.extensions = active_extensions(
            headers, call.scope["headers"], declared=self._extensions
        )
        try:
            call.row, asked = call.wire.request(call.row, params)
            tenant = _tenant(asked)
        except InvalidParams:
            # Who may not, or asks for what is not on offer, is told that first in every version.
            require(call.row, self._context(call, headers, tenant=""), self._card)
            raise
        context = self._context(call, headers, tenant=tenant)
        if self.handler is None:
            raise Unavailable("This gateway is starting; try again", retry_after=1)
        return await dispatch(
            self._added if call.row.extension else self.handler,
            call.row,
            asked,
            context,
            card=self._card,
            draining=self._draining.is_set(),
        )

    def _context(self, call: Call, headers: dict[bytes, bytes], *, tenant: str) -> CallContext:
        assert call.row is not None
        return read_context(
            headers,
            version=call.wire.version,
            caller=call.caller,
            tenant=tenant,
            request_id=call.request_id,
            extensions=call.extensions,
            base_url=self._address.of(call.scope) if _names_us(call.row) else "",
            notes=call.notes,
        )

    async def _stream(self, source: AsyncIterator[Event], call: Call, send: Send) -> None:
        assert call.row is not None
        await self._streams.serve(
            source,
            events=call.wire.events(call.row),
            before=call.before,
            after=call.after,
            error=lambda error: call.failure(error)[2],
            headers=[*SSE_HEADERS, *call.headers],
            receive=call.receive,
            send=send,
        )


def _names_us(method: Method) -> bool:
    """Whether its answer says where this server is."""
    return method.needs == "extended_agent_card"


def _tenant(params: Json | None) -> str:
    tenant = params.get("tenant") if params else None
    if tenant is None:
        return ""
    if not isinstance(tenant, str):
        raise InvalidParams(violations=[("tenant", "is not a string")])
    return tenant
