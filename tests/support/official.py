"""What tests do with the official Python client: ask, and read what it has understood."""

from __future__ import annotations

import uuid
from typing import Any

from a2a.client import Client
from a2a.types.a2a_pb2 import (
    Message,
    Part,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    StreamResponse,
    Task,
)

__all__ = ["request", "send", "text_of"]


def request(text: str, *parts: Part, now: bool = False, **more: Any) -> SendMessageRequest:
    """A message of a user.  now: it is to be answered at once.  more: fields of the message."""
    said = [Part(text=text), *parts]
    return SendMessageRequest(
        message=Message(message_id=str(uuid.uuid4()), role=Role.ROLE_USER, parts=said, **more),
        configuration=SendMessageConfiguration(return_immediately=now),
    )


async def send(client: Client, text: str, *parts: Part, **more: Any) -> StreamResponse:
    """The one answer of a client that does not stream."""
    (answer,) = [event async for event in client.send_message(request(text, *parts, **more))]
    return answer


def text_of(task: Task) -> str:
    """All that its artifacts say."""
    return "".join(part.text for artifact in task.artifacts for part in artifact.parts)
