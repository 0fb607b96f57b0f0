"""Where clients reach this server: what a card, and a signature, say of its address.

Promises the configured URL if there is one; else what a trusted proxy says of the request; else
where the request came to, which is the client's own word. A header of anybody else changes nothing.
Relies on the server for the peer's address: it must not rewrite that by such headers itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from ipaddress import ip_address
from urllib.parse import urlsplit, urlunsplit

from starlette.requests import HTTPConnection
from starlette.types import Scope

from switchroom.settings import Network, Settings

__all__ = ["Address", "is_among"]

_X_FORWARDED = {
    b"x-forwarded-proto": "proto",
    b"x-forwarded-host": "host",
    b"x-forwarded-prefix": "prefix",
}
_FITS = {
    "proto": re.compile(r"https?", re.IGNORECASE),
    "host": re.compile(r"([A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\])(:\d{1,5})?"),
    "prefix": re.compile(r"(/[A-Za-z0-9._~!$&'()*+;=:@%-]+)*/?"),
}
_ELEMENT = re.compile(r'(?:[^,"]|"(?:[^"\\]|\\.)*")+')
_PAIR = re.compile(r'(\w+)=(?:"((?:[^"\\]|\\.)*)"|([^;,\s"]+))')


class Address:
    """The address of a deployment."""

    def __init__(self, settings: Settings) -> None:
        self._public_url = settings.public_url
        self._trusted = settings.trusted_proxies

    @property
    def vary(self) -> str | None:
        """The headers that answers with an address depend on, for `Vary`; None if on none."""
        if self._public_url or not self._trusted:
            return None
        return ", ".join([*(name.decode().title() for name in _X_FORWARDED), "Forwarded"])

    def of(self, scope: Scope) -> str:
        """The base URL that the client of this request has reached, without a slash at its end."""
        if self._public_url:
            return self._public_url.rstrip("/")
        base = str(HTTPConnection(scope).base_url).rstrip("/")
        peer = scope.get("client")
        if not (peer and is_among(peer[0], self._trusted)):
            return base
        told = _forwarded(scope["headers"])
        scheme, host, path, _, _ = urlsplit(base)
        scheme, host = told.get("proto", scheme).lower(), told.get("host", host)
        path = told.get("prefix", "").rstrip("/") + path
        return urlunsplit((scheme, host, path, "", ""))


def is_among(peer: str, networks: Iterable[Network]) -> bool:
    """Whether the address of whoever is connected lies in one of the networks."""
    try:
        address = ip_address(peer)
    except ValueError:  # a server on a Unix socket may name that, or nothing
        return False
    mapped = getattr(address, "ipv4_mapped", None)  # how a socket for both families has it
    return any((mapped or address) in network for network in networks)


def _forwarded(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """What the proxy in front of us says: proto, host and prefix of the URL that it was asked for.

    Of several values the last one is its own. Where there are X-Forwarded-* headers, `Forwarded` is
    not read: a proxy that sets the ones may pass on the other.
    """
    listed: dict[bytes, str] = {}
    for name, value in headers:
        if name in _X_FORWARDED or name == b"forwarded":
            before = f"{listed[name]}," if name in listed else ""
            listed[name] = before + value.decode("latin-1")
    told = {
        said: listed[name].rpartition(",")[2]
        for name, said in _X_FORWARDED.items()
        if name in listed
    }
    if not told and (elements := _ELEMENT.findall(listed.get(b"forwarded", ""))):
        pairs = _PAIR.findall(elements[-1])
        told = {
            name.lower(): re.sub(r"\\(.)", r"\1", quoted) or bare for name, quoted, bare in pairs
        }
    stripped = {name: value.strip() for name, value in told.items() if name in _FITS}
    return {name: value for name, value in stripped.items() if _FITS[name].fullmatch(value)}
