"""How 0.3 tells an error over REST, of which its specification says nothing."""

from __future__ import annotations

from switchroom.protocol.errors import A2AError
from switchroom.protocol.model import Json

__all__ = ["described"]

_NAMES = {
    "ParseError": "JSONParseError",
    "ExtendedAgentCardNotConfigured": "AuthenticatedExtendedCardNotConfiguredError",
}


def described(fault: A2AError) -> Json:
    """The body of an error: one object in which each client finds what it looks for.

    The JavaScript SDK goes by `code`, as of JSON-RPC; the Python one by `type`; the conformance
    kit by `error`.
    """
    name = type(fault).__name__
    name = _NAMES.get(name, name if name.endswith("Error") else f"{name}Error")
    return {
        "code": fault.code,
        "type": name,
        "error": name,
        "message": str(fault),
        "data": fault.data(),
    }
