"""Secrets at rest: what Redis keeps of a webhook's registration is sealed, where there is a key.

Promises that what an earlier key sealed, or none, can still be read. Relies on `cryptography`'s
Fernet (AES-128-CBC and HMAC-SHA256; key rotation is its own).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

__all__ = ["Sealed", "Sealer"]

_PLAIN: Final = b"{"
"""What JSON that was never sealed begins with; no sealed text does."""


class Sealed(Exception):
    """What is kept is sealed by a key that is not here, or was tampered with; the text says so."""


class Sealer:
    """Seals with the first of its keys, opens with any; without keys it leaves things as they are.

    keys: 32 bytes each, in url-safe base64.
    """

    def __init__(self, keys: Sequence[str] = ()) -> None:
        """Raises ValueError for what is no key."""
        self._fernet = None
        if keys:
            # Only here: who seals nothing need not load a library of cryptography.
            from cryptography.fernet import Fernet, MultiFernet

            self._fernet = MultiFernet([Fernet(key) for key in keys])

    def seal(self, data: bytes) -> bytes:
        """What is to be kept of a JSON object."""
        return self._fernet.encrypt(data) if self._fernet is not None else data

    def open(self, kept: bytes) -> bytes:
        """The JSON object again. Raises Sealed."""
        if kept.startswith(_PLAIN):
            return kept
        if self._fernet is not None:
            from cryptography.fernet import InvalidToken

            try:
                return self._fernet.decrypt(kept)
            except InvalidToken:
                pass
        raise Sealed("it is sealed by a key that SWITCHROOM_PUSH_SEAL_KEYS does not hold")
