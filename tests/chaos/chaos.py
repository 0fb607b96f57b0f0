"""Everything that can die does, under load; then it is checked that nobody could have noticed.

    python -m tests.chaos --minutes 3 [--seed S]

Two gateways, three workers and one Redis, each a process. While visitors send, watch, cancel and
repeat, processes are killed, stopped and told to end, their paths to Redis cut and held, and Redis
is restarted with its data. Then all is healed, every visitor learns its end, a calm wave follows,
and the checker reads what is stored, what the agents marked and what the visitors saw. The last
line is the verdict; the exit code is 1 if any promise was broken. The same seed draws the same
faults and the same load, but not the same races.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import secrets
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import redis
import redis.asyncio

from tests.chaos.checker import Breach, check
from tests.chaos.client import Client
from tests.chaos.dump import dump_of, tasks_in
from tests.chaos.fleet import Fleet, fleet_of
from tests.chaos.load import Visitor, final_look
from tests.chaos.logs import overlaps
from tests.chaos.marks import read_marks
from tests.chaos.nemesis import FAULTS, Nemesis
from tests.chaos.records import Records

__all__ = ["main"]

_LAPSED = re.compile(r"task (\S+): lease lost")
_PATIENCE = 90.0
"""Seconds after which, with all healed, who still waits has been forgotten."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """visitors: at once.  calm: visits of the wave at the end.  broken: workers without a fence;
    the storm ends when that has shown.
    """

    minutes: float
    seed: str
    faults: Sequence[str]
    visitors: int
    calm: int
    broken: bool


def main(argv: list[str] | None = None) -> int:
    plan = _plan(argv)
    folder = Path(tempfile.mkdtemp(prefix="chaos-"))
    _say(f"seed {plan.seed}, {plan.minutes:g} min; logs, marks and records in {folder}")
    records = Records()
    breaches, tasks = asyncio.run(_chaos(plan, folder, records))
    for name, count in sorted(records.counts.items()):
        _say(f"{count:8} {name}")
    for breach in breaches:
        _say(str(breach))
    kinds = ", ".join(sorted({breach.kind for breach in breaches}))
    verdict = f"BREACH {len(breaches)} ({kinds})" if breaches else "OK"
    faults = sum(count for name, count in records.counts.items() if name.startswith("faults"))
    _say(f"chaos: {verdict} {tasks} tasks, {faults} faults, seed {plan.seed}")
    if not breaches:
        shutil.rmtree(folder)
    return 1 if breaches else 0


async def _chaos(plan: Plan, folder: Path, records: Records) -> tuple[list[Breach], int]:
    """Does it all. -> the breaches, and how many tasks there were."""
    marks = folder / "marks"
    broken = {"worker": ("-m", "tests.chaos.broken")} if plan.broken else {}
    async with fleet_of(
        folder, gateways=2, workers=3, marks=marks, records=records, **broken
    ) as fleet:
        client = Client(fleet.urls, records)
        try:
            breaches = await _storm(plan, fleet, client, records)
            if not plan.broken:
                await _quiet(fleet, records)
                stored = tasks_in(await asyncio.to_thread(dump_of, fleet.redis.url))
                seen = [ident for ident, task in stored.items() if task.fields["shown"] == "1"]
                await final_look(client, records, seen)
        finally:
            await client.close()
        await fleet.stop()
        dump = await asyncio.to_thread(dump_of, fleet.redis.url)
        runs = read_marks(marks)
        lapsed = {task for _, text in fleet.logs() for task in _LAPSED.findall(text)}
        breaches += check(dump, runs, records, lapsed=lapsed)
        breaches += [Breach("death", "", text) for text in fleet.deaths]
        breaches += [
            Breach("traceback", "", f"{name}: …{text[max(0, at - 300) : at + 2000]}")
            for name, text in fleet.logs()
            if (at := text.find("Traceback")) >= 0
        ]
        if breaches:
            kept = {**asdict(records), "counts": dict(records.counts)}
            (folder / "records.json").write_text(json.dumps(kept, default=list, indent=1))
            (folder / "redis.json").write_text(json.dumps(dump, indent=1))
        records.counts["runs of agents"] = len(runs)
        records.counts["runs of agents that were cancelled"] = sum(
            run.end == "cancelled" for run in runs.values()
        )
        attempts = Counter(run.attempt for run in runs.values())
        records.counts.update({f"attempts: number {n}": attempts[n] for n in attempts if n > 1})
        states = Counter(task.state for task in tasks_in(dump).values())
        records.counts.update({f"tasks: {state}": count for state, count in states.items()})
        return breaches, sum(states.values())


async def _storm(plan: Plan, fleet: Fleet, client: Client, records: Records) -> list[Breach]:
    """Load and faults for so long; then all is healed, and the calm wave follows."""
    over = asyncio.Event()
    nemesis = Nemesis(fleet, records, f"{plan.seed} faults", faults=plan.faults)
    visitors = [Visitor(client, records, f"{plan.seed} {n}") for n in range(plan.visitors)]
    quiet = [Visitor(client, records, f"{plan.seed} {n}", calm=True) for n in range(-plan.calm, 0)]
    watching = asyncio.create_task(fleet.watch())
    staying = [asyncio.create_task(visitor.stay(over)) for visitor in visitors]
    if plan.broken:
        staying.append(asyncio.create_task(_until_it_shows(fleet, over)))
    try:
        asyncio.get_running_loop().call_later(60 * plan.minutes, over.set)
        await nemesis.rage(over)
        await fleet.heal()
        breaches = await _all_done(staying, within=1 if plan.broken else _PATIENCE)
        breaches += await _all_done([asyncio.create_task(visitor.visit()) for visitor in quiet])
    finally:
        for task in (watching, *staying):
            task.cancel()
        await asyncio.wait([watching, *staying])
        (fleet.folder / "timeline").write_text("\n".join(nemesis.timeline))
    if not watching.cancelled():
        watching.result()
    return breaches


async def _until_it_shows(fleet: Fleet, over: asyncio.Event) -> None:
    """Two runs of one task have had effect in its log: that is enough of a storm."""
    while not over.is_set():
        with suppress(redis.RedisError):
            tasks = tasks_in(await asyncio.to_thread(dump_of, fleet.redis.url))
            if any(map(overlaps, tasks.values())):
                over.set()
        await asyncio.sleep(0.5)


async def _all_done(visits: list[asyncio.Task[None]], *, within: float = _PATIENCE) -> list[Breach]:
    """Everybody learns how it ended, in bounded time."""
    if not visits:
        return []
    done, hanging = await asyncio.wait(visits, timeout=within)
    for visit in done:
        visit.result()
    for visit in hanging:
        visit.cancel()
    text = f"with all healed a visitor still waits after {within:g} s"
    return [Breach("hung", "", f"{text}: {visit.get_stack()[-1:]}") for visit in hanging]


async def _quiet(fleet: Fleet, records: Records) -> None:
    """Waits until the queue is empty and the reconciler has struck off what has ended. If that
    never is, the checker says what is left.
    """
    left = len({send.key for send in records.sends if send.left})
    async with redis.asyncio.Redis.from_url(fleet.redis.url) as client:
        with suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE / 3):
                while True:
                    pipe = client.pipeline(transaction=False)
                    pipe.zcard("switchroom:queue:main").zcard("switchroom:queue:main:running")
                    waiting, running, opened = await pipe.zcard("switchroom:open:main").execute()
                    if not (waiting or running) and opened <= left:
                        return
                    await asyncio.sleep(0.2)


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _plan(argv: list[str] | None) -> Plan:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--minutes", type=float, default=3.0, help="of load and faults (3)")
    add("--seed", default="", help="of faults and load; else drawn")
    add("--faults", default=",".join(FAULTS), help="which kinds, comma-separated (all)")
    add("--visitors", type=int, default=24, help="clients at once (24)")
    add("--calm", type=int, default=20, help="visits when all is healed (20)")
    add("--broken", action="store_true", help="workers that check no fence: the run must fail")
    given = vars(parser.parse_args(argv))
    faults = given.pop("faults").split(",")
    if unknown := set(faults) - FAULTS.keys():
        parser.error(f"--faults knows {', '.join(FAULTS)}, not {', '.join(sorted(unknown))}")
    seed = given.pop("seed") or secrets.token_hex(3)
    return Plan(**given, seed=seed, faults=faults)
