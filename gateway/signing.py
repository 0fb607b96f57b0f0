"""Signatures over agent cards: JWS over the canonical form of JSON (§8.4, RFC 7515, RFC 8785).

Promises the same signature for the same card and key, in every gateway. Relies on
`signing_keys.py` for the keys, on `rfc8785` for the canonical form.
"""

from __future__ import annotations

from collections.abc import Iterable

import rfc8785

from switchroom.protocol.model import Json
from switchroom.signing_keys import base64url, read_keys

__all__ = ["Signer"]


class Signer:
    """Signs with each of its keys."""

    def __init__(self, paths: Iterable[str]) -> None:
        """paths: PEM files of private keys. Raises SettingsError: one sentence, never a key."""
        self.keys = read_keys(paths, setting="SWITCHROOM_CARD_KEYS")

    def signatures(self, forms: Iterable[Json], *, key_set_url: str) -> list[Json]:
        """An AgentCardSignature by each key over each of the forms that differ, in their order.

        Raises ValueError for a number that not every reader of JSON has exactly.
        """
        payloads = dict.fromkeys(map(rfc8785.dumps, forms))
        signatures = []
        for key in self.keys:
            header = {"alg": key.algorithm, "typ": "JOSE", "kid": key.kid, "jku": key_set_url}
            protected = base64url(rfc8785.dumps(header))
            for payload in payloads:
                signature = key.sign(f"{protected}.{base64url(payload)}".encode())
                signatures.append({"protected": protected, "signature": base64url(signature)})
        return signatures
