"""What proves that a webhook was told by us: a JWT over the body (RFC 7519), by a key we publish.

Promises claims that a receiver can hold against the request: `aud` is its URL, `jti` the delivery's
id, `request_body_sha256` the body's hash in hex, as the official SDKs name it. Keys are published
by gateways at `/.well-known/jwks.json`; the one that signs is named by its `kid`.
"""

from __future__ import annotations

import hashlib
import time
from typing import TYPE_CHECKING, Final, Self

from switchroom.settings import Settings

if TYPE_CHECKING:
    from switchroom.signing_keys import SigningKey

__all__ = ["WebhookSigner"]

_LIVES: Final = 300  # seconds


class WebhookSigner:
    """Signs with one key in the name of `issuer`."""

    def __init__(self, key: SigningKey, *, issuer: str) -> None:
        import jwt

        self._encode = jwt.encode
        self._key = key
        self._issuer = issuer

    @classmethod
    def of(cls, settings: Settings) -> Self | None:
        """None where nothing is to be signed. Raises SettingsError for a key that is none."""
        if not settings.push_keys:
            return None
        from switchroom.signing_keys import ES256, read_keys

        first, *_ = read_keys(settings.push_keys, setting="SWITCHROOM_PUSH_KEYS", wanted=ES256)
        return cls(first, issuer=settings.public_url or "")

    def sign(self, body: bytes, *, audience: str, delivery_id: str, task_id: str) -> str:
        """A token for this body, good for five minutes.

        audience: the webhook's URL; what follows its `?` stays out, which may be a secret.
        """
        now = int(time.time())
        claims = {
            "iss": self._issuer,
            "aud": audience.partition("?")[0],
            "iat": now,
            "exp": now + _LIVES,
            "jti": delivery_id,
            "taskId": task_id,
            "request_body_sha256": hashlib.sha256(body).hexdigest(),
        }
        return self._encode(
            claims, self._key.private, algorithm="ES256", headers={"kid": self._key.kid}
        )
