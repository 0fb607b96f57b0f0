"""A bare machine: `switchroom dev` and nothing else, and what is wrong is one sentence."""

from __future__ import annotations

import json
import re
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.support.processes import ROOT, Process, Processes, environment, processes
from tests.support.rpc import Rpc, answer_in, answer_of, message, state_of


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Processes]:
    with processes(tmp_path) as running:
        yield running


def dev(started: Processes, *args: str, bare: bool = True, **settings: str) -> Process:
    """`switchroom dev` at a free port; bare: there is no program on its PATH."""
    environ = environment(**settings)
    if bare:
        environ["PATH"] = ""
    return started.switchroom("dev", *args, "--port", "0", environ=environ)


async def address(process: Process) -> str:
    """Where it serves; it has said everything it has to say."""
    await process.said(r"\ncurl .*\n")
    return re.search(r"Card +(http://\S+)/\.well-known/", process.output)[1]  # type: ignore[index]


async def stop(process: Process) -> None:
    assert await process.stop() == 0, process.output
    assert "Traceback" not in process.output


async def test_without_redis_it_says_that_nothing_is_kept_and_streams(started: Processes) -> None:
    process = dev(started, "examples/echo.py")
    async with Rpc(await address(process)) as client:
        params = {"message": message("one two three")}
        events = await client.whole_stream("SendStreamingMessage", params)
        assert [event.text for event in events if event.text] == ["one ", "two ", "three "]
        assert events[-1].state == "COMPLETED"
        task = await client.get(events[0].task_id)
        assert answer_of(task) == answer_in(events) == "one two three "
        card = (await client.http.get("/.well-known/agent-card.json")).json()
    assert card["name"] == json.loads((ROOT / "examples/echo.json").read_text())["name"]
    await stop(process)
    assert "fakeredis" in process.output
    assert "nothing is kept" in process.output


async def test_without_an_agent_tasks_complete_without_output(started: Processes) -> None:
    process = dev(started)
    async with Rpc(await address(process)) as client:
        task = (await client.send("anything"))["task"]
        assert state_of(task) == "COMPLETED"
        assert "artifacts" not in task
        card = (await client.http.get("/.well-known/agent-card.json")).json()
        assert card["capabilities"]["streaming"] is True
    await stop(process)
    assert "no agent" in process.output


@pytest.mark.requires("redis-server")
async def test_it_takes_the_redis_server_on_the_path(started: Processes) -> None:
    process = dev(started, "examples/echo.py", bare=False)
    async with Rpc(await address(process)) as client:
        params = {"message": message("one two")}
        events = await client.whole_stream("SendStreamingMessage", params)
    assert answer_in(events) == "one two "
    await stop(process)
    assert "private" in process.output


async def test_stopped_in_mid_stream_it_ends_in_order(started: Processes) -> None:
    process = dev(started, "examples/scripted.py", DRAIN="0.2")
    async with Rpc(await address(process)) as client:
        params = {"message": message("stream 1000 20")}
        async with client.stream("SendStreamingMessage", params) as events:
            async for event in events:
                if event.text:
                    break
            process.send(signal.SIGTERM)
            assert "COMPLETED" not in [event.state async for event in events]
    assert await process.ended() == 0
    assert "Traceback" not in process.output


async def test_the_card_is_cached_and_the_probes_answer(started: Processes) -> None:
    process = dev(started, "examples/echo.py")
    async with httpx.AsyncClient(base_url=await address(process)) as http:
        first = await http.get("/.well-known/agent-card.json")
        etag = first.headers["etag"]
        again = await http.get("/.well-known/agent-card.json", headers={"If-None-Match": etag})
        assert (again.status_code, again.content) == (304, b"")
        assert (await http.get("/livez")).status_code == 200
        assert (await http.get("/readyz")).status_code == 200
    await stop(process)


WRONG = [
    (["dev", "examples/absent.py"], {}, "examples/absent.py"),
    (["dev", "absent_module"], {}, "absent_module"),
    (["dev", "examples/echo.py:other"], {}, "other"),
    (["dev"], {"CARD": "absent.json"}, "SWITCHROOM_CARD is 'absent.json'"),
    (["dev"], {"CARD": "pyproject.toml"}, "SWITCHROOM_CARD is 'pyproject.toml'"),
    (["gateway"], {"REDIS_URL": "http://localhost"}, "SWITCHROOM_REDIS_URL is 'http://localhost'"),
    (["worker"], {}, "SWITCHROOM_REDIS_URL is not set"),
    (["dev"], {"PUBLIC_URL": "ftp://x"}, "SWITCHROOM_PUBLIC_URL is 'ftp://x'"),
    (["dev"], {"LEASE": "soon"}, "SWITCHROOM_LEASE is 'soon'"),
    (["dev"], {"IDEMPOTENCY": "never"}, "SWITCHROOM_IDEMPOTENCY is 'never'"),
    (["dev"], {"LEASE": "1"}, "SWITCHROOM_REDIS_TIMEOUT"),
    (["dev", "--port", "0"], {"HANDLER": "absent:handler"}, "SWITCHROOM_HANDLER is 'absent"),
]


async def test_what_is_wrong_is_one_sentence(started: Processes) -> None:
    wrong = [
        (started.switchroom(*args, environ=environment(**settings)), args, settings, named)
        for args, settings, named in WRONG
    ]
    for process, args, settings, named in wrong:
        assert await process.ended() == 2, (args, settings, process.output)
        lines = process.output.splitlines()
        assert len(lines) == 1, (args, settings, lines)
        assert lines[0].startswith("switchroom: ")
        assert named in lines[0]


async def test_an_address_that_is_taken_is_one_sentence(started: Processes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        process = started.switchroom("dev", "--port", port, environ=environment())
        assert await process.ended() == 1
    (line,) = process.output.splitlines()
    assert f"cannot listen at 127.0.0.1:{port}" in line


async def test_without_a_redis_that_is_configured_dev_does_not_start(started: Processes) -> None:
    url = "redis://:secret@127.0.0.1:1"
    process = started.switchroom("dev", "--port", "0", environ=environment(REDIS_URL=url))
    assert await process.ended() == 1
    (line,) = process.output.splitlines()
    assert "Redis at 127.0.0.1:1 does not answer" in line
    assert "secret" not in line
