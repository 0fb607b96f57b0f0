"""API keys in a file: whole at every moment, and what is wrong with it is one sentence."""

from __future__ import annotations

import json
import os
from asyncio import run
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from switchroom.protocol.methods import SCOPES
from switchroom.settings import SettingsError
from switchroom.store import key_file
from switchroom.store.api_key import ApiKey, new_key
from switchroom.store.api_keys import KeyRefused
from switchroom.store.key_file import FileKeys


def key(principal: str = "alice", **more: Any) -> ApiKey:
    return new_key(principal, **{"scopes": SCOPES, "now": 1_000, **more})[1]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "keys.json"


def kept(path: Path) -> list[ApiKey]:
    return list(FileKeys(str(path)).load().keys.values())


def test_what_is_added_is_there_until_it_is_revoked(path: Path) -> None:
    book = FileKeys(str(path))
    one, other = key("alice", tenant="acme", expires=2_000, note="läptop"), key("bob")
    for each in (one, other):
        run(book.add(each))
    assert kept(path) == [one, other]
    assert run(book.revoke(one.id))
    assert kept(path) == [other]
    assert not run(book.revoke(one.id))
    assert run(book.revoke(other.id))
    assert kept(path) == []


def test_it_is_read_again_only_when_it_has_changed(path: Path) -> None:
    book = FileKeys(str(path))
    run(book.add(key()))
    ring = run(book.read())
    assert run(book.read()) is ring
    other = key()
    run(FileKeys(str(path)).add(other))
    changed = run(book.read())
    assert other.id in changed.keys
    assert run(book.read()) is changed
    path.write_text('{"keys": []}')
    assert run(book.read()).keys == {}


def test_changes_at_once_come_one_after_the_other(path: Path) -> None:
    made = [key() for _ in range(20)]
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda each: run(FileKeys(str(path)).add(each)), made))
    assert {each.id for each in kept(path)} == {each.id for each in made}


@pytest.mark.requires("unix")
def test_a_new_one_is_for_its_owner_alone_and_an_old_one_keeps_its_mode(path: Path) -> None:
    book = FileKeys(str(path))
    run(book.add(key()))
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o640)
    run(book.add(key()))
    assert path.stat().st_mode & 0o777 == 0o640


@pytest.mark.requires("unix")
def test_a_link_stays_one(path: Path, tmp_path: Path) -> None:
    real = tmp_path / "real.json"
    path.symlink_to(real)
    made = key()
    run(FileKeys(str(path)).add(made))
    assert path.is_symlink()
    assert kept(real) == [made]


def test_a_change_that_fails_leaves_the_file_as_it_was(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    book, made = FileKeys(str(path)), key()
    run(book.add(made))
    before = path.read_bytes()

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    for broken in ("fsync", "replace"):
        with monkeypatch.context() as patched:
            patched.setattr(os, broken, full)
            with pytest.raises(SettingsError, match="cannot be written: No space left on device"):
                run(book.add(key()))
        assert path.read_bytes() == before
        assert os.listdir(path.parent) == [path.name]


def test_there_may_be_so_many(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_file, "MOST_KEYS", 2)
    book = FileKeys(str(path))
    for _ in range(2):
        run(book.add(key()))
    with pytest.raises(KeyRefused, match="There are 2 keys"):
        run(book.add(key()))


# Its id stands in the names of tests, which every process that runs them has to agree on.
GOOD = key().to_record() | {"id": "abcdefghij"}


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "which is not JSON: "),
        ("{", "which is not JSON: "),
        ("[]", 'which is not an object with the list "keys" alone.'),
        ("{}", 'which is not an object with the list "keys" alone.'),
        ('{"keys": {}}', 'which is not an object with the list "keys" alone.'),
        ('{"keys": [], "more": 1}', 'which is not an object with the list "keys" alone.'),
        (json.dumps({"keys": [GOOD, 7]}), "whose key number 2 is not an object."),
        (
            json.dumps({"keys": [GOOD, {**GOOD, "expire": ""}]}),
            "whose key number 2 has a 'expire', which is none of id, sha256, ",
        ),
        (json.dumps({"keys": [GOOD, GOOD]}), f"which has two keys with the id {GOOD['id']}."),
    ],
)
def test_what_is_wrong_with_it_is_a_sentence(path: Path, text: str, fault: str) -> None:
    path.write_text(text)
    for asked in (FileKeys(str(path)).read(), FileKeys(str(path)).add(key())):
        with pytest.raises(SettingsError) as caught:
            run(asked)
        said = str(caught.value)
        assert said.startswith(f"SWITCHROOM_API_KEYS names {str(path)!r}, {fault}")
        assert "\n" not in said
    assert path.read_text() == text


def test_so_is_that_it_cannot_be_had(path: Path, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="does not exist; `switchroom keys create NAME` makes"):
        FileKeys(str(path)).load()
    with pytest.raises(SettingsError, match="cannot be read: Is a directory"):
        FileKeys(str(tmp_path)).load()
    with pytest.raises(SettingsError, match="cannot be written: No such file or directory"):
        run(FileKeys(str(tmp_path / "absent" / "keys.json")).add(key()))
