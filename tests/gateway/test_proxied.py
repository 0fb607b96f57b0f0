"""A proxy's word about a client's certificate is believed from trusted proxies, and nobody else."""

from __future__ import annotations

from ipaddress import ip_network
from typing import Any

import httpx
import pytest

from switchroom.gateway.app import create_app
from switchroom.gateway.auth.caller import ORDINARY
from switchroom.gateway.context import CallContext
from switchroom.settings import Settings
from tests.support.gateways import V1, Witness, call, card_of

SPIFFE = "spiffe://example.org/ns/shop/sa/buyer"
SUBJECT = "CN=Zoë Müller,O=Example,C=DE"


SETTINGS = Settings(
    client_cert_header="X-Client-Subject",
    trusted_proxies=(ip_network("10.0.0.0/8"), ip_network("fd00::/8")),
)


async def sent(headers: dict[str, Any], *, peer: str | None) -> tuple[int, list[CallContext]]:
    """The status of a call that comes from there with these headers, and what the handler saw."""
    handler = Witness()
    app = create_app(SETTINGS, handler=handler, card=card_of())
    # None: a server on a Unix socket knows no address.
    transport = httpx.ASGITransport(app=app, client=(peer, 1) if peer is not None else None)  # type: ignore[arg-type]
    async with httpx.AsyncClient(transport=transport, base_url="http://gateway.test") as client:
        response = await call(client, "GetTask", {"id": "t"}, headers={**V1, **headers})
    return response.status_code, handler.contexts


@pytest.mark.parametrize("peer", ["10.1.2.3", "::ffff:10.1.2.3", "fd00::1"])
@pytest.mark.parametrize("name", [SPIFFE, SUBJECT, "x" * 256])
async def test_it_names_the_caller(peer: str, name: str) -> None:
    status, contexts = await sent({"x-client-subject": f" {name} ".encode()}, peer=peer)
    assert status == 200
    (context,) = contexts
    assert (context.caller, context.tenant, context.credential) == (name, "", "mtls")
    assert context.scopes == ORDINARY


@pytest.mark.parametrize(
    "peer", ["11.0.0.1", "127.0.0.1", "::1", "", "10.0.0.1.evil", "unix", None]
)
async def test_from_anybody_else_it_means_nothing(peer: str | None) -> None:
    assert await sent({"X-Client-Subject": SPIFFE}, peer=peer) == (401, [])


async def test_what_a_proxy_says_of_whom_it_forwards_for_does_not_count() -> None:
    headers = {"X-Client-Subject": SPIFFE, "X-Forwarded-For": "10.0.0.1"}
    assert await sent(headers, peer="11.0.0.1") == (401, [])


@pytest.mark.parametrize(
    "value",
    ["", " ", "a\tb", "a\x7fb", b"a\x00b", b"a\r\nb", b"\xff\xfe", "a\u2028b".encode(), "x" * 257],
)
async def test_what_is_no_name_is_refused(value: str | bytes) -> None:
    assert await sent({"X-Client-Subject": value}, peer="10.0.0.1") == (401, [])


@pytest.mark.parametrize("header", ["X_Client_Subject", "X-Client-Subject-2", "Client-Subject"])
async def test_a_header_of_another_name_is_not_it(header: str) -> None:
    assert await sent({header: SPIFFE}, peer="10.0.0.1") == (401, [])


async def test_the_card_says_so() -> None:
    app = create_app(SETTINGS, handler=Witness(), card=card_of())
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://gateway.test") as client:
        card = (await client.get("/.well-known/agent-card.json")).json()
    scheme = card["securitySchemes"]["mtls"]
    assert "mtlsSecurityScheme" in scheme
    assert scheme["type"] == "mutualTLS"
    assert card["securityRequirements"] == [{"schemes": {"mtls": {}}}]
