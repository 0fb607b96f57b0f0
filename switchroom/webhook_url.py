"""Where webhooks may lead: which URLs may be registered, and which addresses may be connected to.

Promises that no webhook reaches an address inside the network: the URL is judged when it is
registered, and each address that its name resolves to is, both then and when a connection is made,
which goes to the very address that was judged (`worker/webhook_client.py`). What a server of names
answers in between does not matter. Relies on the tables of the standard library's `ipaddress`, and
adds what they leave out. Sources: §13.2 of the specification; IANA's special-purpose registries.
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final, TypeAlias
from urllib.parse import urlsplit

from switchroom.settings import Network, Settings

__all__ = ["Address", "Resolve", "Target", "WebhookRefused", "WebhookRules", "lookup"]

Address: TypeAlias = IPv4Address | IPv6Address
Resolve: TypeAlias = Callable[[str], Awaitable[Sequence[str]]]
"""Gives all addresses of a host name, as text. Raises OSError."""

_LONGEST: Final = 2048
_PATIENCE: Final = 5.0  # seconds that a name may take to be resolved
_LABEL: Final = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)")
_IPV4_EMBEDDED: Final = tuple(
    (IPv6Network(network), shift)
    for network, shift in (
        ("::ffff:0:0/96", 0),  # mapped
        ("::/96", 0),  # compatible
        ("::ffff:0:0:0/96", 0),  # translated
        ("64:ff9b::/96", 0),  # NAT64
        ("2002::/16", 80),  # 6to4
    )
)
_NEVER: Final = tuple(
    ip_network(network)
    for network in (
        "192.0.0.0/24",  # protocol assignments
        "192.88.99.0/24",  # relays of 6to4
        "64:ff9b:1::/48",  # NAT64 of a site's own, which leads wherever the site says
        "2001::/32",  # Teredo: an IPv4 address behind a relay
        "fec0::/10",  # site-local
        "3fff::/20",  # documentation
        "5f00::/16",  # segment routing
    )
)


class WebhookRefused(Exception):
    """A URL may not be a webhook's; the text says why, in words that follow "must not be used: ".

    It names no address: who registers a name shall not learn what it resolves to in here.
    """


@dataclass(frozen=True, slots=True)
class Target:
    """What a webhook's URL names.  host: lower-case ASCII, or an address without brackets."""

    scheme: str
    host: str
    port: int

    @property
    def address(self) -> Address | None:
        try:
            return ip_address(self.host)
        except ValueError:
            return None


async def lookup(host: str) -> Sequence[str]:
    """All addresses of a host, by the system's resolver."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return [str(info[4][0]) for info in found]


@dataclass(frozen=True)
class WebhookRules:
    """What a deployment lets webhooks be.

    http: whether plain HTTP will do.  ports: those that may be used; none stands for any.  hosts:
    names that may lead anywhere, `*.` before one for all below it.  networks: addresses that may be
    reached though they are private.  resolve: how names are.
    """

    http: bool = False
    ports: frozenset[int] = frozenset({80, 443})
    hosts: tuple[str, ...] = ()
    networks: tuple[Network, ...] = ()
    resolve: Resolve = lookup

    @classmethod
    def of(cls, settings: Settings) -> WebhookRules:
        return cls(
            http=settings.push_http,
            ports=frozenset(settings.push_ports),
            hosts=tuple(each for each in settings.push_allow if isinstance(each, str)),
            networks=tuple(each for each in settings.push_allow if not isinstance(each, str)),
        )

    def target(self, url: str) -> Target:
        """What the URL names, if that may be told without a lookup to be allowed.

        Raises WebhookRefused.
        """
        target = _parsed(url)
        if target.scheme != "https" and not (self.http and target.scheme == "http"):
            raise WebhookRefused("its scheme must be https" + (" or http" if self.http else ""))
        if self.ports and target.port not in self.ports:
            allowed = ", ".join(map(str, sorted(self.ports)))
            raise WebhookRefused(f"its port must be one of {allowed}")
        address = target.address
        if address is not None and not self.may_reach(address):
            raise WebhookRefused("its address is not one that webhooks may reach")
        if address is None and not self._trusts(target.host) and _is_local(target.host):
            raise WebhookRefused("its host is not one that webhooks may reach")
        return target

    async def check(self, target: Target) -> None:
        """Whether what the URL names leads where webhooks may go. Raises WebhookRefused."""
        if target.address is None and not self._trusts(target.host):
            await self.addresses(target.host)

    async def addresses(self, host: str) -> list[Address]:
        """The addresses of a host, every one of which may be reached. Raises WebhookRefused."""
        try:
            found: Sequence[str] = [str(ip_address(host))]
        except ValueError:
            try:
                async with asyncio.timeout(_PATIENCE):
                    found = await self.resolve(host)
            except (OSError, UnicodeError, TimeoutError):
                raise WebhookRefused("its host cannot be resolved") from None
        addresses = list(dict.fromkeys(map(ip_address, found)))
        if not addresses:
            raise WebhookRefused("its host cannot be resolved")
        # One good address among bad ones is how a name is made to lead inside.
        if not self._trusts(host) and not all(map(self.may_reach, addresses)):
            raise WebhookRefused("its host leads to an address that webhooks may not reach")
        return addresses

    def may_reach(self, address: Address) -> bool:
        """Whether webhooks may go to this address: a public one, or one that is allowed."""
        if any(address in network for network in self.networks):
            return True
        if any(address in network for network in _NEVER):
            return False
        if isinstance(address, IPv6Address):
            if address.scope_id is not None:
                return False
            inner = _embedded(address)
            if inner is not None:
                return self.may_reach(inner)
        return address.is_global and not address.is_multicast and not address.is_reserved

    def _trusts(self, host: str) -> bool:
        return any(
            host.endswith(name[1:]) if name.startswith("*.") else host == name
            for name in self.hosts
        )


def _embedded(address: IPv6Address) -> IPv4Address | None:
    """The IPv4 address that an IPv6 address stands for."""
    for network, shift in _IPV4_EMBEDDED:
        if address in network:
            return IPv4Address(int(address) >> shift & 0xFFFFFFFF)
    return None


def _is_local(host: str) -> bool:
    labels = host.split(".")
    return labels[-1] in ("localhost", "local", "internal", "localdomain") or len(labels) == 1


def _parsed(url: str) -> Target:
    """Raises WebhookRefused for whatever two readers could read differently."""
    if len(url) > _LONGEST:
        raise WebhookRefused(f"it is longer than {_LONGEST} characters")
    if any(not "!" <= letter for letter in url) or "\x7f" in url or "\\" in url:
        raise WebhookRefused("it holds spaces, backslashes or control characters")
    try:
        parts = urlsplit(url)
        port, raw = parts.port, parts.hostname
    except ValueError:
        raise WebhookRefused("it is not a URL") from None
    if (
        parts.scheme not in ("https", "http")
        or not raw
        or not url.lower().startswith(f"{parts.scheme}://")
    ):
        raise WebhookRefused("it must be an absolute http or https URL")
    if "@" in parts.netloc:
        raise WebhookRefused("it holds a user or a password; use `authentication`")
    if "#" in url:
        raise WebhookRefused("it has a fragment")
    if port == 0:
        raise WebhookRefused("its port must be one of a server")
    return Target(parts.scheme, _host(raw), port or (443 if parts.scheme == "https" else 80))


def _host(raw: str) -> str:
    """The host in the one form that is judged and connected to. Raises WebhookRefused."""
    if ":" in raw:
        try:
            return str(IPv6Address(raw))
        except ValueError:
            raise WebhookRefused("its host is no address") from None
    host = raw
    if not host.isascii():
        try:
            import idna

            # As browsers read it: what looks like digits and dots becomes digits and dots.
            host = idna.encode(host, uts46=True).decode("ascii")
        except (idna.IDNAError, UnicodeError):
            raise WebhookRefused("its host is no name") from None
    host = host.lower().removesuffix(".")
    labels = host.split(".")
    # Whatever ends like a number is an address to some reader: octal, hex, short or decimal.
    if re.fullmatch(r"[0-9]+|0x[0-9a-f]*", labels[-1]):
        try:
            return str(IPv4Address(host))
        except ValueError:
            raise WebhookRefused("its host is no address in four decimal numbers") from None
    if len(host) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        raise WebhookRefused("its host is no name")
    return host
