"""A token tells who calls only if an issuer's key has signed it, for us, and for now."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import httpx
import jwt
import pytest
import pytest_asyncio
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from hypothesis import given
from hypothesis import strategies as st
from jwt import PyJWK

from switchroom.gateway.app import create_app
from switchroom.gateway.auth.caller import ORDINARY, Caller, Request
from switchroom.gateway.auth.jwks import IssuerKeys
from switchroom.gateway.auth.jwt import JwtBearer
from switchroom.gateway.auth.keyset import KeySet
from switchroom.gateway.context import CallContext
from switchroom.protocol.errors import AuthenticationFailed
from switchroom.protocol.methods import SCOPES
from switchroom.protocol.model import Json
from switchroom.settings import Settings
from tests.support.gateways import V1, Witness, call, card_of, client_of
from tests.support.issuer import AUDIENCE, Issuer, issuer_at_work, jwk_of, rsa_key, without_tls
from tests.support.wait import wait_until

HOUR = 3600
ALGORITHMS = ("RS256", "PS256", "ES256", "ES384", "ES512", "EdDSA")
KEYS: dict[str, Any] = {
    "RS256": rsa_key(),
    "PS256": rsa_key(1),
    "ES256": ec.generate_private_key(ec.SECP256R1()),
    "ES384": ec.generate_private_key(ec.SECP384R1()),
    "ES512": ec.generate_private_key(ec.SECP521R1()),
    "EdDSA": ed25519.Ed25519PrivateKey.generate(),
}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    without_tls(monkeypatch)


@pytest.fixture
async def issuer() -> AsyncIterator[Issuer]:
    async with issuer_at_work() as working:
        working.keys = {name: (name, key) for name, key in KEYS.items()}
        yield working


def settings_of(issuer: Issuer, **more: Any) -> Settings:
    usual = {"jwt_issuer": issuer.url, "jwt_audience": AUDIENCE, "jwt_algorithms": ALGORITHMS}
    return Settings(**{**usual, **more})


@asynccontextmanager
async def served(settings: Settings, handler: Witness) -> AsyncIterator[httpx.AsyncClient]:
    card = card_of(streaming=True, pushNotifications=True)
    app = create_app(settings, handler=handler, card=card)
    async with app.router.lifespan_context(app), client_of(app) as client:
        yield client


def bears(token: str | bytes) -> dict[str, Any]:
    raw = token.encode() if isinstance(token, str) else token
    return {**V1, "Authorization": b"Bearer " + raw}


async def contexts_of(
    issuer: Issuer, *tokens: str, status: int = 200, **settings: Any
) -> list[CallContext]:
    """How the handler sees the callers of these tokens."""
    handler = Witness()
    async with served(settings_of(issuer, **settings), handler) as client:
        for token in tokens:
            response = await call(client, "GetTask", {"id": "t"}, headers=bears(token))
            assert response.status_code == status, response.text
    return handler.contexts


@pytest.mark.parametrize("algorithm", ALGORITHMS)
async def test_a_good_one_names_its_subject(issuer: Issuer, algorithm: str) -> None:
    issuer.keys[algorithm] = issuer.keys.pop(algorithm)
    (context,) = await contexts_of(issuer, issuer.token())
    assert (context.caller, context.tenant) == ("alice", "")
    assert context.scopes == ORDINARY
    assert context.credential == f"jwt:{algorithm}"


async def test_the_scheme_is_spelled_as_one_likes_and_another_is_not_ours(issuer: Issuer) -> None:
    handler, token = Witness(), issuer.token()
    async with served(settings_of(issuer), handler) as client:
        for scheme, status in (("bearer", 200), ("BEARER ", 200), ("Basic", 401), ("JWT", 401)):
            headers = {**V1, "Authorization": f"{scheme} {token}"}
            response = await call(client, "GetTask", {"id": "t"}, headers=headers)
            assert response.status_code == status
        assert response.json()["error"]["message"] == "Authentication required"
        bare = await call(client, "GetTask", {"id": "t"}, headers={**V1, "Authorization": "Bearer"})
        assert bare.json()["error"]["message"] == "Authentication failed"


HEAD = {"alg": "EdDSA", "kid": "EdDSA"}


def b64(value: bytes | dict[str, Any] | list[Any]) -> str:
    raw = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def hand_made(issuer: Issuer, head: Any, claims: Any = None, **more: Any) -> str:
    """Whatever these are, well signed by the issuer's EdDSA key."""
    text = b64(head) + "." + b64(issuer.claims(**more) if claims is None else claims)
    return f"{text}.{b64(KEYS['EdDSA'].sign(text.encode()))}"


def unsigned(issuer: Issuer, alg: str) -> str:
    return f"{b64({'alg': alg, 'kid': 'EdDSA'})}.{b64(issuer.claims())}."


def confused(issuer: Issuer, secret: bytes, kid: str = "RS256", alg: str = "HS256") -> str:
    """Signed with what is public as if it were a secret."""
    text = b64({"alg": alg, "kid": kid}) + "." + b64(issuer.claims())
    return f"{text}.{b64(hmac.new(secret, text.encode(), hashlib.sha256).digest())}"


def pem(key: Any) -> bytes:
    public: bytes = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return public


def forged(issuer: Issuer, **head: Any) -> str:
    """By a key of the forger, with these members in its header."""
    key = ed25519.Ed25519PrivateKey.generate()
    own = {"jwk": jwk_of(key), "kid": "EdDSA", **head}
    return jwt.encode(issuer.claims(), key, algorithm="EdDSA", headers=own)


def changed(token: str, part: int, value: str) -> str:
    parts = token.split(".")
    parts[part] = value
    return ".".join(parts)


def now() -> int:
    return int(time.time())


FORGED: dict[str, Callable[[Issuer], str | bytes]] = {
    # algorithms
    "alg none": lambda i: unsigned(i, "none"),
    "alg None": lambda i: unsigned(i, "None"),
    "alg empty": lambda i: unsigned(i, ""),
    "none with a signature": lambda i: changed(i.token(), 0, b64({"alg": "none", "kid": "EdDSA"})),
    "without alg": lambda i: hand_made(i, {"kid": "EdDSA"}),
    "alg a list": lambda i: hand_made(i, {"alg": ["EdDSA"], "kid": "EdDSA"}),
    "alg null": lambda i: hand_made(i, {"alg": None, "kid": "EdDSA"}),
    "alg twice": lambda i: hand_made(i, b'{"alg":"EdDSA","kid":"EdDSA","alg":"none"}'),
    "HS256 by the public key": lambda i: confused(i, pem(KEYS["RS256"])),
    "HS256 by the modulus": lambda i: confused(i, jwk_of(KEYS["RS256"])["n"].encode()),
    "HS256 by nothing": lambda i: confused(i, b""),
    "RS256 that is HS256": lambda i: confused(i, pem(KEYS["RS256"]), alg="RS256"),
    "EdDSA that is HS256": lambda i: confused(i, pem(KEYS["EdDSA"]), "EdDSA", alg="EdDSA"),
    "not allowed": lambda i: jwt.encode(
        i.claims(), KEYS["RS256"], algorithm="RS512", headers={"kid": "RS256"}
    ),
    "another algorithm of the key's kind": lambda i: jwt.encode(
        i.claims(), KEYS["RS256"], algorithm="PS256", headers={"kid": "RS256"}
    ),
    # keys
    "a stranger's key": lambda i: forged(i),
    "a key of another kind": lambda i: i.token(head={"kid": "RS256"}),
    "unknown kid": lambda i: i.token(head={"kid": "EdDSA2"}),
    "kid a path": lambda i: forged(i, kid="../../../../dev/null"),
    "kid a URL": lambda i: forged(i, kid="https://evil.example/keys"),
    "kid of SQL": lambda i: forged(i, kid="x' UNION SELECT 'key"),
    "kid with a line": lambda i: forged(i, kid="EdDSA\r\nX: y"),
    "kid empty": lambda i: i.token(head={"kid": ""}),
    "kid a number": lambda i: hand_made(i, {"alg": "EdDSA", "kid": 1}),
    "kid a list": lambda i: hand_made(i, {"alg": "EdDSA", "kid": ["EdDSA"]}),
    "jku": lambda i: forged(i, jku="https://evil.example/keys"),
    "x5u": lambda i: forged(i, x5u="https://evil.example/cert"),
    "x5c": lambda i: forged(i, x5c=[b64(b"cert")]),
    "crit": lambda i: i.token(head={"crit": ["exp"], "exp": 1}),
    "crit b64": lambda i: i.token(head={"crit": ["b64"]}),
    "crit b64 that is there": lambda i: hand_made(i, {**HEAD, "crit": ["b64"], "b64": True}),
    "crit empty": lambda i: hand_made(i, {"alg": "EdDSA", "kid": "EdDSA", "crit": []}),
    "b64 false": lambda i: hand_made(i, {"alg": "EdDSA", "kid": "EdDSA", "b64": False}),
    # signature and form
    "no signature": lambda i: changed(i.token(), 2, ""),
    "other claims": lambda i: changed(i.token(), 1, b64(i.claims(sub="root"))),
    "signature cut": lambda i: i.token()[:-4],
    "signature of another": lambda i: changed(i.token(), 2, i.token(sub="bob").split(".")[2]),
    "one part": lambda i: i.token().partition(".")[0],
    "two parts": lambda i: i.token().rpartition(".")[0],
    "four parts": lambda i: i.token() + "." + i.token().split(".")[2],
    "five parts": lambda i: f"{b64({'alg': 'dir', 'enc': 'A256GCM'})}.a.b.c.d",
    "twice": lambda i: f"{i.token()} {i.token()}",
    "two by a comma": lambda i: f"{i.token()},{i.token()}",
    "empty": lambda i: "",
    "dots": lambda i: "..",
    "bad base64": lambda i: "!" + i.token(),
    "base64 of another alphabet": lambda i: i.token().replace(".", "+.", 1),
    "bytes": lambda i: b"\xff\xfe.\x00.\xff",
    "head no JSON": lambda i: hand_made(i, b"{"),
    "head a list": lambda i: hand_made(i, []),
    "head deep": lambda i: hand_made(i, b"[" * 3000),
    "claims no JSON": lambda i: hand_made(i, HEAD, b"{"),
    "claims a list": lambda i: hand_made(i, HEAD, []),
    "claims deep": lambda i: hand_made(i, HEAD, b"[" * 5000),
    "claims not UTF-8": lambda i: hand_made(i, HEAD, b'{"a":"\xff"}'),
    "huge": lambda i: i.token(more="x" * 8192),
    "huge of nothing": lambda i: "a" * 60_000,
    "dots without end": lambda i: "." * 60_000,
    # audience and issuer
    "wrong audience": lambda i: i.token(aud="other"),
    "no audience": lambda i: i.token(aud=None),
    "empty audience": lambda i: i.token(aud=""),
    "empty audiences": lambda i: i.token(aud=[]),
    "part of the audience": lambda i: i.token(aud="switch"),
    "audience of more": lambda i: i.token(aud=[AUDIENCE, 7]),
    "audience an object": lambda i: i.token(aud={AUDIENCE: 1}),
    "audience true": lambda i: i.token(aud=True),
    "wrong issuer": lambda i: hand_made(i, HEAD, iss="https://evil.example"),
    "issuer with more": lambda i: i.token(iss=f"{i.url}/"),
    "no issuer": lambda i: i.token(iss=None),
    "issuer a list": lambda i: hand_made(i, HEAD, iss=[i.url]),
    # times
    "expired": lambda i: i.token(exp=now() - 31),
    "expired long ago": lambda i: i.token(exp=0),
    "expired before time": lambda i: i.token(exp=-1),
    "no exp": lambda i: i.token(exp=None),
    "exp true": lambda i: hand_made(i, HEAD, exp=True),
    "exp a text": lambda i: hand_made(i, HEAD, exp=str(now() + HOUR)),
    "exp a list": lambda i: hand_made(i, HEAD, exp=[now() + HOUR]),
    "exp NaN": lambda i: hand_made(i, HEAD, exp=float("nan")),
    "exp Infinity": lambda i: hand_made(i, HEAD, exp=float("inf")),
    "exp beyond numbers": lambda i: hand_made(i, HEAD, exp=10**400),
    "not yet valid": lambda i: i.token(nbf=now() + 60),
    "nbf a text": lambda i: hand_made(i, HEAD, nbf="0"),
    "nbf false": lambda i: hand_made(i, HEAD, nbf=False),
    "made in the future": lambda i: i.token(iat=now() + HOUR),
    # who
    "no subject": lambda i: i.token(sub=None),
    "empty subject": lambda i: i.token(sub=""),
    "subject a number": lambda i: hand_made(i, HEAD, sub=7),
    "subject a list": lambda i: hand_made(i, HEAD, sub=["alice"]),
    "subject too long": lambda i: i.token(sub="x" * 257),
    "subject of lines": lambda i: i.token(sub="alice\nroot"),
    "subject of zeros": lambda i: i.token(sub="alice\0"),
    "subject of half a character": lambda i: hand_made(i, HEAD, sub="\ud800"),
    "scope a number": lambda i: i.token(scope=7),
    "scope an object": lambda i: i.token(scope={"admin": True}),
}


Served = tuple[Issuer, httpx.AsyncClient, Witness]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def one_gateway() -> AsyncIterator[Served]:
    handler = Witness()
    with pytest.MonkeyPatch.context() as patch:
        without_tls(patch)
        async with issuer_at_work() as issuer:
            issuer.keys = {name: (name, key) for name, key in KEYS.items()}
            async with served(settings_of(issuer), handler) as client:
                yield issuer, client, handler


@pytest.mark.asyncio(loop_scope="session")
class TestForged:
    @pytest.mark.parametrize("name", FORGED)
    async def test_is_refused_and_not_told_why(self, one_gateway: Served, name: str) -> None:
        issuer, client, handler = one_gateway
        token = FORGED[name](issuer)
        response = await call(client, "GetTask", {"id": "t"}, headers=bears(token))
        assert response.status_code == 401
        assert response.json()["error"]["message"] == "Authentication failed"
        assert response.headers.get_list("www-authenticate") == [
            'Bearer realm="a2a", error="invalid_token"'
        ]
        assert handler.contexts == []
        assert set(issuer.asked) <= {"/.well-known/openid-configuration", "/keys"}

    async def test_and_a_good_one_is_not(self, one_gateway: Served) -> None:
        issuer, client, handler = one_gateway
        for token in (issuer.token(), hand_made(issuer, HEAD)):
            await call(client, "GetTask", {"id": "t"}, headers=bears(token))
        assert len(handler.contexts) == 2
        handler.contexts.clear()


@pytest.mark.parametrize(
    ("claims", "scopes"),
    [
        ({}, ORDINARY),
        ({"scope": ""}, ORDINARY),
        ({"scope": "openid profile"}, ORDINARY),
        ({"scope": "openid tasks:read"}, {"tasks:read"}),
        ({"scope": "tasks:send  tasks:read"}, {"tasks:send", "tasks:read"}),
        ({"scope": "admin"}, {"admin"}),
        ({"scp": "tasks:read push:write"}, {"tasks:read", "push:write"}),
        ({"scp": ["tasks:read", "other", 7]}, {"tasks:read"}),
        ({"scp": []}, ORDINARY),
        ({"scope": "tasks:read", "scp": ["admin"]}, {"tasks:read"}),
        ({"scope": "xtasks:read tasks:reads admins TASKS:SEND"}, ORDINARY),
    ],
)
async def test_what_it_allows_is_in_its_scopes(
    issuer: Issuer, claims: Json, scopes: frozenset[str]
) -> None:
    handler = Witness()
    async with served(settings_of(issuer), handler) as client:
        await call(client, "GetExtendedAgentCard", headers=bears(issuer.token(**claims)))
        await call(client, "GetTask", {"id": "t"}, headers=bears(issuer.token(**claims)))
    assert {context.scopes for context in handler.contexts} <= {frozenset(scopes)}
    assert scopes <= SCOPES
    assert bool(handler.contexts) == bool(scopes & {"tasks:read", "admin"})


class TestTenant:
    async def test_is_in_the_claim_that_is_set(self, issuer: Issuer) -> None:
        claim = "https://example.com/tenant"
        token = issuer.token(**{claim: "acme"})
        (context,) = await contexts_of(issuer, token, jwt_tenant_claim=claim)
        assert (context.tenant, context.caller) == ("acme", "alice")
        (context,) = await contexts_of(issuer, token)
        assert context.tenant == ""

    @pytest.mark.parametrize("tenant", [None, "", 7, ["acme"], "a\nb", "x" * 257, "\ud800"])
    async def test_a_token_without_one_is_refused(self, issuer: Issuer, tenant: Any) -> None:
        token = hand_made(issuer, HEAD, org=tenant)
        assert await contexts_of(issuer, token, status=401, jwt_tenant_claim="org") == []


async def test_an_audience_may_be_one_of_several(issuer: Issuer) -> None:
    assert await contexts_of(issuer, issuer.token(aud=["other", AUDIENCE]))


async def test_clocks_may_differ_a_little(issuer: Issuer) -> None:
    tokens = (issuer.token(exp=now() - 20), issuer.token(nbf=now() + 20, iat=now() + 20))
    assert len(await contexts_of(issuer, *tokens)) == 2
    assert await contexts_of(issuer, *tokens, status=401, jwt_leeway=timedelta(0)) == []


async def test_times_may_have_fractions(issuer: Issuer) -> None:
    assert await contexts_of(issuer, issuer.token(exp=now() + 60.5, nbf=now() - 0.5))


async def test_without_an_issuer_the_key_alone_counts(issuer: Issuer) -> None:
    settings = {"jwt_issuer": None, "jwt_jwks_url": f"{issuer.url}/keys"}
    tokens = (issuer.token(iss="https://other.example"), issuer.token(iss=None))
    assert len(await contexts_of(issuer, *tokens, **settings)) == 2
    assert issuer.asked == ["/keys"]


async def test_with_both_the_issuer_is_checked_and_nothing_is_discovered(issuer: Issuer) -> None:
    settings = {"jwt_jwks_url": f"{issuer.url}/keys"}
    assert await contexts_of(issuer, issuer.token(), **settings)
    assert await contexts_of(issuer, issuer.token(iss="x"), status=401, **settings) == []
    assert set(issuer.asked) == {"/keys"}


class Clock:
    def __init__(self) -> None:
        self.now = time.time()

    def __call__(self) -> float:
        return self.now


def head_of(token: str) -> Request:
    return Request({b"authorization": f"Bearer {token}".encode()}, "")


class TestRemembered:
    """What a token has proved holds until it ends, or the keys change; nothing is read again."""

    @pytest.fixture
    def decoded(self, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
        """A line for each token whose signature has been looked at."""
        seen: list[Any] = []
        real = jwt.decode

        def decode(*args: Any, **kwargs: Any) -> Any:
            seen.append(args)
            return real(*args, **kwargs)

        monkeypatch.setattr(jwt, "decode", decode)
        return seen

    async def test_until_it_ends(self, issuer: Issuer, decoded: list[Any]) -> None:
        clock = Clock()
        way = JwtBearer(settings_of(issuer), clock=clock)
        request = head_of(issuer.token(exp=int(clock.now) + 60))
        async with way.running(None):
            for _ in range(5):
                assert await way.caller(request) == Caller("alice", credential="jwt:EdDSA")
            assert len(decoded) <= 2, "the first one has waited for the keys"
            clock.now += 89
            assert await way.caller(request)
            assert len(decoded) <= 2
            clock.now += 2
            with pytest.raises(AuthenticationFailed):
                await way.caller(request)

    async def test_until_the_keys_change(self, issuer: Issuer, decoded: list[Any]) -> None:
        settings = settings_of(issuer)
        keys = IssuerKeys(settings, pause=timedelta(0))
        way = JwtBearer(settings, keys=keys)
        old = head_of(issuer.token())
        async with way.running(None):
            assert await way.caller(old)
            issuer.rotate("second", keep=True)
            assert await way.caller(head_of(issuer.token(sub="bob")))
            assert await way.caller(old), "its key is still there"
            del issuer.keys["EdDSA"]
            issuer.rotate("third", keep=True)
            assert await way.caller(head_of(issuer.token(sub="bob")))
            with pytest.raises(AuthenticationFailed):
                await way.caller(old)

    async def test_but_not_when_the_keys_are_too_old(self, issuer: Issuer) -> None:
        clock = Clock()
        settings = settings_of(issuer)
        way = JwtBearer(settings, keys=IssuerKeys(settings, clock=clock))
        request = head_of(issuer.token(exp=now() + 48 * HOUR))
        async with way.running(None):
            for _ in range(3):
                assert await way.caller(request)
            asked = len(issuer.asked)
            clock.now += 25 * HOUR
            assert await way.caller(request)
            assert len(issuer.asked) > asked

    async def test_and_only_so_many(
        self, issuer: Issuer, decoded: list[Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("switchroom.gateway.auth.jwt._REMEMBERED", 2)
        way = JwtBearer(settings_of(issuer))
        first, second, third = (head_of(issuer.token(sub=name)) for name in ("a", "b", "c"))
        async with way.running(None):
            for request in (third, first, second, first):
                await way.caller(request)
            decoded.clear()
            await way.caller(third)  # in place of the second, which was not used last
            await way.caller(first)
            assert len(decoded) == 1
            await way.caller(second)
            assert len(decoded) == 2


async def test_a_rotated_key_is_found_and_the_old_one_no_longer_good(issuer: Issuer) -> None:
    settings = settings_of(issuer)
    keys = IssuerKeys(settings, pause=timedelta(0))
    way = JwtBearer(settings, keys=keys)
    async with way.running(None):
        await wait_until(lambda: keys.known is not None, what="the keys are there")
        before = head_of(issuer.token())
        for number in range(5):
            after = head_of(issuer.token())
            assert await way.caller(after)
            issuer.rotate(f"key {number}")
        assert await way.caller(head_of(issuer.token()))
        with pytest.raises(AuthenticationFailed):
            await way.caller(before)


async def test_where_the_issuer_is_away_calls_with_a_token_get_503(issuer: Issuer) -> None:
    issuer.mood = "fails"
    handler = Witness()
    async with served(settings_of(issuer), handler) as client:
        response = await call(client, "GetTask", {"id": "t"}, headers=bears(issuer.token()))
        assert response.status_code == 503
        assert int(response.headers["retry-after"]) > 0
        bad = await call(client, "GetTask", {"id": "t"}, headers=bears(unsigned(issuer, "none")))
        assert bad.status_code == 401
        assert (await call(client, "GetTask", {"id": "t"})).status_code == 401
        assert (await client.get("/.well-known/agent-card.json")).status_code == 200


class TestCard:
    async def scheme(self, settings: Settings) -> Json:
        app = create_app(settings, handler=Witness(), card=card_of())
        async with client_of(app) as client:
            card: Json = (await client.get("/.well-known/agent-card.json")).json()
        (name,) = card["securitySchemes"]
        assert card["securityRequirements"] == [{"schemes": {name: {}}}]
        assert card["security"] == [{name: []}]
        scheme: Json = card["securitySchemes"][name]
        return scheme

    async def test_says_where_the_issuer_can_be_discovered(self) -> None:
        settings = Settings(jwt_issuer="https://login.example/", jwt_audience="a")
        url = "https://login.example/.well-known/openid-configuration"
        scheme = await self.scheme(settings)
        assert scheme["openIdConnectSecurityScheme"] == {"openIdConnectUrl": url}
        assert (scheme["type"], scheme["openIdConnectUrl"]) == ("openIdConnect", url)

    async def test_or_that_a_token_is_wanted(self) -> None:
        settings = Settings(jwt_jwks_url="https://login.example/keys", jwt_audience="a")
        scheme = await self.scheme(settings)
        assert scheme["httpAuthSecurityScheme"] == {"scheme": "Bearer", "bearerFormat": "JWT"}
        assert (scheme["type"], scheme["scheme"]) == ("http", "Bearer")


class Known(IssuerKeys):
    """Keys that need no issuer."""

    published = KeySet(
        {"keys": [jwk_of(key, kid=name, alg=name) for name, key in KEYS.items()]},
        algorithms=ALGORITHMS,
    )

    @property
    def known(self) -> KeySet:
        return self.published

    async def find(self, key_id: str | None, algorithm: str) -> PyJWK | None:
        return self.published.find(key_id, algorithm)


def way_of_known_keys() -> JwtBearer:
    url = "https://login.example"
    settings = Settings(jwt_audience=AUDIENCE, jwt_issuer=url, jwt_algorithms=ALGORITHMS)
    return JwtBearer(settings, keys=Known(settings))


PARTS = st.one_of(
    st.binary(max_size=60).map(b64),
    st.text(max_size=30),
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=9),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["alg", "kid", "exp", "sub", "crit"]), inner)
        ),
        max_leaves=8,
    ).map(lambda value: b64(json.dumps(value).encode())),
    st.sampled_from([b64({"alg": name, "kid": name}) for name in ALGORITHMS]),
)


@given(st.lists(PARTS, max_size=5).map(".".join) | st.text(max_size=99))
async def test_nothing_else_gets_in_or_breaks_it(token: str) -> None:
    with pytest.raises(AuthenticationFailed):
        await way_of_known_keys().caller(head_of(token))


ANYTHING = st.one_of(
    st.none(),
    st.booleans(),
    st.floats(),
    st.integers(),
    st.text(max_size=9),
    st.lists(st.integers(), max_size=2),
)
SOME = st.sampled_from(["exp", "nbf", "iat", "sub", "aud", "iss", "jti", "scope", "scp"])


@given(st.dictionaries(SOME, ANYTHING))
async def test_whatever_a_good_key_has_signed_names_somebody_or_nobody(claims: Json) -> None:
    issuer = Issuer("https://login.example")
    token = hand_made(issuer, HEAD, {**issuer.claims(), **claims})
    try:
        caller = await way_of_known_keys().caller(head_of(token))
    except AuthenticationFailed:
        return
    assert caller is not None
    assert isinstance(caller.principal, str)
