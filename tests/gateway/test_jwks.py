"""Keys are fetched beside the calls, and kept while their issuer is silent or talks nonsense."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from jwt.algorithms import ECAlgorithm

from switchroom.gateway.auth import jwks
from switchroom.gateway.auth.jwks import IssuerKeys, holds_for
from switchroom.gateway.auth.keyset import KeySet
from switchroom.protocol.errors import Unavailable
from switchroom.settings import Settings
from tests.support.issuer import (
    AUDIENCE,
    Issuer,
    Mood,
    issuer_at_work,
    jwk_of,
    rsa_key,
    without_tls,
)
from tests.support.wait import wait_until

TROUBLES: list[Mood] = [
    "hangs",
    "fails",
    "drips",
    "floods",
    "redirects",
    "garbage",
    "a list",
    "packed",
    "gone",
]
LIES: list[dict[str, Any]] = [
    {"discovery": {"issuer": "https://other.example"}},
    {"discovery": {"issuer": None}},
    {"discovery": {"jwks_uri": "http://keys.example/"}},
    {"discovery": {"jwks_uri": "file:///etc/passwd"}},
    {"discovery": {"jwks_uri": None}},
    {"published": {"keys": []}},
    {"published": {"keys": {}}},
    {"published": {}},
    {"published": {"keys": [{"kty": "oct", "kid": "first", "k": "c2VjcmV0", "alg": "HS256"}]}},
    {"published": {"keys": [{"kty": "RSA"}] * 101}},
]


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
async def issuer() -> AsyncIterator[Issuer]:
    async with issuer_at_work() as working:
        yield working


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    without_tls(monkeypatch)


@pytest.fixture
def how(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Mood | dict[str, Any]:
    """What the issuer does; where it says nothing, it is not waited for as long as usual."""
    found: Mood | dict[str, Any] = request.param
    if found in ("hangs", "drips"):
        monkeypatch.setattr(jwks, "_WHOLE", 0.3)
    return found


EVERY_HOW = pytest.mark.parametrize("how", [*TROUBLES, *LIES], ids=str, indirect=True)


def settings_of(issuer: Issuer, **more: Any) -> Settings:
    return Settings(**{"jwt_issuer": issuer.url, "jwt_audience": AUDIENCE, **more})


def keys_of(issuer: Issuer, *, pause: float = 0, clock: Clock | None = None) -> IssuerKeys:
    settings = settings_of(issuer)
    return IssuerKeys(settings, pause=timedelta(seconds=pause), clock=clock or Clock())


async def settled(keys: IssuerKeys) -> None:
    """Asks for what no issuer has, so that the keys are fetched."""
    try:
        await keys.find("no such key", "ES256")
    except Unavailable:
        pass


def behave(issuer: Issuer, how: Mood | dict[str, Any]) -> None:
    for name, value in ({"mood": how} if isinstance(how, str) else how).items():
        setattr(issuer, name, value)


async def test_keys_are_found_by_discovery_and_by_their_own_address(issuer: Issuer) -> None:
    by_address = settings_of(issuer, jwt_issuer=None, jwt_jwks_url=f"{issuer.url}/keys")
    for settings in (settings_of(issuer), by_address):
        keys = IssuerKeys(settings)
        async with keys.running():
            found = await keys.find("first", "ES256")
            assert found is not None
            assert found.key_id == "first"
            assert await keys.find("first", "RS256") is None
    assert issuer.asked == ["/.well-known/openid-configuration", "/keys", "/keys"]


async def test_the_issuer_may_have_a_slash_at_its_end(issuer: Issuer) -> None:
    issuer.discovery["issuer"] = f"{issuer.url}/"
    keys = IssuerKeys(settings_of(issuer, jwt_issuer=f"{issuer.url}/"))
    async with keys.running():
        assert await keys.find("first", "ES256")


@EVERY_HOW
async def test_whatever_the_issuer_does_calls_go_on_with_the_last_good_keys(
    issuer: Issuer, how: Mood | dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    keys = keys_of(issuer)
    async with keys.running():
        assert await keys.find("first", "ES256")
        behave(issuer, how)
        with pytest.raises(Unavailable):
            await keys.find("second", "ES256")
        assert await keys.find("first", "ES256")
        assert "/elsewhere" not in issuer.asked

        def told() -> bool:
            return "the last good ones are used" in caplog.text

        await wait_until(told, what="it is said")
        if how == "floods":
            await wait_until(issuer.cut.is_set, what="the flood is cut off")
            assert "answers more than 262144 bytes" in caplog.text
        if isinstance(how, dict) and "jwks_uri" in how.get("discovery", {}):
            assert "it says its keys are at" in caplog.text, "nobody has been asked there"


@EVERY_HOW
async def test_without_keys_a_call_is_told_to_come_back(
    issuer: Issuer, how: Mood | dict[str, Any]
) -> None:
    behave(issuer, how)
    keys = keys_of(issuer)
    async with keys.running():
        with pytest.raises(Unavailable) as caught:
            await keys.find("first", "ES256")
        assert caught.value.retry_after is not None
        issuer.mood, issuer.discovery, issuer.published = "well", {}, None
        await wait_until(lambda: _finds(keys), what="it has the keys")


async def test_a_call_does_not_wait_as_long_as_a_fetch_may_take(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jwks, "_WHOLE", 3600)
    monkeypatch.setattr(jwks, "_PATIENCE", 0.05)
    issuer.mood = "hangs"
    keys = keys_of(issuer)
    async with keys.running():
        with pytest.raises(Unavailable):
            await keys.find("first", "ES256")
        assert not issuer.cut.is_set()


async def _finds(keys: IssuerKeys) -> bool:
    try:
        return await keys.find("first", "ES256") is not None
    except Unavailable:
        return False


async def test_keys_that_cannot_be_fetched_are_believed_for_a_bounded_time(issuer: Issuer) -> None:
    clock = Clock()
    keys = keys_of(issuer, clock=clock)
    async with keys.running():
        assert await keys.find("first", "ES256")
        issuer.mood = "fails"
        clock.now += Settings().jwt_stale_limit.total_seconds()
        assert await keys.find("first", "ES256")
        clock.now += 1
        assert keys.known is None
        with pytest.raises(Unavailable):
            await keys.find("first", "ES256")
        issuer.mood = "well"
        assert await keys.find("first", "ES256")


async def test_an_unknown_key_is_asked_for_once_by_all_who_need_it(issuer: Issuer) -> None:
    keys = keys_of(issuer)
    async with keys.running():
        await keys.find("first", "ES256")
        issuer.rotate("second", keep=True)
        issuer.asked.clear()
        found = await asyncio.gather(*(keys.find("second", "ES256") for _ in range(50)))
    assert all(found)
    assert issuer.asked == ["/.well-known/openid-configuration", "/keys"]


async def test_tokens_with_invented_keys_do_not_make_us_ask_often(issuer: Issuer) -> None:
    clock = Clock()
    keys = keys_of(issuer, pause=10, clock=clock)
    async with keys.running():
        assert await keys.find("first", "ES256")
        issuer.asked.clear()
        clock.now += 9
        for number in range(50):
            assert await keys.find(f"../../{number}", "ES256") is None
        assert issuer.asked == []
        clock.now += 1
        for number in range(50):
            assert await keys.find(f"../../{number}", "ES256") is None
    assert len(issuer.asked) == 2


async def test_the_same_keys_are_the_same_object_and_others_another(issuer: Issuer) -> None:
    keys = keys_of(issuer)
    async with keys.running():
        await settled(keys)
        first = keys.known
        issuer.asked.clear()
        await settled(keys)
        assert issuer.asked
        assert keys.known is first
        issuer.rotate("second")
        await settled(keys)
        assert keys.known not in (None, first)
        assert await keys.find("first", "ES256") is None


async def test_they_are_fetched_again_in_time(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jwks, "_AGE", range(0, 1))
    issuer.headers["Cache-Control"] = "max-age=0"
    async with keys_of(issuer).running():
        await wait_until(lambda: issuer.asked.count("/keys") >= 3, what="it has asked three times")


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        ("", 300),
        ("no-cache", 300),
        ("max-age=120", 120),
        ("public, Max-Age=120, must-revalidate", 120),
        ("max-age=0", 60),
        ("max-age=-1", 300),
        ("max-age=99999999999999999999", 300),
        ("max-age=31536000", 900),
        ("s-maxage=120", 300),
        ("x-max-age=120", 300),
    ],
)
def test_how_long_they_hold_is_the_issuers_word_within_bounds(said: str, seconds: float) -> None:
    assert holds_for(said) == seconds


async def test_nothing_is_left_where_it_ends_while_the_issuer_hangs(issuer: Issuer) -> None:
    issuer.mood = "hangs"
    before = asyncio.all_tasks()
    async with keys_of(issuer).running():
        await wait_until(lambda: bool(issuer.asked), what="it has asked")
    issuer.cut.set()
    await wait_until(lambda: asyncio.all_tasks() <= before, what="all tasks have ended")


class TestKeySet:
    P256 = ec.generate_private_key(ec.SECP256R1())

    def usable(self, *found: Any) -> dict[str, bool]:
        """For which algorithms the only key may be used, by its id and without."""
        algorithms = ("RS256", "PS512", "ES256", "ES384", "ES512", "EdDSA")
        try:
            keys = KeySet({"keys": list(found)}, algorithms=algorithms)
        except ValueError:
            return {}
        named = {name: keys.find("k", name) is not None for name in algorithms}
        return {name: keys.find(None, name) is not None for name in named if named[name]}

    def test_a_key_is_for_the_algorithms_of_its_kind(self) -> None:
        assert self.usable(jwk_of(rsa_key(), kid="k")) == {"RS256": True, "PS512": True}
        assert self.usable(jwk_of(rsa_key(), kid="k", alg="PS512")) == {"PS512": True}
        assert self.usable(jwk_of(self.P256, kid="k")) == {"ES256": True}
        p384 = ec.generate_private_key(ec.SECP384R1())
        assert self.usable(jwk_of(p384, kid="k")) == {"ES384": True}
        p521 = ec.generate_private_key(ec.SECP521R1())
        assert self.usable(jwk_of(p521, kid="k")) == {"ES512": True}
        ed = ed25519.Ed25519PrivateKey.generate()
        assert self.usable(jwk_of(ed, kid="k", key_ops=["verify"])) == {"EdDSA": True}

    def test_a_token_that_names_no_key_means_the_only_one_there_is(self) -> None:
        other = ec.generate_private_key(ec.SECP256R1())
        rsa = jwk_of(rsa_key(), kid="r")
        assert self.usable(jwk_of(self.P256, kid="k"), rsa) == {"ES256": True}
        two = [jwk_of(self.P256, kid="k"), jwk_of(other, kid="l")]
        assert self.usable(*two) == {"ES256": False}
        assert self.usable(*two, jwk_of(other)) == {"ES256": False}

    @pytest.mark.parametrize(
        "members",
        [
            {"kty": "oct", "k": "c2VjcmV0"},
            {"kty": "OKP"},
            {"kty": None},
            {"use": "enc"},
            {"use": ["sig"]},
            {"key_ops": ["sign"]},
            {"key_ops": "verify"},
            {"alg": "HS256"},
            {"alg": "none"},
            {"alg": ["ES256"]},
            {"kid": 7},
            {"kid": ""},
            {"kid": "k" * 257},
            {"crv": "secp256k1"},
            {"crv": "P-384"},
            {"crv": None},
            {"crv": ["P-256"]},
            {"x": "AAAA"},
            {"x": 5},
            {"x": "\ud800"},
            {"x": None},
            {"d": "AAAA"},
        ],
        ids=str,
    )
    def test_another_is_left_out(self, members: dict[str, Any]) -> None:
        good = jwk_of(ec.generate_private_key(ec.SECP256R1()), kid="l", alg="ES256")
        bad = {**jwk_of(self.P256, kid="k", alg="ES256"), **members}
        keys = KeySet({"keys": [bad, None, "k", good]}, algorithms=["ES256", "RS256"])
        assert keys.find("k", "ES256") is None
        assert keys.find("l", "ES256") is not None

    @pytest.mark.parametrize(
        "members", [{"n": None}, {"e": None}, {"n": "AA"}, {"n": "€"}, {"e": "AA"}, {"n": 5}]
    )
    def test_and_a_broken_rsa_key_too(self, members: dict[str, Any]) -> None:
        assert self.usable({**jwk_of(rsa_key(), kid="k"), **members}) == {}

    def test_and_one_that_is_no_longer_secret(self) -> None:
        private = ECAlgorithm.to_jwk(self.P256, as_dict=True)
        assert "d" in private
        private.pop("key_ops", None)
        assert self.usable({**private, "kid": "k"}) == {}

    def test_nor_are_too_many_taken(self) -> None:
        key = jwk_of(self.P256, kid="k")
        assert self.usable(*[key] * 100)
        assert self.usable(*[key] * 101) == {}

    def test_and_a_weak_one(self) -> None:
        assert self.usable(jwk_of(rsa_key(bits=1024), kid="k")) == {}
