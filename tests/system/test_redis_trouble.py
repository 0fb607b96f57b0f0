"""Redis in trouble of every kind: away, silent, slow, full, set back, its connections broken.

While it lasts gateways say 503 with Retry-After; afterwards all goes on by itself: streams without
a gap, each task to its one end, and no run is begun more often than its loss demands.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from switchroom.settings import Settings
from switchroom.store.keys import Keys
from switchroom.store.scripts import SCRIPTS
from tests.support.link import Link, link_to
from tests.support.outage import FrailRedis, frail_redis
from tests.support.processes import Deployment, deployment, environment, processes
from tests.support.rpc import (
    Event,
    Rpc,
    answer_in,
    answer_of,
    ended,
    ends_in,
    message,
    state_of,
    until,
)
from tests.support.wait import wait_until
from tests.system.conftest import AGENT, CARD, Gates

# The loop of the link's fixture, which must run while a test does.
pytestmark = [pytest.mark.requires("redis-server"), pytest.mark.asyncio(loop_scope="session")]

LEASE = 3
# A lease is what an outage may cost, so it is short; the rest fits under it.
SETTINGS = {
    "LEASE": str(LEASE),
    "REDIS_TIMEOUT": "1",
    "POSITION_CHECK": "1",
    "RECONCILE_EVERY": "1",
    "DRAIN": "1",
    "CANCEL_WAIT": "1",
    "CANCEL_GRACE": "0.5",
    "CONCURRENCY": "10",
}
WHOLE = "0 1 2 3 4 5 "
LATER = message("echo later")
KEYS = Keys(Settings().prefix, Settings().queue)


@pytest.fixture(scope="module")
def frail(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FrailRedis]:
    with frail_redis(tmp_path_factory.mktemp("frail")) as server:
        yield server


@pytest.fixture(scope="module")
def apart(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FrailRedis]:
    """A Redis for a queue alone."""
    with frail_redis(tmp_path_factory.mktemp("apart")) as server:
        yield server


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def link(frail: FrailRedis) -> AsyncIterator[Link]:
    """The way from all processes to their Redis."""
    async with link_to(frail.port) as opened:
        yield opened


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def survivors(
    tmp_path_factory: pytest.TempPathFactory, gates: Gates, link: Link
) -> AsyncIterator[Deployment]:
    """They must survive all that happens in this file."""
    folder = tmp_path_factory.mktemp("survivors")
    environ = {"TEST_GATES": str(gates.folder)}
    with deployment(
        folder, agent=AGENT, environ=environ, CARD=CARD, REDIS_URL=link.url, **SETTINGS
    ) as running:
        await running.start(gateways=2, workers=2)
        yield running
        _unharmed(running)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def split(
    tmp_path_factory: pytest.TempPathFactory, gates: Gates, apart: FrailRedis, frail: FrailRedis
) -> AsyncIterator[Deployment]:
    """The same with a Redis for the queue alone."""
    folder = tmp_path_factory.mktemp("split")
    environ = {"TEST_GATES": str(gates.folder)}
    urls = {"REDIS_URL": frail.url, "QUEUE_URL": apart.url, "PREFIX": "split"}
    with deployment(folder, agent=AGENT, environ=environ, CARD=CARD, **urls, **SETTINGS) as running:
        await running.start(gateways=2, workers=2)
        yield running
        _unharmed(running)


def _unharmed(running: Deployment) -> None:
    assert all(process.alive for process in running.processes.all)
    assert [text for _, text in running.logs() if "Traceback" in text] == []


@pytest_asyncio.fixture(loop_scope="session")
async def one(survivors: Deployment) -> AsyncIterator[Rpc]:
    async with Rpc(survivors.gateways[0].url) as client:
        yield client


@pytest_asyncio.fixture(loop_scope="session")
async def other(survivors: Deployment) -> AsyncIterator[Rpc]:
    async with Rpc(survivors.gateways[1].url) as client:
        yield client


@pytest.fixture
def params(gate: str) -> dict[str, Any]:
    """A send whose answer is 0 to 5, held after 2 until the gate is open."""
    return {"message": message(f"gate {gate} 3")}


def positions(events: Sequence[Event]) -> list[int]:
    return [int(event.id.partition(".")[0]) for event in events]


async def whole(client: Rpc, gates: Gates, events: Sequence[Event], *, runs: int = 1) -> None:
    """What one stream told is the whole task: each entry of its log once, and one end."""
    first = positions(events)[0]
    assert positions(events) == list(range(first, first + len(events)))
    assert ends_in(events) == ["COMPLETED"]
    assert answer_in(events) == WHOLE
    task_id = events[0].task_id
    assert answer_of(await client.get(task_id)) == WHOLE
    assert len(gates.runs(task_id)) == runs


async def renewed_for_longer_than_a_lease(frail: FrailRedis) -> None:
    """Waits until every lease there is ends later than it could without having been renewed."""

    def ends() -> dict[bytes, float]:
        return dict(frail.client.zrange(KEYS.queue.running, 0, -1, withscores=True))

    before = ends()
    assert before
    await wait_until(
        lambda: all(ends().get(job, 0) > end + 1000 * LEASE for job, end in before.items()),
        what="leases were renewed",
        within=60,
    )


class TestAway:
    async def test_gateways_say_so_and_then_all_goes_on(
        self, frail: FrailRedis, one: Rpc, other: Rpc, gates: Gates, gate: str, params: Any
    ) -> None:
        async with one.stream("SendStreamingMessage", params) as events:
            seen = await until(events, "2 ")
            frail.stop()
            await _all_unavailable(one, other, seen[0].task_id)
            frail.start()
            gates.open(gate)
            seen += [event async for event in events]
        await whole(one, gates, seen)
        # What was refused may be sent again; the other gateway, too, has found it by itself.
        for client in (one, other):
            again = await _repeated(client, {"message": LATER})
            assert answer_of(again["task"]) == "later"
            assert len(gates.runs(again["task"]["id"])) == 1

    async def test_silent_it_is_the_same(
        self, frail: FrailRedis, one: Rpc, other: Rpc, gates: Gates, gate: str, params: Any
    ) -> None:
        """Who asks is answered although Redis never does: its patience ends by itself."""
        async with one.stream("SendStreamingMessage", params) as events:
            seen = await until(events, "2 ")
            frail.pause()
            try:
                await _all_unavailable(one, other, seen[0].task_id)
            finally:
                frail.resume()
            gates.open(gate)
            seen += [event async for event in events]
        assert answer_of((await _repeated(other, {"message": LATER}))["task"]) == "later"
        # On a slow machine all this may have taken longer than the lease.
        assert ends_in(seen) == ["COMPLETED"] and answer_in(seen) == WHOLE
        assert answer_of(await other.get(seen[0].task_id)) == WHOLE

    async def test_a_pause_shorter_than_a_lease_costs_nothing(
        self, frail: FrailRedis, one: Rpc, gates: Gates, gate: str, params: Any
    ) -> None:
        async with one.stream("SendStreamingMessage", params) as events:
            seen = await until(events, "2 ")
            frail.client.client_pause(round(1000 * LEASE / 3))
            gates.open(gate)
            seen += [event async for event in events]
        await whole(one, gates, seen)

    async def test_longer_than_a_lease_runs_are_given_up_and_begun_again(
        self,
        survivors: Deployment,
        frail: FrailRedis,
        one: Rpc,
        gates: Gates,
        gate: str,
        params: Any,
    ) -> None:
        async with one.stream("SendStreamingMessage", params) as events:
            seen = await until(events, "2 ")
            task_id, worker = seen[0].task_id, await gates.begun(seen[0].task_id)
            frail.stop()
            await wait_until(
                lambda: gates.cancelled(task_id) == [worker],
                what="the worker has stopped an agent whose task another might run by now",
                within=60,
            )
            frail.start()
            gates.open(gate)
            seen += [event async for event in events]
        await whole(one, gates, seen, runs=2)

    async def test_while_it_loads_its_data_it_counts_as_away(
        self, frail: FrailRedis, one: Rpc, other: Rpc, gates: Gates, gate: str, params: Any
    ) -> None:
        async with one.stream("SendStreamingMessage", params) as events:
            seen = await until(events, "2 ")
            frail.fatten()
            frail.stop()
            frail.start(slowly=True)
            try:
                await _all_unavailable(one, other, seen[0].task_id)
            finally:
                frail.hurry()
            gates.open(gate)
            seen += [event async for event in events]
        assert ends_in(seen) == ["COMPLETED"] and answer_in(seen) == WHOLE
        assert answer_of((await _repeated(other, {"message": LATER}))["task"]) == "later"


class TestSetBack:
    async def test_without_its_data_what_runs_is_restored(
        self, frail: FrailRedis, one: Rpc, gates: Gates, gate: str, params: Any
    ) -> None:
        async with one.stream("SendStreamingMessage", params) as events:
            seen = await until(events, "2 ")
            task_id = seen[0].task_id
            frail.stop()
            frail.start(empty=True)
            # Its position was lost with the data: the stream ends, but not with the task's end.
            seen += [event async for event in events]
        assert ends_in(seen) == []
        gates.open(gate)

        async def restored() -> bool:
            return "result" in (await one.post("GetTask", {"id": task_id})).json()

        await wait_until(restored, what="the task is back", within=60)
        task = await ended(one, task_id)
        assert (state_of(task), answer_of(task)) == ("COMPLETED", WHOLE)
        assert task["history"][0]["parts"][0]["text"] == f"gate {gate} 3"
        assert len(gates.runs(task_id)) == 1
        assert answer_of((await _repeated(one, {"message": message("echo new")}))["task"]) == "new"

    async def test_to_an_older_save_what_runs_goes_on_above_what_was_lost(
        self, frail: FrailRedis, one: Rpc, other: Rpc, gates: Gates, gate: str
    ) -> None:
        """Also when the lease had lapsed in the save: its owner is heard before it is taken."""
        params = {"message": message(f"steps {gate} 3")}
        async with one.stream("SendStreamingMessage", params) as events:
            seen = await until(events, "0 ")
            frail.save()
            gates.open(f"{gate}-0")
            seen += await until(events, "1 ")
            await renewed_for_longer_than_a_lease(frail)
            frail.stop()
            frail.start(older=True)
            seen += [event async for event in events]
        assert ends_in(seen) == [] and answer_in(seen) == "0 1 "
        gates.open(f"{gate}-1")
        task_id, last = seen[0].task_id, seen[-1].id
        rest: list[Event] = []
        # Who asks before the owner has restored it sees what was saved, and has to come once more.
        while not ends_in(rest):
            rest = await other.whole_stream("SubscribeToTask", {"id": task_id}, Last_Event_ID=last)
            last = rest[-1].id
        # Not the same stream going on: it begins with the task, and its numbers are higher.
        assert rest[0].kind == "task"
        assert min(positions(rest)) > max(positions(seen))
        assert ends_in(rest) == ["COMPLETED"] and answer_in(rest) == "0 1 2 "
        assert len(gates.runs(task_id)) == 1

    async def test_to_before_a_task_had_ended_it_is_run_again_and_nobody_resumes_in_the_middle(
        self, frail: FrailRedis, one: Rpc, gates: Gates, gate: str
    ) -> None:
        params = {"message": message(f"steps {gate} 3")}
        async with one.stream("SendStreamingMessage", params) as events:
            seen = await until(events, "0 ")
            frail.save()
            for number in range(2):
                gates.open(f"{gate}-{number}")
            seen += [event async for event in events]
        task_id = seen[0].task_id
        assert ends_in(seen) == ["COMPLETED"]
        frail.stop()
        frail.start(older=True)
        await gates.begun(task_id, 2)
        ended_again = await ended(one, task_id)
        assert answer_of(ended_again) == "0 1 2 "
        for event in seen:
            # Each place that a client may have reached: either the log still has it, or the
            # client gets the task anew.
            rest = await one.whole_stream(
                "SubscribeToTask", {"id": task_id}, Last_Event_ID=event.id
            )
            known = seen[: seen.index(event) + 1] if rest[0].kind != "task" else []
            assert answer_in([*known, *rest]) == "0 1 2 "
            assert ends_in([*known, *rest]) == ["COMPLETED"]
        assert [attempt for _, attempt, _ in gates.runs(task_id)] == [1, 2]


class TestRefusing:
    async def test_full_it_takes_no_sends_and_runs_wait_for_room(
        self, frail: FrailRedis, one: Rpc, other: Rpc, gates: Gates, gate: str, params: Any
    ) -> None:
        async with one.stream("SendStreamingMessage", params) as events:
            seen = await until(events, "2 ")
            with frail.full():
                gates.open(gate)
                for client in (one, other):
                    _refused(await client.post("SendMessage", {"message": LATER}))
                    _refused(await client.post("SendStreamingMessage", {"message": LATER}))
                # Reads need no room, so a gateway is ready.
                assert answer_of(await other.get(seen[0].task_id)) == "0 1 2 "
                assert (await other.http.get("/readyz")).status_code == 200
                await renewed_for_longer_than_a_lease(frail)
            seen += [event async for event in events]
        await whole(one, gates, seen)
        assert answer_of((await _repeated(one, {"message": LATER}))["task"]) == "later"

    async def test_demoted_it_can_be_read(
        self, frail: FrailRedis, one: Rpc, other: Rpc, gates: Gates, gate: str, params: Any
    ) -> None:
        async with one.stream("SendStreamingMessage", params) as events:
            seen = await until(events, "2 ")
            with frail.demoted():
                gates.open(gate)
                for client in (one, other):
                    _refused(await client.post("SendMessage", {"message": LATER}))
                assert answer_of(await other.get(seen[0].task_id)) == "0 1 2 "
                assert (await other.http.get("/readyz")).status_code == 200
            seen += [event async for event in events]
        await whole(one, gates, seen)
        assert answer_of((await _repeated(one, {"message": LATER}))["task"]) == "later"

    async def test_its_scripts_forgotten_it_is_told_them_again(
        self, frail: FrailRedis, one: Rpc, other: Rpc, gates: Gates, gate: str, params: Any
    ) -> None:
        async with one.stream("SendStreamingMessage", params) as events:
            seen = await until(events, "2 ")
            frail.client.script_flush()
            assert answer_of((await other.send("echo new"))["task"]) == "new"
            frail.client.script_flush()
            gates.open(gate)
            seen += [event async for event in events]
        await whole(one, gates, seen)


class TestConnections:
    async def test_each_may_be_killed(
        self,
        split: Deployment,
        frail: FrailRedis,
        apart: FrailRedis,
        gates: Gates,
        gate: str,
        params: Any,
    ) -> None:
        """One after another, all kinds there are: a send that is refused is answered when it is
        repeated, and a stream that is open loses nothing.
        """
        one, other = (Rpc(gateway.url) for gateway in split.gateways)
        async with one, other, one.stream("SendStreamingMessage", params) as events:
            seen = await until(events, "2 ")
            killed = 0
            for server in (frail, apart):
                mine = server.client.client_id()
                for connection in server.client.client_list():
                    if int(connection["id"]) == mine or connection["cmd"] == "NULL":
                        continue
                    killed += server.client.client_kill_filter(_id=connection["id"])
                    sent = {"message": message(f"echo {killed}")}
                    task = (await _repeated((one, other)[killed % 2], sent))["task"]
                    assert answer_of(task) == str(killed)
                    assert len(gates.runs(task["id"])) == 1
            # Of each process at least commits, reads and a listener at one, commits and a listener
            # at the other.
            assert killed >= 4 * 5
            gates.open(gate)
            seen += [event async for event in events]
            await whole(one, gates, seen)

    async def test_half_open_they_are_found_out(
        self, link: Link, one: Rpc, other: Rpc, gates: Gates, gate: str, params: Any
    ) -> None:
        async with one.stream("SendStreamingMessage", params) as events:
            seen = await until(events, "2 ")
            link.strand()
            gates.open(gate)
            seen += [event async for event in events]
        assert ends_in(seen) == ["COMPLETED"] and answer_in(seen) == WHOLE
        for client in (one, other):
            assert answer_of((await _repeated(client, {"message": LATER}))["task"]) == "later"

    async def test_slow_answers_are_waited_for(
        self, link: Link, one: Rpc, gates: Gates, gate: str, params: Any
    ) -> None:
        link.delay = 0.1
        try:
            gates.open(gate)
            seen = await one.whole_stream("SendStreamingMessage", params)
            assert answer_of((await one.send("echo slow"))["task"]) == "slow"
        finally:
            link.delay = 0.0
        await whole(one, gates, seen)

    async def test_answers_that_come_too_late_are_as_good_as_lost(
        self, link: Link, one: Rpc, gates: Gates, gate: str, params: Any
    ) -> None:
        gates.open(gate)
        link.delay = 2 * float(SETTINGS["REDIS_TIMEOUT"])
        try:
            _refused(await one.post("SendMessage", params))
        finally:
            link.delay = 0.0
        task = (await _repeated(one, params))["task"]
        assert answer_of(task) == WHOLE
        assert len(gates.runs(task["id"])) == 1

    @pytest.mark.parametrize(
        "word",
        [
            pytest.param(":claim:", id="claim"),
            pytest.param("SUBSCRIBE", id="subscribe"),
            *(
                pytest.param(script.sha, id=script.name)
                for script in (
                    SCRIPTS.accept,
                    SCRIPTS.append,
                    SCRIPTS.take,
                    SCRIPTS.renew,
                    SCRIPTS.finish,
                )
            ),
        ],
    )
    async def test_an_answer_is_lost_and_nothing_is_doubled(
        self,
        word: str,
        link: Link,
        frail: FrailRedis,
        one: Rpc,
        gates: Gates,
        gate: str,
        params: Any,
    ) -> None:
        # Workers ask for work all the time; the answer that matters is the one that gives some.
        lost = link.lose(word, told="run:" if word == SCRIPTS.take.sha else "")
        sent = asyncio.create_task(_repeated(one, params))
        if word == SCRIPTS.renew.sha:
            await lost.wait()
        gates.open(gate)
        task = (await sent)["task"]
        await lost.wait()
        assert answer_of(task) == WHOLE
        log = frail.client.xrange(KEYS.log(task["id"]))
        assert [ident for ident, _ in log] == [b"%d-0" % seq for seq in range(1, len(log) + 1)]
        assert [entry[b"s"] for _, entry in log][-1] == b"TASK_STATE_COMPLETED"
        assert [attempt for _, attempt, _ in gates.runs(task["id"])] == (
            # It was begun as it was taken, and nobody knew.
            [2] if word == SCRIPTS.take.sha else [1]
        )


class TestQueueApart:
    async def test_emptied_it_costs_no_attempt_and_doubles_nothing(
        self, split: Deployment, apart: FrailRedis, gates: Gates, gate: str
    ) -> None:
        """20 runs go on, and those that waited behind them are started by the reconciler."""
        one, other = (Rpc(gateway.url) for gateway in split.gateways)
        running, behind = 2 * int(SETTINGS["CONCURRENCY"]), 5
        queue = Keys("split", Settings().queue).queue
        async with one, other:
            sent = [
                await (one, other)[n % 2].send(f"gate {gate} 3", now=True)
                for n in range(running + behind)
            ]
            ids = [answer["task"]["id"] for answer in sent]

            def begun() -> int:
                return sum(len(gates.runs(task_id)) for task_id in ids)

            await wait_until(lambda: begun() == running, what="all places are taken", within=60)
            apart.client.flushall()
            await wait_until(
                lambda: (
                    apart.client.zcard(queue.running) == running
                    and apart.client.zcard(queue.queue) == running + behind
                ),
                what="the queue knows all of them again",
                within=60,
            )
            assert begun() == running
            gates.open(gate)
            for task_id in ids:
                task = await ended(one, task_id)
                assert (state_of(task), answer_of(task)) == ("COMPLETED", WHOLE)
                assert [attempt for _, attempt, _ in gates.runs(task_id)] == [1]


class TestAbsent:
    @pytest.mark.parametrize("command", [["gateway", "--port", "0"], ["worker", AGENT]])
    async def test_at_the_start_it_is_one_sentence(
        self, command: list[str], tmp_path: Path, gates: Gates
    ) -> None:
        environ = environment(REDIS_URL="redis://:secret@127.0.0.1:1", CARD=CARD)
        environ["TEST_GATES"] = str(gates.folder)
        with processes(tmp_path) as running:
            process = running.switchroom(*command, environ=environ)
            assert await process.ended() == 1
        (sentence,) = process.output.splitlines()
        assert sentence == (
            "switchroom: Redis at 127.0.0.1:1 does not answer (Connection refused); is it running?"
        )


async def _all_unavailable(one: Rpc, other: Rpc, task_id: str) -> None:
    """Every method that needs the store says 503 with Retry-After; and the probes tell apart."""
    responses = await asyncio.gather(
        one.post("GetTask", {"id": task_id}),
        one.post("SendMessage", {"message": LATER}),
        other.post("SendStreamingMessage", {"message": LATER}),
        other.post("SubscribeToTask", {"id": task_id}),
        other.post("ListTasks"),
        other.post("CancelTask", {"id": task_id}),
    )
    for response in responses:
        _refused(response)
    assert (await other.http.get("/readyz")).status_code == 503
    assert (await other.http.get("/livez")).status_code == 200


def _refused(response: httpx.Response) -> None:
    assert response.status_code == 503, response.text
    assert int(response.headers["retry-after"]) >= 1
    assert response.json()["error"]["code"] == -32043


async def _repeated(client: Rpc, params: Any) -> Any:
    """The result of a send that is repeated for as long as it is refused with 503."""

    async def taken() -> Any:
        response = await client.post("SendMessage", params)
        return response.json()["result"] if response.status_code == 200 else None

    return await wait_until(taken, what="the send is accepted", within=60)
