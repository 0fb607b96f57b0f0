"""Who did what to which task, and how it ended: a line each, and nothing that anybody has said."""

from __future__ import annotations

import json
import stat
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from switchroom.agent import Event, Run
from switchroom.gateway.app import create_app
from switchroom.gateway.audit import load_audit
from switchroom.gateway.auth.gate import Gate
from switchroom.settings import Settings, SettingsError
from tests.support.callers import Believed, says
from tests.support.gateways import V1, call, card_of, client_of
from tests.support.house import House, message

SECRET = "tell-nobody"
ALICE, BOB = {**V1, **says("acme/alice")}, {**V1, **says("acme/bob")}


async def agent(run: Run) -> Event:
    return run.ask(f"More of {SECRET}?")


class Log:
    """The file, line by line."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def lines(self) -> list[dict[str, Any]]:
        """What has been written; nothing of it may be anybody's words."""
        text = self.path.read_text()
        assert SECRET not in text
        return [json.loads(line) for line in text.splitlines()]


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path / "audit.log")


@asynccontextmanager
async def audited(house: House, log: Log) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a gateway that keeps a log; all of it is written at the end of the block."""
    store = (await house.both(agent)).store
    settings = house.settings.model_copy(update={"audit_log": str(log.path)})
    card = card_of(streaming=True, pushNotifications=True)
    app = create_app(settings, card=card, store=store, gate=Gate([Believed()]))
    async with app.router.lifespan_context(app), client_of(app) as client:
        yield client


async def test_each_change_is_a_line(house: House, log: Log) -> None:
    config = {"id": "c", "url": f"https://{SECRET}.test/", "token": SECRET}
    async with audited(house, log) as client:
        sent = await call(client, "SendMessage", message(SECRET), headers=ALICE)
        task = sent.json()["result"]["task"]["id"]
        about = {"taskId": task}
        await call(client, "GetTask", {"id": task}, headers=ALICE)
        await call(client, "CreateTaskPushNotificationConfig", {**about, **config}, headers=ALICE)
        await call(client, "ListTaskPushNotificationConfigs", about, headers=ALICE)
        path = f"/tasks/{task}/pushNotificationConfigs/c"
        await client.delete(path, headers=ALICE)
        more = message(SECRET, task=task)
        await client.post("/message:stream", json=more, headers=ALICE)
        await client.post(f"/v1/tasks/{task}:cancel", headers=says("acme/alice"))
    lines = log.lines()
    told = [(line["method"], line["binding"], line["version"], line["task"]) for line in lines]
    assert told == [
        ("SendMessage", "JSONRPC", "1.0", task),
        ("CreateTaskPushNotificationConfig", "JSONRPC", "1.0", task),
        ("DeleteTaskPushNotificationConfig", "HTTP+JSON", "1.0", task),
        ("SendStreamingMessage", "HTTP+JSON", "1.0", task),
        ("CancelTask", "HTTP+JSON", "0.3", task),
    ]
    for line in lines:
        assert (line["caller"], line["tenant"], line["credential"]) == ("alice", "acme", "believed")
        assert (line["result"], line["code"], line["from"]) == ("OK", 0, "127.0.0.1")
        assert line["time"].endswith("Z")
    assert lines[0]["request"] == sent.headers["x-request-id"]
    assert stat.S_IMODE(log.path.stat().st_mode) & 0o007 == 0


async def test_each_refusal_is_a_line_of_reading_too(house: House, log: Log) -> None:
    absent = str(uuid.uuid4())
    async with audited(house, log) as client:
        await call(client, "GetTask", {"id": "t"}, headers=V1)
        await call(client, "GetTask", {"id": absent}, headers=BOB)
        await call(client, "SendMessage", message(SECRET, task=absent), headers=BOB)
        await call(client, "GetTask", {"id": "t", "tenant": SECRET}, headers=BOB)
        await call(client, SECRET, {}, headers=BOB)
        await client.post("/", content=SECRET, headers=BOB)
    told = [(each["method"], each["caller"], each["task"], each["result"]) for each in log.lines()]
    assert told == [
        ("", "", "", "UNAUTHENTICATED"),
        ("GetTask", "bob", absent, "TASK_NOT_FOUND"),
        ("SendMessage", "bob", absent, "TASK_NOT_FOUND"),
        ("GetTask", "bob", "", "PERMISSION_DENIED"),
        ("", "bob", "", "METHOD_NOT_FOUND"),
        ("", "bob", "", "INVALID_REQUEST"),
    ]


async def test_a_caller_cannot_write_a_line_of_its_own(house: House, log: Log) -> None:
    async with audited(house, log) as client:
        named = {**V1, "X-Caller": 'acme/eve"\\u000a{"caller":"alice"}'}
        await call(client, "GetTask", {"id": 'x\n{"caller": "alice"}'}, headers=named)
    (line,) = log.lines()
    assert line["caller"].startswith("eve")


async def test_a_file_that_was_moved_away_is_made_anew(house: House, log: Log) -> None:
    async with audited(house, log) as client:
        await call(client, "CancelTask", {"id": "one"}, headers=BOB)
    log.path.rename(log.path.with_suffix(".1"))
    async with audited(house, log) as client:
        await call(client, "CancelTask", {"id": "two"}, headers=BOB)
    assert [line["task"] for line in log.lines()] == ["two"]


async def test_stdout(house: House, capsys: pytest.CaptureFixture[str]) -> None:
    store = (await house.both(agent)).store
    settings = house.settings.model_copy(update={"audit_log": "-"})
    app = create_app(settings, card=card_of(), store=store)
    async with app.router.lifespan_context(app), client_of(app) as client:
        await call(client, "CancelTask", {"id": "t"})
    assert json.loads(capsys.readouterr().out)["method"] == "CancelTask"


def test_a_file_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="cannot be written"):
        load_audit(Settings(audit_log=str(tmp_path / "no" / "such" / "folder")))
