"""Clients of the master that Sentinels know: where they lead, when they leave, what they say."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.asyncio import Redis
from redis.asyncio.connection import SSLConnection
from redis.exceptions import ConnectionError

from switchroom.store.commit import Clock, GroupCommit, StoreUnavailable
from switchroom.store.connect import ServerError, address, check_server, connect
from switchroom.store.pool import Pool
from switchroom.store.scripts import command
from switchroom.store.sentinel import Master, MasterPool, Sentinels
from switchroom.store.subscriber import Subscriber
from tests.support.redis import open_connections, running_server
from tests.support.sentinel import MASTER, Watched, watched_redis
from tests.support.wait import wait_until

pytestmark = pytest.mark.requires("redis-server")

PATIENT = timedelta(seconds=5)


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    with watched_redis(tmp_path_factory.mktemp("watched")) as running:
        yield running


@pytest.fixture
async def client(watched: Watched) -> AsyncIterator[Redis]:
    async with connect(watched.url, timeout=PATIENT) as opened:
        yield opened


async def refusal(url: str, *, patience: timedelta = PATIENT) -> str:
    async with connect(url, timeout=patience) as client:
        with pytest.raises(ServerError) as caught:
            await check_server(client)
    assert "\n" not in str(caught.value)
    return str(caught.value)


async def place(client: Redis) -> int:
    """The port of the server that answers."""
    return int((await client.info("server"))["tcp_port"])


@asynccontextmanager
async def silent() -> AsyncIterator[str]:
    """The place of one that accepts connections, and then says nothing."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


class TestWhereItLeads:
    async def test_to_the_master(self, watched: Watched, client: Redis) -> None:
        await check_server(client)
        assert await place(client) == watched.master.port

    async def test_the_address_names_master_and_sentinels_and_no_password(self) -> None:
        url = "redis+sentinel://user:secret@one:1,two/mymaster/3?sentinel_password=secret"
        assert address(connect(url, timeout=PATIENT)) == "mymaster by Sentinel at one:1, two:26379"

    async def test_tls_is_for_the_sentinels_too(self) -> None:
        url = "rediss+sentinel://h/mymaster?ssl_ca_certs=ca.pem&sentinel_username=me"
        pool = connect(url, timeout=PATIENT).connection_pool
        assert isinstance(pool, MasterPool)
        (asked,) = pool.sentinels.pools
        for one in (pool, asked):
            assert issubclass(one.connection_class, SSLConnection)
            assert one.connection_kwargs["ssl_ca_certs"] == "ca.pem"
        assert asked.connection_kwargs["username"] == "me"
        assert "username" not in pool.connection_kwargs

    async def test_what_the_url_says_is_for_the_master(self, watched: Watched) -> None:
        with watched.master.client() as admin:
            admin.acl_setuser("app", enabled=True, passwords=["+p@ss"], commands=["+@all"])
            admin.execute_command("ACL", "SETUSER", "app", "-@dangerous", "~*", "&*")
        places = watched.url.removeprefix("redis+sentinel://")
        url = f"redis+sentinel://app:p%40ss@{places}/2?client_name=me"
        async with connect(url, timeout=PATIENT) as client:
            told = await client.client_info()
        assert (told["user"], told["name"], told["db"]) == ("app", "me", 2)

    async def test_sentinels_that_are_gone_or_silent_are_done_without(
        self, watched: Watched
    ) -> None:
        places = watched.url.removeprefix("redis+sentinel://").partition(",")[2]
        async with (
            connect(f"redis+sentinel://127.0.0.1:1,{places}", timeout=PATIENT) as gone,
            silent() as place_of_none,
            connect(f"redis+sentinel://{place_of_none},{places}", timeout=PATIENT) as mute,
        ):
            assert await gone.ping()
            assert await mute.ping()

    @pytest.mark.parametrize("stale", [0, 1, 2])
    async def test_one_sentinel_that_is_behind_misleads_nobody(
        self, watched: Watched, monkeypatch: pytest.MonkeyPatch, stale: int
    ) -> None:
        """It was cut off from the others when the master moved."""
        ask = Sentinels._ask

        async def asked(self: Sentinels, pool: Pool) -> Master | str:
            if pool is not self.pools[stale]:
                return await ask(self, pool)
            return Master(-1, "127.0.0.1", 1)

        monkeypatch.setattr(Sentinels, "_ask", asked)
        async with connect(watched.url, timeout=PATIENT) as client:
            assert await place(client) == watched.master.port

    @pytest.mark.parametrize("password", ["secret", "wrong"])
    async def test_sentinels_may_want_a_user(self, watched: Watched, password: str) -> None:
        (port, *_) = watched.sentinels
        with redis.Redis(port=port) as admin:
            admin.execute_command("ACL", "SETUSER", "asker", "on", ">secret", "+@all")
        options = f"sentinel_username=asker&sentinel_password={password}"
        url = f"redis+sentinel://127.0.0.1:{port}/{MASTER}?{options}"
        if password == "wrong":
            said = await refusal(url)
            assert f"127.0.0.1:{port} refuses the URL's sentinel_username" in said
            assert "wrong" not in said
        else:
            async with connect(url, timeout=PATIENT) as client:
                assert await client.ping()


class TestWhatIsSaid:
    async def test_when_no_sentinel_answers(self) -> None:
        async with silent() as mute:
            said = await refusal(
                f"redis+sentinel://127.0.0.1:1,{mute}/{MASTER}",
                patience=timedelta(seconds=0.2),
            )
        assert said == (
            f"No Sentinel tells where the Redis master {MASTER} is: 127.0.0.1:1 does not answer "
            f"(Connection refused), {mute} does not answer (timed out)."
        )

    async def test_when_they_know_no_such_master(self, watched: Watched) -> None:
        said = await refusal(watched.url + "x")
        assert f"Redis master {MASTER}x is: " in said
        for port in watched.sentinels:
            assert f"127.0.0.1:{port} knows no master of this name" in said

    async def test_when_it_is_no_sentinel(self, watched: Watched) -> None:
        port = watched.master.port
        said = await refusal(f"redis+sentinel://127.0.0.1:{port}/{MASTER}")
        assert f"127.0.0.1:{port} is no Sentinel." in said

    async def test_when_the_master_does_not_answer(self, tmp_path: Path) -> None:
        with watched_redis(tmp_path, replicas=0) as lonely:
            lonely.kill_master()
            said = await refusal(lonely.url)
        assert said.startswith(f"Redis master {MASTER} by Sentinel at 127.0.0.1:")
        assert "does not answer (Connection refused)" in said
        assert "failover" in said

    async def test_when_the_master_wants_a_password(self, watched: Watched) -> None:
        with watched.master.client() as admin:
            admin.execute_command("ACL", "SETUSER", "default", "resetpass", ">secret")
            try:
                said = await refusal(watched.url)
            finally:
                admin.execute_command("ACL", "SETUSER", "default", "nopass")
        assert said.endswith("refuses the user or password of its URL (Authentication required).")

    async def test_when_the_master_is_none_any_more(
        self, watched: Watched, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (replica,) = (one for one in watched.servers if one is not watched.master)

        async def behind(_: Any) -> Master:
            return Master(0, "127.0.0.1", replica.port)

        monkeypatch.setattr("switchroom.store.sentinel.Sentinels.find", behind)
        said = await refusal(watched.url)
        assert said.startswith(f"Redis {MASTER} at 127.0.0.1:{replica.port} is a replica")

    async def test_when_a_plain_url_leads_to_one_that_is_no_master(self, watched: Watched) -> None:
        (replica,) = (one for one in watched.servers if one is not watched.master)
        assert "is a replica" in await refusal(f"redis://127.0.0.1:{replica.port}")
        sentinel = f"redis://127.0.0.1:{watched.sentinels[0]}"
        assert "is a Sentinel; write redis+sentinel://" in await refusal(sentinel)


class TestLeaving:
    @pytest.mark.parametrize("command", ["SET", "EVAL"])
    async def test_a_server_that_takes_no_writes_is_left_at_once(
        self, watched: Watched, client: Redis, command: str
    ) -> None:
        words = ("SET", "key", "v") if command == "SET" else ("EVAL", _WRITES, 1, "key")
        await client.execute_command(*words)
        with watched.master.client() as admin:
            admin.config_set("min-replicas-to-write", 5)
            try:
                with pytest.raises(ConnectionError, match="takes no writes"):
                    await client.execute_command(*words)
                assert open_connections(client.connection_pool) == []
            finally:
                admin.config_set("min-replicas-to-write", 0)
        await client.execute_command(*words)

    @pytest.mark.parametrize("command", ["SET", "EVAL"])
    async def test_and_so_is_one_that_has_become_a_replica(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
    ) -> None:
        words = ("SET", "key", "v") if command == "SET" else ("EVAL", _WRITES, 1, "key")
        async with moving(tmp_path, monkeypatch) as (known, client):
            await client.execute_command(*words)
            with redis.Redis(port=known.at.port) as admin:
                admin.replicaof("127.0.0.1", known.later.port)
            known.at = known.later
            with pytest.raises(ConnectionError, match="takes no writes"):
                await client.execute_command(*words)
            await client.execute_command(*words)
            assert await place(client) == known.later.port

    async def test_a_master_that_nobody_hears_is_left_when_another_is_known(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Cut off from Sentinels and replicas, it goes on as if nothing had happened."""
        heard, gaps = [], 0

        def gap() -> None:
            nonlocal gaps
            gaps += 1

        async with moving(tmp_path, monkeypatch, listening=True) as (known, client):
            subscriber = Subscriber(client, silence=60, patience=5)
            lane = GroupCommit(client, clock=Clock(), patience=5)
            subscriber.on_gap(gap)
            await subscriber.start()
            await subscriber.subscribe("news", heard.append)
            await lane(command("SET", "where", "old"))
            assert gaps == 1
            known.at = known.later
            await wait_until(lambda: gaps == 2, what="the subscriber has moved")
            with redis.Redis(port=known.later.port) as admin:
                assert admin.publish("news", "new") == 1
            await wait_until(lambda: heard == [b"new"], what="it hears what is said there")
            # Its idle lane has noticed too: nothing more is written where it would be lost.
            assert await lane(command("GET", "where")) == [None]
            await subscriber.close()
            await lane.close()

    async def test_an_earlier_epoch_is_not_followed(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async with moving(tmp_path, monkeypatch, listening=True) as (known, client):
            port = known.at.port
            assert await place(client) == port
            known.at = known.later._replace(epoch=known.at.epoch)
            looked = known.asked
            await wait_until(lambda: known.asked >= looked + 2, what="it has looked")
            assert await place(client) == port

    @pytest.mark.parametrize("how", ["demote_master", "kill_master"])
    async def test_after_a_failover_everything_is_at_the_new_one(
        self, watched: Watched, how: str
    ) -> None:
        watched.settle()
        client = connect(watched.url, timeout=PATIENT, listening=True)
        subscriber = Subscriber(client, silence=60, patience=5)
        lane = GroupCommit(client, clock=Clock(), patience=5)
        heard: list[bytes] = []
        try:
            await subscriber.start()
            await subscriber.subscribe("news", heard.append)
            await lane(command("SET", "key", "v"))
            victim = getattr(watched, how)()
            await wait_until(
                lambda: watched.master.role() == "master" and watched.master is not victim,
                what="another is the master",
                within=60,
            )

            async def told() -> bool:
                with watched.master.client() as admin:
                    admin.publish("news", "new")
                try:
                    await lane(command("SET", "key", "new"))
                except StoreUnavailable:
                    return False
                with watched.master.client() as admin:
                    return bool(heard) and admin.get("key") == b"new"

            await wait_until(told, what="lane and subscriber are at the new master")
        finally:
            await subscriber.close()
            await lane.close()
            await client.aclose()


class TestClosing:
    async def test_nothing_is_left_at_whatever_moment_it_is_stopped(self, watched: Watched) -> None:
        steps, stopped = 0, True
        while stopped:
            client = connect(watched.url, timeout=PATIENT, listening=True)
            asked = asyncio.create_task(client.ping())
            for _ in range(steps):
                await asyncio.sleep(0)
            stopped = asked.cancel()
            await asyncio.wait([asked])
            await client.aclose()
            assert _left(client) == []
            steps = steps + 1 if steps < 20 else steps * 5 // 4

    async def test_a_closed_client_neither_connects_nor_looks_again(self, watched: Watched) -> None:
        client = connect(watched.url, timeout=PATIENT, listening=True)
        await client.ping()
        await client.aclose()
        with pytest.raises(ConnectionError, match="closed"):
            await client.ping()
        assert _left(client) == []


_WRITES = "return redis.call('SET', KEYS[1], 'v')"


def _left(client: Redis) -> list[Any]:
    pool = client.connection_pool
    assert isinstance(pool, MasterPool)
    assert pool._watch is None or pool._watch.done()
    return [found for one in (pool, *pool.sentinels.pools) for found in open_connections(one)]


class _Known:
    """What the Sentinels say.  later: another server, of the next epoch."""

    def __init__(self, at: Master, later: Master) -> None:
        self.at = at
        self.later = later
        self.asked = 0


@asynccontextmanager
async def moving(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *, listening: bool = False
) -> AsyncIterator[tuple[_Known, Redis]]:
    """Two masters, of which one is known to the Sentinels; and a client."""
    at_once = ("--shutdown-timeout", "0")  # a master waits for its replicas
    with running_server(folder, *at_once) as one, running_server(folder, *at_once) as other:
        places = [int(url.rpartition(":")[2]) for url in (one, other)]
        known = _Known(*(Master(n, "127.0.0.1", port) for n, port in enumerate(places)))

        async def find(_: Any) -> Master:
            known.asked += 1
            return known.at

        monkeypatch.setattr("switchroom.store.sentinel.Sentinels.find", find)
        url = f"redis+sentinel://unasked/{MASTER}"
        async with connect(url, timeout=PATIENT, listening=listening) as client:
            yield known, client
