"""API keys: a live one tells who calls, on every gateway, from when it is made until it ends."""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from redis.exceptions import ConnectionError

from switchroom.gateway.app import create_app
from switchroom.gateway.auth import api_keys
from switchroom.gateway.auth.api_keys import ApiKeys
from switchroom.gateway.auth.caller import Caller, Request
from switchroom.gateway.auth.gate import Gate
from switchroom.gateway.auth.load import load_gate
from switchroom.gateway.context import CallContext
from switchroom.gateway.dispatch import Answer
from switchroom.protocol.errors import AuthenticationFailed, Unavailable
from switchroom.protocol.methods import Scope
from switchroom.protocol.model import Json
from switchroom.settings import Settings, SettingsError
from switchroom.store import Store
from switchroom.store.api_key import ApiKey, new_key
from switchroom.store.key_file import FileKeys
from switchroom.store.scripts import command
from tests.support.gateways import V1, call, card_of, client_of
from tests.support.house import House
from tests.support.wait import wait_until

READ: frozenset[Scope] = frozenset({"tasks:read"})


def made(principal: str = "alice", **more: Any) -> tuple[str, ApiKey]:
    return new_key(principal, **{"tenant": "acme", "scopes": READ, "now": 1_000, **more})


async def told(way: ApiKeys, text: str | bytes) -> Caller | None:
    """What the way makes of this key."""
    brought = text.encode() if isinstance(text, str) else text
    return await way.caller(Request({b"x-api-key": brought}, ""))


async def known(way: ApiKeys, text: str) -> bool:
    try:
        return await told(way, text) is not None
    except AuthenticationFailed:
        return False


def write(path: Path, text: str) -> None:
    path.write_text(text)


@asynccontextmanager
async def way_of(
    path: Path, *kept: ApiKey, clock: list[float] | None = None
) -> AsyncIterator[ApiKeys]:
    """The way of a gateway whose file keeps these keys."""
    write(path, json.dumps({"keys": [key.to_record() for key in kept]}))
    now = clock or [2_000.0]
    way = ApiKeys(FileKeys(str(path)), clock=lambda: now[0])
    async with way.running(None):
        yield way


class Handler:
    """Answers everything with nothing, and remembers who asked."""

    def __init__(self) -> None:
        self.contexts: list[CallContext] = []

    async def dispatch(self, method: str, params: Json | None, context: CallContext) -> Answer:
        self.contexts.append(context)
        return {}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "keys.json"


@pytest.fixture(autouse=True)
def no_secret_is_logged(caplog: pytest.LogCaptureFixture) -> AsyncIterator[None]:
    """Whatever a test does."""
    caplog.set_level(logging.DEBUG)
    yield  # type: ignore[misc]
    for record in caplog.get_records("call"):
        assert "swk_" not in record.getMessage()
        assert "sha256" not in record.getMessage()


class TestKey:
    async def test_tells_who_calls(self, path: Path) -> None:
        text, key = made(scopes=READ, expires=9_000)
        async with way_of(path, key) as way:
            assert await told(way, text) == Caller("alice", "acme", READ, f"key {key.id}")
            assert await way.caller(Request({}, "")) is None

    async def test_is_good_until_it_expires(self, path: Path) -> None:
        text, key = made(expires=5_000)
        now = [4_999.9]
        async with way_of(path, key, clock=now) as way:
            assert await known(way, text)
            now[0] = 5_000.0
            assert not await known(way, text)

    async def test_allows_what_its_scopes_say(self, path: Path) -> None:
        (text, key), handler = made(), Handler()
        async with way_of(path, key) as way:
            app = create_app(Settings(), handler=handler, card=card_of(), gate=Gate([way]))
            async with client_of(app) as client:
                headers = {**V1, "X-API-Key": text}
                assert (
                    await call(client, "GetTask", {"id": "t"}, headers=headers)
                ).status_code == 200
                refused = await call(client, "CancelTask", {"id": "t"}, headers=headers)
        assert refused.status_code == 403
        assert refused.json()["error"]["data"][0]["metadata"] == {"scope": "tasks:cancel"}
        (context,) = handler.contexts
        assert (context.tenant, context.caller, context.scopes) == ("acme", "alice", READ)
        assert context.credential == f"key {key.id}"


class TestBad:
    """Whatever is wrong with it, the answer is the same."""

    @pytest.fixture
    async def client(self, path: Path) -> AsyncIterator[httpx.AsyncClient]:
        self.good, key = made()
        self.expired, old = made(expires=1_500)
        async with way_of(path, key, old) as way:
            app = create_app(Settings(), handler=Handler(), card=card_of(), gate=Gate([way]))
            async with client_of(app) as client:
                yield client

    async def status(self, client: httpx.AsyncClient, text: bytes) -> tuple[int, Any, bytes]:
        headers = [(b"A2A-Version", b"1.0"), (b"X-API-Key", text), (b"X-Request-Id", b"r")]
        answer = await client.post("/", content=b"not JSON", headers=headers)
        return answer.status_code, sorted(answer.headers.raw), answer.content

    async def test_malformed_unknown_wrong_and_expired_ones_are_all_refused_alike(
        self, client: httpx.AsyncClient
    ) -> None:
        good = self.good.encode()
        bad = [
            b"",
            b" ",
            b"swk_",
            b"sk_" + good[4:],
            good[:-1],
            good + b"0",
            good + b"\n",
            good.upper(),
            b"Bearer " + good,
            good.replace(b"_", b"-"),
            b"swk_" + b"\xff" * 10 + good[14:],
            good[:15] + "é".encode() * 19,
            b"swk_" + b"a" * 1_000_000,
            good * 20_000,
            b"\x00" * 53,
            good[:-38] + b"0" * 38,
            made()[0].encode(),
            self.expired.encode(),
        ]
        answers = [await self.status(client, text) for text in bad]
        assert all(answer == answers[0] for answer in answers)
        status, headers, body = answers[0]
        assert status == 401
        assert (b"www-authenticate", b'ApiKey realm="a2a"') in [(k.lower(), v) for k, v in headers]
        assert json.loads(body)["error"]["message"] == "Authentication failed"
        status, _, body = await self.status(client, good)
        assert (status, json.loads(body)["error"]["code"]) == (200, -32700), "its body is read"

    async def test_an_unknown_one_takes_the_work_of_a_known_one(
        self, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (good, key), (old, expired) = made(), made(expires=1_500)
        compared: list[tuple[int, int]] = []

        def compare(one: bytes, other: bytes) -> bool:
            compared.append((len(one), len(other)))
            return one == other

        monkeypatch.setattr(hmac, "compare_digest", compare)
        async with way_of(path, key, expired) as way:
            for text in (good, good[:-38] + "0" * 38, made()[0], old):
                await known(way, text)
        assert compared == [(32, 32)] * 4


def test_the_card_says_what_is_enforced(path: Path) -> None:
    path.write_text('{"keys": []}')
    for settings in (
        Settings(api_keys=str(path)),
        Settings(api_keys="redis", redis_url="fake://x"),
    ):
        gate = load_gate(settings)
        assert not gate.open
        assert gate.schemes == {
            "apiKey": {"apiKeySecurityScheme": {"location": "header", "name": "X-API-Key"}}
        }
    assert load_gate(Settings()).open


def test_a_file_that_cannot_be_used_is_refused_at_start(path: Path) -> None:
    with pytest.raises(SettingsError, match="does not exist"):
        load_gate(Settings(api_keys=str(path)))


class TestInFile:
    @pytest.fixture(autouse=True)
    def often(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(api_keys, "_EVERY", 0.01)

    async def test_a_change_is_seen(self, path: Path) -> None:
        (one, first), (two, second) = made(), made()
        book = FileKeys(str(path))
        async with way_of(path, first) as way:
            await book.add(second)
            await wait_until(lambda: known(way, two), what="the new key is known")
            await book.revoke(first.id)

            async def gone() -> bool:
                return not await known(way, one)

            await wait_until(gone, what="the old key is refused")
            assert await known(way, two)

    async def test_a_file_that_goes_bad_leaves_the_keys_known_and_is_told_of_once(
        self, path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        text, key = made()
        async with way_of(path, key) as way:
            looks: list[int] = []
            load = way._file.load  # type: ignore[union-attr]

            def counted() -> Any:
                looks.append(1)
                return load()

            way._file.load = counted  # type: ignore[method-assign, union-attr]
            write(path, "{")
            await wait_until(lambda: "which is not JSON" in caplog.text, what="the fault is told")
            seen = len(looks)
            await wait_until(lambda: len(looks) > seen + 2, what="it looks on")
            assert await known(way, text)
            write(path, '{"keys": []}')
            await wait_until(lambda: "can be read again" in caplog.text, what="it is read again")
            assert not await known(way, text)
        faults = [record for record in caplog.records if record.levelname == "ERROR"]
        assert len(faults) == 1
        assert faults[0].exc_info is None

    async def test_that_there_is_no_key_yet_is_told(
        self, path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        async with way_of(path):
            assert caplog.messages == [
                "There is no API key yet: `switchroom keys create NAME` makes one"
            ]


class Two:
    """Two gateways, each with a store of its own."""

    def __init__(self, stores: Sequence[Store], ways: Sequence[ApiKeys]) -> None:
        self.stores = stores
        self.ways = ways

    async def both(self, text: str, *, good: bool) -> None:
        """Returns when both gateways say so of this key."""
        for way in self.ways:

            async def agreed(way: ApiKeys = way) -> bool:
                return await known(way, text) is good

            await wait_until(agreed, what=f"the key is {'good' if good else 'bad'}")


@asynccontextmanager
async def two(house: House, clock: list[float] | None = None) -> AsyncIterator[Two]:
    now = clock or [2_000.0]
    async with AsyncExitStack() as opened:
        stores = [(await house.gateway()).store for _ in range(2)]
        ways = [ApiKeys(clock=lambda: now[0]) for _ in stores]
        for way, store in zip(ways, stores, strict=True):
            await opened.enter_async_context(way.running(store))
            await wait_until(lambda s=store: s.subscriber.channels, what="it listens")
        yield Two(stores, ways)


def deaf(store: Store) -> None:
    """What is published no longer reaches this gateway."""
    store.subscriber._receive = lambda message: None  # type: ignore[method-assign]


class Away:
    """Redis does not answer what this gateway asks."""

    def __init__(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        self._patch = monkeypatch.context()
        self._store = store

    def __enter__(self) -> None:
        async def refuse(calls: Any) -> Any:
            raise ConnectionError("away")

        self._patch.__enter__().setattr(self._store.reads, "_pipeline", refuse)

    def __exit__(self, *_: Any) -> None:
        self._patch.__exit__(None, None, None)


class TestInRedis:
    """Changes are heard of: the periodic look is out of the way."""

    @pytest.fixture(autouse=True)
    def seldom(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(api_keys, "_EVERY", 3_600)

    async def test_a_key_works_on_all_gateways_once_made_and_on_none_once_revoked(
        self, house: House
    ) -> None:
        text, key = made()
        async with two(house) as deployed:
            await deployed.both(text, good=False)
            await deployed.stores[0].api_keys.add(key)
            await deployed.both(text, good=True)
            await deployed.stores[1].api_keys.revoke(key.id)
            await deployed.both(text, good=False)

    async def test_two_keys_of_one_caller_are_one_caller(self, house: House) -> None:
        (old, first), (new, second) = made(), made()
        async with two(house) as deployed:
            await deployed.stores[0].api_keys.add(first)
            await deployed.stores[0].api_keys.add(second)
            await deployed.both(old, good=True)
            await deployed.both(new, good=True)
            callers = [await told(deployed.ways[0], text) for text in (old, new)]
            assert [(c.tenant, c.principal) for c in callers if c] == [("acme", "alice")] * 2
            await deployed.stores[0].api_keys.revoke(first.id)
            await deployed.both(old, good=False)
            await deployed.both(new, good=True)

    async def test_no_call_asks_redis(self, house: House) -> None:
        text, key = made()
        async with two(house) as deployed:
            store, way = deployed.stores[0], deployed.ways[0]
            await store.api_keys.add(key)
            await deployed.both(text, good=True)
            asked = (store.reads.round_trips, store.commit.round_trips)
            for brought in (text, made()[0], text[:-38] + "0" * 38, "nonsense"):
                await known(way, brought)
            assert (store.reads.round_trips, store.commit.round_trips) == asked

    async def test_a_damaged_record_is_told_of_and_hurts_its_own_key_alone(
        self, house: House, caplog: pytest.LogCaptureFixture
    ) -> None:
        text, key = made()
        async with two(house) as deployed:
            store = deployed.stores[0]
            await store.commit(command("HSET", store.keys.api_keys, "broken", "{"))
            await store.api_keys.add(key)
            await deployed.both(text, good=True)
        assert "The API key 'broken' is refused: its record is not JSON" in caplog.text

    async def test_what_was_missed_is_caught_up_once_it_hears_again(self, house: House) -> None:
        text, key = made()
        async with two(house) as deployed:
            deaf(deployed.stores[1])
            await deployed.stores[0].api_keys.add(key)
            await wait_until(lambda: known(deployed.ways[0], text), what="who hears knows it")
            assert not await known(deployed.ways[1], text)
            deployed.stores[1].subscriber._tell_gap()
            await deployed.both(text, good=True)

    async def test_while_redis_is_away_the_last_good_keys_stay_good(
        self, house: House, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (text, key), (other, second) = made(expires=5_000), made()
        now = [2_000.0]
        async with two(house, now) as deployed:
            store, way = deployed.stores[1], deployed.ways[1]
            await deployed.stores[0].api_keys.add(key)
            await deployed.both(text, good=True)
            with Away(store, monkeypatch):
                await deployed.stores[0].api_keys.add(second)
                await wait_until(lambda: known(deployed.ways[0], other), what="it is made")
                assert await known(way, text)
                now[0] = 5_000.0
                assert not await known(way, text), "it expires meanwhile"
            store.subscriber._tell_gap()
            await deployed.both(other, good=True)


class TestUnheard:
    """Whoever hears nothing looks."""

    @pytest.fixture(autouse=True)
    def often(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(api_keys, "_EVERY", 0.01)

    async def test_a_lost_message_costs_one_look(self, house: House) -> None:
        text, key = made()
        async with two(house) as deployed:
            for store in deployed.stores:
                deaf(store)
            await deployed.stores[0].api_keys.add(key)
            await deployed.both(text, good=True)
            await deployed.stores[0].api_keys.revoke(key.id)
            await deployed.both(text, good=False)

    async def test_before_any_key_was_read_nobody_can_be_told_from_anybody(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        text, key = made()
        await store.api_keys.add(key)
        way = ApiKeys()
        app = create_app(
            Settings(), handler=Handler(), card=card_of(), gate=Gate([way]), store=store
        )
        headers = {**V1, "X-API-Key": text}
        with Away(store, monkeypatch):
            opened = AsyncExitStack()
            await opened.enter_async_context(app.router.lifespan_context(app))
            client = await opened.enter_async_context(client_of(app))
            answer = await call(client, "GetTask", {"id": "t"}, headers=headers)
            assert answer.status_code == 503
            assert int(answer.headers["retry-after"]) > 0
            with pytest.raises(Unavailable):
                await told(way, made()[0])
            with pytest.raises(AuthenticationFailed):
                await told(way, "nonsense")
        async with opened:

            async def served() -> bool:
                answer = await call(client, "GetTask", {"id": "t"}, headers=headers)
                return answer.status_code == 200

            await wait_until(served, what="the key is known")

    async def test_what_is_no_hash_is_told_of_once(
        self, store: Store, caplog: pytest.LogCaptureFixture
    ) -> None:
        await store.commit(command("SET", store.keys.api_keys, "x"))
        way = ApiKeys()
        async with way.running(store):
            trips = store.reads.round_trips
            await wait_until(lambda: store.reads.round_trips > trips + 2, what="it looks on")
        assert caplog.text.count("API keys cannot be read, those known so far stay good") == 1
        await store.commit(command("DEL", store.keys.api_keys))

    async def test_it_ends_with_the_gateway(self, store: Store) -> None:
        async with ApiKeys().running(store):
            await wait_until(lambda: store.subscriber.channels, what="it listens")
            assert "ApiKeys._watch" in str(asyncio.all_tasks())
        assert "ApiKeys._watch" not in str(asyncio.all_tasks())
        assert store.subscriber.channels == 0
