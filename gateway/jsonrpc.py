"""The JSON-RPC skin: one POST endpoint, in every version.

Promises one well-formed JSON-RPC answer to whatever is posted, with the checks in the order caller,
size, content type, JSON, envelope, version, method, params; the body is parsed once, the result's
bytes are passed on untouched. Relies on `endpoint.py` for what follows.
"""

from __future__ import annotations

from collections.abc import Mapping

from pydantic_core import to_json
from starlette.types import Receive, Scope, Send

from switchroom.gateway.body import JSON_HEADERS, headers_of, parse_object
from switchroom.gateway.context import UNSAID, negotiate
from switchroom.gateway.dispatch import Answer, Result
from switchroom.gateway.endpoint import Call, Endpoint, Reply
from switchroom.gateway.sse import SSE_HEADERS
from switchroom.gateway.v03.jsonrpc import JsonRpcWire
from switchroom.gateway.wire import CoreWire, NamedWire
from switchroom.protocol.errors import InvalidParams, InvalidRequest
from switchroom.protocol.methods import METHODS, Method
from switchroom.protocol.model import Json

__all__ = ["JsonRpc"]


class JsonRpc:
    """The ASGI endpoint; POST only, which its route sees to."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        versions: tuple[str, ...],
        lenient: bool,
        methods: Mapping[str, Method] = METHODS,
    ) -> None:
        """versions: those that are spoken.  lenient: a method's name is enough to choose 1.0.
        methods: those that can be called, by their names of 1.0.
        """
        self.endpoint = endpoint
        self.versions = versions
        self._lenient = lenient
        self._methods = methods
        spoken: tuple[NamedWire, ...] = (CoreWire(methods), JsonRpcWire(methods))
        self._wires = {wire.version: wire for wire in spoken if wire.version in versions}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.endpoint.serve(_Call(self, scope, receive), send)

    def wire(self, method: str, headers: dict[bytes, bytes], query: bytes) -> NamedWire:
        """What a call of this method is spoken in. Raises VersionNotSupported."""
        unsaid = "1.0" if self._lenient and method in self._methods else UNSAID
        return self._wires[negotiate(headers, query, spoken=self.versions, unsaid=unsaid)]


class _Call(Call):
    __slots__ = ("_rpc", "id", "wire")

    binding = "JSONRPC"
    wire: NamedWire

    def __init__(self, rpc: JsonRpc, scope: Scope, receive: Receive) -> None:
        super().__init__(scope, receive)
        self.wire = _UNKNOWN
        self.id = b"null"
        self._rpc = rpc

    @property
    def before(self) -> bytes:
        return b'{"jsonrpc":"2.0","id":' + self.id + b',"result":'

    @property
    def after(self) -> bytes:
        return b"}"

    async def answer(self) -> Answer:
        headers = dict(self.scope["headers"])
        await self._rpc.endpoint.admit(self, headers)
        envelope = parse_object(await self._rpc.endpoint.read(self, headers))
        self.id = _id(envelope)
        method = _method(envelope)
        self.wire = self._rpc.wire(method, headers, self.scope["query_string"])
        self.row = self.wire.method(method)
        return await self._rpc.endpoint.ask(self, _params(envelope), headers)

    def success(self, result: Result) -> Reply:
        assert self.row is not None
        said = self.wire.result(self.row, result)
        return 200, [*JSON_HEADERS, *self.headers], self.before + said + b"}"

    def failure(self, error: BaseException) -> Reply:
        fault = self.fault(error)
        legacy = fault.legacy if self._rpc.endpoint.legacy_codes else None
        code = fault.code if legacy is None else legacy
        described = {"code": code, "message": str(fault), "data": fault.data()}
        body = b'{"jsonrpc":"2.0","id":' + self.id + b',"error":' + to_json(described) + b"}"
        headers = [*JSON_HEADERS, *self.headers, *headers_of(fault)]
        return fault.http if fault.edge else 200, headers, body

    def refusal(self, error: BaseException) -> Reply:
        status, headers, body = self.failure(error)
        if status == 200 and self.row and self.row.stream and self.wire.refuses_in_stream:
            return status, [*SSE_HEADERS, *self.headers], b"data: " + body + b"\n\n"
        return status, headers, body


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
