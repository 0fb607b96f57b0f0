"""The events of streams as 0.3 says them.

Promises that an event is translated once per process and wire, however many read it; that the
commonest, a chunk of text, is not even taken apart for that; and that a stream ends with a status
that says so. Relies on a wire for what an event of 0.3 looks like.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from switchroom.gateway.dispatch import StreamItem
from switchroom.protocol.event import decode, encode
from switchroom.protocol.lifecycle import is_terminal
from switchroom.protocol.methods import Method
from switchroom.protocol.model import TaskState

__all__ = ["Chunk", "StreamEvents", "Translations", "chunk_of", "ends"]

_KEPT = 2**20
"""Bytes of events, as they came and as they go, that a wire keeps at most."""

_UPDATE, _TEXT = b'{"artifactUpdate":{', b'"parts":[{"text":"'
_FLAGS = {
    b'"}]}%b%b}}' % (append, last): (bool(append), bool(last))
    for append in (b"", b',"append":true')
    for last in (b"", b',"lastChunk":true')
}
"""What `append` and `lastChunk` are, by all that follows the text of a chunk."""
_AFTER = (b'"parts":', b'"append":', b'"lastChunk":')
"""What stands nowhere before it: other parts, or flags in another place."""

_TASK = b'{"task":'
_ASKS = TaskState.INPUT_REQUIRED.encode()


def ends(state: str, method: Method) -> bool:
    """Whether a stream of this method ends with this state. One that a message opened does so
    where the agent asks; one that follows a task goes on.
    """
    asks = state == TaskState.INPUT_REQUIRED and method.name != "SubscribeToTask"
    return asks or is_terminal(state)


class Chunk(NamedTuple):
    """An artifact update with one part, which is text and nothing else.

    head: the members of the update before the parts, as JSON.
    text: the text, as in a JSON string.
    """

    head: bytes
    text: bytes
    append: bool
    last: bool


def chunk_of(data: bytes) -> Chunk | None:
    """The chunk that an event is, by its bytes; None for any other event, or one written otherwise
    than ours are.

    No string can hold `_TEXT` as it stands, since a quote in a string has a backslash before it.
    Nor can a text go on after a tail of `_FLAGS`, with which the event ends.
    """
    at = data.find(_TEXT)
    if at < 0 or not data.startswith(_UPDATE):
        return None
    start = at + len(_TEXT)
    end = data.find(b'"', start)
    flags = _FLAGS.get(data[end:])
    head = data[len(_UPDATE) : at]
    if flags is None or any(name in head for name in _AFTER):
        return None
    return Chunk(head, data[start:end], *flags)


class Translations:
    """What one wire has made of events; the newest are kept."""

    def __init__(self, translate: Callable[[Method, bytes], bytes]) -> None:
        """translate: makes an event of 0.3 from one of 1.0, in a stream of this method."""
        self._translate = translate
        # Of two generations the older goes at once: that costs less than to strike off each.
        self._newer: dict[bytes, bytes] = {}
        self._older: dict[bytes, bytes] = {}
        self._size = 0

    def kept(self, data: bytes) -> bytes | None:
        """What is said of an event, if it is known and the same for all."""
        return self._newer.get(data) or self._older.get(data)

    def of(self, method: Method, data: bytes) -> bytes:
        """What is said of an event that `kept` does not know."""
        key = data
        if _ASKS in data:  # whether it is the last one depends on the method
            key = data + method.name.encode()
            if said := self.kept(key):
                return said
        said = self._translate(method, data)
        if not data.startswith(_TASK):  # each client's has a history of its own length
            self._keep(key, said)
        return said

    def _keep(self, key: bytes, said: bytes) -> None:
        self._size += len(key) + len(said)
        if self._size > _KEPT // 2:
            self._older, self._newer, self._size = self._newer, {}, len(key) + len(said)
        self._newer[key] = said


class StreamEvents:
    """The events of one stream.

    0.3 wants a status with `final` as its last event. Where it would end with a Task as it is, as
    it does when nothing is to come, the Task's status is said once more.
    """

    def __init__(self, translations: Translations, method: Method) -> None:
        self._translations = translations
        self._method = method
        self._task: StreamItem | None = None
        """The event before, if it was a Task."""

    def say(self, item: StreamItem) -> bytes:
        """Whoever is not the first to read an event pays for no more than to find it."""
        said = self._translations.kept(item.data)
        if said is not None:
            self._task = None
            return said
        self._task = item if item.data.startswith(_TASK) else None
        return self._translations.of(self._method, item.data)

    def last(self) -> StreamItem | None:
        """The status update after a Task that was the end; None after anything else."""
        if self._task is None:
            return None
        task = decode(self._task.data)["task"]
        status = task["status"]
        if not ends(status["state"], self._method):
            return None
        update = {"taskId": task["id"], "contextId": task["contextId"], "status": status}
        return StreamItem(encode({"statusUpdate": update}), self._task.id)
