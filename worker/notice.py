"""What a worker itself says to a task's client: the message of a status that no agent wrote."""

from __future__ import annotations

import uuid

from switchroom.protocol.model import Json, Role

__all__ = ["notice"]


def notice(text: str, *, task_id: str, context_id: str) -> Json:
    """An agent's Message of one text part, as JSON, with the task's ids."""
    return {
        "messageId": uuid.uuid4().hex,
        "role": Role.AGENT,
        "parts": [{"text": text}],
        "taskId": task_id,
        "contextId": context_id,
    }
