"""The keys of an issuer, each for the algorithms it fits (RFC 7517, RFC 8725 §3.1).

Promises that a token's word about its algorithm chooses among keys and never what a key is used
for: a key is found by its id and by an algorithm that is allowed and is its own. Relies on PyJWT.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from jwt import PyJWK, PyJWTError

from switchroom.protocol.model import Json

__all__ = ["KeySet"]

_MOST_KEYS = 100
_LONGEST_ID = 256
_RSA_BITS = range(2048, 8193)  # weaker is no proof (RFC 7518 §3.3); longer is slow to ask
_CURVES = {"ES256": "P-256", "ES384": "P-384", "ES512": "P-521", "EdDSA": "Ed25519"}


class KeySet:
    """Public keys that verify signatures."""

    def __init__(self, found: Json, *, algorithms: Iterable[str]) -> None:
        """found: a JSON Web Key Set. What cannot be used is left out, as RFC 7517 §5 wants it.

        Raises ValueError, with a reason, if nothing is left.
        """
        listed = found.get("keys")
        if not isinstance(listed, list):
            raise ValueError("it has no list of keys")
        if len(listed) > _MOST_KEYS:
            raise ValueError(f"it has more than {_MOST_KEYS} keys")
        self._listed = listed
        self._keys: dict[tuple[str | None, str], PyJWK] = {}
        for algorithm in algorithms:
            fitting = [key for each in listed if (key := _usable(each, algorithm))]
            for key in fitting:
                self._keys.setdefault((key.key_id, algorithm), key)
            # A token that names no key can mean one only where there is one (OpenID Core §10.1).
            if len(fitting) == 1:
                self._keys[None, algorithm] = fitting[0]
            else:
                self._keys.pop((None, algorithm), None)
        if not self._keys:
            raise ValueError("it has no key for the algorithms that are allowed")

    def same(self, other: KeySet | None) -> bool:
        """Whether these are the keys of `other`."""
        return other is not None and self._listed == other._listed

    def find(self, key_id: str | None, algorithm: str) -> PyJWK | None:
        """The key of this id for this algorithm; without an id the only one there is."""
        return self._keys.get((key_id, algorithm))


def _usable(found: Any, algorithm: str) -> PyJWK | None:
    """The key, if it is a public one, for signatures, of this algorithm."""
    if not isinstance(found, dict) or "d" in found or found.get("alg", algorithm) != algorithm:
        return None
    operations, key_id = found.get("key_ops", ["verify"]), found.get("kid")
    meant = found.get("use", "sig") == "sig" and (
        isinstance(operations, list) and "verify" in operations
    )
    named = key_id is None or (isinstance(key_id, str) and 0 < len(key_id) <= _LONGEST_ID)
    kind = {"R": "RSA", "P": "RSA", "E": "EC"}[algorithm[0]] if algorithm != "EdDSA" else "OKP"
    if not (meant and named) or found.get("kty") != kind:
        return None
    if found.get("crv") != _CURVES.get(algorithm):
        return None
    try:
        key = PyJWK(found, algorithm)
    except PyJWTError:
        return None
    if kind == "RSA" and key.key.key_size not in _RSA_BITS:
        return None
    return key
