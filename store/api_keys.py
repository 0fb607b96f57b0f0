"""All API keys of a deployment, in one hash of its Redis.

Promises that gateways can hold every key in memory and ask for changes as often as they like: what
has not changed is told in a few bytes, and what has is announced. Each change is one script, which
may be repeated after a lost answer. The hash is one of the keys that live for ever.
"""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from switchroom.protocol.event import decode, encode
from switchroom.store.api_key import ApiKey, BadRecord
from switchroom.store.commit import GroupCommit
from switchroom.store.keys import Keys
from switchroom.store.scripts import SCRIPTS, command
from switchroom.store.subscriber import Subscriber

__all__ = ["MOST_KEYS", "KeyBook", "KeyRefused", "KeyRing", "RedisKeys"]

MOST_KEYS: Final = 10_000
"""Keys of one deployment: a gateway that starts reads them all."""

_MARK: Final = b"mark"  # no id has its length


class KeyRefused(Exception):
    """A key cannot be added; the text is one sentence."""


@dataclass(frozen=True, slots=True, eq=False)
class KeyRing:
    """All keys at one moment.  keys: by id.  faults: clauses about records that cannot be read,
    by id.
    """

    keys: Mapping[str, ApiKey]
    faults: Mapping[str, str]


class KeyBook(ABC):
    """Where API keys are kept."""

    @abstractmethod
    async def read(self) -> KeyRing:
        """All keys; the same object for as long as nothing has changed."""

    @abstractmethod
    async def add(self, key: ApiKey) -> None:
        """Keeps a key; that it is kept already is no fault. Raises KeyRefused."""

    @abstractmethod
    async def revoke(self, ident: str) -> bool:
        """Forgets a key; False if there is none."""

    @abstractmethod
    async def listen(self, changed: Callable[[], None]) -> None:
        """`changed` is called whenever there may be something new, as far as that is announced."""

    @abstractmethod
    def ignore(self) -> None:
        """Ends `listen`."""


class RedisKeys(KeyBook):
    """Keys in Redis. Each of its methods may raise StoreUnavailable."""

    def __init__(
        self, commit: GroupCommit, reads: GroupCommit, subscriber: Subscriber, *, keys: Keys
    ) -> None:
        self._commit = commit
        self._reads = reads
        self._subscriber = subscriber
        self._name = keys.api_keys
        self._channel = keys.api_keys_changed
        self._changed: Callable[[], None] | None = None
        self._ring: KeyRing | None = None
        self._records: dict[bytes, bytes] = {}
        self._seen: tuple[int, bytes | None] = (0, None)
        subscriber.on_gap(self._tell)

    async def read(self) -> KeyRing:
        size, mark = await self._reads(
            command("HLEN", self._name), command("HGET", self._name, _MARK)
        )
        # The mark is new with every change of ours; the size tells of a hand that has deleted.
        if self._ring is None or (size, mark) != self._seen:
            (found,) = await self._reads(command("HGETALL", self._name))
            if not isinstance(found, dict):
                found = dict(zip(found[::2], found[1::2], strict=True))
            self._seen = (len(found), found.pop(_MARK, None))
            self._ring = self._ring_of(found)
        return self._ring

    def _ring_of(self, records: dict[bytes, bytes]) -> KeyRing:
        """Of ten thousand keys only those are read that are new: the event loop has to wait."""
        before = self._ring or KeyRing({}, {})
        keys: dict[str, ApiKey] = {}
        faults: dict[str, str] = {}
        for field, record in records.items():
            ident = field.decode(errors="replace")
            if self._records.get(field) == record and ident in before.keys:
                keys[ident] = before.keys[ident]
                continue
            try:
                keys[ident] = _key_of(ident, record)
            except BadRecord as fault:
                faults[ident] = str(fault)
        self._records = records
        return KeyRing(keys, faults)

    async def add(self, key: ApiKey) -> None:
        match await self._change(key.id, encode(key.to_record())):
            case b"taken":
                raise KeyRefused(f"There is another key {key.id}; try again.")
            case b"full":
                raise KeyRefused(
                    f"There are {MOST_KEYS} keys, which is as many as there may be; revoke those "
                    "that have expired or that nobody uses."
                )

    async def revoke(self, ident: str) -> bool:
        return await self._change(ident, b"") == b"ok"

    async def _change(self, ident: str, record: bytes) -> bytes:
        mark = secrets.token_hex(8)
        (answer,) = await self._commit(
            SCRIPTS.api_key([self._name], ident, record, mark, MOST_KEYS, self._channel)
        )
        said: bytes = answer[0]
        return said

    async def listen(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        await self._subscriber.subscribe(self._channel, lambda _: self._tell())

    def ignore(self) -> None:
        self._changed = None
        self._subscriber.unsubscribe(self._channel)

    def _tell(self) -> None:
        if self._changed is not None:
            self._changed()


def _key_of(ident: str, record: bytes) -> ApiKey:
    try:
        key = ApiKey.of_record(decode(record))
    except BadRecord:
        raise
    except ValueError:
        raise BadRecord("is not JSON") from None
    if key.id != ident:
        raise BadRecord(f"is kept under the id {ident!r} and says {key.id!r}")
    return key
