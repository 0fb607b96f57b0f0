"""Redis may die at any time. Clients see the end of their task, once, and no task is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.support.outage import FrailRedis, frail_redis
from tests.support.processes import Deployment, Process, deployment, environment, processes
from tests.support.rpc import Event, Rpc, answer_in, answer_of, message, state_of, until
from tests.support.wait import wait_until
from tests.system.conftest import AGENT, CARD, Gates

pytestmark = pytest.mark.requires("redis-server")

# A lease is what a worker's death costs, so it is short; the rest fits under it.
SETTINGS = {
    "LEASE": "3",
    "POSITION_CHECK": "1",
    "RECONCILE_EVERY": "1",
    "DRAIN": "1",
    "CANCEL_WAIT": "1",
    "CANCEL_GRACE": "0.5",
}
WHOLE = "0 1 2 3 4 5 "
LATER = message("echo later")


@pytest.fixture(scope="module")
def frail(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FrailRedis]:
    with frail_redis(tmp_path_factory.mktemp("frail")) as server:
        yield server


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def mortals(
    tmp_path_factory: pytest.TempPathFactory, gates: Gates, frail: FrailRedis
) -> AsyncIterator[Deployment]:
    folder = tmp_path_factory.mktemp("mortals")
    environ = {"TEST_GATES": str(gates.folder)}
    with deployment(
        folder, agent=AGENT, environ=environ, CARD=CARD, REDIS_URL=frail.url, **SETTINGS
    ) as running:
        await running.start(gateways=2, workers=2)
        yield running


@pytest.fixture(autouse=True)
async def healed(mortals: Deployment) -> None:
    """Whom the last test killed is replaced."""
    await mortals.replace_the_dead()


@pytest.fixture
async def one(mortals: Deployment, healed: None) -> AsyncIterator[Rpc]:
    async with Rpc(mortals.gateways[0].url) as client:
        yield client


@pytest.fixture
async def other(mortals: Deployment, healed: None) -> AsyncIterator[Rpc]:
    async with Rpc(mortals.gateways[1].url) as client:
        yield client


@pytest.fixture
def gate(gates: Gates) -> str:
    return gates.new()


@pytest.fixture
def params(gate: str) -> dict[str, Any]:
    """A send whose answer is 0 to 5, held after 2 until the gate is open."""
    return {"message": message(f"gate {gate} 3")}


def runner(mortals: Deployment, seen: list[Event]) -> Process:
    """The worker that runs the task of these events."""
    (pid,) = (int(event.told.split()[1]) for event in seen if event.told.startswith("pid "))
    (worker,) = (worker for worker in mortals.workers if worker.pid == pid)
    return worker


def ends(events: list[Event]) -> list[str]:
    return [event.state for event in events if event.state in ("COMPLETED", "FAILED", "CANCELED")]


class TestRedis:
    async def test_while_it_is_away_gateways_say_so_and_then_all_goes_on(
        self,
        mortals: Deployment,
        frail: FrailRedis,
        one: Rpc,
        other: Rpc,
        gates: Gates,
        gate: str,
        params: Any,
    ) -> None:
        async with one.stream("SendStreamingMessage", params) as events:
            seen = await until(events, "2 ")
            task_id = seen[0].task_id
            frail.stop()
            await _all_unavailable(one, other, task_id)
            frail.start()
            gates.open(gate)
            rest = [event async for event in events]
        assert ends(seen + rest) == ["COMPLETED"]
        assert answer_in(seen + rest) == WHOLE
        assert answer_of(await one.get(task_id)) == WHOLE
        # What was refused may be sent again; the other gateway, too, has found it by itself.
        for client in (one, other):
            again = await _repeated(client, {"message": LATER})
            assert answer_of(again["task"]) == "later"
            assert len(gates.runs(again["task"]["id"])) == 1
        assert all(process.alive for process in (*mortals.gateways, *mortals.workers))

    async def test_silent_it_is_the_same(
        self,
        mortals: Deployment,
        frail: FrailRedis,
        one: Rpc,
        other: Rpc,
        gates: Gates,
        gate: str,
        params: Any,
    ) -> None:
        async with one.stream("SendStreamingMessage", params) as events:
            seen = await until(events, "2 ")
            frail.pause()
            try:
                await _all_unavailable(one, other, seen[0].task_id)
            finally:
                frail.resume()
            gates.open(gate)
            rest = [event async for event in events]
        assert ends(seen + rest) == ["COMPLETED"]
        assert answer_in(seen + rest) == WHOLE
        assert answer_of((await _repeated(other, {"message": LATER}))["task"]) == "later"
        assert answer_of(await other.get(seen[0].task_id)) == WHOLE
        assert all(process.alive for process in (*mortals.gateways, *mortals.workers))

    async def test_away_for_longer_than_a_lease_runs_are_given_up_and_begun_again(
        self,
        mortals: Deployment,
        frail: FrailRedis,
        one: Rpc,
        gates: Gates,
        gate: str,
        params: Any,
    ) -> None:
        async with one.stream("SendStreamingMessage", params) as events:
            seen = await until(events, "2 ")
            task_id, worker = seen[0].task_id, runner(mortals, seen)
            frail.stop()
            await wait_until(
                lambda: gates.cancelled(task_id) == [worker.pid],
                what="the worker has stopped an agent whose task another might run by now",
            )
            frail.start()
            gates.open(gate)
            rest = [event async for event in events]
        assert ends(seen + rest) == ["COMPLETED"]
        assert answer_in(seen + rest) == WHOLE
        assert answer_of(await one.get(task_id)) == WHOLE
        assert len(gates.runs(task_id)) == 2
        assert all(process.alive for process in (*mortals.gateways, *mortals.workers))

    async def test_back_without_its_data_what_runs_is_restored(
        self,
        mortals: Deployment,
        frail: FrailRedis,
        one: Rpc,
        gates: Gates,
        gate: str,
        params: Any,
    ) -> None:
        async with one.stream("SendStreamingMessage", params) as events:
            seen = await until(events, "2 ")
            task_id = seen[0].task_id
            frail.stop()
            frail.start(empty=True)
            gates.open(gate)
            seen += [event async for event in events]
        # Its position was lost with the data: the stream ended, if not with the task's end.
        assert ends(seen) in ([], ["COMPLETED"])

        async def restored() -> Any:
            answer = (await one.post("GetTask", {"id": task_id})).json()
            task = answer.get("result", {})
            return task if state_of(task) == "COMPLETED" else None

        task = await wait_until(restored, what="the task is back and has completed", within=60)
        assert answer_of(task) == WHOLE
        assert [text["parts"][0]["text"] for text in task["history"]][0] == f"gate {gate} 3"
        assert len(gates.runs(task_id)) == 1
        assert answer_of((await _repeated(one, {"message": message("echo new")}))["task"]) == "new"
        assert all(process.alive for process in (*mortals.gateways, *mortals.workers))

    @pytest.mark.parametrize("command", [["gateway", "--port", "0"], ["worker", AGENT]])
    async def test_absent_at_the_start_it_is_one_sentence(
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
        assert response.status_code == 503, response.text
        assert int(response.headers["retry-after"]) >= 1
        assert response.json()["error"]["code"] == -32043
    assert (await other.http.get("/readyz")).status_code == 503
    assert (await other.http.get("/livez")).status_code == 200


async def _repeated(client: Rpc, params: Any) -> Any:
    """The result of a send that is repeated for as long as it is refused with 503."""

    async def taken() -> Any:
        response = await client.post("SendMessage", params)
        return response.json()["result"] if response.status_code == 200 else None

    return await wait_until(taken, what="the send is accepted", within=60)
