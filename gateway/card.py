"""The agent card: found, completed and served (§4.4, §8.2, §8.6).

Promises a valid card or one sentence; the same bytes and the same ETag from every gateway with the
same settings; and interfaces that name this server: those of a card file tell where it was written,
not where it is served. Relies on the protocol's card model and, without `public_url`, on the
request for the address.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import format_datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from switchroom.importing import ImportFailed, import_object, split_spec
from switchroom.protocol.card import AgentCapabilities, AgentCard, AgentInterface, AgentSkill
from switchroom.protocol.errors import InvalidParams
from switchroom.protocol.params import decode
from switchroom.settings import Settings

__all__ = ["CARD_PATH", "CardError", "CardSource", "card_beside", "load_card", "minimal_card"]

CARD_PATH = "/.well-known/agent-card.json"

_MAX_AGE = 300  # seconds; a new card reaches all clients within this time
_PLACEHOLDER: dict[str, str] = {
    "url": "http://127.0.0.1:8000/",
    "protocolBinding": "JSONRPC",
    "protocolVersion": "1.0",
}


class CardError(Exception):
    """There is no valid card; the text is one sentence: what was found, what was expected."""


class CardSource:
    """One card, served.

    Attributes:
        card: The card as given. Its interfaces may be stale; what it offers is not.
    """

    def __init__(
        self, card: AgentCard, *, public_url: str | None = None, modified: datetime | None = None
    ) -> None:
        """Serve `card` at `public_url`, or else wherever each request came to.

        `modified` is when it was last changed; None takes the age of this software.
        """
        self.card = card
        self._public_url = public_url
        self._modified = modified or _file_time(__file__)
        # Host is the client's word: bounded, so that it cannot fill the memory.
        self._at = lru_cache(maxsize=16)(self._encode)

    def at(self, base_url: str) -> AgentCard:
        """The card with this server's interfaces. A signed card stays as it was signed."""
        if self.card.signatures:
            return self.card
        base = base_url.rstrip("/")
        interfaces = [
            AgentInterface(url=url, protocol_binding=binding, protocol_version="1.0")
            # To the second one paths are appended, by some clients as they are.
            for binding, url in (("JSONRPC", f"{base}/"), ("HTTP+JSON", base))
        ]
        return self.card.model_copy(update={"supported_interfaces": interfaces})

    async def respond(self, request: Request) -> Response:
        """The endpoint of GET `CARD_PATH`: 200, or 304 for a client that has this card."""
        body, etag = self._at(self._public_url or str(request.base_url))
        headers = {
            "Cache-Control": f"public, max-age={_MAX_AGE}",
            "ETag": etag,
            "X-Content-Type-Options": "nosniff",
            "Last-Modified": format_datetime(self._modified, usegmt=True),
        }
        if _is_held(request.headers.get("if-none-match"), etag):
            return Response(status_code=304, headers=headers)
        return Response(body, media_type="application/json", headers=headers)

    def _encode(self, base_url: str) -> tuple[bytes, str]:
        body = self.at(base_url).to_json()
        return body, f'"{hashlib.sha256(body).hexdigest()[:32]}"'


def load_card(
    spec: str | None, settings: Settings, *, fallback: AgentCard | None = None
) -> CardSource:
    """The card that `spec` names: a JSON file, or an import string (attribute `card`).

    Without a spec `fallback`, or else the minimal card. Raises CardError.
    """
    if spec is None:
        name = "Agent" if settings.queue == "main" else settings.queue
        card, modified = fallback or minimal_card(name=name), None
    elif spec.endswith(".json") or (os.path.isfile(spec) and not spec.endswith(".py")):
        card, modified = _from_file(Path(spec))
    else:
        card, modified = _from_import(spec), None
    return CardSource(card, public_url=settings.public_url, modified=modified)


def minimal_card(*, name: str, description: str | None = None, version: str = "0.0.0") -> AgentCard:
    """A card that promises nothing which is not so."""
    told = description or f"{name}, served by Switchroom."
    return AgentCard(
        name=name,
        description=told,
        supported_interfaces=[AgentInterface.model_validate(_PLACEHOLDER)],
        version=version,
        capabilities=AgentCapabilities(streaming=True, push_notifications=False),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[AgentSkill(id="main", name=name, description=told, tags=["agent"])],
    )


def card_beside(agent: str) -> Path | None:
    """The JSON file beside the agent's, with the same stem, if there is one.

    `agent` is an agent's import string; the agent itself is not imported.
    """
    name, _ = split_spec(agent, default="agent")
    if name.endswith(".py"):
        file = Path(name)
    else:
        try:
            found = importlib.util.find_spec(name)
        except (ImportError, ValueError):
            return None
        if found is None or not found.has_location or found.origin is None:
            return None
        file = Path(found.origin)
    card = file.with_suffix(".json")
    return card if card.is_file() else None


def _from_file(path: Path) -> tuple[AgentCard, datetime]:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise CardError(f"There is no card {str(path)!r} in {Path.cwd()}.") from None
    except IsADirectoryError:
        raise CardError(f"The card {path} is a folder; it should be a JSON file.") from None
    except OSError as error:
        raise CardError(f"The card {path} cannot be read: {error.strerror}.") from None
    try:
        found = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise CardError(f"The card {path} {_not_json(content, error)}.") from None
    return _validated(found, str(path)), _file_time(path)


def _not_json(content: bytes, error: Exception) -> str:
    """What is in a file that is not JSON, and what should be."""
    if not content.strip():
        return "is empty; it should hold a JSON object"
    try:
        text = content.decode()
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        return "is no text; it should be a JSON file in UTF-8"
    reason = "it nests too deep" if isinstance(error, RecursionError) else error
    return f"is not JSON: {reason}; it should hold a JSON object"


def _from_import(spec: str) -> AgentCard:
    try:
        found = import_object(spec, default="card")
    except ImportFailed as error:
        if os.path.isdir(spec) and not spec.isidentifier():
            raise CardError(
                f"{spec!r} is a folder; a card is a .json file or an import string."
            ) from None
        raise CardError(f"{error} A card is a .json file or an import string.") from error
    return _validated(found, spec)


def _validated(found: Any, name: str) -> AgentCard:
    if isinstance(found, AgentCard):
        return found
    if not isinstance(found, Mapping):
        raise CardError(
            f"The card {name} is a {type(found).__name__}; it should be an object with a name, "
            "a description, skills and so on."
        )
    try:
        return decode(AgentCard, {"supportedInterfaces": [_PLACEHOLDER], **found})
    except InvalidParams as error:
        field, fault = error.violations[0]
        raise CardError(f"The card {name} is not valid: {field} {fault}.") from None


def _is_held(if_none_match: str | None, etag: str) -> bool:
    """RFC 9110 §13.1.2, weak comparison. If-Modified-Since is not asked: the card may also change
    with a setting, which has no date.
    """
    if if_none_match is None:
        return False
    return if_none_match.strip() == "*" or etag in re.findall(r'"[^"]*"', if_none_match)


def _file_time(path: str | Path) -> datetime:
    return datetime.fromtimestamp(int(Path(path).stat().st_mtime), tz=UTC)
