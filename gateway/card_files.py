"""Where a card comes from: a JSON file, an import string, or nothing but a name (§4.4).

Promises a valid card of 1.0 or one sentence, whichever version of the protocol it was written for.
Relies on the protocol's card model.
"""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from switchroom.gateway.v03.card import core_card
from switchroom.importing import ImportFailed, import_object, split_spec
from switchroom.protocol.card import AgentCapabilities, AgentCard, AgentInterface, AgentSkill
from switchroom.protocol.errors import InvalidParams
from switchroom.protocol.model import Json
from switchroom.protocol.params import decode

__all__ = [
    "CardError",
    "Found",
    "card_beside",
    "file_time",
    "find_card",
    "found_of",
    "imported",
    "minimal_card",
    "names_file",
]

# Interfaces are told where a card is served, not where it is written.
_PLACEHOLDER: dict[str, str] = {
    "url": "http://127.0.0.1:8000/",
    "protocolBinding": "JSONRPC",
    "protocolVersion": "1.0",
}


class CardError(Exception):
    """There is no valid card; the text is one sentence: what was found, what was expected."""


@dataclass(frozen=True, slots=True)
class Found:
    """A card that somebody has written.

    card: what it means in 1.0; its interfaces may be stale or made up.  modified: when the file was
    changed.  signed: its JSON as it is, if its author has signed that.
    """

    card: AgentCard
    modified: datetime | None = None
    signed: Json | None = None


def find_card(spec: str) -> Found:
    """The card that `spec` names: a JSON file, or an import string (attribute `card`).

    Raises CardError.
    """
    return _from_file(Path(spec)) if names_file(spec) else found_of(imported(spec), spec)


def names_file(spec: str) -> bool:
    """Whether `spec` is the name of a JSON file, rather than an import string."""
    return spec.endswith(".json") or (os.path.isfile(spec) and not spec.endswith(".py"))


def imported(spec: str) -> object:
    """What an import string names, a card or not; its attribute is `card` where it names none.

    Raises CardError.
    """
    try:
        return import_object(spec, default="card")
    except ImportFailed as error:
        if os.path.isdir(spec) and not spec.isidentifier():
            raise CardError(
                f"{spec!r} is a folder; a card is a .json file or an import string."
            ) from None
        raise CardError(f"{error} A card is a .json file or an import string.") from error


def found_of(card: object, name: str) -> Found:
    """A card that was made in Python: an AgentCard, or the JSON of one in any version.

    name: what errors call it. Raises CardError.
    """
    if isinstance(card, AgentCard):
        return Found(card, signed=card.to_dict() if card.signatures else None)
    if not isinstance(card, Mapping):
        raise CardError(
            f"The card {name} is a {type(card).__name__}; it should be an object with a name, "
            "a description, skills and so on."
        )
    try:
        read = decode(AgentCard, {"supportedInterfaces": [_PLACEHOLDER], **core_card(card)})
    except InvalidParams as error:
        field, fault = error.violations[0]
        raise CardError(f"The card {name} is not valid: {field} {fault}.") from None
    return Found(read, signed=dict(card) if read.signatures else None)


def minimal_card(*, name: str, description: str | None = None, version: str = "0.0.0") -> AgentCard:
    """A card that promises nothing which is not so."""
    told = description or f"{name}, served by Switchroom."
    return AgentCard(
        name=name,
        description=told,
        supported_interfaces=[AgentInterface.model_validate(_PLACEHOLDER)],
        version=version,
        capabilities=AgentCapabilities(streaming=True, push_notifications=False),
        default_input_modes=["text/plain", "*/*"],  # what the agent can take, nobody has said
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


def _from_file(path: Path) -> Found:
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
    return replace(found_of(found, str(path)), modified=file_time(path))


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


def file_time(path: str | Path) -> datetime:
    """When a file was last changed, to the second, as HTTP has it."""
    return datetime.fromtimestamp(int(Path(path).stat().st_mtime), tz=UTC)
