"""`switchroom keys`: what is printed is the key alone, and what is wrong is a sentence."""

from __future__ import annotations

import asyncio
import json
import os
import re
import uuid
from collections.abc import Callable
from datetime import datetime, timedelta
from hashlib import sha256
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from switchroom.cli import main
from switchroom.command import Stopped
from switchroom.gateway.auth.caller import ORDINARY, Caller, Request
from switchroom.gateway.auth.load import load_gate
from switchroom.key_commands import add_key, revoke_key
from switchroom.protocol.methods import SCOPES
from switchroom.settings import Settings
from switchroom.store import Store
from switchroom.store.api_key import API_KEY, new_key
from tests.support.faults import Cut, How

Call = Callable[..., Result]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("SWITCHROOM_")]:
        monkeypatch.delenv(name)
    return tmp_path


def said(*args: str, **settings: str) -> Result:
    env = {f"SWITCHROOM_{name}": value for name, value in settings.items()}
    return CliRunner().invoke(main, ["keys", *args], env=env)


@pytest.fixture(params=["file", pytest.param("redis", marks=pytest.mark.requires("redis-server"))])
def call(request: pytest.FixtureRequest) -> Call:
    """`switchroom keys` on a store that has no keys."""
    if request.param == "file":
        settings = {"API_KEYS": "keys.json"}
    else:
        url = request.getfixturevalue("server_url")
        settings = {"API_KEYS": "redis", "REDIS_URL": url, "PREFIX": uuid.uuid4().hex}

    def called(*args: str) -> Result:
        result = said(*args, **settings)
        assert isinstance(result.exception, SystemExit | None), result.exception
        return result

    return called


def made(call: Call, *args: str) -> str:
    """The key that `create` prints."""
    result = call("create", *args)
    assert result.exit_code == 0, result.stderr
    assert API_KEY.fullmatch(result.stdout.removesuffix("\n").encode()), result.stdout
    secret = result.stdout.rstrip().rpartition("_")[2]
    assert secret not in result.stderr
    return result.stdout.rstrip()


def id_of(key: str) -> str:
    return key.split("_")[1]


def listed(call: Call) -> list[dict[str, object]]:
    found: list[dict[str, object]] = json.loads(call("list", "--json").stdout)
    return found


def sentence(result: Result) -> str:
    assert isinstance(result.exception, SystemExit), result.exception
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("switchroom: ")
    return line.removeprefix("switchroom: ")


class TestCreate:
    def test_prints_the_key_alone_and_says_what_it_is(self, call: Call) -> None:
        result = call("create", "alice", "--tenant", "acme", "--scope", "tasks:read")
        key = result.stdout.rstrip("\n")
        assert result.stdout == f"{key}\n"
        assert result.stderr.splitlines() == [
            f"The key {id_of(key)} is alice's of acme: tasks:read, for ever.",
            "Only its hash is kept, so it is not shown again.",
        ]
        assert [each["id"] for each in listed(call)] == [id_of(key)]

    def test_without_scopes_it_may_do_all_but_what_is_the_admins(self, call: Call) -> None:
        made(call, "alice")
        made(call, "root", "--scope", "admin", "--scope", "tasks:read")
        scopes = {each["principal"]: each["scopes"] for each in listed(call)}
        assert scopes == {"alice": sorted(ORDINARY), "root": ["admin", "tasks:read"]}

    @pytest.mark.parametrize(
        ("text", "seconds"),
        [("30m", 1_800), ("12h", 43_200), ("90d", 7_776_000), (" 02w ", 1_209_600)],
    )
    def test_it_can_expire(self, call: Call, text: str, seconds: int) -> None:
        made(call, "alice", "--expires", text)
        (key,) = listed(call)
        created, expires = (
            datetime.fromisoformat(str(key[name])) for name in ("created", "expires")
        )
        assert timedelta(0) <= expires - created - timedelta(seconds=seconds) <= timedelta(0, 1)

    def test_a_second_key_of_one_caller_is_told_with_the_first(self, call: Call) -> None:
        first = made(call, "alice")
        made(call, "bob")
        made(call, "alice", "--tenant", "acme")
        result = call("create", "alice")
        second = id_of(result.stdout.rstrip())
        (line,) = [line for line in result.stderr.splitlines() if "live keys" in line]
        assert line.startswith("2 live keys are alice's: ")
        assert {id_of(first), second} == set(re.findall(r"[a-z2-7]{10}", line))

    def test_what_is_kept_lets_nobody_in(self, folder: Path) -> None:
        key = made(lambda *args: said(*args, API_KEYS="keys.json"), "alice")
        secret = key.rpartition("_")[2]
        kept = (folder / "keys.json").read_text()
        assert secret not in kept
        assert sha256(secret.encode()).hexdigest() in kept

    def test_a_gateway_lets_in_who_has_it(self, folder: Path) -> None:
        key = made(lambda *args: said(*args, API_KEYS="keys.json"), "alice", "--tenant", "acme")
        gate = load_gate(Settings(api_keys="keys.json"))

        async def caller_of(request: Request) -> Caller:
            async with gate.running(None):
                return await gate.caller(request)

        caller = asyncio.run(caller_of(Request({b"x-api-key": key.encode()}, "")))
        assert (caller.tenant, caller.principal) == ("acme", "alice")


class TestList:
    def test_tells_of_every_key(self, call: Call) -> None:
        keys = [
            made(call, "alice", "--tenant", "acme", "--note", "the laptop", "--expires", "90d"),
            made(call, "bob", "--scope", "tasks:read"),
        ]
        result = call("list")
        heads, *rows = result.stdout.splitlines()
        assert heads.split() == "ID PRINCIPAL TENANT SCOPES CREATED EXPIRES NOTE".split()
        assert rows[0].split()[:4] == [id_of(keys[1]), "bob", "-", "tasks:read"]
        assert rows[0].split()[5:] == ["never", "-"]
        assert rows[1].endswith("the laptop")
        assert heads.index("NOTE") == rows[1].index("the laptop")
        for key in keys:
            assert key.rpartition("_")[2] not in result.output

    def test_programs_are_told_the_same(self, call: Call) -> None:
        key = made(call, "alice", "--note", "x")
        (told,) = listed(call)
        assert told.pop("created")
        assert told == {
            "id": id_of(key),
            "principal": "alice",
            "tenant": None,
            "scopes": sorted(ORDINARY),
            "expires": None,
            "note": "x",
            "live": True,
        }

    def test_what_has_expired_is_said_to_have(self, folder: Path) -> None:
        _, key = new_key("alice", scopes=SCOPES, now=0, expires=10)
        (folder / "keys.json").write_text(json.dumps({"keys": [key.to_record()]}))
        assert "EXPIRED 1970-01-01T00:00:10Z" in said("list", API_KEYS="keys.json").stdout
        (told,) = listed(lambda *args: said(*args, API_KEYS="keys.json"))
        assert told["live"] is False

    def test_that_there_is_none_is_said_beside(self, call: Call) -> None:
        call("revoke", id_of(made(call, "alice")))
        result = call("list")
        assert (result.exit_code, result.stdout) == (0, "")
        assert "`switchroom keys create NAME` makes one" in result.stderr
        assert listed(call) == []


class TestRevoke:
    def test_ends_a_key(self, call: Call) -> None:
        one, other = made(call, "alice"), made(call, "alice")
        assert call("revoke", id_of(one)).stderr == f"The key {id_of(one)} is revoked.\n"
        assert [key["id"] for key in listed(call)] == [id_of(other)]

    def test_takes_a_whole_key_that_was_found_somewhere(self, call: Call) -> None:
        key = made(call, "alice")
        result = call("revoke", key)
        assert result.exit_code == 0
        assert key.rpartition("_")[2] not in result.output
        assert listed(call) == []

    def test_of_no_key_is_a_mistake(self, call: Call) -> None:
        key = made(call, "alice")
        result = call("revoke", "k7")
        assert result.exit_code == 2
        assert sentence(result) == "There is no key 'k7'; see `switchroom keys list`."
        for text in (key.rpartition("_")[2], key[:-1], "swk_é"):
            line = sentence(call("revoke", text))
            assert "There is no key" in line
            assert text not in line or len(text) < 10
        assert len(listed(call)) == 1


class TestWrong:
    @pytest.mark.parametrize(
        ("args", "fault"),
        [
            (("create", ""), "NAME is ''; it should be 1 to 256 printable characters, without "),
            (("create", " a"), "NAME is ' a'; it should be "),
            (("create", "a\nb"), "NAME is 'a\\nb'; it should be "),
            (("create", "x" * 257), "NAME is 'xxx"),
            (("create", "a", "--tenant", "\x00"), "--tenant is '\\x00'; it should be "),
            (("create", "a", "--note", "\x1b[2J"), "--note is '\\x1b[2J'; it should be "),
            (
                ("create", "a", "--scope", "tasks:reed"),
                "--scope is 'tasks:reed'; it should be one of admin, push:write, tasks:cancel, "
                "tasks:read, tasks:send, and may be repeated.",
            ),
            (("create", "a", "--scope", "tasks:read,tasks:send"), "--scope is 'tasks:read,tasks"),
            (
                ("create", "a", "--expires", "soon"),
                "--expires is 'soon'; it should be a number of minutes, hours, days or weeks, such "
                "as 30m, 12h, 90d or 2w.",
            ),
            *((("create", "a", "--expires", text), f"--expires is {text!r}; ") for text in
              ("", "0d", "-1d", "90", "1.5d", "999999w", "1y", "٣d", "1d1h")),
        ],
    )  # fmt: skip
    def test_words(self, args: tuple[str, ...], fault: str, folder: Path) -> None:
        result = said(*args, API_KEYS="keys.json")
        assert result.exit_code == 2
        assert sentence(result).startswith(fault)
        assert not (folder / "keys.json").exists()

    @pytest.mark.parametrize("args", [("create", "a"), ("list",), ("revoke", "x")])
    def test_places(self, args: tuple[str, ...], folder: Path) -> None:
        result = said(*args)
        assert result.exit_code == 2
        assert sentence(result).startswith("SWITCHROOM_API_KEYS is not set; it should be redis, or")
        result = said(*args, API_KEYS="redis", REDIS_URL="fake://x")
        assert result.exit_code == 2
        assert sentence(result).startswith("SWITCHROOM_REDIS_URL is fake://x; it should be the ")
        result = said(*args, API_KEYS="redis")
        assert result.exit_code == 2
        assert "SWITCHROOM_API_KEYS is redis without SWITCHROOM_REDIS_URL" in sentence(result)
        result = said(*args, API_KEYS="redis", REDIS_URL="redis://:secret@127.0.0.1:1")
        assert result.exit_code == 1
        assert sentence(result).startswith("Redis at 127.0.0.1:1 does not answer")
        (folder / "bad.json").write_text("[]")
        result = said(*args, API_KEYS="bad.json")
        assert result.exit_code == 2
        assert sentence(result).startswith("SWITCHROOM_API_KEYS names 'bad.json', which is not an")

    def test_a_file_that_is_absent(self) -> None:
        for args in (("list",), ("revoke", "x")):
            assert said(*args, API_KEYS="absent.json").exit_code == 2
        assert sentence(said("create", "a", API_KEYS="absent/keys.json")) == (
            "SWITCHROOM_API_KEYS names 'absent/keys.json', which cannot be written: "
            "No such file or directory."
        )


class TestCheck:
    def check(self, **settings: str) -> Result:
        env = {f"SWITCHROOM_{name}": value for name, value in settings.items()}
        return CliRunner().invoke(main, ["check"], env=env)

    def test_says_whether_callers_are_asked_and_shows_nothing_of_a_key(self, folder: Path) -> None:
        assert "gate   ok: open, ANYBODY may call" in self.check().output
        made(lambda *args: said(*args, API_KEYS="keys.json"), "alice")
        result = self.check(API_KEYS="keys.json")
        assert "gate   ok: apiKey" in result.output
        (record,) = json.loads((folder / "keys.json").read_text())["keys"]
        assert record["sha256"] not in result.output
        assert "alice" not in result.output

    def test_says_what_is_wrong_with_the_file(self) -> None:
        result = self.check(API_KEYS="absent.json")
        assert result.exit_code == 2
        assert "gate   WRONG: SWITCHROOM_API_KEYS names 'absent.json', which does" in result.output

    def test_does_not_show_a_key_that_stands_where_its_file_should(self) -> None:
        text, _ = new_key("alice", scopes=SCOPES, now=0)
        result = self.check(API_KEYS=text)
        assert result.exit_code == 2
        assert text.rpartition("_")[2] not in result.output


@pytest.mark.parametrize("how", ["before", "between", "lost"])
class TestCut:
    """Redis's answer is lost: asked again, it comes out as it should."""

    async def test_create(self, store: Store, how: How) -> None:
        _, key = new_key("alice", scopes=SCOPES, now=0)
        cut = Cut(store.commit, at=1, how=how)
        assert await add_key(store.api_keys, key) == [key]
        assert cut.hit
        assert (await store.api_keys.read()).keys == {key.id: key}

    async def test_revoke(self, store: Store, how: How) -> None:
        _, key = new_key("alice", scopes=SCOPES, now=0)
        await store.api_keys.add(key)
        cut = Cut(store.commit, at=1, how=how)
        await revoke_key(store.api_keys, key.id)
        assert cut.hit
        assert (await store.api_keys.read()).keys == {}

    async def test_what_is_kept_is_shown_although_the_others_cannot_be_told(
        self, store: Store, how: How
    ) -> None:
        _, key = new_key("alice", scopes=SCOPES, now=0)
        cut = Cut(store.reads, at=1, how=how)
        assert await add_key(store.api_keys, key) == [key]
        assert cut.hit


async def test_what_is_not_known_is_said(store: Store) -> None:
    _, key = new_key("alice", scopes=SCOPES, now=0)
    hows: tuple[How, ...] = ("lost", "before", "before")  # the last one comes first
    cuts = [Cut(store.commit, at=1, how=how) for how in hows]
    with pytest.raises(Stopped, match=f"The key {key.id} may be kept, and is shown to nobody"):
        await add_key(store.api_keys, key)
    assert all(cut.hit for cut in cuts)
    for _ in range(3):
        Cut(store.commit, at=1, how="before")
    with pytest.raises(Stopped, match=f"The key {key.id} may still work: try again") as caught:
        await revoke_key(store.api_keys, key.id)
    assert caught.value.exit_code == 1
    assert (await store.api_keys.read()).keys == {key.id: key}
