"""The HTTP+JSON skin: paths and verbs of the method table over `dispatch` (§11), in every version.

Promises a status of its own and a JSON body for whatever goes wrong before an answer has begun; in
a stream it is the last event, named `error`. The path says which version is spoken: all of 0.3 is
under /v1. Relies on `routes.py` for the paths and on `endpoint.py` for what follows.
"""

from __future__ import annotations

from collections.abc import Mapping

from starlette.routing import BaseRoute, Match
from starlette.types import Receive, Scope, Send

from switchroom.gateway.body import headers_of, parse_object
from switchroom.gateway.context import UNSAID, negotiate
from switchroom.gateway.dispatch import Answer, Result
from switchroom.gateway.endpoint import Call, Endpoint, Reply
from switchroom.gateway.query import queried
from switchroom.gateway.routes import Found, Route, Routes
from switchroom.gateway.v03.rest import RestWire
from switchroom.gateway.wire import CoreRestWire, PathWire
from switchroom.protocol.errors import InvalidParams, VerbNotAllowed
from switchroom.protocol.methods import METHODS, Method
from switchroom.protocol.model import Json

__all__ = ["Rest"]

_JSON, _A2A = b"application/json", b"application/a2a+json"

# Their REST clients of 0.3 encode a file's bytes twice, and read them so (`v03/proto.py`).
_BASE64_TEXT = (b"python-httpx/", b"Java-http-client/")

_HEADERS = ((b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store"))


class Rest(BaseRoute):
    """Every path of the table, as one route of an application."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        versions: tuple[str, ...],
        lenient: bool,
        methods: Mapping[str, Method] = METHODS,
    ) -> None:
        """versions: those that are spoken.  lenient: a path of 1.0 is enough to choose it.
        methods: those that can be called.
        """
        self.endpoint = endpoint
        self.routes = Routes(versions, methods)
        self._lenient = lenient
        self._core, self._core_json = CoreRestWire(_A2A), CoreRestWire(_JSON)
        self._v03, self._v03_text = RestWire(), RestWire(base64_text=True)

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Whether there is such a path; a verb that it does not take is answered here too."""
        found = self.routes.find(scope) if scope["type"] == "http" else None
        return (Match.FULL, {"rest": found}) if found else (Match.NONE, {})

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request whose route has been found."""
        await self.serve(scope["rest"], scope, receive, send)

    async def serve(self, found: Found, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request of this route."""
        await self.endpoint.serve(_Call(self, found, scope, receive), send)

    def wire(self, route: Route, headers: Mapping[bytes, bytes]) -> PathWire:
        """What a request to this route is answered in."""
        if route.version == "0.3":
            twice = headers.get(b"user-agent", b"").startswith(_BASE64_TEXT)
            return self._v03_text if twice else self._v03
        accepts = headers.get(b"accept", b"").lower()
        if _A2A in accepts:
            return self._core
        # Peers of 1.0.0 know no media type but this, and do not say so where they send no body.
        plain = _JSON in accepts or headers.get(b"content-type", b"").lower().startswith(_JSON)
        return self._core_json if plain else self._core

    def check_version(self, route: Route, headers: Mapping[bytes, bytes], query: bytes) -> None:
        """Raises VersionNotSupported where a request speaks another version than its path."""
        unsaid = route.version if self._lenient else UNSAID
        negotiate(headers, query, spoken=(route.version,), unsaid=unsaid)


class _Call(Call):
    __slots__ = ("_found", "_rest", "wire")

    binding = "HTTP+JSON"
    wire: PathWire

    def __init__(self, rest: Rest, found: Found, scope: Scope, receive: Receive) -> None:
        super().__init__(scope, receive)
        self._rest = rest
        self._found = found

    async def answer(self) -> Answer:
        route, fields = self._found
        headers = dict(self.scope["headers"])
        self.wire = self._rest.wire(route, headers)
        await self._rest.endpoint.admit(self, headers)
        verb, query = self.scope["method"], self.scope["query_string"]
        self.row = route.methods.get(verb)
        if self.row is None:
            allowed = ", ".join(route.methods)
            raise VerbNotAllowed(
                f"This path takes {allowed}, not {verb[:20]}", metadata={"allowed": allowed}
            )
        self._rest.check_version(route, headers, query)
        if verb == "POST":
            body = await self._rest.endpoint.read(self, headers)
            params = parse_object(body) if body else {}
        else:
            proto = route.version == "0.3"
            params = queried(self.row.params, query, proto=proto) if query else {}
        return await self._rest.endpoint.ask(self, _with(params, fields), headers)

    def success(self, result: Result) -> Reply:
        assert self.row is not None
        headers = [*_HEADERS, (b"content-type", self.wire.media_type), *self.headers]
        return 200, headers, self.wire.result(self.row, result)

    def failure(self, error: BaseException) -> Reply:
        fault = self.fault(error)
        http, status = fault.statuses(self._rest.endpoint.error_table)
        headers = [*_HEADERS, (b"content-type", _JSON), *self.headers, *headers_of(fault)]
        return http, headers, self.wire.error(fault, http=http, status=status)


def _with(params: Json, fields: Mapping[str, str]) -> Json:
    """The params with what the path says, which wins; but for the tenant, that may only agree."""
    tenant = fields.get("tenant")
    if tenant is not None and params.get("tenant", tenant) not in (tenant, "", None):
        raise InvalidParams(violations=[("tenant", "must be the tenant of the path")])
    params.update(fields)
    return params
