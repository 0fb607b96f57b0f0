"""The certificate of a client (mutual TLS), as the proxy that has verified it tells.

Promises that the header is believed from a trusted proxy and means nothing from anybody else.
Relies on the proxy to verify the certificate, and to let no such header of a client through.
"""

from __future__ import annotations

from collections.abc import Mapping

from switchroom.gateway.address import is_among
from switchroom.gateway.auth.caller import Caller, Request
from switchroom.gateway.auth.gate import Way
from switchroom.protocol.errors import AuthenticationFailed
from switchroom.protocol.model import Json
from switchroom.settings import Settings

__all__ = ["ClientCertificate"]


class ClientCertificate(Way):
    """Believes the subject, or SPIFFE id, in the header that the settings name."""

    def __init__(self, settings: Settings) -> None:
        assert settings.client_cert_header is not None
        self._header = settings.client_cert_header.lower().encode()
        self._trusted = settings.trusted_proxies

    @property
    def schemes(self) -> Mapping[str, Json]:
        """Mutual TLS."""
        return {"mtls": {"mtlsSecurityScheme": {"description": "A client certificate."}}}

    async def caller(self, request: Request) -> Caller | None:
        """Whom the header names; None where there is none, or where it is not to be believed."""
        said = request.headers.get(self._header, b"").strip()
        if not said or not is_among(request.peer, self._trusted):
            return None
        try:
            return Caller(said.decode(), credential="mtls")
        except UnicodeDecodeError:
            raise AuthenticationFailed() from None
