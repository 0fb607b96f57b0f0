"""Silence ends: a run that takes too long or says nothing, a question that nobody answers."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.support.processes import Deployment, deployment
from tests.support.rpc import Rpc, answer_in, answer_of, ends_in, message, state_of, told_by
from tests.system.conftest import AGENT, CARD, Gates

pytestmark = pytest.mark.requires("redis-server")

SETTINGS = {"INTERRUPTED_LIMIT": "3", "RECONCILE_EVERY": "0.3"}
OVERRUN = "The run took longer than it may."
SILENT = "The agent was silent for too long."
UNSUPPORTED = -32004


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def strict(
    tmp_path_factory: pytest.TempPathFactory, gates: Gates
) -> AsyncIterator[Deployment]:
    """What the settings allow is less than the agent would take."""
    with deployment(
        tmp_path_factory.mktemp("deadlines"),
        agent=AGENT,
        environ={"TEST_GATES": str(gates.folder)},
        CARD=CARD,
        RUN_LIMIT="3",
        INACTIVITY_LIMIT="2",
        **SETTINGS,
    ) as running:
        await running.start(gateways=1, workers=1)
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def lenient(strict: Deployment) -> AsyncIterator[Deployment]:
    """The settings allow an hour, and the agent asks for no more than `strict` does."""
    limits = {"SWITCHROOM_RUN_LIMIT": "3600", "SWITCHROOM_INACTIVITY_LIMIT": "3600"}
    environ = {**strict.environ, **limits, "SWITCHROOM_QUEUE": "lenient"}
    running = dataclasses.replace(
        strict, agent=f"{AGENT}:brief", environ=environ, gateways=[], workers=[]
    )
    await running.start(gateways=1, workers=1)
    yield running


@pytest.fixture(params=["strict", "lenient"])
async def client(
    request: pytest.FixtureRequest, strict: Deployment, lenient: Deployment
) -> AsyncIterator[Rpc]:
    deployed = {"strict": strict, "lenient": lenient}[request.param]
    async with Rpc(deployed.gateways[0].url) as client:
        yield client


@pytest.fixture
async def one(strict: Deployment) -> AsyncIterator[Rpc]:
    async with Rpc(strict.gateways[0].url) as client:
        yield client


async def test_a_run_that_takes_too_long_or_is_silent_fails_with_the_reason(
    client: Rpc, gates: Gates, gate: str
) -> None:
    # Both at once: one speaks all the time, the other waits for ever.
    async with (
        client.stream("SendStreamingMessage", {"message": message("stream 1000 100")}) as spoken,
        client.stream("SendStreamingMessage", {"message": message(f"gate {gate} 1")}) as waited,
    ):
        silent = [event async for event in waited]
        speaking = [event async for event in spoken]
    for events, reason in ((speaking, OVERRUN), (silent, SILENT)):
        assert ends_in(events) == ["FAILED"]
        task = await client.get(events[0].task_id)
        assert (state_of(task), told_by(task)) == ("FAILED", reason)
        # What it had said is kept; that another attempt would fare better is not to be expected.
        assert answer_of(task) == answer_in(events) != ""
        assert len(gates.runs(task["id"])) == 1
    task_id = silent[0].task_id
    assert len(gates.cancelled(task_id)) == 1, "the agent that was too silent was not stopped"


async def test_a_question_that_nobody_answers_ends(one: Rpc, gates: Gates) -> None:
    asked = (await one.send("ask"))["task"]
    assert state_of(asked) == "INPUT_REQUIRED"
    async with one.stream("SubscribeToTask", {"id": asked["id"]}) as watching:
        answered = (await one.send("ask"))["task"]
        task = (await one.send("echo thanks", taskId=answered["id"]))["task"]
        assert (state_of(task), answer_of(task)) == ("COMPLETED", "thanks")
        events = [event async for event in watching]
    assert ends_in(events) == ["FAILED"]
    aged = await one.get(asked["id"])
    assert (state_of(aged), told_by(aged)) == ("FAILED", "Nobody answered in time.")
    assert len(gates.runs(asked["id"])) == 1
    late = {"message": message("echo sorry", taskId=asked["id"])}
    assert await one.error("SendMessage", late) == UNSUPPORTED
    assert await one.get(answered["id"]) == task
