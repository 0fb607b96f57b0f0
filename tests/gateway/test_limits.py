"""Limits on what a caller uses hold across gateways, and cost a send no wait."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from switchroom.agent import Event, Run
from switchroom.gateway.app import create_app
from switchroom.gateway.auth.gate import Gate
from switchroom.protocol.errors import RateLimited, TaskNotFound, UnsupportedOperation
from switchroom.store import Store
from switchroom.store.commit import StoreUnavailable
from switchroom.store.scripts import command
from tests.support.acts import settled
from tests.support.callers import Believed, says
from tests.support.gateways import V1, call, card_of, client_of
from tests.support.house import Gateway, House, message
from tests.support.wait import wait_until


async def agent(run: Run) -> AsyncIterator[Event]:
    if run.text == "hold":
        yield "held"
        await asyncio.Event().wait()
    elif run.text == "ask":
        yield run.ask("Which?")
    elif run.text == "reply":
        yield run.reply("said")


async def used(store: Store, what: str) -> int:
    """How many tasks or streams are counted of alice."""
    keys = store.keys
    key = keys.streams("/alice") if what == "streams" else keys.tasks_in_flight("/alice")[0]
    await settled(store)
    (count,) = await store.reads(command("ZCARD", key))
    return int(count)


async def until_used(store: Store, what: str, count: int) -> None:
    async def there() -> bool:
        return await used(store, what) == count

    await wait_until(there, what=f"{count} {what} are counted")


async def refused(gateway: Gateway, limit: str, method: str = "SendMessage", **more: Any) -> None:
    params = message("one more", returnImmediately=True)
    with pytest.raises(RateLimited) as error:
        await gateway.call(method, params, **more)
    assert error.value.metadata["limit"] == limit
    assert error.value.retry_after


class TestSends:
    async def test_hold_across_gateways(self, house: House) -> None:
        limits = {"send_rate": 0.001, "send_burst": 4}
        await house.worker(agent)
        one, other = await house.gateway(**limits), await house.gateway(**limits)
        for gateway in (one, other, one, other):
            await gateway.send("go")
        for gateway in (one, other):
            await refused(gateway, "rate")
            await refused(gateway, "rate", "SendStreamingMessage")
        await other.send("go", caller="bob")
        assert (await one.list())["totalSize"] == 4
        assert (await one.get((await one.list())["tasks"][0]["id"]))["id"]

    async def test_a_refused_one_leaves_nothing_and_may_be_sent_again(self, house: House) -> None:
        gateway = await house.both(agent, send_rate=0.001, send_burst=1, caller_tasks=9)
        await gateway.send("go")
        await until_used(gateway.store, "tasks", 0)
        params = message("again")
        (before,) = await gateway.store.reads(command("KEYS", "*"))
        with pytest.raises(RateLimited):
            await gateway.call("SendMessage", params)
        await settled(gateway.store)
        (after,) = await gateway.store.reads(command("KEYS", "*"))
        assert set(after) == set(before)
        await gateway.store.commit(command("DEL", *gateway.store.keys.send_buckets("/alice")))
        assert (await gateway.call("SendMessage", params))["task"]["id"]

    async def test_what_is_left_is_told_in_headers(self, house: House) -> None:
        gateway = await house.both(agent)
        settings = house.settings.model_copy(update={"send_rate": 0.1, "send_burst": 2})
        limited = await house.gateway(send_rate=0.1, send_burst=2)
        del gateway
        app = create_app(
            settings, card=card_of(streaming=True), store=limited.store, gate=Gate([Believed()])
        )
        headers = {**V1, **says("acme/alice")}
        told = []
        async with client_of(app) as client:
            for _ in range(3):
                answer = await call(client, "SendMessage", message("go"), headers=headers)
                told.append((answer.status_code, answer.headers["ratelimit-remaining"]))
            assert told == [(200, "1"), (200, "0"), (429, "0")]
            assert answer.json()["error"]["code"] == -32042
            assert answer.headers["ratelimit-limit"] == "2"
            assert 1 <= int(answer.headers["retry-after"]) <= 10
            assert answer.headers["ratelimit-reset"] == answer.headers["retry-after"]
            rest = await client.post("/message:stream", json=message("go"), headers=headers)
            assert (rest.status_code, rest.headers["ratelimit-remaining"]) == (429, "0")
            assert rest.json()["error"]["status"] == "RESOURCE_EXHAUSTED"

    async def test_wait_no_more_for_them(self, house: House) -> None:
        gateway = await house.both(agent, send_rate=9, tenant_send_rate=9, caller_tasks=9)

        def so_far() -> tuple[int, int]:
            return gateway.store.commit.round_trips, gateway.store.reads.round_trips

        async def trips(**more: str) -> tuple[int, int]:
            writes, reads = so_far()
            task = await gateway.send("ask", returnImmediately=True, **more)
            now = so_far()
            await house.state(task["id"], "TASK_STATE_INPUT_REQUIRED")
            await settled(gateway.store)
            asked.append(task["id"])
            return now[0] - writes, now[1] - reads

        asked: list[str] = []
        assert await trips() == (2, 0)
        assert await trips(task=asked[0]) == (3, 0)


class TestTasks:
    async def test_in_flight_are_counted_until_their_turn_ends(self, house: House) -> None:
        gateway = await house.both(agent, caller_tasks=2)
        held = [await gateway.send("hold", returnImmediately=True) for _ in range(2)]
        await refused(gateway, "tasks")
        await gateway.call("CancelTask", {"id": held[0]["id"]})
        assert (await gateway.send("ask"))["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
        assert "message" in await gateway.call("SendMessage", message("reply"))
        assert (await gateway.send("go"))["status"]["state"] == "TASK_STATE_COMPLETED"
        await until_used(gateway.store, "tasks", 1)

    async def test_a_follow_up_is_a_task_in_flight_again(self, house: House) -> None:
        gateway = await house.both(agent, caller_tasks=1)
        task = await gateway.send("ask")
        await until_used(gateway.store, "tasks", 0)
        on = await gateway.send("hold", task=task["id"], returnImmediately=True)
        assert on["id"] == task["id"]
        await refused(gateway, "tasks")
        # One that is refused for another reason does not strike it off.
        with pytest.raises(UnsupportedOperation):
            await gateway.send("more", task=task["id"])
        assert await used(gateway.store, "tasks") == 1
        await gateway.call("CancelTask", {"id": task["id"]})
        await until_used(gateway.store, "tasks", 0)

    async def test_what_is_refused_is_not_counted(self, house: House) -> None:
        gateway = await house.both(agent, caller_tasks=1)
        with pytest.raises(TaskNotFound):
            await gateway.send("on", task="absent")
        assert await used(gateway.store, "tasks") == 0

    async def test_a_repeat_is_counted_once(self, house: House) -> None:
        gateway = await house.both(agent, caller_tasks=2)
        params = message("hold", returnImmediately=True)
        ids = {(await gateway.call("SendMessage", params))["task"]["id"] for _ in range(3)}
        assert len(ids) == 1
        await until_used(gateway.store, "tasks", 1)

    async def test_of_workers_that_count_nothing_are_struck_off_by_a_look(
        self, house: House
    ) -> None:
        await house.worker(agent)
        gateway = await house.gateway(caller_tasks=2, tenant_tasks=2)
        for _ in range(5):
            await gateway.send("go")
        await gateway.send("hold", returnImmediately=True)
        await gateway.send("hold", returnImmediately=True)
        await refused(gateway, "tasks")


class TestStreams:
    async def test_open_ones_are_counted_across_gateways(self, house: House) -> None:
        await house.worker(agent)
        one, other = await house.gateway(caller_streams=2), await house.gateway(caller_streams=2)
        task = await one.send("hold", returnImmediately=True)
        async with other.stream("SendStreamingMessage", message("hold")) as sending:
            await sending.next()
            async with one.subscribe(task["id"]) as following:
                await following.next()
                for gateway in (one, other):
                    await refused(gateway, "streams", "SendStreamingMessage")
                    with pytest.raises(RateLimited):
                        async with gateway.subscribe(task["id"]):
                            pass
                await other.get(task["id"])
            await until_used(one.store, "streams", 1)
            async with other.subscribe(task["id"]) as following:
                await following.next()
        await until_used(other.store, "streams", 0)

    async def test_one_that_ends_by_itself_is_given_back(self, house: House) -> None:
        gateway = await house.both(agent, caller_streams=1)
        for _ in range(3):
            async with gateway.stream("SendStreamingMessage", message("go")) as stream:
                await stream.rest()
            await until_used(gateway.store, "streams", 0)

    async def test_one_that_is_refused_takes_no_place(self, house: House) -> None:
        gateway = await house.both(agent, caller_streams=1)
        for _ in range(3):
            with pytest.raises(TaskNotFound):
                async with gateway.subscribe("absent"):
                    pass
        await until_used(gateway.store, "streams", 0)

    @pytest.mark.parametrize("unknown", ["open", "closed"])
    async def test_where_nobody_can_count_the_setting_decides(
        self, house: House, unknown: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        gateway = await house.both(agent, caller_streams=1, limits_unknown=unknown)
        task = await gateway.send("hold", returnImmediately=True)

        def full(*calls: Any) -> asyncio.Future[list[Any]]:
            told: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
            told.set_exception(StoreUnavailable("Redis takes no writes"))
            return told

        monkeypatch.setattr(gateway.store.commit, "ask", full)
        try:
            if unknown == "closed":
                with pytest.raises(StoreUnavailable):
                    async with gateway.subscribe(task["id"]):
                        pass
            else:
                async with gateway.subscribe(task["id"]) as stream:
                    assert (await stream.next()).event["task"]["id"] == task["id"]
        finally:
            monkeypatch.undo()
