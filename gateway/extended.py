"""The card for authenticated callers (§3.1.11, §13.3): one for all, or one made for each.

Promises pure 1.0 (old clients fail on a field they do not know), this server's interfaces, our
signature; and that one for all is for nobody who is not authenticated. A server without
authentication knows no caller, so it gives that to none: for them it is not configured. What makes
a card for each call decides that itself.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

from switchroom.gateway.card import CardPress, CardSource
from switchroom.gateway.card_files import (
    CardError,
    Found,
    find_card,
    found_of,
    imported,
    names_file,
)
from switchroom.gateway.context import CallContext
from switchroom.protocol.card import AgentCard
from switchroom.protocol.errors import ExtendedAgentCardNotConfigured
from switchroom.protocol.event import encode
from switchroom.settings import Settings

__all__ = ["ExtendedCard", "Made", "load_extended"]

Made: TypeAlias = AgentCard | Mapping[str, Any]
"""A card that was made in Python: a model, or its JSON."""

_Make: TypeAlias = Callable[[CallContext], Made | Awaitable[Made]]


class ExtendedCard:
    """Answers GetExtendedAgentCard."""

    def __init__(self, card: Found | _Make, press: CardPress) -> None:
        """card: one for all, or what makes one of a call's context. Raises CardError."""
        self._card = card
        self._press = press
        if isinstance(card, Found):
            press.check(card)

    async def answer(self, context: CallContext) -> bytes:
        """The card of this caller, as JSON.

        Raises ExtendedAgentCardNotConfigured where one for all is asked for by a caller who is not
        authenticated, and whatever making the card raises: an A2AError reaches the client as it is.
        """
        card = self._card
        if not isinstance(card, Found):
            made = card(context)
            card = found_of(await made if inspect.isawaitable(made) else made, "that was made")
            self._press.check(card)
        elif not context.caller:
            raise ExtendedAgentCardNotConfigured(
                "The extended card is for authenticated callers; this call has no authentication"
            )
        return encode(self._press.make(card, context.base_url))


def load_extended(settings: Settings, public: CardSource) -> ExtendedCard | None:
    """The extended card that the settings name: a JSON file, or an import string (attribute `card`)
    of a card or of a callable over the `CallContext`, sync or async. None if they name none.

    public: the card that must promise it. Raises CardError.
    """
    spec = settings.extended_card
    if spec is None:
        return None
    try:
        if not public.card.capabilities.extended_agent_card:
            raise CardError(
                "The public card promises no extended one; set capabilities.extendedAgentCard "
                "in it to true."
            )
        if names_file(spec):
            return ExtendedCard(find_card(spec), public.press)
        found = imported(spec)
        card = found if callable(found) else found_of(found, spec)
        return ExtendedCard(card, public.press)
    except CardError as error:
        raise CardError(f"SWITCHROOM_EXTENDED_CARD is {spec!r}: {error}") from error
