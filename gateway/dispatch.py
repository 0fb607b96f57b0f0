"""One dispatch for every binding: the RequestHandler port, and what is checked before it is asked.

Promises that a handler sees only methods of the table, that the card allows, with params that are
an object; and that whatever it raises becomes an A2A error without the exception's text. Relies on
`protocol/methods.py` for the table and on the agent card for what is on offer.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from switchroom.gateway.context import CallContext
from switchroom.protocol import event
from switchroom.protocol.card import AgentCard
from switchroom.protocol.errors import (
    A2AError,
    ExtensionSupportRequired,
    InternalError,
    MethodNotFound,
    PermissionDenied,
    PushNotificationNotSupported,
    Unavailable,
    UnsupportedOperation,
)
from switchroom.protocol.methods import METHODS, Method, Scope
from switchroom.protocol.model import (
    Json,
    Message,
    Model,
    Task,
    TaskArtifactUpdateEvent,
    TaskStatusUpdateEvent,
)

__all__ = [
    "Answer",
    "RequestHandler",
    "StreamItem",
    "as_fault",
    "close",
    "dispatch",
    "encode_event",
    "encode_result",
    "find",
    "require",
    "require_scope",
]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StreamItem:
    """One event of a stream, ready to be sent.

    `data` is the JSON of a StreamResponse, passed on untouched; `id` the position a client may
    come back with (`Last-Event-ID`). Empty `data` opens the stream without an event: for a stream
    that is accepted, but may have nothing to say for a while.
    """

    data: bytes
    id: str | None = None


Event: TypeAlias = StreamItem | Model | Json
Result: TypeAlias = bytes | Model | Json | None
Answer: TypeAlias = Result | AsyncIterator[Event]
"""What a handler answers: a result (`bytes` is its JSON, passed on untouched; None is an empty
object), or for a streaming method an async iterator of events."""


class RequestHandler(Protocol):
    """The one extension point of a gateway: all methods of the table, in one coroutine."""

    async def dispatch(self, method: str, params: Json | None, context: CallContext) -> Answer:
        """Answer one call.

        `method` is a name of the table. `params` is the raw object, or None; decode it with
        `protocol.params.decode`. Errors are raised: an `A2AError` reaches the client as it is,
        anything else as InternalError. Methods it leaves out raise `MethodNotImplemented`.
        """
        ...


def find(method: str, methods: Mapping[str, Method] = METHODS) -> Method:
    """The row of a method among `methods`. Raises MethodNotFound."""
    row = methods.get(method)
    if row is None:
        raise MethodNotFound(metadata={"method": method[:100]})
    return row


async def dispatch(
    handler: RequestHandler,
    method: Method,
    params: Json | None,
    context: CallContext,
    *,
    card: AgentCard,
    draining: bool = False,
) -> Answer:
    """Check what the caller may, the card offers and the client supports, then ask the handler.

    `context.extensions` are the active ones. Raises A2AError, and whatever the handler raises. A
    gateway that drains opens no new stream; all else goes on.
    """
    require(method, context, card)
    if method.stream and draining:
        raise Unavailable("This gateway is shutting down; try again", retry_after=1)
    answer = await handler.dispatch(method.name, params, context)
    if isinstance(answer, AsyncIterator) is not method.stream:
        if isinstance(answer, AsyncIterator):
            await close(answer)
        wanted = "an async iterator of events" if method.stream else "a result"
        raise TypeError(
            f"The handler answered {method.name} with {type(answer).__name__}, not {wanted}"
        )
    return answer


def require_scope(scope: Scope | None, context: CallContext) -> None:
    """Raises PermissionDenied, which names the scope that is missing."""
    if scope is not None and scope not in context.scopes and "admin" not in context.scopes:
        raise PermissionDenied(metadata={"scope": scope})


def require(method: Method, context: CallContext, card: AgentCard) -> None:
    """What is checked of a call before its params are: what the caller may, the card offers and
    the client supports. Raises A2AError.
    """
    require_scope(method.scope, context)
    offers = card.capabilities
    match method.needs:
        case "streaming" if not offers.streaming:
            raise UnsupportedOperation("This agent does not stream")
        case "push_notifications" if not offers.push_notifications:
            raise PushNotificationNotSupported()
        case "extended_agent_card":
            if not offers.extended_agent_card:
                raise UnsupportedOperation("This agent has no extended card")
            return  # reading a card asks for no extension (§4.6)
    active = context.extensions
    if missing := [e.uri for e in offers.extensions if e.required and e.uri not in active]:
        raise ExtensionSupportRequired(
            f"This agent requires the extension {', '.join(missing)}; name it in A2A-Extensions",
            metadata={"extensions": ",".join(missing)},
        )
    if method.extension and method.extension not in active:
        raise MethodNotFound(
            f"{method.name} is a method of the extension {method.extension}; name that in "
            "A2A-Extensions",
            metadata={"method": method.name, "extension": method.extension},
        )


def as_fault(error: BaseException, *, method: str, request_id: str) -> A2AError:
    """The error a client may see. What is none of ours goes to the log, under an id both have."""
    if isinstance(error, A2AError):
        return error
    ident = secrets.token_hex(8)
    log.error(
        "Internal error %s in %s, request %s",
        ident,
        method or "a request",
        request_id,
        exc_info=error,
    )
    return InternalError(metadata={"id": ident})


def encode_result(result: Result) -> bytes:
    """The JSON of a handler's result."""
    if isinstance(result, bytes):
        return result
    if result is None:
        return b"{}"
    return _encode(result)


def encode_event(item: Event) -> StreamItem:
    """An event as it goes out; a bare Task, Message or update gets its StreamResponse wrapper."""
    if isinstance(item, StreamItem):
        return item
    if isinstance(item, Task | Message | TaskStatusUpdateEvent | TaskArtifactUpdateEvent):
        item = event.wrap(item)
    return StreamItem(_encode(item))


def _encode(value: Model | Json) -> bytes:
    if isinstance(value, Model):
        return value.to_json()
    if isinstance(value, dict):
        return event.encode(value)
    raise TypeError(f"A handler answers with JSON objects, models or bytes, not {value!r:.100}")


async def close(source: AsyncIterator[Event]) -> None:
    """Close an iterator that nobody reads any more; what it raises then is nobody's answer."""
    aclose = getattr(source, "aclose", None)
    if aclose is None:
        return
    try:
        await aclose()
    except Exception:
        log.exception("Closing a handler's event stream failed")
