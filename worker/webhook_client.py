"""The HTTP client of webhooks: it connects to addresses that were judged, and to nothing else.

Promises no redirect followed, no proxy asked, nothing read from the environment, no cookie kept;
and for each new connection a fresh look at the host's addresses, every one of which must be
allowed. Host header, SNI and the certificate's name stay those of the URL.
"""

from __future__ import annotations

import http.cookiejar
import ssl
from collections.abc import Iterable

import httpcore2
import httpx2

from switchroom.webhook_url import WebhookRules

__all__ = ["webhook_client"]


class _Pinned(httpcore2.AnyIOBackend):
    """Connects to judged addresses of a host, one after the other."""

    def __init__(self, rules: WebhookRules) -> None:
        super().__init__()
        self._rules = rules

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109  # httpcore's own
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        failed: Exception | None = None
        for address in await self._rules.addresses(host):
            try:
                return await super().connect_tcp(
                    str(address),
                    port,
                    timeout=timeout,
                    local_address=local_address,
                    socket_options=socket_options,
                )
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                failed = error
        assert failed is not None  # there is an address
        raise failed


class _NoCookies(http.cookiejar.DefaultCookiePolicy):
    def set_ok(self, cookie: object, request: object) -> bool:
        return False


class _Transport(httpx2.AsyncHTTPTransport):
    def __init__(self, rules: WebhookRules, *, connections: int) -> None:
        context = ssl.create_default_context()
        super().__init__(verify=context, trust_env=False)
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=context,
            max_connections=connections,
            max_keepalive_connections=connections,
            keepalive_expiry=30.0,
            network_backend=_Pinned(rules),
        )


def webhook_client(
    rules: WebhookRules, *, connect: float, total: float, connections: int
) -> httpx2.AsyncClient:
    """connect, total: seconds for a connection, and for anything else.

    Raises WebhookRefused from a request whose host leads where it may not.
    """
    return httpx2.AsyncClient(
        transport=_Transport(rules, connections=connections),
        timeout=httpx2.Timeout(total, connect=connect),
        follow_redirects=False,
        trust_env=False,
        cookies=http.cookiejar.CookieJar(policy=_NoCookies()),
        headers={"Accept-Encoding": "identity", "User-Agent": "switchroom"},
    )
