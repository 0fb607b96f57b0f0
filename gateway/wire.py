"""The seam between bindings and versions: what one version of the protocol says on one binding.

Promises that everything inside (dispatch, handlers, store) is 1.0, whatever is spoken outside. A
wire has no state but what it may forget.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from pydantic_core import to_json

from switchroom.gateway.dispatch import Result, StreamItem, encode_result, find
from switchroom.protocol.errors import A2AError
from switchroom.protocol.methods import METHODS, Method
from switchroom.protocol.model import Json

__all__ = ["AS_IT_IS", "CoreRestWire", "CoreWire", "Events", "NamedWire", "PathWire", "Wire"]


class Events(Protocol):
    """How the events of one stream are said; it is told each of them, in order."""

    def say(self, item: StreamItem) -> bytes:
        """The JSON of an event, which is not empty."""
        ...

    def last(self) -> StreamItem | None:
        """An event that a stream which has come to its end lacks in this version."""
        ...


class _AsItIs:
    def say(self, item: StreamItem) -> bytes:
        return item.data

    def last(self) -> StreamItem | None:
        return None


AS_IT_IS: Events = _AsItIs()
"""Events that are said as they are."""


class Wire(Protocol):
    """One version on one binding."""

    @property
    def version(self) -> str:
        """What it speaks, Major.Minor."""
        ...

    def request(self, method: Method, params: Json | None) -> tuple[Method, Json | None]:
        """The method and params of 1.0 that a request means. Raises InvalidParams."""
        ...

    def result(self, method: Method, result: Result) -> bytes:
        """The JSON of a result."""
        ...

    def events(self, method: Method) -> Events:
        """How the events of a stream of this method are said."""
        ...

    def fault(self, method: Method, error: A2AError) -> A2AError:
        """An error that a request of this method brought, in the words of this version."""
        ...


class NamedWire(Wire, Protocol):
    """One version on a binding that calls methods by name."""

    @property
    def refuses_in_stream(self) -> bool:
        """Whether a stream that cannot begin is a stream all the same, of one error."""
        ...

    def method(self, name: str) -> Method:
        """The row of a method. Raises MethodNotFound, or VersionNotSupported where it is one of
        another version.
        """
        ...


class PathWire(Wire, Protocol):
    """One version on a binding that calls methods by path and verb."""

    @property
    def media_type(self) -> bytes:
        """Of results. Errors are application/json."""
        ...

    def error(self, fault: A2AError, *, http: int, status: str) -> bytes:
        """The JSON of an error; `http` and `status` as the table of errors has them."""
        ...


class CoreWire:
    """1.0 itself: everything passes untouched."""

    version = "1.0"
    refuses_in_stream = False

    def __init__(self, methods: Mapping[str, Method] = METHODS) -> None:
        """methods: those that can be called, by name."""
        self._methods = methods

    def method(self, name: str) -> Method:
        return find(name, self._methods)

    def request(self, method: Method, params: Json | None) -> tuple[Method, Json | None]:
        return method, params

    def result(self, method: Method, result: Result) -> bytes:
        return encode_result(result)

    def events(self, method: Method) -> Events:
        return AS_IT_IS

    def fault(self, method: Method, error: A2AError) -> A2AError:
        return error


class CoreRestWire(CoreWire):
    """1.0 over HTTP+JSON, where an error is a google.rpc.Status (§11.6)."""

    def __init__(self, media_type: bytes = b"application/json") -> None:
        super().__init__()
        self.media_type = media_type

    def error(self, fault: A2AError, *, http: int, status: str) -> bytes:
        told = {"code": http, "status": status, "message": str(fault), "details": fault.data()}
        return to_json({"error": told})
