"""Which content an agent takes: the media types of a message's parts against the card (§3.1.1).

Promises that a part is refused only if it says what it is and no skill takes that. Which skill is
meant no request says, so what one of them takes all may get.
"""

from __future__ import annotations

from switchroom.protocol.card import AgentCard
from switchroom.protocol.errors import ContentTypeNotSupported
from switchroom.protocol.model import Message

__all__ = ["InputModes"]


class InputModes:
    """The input modes of a card, its skills' among them."""

    def __init__(self, card: AgentCard) -> None:
        named = [
            *card.default_input_modes,
            *(m for skill in card.skills for m in skill.input_modes),
        ]
        self._names = ", ".join(dict.fromkeys(named))
        modes = {_plain(mode) for mode in named}
        # Cards of old say "text" or "file": kinds of parts, which tell nothing about media types.
        self._all = "*/*" in modes or any("/" not in mode for mode in modes)
        self._modes = modes

    def check(self, message: Message) -> None:
        """Raises ContentTypeNotSupported for a part whose media type no skill takes.

        A part without one is taken, whatever it holds. Parameters and case do not count.
        """
        if self._all:
            return
        for number, part in enumerate(message.parts):
            if part.media_type and not self._takes(_plain(part.media_type)):
                field = f"message.parts[{number}].mediaType"
                fault = f"is not among what this agent takes: {self._names}"
                raise ContentTypeNotSupported(f"{field} {fault}", violations=[(field, fault)])

    def _takes(self, media_type: str) -> bool:
        return media_type in self._modes or f"{media_type.partition('/')[0]}/*" in self._modes


def _plain(mode: str) -> str:
    """A media type without its parameters, in lower case (RFC 9110 §8.3.1)."""
    return mode.partition(";")[0].strip().lower()
