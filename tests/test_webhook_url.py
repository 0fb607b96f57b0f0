"""Where webhooks may lead: every form of an address that is not public is refused, however it is
written and whenever a name leads there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from switchroom.settings import Settings
from switchroom.webhook_url import WebhookRefused, WebhookRules

PUBLIC = "93.184.216.34"


def rules(*found: str, **settings: object) -> WebhookRules:
    """Those of the settings, where each name has these addresses."""

    async def resolve(host: str) -> Sequence[str]:
        if not found:
            raise OSError("no such name")
        return found

    made = WebhookRules.of(Settings.model_validate(settings))
    return WebhookRules(made.http, made.ports, made.hosts, made.networks, resolve)


async def judged(url: str, *found: str, **settings: object) -> None:
    """Registered, and connected to."""
    asked = rules(*(found or (PUBLIC,)), **settings)
    target = asked.target(url)
    await asked.check(target)
    await asked.addresses(target.host)


@pytest.mark.parametrize(
    "url",
    [
        "https://example.com/hook",
        "https://example.com:443/hook?token=a%20b",
        "https://EXAMPLE.com./",
        "https://bücher.example.com/",
        f"https://{PUBLIC}/",
        "https://[2606:2800:220:1:248:1893:25c8:1946]/hook",
        "https://a-b_c.example.com",
    ],
)
async def test_public_ones_may_be_registered(url: str) -> None:
    await judged(url)


INSIDE = [
    "0.0.0.0",
    "0.1.2.3",
    "10.0.0.1",
    "100.64.0.1",
    "127.0.0.1",
    "127.9.9.9",
    "169.254.169.254",
    "172.16.0.1",
    "172.31.255.255",
    "192.0.0.8",
    "192.0.2.1",
    "192.168.1.1",
    "198.18.0.1",
    "198.51.100.1",
    "203.0.113.1",
    "224.0.0.1",
    "239.255.255.250",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "::ffff:a9fe:a9fe",
    "::127.0.0.1",
    "::ffff:0:10.0.0.1",
    "64:ff9b::10.0.0.1",
    "64:ff9b::7f00:1",
    "64:ff9b:1::1",
    "100::1",
    "2001::1",
    "2001:db8::1",
    "2002:7f00:1::",
    "2002:a00:1::1",
    "3fff::1",
    "fc00::1",
    "fd00:ec2::254",
    "fe80::1",
    "fec0::1",
    "ff02::1",
]


@pytest.mark.parametrize("address", INSIDE)
async def test_no_address_inside_is_reached(address: str) -> None:
    host = f"[{address}]" if ":" in address else address
    with pytest.raises(WebhookRefused, match="its address is not one"):
        rules().target(f"https://{host}/")
    with pytest.raises(WebhookRefused, match="leads to an address"):
        await rules(address).addresses("example.com")
    # One good one does not help.
    with pytest.raises(WebhookRefused, match="leads to an address"):
        await rules(PUBLIC, address).addresses("example.com")


@pytest.mark.parametrize(
    "host",
    [
        "127.1",
        "2130706433",
        "0x7f000001",
        "0x7f.0.0.1",
        "0177.0.0.1",
        "127.0.0.1.",
        "127.0.0.01",
        "１２７.0.0.1",
        "127。0。0。1",
        "⑫7.0.0.1",
        "localhost",
        "LOCALHOST.",
        "a.localhost",
        "redis",
        "printer.local",
        "metadata.google.internal",
        "[fe80::1%25eth0]",
        "[::ffff:127.0.0.1]",
        "[127.0.0.1]",
        "[::1",
        "127.0.0.1%2f",
        "%31%32%37.0.0.1",
        "exa mple.com",
        "-a.example.com",
        "a..example.com",
        f"{'a' * 64}.example.com",
        f"{'a.' * 130}com",
    ],
)
async def test_nor_by_any_other_way_to_write_it(host: str) -> None:
    with pytest.raises(WebhookRefused):
        await judged(f"https://{host}/")


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://example.com/", "scheme must be https"),
        ("ftp://example.com/", "absolute http or https"),
        ("file:///etc/passwd", "absolute http or https"),
        ("example.com/hook", "absolute http or https"),
        ("https:example.com", "absolute http or https"),
        ("https:///hook", "absolute http or https"),
        ("", "absolute http or https"),
        ("https://user@example.com/", "user or a password"),
        ("https://user:pass@example.com/", "user or a password"),
        ("https://example.com@127.0.0.1/", "user or a password"),
        ("https://example.com/#here", "fragment"),
        ("https://example.com:8080/", "port must be one of 80, 443"),
        ("https://example.com:0/", "port"),
        ("https://example.com:99999/", "not a URL"),
        ("https://example.com:x/", "not a URL"),
        ("https://example.com\\@127.0.0.1/", "backslashes"),
        ("https://example.com/\r\nX: y", "control characters"),
        ("https://example.com/\x00", "control characters"),
        ("https://example.com/\x7f", "control characters"),
        (" https://example.com/", "spaces"),
        (f"https://example.com/{'a' * 2048}", "longer than 2048"),
    ],
)
async def test_what_is_wrong_with_a_url_is_said(url: str, why: str) -> None:
    with pytest.raises(WebhookRefused, match=why):
        await judged(url)


async def test_a_refusal_does_not_say_where_a_name_leads() -> None:
    with pytest.raises(WebhookRefused) as caught:
        await judged("https://inside.example.com/", "10.1.2.3")
    assert "10.1.2.3" not in str(caught.value)


async def test_a_name_that_cannot_be_resolved_is_refused() -> None:
    with pytest.raises(WebhookRefused, match="cannot be resolved"):
        await rules().addresses("example.com")


async def test_so_is_one_whose_server_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    async def hang(host: str) -> Sequence[str]:
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr("switchroom.webhook_url._PATIENCE", 0.01)
    with pytest.raises(WebhookRefused, match="cannot be resolved"):
        await WebhookRules(resolve=hang).addresses("example.com")


async def test_what_is_allowed_may_be_reached() -> None:
    allow = "10.0.0.0/8,::1,hooks.corp,*.intranet"
    for url in ("https://10.1.2.3/", "https://[::1]/", "https://[::ffff:10.0.0.1]/"):
        await judged(url, push_allow=allow)
    for url in ("https://hooks.corp/", "https://a.b.intranet/"):
        await judged(url, "192.168.0.1", push_allow=allow)
    await judged("https://example.com/", "10.9.9.9", push_allow=allow)
    for url in ("https://127.0.0.1/", "https://intranet/", "https://xhooks.corp/"):
        with pytest.raises(WebhookRefused):
            await judged(url, "192.168.0.1", push_allow=allow)


async def test_plain_http_and_other_ports_are_settings() -> None:
    await judged("http://example.com/", push_http=True)
    await judged("https://example.com:8443/", push_ports="8443")
    await judged("https://example.com:1/", push_ports="any")
    with pytest.raises(WebhookRefused, match="one of 8443"):
        await judged("https://example.com/", push_ports="8443")
