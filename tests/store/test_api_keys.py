"""API keys: what is kept of one, and all of them in Redis."""

from __future__ import annotations

from hashlib import sha256
from typing import Any
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchroom.protocol.event import decode, encode
from switchroom.protocol.methods import SCOPES, Scope
from switchroom.store import Store
from switchroom.store import api_keys as kept_in_redis
from switchroom.store.api_key import API_KEY, ApiKey, BadRecord, new_key
from switchroom.store.api_keys import KeyRefused
from switchroom.store.commit import StoreUnavailable
from switchroom.store.scripts import command
from tests.support.faults import Cut, How
from tests.support.house import House
from tests.support.wait import wait_until

READ: frozenset[Scope] = frozenset({"tasks:read"})


def key(principal: str = "alice", **more: Any) -> ApiKey:
    return new_key(principal, **{"scopes": READ, "now": 1_000, **more})[1]


class TestKey:
    def test_has_an_id_a_secret_and_a_look_that_scanners_know(self) -> None:
        text, kept = new_key("alice", scopes=READ, now=0)
        found = API_KEY.fullmatch(text.encode())
        assert found is not None
        assert found[1].decode() == kept.id
        assert sha256(found[2]).digest() == kept.sha256
        body, checksum = text.removeprefix("swk_")[:-6], text[-6:]
        number = 0
        for digit in checksum:
            digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
            number = number * 62 + digits.index(digit)
        assert number == crc32(body.encode())

    def test_is_another_each_time(self) -> None:
        texts = {new_key("alice", scopes=READ, now=0)[0] for _ in range(200)}
        secrets = {text[15:-6] for text in texts}
        assert len(secrets) == 200
        assert {len(secret) for secret in secrets} == {32}
        assert len({letter for secret in secrets for letter in secret}) == 62

    def test_nothing_that_is_kept_or_shown_of_it_lets_anybody_use_it(self) -> None:
        text, kept = new_key("alice", scopes=READ, now=0, note="laptop")
        secret = text.rpartition("_")[2]
        assert secret not in str(kept.to_record())
        assert secret not in repr(kept)
        assert kept.sha256.hex() not in repr(kept)
        assert repr(kept.sha256) not in repr(kept)

    @pytest.mark.parametrize(
        ("expires", "now", "live"), [(None, 9e15, True), (10.2, 10.9, True), (10.2, 11, False)]
    )
    def test_is_live_until_it_expires(self, expires: float | None, now: float, live: bool) -> None:
        assert key(expires=expires).live(now) is live


names = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1)
moments = st.integers(0, 200_000_000_000)


class TestRecord:
    @given(
        principal=names.filter(lambda name: len(name) <= 256),
        tenant=st.just("") | names,
        scopes=st.frozensets(st.sampled_from(sorted(SCOPES))),
        now=moments,
        expires=st.none() | moments,
        note=st.text(st.characters(codec="utf-8")),
    )
    def test_is_read_as_it_was_written(self, **said: Any) -> None:
        made = key(**said)
        assert ApiKey.of_record(decode(encode(made.to_record()))) == made

    def test_says_only_what_there_is_to_say(self) -> None:
        made = key()
        assert made.to_record() == {
            "id": made.id,
            "sha256": made.sha256.hex(),
            "principal": "alice",
            "scopes": ["tasks:read"],
            "created": "1970-01-01T00:16:40Z",
        }

    @pytest.mark.parametrize(
        ("changed", "fault"),
        [
            ({"expire": "2030-01-31T00:00:00Z"}, "has a 'expire', which is none of id, sha256, "),
            ({"id": None}, "has a 'id' that is no text"),
            ({"id": "K7ABCDEFGH"}, "has a 'id' that is not 10 of the characters a-z 2-7"),
            ({"sha256": "ab"}, "has a 'sha256' that is not 64 hexadecimal digits"),
            ({"sha256": ["ab"]}, "has a 'sha256' that is no text"),
            ({"principal": ""}, "has a 'principal' that is not 1 to 256 printable characters"),
            ({"principal": "a\nb"}, "has a 'principal' that is not 1 to 256 printable"),
            ({"tenant": "x" * 257}, "has a 'tenant' that is not 1 to 256 printable characters"),
            ({"tenant": 7}, "has a 'tenant' that is no text"),
            ({"scopes": ["tasks:reed"]}, "has 'scopes' that are not a list of admin, push:write"),
            ({"scopes": "tasks:read"}, "has 'scopes' that are not a list of "),
            ({"scopes": [["admin"]]}, "has 'scopes' that are not a list of "),
            ({"expires": "soon"}, "has a 'expires' that is no time such as 2030-01-31T00:00:00Z"),
            ({"expires": "2030-01-31T00:00:00"}, "has a 'expires' that is no time such as "),
            ({"expires": 1e12}, "has a 'expires' that is no text"),
            ({"created": "9999-12-31T23:59:59-23:59"}, "has a 'created' that is no time such as "),
            ({"note": 1}, "has a 'note' that is no text"),
        ],
    )
    def test_is_refused_where_it_is_not_understood(
        self, changed: dict[str, Any], fault: str
    ) -> None:
        with pytest.raises(BadRecord) as caught:
            ApiKey.of_record({**key().to_record(), **changed})
        assert str(caught.value).startswith(fault)

    @pytest.mark.parametrize("name", ["id", "sha256", "principal", "scopes", "created"])
    def test_is_refused_where_something_is_missing(self, name: str) -> None:
        record = key().to_record()
        del record[name]
        with pytest.raises(BadRecord, match=f"has no '{name}'"):
            ApiKey.of_record(record)

    @given(st.recursive(st.none() | st.text() | st.integers(), st.lists))
    def test_is_refused_where_it_is_none(self, record: object) -> None:
        with pytest.raises(BadRecord, match="is not an object"):
            ApiKey.of_record(record)


class TestInRedis:
    async def test_what_is_added_is_there_until_it_is_revoked(self, store: Store) -> None:
        one, other = key("alice", tenant="acme", expires=2_000, note="laptop"), key("bob")
        for each in (one, other):
            await store.api_keys.add(each)
        ring = await store.api_keys.read()
        assert ring.keys == {one.id: one, other.id: other}
        assert ring.faults == {}
        assert await store.api_keys.revoke(one.id)
        assert (await store.api_keys.read()).keys == {other.id: other}
        assert not await store.api_keys.revoke(one.id)
        assert not await store.api_keys.revoke("")
        assert await store.api_keys.revoke(other.id)
        assert (await store.api_keys.read()).keys == {}

    async def test_what_has_not_changed_costs_one_small_question(self, store: Store) -> None:
        await store.api_keys.add(key())
        ring = await store.api_keys.read()
        asked = store.reads.round_trips
        for _ in range(3):
            assert await store.api_keys.read() is ring
        assert store.reads.round_trips == asked + 3

    async def test_of_what_has_changed_only_that_is_read(self, store: Store) -> None:
        first = key()
        await store.api_keys.add(first)
        before = await store.api_keys.read()
        await store.api_keys.add(key())
        after = await store.api_keys.read()
        assert len(after.keys) == 2
        assert after.keys[first.id] is before.keys[first.id]

    async def test_one_key_in_the_place_of_another_is_seen(self, store: Store) -> None:
        one, other = key(), key()
        await store.api_keys.add(one)
        await store.api_keys.read()
        await store.api_keys.revoke(one.id)
        await store.api_keys.add(other)
        assert (await store.api_keys.read()).keys == {other.id: other}

    async def test_what_a_hand_has_changed_is_seen(self, store: Store) -> None:
        one, other = key(), key()
        await store.api_keys.add(one)
        await store.api_keys.add(other)
        await store.api_keys.read()
        await store.commit(command("HDEL", store.keys.api_keys, one.id))
        assert (await store.api_keys.read()).keys == {other.id: other}
        await store.commit(command("DEL", store.keys.api_keys))
        assert (await store.api_keys.read()).keys == {}

    async def test_a_damaged_record_hurts_its_own_key_alone(self, store: Store) -> None:
        good, moved = key(), key()
        await store.api_keys.add(good)
        records = {"broken": b"{", "list": b"[]", "newer": encode({**good.to_record(), "v": 2})}
        records["moved"] = encode(moved.to_record())
        for ident, record in records.items():
            await store.commit(command("HSET", store.keys.api_keys, ident, record))
        ring = await store.api_keys.read()
        assert ring.keys == {good.id: good}
        assert ring.faults.keys() == records.keys()
        assert ring.faults["broken"] == "is not JSON"
        assert ring.faults["moved"] == f"is kept under the id 'moved' and says '{moved.id}'"
        assert await store.api_keys.revoke("broken")

    async def test_no_key_replaces_another(self, store: Store) -> None:
        first = key()
        await store.api_keys.add(first)
        record = encode({**key("mallory").to_record(), "id": first.id})
        with pytest.raises(KeyRefused, match=f"another key {first.id}"):
            await store.api_keys.add(ApiKey.of_record(decode(record)))
        assert (await store.api_keys.read()).keys == {first.id: first}

    async def test_there_may_be_so_many(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(kept_in_redis, "MOST_KEYS", 3)
        made = [key() for _ in range(3)]
        for each in made:
            await store.api_keys.add(each)
        with pytest.raises(KeyRefused, match="revoke those that have expired"):
            await store.api_keys.add(key())
        await store.api_keys.add(made[0])
        await store.api_keys.revoke(made[0].id)
        await store.api_keys.add(key())


class TestAnnounced:
    async def test_every_change_and_no_longer_than_one_listens(self, house: House) -> None:
        writer, reader = (await house.gateway()).store, (await house.gateway()).store
        told: list[int] = []
        await reader.api_keys.listen(lambda: told.append(1))
        made = key()
        await writer.api_keys.add(made)
        await wait_until(lambda: len(told) == 1, what="the reader hears of the new key")
        await writer.api_keys.revoke(made.id)
        await wait_until(lambda: len(told) == 2, what="the reader hears that it is gone")
        reader.subscriber._tell_gap()
        assert len(told) == 3, "something may have been missed"
        reader.api_keys.ignore()
        assert reader.subscriber.channels == 0
        reader.subscriber._tell_gap()
        assert len(told) == 3


@pytest.mark.parametrize("how", ["before", "between", "lost"])
class TestCut:
    async def test_an_addition_can_be_repeated(self, store: Store, how: How) -> None:
        made = key()
        cut = Cut(store.commit, at=1, how=how)
        with pytest.raises(StoreUnavailable):
            await store.api_keys.add(made)
        cut.heal()
        await store.api_keys.add(made)
        assert (await store.api_keys.read()).keys == {made.id: made}

    async def test_a_revocation_can_be_repeated(self, store: Store, how: How) -> None:
        made = key()
        await store.api_keys.add(made)
        await store.api_keys.read()
        cut = Cut(store.commit, at=1, how=how)
        with pytest.raises(StoreUnavailable):
            await store.api_keys.revoke(made.id)
        cut.heal()
        assert await store.api_keys.revoke(made.id) is (how == "before")
        assert (await store.api_keys.read()).keys == {}

    async def test_a_reading_that_fails_leaves_what_is_known(self, store: Store, how: How) -> None:
        await store.api_keys.add(key())
        await store.api_keys.read()
        await store.api_keys.add(key())
        for at in (1, 2):
            cut = Cut(store.reads, at=at, how=how)
            with pytest.raises(StoreUnavailable):
                await store.api_keys.read()
            cut.heal()
        assert len((await store.api_keys.read()).keys) == 2
