"""The command line: what is wrong is one sentence; what is right runs, and stops gently."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner, Result

from switchroom.cli import main
from switchroom.settings import Settings
from switchroom.store.connect import find_server, private_server

AGENT = '''"""Says hi, twice."""

async def agent(run):
    yield "hi "
    yield run.text
'''
NOBODY = "redis://:secret@127.0.0.1:1"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with an agent in it, and an environment without settings."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("PORT", *(name for name in os.environ if name.startswith("SWITCHROOM_"))):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "bot.py").write_text(AGENT)
    return tmp_path


def call(*args: str, **settings: str) -> Result:
    env = {f"SWITCHROOM_{name}": value for name, value in settings.items()}
    return CliRunner().invoke(main, args, env=env)


def sentence(result: Result) -> str:
    """The one line on stderr of a command that would not start."""
    assert isinstance(result.exception, SystemExit), result.exception
    assert "Traceback" not in result.output
    (line,) = result.stderr.splitlines()
    assert line.startswith("switchroom: ")
    assert "secret" not in line
    return line.removeprefix("switchroom: ")


class TestWrong:
    @pytest.mark.parametrize("command", ["dev", "worker"])
    def test_agent(self, command: str, folder: Path) -> None:
        result = call(command, "absent", REDIS_URL=NOBODY)
        assert result.exit_code == 2
        assert sentence(result) == (
            f"AGENT is 'absent': There is no module 'absent' in {folder} "
            "or among the installed packages."
        )
        result = call(command, REDIS_URL=NOBODY, AGENT="bot:other")
        assert result.exit_code == 2
        assert sentence(result) == (
            "SWITCHROOM_AGENT is 'bot:other': bot has no 'other'; it defines agent."
        )

    @pytest.mark.parametrize("command", ["dev", "gateway"])
    def test_card(self, command: str) -> None:
        result = call(command, REDIS_URL=NOBODY, CARD="absent.json")
        assert result.exit_code == 2
        assert sentence(result).startswith("SWITCHROOM_CARD is 'absent.json': There is no card")

    @pytest.mark.parametrize(
        ("flags", "said"),
        [
            (("dev", ""), "AGENT is ''; it should be module, module:attr or path/file.py"),
            (("worker", " "), "AGENT is ' '; it should be module, module:attr or path/file.py"),
            (("dev", "--host", ""), "--host is ''; it should be an address, such as 127.0.0.1"),
            (("gateway", "--host", ""), "--host is ''; it should be an address"),
            (("worker", "."), "AGENT is '.': '.' is a folder; name a Python file in it: bot.py."),
            (("dev", "/"), "AGENT is '/': '/' is a folder; "),
        ],
    )
    def test_words_that_name_nothing(self, flags: tuple[str, ...], said: str) -> None:
        result = call(*flags, REDIS_URL=NOBODY)
        assert result.exit_code == 2
        assert sentence(result).startswith(said)

    def test_card_beside_the_agent(self, folder: Path) -> None:
        (folder / "bot.json").write_text("{}")
        result = call("dev", "bot.py")
        assert result.exit_code == 2
        assert sentence(result).startswith("The card bot.json is not valid: ")

    @pytest.mark.parametrize("command", ["dev", "gateway", "worker", "check"])
    def test_setting(self, command: str) -> None:
        result = call(command, LEASE="soon")
        assert result.exit_code == 2
        assert sentence(result) == (
            "SWITCHROOM_LEASE is 'soon'; it should be a number of seconds above 0, such as 15."
        )

    @pytest.mark.parametrize("command", ["dev", "gateway", "worker"])
    def test_url(self, command: str) -> None:
        result = call(command, REDIS_URL="http://:secret@redis")
        assert result.exit_code == 2
        assert "redis://127.0.0.1:6379" in sentence(result)
        result = call(command, REDIS_URL="redis://:secret@h?colour=red")
        assert result.exit_code == 2
        assert "colour" in sentence(result)

    def test_handler(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", "")
        result = call("dev", "--port", "0", HANDLER="absent")
        assert result.exit_code == 2
        assert sentence(result).startswith("SWITCHROOM_HANDLER is 'absent': There is no module")

    @pytest.mark.parametrize("command", ["gateway", "worker"])
    @pytest.mark.parametrize("settings", [{}, {"REDIS_URL": "fake://x"}])
    def test_no_shared_redis(self, command: str, settings: dict[str, str]) -> None:
        result = call(command, **settings)
        assert result.exit_code == 2
        assert sentence(result).startswith("SWITCHROOM_REDIS_URL is ")

    @pytest.mark.parametrize("command", ["dev", "gateway", "worker"])
    def test_redis_absent(self, command: str) -> None:
        flags = ("--port", "0") if command != "worker" else ()
        result = call(command, *flags, REDIS_URL=NOBODY)
        assert result.exit_code == 1
        assert "Redis at 127.0.0.1:1 does not answer" in sentence(result)

    @pytest.mark.requires("redis-server")
    @pytest.mark.parametrize("command", ["dev", "gateway", "worker", "check"])
    async def test_redis_refuses_the_connection(self, command: str) -> None:
        binary = find_server()
        assert binary is not None
        async with private_server(binary) as url:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-c",
                "from switchroom.cli import main; main()",
                command,
                env={**os.environ, "SWITCHROOM_REDIS_URL": f"{url}?db=99", "PORT": "0"},
                stdout=PIPE,
                stderr=PIPE,
            )
            output, errors = await process.communicate()
        assert process.returncode == 1
        *_, last = (output if command == "check" else errors).decode().splitlines()
        assert "refuses the connection (DB index is out of range)" in last
        assert b"Traceback" not in errors

    @pytest.mark.parametrize("host", ["a" * 70, "no.such.host.invalid"])
    def test_address_of_nobody(self, host: str) -> None:
        result = call("gateway", "--host", host, "--port", "0", REDIS_URL=NOBODY)
        assert result.exit_code == 1
        assert f"cannot listen at {host}:0 (" in sentence(result)

    @pytest.mark.parametrize("command", ["dev", "gateway"])
    def test_address_taken(self, command: str) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            result = call(command, "--port", str(port), REDIS_URL=NOBODY)
        assert result.exit_code == 1
        assert f"cannot listen at 127.0.0.1:{port} (Address already in use)" in sentence(result)

    @pytest.mark.parametrize(
        "args", [["gateway", "--port", "x"], ["worker", "--concurrency", "0"], ["nonsense"]]
    )
    def test_flags(self, args: list[str]) -> None:
        result = call(*args)
        assert result.exit_code == 2
        assert "Traceback" not in result.output


class TestWarned:
    @pytest.mark.parametrize("command", ["dev", "gateway", "worker"])
    def test_of_what_is_no_setting(self, command: str, caplog: pytest.LogCaptureFixture) -> None:
        flags = ("--port", "0") if command != "worker" else ("bot",)
        call(command, *flags, REDIS_URL=NOBODY, LEESE="3", ZZZ="1")
        assert [record.getMessage() for record in caplog.records] == [
            "SWITCHROOM_LEESE is no setting; did you mean SWITCHROOM_LEASE?",
            "SWITCHROOM_ZZZ is no setting",
        ]

    def test_of_a_worker_without_an_agent(self, caplog: pytest.LogCaptureFixture) -> None:
        call("worker", REDIS_URL=NOBODY)
        (record,) = caplog.records
        assert record.levelname == "WARNING"
        assert "every task is completed without output" in record.getMessage()
        assert "switchroom worker my_agent.py" in record.getMessage()
        assert "SWITCHROOM_AGENT" in record.getMessage()


class TestCheck:
    def test_it_prints_every_setting_and_where_it_comes_from(self) -> None:
        output = call("check", LEASE="9", REDIS_URL="redis://:secret@127.0.0.1:1").output
        for name in Settings.model_fields:
            assert f"SWITCHROOM_{name.upper()} " in output
        lines = {line.split()[0]: line for line in output.splitlines()}
        assert lines["SWITCHROOM_LEASE"].endswith(" 9 s")
        assert lines["SWITCHROOM_DRAIN"].endswith(" 25 s  (default)")
        assert "secret" not in output

    def test_all_is_well_without_anything(self) -> None:
        result = call("check")
        assert result.exit_code == 0
        assert "agent  ok: " in result.output

    def test_it_tells_every_fault_and_the_worst_code(self) -> None:
        result = call("check", AGENT="absent", CARD="absent.json", REDIS_URL=NOBODY)
        assert result.exit_code == 2
        for part in ("agent", "card ", "redis"):
            assert f"{part}  WRONG: " in result.output
        assert call("check", REDIS_URL=NOBODY).exit_code == 1

    def test_it_tells_what_is_wrong_with_a_key_and_with_the_extended_card(self) -> None:
        signed = {"CARD_KEYS": "absent.pem", "PUBLIC_URL": "https://a.test"}
        for name, settings in (("CARD_KEYS", signed), ("EXTENDED_CARD", {"EXTENDED_CARD": "x.y"})):
            result = call("check", **settings)
            assert result.exit_code == 2
            assert f"card   WRONG: SWITCHROOM_{name} " in result.output

    def test_it_names_what_is_no_setting(self) -> None:
        result = call("check", LEASES="9")
        assert "SWITCHROOM_LEASES is no setting; did you mean SWITCHROOM_LEASE?" in result.output

    @pytest.mark.requires("redis-server")
    async def test_it_asks_the_servers(self) -> None:
        binary = find_server()
        assert binary is not None
        async with private_server(binary) as url:
            result = await asyncio.to_thread(call, "check", REDIS_URL=url, AGENT="bot")
        assert result.exit_code == 0, result.output
        assert f"redis  ok: {url}" in result.output


@asynccontextmanager
async def running(*args: str, **environ: str) -> AsyncIterator[Process]:
    """A `switchroom` process; it is stopped with SIGTERM, and must then end well."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        "from switchroom.cli import main; main()",
        *args,
        env={**os.environ, **environ},
        stdout=PIPE,
        stderr=PIPE,
    )
    try:
        async with asyncio.timeout(60):
            yield process
            if process.returncode is None:
                process.send_signal(signal.SIGTERM)
            _, errors = await process.communicate()
        assert process.returncode == 0, errors.decode()
        assert b"Traceback" not in errors, errors.decode()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def banner(process: Process) -> dict[str, str]:
    """What `dev` prints before it serves."""
    assert process.stdout is not None
    lines: list[str] = []
    while not (lines and lines[-1].startswith("curl ")):
        line = await process.stdout.readline()
        assert line, (await process.communicate())[1].decode()
        lines.append(line.decode().rstrip())
    (card,) = (line.split()[1] for line in lines if line.startswith("Card "))
    return {"card": card, "curl": lines[-1], "kept": lines[1]}


async def logged(process: Process, text: str) -> None:
    """Wait until the process has said `text` on stderr."""
    assert process.stderr is not None
    while line := await process.stderr.readline():
        if text in line.decode():
            return
    raise AssertionError(f"It ended without saying {text!r}.")


class TestDev:
    async def test_without_any_redis_it_serves_the_agent_from_memory(self, folder: Path) -> None:
        async with running("dev", "bot.py", "--port", "0", PATH="") as process:
            said = await banner(process)
            assert "fakeredis" in said["kept"]
            assert "nothing is kept" in said["kept"]
            async with httpx.AsyncClient() as http:
                card = (await http.get(said["card"])).json()
            assert card["name"] == "Bot"
            assert card["description"] == "Says hi, twice."
            assert card["supportedInterfaces"][0]["url"] == said["card"].partition(".well")[0]

    @pytest.mark.requires("curl")
    @pytest.mark.parametrize(
        "path",
        [
            pytest.param("", id="fakeredis"),
            pytest.param(None, id="private", marks=pytest.mark.requires("redis-server")),
        ],
    )
    async def test_the_curl_it_prints_streams_when_pasted(self, path: str | None) -> None:
        environ = {} if path is None else {"PATH": path}
        async with running("dev", "bot:agent", "--port", "0", **environ) as process:
            said = await banner(process)
            for _ in range(2):
                shell = await asyncio.create_subprocess_shell(
                    said["curl"], stdout=PIPE, stderr=PIPE
                )
                output, errors = await shell.communicate()
                assert shell.returncode == 0, errors.decode()
                events = [
                    json.loads(line.removeprefix("data: "))["result"]
                    for line in output.decode().splitlines()
                    if line.startswith("data: ")
                ]
                assert "hi " in str(events)
                # Pasted twice within a second, it is one message: the second gets the task.
                last = events[-1].get("statusUpdate") or events[-1]["task"]
                assert last["status"]["state"] == "TASK_STATE_COMPLETED"

    async def test_a_stop_ends_open_streams_in_order(self, folder: Path) -> None:
        (folder / "endless.py").write_text(
            "import asyncio\n"
            "async def agent(run):\n"
            "    yield 'hi'\n"
            "    await asyncio.Event().wait()\n"
        )
        message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "x"}]}
        call = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "SendStreamingMessage",
            "params": {"message": message},
        }
        environ = {"PATH": "", "SWITCHROOM_DRAIN": "0.1"}
        async with running("dev", "endless", "--port", "0", **environ) as process:
            base = (await banner(process))["card"].partition(".well")[0]
            async with (
                httpx.AsyncClient(timeout=30) as http,
                http.stream("POST", base, headers={"A2A-Version": "1.0"}, json=call) as answer,
            ):
                lines = answer.aiter_lines()
                while "artifactUpdate" not in await anext(lines):
                    pass
                process.send_signal(signal.SIGTERM)
                async for _ in lines:  # a stream that is cut, and not ended, raises
                    pass
            await process.wait()

    @pytest.mark.requires("redis-server")
    async def test_a_private_redis_ends_with_it(self) -> None:
        async with running("dev", "--port", "0") as process:
            said = await banner(process)
        assert "private" in said["kept"]
        assert "nothing is kept" in said["kept"]

    async def test_it_takes_port_from_the_environment(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        async with running("dev", PATH="", PORT=str(port)) as process:
            assert f"http://127.0.0.1:{port}/" in (await banner(process))["card"]


@pytest.mark.requires("redis-server")
async def test_gateway_and_worker_serve_from_processes_of_their_own(folder: Path) -> None:
    binary = find_server()
    assert binary is not None
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    async with private_server(binary) as url:
        environ = {"SWITCHROOM_REDIS_URL": url, "SWITCHROOM_AGENT": "absent"}
        async with (
            running("gateway", "--port", port, **environ) as gateway,
            running("worker", "bot", "--concurrency", "2", **environ),
            httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=30) as http,
        ):
            await logged(gateway, "gateway at http://127.0.0.1:")
            message = {"messageId": "m1", "role": "ROLE_USER", "parts": [{"text": "you"}]}
            answer = await http.post(
                "/",
                headers={"A2A-Version": "1.0"},
                json={
                    "jsonrpc": "2.0",
                    "id": 1,
                    "method": "SendMessage",
                    "params": {"message": message},
                },
            )
        (artifact,) = answer.json()["result"]["task"]["artifacts"]
        assert "".join(part["text"] for part in artifact["parts"]).startswith("hi you")
