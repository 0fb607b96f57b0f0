"""One API key: what its owner holds, and what is kept of it.

A key is `swk_<id>_<secret>`. The id finds the record, and is no secret. Kept is the SHA-256 of the
secret, which is 190 random bits: there is no dictionary to try, so a slow hash would only make
every call dear. The last six characters are a checksum, so that whoever scans for leaked keys knows
one by its look: `swk_[a-z2-7]{10}_[0-9A-Za-z]{38}`.
"""

from __future__ import annotations

import math
import re
import secrets
import string
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, Final
from zlib import crc32

from switchroom.protocol.methods import SCOPES, Scope
from switchroom.protocol.model import Json

__all__ = ["API_KEY", "ApiKey", "BadRecord", "is_name", "new_key"]

API_KEY: Final = re.compile(rb"swk_([a-z2-7]{10})_([0-9A-Za-z]{38})")
"""A key as it is sent; its groups are id and secret."""

_ID: Final = string.ascii_lowercase + "234567"
_DIGITS: Final = string.digits + string.ascii_uppercase + string.ascii_lowercase
_LONGEST_NAME: Final = 256  # as the gate has it: names are parts of keys
_FIELDS: Final = ("id", "sha256", "principal", "tenant", "scopes", "created", "expires", "note")
_OPTIONAL: Final = {"tenant", "expires", "note"}


class BadRecord(ValueError):
    """A record of a key cannot be read; the text is a clause, such as "has no 'id'"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """What is kept of a key.

    sha256: of its secret.  principal, tenant: who calls with it; tenant may be "".  scopes: what
    it may do.  created, expires: epoch seconds; None is never.  note: for people.
    """

    id: str
    sha256: bytes = field(repr=False)
    principal: str
    tenant: str
    scopes: frozenset[Scope]
    created: int
    expires: int | None
    note: str

    def live(self, now: float) -> bool:
        """Whether it can be used at that time, in epoch seconds."""
        return self.expires is None or now < self.expires

    def to_record(self) -> Json:
        """The JSON object that is kept; `of_record` reads it."""
        record: Json = {
            "id": self.id,
            "sha256": self.sha256.hex(),
            "principal": self.principal,
            "tenant": self.tenant,
            "scopes": sorted(self.scopes),
            "created": _shown(self.created),
            "expires": None if self.expires is None else _shown(self.expires),
            "note": self.note,
        }
        return {name: value for name, value in record.items() if value or name not in _OPTIONAL}

    @classmethod
    def of_record(cls, record: object) -> ApiKey:
        """The key of a record that may be from anywhere. Raises BadRecord.

        What it does not know it refuses: a misspelt `expires` would be a key that never ends.
        """
        if not isinstance(record, dict):
            raise BadRecord("is not an object")
        for name in sorted(record.keys() - set(_FIELDS)):
            raise BadRecord(f"has a {name!r}, which is none of {', '.join(_FIELDS)}")
        for name in _FIELDS:
            if name not in record and name not in _OPTIONAL:
                raise BadRecord(f"has no {name!r}")
        expires = record.get("expires")
        return cls(
            id=_matching(record, "id", r"[a-z2-7]{10}", "10 of the characters a-z 2-7"),
            sha256=bytes.fromhex(
                _matching(record, "sha256", r"[0-9a-f]{64}", "64 hexadecimal digits")
            ),
            principal=_name(record, "principal"),
            tenant=_name(record, "tenant") if record.get("tenant") else "",
            scopes=_scopes(record["scopes"]),
            created=_time(record, "created"),
            expires=None if expires is None else _time(record, "expires"),
            note=_text(record, "note", ""),
        )


def is_name(text: str) -> bool:
    """Whether it can name a principal, a tenant or a note: printable, and not too long."""
    return 0 < len(text) <= _LONGEST_NAME and text.isprintable() and text == text.strip()


def new_key(
    principal: str,
    *,
    tenant: str = "",
    scopes: frozenset[Scope],
    now: float,
    expires: float | None = None,
    note: str = "",
) -> tuple[str, ApiKey]:
    """A new key: the text for its owner, which nobody can make again, and what to keep of it.

    now, expires: epoch seconds; `expires` is rounded up.
    """
    ident = "".join(secrets.choice(_ID) for _ in range(10))
    secret = "".join(secrets.choice(_DIGITS) for _ in range(32))
    secret += _checksum(f"{ident}_{secret}")
    key = ApiKey(
        id=ident,
        sha256=sha256(secret.encode()).digest(),
        principal=principal,
        tenant=tenant,
        scopes=scopes,
        created=int(now),
        expires=None if expires is None else math.ceil(expires),
        note=note,
    )
    return f"swk_{ident}_{secret}", key


def _checksum(text: str) -> str:
    """CRC-32 as six digits of base 62. The gateways do not ask: the hash covers it."""
    rest, digits = crc32(text.encode()), ""
    for _ in range(6):
        rest, digit = divmod(rest, 62)
        digits = _DIGITS[digit] + digits
    return digits


def _shown(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


def _text(record: dict[str, Any], name: str, default: str | None = None) -> str:
    value = record.get(name, default)
    if not isinstance(value, str):
        raise BadRecord(f"has a {name!r} that is no text")
    return value


def _matching(record: dict[str, Any], name: str, pattern: str, wanted: str) -> str:
    value = _text(record, name)
    if not re.fullmatch(pattern, value):
        raise BadRecord(f"has a {name!r} that is not {wanted}")
    return value


def _name(record: dict[str, Any], name: str) -> str:
    value = _text(record, name)
    if not is_name(value):
        raise BadRecord(f"has a {name!r} that is not 1 to {_LONGEST_NAME} printable characters")
    return value


def _scopes(value: object) -> frozenset[Scope]:
    listed = value if isinstance(value, list) else [value]
    found = frozenset(scope for scope in SCOPES if scope in listed)
    if value is not listed or len(found) != len(set(map(str, listed))):
        raise BadRecord(f"has 'scopes' that are not a list of {', '.join(sorted(SCOPES))}")
    return found


def _time(record: dict[str, Any], name: str) -> int:
    value = _text(record, name)
    try:
        moment = datetime.fromisoformat(value)
        if moment.tzinfo is None:
            raise ValueError
        return math.ceil(moment.astimezone(UTC).timestamp())
    except (ValueError, OverflowError):
        raise BadRecord(f"has a {name!r} that is no time such as 2030-01-31T00:00:00Z") from None
