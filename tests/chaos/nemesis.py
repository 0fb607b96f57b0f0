"""What goes wrong during `make chaos`: a seeded choice of faults, each healed by who caused it."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

import redis
import redis.asyncio

from tests.chaos.fleet import Fleet, Slot
from tests.chaos.records import Records

__all__ = ["FAULTS", "Nemesis"]

# A stop is drawn around the lease (2 s): below it nobody takes over, above it somebody has.
_STOPPED = (0.3, 4.5)
_OVERSLEPT = (2.2, 3.7)
_HELD = (0.3, 4.0)
_DELAY = (0.02, 0.5)
_AWAY = (0.0, 2.5)
_PAUSED = (0.2, 2.5)

FAULTS = {
    "kill": 5,
    "stop": 4,
    "oversleep": 2,
    "term": 4,
    "cut": 4,
    "hold": 4,
    "strand": 2,
    "slow": 1,
    "redis-restart": 1,
    "redis-kill": 1,
    "redis-pause": 1,
    "redis-drops": 2,
    "redis-forgets-scripts": 1,
}
"""Every kind of fault, and how often it is chosen beside the others."""


class Nemesis:
    """pause: seconds between the beginnings of two faults, drawn from this range."""

    def __init__(
        self,
        fleet: Fleet,
        records: Records,
        seed: str,
        *,
        faults: Sequence[str] = tuple(FAULTS),
        pause: tuple[float, float] = (0.2, 1.5),
    ) -> None:
        self._fleet = fleet
        self._records = records
        self._dice = random.Random(seed)
        self._faults = list(faults)
        self._pause = pause
        self._redis = asyncio.Lock()
        self.timeline: list[str] = []
        """What was done, and when."""

    async def rage(self, over: asyncio.Event) -> None:
        """One fault after the other, each healing beside the next, until it is over; returns when
        the last has healed.
        """
        weights = [FAULTS[name] for name in self._faults]
        async with asyncio.TaskGroup() as group:
            while not over.is_set():
                (name,) = self._dice.choices(self._faults, weights)
                group.create_task(self._do(name))
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._dice.uniform(*self._pause)):
                        await over.wait()

    async def _do(self, name: str) -> None:
        if name.startswith("redis"):
            if self._redis.locked():
                return
            async with self._redis:
                self._note(name, "Redis")
                await getattr(self, f"_{name.replace('-', '_')}")()
            self._note(f"{name} is over", "Redis")
            return
        slots = self._fleet.workers if name == "oversleep" else self._fleet.slots
        slot = self._dice.choice(slots)
        if slot.busy.locked():
            return
        if name == "oversleep" and sum(each.busy.locked() for each in slots) > 1:
            return  # nobody would be left to take over
        deed: Callable[[Slot], Awaitable[None]] = getattr(self, f"_{name}")
        async with slot.busy:
            self._note(name, slot.name)
            await deed(slot)
        self._note(f"{name} is over", slot.name)

    # -- processes

    async def _kill(self, slot: Slot) -> None:
        assert slot.process is not None
        await slot.process.kill()
        await self._replaced(slot)

    async def _stop(self, slot: Slot) -> None:
        await self._asleep(slot, *_STOPPED)

    async def _oversleep(self, slot: Slot) -> None:
        await self._asleep(slot, *_OVERSLEPT)

    async def _asleep(self, slot: Slot, least: float, most: float) -> None:
        process = slot.process
        assert process is not None
        process.send(signal.SIGSTOP)
        await asyncio.sleep(self._dice.uniform(least, most))
        process.send(signal.SIGCONT)

    async def _term(self, slot: Slot) -> None:
        assert slot.process is not None
        code = await slot.process.stop()
        if code:
            self._fleet.deaths.append(f"{slot.process.log.stem}: SIGTERM, and it ended with {code}")
        await self._replaced(slot)

    async def _replaced(self, slot: Slot) -> None:
        await asyncio.sleep(self._dice.choice((0.0, self._dice.uniform(0.0, 1.0))))
        await self._fleet.start(slot)

    # -- the network

    async def _cut(self, slot: Slot) -> None:
        slots = self._dice.choice(([slot], [slot], self._fleet.slots))
        for each in slots:
            each.link.cut()

    async def _hold(self, slot: Slot) -> None:
        slot.link.hold()
        await asyncio.sleep(self._dice.uniform(*_HELD))
        if self._dice.random() < 0.5:
            slot.link.cut()
        slot.link.release()

    async def _strand(self, slot: Slot) -> None:
        slot.link.strand()

    async def _slow(self, slot: Slot) -> None:
        slot.link.delay = self._dice.uniform(*_DELAY)
        await asyncio.sleep(self._dice.uniform(*_HELD))
        slot.link.delay = 0.0

    # -- Redis

    async def _redis_restart(self) -> None:
        await asyncio.to_thread(self._fleet.redis.stop)
        await self._redis_back()

    async def _redis_kill(self) -> None:
        await asyncio.to_thread(self._fleet.redis.kill)
        await self._redis_back()

    async def _redis_back(self) -> None:
        await asyncio.sleep(self._dice.uniform(*_AWAY))
        await asyncio.to_thread(self._fleet.redis.start)

    async def _redis_pause(self) -> None:
        async with redis.asyncio.Redis.from_url(self._fleet.redis.url) as client:
            for_ms = round(1000 * self._dice.uniform(*_PAUSED))
            await client.client_pause(for_ms, all=True)
        await asyncio.sleep(for_ms / 1000)

    async def _redis_drops(self) -> None:
        kind = self._dice.choice(("normal", "pubsub"))
        async with redis.asyncio.Redis.from_url(self._fleet.redis.url) as client:
            await client.client_kill_filter(_type=kind, skipme=True)

    async def _redis_forgets_scripts(self) -> None:
        async with redis.asyncio.Redis.from_url(self._fleet.redis.url) as client:
            await client.script_flush()

    def _note(self, what: str, whom: str) -> None:
        self.timeline.append(f"{time.time():.3f} {what}: {whom}")
        if not what.endswith("is over"):
            self._records.counts[f"faults: {what} {whom.split()[0]}"] += 1
