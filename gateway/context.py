"""CallContext: what a request says about itself outside its params, and the version it speaks.

Promises that whatever headers hold becomes plain, bounded values or one A2A error; relies on the
server handing over header names in lower case, as ASGI demands.
"""

from __future__ import annotations

import itertools
import re
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from urllib.parse import parse_qsl

from switchroom.gateway.auth.caller import ANYBODY, Caller
from switchroom.protocol.errors import PermissionDenied, VersionNotSupported
from switchroom.protocol.methods import SCOPES, Scope
from switchroom.store.keys import owner_key

__all__ = [
    "EXTENSION_HEADERS",
    "SUPPORTED_VERSIONS",
    "UNSAID",
    "CallContext",
    "Notes",
    "active_extensions",
    "negotiate",
    "read_context",
    "request_id",
]

SUPPORTED_VERSIONS = ("0.3", "1.0")
"""The versions of the protocol that a gateway can speak, as Major.Minor."""

UNSAID = "0.3"
"""What a request speaks that names no version (§3.6.2)."""

EXTENSION_HEADERS = {"1.0": b"a2a-extensions", "0.3": b"x-a2a-extensions"}
"""How each version calls the header that names extensions; in a request either will do."""

_VERSION = re.compile(r"(\d{1,4})\.(\d{1,4})(?:\.\d+)*", re.ASCII)
_REQUEST_ID = re.compile(rb"[\w.:/+=-]{1,128}", re.ASCII)

# A random start and a counter: unique among gateways, without a system call per request.
_PROCESS = secrets.token_hex(8)
_COUNTER = itertools.count(1)


@dataclass(slots=True)
class Notes:
    """What becomes known of a call while it is answered.

    task_id: the task that it is about.  headers: for its answer.
    """

    task_id: str = ""
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class CallContext:
    """One call, as a request handler sees it besides method and params."""

    version: str
    """The negotiated protocol version, Major.Minor."""
    tenant: str = ""
    """The tenant of the caller's credential. On a server without authentication the one that the
    request names, which is routing only and proves nothing (§4.11).
    """
    caller: str = ""
    """Who calls; empty for everybody on a server without authentication."""
    scopes: frozenset[Scope] = SCOPES
    """What the caller may do."""
    credential: str = ""
    """How the caller proved it, for a log; never a secret."""
    extensions: tuple[str, ...] = ()
    """URIs of the active extensions: those that the client asks for and the card declares, each
    once, in the client's order (§4.6).
    """
    last_event_id: str | None = None
    """The position after which the client wants its stream to go on."""
    idempotency_key: str | None = None
    request_id: str = ""
    """The client's `X-Request-ID`, or one we made; also in the answer and in the log."""
    base_url: str = ""
    """Where the client reaches this server, without a slash at its end; only in a call for the
    extended card, which says so.
    """
    trace: str | None = None
    """The W3C `traceparent`, as it came."""
    notes: Notes = field(default_factory=Notes, compare=False)
    """What a handler has to say besides its answer."""

    @property
    def owner(self) -> str:
        """The part of a store key that stands for this caller of this tenant."""
        return owner_key(self.tenant, self.caller)


def request_id(headers: Mapping[bytes, bytes]) -> str:
    """The request's own id if it is one that may stand in a header and a log line, else a new."""
    given = headers.get(b"x-request-id")
    if given is not None and _REQUEST_ID.fullmatch(given):
        return given.decode("ascii")
    return f"{_PROCESS}-{next(_COUNTER):x}"


def negotiate(
    headers: Mapping[bytes, bytes],
    query: bytes,
    *,
    spoken: tuple[str, ...],
    unsaid: str = UNSAID,
) -> str:
    """The version to speak: header, else query parameter, else 0.3 (§3.6.2).

    spoken: the versions there are, Major.Minor, lowest first.  unsaid: what a request speaks that
    names none. Raises VersionNotSupported, which names what to send.
    """
    asked = headers.get(b"a2a-version", b"").decode("latin-1").strip()
    if not asked and query:
        pairs = parse_qsl(query.decode("latin-1"))
        asked = next((text for name, text in pairs if name.lower() == "a2a-version"), "").strip()
    return _among(spoken, asked or unsaid, bool(asked))


@lru_cache(maxsize=64)
def _among(spoken: tuple[str, ...], asked: str, said: bool) -> str:
    parts = _VERSION.fullmatch(asked)
    if parts and (version := f"{int(parts[1])}.{int(parts[2])}") in spoken:
        return version
    asked = asked[:32]
    fault = (
        f"A2A version {asked} is not supported here"
        if said
        else f"Without A2A-Version a request speaks A2A {asked}, which is not supported here"
    )
    raise VersionNotSupported(
        f'{fault}; send the header "A2A-Version: {spoken[-1]}".',
        metadata={"requested": asked, "supportedVersions": ",".join(spoken)},
    )


def active_extensions(
    headers: Mapping[bytes, bytes],
    raw_headers: Iterable[tuple[bytes, bytes]],
    *,
    declared: frozenset[str],
) -> tuple[str, ...]:
    """The extensions that the client asks for, by either name of the header, and the card declares.

    `raw_headers` are the same headers with their repetitions. Others are ignored (§4.6.3).
    """
    names = EXTENSION_HEADERS.values()
    if declared and any(name in headers for name in names):
        listed = b",".join(value for name, value in raw_headers if name in names)
        uris = (uri.strip() for uri in listed.decode("latin-1").split(","))
        return tuple(dict.fromkeys(uri for uri in uris if uri in declared))
    return ()


def read_context(
    headers: Mapping[bytes, bytes],
    *,
    version: str,
    caller: Caller = ANYBODY,
    tenant: str,
    request_id: str,
    extensions: tuple[str, ...] = (),
    base_url: str = "",
    notes: Notes | None = None,
) -> CallContext:
    """The context of one call; what is no header has been found out before.

    tenant: the one that the request names. Raises PermissionDenied where it is not that of the
    credential.
    """
    if caller is not ANYBODY:
        if tenant and tenant != caller.tenant:
            raise PermissionDenied("The request names a tenant that is not its credential's")
        tenant = caller.tenant
    return CallContext(
        version=version,
        tenant=tenant,
        caller=caller.principal,
        scopes=caller.scopes,
        credential=caller.credential,
        extensions=extensions,
        last_event_id=_text(headers.get(b"last-event-id")),
        idempotency_key=_text(headers.get(b"idempotency-key")),
        request_id=request_id,
        base_url=base_url,
        trace=_text(headers.get(b"traceparent")),
        notes=notes or Notes(),
    )


def _text(value: bytes | None) -> str | None:
    return (value.decode("latin-1").strip() or None) if value else None
