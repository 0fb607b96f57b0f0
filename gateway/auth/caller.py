"""Caller: who calls, as far as the rest of a gateway needs to know it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from switchroom.protocol.methods import SCOPES, Scope

__all__ = ["ANYBODY", "ORDINARY", "Caller", "Request"]

ORDINARY: Final = SCOPES - {"admin"}
"""What a credential allows that names no scopes."""


class Request(NamedTuple):
    """What a way to authenticate may look at: the request's head, its body unread.

    headers: names in lower case.  peer: address of whoever is connected; "" if unknown.
    """

    headers: Mapping[bytes, bytes]
    peer: str


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls, as a credential proves it.

    principal: its name, which means one caller within its tenant.  tenant: whom it belongs to; ""
    is none.  scopes: what it may do; `admin` is all of it.  credential: which one it was, for the
    audit log; never a secret.
    """

    principal: str
    tenant: str = ""
    scopes: frozenset[Scope] = ORDINARY
    credential: str = ""


ANYBODY: Final = Caller("", scopes=SCOPES)
"""Everybody, on a server that asks nobody."""
