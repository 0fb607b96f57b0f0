"""Signatures over agent cards: JWS over the canonical form of JSON (§8.4, RFC 7515, RFC 8785).

Promises the same signature for the same card and key, in every gateway: ECDSA is deterministic here
(RFC 6979), which JOSE libraries leave out. A private key is in no message and no repr. Relies on
`cryptography` for keys and signatures, on `rfc8785` for the canonical form.
"""

from __future__ import annotations

import hashlib
from base64 import urlsafe_b64encode
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import rfc8785
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey as EcKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey as EdKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey as RsaKey
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from switchroom.protocol.model import Json
from switchroom.settings import SettingsError

__all__ = ["Signer"]

_Key: TypeAlias = EcKey | EdKey | RsaKey

_WANTED = "it should be the PEM of a private key: EC P-256, Ed25519, or RSA of 2048 bits or more"


@dataclass(frozen=True, slots=True)
class _SigningKey:
    """A key, and what the world may know of it. `kid` is its thumbprint (RFC 7638)."""

    private: _Key = field(repr=False)
    algorithm: str
    public: Json
    kid: str

    @classmethod
    def of(cls, private: _Key) -> _SigningKey:
        algorithm, public = _described(private)
        kid = _base64(hashlib.sha256(rfc8785.dumps(public)).digest())
        return cls(private, algorithm, public, kid)

    def sign(self, data: bytes) -> bytes:
        match self.private:
            case EcKey():
                algorithm = ec.ECDSA(hashes.SHA256(), deterministic_signing=True)
                r, s = decode_dss_signature(self.private.sign(data, algorithm))
                return r.to_bytes(32) + s.to_bytes(32)
            case EdKey():
                return self.private.sign(data)
            case RsaKey():
                return self.private.sign(data, padding.PKCS1v15(), hashes.SHA256())


class Signer:
    """Signs with each of its keys."""

    def __init__(self, paths: Iterable[str]) -> None:
        """paths: PEM files of private keys. Raises SettingsError: one sentence, never a key."""
        self._keys = [_read(path) for path in paths]

    @property
    def key_set(self) -> Json:
        """The public keys, as a JSON Web Key Set (RFC 7517)."""
        return {
            "keys": [
                {**key.public, "kid": key.kid, "alg": key.algorithm, "use": "sig"}
                for key in self._keys
            ]
        }

    def signatures(self, forms: Iterable[Json], *, key_set_url: str) -> list[Json]:
        """An AgentCardSignature by each key over each of the forms that differ, in their order.

        Raises ValueError for a number that not every reader of JSON has exactly.
        """
        payloads = dict.fromkeys(map(rfc8785.dumps, forms))
        signatures = []
        for key in self._keys:
            header = {"alg": key.algorithm, "typ": "JOSE", "kid": key.kid, "jku": key_set_url}
            protected = _base64(rfc8785.dumps(header))
            for payload in payloads:
                signature = key.sign(f"{protected}.{_base64(payload)}".encode())
                signatures.append({"protected": protected, "signature": _base64(signature)})
        return signatures


def _read(path: str) -> _SigningKey:
    name = f"SWITCHROOM_CARD_KEYS names {path!r}"
    try:
        pem = Path(path).read_bytes()
    except OSError as error:
        raise SettingsError(f"{name}, which cannot be read: {error.strerror}.") from None
    try:
        private = load_pem_private_key(pem, password=None)
    except TypeError:
        raise SettingsError(
            f"{name}, which wants a passphrase; it should be the PEM of a key that has none."
        ) from None
    except (ValueError, UnsupportedAlgorithm):
        raise SettingsError(f"{name}, which holds no key; {_WANTED}.") from None
    fits = (
        isinstance(private, EdKey)
        or (isinstance(private, EcKey) and isinstance(private.curve, ec.SECP256R1))
        or (isinstance(private, RsaKey) and private.key_size >= 2048)
    )
    if not fits:
        raise SettingsError(f"{name}, which holds a key of another kind; {_WANTED}.")
    assert isinstance(private, EcKey | EdKey | RsaKey)
    return _SigningKey.of(private)


def _described(private: _Key) -> tuple[str, Json]:
    """The algorithm of a key, and its public half as a JSON Web Key (RFC 7518 §6, RFC 8037)."""
    match private:
        case EcKey():
            point = private.public_key().public_numbers()
            x, y = _number(point.x, 32), _number(point.y, 32)
            return "ES256", {"kty": "EC", "crv": "P-256", "x": x, "y": y}
        case EdKey():
            x = _base64(private.public_key().public_bytes_raw())
            return "EdDSA", {"kty": "OKP", "crv": "Ed25519", "x": x}
        case RsaKey():
            numbers = private.public_key().public_numbers()
            size, exponent = (numbers.n.bit_length() + 7) // 8, (numbers.e.bit_length() + 7) // 8
            n, e = _number(numbers.n, size), _number(numbers.e, exponent)
            return "RS256", {"kty": "RSA", "n": n, "e": e}


def _number(value: int, size: int) -> str:
    return _base64(value.to_bytes(size))


def _base64(value: bytes) -> str:
    return urlsafe_b64encode(value).rstrip(b"=").decode()
