"""create_app: the parts of a gateway put together, as one ASGI application.

Promises JSON on every path and for every failure, never HTML and never a traceback. Relies on the
parts given or named by the settings; what is not given is made here, and closed when it ends.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from functools import partial
from typing import Any, cast

from fastapi import FastAPI
from fastapi.exception_handlers import http_exception_handler
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from switchroom.gateway.access import load_policy
from switchroom.gateway.audit import load_audit
from switchroom.gateway.auth.gate import Gate
from switchroom.gateway.auth.load import load_gate
from switchroom.gateway.body import headers_of
from switchroom.gateway.card import CARD_PATH, KEYS_PATH, CardSource, load_card
from switchroom.gateway.card_files import found_of
from switchroom.gateway.connection import connection_of
from switchroom.gateway.context import request_id
from switchroom.gateway.dispatch import RequestHandler, as_fault
from switchroom.gateway.endpoint import Endpoint
from switchroom.gateway.extended import load_extended
from switchroom.gateway.extensions import AddedMethods, Answering
from switchroom.gateway.handlers import DistributedHandler
from switchroom.gateway.health import health_routes
from switchroom.gateway.hygiene import hygienic
from switchroom.gateway.jsonrpc import JsonRpc
from switchroom.gateway.openapi import OPENAPI_PATH, encoded
from switchroom.gateway.rest import Rest
from switchroom.gateway.sse import EventStreams
from switchroom.gateway.wire import CoreRestWire
from switchroom.importing import ImportFailed, import_object
from switchroom.protocol.card import AgentCard
from switchroom.protocol.errors import A2AError, ErrorTable, MethodNotFound, VerbNotAllowed
from switchroom.protocol.methods import Method
from switchroom.settings import Settings, SettingsError
from switchroom.store import Store

__all__ = ["create_app", "load_handler"]

_NO_SNIFF = {"x-content-type-options": "nosniff"}
_PING_LIMIT = timedelta(seconds=1)

_Make = Callable[[Store, Settings], RequestHandler]


def create_app(
    settings: Settings,
    *,
    handler: RequestHandler | None = None,
    card: AgentCard | CardSource | None = None,
    store: Store | None = None,
    gate: Gate | None = None,
    methods: Mapping[Method, Answering] | None = None,
) -> FastAPI:
    """A gateway: JSON-RPC at /, HTTP+JSON beside it, the card, /openapi.json, /livez, /readyz.

    `handler` replaces ours, as the setting of that name does; `card` the one that the settings
    name. A `store` that is given stays open; otherwise the lifespan opens and closes one, if the
    handler or the gate needs it. `gate` asks who calls, in place of the one that the settings make.
    `methods` are those that extensions of the card add: a row of the table each,
    and the coroutine that answers it.

    `app.state.draining` is an asyncio.Event, set by `app.state.drain()`: call that, in the event
    loop's thread, when the gateway is to stop. A handler with a method `drain` is told too: what it
    keeps waiting should be answered soon. One with an async context manager `running()` is within
    it while the lifespan lasts.

    Raises SettingsError and CardError, and ValueError for a method that cannot be added: one
    sentence each.
    """
    gate = load_gate(settings) if gate is None else gate
    if card is None:
        card = load_card(settings.card, settings, schemes=gate.schemes)
    elif isinstance(card, AgentCard):
        card = CardSource(found_of(card, card.name), settings, schemes=gate.schemes)
    extended = load_extended(settings, card)
    audit = load_audit(settings)
    draining = asyncio.Event()
    streams = EventStreams(heartbeat=settings.heartbeat.total_seconds())
    make: _Make | None = None
    if handler is None and settings.handler:
        found = load_handler(settings.handler)
        if inspect.isclass(found):
            make = found
        else:
            handler = found
    elif handler is None:
        make = partial(
            DistributedHandler, card=card.card, extended=extended, policy=load_policy(settings)
        )
    if make and store:
        handler = make(store, settings)
    added = AddedMethods(methods or {}, card.card)
    endpoint = Endpoint(
        card=card.card,
        gate=gate,
        audit=audit,
        address=card.address,
        streams=streams,
        draining=draining,
        body_limit=settings.body_limit,
        patience=settings.request_timeout.total_seconds(),
        error_table=settings.error_table,
        legacy_codes=settings.legacy_error_codes,
        added=added,
        handler=handler,
    )
    versions, lenient = settings.protocol_versions, settings.lenient_version
    rpc = JsonRpc(endpoint, versions=versions, lenient=lenient, methods=added.table)
    rest = Rest(endpoint, versions=versions, lenient=lenient, methods=added.table)
    kept = store

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        nonlocal kept
        async with AsyncExitStack() as opened:
            if store is None and (make or gate.needs_store):
                kept = await Store.open(settings)
                opened.push_async_callback(kept.close)
                if make:
                    endpoint.handler = make(kept, settings)
                    opened.callback(setattr, endpoint, "handler", None)
            opened.enter_context(audit.running())
            await opened.enter_async_context(gate.running(kept))
            if running := getattr(endpoint.handler, "running", None):
                await opened.enter_async_context(running())
            yield

    async def ready() -> None:
        if endpoint.handler is None:
            raise RuntimeError("it is not open yet")
        if kept is not None and not await kept.ping(within=_PING_LIMIT):
            raise RuntimeError("no answer to a ping")

    def drain() -> None:
        draining.set()
        if told := getattr(endpoint.handler, "drain", None):
            told()
        streams.end()

    app = _Gateway(
        rpc,
        rest,
        settings,
        title="Switchroom",
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
        exception_handlers={HTTPException: _refuse, Exception: _fail},
    )
    app.router.routes += [
        Route("/", rpc, methods=["POST"], name="jsonrpc"),
        Route(CARD_PATH, card.respond),
        *([Route(KEYS_PATH, card.respond_keys)] if card.press.key_set else []),
        *health_routes(ready=ready, draining=draining),
        Route(OPENAPI_PATH, partial(_openapi, table=settings.error_table, methods=added.table)),
        rest,
    ]
    app.state.draining = draining
    app.state.drain = drain
    app.state.streams = streams
    app.state.connection = connection_of(settings)
    return app


def load_handler(spec: str) -> RequestHandler | type[RequestHandler]:
    """The handler that an import string names; the attribute is `handler` where it names none.

    An instance, or a class: one that takes nothing is instantiated here, one that takes
    (store, settings) is given back. Raises SettingsError: one sentence, what was found instead.
    """
    try:
        found = import_object(spec, default="handler")
    except ImportFailed as error:
        raise SettingsError(f"SWITCHROOM_HANDLER is {spec!r}: {error}") from error
    kind = found.__name__ if inspect.isclass(found) else type(found).__name__
    if not callable(getattr(found, "dispatch", None)):
        raise _no_handler(spec, f"found {kind}, which has no dispatch(method, params, context)")
    if not inspect.isclass(found):
        return cast(RequestHandler, found)
    try:
        signature = inspect.signature(found)
    except ValueError:  # made in C
        signature = inspect.Signature()
    for arguments in ((), (None, None)):
        try:
            signature.bind(*arguments)
        except TypeError:
            continue
        return cast(type[RequestHandler], found) if arguments else cast(RequestHandler, found())
    raise _no_handler(spec, f"found the class {kind}{signature}")


def _no_handler(spec: str, found: str) -> SettingsError:
    return SettingsError(
        f"SWITCHROOM_HANDLER is {spec!r}: {found}; it should be an object with that coroutine, "
        "or a class of such that takes nothing or (store, settings)."
    )


async def _openapi(
    request: Request, *, table: ErrorTable, methods: Mapping[str, Method]
) -> Response:
    headers = {"cache-control": "public, max-age=300", "x-content-type-options": "nosniff"}
    body = encoded(table, tuple(methods.values()))
    return Response(body, media_type="application/json", headers=headers)


async def _refuse(request: Request, error: Exception) -> Response:
    """What no route answers, as JSON."""
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "")
        fault: A2AError = VerbNotAllowed(
            f"This path takes {allowed}, not {request.method}", metadata={"allowed": allowed}
        )
    elif error.status_code == 404:
        fault = MethodNotFound(
            f"Nothing is here; JSON-RPC is POST /, the agent card is GET {CARD_PATH}"
        )
    else:  # of a route that an embedding program has added
        return await http_exception_handler(request, error)
    return _told(fault)


async def _fail(request: Request, error: Exception) -> Response:
    """A failure outside the protocol's endpoints, which answer their own."""
    ident = request_id(dict(request.scope["headers"]))
    return _told(as_fault(error, method=request.url.path, request_id=ident))


def _told(fault: A2AError) -> Response:
    body = CoreRestWire().error(fault, http=fault.http, status=fault.status)
    response = Response(body, fault.http, media_type="application/json")
    response.raw_headers += [(b"x-content-type-options", b"nosniff"), *headers_of(fault)]
    return response


class _Gateway(FastAPI):
    """Leads calls straight to the protocol's endpoints, past what the framework does per request.

    Middleware, routing and exception handling cost a quarter of a call and 3 kB per open stream. An
    embedding program that adds middleware of its own gets all of it, and the route.
    """

    def __init__(self, rpc: ASGIApp, rest: Rest, settings: Settings, **options: Any) -> None:
        super().__init__(**options)
        self._rpc = rpc
        self._rest = rest
        self._outer = hygienic(self._answer, settings)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._outer(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.user_middleware:
            await super().__call__(scope, receive, send)
        elif scope["path"] == "/" and scope["method"] == "POST":
            await self._rpc(scope, receive, send)
        elif found := self._rest.routes.find(scope):
            await self._rest.serve(found, scope, receive, send)
        else:
            await super().__call__(scope, receive, send)
