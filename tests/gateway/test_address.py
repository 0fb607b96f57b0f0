"""A card names the address that its client has reached; whom to believe about it is a setting."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from starlette.types import Scope

from switchroom.gateway.address import Address
from switchroom.settings import Settings

TRUSTING = Settings(trusted_proxies="10.0.0.0/8,::1")
PROXY = ("10.1.2.3", 4711)


def scope_of(
    *headers: tuple[str, str], client: tuple[str, int] | None = PROXY, root: str = ""
) -> Scope:
    given = [("Host", "gateway:8000"), *headers]
    return {
        "type": "http",
        "scheme": "http",
        "path": "/.well-known/agent-card.json",
        "query_string": b"",
        "root_path": root,
        "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in given],
        "client": client,
        "server": ("10.9.9.9", 8000),
    }


def said(*headers: tuple[str, str], root: str = "") -> str:
    return Address(TRUSTING).of(scope_of(*headers, root=root))


def x(**parts: str) -> Sequence[tuple[str, str]]:
    return [(f"X-Forwarded-{name.title()}", value) for name, value in parts.items()]


def test_the_public_url_is_the_last_word() -> None:
    settings = Settings(public_url="https://agents.example.com/echo/", trusted_proxies="10.0.0.0/8")
    address = Address(settings)
    assert address.of(scope_of(*x(host="other"))) == "https://agents.example.com/echo"
    assert address.vary is None


def test_without_it_the_request_says_where_it_came_to() -> None:
    address = Address(Settings())
    assert address.of(scope_of()) == "http://gateway:8000"
    assert address.of(scope_of(root="/mounted")) == "http://gateway:8000/mounted"
    assert address.vary is None


@pytest.mark.parametrize(
    "client", [None, ("11.0.0.1", 1), ("::2", 1), ("", 0), ("/run/sock", 0), ("localhost", 1)]
)
def test_forwarded_headers_of_anybody_else_change_nothing(client: tuple[str, int] | None) -> None:
    headers = [*x(proto="https", host="evil.test", prefix="/evil"), ("Forwarded", "host=evil.test")]
    assert Address(TRUSTING).of(scope_of(*headers, client=client)) == "http://gateway:8000"
    assert Address(Settings()).of(scope_of(*headers)) == "http://gateway:8000"


@pytest.mark.parametrize("client", ["10.255.0.1", "::1", "::ffff:10.0.0.1"])
def test_a_trusted_proxy_is_known_by_its_address(client: str) -> None:
    scope = scope_of(*x(proto="https"), client=(client, 1))
    assert Address(TRUSTING).of(scope) == "https://gateway:8000"


@pytest.mark.parametrize(
    ("headers", "url"),
    [
        (x(proto="https", host="agents.example.com"), "https://agents.example.com"),
        (x(proto="HTTPS", host="agents.example.com:8443"), "https://agents.example.com:8443"),
        (x(host="[2001:db8::1]:80"), "http://[2001:db8::1]:80"),
        (x(proto="https", host="a.test", prefix="/team/echo/"), "https://a.test/team/echo"),
        (x(prefix="/"), "http://gateway:8000"),
        # What the client had sent, and what the proxy has put after it.
        (x(proto="http, https", host="evil.test, a.test"), "https://a.test"),
        ([*x(host="evil.test"), *x(host="a.test")], "http://a.test"),
        ([("Forwarded", "for=1.2.3.4;proto=https;host=a.test")], "https://a.test"),
        ([("Forwarded", 'for="[::1]:5";Host="a.test:81"; proto=https')], "https://a.test:81"),
        ([("Forwarded", 'host="evil,\\"x";proto=http, host=a.test;proto=https')], "https://a.test"),
        ([("Forwarded", "host=evil.test"), ("Forwarded", "host=a.test")], "http://a.test"),
        # A proxy that sets the one kind may pass on the other.
        ([("Forwarded", "host=evil.test;proto=http"), *x(proto="https")], "https://gateway:8000"),
    ],
)
def test_what_a_trusted_proxy_says_is_where_its_client_went(
    headers: Sequence[tuple[str, str]], url: str
) -> None:
    assert said(*headers) == url


def test_a_prefix_stands_before_where_the_application_is_mounted() -> None:
    assert said(*x(prefix="/team"), root="/mounted") == "http://gateway:8000/team/mounted"


@pytest.mark.parametrize(
    "headers",
    [
        x(proto="ftp"),
        x(proto="https://"),
        x(proto=""),
        x(host="evil/test"),
        x(host="user@evil"),
        x(host="evil test"),
        x(host="evil:port"),
        x(host='"evil"'),
        x(host="\xe9vil"),
        x(prefix="//evil.test"),
        x(prefix="evil"),
        x(prefix="/a?b"),
        x(prefix="/a#b"),
        x(prefix="/a b"),
        [("Forwarded", "host")],
        [("Forwarded", '"')],
        [("Forwarded", "")],
        [("Forwarded", 'host="a/b"')],
    ],
)
def test_what_is_no_part_of_a_url_is_left_out(headers: Sequence[tuple[str, str]]) -> None:
    assert said(*headers) == "http://gateway:8000"


def test_answers_then_vary_by_those_headers() -> None:
    assert Address(TRUSTING).vary == (
        "X-Forwarded-Proto, X-Forwarded-Host, X-Forwarded-Prefix, Forwarded"
    )
