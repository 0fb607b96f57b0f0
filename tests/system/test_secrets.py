"""What is secret is in no log, at no level, whatever happens."""

from __future__ import annotations

import json
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
import pytest_asyncio

from tests.support.processes import CLI, Deployment, deployment, environment, processes
from tests.support.redis import running_server
from tests.support.rpc import message
from tests.system.conftest import AGENT, CARD, Gates

pytestmark = pytest.mark.requires("redis-server")

PASSWORD, TOKEN, WORDS = "redis-password-x7", "webhook-token-x7", "what-alice-said-x7"


@pytest_asyncio.fixture(loop_scope="session")
async def telling(tmp_path: Path, gates: Gates) -> AsyncIterator[Deployment]:
    """A gateway and a worker that log all they can, on a Redis with a password."""
    folder = tmp_path / "redis"
    folder.mkdir()
    with running_server(folder, "--requirepass", PASSWORD) as url:
        environ = {"TEST_GATES": str(gates.folder)}
        with deployment(
            tmp_path,
            agent=AGENT,
            environ=environ,
            CARD=CARD,
            REDIS_URL=url.replace("redis://", f"redis://:{PASSWORD}@"),
            API_KEYS="redis",
            AUDIT_LOG=str(tmp_path / "audit.log"),
            LOG_LEVEL="debug",
        ) as running:
            await running.start(gateways=1, workers=1)
            yield running


def command(running: Deployment, *words: str) -> str:
    process = subprocess.run(
        [*CLI, *words], env=dict(running.environ), capture_output=True, text=True, check=True
    )
    return process.stdout


@pytest.mark.asyncio(loop_scope="session")
async def test_nothing_secret_and_nothing_said_is_logged(
    telling: Deployment, tmp_path: Path
) -> None:
    key = command(telling, "keys", "create", "alice").strip()
    headers = {"A2A-Version": "1.0", "X-API-Key": key}
    async with httpx.AsyncClient(base_url=telling.gateways[0].url, timeout=60) as client:

        async def call(method: str, params: object, **more: str) -> httpx.Response:
            body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
            return await client.post("/", json=body, headers={**headers, **more})

        sent = await call("SendMessage", {"message": message(f"echo {WORDS}")})
        task = sent.json()["result"]["task"]
        push = {"taskId": task["id"], "id": "c", "url": f"https://hooks.test/?t={TOKEN}"}
        secret = {"token": TOKEN, "authentication": {"scheme": "Bearer", "credentials": TOKEN}}
        await call("CreateTaskPushNotificationConfig", {**push, **secret})
        await call("SendMessage", {"message": message(f"fail {WORDS}")})
        await call("NoSuchMethod", {"id": WORDS})
        await client.post("/", content=WORDS, headers=headers)
        refused = await call("GetTask", {"id": "t"}, **{"X-API-Key": f"{key}x"})
        assert refused.status_code == 401
    shown = command(telling, "check")
    listed = command(telling, "keys", "list", "--json")
    for process in (*telling.gateways, *telling.workers):
        await process.stop()
    audit = (tmp_path / "audit.log").read_text()
    assert all(json.loads(line) for line in audit.splitlines())
    said = {process.name: process.output for process in telling.processes.all}
    for where, text in {**said, "check": shown, "keys list": listed, "audit": audit}.items():
        for hidden in (PASSWORD, TOKEN, key, key.rpartition("_")[2]):
            assert hidden not in text, where
        assert WORDS not in text, where


def test_nor_told_by_a_process_that_cannot_start(tmp_path: Path) -> None:
    url = f"redis://user:{PASSWORD}@127.0.0.1:1"
    with processes(tmp_path) as running:
        environ = environment(REDIS_URL=url, LOG_LEVEL="debug", API_KEYS="redis")
        for words in (("gateway", "--port", "0"), ("worker", AGENT), ("keys", "list")):
            process = running.switchroom(*words, environ=environ)
            process.popen.wait(60)
            assert process.popen.returncode
            assert PASSWORD not in process.output
