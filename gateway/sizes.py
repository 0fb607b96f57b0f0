"""How much one message may hold besides its bytes, which `body_limit` bounds."""

from __future__ import annotations

from switchroom.protocol.errors import InvalidParams
from switchroom.protocol.params import SendMessageRequest
from switchroom.protocol.protojson import MAX_DEPTH
from switchroom.settings import Settings

__all__ = ["MessageSizes"]


class MessageSizes:
    """Checks what clients send."""

    def __init__(self, settings: Settings) -> None:
        self._parts = settings.parts_limit
        self._depth = settings.depth_limit

    def check(self, request: SendMessageRequest) -> None:
        """Raises InvalidParams: which field is too large, and what is allowed."""
        message = request.message
        if len(message.parts) > self._parts:
            raise InvalidParams(
                violations=[("message.parts", f"must not be more than {self._parts}")]
            )
        if self._depth == MAX_DEPTH:
            return  # the decoder has looked
        held: dict[str, object] = {
            "metadata": request.metadata,
            "message.metadata": message.metadata,
        }
        for at, part in enumerate(message.parts):
            held[f"message.parts[{at}].data"] = part.data
            held[f"message.parts[{at}].metadata"] = part.metadata
        for path, value in held.items():
            if _is_deeper(value, self._depth):
                fault = f"must not nest deeper than {self._depth} levels"
                raise InvalidParams(violations=[(path, fault)])


def _is_deeper(value: object, limit: int) -> bool:
    """Whether more than `limit` objects and lists stand within one another."""
    level = [value]
    for _ in range(limit + 1):
        inner: list[object] = []
        for each in level:
            if isinstance(each, dict):
                inner.extend(each.values())
            elif isinstance(each, list):
                inner.extend(each)
        if not any(isinstance(each, dict | list) for each in level):
            return False
        level = inner
    return True
