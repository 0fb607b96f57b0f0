"""What a turn was asked: the message and what came with it. Stored beside the task, never sent
to anyone but the worker.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from switchroom.protocol.event import decode, encode
from switchroom.protocol.lifecycle import receive, submitted
from switchroom.protocol.model import Json

__all__ = ["TurnInput"]


@dataclass(frozen=True, slots=True)
class TurnInput:
    """One accepted message.

    at: epoch ms of acceptance, in Redis time.  message: the A2A Message as JSON, with the task's
    own ids. metadata, accepted_output_modes, extensions: of the request (§3.2.2, §4.6).
    """

    at: int
    message: Json
    metadata: Json | None = None
    accepted_output_modes: tuple[str, ...] = ()
    extensions: tuple[str, ...] = ()

    def encode(self) -> bytes:
        body: dict[str, Any] = {"at": self.at, "message": self.message}
        if self.metadata is not None:
            body["metadata"] = self.metadata
        if self.accepted_output_modes:
            body["modes"] = self.accepted_output_modes
        if self.extensions:
            body["extensions"] = self.extensions
        return encode(body)

    @classmethod
    def decode(cls, data: bytes) -> TurnInput:
        body = decode(data)
        return cls(
            body["at"],
            body["message"],
            body.get("metadata"),
            tuple(body.get("modes", ())),
            tuple(body.get("extensions", ())),
        )

    def apply(self, base: Json | None, *, task_id: str, context_id: str) -> Json:
        """The task once this message is in: a new one over no base, else the base moved to
        WORKING.
        """
        if base is None:
            return submitted(
                task_id=task_id, context_id=context_id, message=self.message, at=self.at
            )
        return receive(base, self.message, self.at)
