"""A client from a URL; a server that is fit; a private one that ends with us."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis
from redis.exceptions import (
    AuthenticationError,
    BusyLoadingError,
    ConnectionError,
    InvalidResponse,
    NoPermissionError,
    ResponseError,
    TimeoutError,
)

from switchroom.store.connect import (
    ServerError,
    UrlError,
    address,
    check_server,
    connect,
    find_server,
    is_fake,
    private_server,
)
from tests.support.redis import open_connections
from tests.support.wait import wait_until

UNIX = pytest.mark.requires("unix")
SHORT = timedelta(seconds=1)
FIT = {"redis_version": "7.0.15", "redis_mode": "standalone", "maxmemory_policy": "noeviction"}


@pytest.fixture
async def server() -> AsyncIterator[str]:
    binary = find_server()
    assert binary is not None
    async with private_server(binary) as url:
        yield url


async def refusal(redis: Redis) -> str:
    with pytest.raises(ServerError) as caught:
        await check_server(redis)
    return str(caught.value)


def answering(monkeypatch: pytest.MonkeyPatch, answer: dict[str, Any] | Exception) -> Redis:
    """A client whose INFO is `answer`."""

    async def info(self: Redis) -> dict[str, Any]:
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(Redis, "info", info)
    return connect("redis://user:secret@example.com:6380/1", timeout=SHORT)


@asynccontextmanager
async def answers(said: bytes, *, at: Path | None = None) -> AsyncIterator[str]:
    """The URL of a server that says this to whatever it is asked first, and then no more."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(said)
        await reader.read()
        writer.close()

    if at is not None:
        async with await asyncio.start_unix_server(serve, at):
            yield f"unix://{at}"
        return
    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        yield f"redis://{host}:{port}"


class TestConnect:
    async def test_clients_of_one_fake_url_meet_and_of_two_do_not(self) -> None:
        here, there = f"fake://{uuid.uuid4()}", f"fake://{uuid.uuid4()}"
        one, two = connect(here, timeout=SHORT), connect(here, timeout=SHORT)
        other = connect(there, timeout=SHORT)
        async with one, two, other:
            await one.set("key", "value")
            assert await two.get("key") == b"value"
            assert await other.get("key") is None
            assert is_fake(one)
            assert address(one) == "fakeredis"
            await check_server(one)

    async def test_a_command_is_never_repeated_by_itself(self) -> None:
        for url in ("redis://127.0.0.1", f"fake://{uuid.uuid4()}"):
            pool = connect(url, timeout=SHORT).connection_pool
            connection = pool.connection_class(**pool.connection_kwargs)
            assert connection.retry._retries == 0
            assert not connection.retry_on_timeout

    async def test_time_is_bounded_but_for_a_listener(self) -> None:
        redis = connect("redis://127.0.0.1", timeout=SHORT)
        options = redis.connection_pool.connection_kwargs
        assert options["socket_timeout"] == options["socket_connect_timeout"] == 1
        listener = connect("redis://127.0.0.1", timeout=SHORT, listening=True)
        assert listener.connection_pool.connection_kwargs["socket_timeout"] is None

    @pytest.mark.parametrize(
        ("url", "where"),
        [
            ("redis://user:secret@example.com:6380/1", "example.com:6380"),
            ("rediss://:secret@example.com", "example.com:6379"),
            ("unix:///run/redis.sock?password=secret", "unix:///run/redis.sock"),
        ],
    )
    async def test_the_address_is_shown_without_password(self, url: str, where: str) -> None:
        assert address(connect(url, timeout=SHORT)) == where

    @pytest.mark.parametrize(
        "url",
        [
            "redis://u:secret@h?colour=red",
            "redis://u:secret@h?db=x",
            "redis://u:secret@h?protocol=7",
            "redis+sentinel://u:secret@h/m?colour=red",
            "redis+sentinel://u:secret@h/m?sentinel_colour=secret",
            "redis+sentinel://u:secret@h",
            "redis://u:secret@h?timeout=3",
            "http://u:secret@h",
            "redis",
        ],
    )
    def test_a_bad_url_is_one_sentence_without_password(self, url: str) -> None:
        with pytest.raises(UrlError) as caught:
            connect(url, timeout=SHORT)
        assert str(caught.value).startswith("The Redis URL ")
        assert "secret" not in str(caught.value)
        assert "\n" not in str(caught.value)

    @pytest.mark.parametrize("options", ["", "?db=3", "?password=secret"])
    @pytest.mark.parametrize("unix", [False, pytest.param(True, marks=UNIX)])
    async def test_a_server_that_never_greets_is_given_up_even_by_a_listener(
        self, unix: bool, options: str, tmp_path: Path
    ) -> None:
        socket = tmp_path / "s" if unix else None
        async with answers(b"", at=socket) as url:
            soon = timedelta(seconds=0.05)
            async with connect(f"{url}{options}", timeout=soon, listening=True) as redis:
                with pytest.raises(TimeoutError):
                    await redis.connection_pool.get_connection()

    @pytest.mark.requires("redis-server")
    @pytest.mark.requires("redis-server", "unix")
    def test_a_connection_that_the_server_has_just_closed_is_lost_in_uvloop_too(
        self, server_url: str
    ) -> None:
        import uvloop

        async def write() -> None:
            redis = connect(server_url, timeout=timedelta(seconds=5))
            try:
                connection = await redis.connection_pool.get_connection()
                connection._writer.transport.abort()  # as uvloop does when it meets a reset
                with pytest.raises(ConnectionError):
                    await connection.send_command("PING")
                await redis.connection_pool.release(connection)
            finally:
                await redis.aclose()

        uvloop.run(write())

    async def test_a_closed_client_opens_no_connection_again(self, server: str) -> None:
        redis = connect(server, timeout=SHORT)
        await redis.ping()
        await redis.aclose()
        with pytest.raises(ConnectionError, match="closed"):
            await redis.ping()
        assert open_connections(redis.connection_pool) == []

    @pytest.mark.requires("redis-server")
    async def test_nor_does_one_that_is_closed_while_it_connects(self, server: str) -> None:
        redis = connect(server, timeout=SHORT)
        asked = asyncio.create_task(redis.ping())
        await asyncio.sleep(0)
        await redis.aclose()
        with pytest.raises(ConnectionError, match="closed"):
            await asked
        assert open_connections(redis.connection_pool) == []


class TestCheckServer:
    async def test_a_fit_one_passes(self, monkeypatch: pytest.MonkeyPatch) -> None:
        await check_server(answering(monkeypatch, FIT))
        await check_server(answering(monkeypatch, FIT | {"redis_version": "8.2.3"}))

    @pytest.mark.parametrize(
        ("info", "sentence"),
        [
            ({"redis_version": "6.2.14"}, "is version 6.2.14; Switchroom needs Redis 7.0"),
            ({"redis_version": "?"}, "is version ?"),
            ({"redis_mode": "cluster"}, "is a cluster node"),
            ({"maxmemory_policy": "allkeys-lru"}, "has maxmemory-policy allkeys-lru"),
            ({"loading": 1}, "is still loading its data; start again in a moment."),
        ],
    )
    async def test_an_unfit_one_is_named_with_its_fault(
        self, monkeypatch: pytest.MonkeyPatch, info: dict[str, str], sentence: str
    ) -> None:
        said = await refusal(answering(monkeypatch, FIT | info))
        assert said.startswith("Redis at example.com:6380 ")
        assert sentence in said

    @pytest.mark.parametrize(
        ("error", "sentence"),
        [
            (
                ConnectionError("Error 111 connecting to h:1. Connection refused."),
                "does not answer",
            ),
            (TimeoutError("Timeout connecting"), "does not answer (timed out)"),
            (AuthenticationError("invalid username-password pair"), "refuses the user or password"),
            (BusyLoadingError(), "is still loading"),
        ],
    )
    async def test_an_absent_one_is_named(
        self, monkeypatch: pytest.MonkeyPatch, error: Exception, sentence: str
    ) -> None:
        said = await refusal(answering(monkeypatch, error))
        assert sentence in said
        assert "secret" not in said

    @pytest.mark.parametrize(
        "refused",
        [
            NoPermissionError("this user has no permissions to run the 'info' command"),
            ResponseError("unknown command 'INFO', with args beginning with: "),
        ],
    )
    async def test_one_that_will_not_say_is_trusted_with_a_warning(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, refused: Exception
    ) -> None:
        await check_server(answering(monkeypatch, refused))
        (record,) = caplog.records
        assert "noeviction" in record.getMessage()

    @pytest.mark.parametrize(
        "error",
        [
            ResponseError("MASTERDOWN Link with MASTER is down"),
            ResponseError("wrong number of arguments for 'info' command"),
            InvalidResponse("Protocol Error: b'HTTP/1.1 400'\nand more"),
        ],
    )
    async def test_one_that_answers_info_with_anything_else_is_named(
        self, monkeypatch: pytest.MonkeyPatch, error: Exception
    ) -> None:
        said = await refusal(answering(monkeypatch, error))
        assert "does not answer as Redis does" in said
        assert "\n" not in said

    async def test_a_server_of_another_protocol_is_named(self) -> None:
        async with answers(b"HTTP/1.1 400 Bad Request\r\n\r\n") as url:
            async with connect(url, timeout=SHORT) as redis:
                said = await refusal(redis)
        assert said.startswith(f"Redis at {url.removeprefix('redis://')} does not answer ")

    async def test_one_that_does_not_speak_tls_is_named(self) -> None:
        async with answers(b"-ERR unknown command\r\n") as url:
            async with connect(url.replace("redis:", "rediss:"), timeout=SHORT) as redis:
                assert "does not answer (WRONG_VERSION_NUMBER)" in await refusal(redis)

    @pytest.mark.requires("redis-server")
    @pytest.mark.parametrize("options", ["db=99", "client_name=a%20b"])
    async def test_a_real_server_that_refuses_the_connection_is_named(
        self, server: str, options: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        async with connect(f"{server}?{options}", timeout=SHORT) as redis:
            assert "refuses the connection" in await refusal(redis)
        assert not caplog.records

    @pytest.mark.requires("redis-server")
    async def test_a_real_server_warns_for_a_user_without_info_but_not_without_its_database(
        self, server: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        async with connect(server, timeout=SHORT) as redis:
            for user, denied in (("shy", "-info"), ("lost", "-select")):
                await redis.execute_command(
                    "ACL", "SETUSER", user, "on", ">secret", "+@all", denied, "~*"
                )
        async with connect(f"{server}?username=lost&password=secret&db=1", timeout=SHORT) as redis:
            assert "'select'" in await refusal(redis)
        assert not caplog.records
        async with connect(f"{server}?username=shy&password=secret&db=1", timeout=SHORT) as redis:
            await check_server(redis)
        assert "noeviction" in caplog.text

    async def test_nobody_listening_is_one_sentence(self) -> None:
        redis = connect("redis://:secret@127.0.0.1:1", timeout=SHORT)
        said = await refusal(redis)
        assert said == ("Redis at 127.0.0.1:1 does not answer (Connection refused); is it running?")

    @pytest.mark.requires("redis-server")
    async def test_a_real_server_that_evicts_is_refused(self, server: str) -> None:
        async with connect(server, timeout=SHORT) as redis:
            await check_server(redis)
            await redis.config_set("maxmemory-policy", "volatile-ttl")
            assert "volatile-ttl" in await refusal(redis)

    @pytest.mark.requires("redis-server")
    async def test_a_real_server_that_wants_a_password_is_named(self, server: str) -> None:
        async with connect(server, timeout=SHORT) as redis:
            await redis.config_set("requirepass", "secret")
            async with connect(server, timeout=SHORT) as stranger:
                assert "refuses the user or password" in await refusal(stranger)


class TestPrivateServer:
    @pytest.mark.requires("redis-server")
    async def test_only_we_reach_it_and_nothing_is_kept(self, server: str) -> None:
        folder = Path(server.removeprefix("unix://")).parent
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        async with connect(server, timeout=SHORT) as redis:
            assert (await redis.config_get("port"))["port"] == "0"
            assert (await redis.config_get("save"))["save"] == ""

    @pytest.mark.requires("redis-server")
    async def test_it_ends_with_the_block(self) -> None:
        binary = find_server()
        assert binary is not None
        async with private_server(binary) as url:
            async with connect(url, timeout=SHORT) as redis:
                pid = (await redis.info("server"))["process_id"]
        assert not Path(url.removeprefix("unix://")).parent.exists()
        assert not alive(pid)

    @pytest.mark.requires("redis-server")
    async def test_it_ends_with_us_even_if_we_are_killed(self) -> None:
        program = (
            "import asyncio\n"
            "from datetime import timedelta\n"
            "from switchroom.store.connect import *\n"
            "async def main():\n"
            "    async with private_server(find_server()) as url:\n"
            "        async with connect(url, timeout=timedelta(seconds=1)) as redis:\n"
            "            print(url, (await redis.info())['process_id'], flush=True)\n"
            "        await asyncio.Event().wait()\n"
            "asyncio.run(main())\n"
        )
        parent = await asyncio.create_subprocess_exec(
            sys.executable, "-c", program, stdout=subprocess.PIPE
        )
        assert parent.stdout is not None
        url, pid = (await parent.stdout.readline()).decode().split()
        assert alive(int(pid))
        parent.send_signal(signal.SIGKILL)
        await parent.wait()
        folder = Path(url.removeprefix("unix://")).parent
        await wait_until(lambda: not alive(int(pid)), what="the server is gone")
        await wait_until(lambda: not folder.exists(), what="its folder is gone")

    async def test_one_that_does_not_start_is_one_sentence(self, tmp_path: Path) -> None:
        broken = tmp_path / "redis-server"
        broken.write_text("#!/bin/sh\nexit 1\n")
        broken.chmod(0o755)
        with pytest.raises(ServerError, match="does not start"):
            async with private_server(broken):
                pass

    def test_the_search_follows_path(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", str(tmp_path))
        assert find_server() is None
        binary = tmp_path / "valkey-server"
        binary.touch(mode=0o755)
        assert find_server() == binary


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
