"""The agent card: completed with what is ours to say, and served (§4.4, §8.2, §8.4, §8.6).

Promises interfaces that name this server and the versions it speaks; the same bytes and the same
ETag from every gateway with the same settings; and a signature that holds for the card as it is
served, however its reader takes it in. Relies on `card_files.py` for what the author wrote.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from datetime import datetime
from email.utils import format_datetime
from functools import lru_cache
from types import MappingProxyType

from starlette.requests import Request
from starlette.responses import Response

from switchroom.gateway.address import Address
from switchroom.gateway.card_files import CardError, Found, file_time, find_card, minimal_card
from switchroom.gateway.v03.card import hybrid_card
from switchroom.protocol.card import AgentCard
from switchroom.protocol.event import encode
from switchroom.protocol.model import Json
from switchroom.settings import Settings

__all__ = ["CARD_PATH", "KEYS_PATH", "CardPress", "CardSource", "load_card"]

CARD_PATH = "/.well-known/agent-card.json"
KEYS_PATH = "/.well-known/jwks.json"

_OPEN: Mapping[str, Json] = MappingProxyType({})
_MAX_AGE = 300  # seconds; a new card reaches all clients within this time


class CardPress:
    """Makes cards of a deployment out of what their authors wrote."""

    def __init__(self, settings: Settings, *, schemes: Mapping[str, Json] = _OPEN) -> None:
        """schemes: the ways to authenticate, each of which is enough, by name.

        Raises SettingsError for a key that cannot be used.
        """
        self._versions = settings.protocol_versions
        self._schemes = schemes
        self._signer = None
        self.key_set: Json | None = None
        """The public keys that verify cards and webhooks; None if nothing is signed."""
        # Only here: who signs nothing need not load a library of cryptography.
        if settings.card_keys:
            from switchroom.gateway.signing import Signer

            self._signer = Signer(settings.card_keys)
        if settings.card_keys or settings.push_keys:
            from switchroom.signing_keys import ES256, key_set_of, read_keys

            told = read_keys(settings.push_keys, setting="SWITCHROOM_PUSH_KEYS", wanted=ES256)
            self.key_set = key_set_of([*(self._signer.keys if self._signer else ()), *told])

    def check(self, found: Found) -> None:
        """Raises CardError for a card that cannot be made."""
        if self._signer and found.signed is not None:
            raise CardError(
                f"The card of {found.card.name} has signatures of its own, which would not hold "
                "for the addresses it is given; take them out, or unset SWITCHROOM_CARD_KEYS."
            )
        self.make(found, "http://127.0.0.1")

    def make(self, found: Found, base_url: str, *, hybrid: bool = False) -> Json:
        """The JSON of a card whose deployment is at `base_url`.

        hybrid: with all beside it that readers of 0.3 look for, if 0.3 is spoken. A card that its
        author has signed stays as it is. Raises CardError for what cannot be signed.
        """
        if found.signed is not None:
            return found.signed
        # To leave a thing out and to say its default are one in the canonical form (§8.4.1).
        core = found.card.model_dump(mode="json", exclude_defaults=True)
        core["supportedInterfaces"] = self._interfaces(base_url)
        if self._schemes:
            # What its author says besides may be about a proxy before us.
            core["securitySchemes"] = {**core.get("securitySchemes", {}), **self._schemes}
            enough: list[Json] = [{"schemes": {name: {}}} for name in self._schemes]
            core.setdefault("securityRequirements", enough)
        made = hybrid_card(core) if hybrid and "0.3" in self._versions else core
        if self._signer is None:
            return made
        # Readers take the card as far as 1.0 goes and without what is empty, as the official SDKs
        # do, or with that, or as it came: there is a signature for each.
        forms, keys = (_without_empty(core), core, made), f"{base_url}{KEYS_PATH}"
        try:
            return {**made, "signatures": self._signer.signatures(forms, key_set_url=keys)}
        except ValueError as error:
            raise CardError(f"The card of {found.card.name} cannot be signed: {error}.") from None

    def _interfaces(self, base_url: str) -> list[Json]:
        """The preferred one first. To the address of HTTP+JSON clients append paths."""
        return [
            {"url": url, "protocolBinding": binding, "protocolVersion": version}
            for version in reversed(self._versions)
            for binding, url in (("JSONRPC", f"{base_url}/"), ("HTTP+JSON", base_url))
        ]


class CardSource:
    """The public card, served.

    Attributes:
        card: The card as given. Its interfaces may be stale; what it offers is not.
        press: What makes the cards of this deployment.
        address: Where this deployment is.
    """

    def __init__(
        self, found: Found, settings: Settings, *, schemes: Mapping[str, Json] = _OPEN
    ) -> None:
        """Serve `found`, which says that callers authenticate by one of `schemes`.

        Raises CardError and SettingsError.
        """
        self.card = found.card
        self.press = CardPress(settings, schemes=schemes)
        self.address = Address(settings)
        self.press.check(found)
        self._found = found
        self._modified = found.modified or file_time(__file__)
        # Host is the client's word: bounded, so that it cannot fill the memory.
        self._at = lru_cache(maxsize=16)(self._encode)

    async def respond(self, request: Request) -> Response:
        """The endpoint of GET `CARD_PATH`: 200, or 304 for a client that has this card."""
        body, etag = self._at(self.address.of(request.scope))
        answer = _cached(request, body, etag, modified=self._modified)
        if vary := self.address.vary:
            answer.headers["Vary"] = vary
        return answer

    async def respond_keys(self, request: Request) -> Response:
        """The endpoint of GET `KEYS_PATH`, if the cards are signed."""
        body = encode(self.press.key_set or {"keys": []})
        return _cached(request, body, _etag(body))

    def _encode(self, base_url: str) -> tuple[bytes, str]:
        body = encode(self.press.make(self._found, base_url, hybrid=True))
        return body, _etag(body)


def load_card(
    spec: str | None,
    settings: Settings,
    *,
    schemes: Mapping[str, Json] = _OPEN,
    fallback: AgentCard | None = None,
) -> CardSource:
    """The card that `spec` names: a JSON file, or an import string (attribute `card`).

    Without a spec `fallback`, or else the minimal card. Raises CardError and SettingsError.
    """
    if spec is None:
        name = "Agent" if settings.queue == "main" else settings.queue
        return CardSource(Found(fallback or minimal_card(name=name)), settings, schemes=schemes)
    return CardSource(find_card(spec), settings, schemes=schemes)


def _without_empty(value: Json) -> Json:
    """Without empty strings, lists and objects, and without null, at any depth."""
    kept = {name: _kept(each) for name, each in value.items()}
    return {name: each for name, each in kept.items() if each is not None}


def _kept(value: object) -> object:
    match value:
        case dict():
            return _without_empty(value) or None
        case list():
            return [kept for each in value if (kept := _kept(each)) is not None] or None
        case "":
            return None
    return value


def _cached(
    request: Request, body: bytes, etag: str, *, modified: datetime | None = None
) -> Response:
    headers = {
        "Cache-Control": f"public, max-age={_MAX_AGE}",
        "ETag": etag,
        "X-Content-Type-Options": "nosniff",
    }
    if modified:
        headers["Last-Modified"] = format_datetime(modified, usegmt=True)
    if _is_held(request.headers.get("if-none-match"), etag):
        return Response(status_code=304, headers=headers)
    return Response(body, media_type="application/json", headers=headers)


def _etag(body: bytes) -> str:
    return f'"{hashlib.sha256(body).hexdigest()[:32]}"'


def _is_held(if_none_match: str | None, etag: str) -> bool:
    """RFC 9110 §13.1.2, weak comparison. If-Modified-Since is not asked: the card may also change
    with a setting, which has no date.
    """
    if if_none_match is None:
        return False
    return if_none_match.strip() == "*" or etag in re.findall(r'"[^"]*"', if_none_match)
