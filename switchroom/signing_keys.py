"""Private keys that sign: read from PEM files, and what the world may know of them.

Promises that a private key is in no message and no repr, and the same signature for the same data:
ECDSA is deterministic here (RFC 6979), which JOSE libraries leave out. Relies on `cryptography` for
keys and signatures, on `rfc8785` for the canonical form that a thumbprint is of.
"""

from __future__ import annotations

import hashlib
from base64 import urlsafe_b64encode
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

import rfc8785
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey as EcKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey as EdKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey as RsaKey
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from switchroom.settings import SettingsError

__all__ = ["ANY", "ES256", "SigningKey", "base64url", "key_set_of", "read_keys"]

Json: TypeAlias = dict[str, Any]

_Key: TypeAlias = EcKey | EdKey | RsaKey

ANY: Final = "EC P-256, Ed25519, or RSA of 2048 bits or more"
ES256: Final = "EC P-256"
"""Which kinds of key there may be."""


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A key, and what the world may know of it. `kid` is its thumbprint (RFC 7638)."""

    private: _Key = field(repr=False)
    algorithm: str
    public: Json
    kid: str

    @classmethod
    def of(cls, private: _Key) -> SigningKey:
        algorithm, public = _described(private)
        kid = base64url(hashlib.sha256(rfc8785.dumps(public)).digest())
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


def read_keys(paths: Iterable[str], *, setting: str, wanted: str = ANY) -> list[SigningKey]:
    """The keys in these PEM files.

    setting: the variable that names them.  wanted: which kinds will do. Raises SettingsError: one
    sentence, never a key.
    """
    return [_read(path, setting, wanted) for path in paths]


def key_set_of(keys: Iterable[SigningKey]) -> Json:
    """Their public halves as a JSON Web Key Set (RFC 7517), each once."""
    each = {key.kid: key for key in keys}
    return {
        "keys": [
            {**key.public, "kid": key.kid, "alg": key.algorithm, "use": "sig"}
            for key in each.values()
        ]
    }


def _read(path: str, setting: str, wanted: str) -> SigningKey:
    name = f"{setting} names {path!r}"
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
        raise SettingsError(f"{name}, which holds no key; {_pem(wanted)}.") from None
    fits = (isinstance(private, EcKey) and isinstance(private.curve, ec.SECP256R1)) or (
        wanted == ANY
        and (
            isinstance(private, EdKey) or (isinstance(private, RsaKey) and private.key_size >= 2048)
        )
    )
    if not fits:
        raise SettingsError(f"{name}, which holds a key of another kind; {_pem(wanted)}.")
    assert isinstance(private, EcKey | EdKey | RsaKey)
    return SigningKey.of(private)


def _pem(wanted: str) -> str:
    return f"it should be the PEM of a private key: {wanted}"


def _described(private: _Key) -> tuple[str, Json]:
    """The algorithm of a key, and its public half as a JSON Web Key (RFC 7518 §6, RFC 8037)."""
    match private:
        case EcKey():
            point = private.public_key().public_numbers()
            x, y = _number(point.x, 32), _number(point.y, 32)
            return "ES256", {"kty": "EC", "crv": "P-256", "x": x, "y": y}
        case EdKey():
            x = base64url(private.public_key().public_bytes_raw())
            return "EdDSA", {"kty": "OKP", "crv": "Ed25519", "x": x}
        case RsaKey():
            numbers = private.public_key().public_numbers()
            size, exponent = (numbers.n.bit_length() + 7) // 8, (numbers.e.bit_length() + 7) // 8
            n, e = _number(numbers.n, size), _number(numbers.e, exponent)
            return "RS256", {"kty": "RSA", "n": n, "e": e}


def _number(value: int, size: int) -> str:
    return base64url(value.to_bytes(size))


def base64url(value: bytes) -> str:
    return urlsafe_b64encode(value).rstrip(b"=").decode()
