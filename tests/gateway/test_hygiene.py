"""What every answer gets, which hosts and origins are served, and how long a client may take."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from switchroom.gateway.app import create_app
from switchroom.gateway.context import CallContext
from switchroom.settings import Settings, SettingsError
from tests.support.gateways import V1, app_of, card_of, client_of, request, serving


class Silent:
    async def dispatch(self, method: str, params: Any, context: CallContext) -> Any:
        return {}


def served(**settings: Any) -> Any:
    return client_of(app_of(Silent(), **settings))


PATHS = ("/.well-known/agent-card.json", "/livez", "/tasks/t", "/nothing", "/openapi.json")


class TestHeaders:
    @pytest.mark.parametrize("path", PATHS)
    async def test_a_browser_does_nothing_with_an_answer(self, path: str) -> None:
        async with served() as client:
            headers = (await client.get(path, headers=V1)).headers
        assert headers["content-security-policy"] == "default-src 'none'; frame-ancestors 'none'"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["x-content-type-options"] == "nosniff"
        assert "strict-transport-security" not in headers
        assert "server" not in headers

    async def test_hsts_by_setting(self) -> None:
        async with served(hsts=86_400) as client:
            headers = (await client.post("/", json=request("GetTask"), headers=V1)).headers
        assert headers["strict-transport-security"] == "max-age=86400"


class TestHosts:
    HOSTS = ("agents.example.com", "*.internal", "[::1]")

    @pytest.mark.parametrize(
        ("host", "status"),
        [
            ("agents.example.com", 200),
            ("AGENTS.example.com:8443", 200),
            ("a.internal", 200),
            ("a.b.internal:1", 200),
            ("[::1]:8000", 200),
            ("[::1]", 200),
            ("internal", 400),
            ("evilinternal", 400),
            ("agents.example.com.evil.com", 400),
            ("example.com", 400),
            ("agents.example.com:80:80", 400),
            ("agents.example.com:x", 400),
            ("agents.example.com@evil.com", 400),
            ("", 400),
        ],
    )
    async def test_others_are_refused_in_json(self, host: str, status: int) -> None:
        async with served(hosts=self.HOSTS) as client:
            response = await client.get("/.well-known/agent-card.json", headers={"Host": host})
        assert response.status_code == status
        if status == 400:
            assert response.json()["error"]["status"] == "INVALID_ARGUMENT"

    async def test_two_are_none(self) -> None:
        async with served(hosts=self.HOSTS) as client:
            twice = [("Host", "agents.example.com"), ("Host", "evil.com")]
            assert (await client.get("/tasks/t", headers=twice)).status_code == 400

    async def test_probes_come_by_address(self) -> None:
        async with served(hosts=self.HOSTS) as client:
            for path in ("/livez", "/readyz"):
                assert (await client.get(path, headers={"Host": "10.1.2.3"})).status_code != 400

    def test_a_port_or_url_is_no_host(self) -> None:
        for wrong in ("example.com:80", "https://example.com", "*", "a b"):
            with pytest.raises(SettingsError, match="SWITCHROOM_HOSTS"):
                Settings.from_env({"SWITCHROOM_HOSTS": wrong})


class TestOrigins:
    ASK = {
        "Origin": "https://app.example.com",
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "a2a-version,authorization,content-type,last-event-id",
    }

    async def test_none_by_default(self) -> None:
        async with served() as client:
            answer = await client.options("/", headers=self.ASK)
            assert "access-control-allow-origin" not in answer.headers
            answer = await client.get("/tasks/t", headers={**V1, "Origin": self.ASK["Origin"]})
            assert "access-control-allow-origin" not in answer.headers

    async def test_those_of_the_list_may_ask_and_read(self) -> None:
        async with served(cors_origins=["https://app.example.com"]) as client:
            asked = await client.options("/", headers=self.ASK)
            assert asked.status_code == 200
            assert asked.headers["access-control-allow-origin"] == "https://app.example.com"
            assert "authorization" in asked.headers["access-control-allow-headers"].lower()
            read = await client.get("/tasks/t", headers={**V1, "Origin": self.ASK["Origin"]})
            assert read.headers["access-control-allow-origin"] == "https://app.example.com"
            assert "A2A-Version" in read.headers["access-control-expose-headers"]
            assert "access-control-allow-credentials" not in read.headers
            other = {**self.ASK, "Origin": "https://evil.example.com"}
            assert (await client.options("/", headers=other)).status_code == 400

    def test_a_path_or_name_is_no_origin(self) -> None:
        for wrong in ("https://example.com/path", "example.com", "ftp://example.com"):
            with pytest.raises(SettingsError, match="SWITCHROOM_CORS_ORIGINS"):
                Settings.from_env({"SWITCHROOM_CORS_ORIGINS": wrong})


async def said(url: str, *pieces: bytes) -> bytes:
    """What a client gets that says this and then waits."""
    host, port = url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        return await reader.read()
    finally:
        writer.close()


def status_of(answer: bytes) -> int:
    """The status; the body must be JSON."""
    head, _, body = answer.partition(b"\r\n\r\n")
    assert json.loads(body)["error"]
    return int(head.split()[1])


class TestConnections:
    @pytest.mark.parametrize(
        "pieces",
        [
            [],
            [b"GET /livez HTT"],
            [b"GET /livez HTTP/1.1\r\nHost: x\r\n"],
            [b"GET /livez HTTP/1.1\r\nHost: x\r\nX-Long: ", b"a", b"b"],
        ],
    )
    async def test_who_does_not_send_its_headers_is_not_waited_for(
        self, pieces: list[bytes]
    ) -> None:
        async with serving(app_of(Silent(), request_timeout=0.1)) as url:
            assert status_of(await said(url, *pieces)) == 408

    async def test_nor_who_stops_after_an_answer_in_the_middle_of_the_next(self) -> None:
        ask = b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"
        async with serving(app_of(Silent(), request_timeout=0.1)) as url:
            answer = await said(url, ask, b"GET /livez HTTP/1.1\r\nHo")
        assert answer.startswith(b"HTTP/1.1 200")
        assert b"HTTP/1.1 408" in answer

    async def test_nor_who_does_not_send_its_body(self) -> None:
        head = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n"
        async with serving(app_of(Silent(), request_timeout=0.1)) as url:
            answer = await said(url, head, b'{"jsonrpc"')
        assert status_of(answer) == 408
        assert b"connection: close" in answer.lower()

    async def test_headers_without_end_are_cut(self) -> None:
        app = app_of(Silent(), header_limit=10_000)
        start = b"GET /livez HTTP/1.1\r\nHost: x\r\n"
        async with serving(app) as url:
            assert status_of(await said(url, start, b"X-A: ", b"a" * 20_000)) == 431
            many = b"".join(b"X-%d: y\r\n" % n for n in range(3_000))
            assert status_of(await said(url, start, many)) == 431

    async def test_a_large_body_is_none_of_them(self) -> None:
        body = json.dumps(request("GetTask", {"id": "x" * 200_000})).encode()
        head = b"POST / HTTP/1.1\r\nHost: x\r\nA2A-Version: 1.0\r\nConnection: close\r\n"
        head += b"Content-Length: %d\r\n\r\n" % len(body)
        async with serving(app_of(Silent(), header_limit=1_000)) as url:
            answer = await said(url, head, body[:50_000], body[50_000:])
        assert answer.startswith(b"HTTP/1.1 200")

    async def test_what_is_no_http_is_told_so_in_json(self) -> None:
        async with serving(app_of(Silent())) as url:
            assert status_of(await said(url, b"\x16\x03\x01 hello\r\n\r\n")) == 400

    async def test_only_so_many_at_a_time(self) -> None:
        async with serving(app_of(Silent(), connections=2)) as url:
            host, port = url.removeprefix("http://").split(":")
            held = [await asyncio.open_connection(host, int(port)) for _ in range(2)]
            try:
                for _, writer in held:
                    writer.write(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
                for reader, _ in held:
                    assert (await reader.readline()).startswith(b"HTTP/1.1 200")
                answer = await said(url)
                assert status_of(answer) == 503
                assert b"retry-after" in answer
            finally:
                for _, writer in held:
                    writer.close()
                    await writer.wait_closed()


async def test_an_embedding_programs_middleware_is_inside_of_it() -> None:
    app = create_app(Settings(hosts=["ours"]), handler=Silent(), card=card_of())
    seen: list[str] = []

    @app.middleware("http")
    async def watch(asked: Any, go_on: Any) -> Any:
        seen.append(asked.url.path)
        return await go_on(asked)

    async with client_of(app) as client:
        assert (await client.get("/livez", headers={"Host": "theirs"})).status_code == 200
        assert (await client.get("/tasks/t", headers={"Host": "theirs"})).status_code == 400
    assert seen == ["/livez"]
