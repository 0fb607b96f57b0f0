"""Redis URLs: which forms there are, and what one that names Sentinels says.

Promises one sentence's end for what is wrong with a URL, without anything secret in it; relies on
nothing of ours.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

__all__ = ["SentinelUrl", "WrongUrl", "checked", "is_host"]

_SENTINEL_PORT = 26379
_SENTINEL = re.compile(
    r"(?i:(?P<scheme>rediss?)\+sentinel)://(?P<user>[^/?#]*@)?(?P<places>[^/?#]*)"
    r"(?:/(?P<master>[^/?#]*))?(?P<db>[^?#]*)(?P<options>\?.*)?",
)
_PLACE = re.compile(r"(?P<host>\[[^\]]*\]|[^:\[\]]*)(?::(?P<port>\d{1,5}))?")
# urlsplit drops some of them unasked.
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_SENTINEL_FORM = "redis+sentinel://HOST:PORT,HOST:PORT/MASTER"
_FORMS = (
    f"a URL such as redis://127.0.0.1:6379, rediss://…, {_SENTINEL_FORM} or unix:///path/to/socket"
)


class WrongUrl(ValueError):
    """It is no URL of a Redis; the text says what it should be."""


@dataclass(frozen=True)
class SentinelUrl:
    """`redis+sentinel://[user:password@]host[:port][,…]/MASTER[/db][?options]`, or `rediss+…`.

    places: host and port of each Sentinel.  master: the name they know the master by.  server: the
    URL of a single Redis that says everything else that this one does.
    """

    places: tuple[tuple[str, int], ...]
    master: str
    server: str

    @classmethod
    def parse(cls, url: str) -> SentinelUrl | None:
        """None if the URL names no Sentinels. Raises WrongUrl."""
        found = _SENTINEL.fullmatch(url)
        if found is None:
            return None
        places = tuple(map(_place, found["places"].split(",")))
        if not re.fullmatch(r"[\w.-]+", found["master"] or "", re.ASCII):
            raise WrongUrl(
                f"{_SENTINEL_FORM}, with the name that the Sentinels know the master by "
                "(A-Z a-z 0-9 . _ -) after their addresses"
            )
        if not re.fullmatch(r"(/\d*)?", found["db"]):
            raise WrongUrl(
                f"{_SENTINEL_FORM}/DB, with the number of a database, or nothing, after the name "
                "of the master"
            )
        server = f"{found['scheme'].lower()}://{found['user'] or ''}master{found['db']}"
        return cls(places, found["master"], server + (found["options"] or ""))


def _place(text: str) -> tuple[str, int]:
    found = _PLACE.fullmatch(text)
    host = found["host"].strip("[]") if found else ""
    port = int(found["port"] or _SENTINEL_PORT) if found else 0
    if not is_host(host) or not 0 < port < 65536:
        raise WrongUrl(f"{_SENTINEL_FORM}, with the addresses of the Sentinels between commas")
    return host, port


def checked(url: str) -> str:
    """The URL, if its form is one of those we know. Raises WrongUrl."""
    if _CONTROL.search(url):
        raise WrongUrl(_FORMS)
    if SentinelUrl.parse(url):
        return url
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        parts = urlsplit("")
    # redis-py takes database 0 for a path that is no number, and 6379 for port 0: others than were
    # meant.
    match parts.scheme:
        case "redis" | "rediss":
            fits = is_host(parts.hostname) and re.fullmatch(r"/?\d*/?", parts.path) is not None
            fits = fits and parts.port != 0
        case "unix":
            fits = bool(parts.path)
        case _:
            fits = parts.scheme == "fake"
    if not fits:
        raise WrongUrl(_FORMS)
    return url


def is_host(name: str | None) -> bool:
    """Whether it looks like a host's name or address; the only colons are those of IPv6."""
    return name is not None and re.fullmatch(r"[\w.-]+|[0-9A-Fa-f:.]+(%\w+)?", name) is not None
