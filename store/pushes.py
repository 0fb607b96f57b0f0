"""Push-notification configs of a task: kept with it, gone with it. What they are told of it is in
`deliveries.py`.
"""

from __future__ import annotations

from typing import Final

from switchroom.protocol.event import decode, encode
from switchroom.protocol.model import Json
from switchroom.store.commit import GroupCommit
from switchroom.store.deliveries import forgotten
from switchroom.store.keys import Keys
from switchroom.store.scripts import SCRIPTS, command
from switchroom.store.sealing import Sealer

__all__ = ["PushConfigs"]


_VERSION: Final = "protocolVersion"


class PushConfigs:
    """Configs by task and config id, as 1.0 JSON. Whether a caller may touch the task is asked
    before.  sealer: what they are kept under.  most: configs of one task.
    """

    def __init__(
        self, commit: GroupCommit, reads: GroupCommit, *, keys: Keys, sealer: Sealer, most: int
    ) -> None:
        self.most = most
        self._sealer = sealer
        self._commit = commit
        self._reads = reads
        self._keys = keys

    def seal(self, config: Json, *, version: str = "1.0") -> bytes:
        """A config as it is kept.  version: of A2A that its registrant speaks, and hears."""
        return self._sealer.seal(
            encode(config if version == "1.0" else {**config, _VERSION: version})
        )

    def open(self, kept: bytes) -> tuple[Json, str]:
        """A config that was kept, and the version its registrant speaks. Raises Sealed."""
        config: Json = decode(self._sealer.open(kept))
        return config, config.pop(_VERSION, "1.0")

    async def put(
        self, task_id: str, config_id: str, config: Json, *, version: str = "1.0"
    ) -> bool:
        """Adds or replaces; False if the task has as many as it may (or is gone)."""
        (answer,) = await self._commit(
            SCRIPTS.configure(
                [self._keys.task(task_id), self._keys.push(task_id), self._keys.sent(task_id)],
                config_id,
                self.seal(config, version=version),
                self.most,
            )
        )
        return bool(answer[0] == b"ok")

    async def get(self, task_id: str, config_id: str) -> Json | None:
        (found,) = await self._reads(command("HGET", self._keys.push(task_id), config_id))
        return None if found is None else self.open(found)[0]

    async def all(self, task_id: str) -> list[Json]:
        """Every config of the task, by id."""
        (found,) = await self._reads(command("HGETALL", self._keys.push(task_id)))
        if isinstance(found, dict):
            found = [word for pair in found.items() for word in pair]
        return [self.open(data)[0] for _, data in sorted(zip(found[::2], found[1::2], strict=True))]

    async def delete(self, task_id: str, config_id: str) -> None:
        await self._commit(
            command("HDEL", self._keys.push(task_id), config_id),
            *forgotten(self._keys, task_id, config_id),
        )
