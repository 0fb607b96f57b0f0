"""What bindings over HTTP share: reading a body of bounded size, and headers of their answers.

Promises the checks in the order size, content type, JSON. A body is never quoted in an error.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Mapping
from typing import Any

from pydantic_core import from_json
from starlette.types import Receive

from switchroom.protocol.errors import (
    A2AError,
    AuthenticationFailed,
    InvalidRequest,
    MediaTypeNotSupported,
    ParseError,
    PayloadTooLarge,
    RequestTimeout,
    VerbNotAllowed,
)
from switchroom.protocol.model import Json

__all__ = [
    "CLOSE",
    "JSON_HEADERS",
    "ClientLeft",
    "headers_of",
    "parse_object",
    "read_body",
]

JSON_HEADERS = (
    (b"content-type", b"application/json"),
    (b"x-content-type-options", b"nosniff"),
)
CLOSE = (b"connection", b"close")
"""For an answer after which the client's next call should reach another gateway."""

_CONTENT_TYPE = re.compile(rb"application/(json|[\w.!#$&^+-]+\+json)\s*(;.*)?", re.I | re.DOTALL)


class ClientLeft(Exception):
    """The client closed the connection before its request was complete."""


async def read_body(
    headers: Mapping[bytes, bytes], receive: Receive, *, limit: int, within: float
) -> bytes:
    """The body of a request of a JSON media type, or of none that is named.

    Raises PayloadTooLarge beyond `limit` bytes, RequestTimeout after `within` seconds,
    MediaTypeNotSupported, ClientLeft.
    """
    length = headers.get(b"content-length", b"")
    if length.isdigit() and (len(length) > 18 or int(length) > limit):
        raise _too_large(limit)
    content_type = headers.get(b"content-type", b"")
    if content_type.strip() and not _CONTENT_TYPE.fullmatch(content_type.strip()):
        raise MediaTypeNotSupported(
            metadata={
                "contentType": content_type.decode("latin-1")[:100],
                "supported": "application/json",
            },
        )
    encoding = headers.get(b"content-encoding", b"identity").strip().lower()
    if encoding not in (b"", b"identity"):
        raise MediaTypeNotSupported(
            "The request's Content-Encoding is not supported; send it as it is",
            metadata={"contentEncoding": encoding.decode("latin-1")[:100]},
        )
    try:
        async with asyncio.timeout(within):
            return await _read(receive, limit)
    except TimeoutError:
        raise RequestTimeout("The request's body did not arrive in time") from None


async def _read(receive: Receive, limit: int) -> bytes:
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientLeft
        chunk = message.get("body", b"")
        size += len(chunk)
        if size > limit:
            raise _too_large(limit)
        more = message.get("more_body", False)
        if not more and not chunks:
            return bytes(chunk)
        chunks.append(chunk)
        if not more:
            return b"".join(chunks)


def _too_large(limit: int) -> PayloadTooLarge:
    return PayloadTooLarge(f"The request is larger than {limit} bytes")


def parse_object(body: bytes) -> Json:
    """The JSON object in a body. Raises ParseError and InvalidRequest."""
    try:
        envelope = from_json(body, allow_inf_nan=False)
    except ValueError as error:
        # The parser's text quotes nothing of the body: a reason, a line and a column.
        fault = f"The body is not JSON: {error}" if body else "The body is empty"
        raise ParseError(fault) from None
    if not isinstance(envelope, dict):
        batch = "; A2A has no batches" if isinstance(envelope, list) else ""
        raise InvalidRequest(f"A request is one JSON object{batch}")
    if not _is_finite(envelope):
        raise ParseError("The body is not JSON: a number is out of range")
    return envelope


def _is_finite(value: Any) -> bool:
    # 1e999 passes the parser as infinity, which no JSON can say again.
    waiting = [value]
    while waiting:
        value = waiting.pop()
        kind = type(value)
        if kind is dict:
            waiting.extend(value.values())
        elif kind is list:
            waiting.extend(value)
        elif kind is float and not math.isfinite(value):
            return False
    return True


def headers_of(fault: A2AError) -> list[tuple[bytes, bytes]]:
    """The headers that an error asks for: how to authenticate, when to try again, which verb."""
    headers = []
    for challenge in fault.challenges:
        if isinstance(fault, AuthenticationFailed) and challenge.startswith("Bearer "):
            challenge += ', error="invalid_token"'  # RFC 6750 §3.1
        headers.append((b"www-authenticate", challenge.encode("latin-1")))
    if fault.http == 408:
        headers.append(CLOSE)  # what is still on its way would be taken for the next request
    if fault.http in (429, 503):
        headers.append((b"retry-after", b"%d" % math.ceil(fault.retry_after or 1)))
    if isinstance(fault, VerbNotAllowed):
        headers.append((b"allow", fault.metadata["allowed"].encode()))
    return headers
