"""Random valid objects of A2A 1.0, as plain JSON, with all that they may hold."""

from __future__ import annotations

import base64
from typing import Any

from hypothesis import strategies as st

from switchroom.protocol.model import Json, Role, TaskState

__all__ = ["artifacts", "events", "free_json", "messages", "parts", "tasks"]

texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=8)
ids = st.text("abc-09", min_size=1, max_size=8)
# Peers of the SDK turn every number into a double; within these bounds that loses nothing.
free_json = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)
structs = st.dictionaries(texts, free_json, max_size=2)
media_types = st.sampled_from(["text/plain", "application/json", "image/png"])
states = st.sampled_from([str(state) for state in TaskState if state != TaskState.UNSPECIFIED])
moments = st.datetimes().map(lambda d: d.isoformat(timespec="milliseconds") + "Z")


def objects(required: dict[str, Any], optional: dict[str, Any]) -> st.SearchStrategy[Json]:
    """Objects with these members."""
    return st.fixed_dictionaries(required, optional=optional)


contents = st.one_of(
    objects({"text": texts}, {}),
    objects({"raw": st.binary(max_size=8).map(lambda b: base64.b64encode(b).decode())}, {}),
    objects({"url": st.just("https://files.test/a")}, {}),
    objects({"data": free_json}, {}),
)
descriptions = objects({}, {"mediaType": media_types, "filename": ids, "metadata": structs})
parts = st.builds(lambda content, more: {**content, **more}, contents, descriptions)
some_parts = st.lists(parts, min_size=1, max_size=3)


def messages(*roles: str) -> st.SearchStrategy[Json]:
    """Messages, of users and of agents unless `roles` says whose."""
    return objects(
        {
            "messageId": ids,
            "role": st.sampled_from(roles or [str(Role.USER), str(Role.AGENT)]),
            "parts": some_parts,
        },
        {
            "metadata": structs,
            "extensions": st.lists(st.just("urn:x"), min_size=1, max_size=2),
            "referenceTaskIds": st.lists(ids, min_size=1, max_size=2),
        },
    )


artifacts = objects(
    {"artifactId": ids, "parts": some_parts},
    {
        "name": ids,
        "description": ids,
        "metadata": structs,
        "extensions": st.lists(st.just("urn:x"), min_size=1, max_size=2),
    },
)
statuses = objects({"state": states}, {"message": messages(), "timestamp": moments})
tasks = objects(
    {"id": ids, "contextId": ids, "status": statuses},
    {
        "artifacts": st.lists(artifacts, min_size=1, max_size=2),
        "history": st.lists(messages(), min_size=1, max_size=2),
        "metadata": structs,
    },
)
events = st.one_of(
    tasks.map(lambda task: {"task": task}),
    messages().map(lambda message: {"message": message}),
    objects({"taskId": ids, "contextId": ids, "status": statuses}, {"metadata": structs}).map(
        lambda update: {"statusUpdate": update}
    ),
    objects(
        {"taskId": ids, "contextId": ids, "artifact": artifacts},
        {"append": st.booleans(), "lastChunk": st.booleans(), "metadata": structs},
    ).map(lambda update: {"artifactUpdate": update}),
)
