"""What makes a send a repeat, and that it then finds the same task."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

import pytest

from switchroom.store import Store
from switchroom.store.claims import Claim, claim_for
from switchroom.store.scripts import command
from tests.support.acts import intact, new_id, send_of

TTL = 60_000
OWNER = "/alice"


def claim(
    params: dict[str, Any] | None = None,
    *,
    message_id: str = "m1",
    key: str | None = None,
    method: str = "SendMessage",
    idempotency: Literal["request", "message-id", "header"] = "request",
) -> Claim:
    return claim_for(
        method,
        params or {"message": {"messageId": message_id}},
        message_id=message_id,
        key=key,
        idempotency=idempotency,
    )


class TestWhatMakesARepeat:
    def test_the_whole_request(self) -> None:
        first = claim({"a": 1, "b": {"c": [1, 2], "d": None}})
        assert claim({"b": {"d": None, "c": [1, 2]}, "a": 1}) == first
        for other in (
            claim({"a": 2, "b": {"c": [1, 2], "d": None}}),
            claim({"a": 1, "b": {"c": [2, 1], "d": None}}),
            claim({"a": 1, "b": {"c": [1, 2], "d": None}}, method="SendStreamingMessage"),
        ):
            assert other.digest != first.digest
        assert first.renewable and first.kept

    def test_a_key(self) -> None:
        first = claim({"a": 1}, key="k")
        assert claim({"a": 2}, key="k").digest == first.digest
        assert claim({"a": 2}, key="k").params != first.params
        assert claim({"a": 1}, key="l").digest != first.digest
        assert not first.renewable and first.kept
        for idempotency in ("request", "message-id", "header"):
            assert claim({"a": 1}, key="k", idempotency=idempotency) == first  # type: ignore[arg-type]

    def test_a_message_id_where_the_settings_say_so(self) -> None:
        first = claim({"a": 1}, idempotency="message-id")
        other = claim({"a": 2}, idempotency="message-id")
        assert other.digest == first.digest and other.params != first.params
        assert claim({}, message_id="m2", idempotency="message-id").digest != first.digest
        assert first.renewable

    def test_nothing_where_only_the_header_counts(self) -> None:
        first, second = (claim({"a": 1}, idempotency="header") for _ in range(2))
        assert first.digest != second.digest
        assert not first.kept

    def test_kinds_of_claims_do_not_meet(self) -> None:
        digests = {
            claim({}, message_id="x", key="x").digest,
            claim({}, message_id="x", idempotency="message-id").digest,
            claim({}, message_id="x").digest,
        }
        assert len(digests) == 3


class TestTaking:
    async def test_the_first_fixes_the_task(self, store: Store) -> None:
        mine = claim()
        ids = [new_id() for _ in range(10)]
        found = await asyncio.gather(
            *(store.commit(mine.take(store.keys, OWNER, task_id, TTL)) for task_id in ids)
        )
        held = [answer[0] for answer in found]
        assert held[0] is None
        assert held[1:] == [mine.value(ids[0]).encode()] * 9
        (left,) = await store.commit(command("PTTL", store.keys.claim(OWNER, mine.digest)))
        assert 0 < left <= TTL

    async def test_owners_do_not_share_claims(self, store: Store) -> None:
        mine = claim()
        for owner in ("/alice", "/bob", "tenant/alice"):
            assert await store.commit(mine.take(store.keys, owner, "t", TTL)) == [None]

    async def test_replacing_is_compare_and_set(self, store: Store) -> None:
        mine = claim()

        async def replace(held: str, task_id: str | None) -> str | None:
            call = mine.replace(store.keys, OWNER, mine.value(held), task_id, TTL)
            holds = (await store.commit(call))[0][2]
            return None if holds is None else holds.decode()

        await store.commit(mine.take(store.keys, OWNER, "old", TTL))
        assert await replace("older", "new") == mine.value("old")
        assert await replace("old", "new") == mine.value("new")
        assert await replace("old", "newer") == mine.value("new")
        (left,) = await store.commit(command("PTTL", store.keys.claim(OWNER, mine.digest)))
        assert 0 < left <= TTL

    async def test_one_that_has_expired_may_be_replaced(self, store: Store) -> None:
        mine = claim()
        call = mine.replace(store.keys, OWNER, mine.value("old"), "new", TTL)
        assert (await store.commit(call))[0][2] == mine.value("new").encode()

    async def test_taking_it_back_leaves_none_unless_it_is_anothers(self, store: Store) -> None:
        mine = claim()
        await store.commit(mine.take(store.keys, OWNER, "t", TTL))
        other = mine.replace(store.keys, OWNER, mine.value("other"), None, TTL)
        assert (await store.commit(other))[0][2] == mine.value("t").encode()
        back = mine.replace(store.keys, OWNER, mine.value("t"), None, TTL)
        for _ in range(2):
            assert (await store.commit(back))[0][2] is None
        assert await store.commit(mine.take(store.keys, OWNER, "u", TTL)) == [None]


async def test_ten_identical_sends_make_one_task(store: Store) -> None:
    mine = claim()

    async def send() -> str:
        task_id = new_id()
        (held,) = await store.commit(mine.take(store.keys, OWNER, task_id, TTL))
        task_id = held.decode().split()[0] if held else task_id
        accepted = await store.tasks.accept(
            send_of(store, task_id, digest=mine.digest, owner=OWNER),
            then=[store.queue.enqueueing(task_id, 1)],
        )
        assert accepted.outcome in ("new", "known") and accepted.turn == 1
        return task_id

    made = set(await asyncio.gather(*(send() for _ in range(10))))
    assert len(made) == 1
    assert await store.queue.depth() == 1
    await intact(store, made.pop())


@pytest.mark.parametrize("idempotency", ["request", "message-id", "header"])
def test_digests_are_short_whatever_is_sent(idempotency: Any) -> None:
    large = {"x" * 10_000: ["ä" * 10_000], "n": 10**300}
    for key in (None, "k" * 1_000):
        made = claim(large, message_id="m" * 10_000, key=key, idempotency=idempotency)
        assert len(made.digest) == len(made.params) == 32
