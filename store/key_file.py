"""All API keys of a deployment, in a file beside the gateways.

Promises a whole file at every moment: a change writes a new one and puts it in the old one's place,
and two changes at once come one after the other. One clear sentence says what is wrong with a file
that somebody has written by hand.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from switchroom.protocol.event import decode
from switchroom.protocol.model import Json
from switchroom.settings import SettingsError
from switchroom.store.api_key import ApiKey, BadRecord
from switchroom.store.api_keys import MOST_KEYS, KeyBook, KeyRefused, KeyRing

if sys.platform != "win32":
    import fcntl

__all__ = ["FileKeys"]


class FileKeys(KeyBook):
    """Keys in a JSON file: `{"keys": [record, …]}`, a record as `ApiKey.to_record` makes it.

    Each of its methods may raise SettingsError: one sentence.
    """

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._ring: KeyRing | None = None
        self._seen: tuple[int, int, int] | None = None

    def load(self) -> KeyRing:
        """`read`, without an event loop."""
        try:
            with self._path.open("rb") as file:
                found = os.fstat(file.fileno())
                seen = (found.st_ino, found.st_size, found.st_mtime_ns)
                if self._ring is None or seen != self._seen:
                    self._ring, self._seen = self._ring_of(file.read()), seen
        except FileNotFoundError:
            raise self._wrong(
                "which does not exist; `switchroom keys create NAME` makes it"
            ) from None
        except OSError as error:
            raise self._wrong(f"which cannot be read: {error.strerror}") from None
        return self._ring

    async def read(self) -> KeyRing:
        return await asyncio.to_thread(self.load)

    async def add(self, key: ApiKey) -> None:
        def added(records: list[Json]) -> list[Json]:
            if len(records) >= MOST_KEYS:
                raise KeyRefused(f"There are {MOST_KEYS} keys, which is as many as there may be.")
            return [*records, key.to_record()]

        await asyncio.to_thread(self._change, added)

    async def revoke(self, ident: str) -> bool:
        gone: list[Json] = []

        def left(records: list[Json]) -> list[Json]:
            gone.extend(record for record in records if record["id"] == ident)
            return [record for record in records if record not in gone]

        await asyncio.to_thread(self._change, left)
        return bool(gone)

    async def listen(self, changed: Callable[[], None]) -> None:
        """A file announces nothing."""

    def ignore(self) -> None:
        pass

    def _change(self, change: Callable[[list[Json]], list[Json]]) -> None:
        # Where it is a link, what it leads to is replaced.
        path = Path(os.path.realpath(self._path))
        try:
            with _alone(path.parent):
                exists = path.exists()
                before = [] if not exists else [k.to_record() for k in self.load().keys.values()]
                after = change(before)
                if after != before:
                    _replace(path, json.dumps({"keys": after}, indent=2) + "\n")
        except OSError as error:
            raise self._wrong(f"which cannot be written: {error.strerror}") from None

    def _ring_of(self, data: bytes) -> KeyRing:
        try:
            document = decode(data)
        except ValueError as error:
            raise self._wrong(f"which is not JSON: {error}") from None
        listed = document.get("keys") if isinstance(document, dict) else None
        if not isinstance(listed, list) or len(document) > 1:
            raise self._wrong('which is not an object with the list "keys" alone')
        keys: dict[str, ApiKey] = {}
        for at, record in enumerate(listed, start=1):
            try:
                key = ApiKey.of_record(record)
            except BadRecord as fault:
                raise self._wrong(f"whose key number {at} {fault}") from None
            if key.id in keys:
                raise self._wrong(f"which has two keys with the id {key.id}")
            keys[key.id] = key
        return KeyRing(keys, {})

    def _wrong(self, what: str) -> SettingsError:
        return SettingsError(f"SWITCHROOM_API_KEYS names {str(self._path)!r}, {what}.")


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """While it lasts, no other process that asks for this has it. Locked is the folder: the file
    is replaced, and a file beside it would stay. Windows knows no such lock.
    """
    if sys.platform == "win32":
        yield
        return
    held = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
    finally:
        os.close(held)


def _replace(path: Path, text: str) -> None:
    """A file of this text in the place of the one that may be there, with its owner and mode; a
    new one is for its owner alone.
    """
    number, name = tempfile.mkstemp(prefix=path.name, dir=path.parent)
    try:
        with open(number, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(number)
        with contextlib.suppress(FileNotFoundError):
            old = path.stat()
            os.chmod(name, stat.S_IMODE(old.st_mode))
            if sys.platform != "win32":
                with contextlib.suppress(PermissionError):
                    os.chown(name, old.st_uid, old.st_gid)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise
