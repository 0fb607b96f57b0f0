"""The events of streams as 0.3 says them.

Promises that an event is translated once per process and wire, however many read it, and that a
stream ends with a status that says so. Relies on a wire for what an event of 0.3 looks like.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from switchroom.gateway.dispatch import StreamItem
from switchroom.protocol.event import decode, encode
from switchroom.protocol.lifecycle import is_terminal
from switchroom.protocol.methods import Method
from switchroom.protocol.model import Json, TaskState

__all__ = ["StreamEvents", "Translations", "ends"]

_KEPT = 4 * 2**20
"""Bytes of events, as they came and as they go, that a wire keeps."""

_TASK = b'{"task":'
_ASKS = TaskState.INPUT_REQUIRED.encode()


def ends(state: str, method: Method) -> bool:
    """Whether a stream of this method ends with this state. One that a message opened does so
    where the agent asks; one that follows a task goes on.
    """
    asks = state == TaskState.INPUT_REQUIRED and method.name != "SubscribeToTask"
    return asks or is_terminal(state)


class Translations:
    """What one wire has made of events; the newest are kept.

    Attributes:
        kept: What is said of an event, by its bytes.
    """

    def __init__(self, translate: Callable[[Method, Json], Json]) -> None:
        """translate: makes an event of 0.3 from one of 1.0, in a stream of this method."""
        self._translate = translate
        self.kept: OrderedDict[bytes, bytes] = OrderedDict()
        self._size = 0

    def of(self, method: Method, data: bytes) -> bytes:
        """An event that `kept` has not under its bytes."""
        key = data
        if _ASKS in data:  # whether it is the last one depends on the method
            key = data + method.name.encode()
            if said := self.kept.get(key):
                return said
        said = encode(self._translate(method, decode(data)))
        if not data.startswith(_TASK):  # each client's has a history of its own length
            self._keep(key, said)
        return said

    def _keep(self, key: bytes, said: bytes) -> None:
        self.kept[key] = said
        self._size += len(key) + len(said)
        while self._size > _KEPT:
            old, gone = self.kept.popitem(last=False)
            self._size -= len(old) + len(gone)


class StreamEvents:
    """The events of one stream.

    0.3 wants a status with `final` as its last event. Where it would end with a Task as it is, as
    it does when nothing is to come, the Task's status is said once more.
    """

    def __init__(self, translations: Translations, method: Method) -> None:
        self._translations = translations
        self._kept = translations.kept
        self._method = method
        self._task: StreamItem | None = None
        """The event before, if it was a Task."""

    def say(self, item: StreamItem) -> bytes:
        """Whoever is not the first to read an event pays for no more than to find it."""
        said = self._kept.get(item.data)
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
