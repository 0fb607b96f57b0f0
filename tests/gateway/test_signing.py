"""Signed cards: verified by the official SDK, and by whoever takes the JSON as it is."""

from __future__ import annotations

import base64
import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
import rfc8785
from a2a.client.card_resolver import A2ACardResolver, parse_agent_card
from a2a.utils.signing import InvalidSignaturesError, create_signature_verifier
from cryptography.hazmat.primitives.asymmetric import dsa, ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from jwt import PyJWK, api_jws
from starlette.applications import Starlette

from switchroom.gateway.app import create_app
from switchroom.gateway.card import CARD_PATH, KEYS_PATH, load_card
from switchroom.gateway.card_files import CardError
from switchroom.gateway.signing import Signer
from switchroom.settings import Settings, SettingsError
from switchroom.signing_keys import key_set_of
from tests.gateway.v03.test_card import CARD as FULL
from tests.support.gateways import client_of

Card = dict[str, Any]
PUBLIC = "https://agents.example.com/echo"

MAKE: dict[str, Callable[[], Any]] = {
    "ES256": lambda: ec.generate_private_key(ec.SECP256R1()),
    "EdDSA": ed25519.Ed25519PrivateKey.generate,
    "RS256": lambda: rsa.generate_private_key(65537, 2048),
}

# With all that canonical forms differ about: what is empty, what is default, text, numbers.
CARD: Card = {name: value for name, value in FULL.items() if name != "signatures"}
CARD["description"] = 'Grüße, 世界 \U0001f600 \u2028 "quoted" \\ \u0007'
CARD["capabilities"] = {
    "streaming": False,
    "extendedAgentCard": True,
    "extensions": [
        {
            "uri": "urn:x",
            "required": False,
            "description": "",
            "params": {
                "ratio": 0.1,
                "big": 1e21,
                "three": 3.0,
                "none": None,
                "empty": {},
                "é": "",
                "\U0001f600": 1,
            },
        }
    ],
}
CARD["skills"] = [{**CARD["skills"][0], "examples": [], "tags": ["demo"]}]


def written(folder: Path, algorithm: str = "ES256", *, name: str = "key.pem") -> str:
    key = MAKE[algorithm]()
    path = folder / name
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return str(path)


def app_of(folder: Path, *keys: str, card: Card = CARD, **settings: Any) -> Starlette:
    file = folder / "card.json"
    file.write_text(json.dumps(card))
    made = Settings(card=str(file), card_keys=keys, public_url=PUBLIC, **settings)
    return create_app(made)


async def served(app: Starlette) -> tuple[Card, Card]:
    """The card and the key set."""
    async with client_of(app) as http:
        card, keys = await http.get(CARD_PATH), await http.get(KEYS_PATH)
    assert keys.headers["content-type"] == "application/json"
    return card.json(), keys.json()


def key_of(keys: Card, kid: str | None) -> PyJWK:
    (found,) = [key for key in keys["keys"] if key["kid"] == kid]
    return PyJWK(found)


def verify(card: Card, keys: Card) -> None:
    """As the official client does; raises InvalidSignaturesError."""
    check = create_signature_verifier(lambda kid, jku: key_of(keys, kid), [*MAKE])
    check(parse_agent_card(copy.deepcopy(card)))


def verifies_as_it_is(card: Card, keys: Card) -> bool:
    """Whether a signature is over the JSON as it came, whatever its fields are."""
    payload = rfc8785.dumps({name: each for name, each in card.items() if name != "signatures"})
    encoded = base64.urlsafe_b64encode(payload).rstrip(b"=").decode()
    for signature in card["signatures"]:
        header = json.loads(base64.urlsafe_b64decode(signature["protected"] + "=="))
        token = f"{signature['protected']}.{encoded}.{signature['signature']}"
        try:
            api_jws.decode(token, key_of(keys, header["kid"]), [header["alg"]])
            return True
        except api_jws.InvalidSignatureError:
            continue
    return False


@pytest.mark.parametrize("versions", [("1.0",), ("0.3", "1.0")])
@pytest.mark.parametrize("algorithm", MAKE)
async def test_the_official_client_accepts_a_card_as_it_is_served(
    tmp_path: Path, algorithm: str, versions: tuple[str, ...]
) -> None:
    app = app_of(tmp_path, written(tmp_path, algorithm), protocol_versions=versions)
    card, keys = await served(app)
    verify(card, keys)
    assert verifies_as_it_is(card, keys)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app)) as http:
        check = create_signature_verifier(lambda kid, jku: key_of(keys, kid), [algorithm])
        resolver = A2ACardResolver(http, "http://gateway.test")
        assert (await resolver.get_agent_card(signature_verifier=check)).name == CARD["name"]


async def test_a_changed_card_is_not_accepted(tmp_path: Path) -> None:
    card, keys = await served(app_of(tmp_path, written(tmp_path)))
    for change in (
        {"name": "Eve"},
        {"supportedInterfaces": [{**card["supportedInterfaces"][0], "url": "https://evil.test/"}]},
        {"securityRequirements": [], "security": []},
    ):
        with pytest.raises(InvalidSignaturesError):
            verify({**card, **change}, keys)
        assert not verifies_as_it_is({**card, **change}, keys)
    for name in ("url", "additionalInterfaces"):  # what only a reader of 0.3 looks at
        assert not verifies_as_it_is({**card, name: "https://evil.test/"}, keys)


async def test_with_another_key_it_is_not_accepted(tmp_path: Path) -> None:
    card, _ = await served(app_of(tmp_path, written(tmp_path)))
    _, others = await served(app_of(tmp_path, written(tmp_path, name="other.pem")))
    for key in others["keys"]:
        key["kid"] = key_set_of(Signer([str(tmp_path / "key.pem")]).keys)["keys"][0]["kid"]
    with pytest.raises(InvalidSignaturesError):
        verify(card, others)


async def test_the_header_says_who_signed_and_where_the_key_is(tmp_path: Path) -> None:
    card, keys = await served(app_of(tmp_path, written(tmp_path)))
    for signature in card["signatures"]:
        header = json.loads(base64.urlsafe_b64decode(signature["protected"] + "=="))
        assert header == {
            "alg": "ES256",
            "typ": "JOSE",
            "kid": keys["keys"][0]["kid"],
            "jku": f"{PUBLIC}{KEYS_PATH}",
        }
    (key,) = keys["keys"]
    assert key.keys() == {"kty", "crv", "x", "y", "kid", "alg", "use"}, "nothing private"


def test_a_key_is_known_by_its_thumbprint(tmp_path: Path) -> None:
    # RFC 8037 A.1 to A.3: a key, and its name.
    seed = base64.urlsafe_b64decode("nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A=")
    key = ed25519.Ed25519PrivateKey.from_private_bytes(seed)
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (tmp_path / "key.pem").write_bytes(pem)
    (public,) = key_set_of(Signer([str(tmp_path / "key.pem")]).keys)["keys"]
    assert public["x"] == "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"
    assert public["kid"] == "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k"


@pytest.mark.parametrize("algorithm", MAKE)
async def test_every_gateway_signs_alike(tmp_path: Path, algorithm: str) -> None:
    key = written(tmp_path, algorithm)
    one, two = [await served(app_of(tmp_path, key)) for _ in range(2)]
    assert one == two


async def test_while_keys_change_each_signs(tmp_path: Path) -> None:
    old, new = written(tmp_path, name="old.pem"), written(tmp_path, "EdDSA", name="new.pem")
    card, keys = await served(app_of(tmp_path, new, old))
    for known in keys["keys"]:
        signed_by = [
            signature
            for signature in card["signatures"]
            if known["kid"] in base64.urlsafe_b64decode(signature["protected"] + "==").decode()
        ]
        verify({**card, "signatures": signed_by}, keys)


async def test_without_a_key_there_is_no_signature_and_no_key_set(tmp_path: Path) -> None:
    async with client_of(app_of(tmp_path)) as http:
        assert "signatures" not in (await http.get(CARD_PATH)).json()
        assert (await http.get(KEYS_PATH)).status_code == 404


async def test_the_key_set_has_a_tag(tmp_path: Path) -> None:
    async with client_of(app_of(tmp_path, written(tmp_path))) as http:
        first = await http.get(KEYS_PATH)
        again = await http.get(KEYS_PATH, headers={"If-None-Match": first.headers["etag"]})
    assert again.status_code == 304
    assert first.headers["cache-control"].startswith("public, max-age=")


# -- what cannot be signed, or signed with


def pem(key: Any, *, passphrase: bytes = b"") -> bytes:
    locked = BestAvailableEncryption(passphrase) if passphrase else NoEncryption()
    told: bytes = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, locked)
    return told


KEYS: list[tuple[str, Callable[[], bytes], str]] = [
    ("empty", lambda: b"", "holds no key; it should be the PEM of a private key"),
    ("text", lambda: b"secret", "holds no key; it should be the PEM of a private key"),
    ("der", lambda: b"\x30\x82\x00", "holds no key"),
    ("locked", lambda: pem(MAKE["ES256"](), passphrase=b"secret"), "wants a passphrase"),
    ("curve", lambda: pem(ec.generate_private_key(ec.SECP521R1())), "a key of another kind"),
    ("small", lambda: pem(rsa.generate_private_key(65537, 1024)), "a key of another kind"),
    ("dsa", lambda: pem(dsa.generate_private_key(2048)), "a key of another kind"),
]


@pytest.mark.parametrize(("name", "content", "said"), KEYS, ids=[name for name, *_ in KEYS])
def test_a_key_that_cannot_be_used_is_one_sentence(
    tmp_path: Path, name: str, content: Callable[[], bytes], said: str
) -> None:
    path = tmp_path / f"{name}.pem"
    path.write_bytes(content())
    with pytest.raises(SettingsError) as caught:
        Signer([str(path)])
    assert str(caught.value).startswith(f"SWITCHROOM_CARD_KEYS names {str(path)!r}, which ")
    assert said in str(caught.value)
    assert "secret" not in str(caught.value) and "\n" not in str(caught.value)


def test_so_is_one_that_is_not_there(tmp_path: Path) -> None:
    for path, said in ((tmp_path / "absent.pem", "No such file"), (tmp_path, "Is a directory")):
        with pytest.raises(SettingsError, match=said):
            Signer([str(path)])


def test_a_key_is_in_no_repr(tmp_path: Path) -> None:
    signer = Signer([written(tmp_path)])
    assert "private" not in f"{vars(signer)}"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"signatures": [{"protected": "e30", "signature": "c2ln"}]}, "signatures of its own"),
        ({"capabilities": {"extensions": [{"params": {"n": 2**53}}]}}, "cannot be signed: "),
    ],
)
def test_a_card_that_cannot_be_signed_is_one_sentence(
    tmp_path: Path, change: Card, said: str
) -> None:
    file = tmp_path / "card.json"
    file.write_text(json.dumps(CARD | change))
    settings = Settings(card_keys=(written(tmp_path),), public_url=PUBLIC)
    with pytest.raises(CardError) as caught:
        load_card(str(file), settings)
    assert said in str(caught.value) and "\n" not in str(caught.value)
