"""Callers who are believed what they say: tests of what a caller may do need no credentials."""

from __future__ import annotations

from collections.abc import Mapping

from switchroom.gateway.auth.caller import ORDINARY, Caller, Request
from switchroom.gateway.auth.gate import Way
from switchroom.protocol.model import Json

__all__ = ["Believed", "says"]


class Believed(Way):
    """The header `X-Caller: tenant/principal`; the tenant may be empty."""

    @property
    def schemes(self) -> Mapping[str, Json]:
        return {"believed": {"apiKeySecurityScheme": {"location": "header", "name": "X-Caller"}}}

    async def caller(self, request: Request) -> Caller | None:
        said = request.headers.get(b"x-caller", b"").decode()
        tenant, _, principal = said.partition("/")
        return Caller(principal, tenant, ORDINARY, "believed") if principal else None


def says(caller: str) -> dict[str, str]:
    """The header of this caller, `tenant/principal`."""
    return {"X-Caller": caller}
