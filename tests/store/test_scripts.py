"""The Lua scripts as text, and as the server keeps them."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest

from switchroom.protocol.lifecycle import INTERRUPTED, TERMINAL
from switchroom.protocol.model import TaskState
from switchroom.store import Store
from switchroom.store.scripts import ANSWERED, SCRIPTS, Script, command
from tests.support.acts import OWNER, begin, entries_of, new_id, new_task, send_of, stored

SINCE_7_0 = """
    DEL EXISTS GET HDEL HEXISTS HGET HINCRBY HLEN HMGET HSET HSETNX PEXPIRE PTTL PUBLISH SET TIME
    XADD XRANGE XTRIM ZADD ZCARD ZCOUNT ZINCRBY ZRANGE ZREM ZREMRANGEBYSCORE ZSCORE
""".split()
"""What the scripts may use: each is in Redis 7.0 with the options they give it."""

every_script = pytest.mark.parametrize("script", list(SCRIPTS), ids=lambda script: script.name)


def sources() -> set[str]:
    folder = files("switchroom.store").joinpath("lua")
    return {entry.name.removesuffix(".lua") for entry in folder.iterdir()}


def code(script: Script) -> str:
    return re.sub(r"--.*|'[^'\n]*'", "", script.body)


def test_every_file_is_a_script_and_every_script_a_file() -> None:
    assert {script.name for script in SCRIPTS} == sources()


@every_script
def test_a_script_uses_commands_of_redis_7_0(script: Script) -> None:
    used = set(re.findall(r"redis\.p?call\('([A-Z]+)'", script.body))
    assert used <= set(SINCE_7_0)
    assert script.body.count("redis.") == len(re.findall(r"redis\.call\('", script.body))


@every_script
def test_a_script_needs_no_library_and_makes_no_global(script: Script) -> None:
    text = code(script)
    assert not re.search(r"\b(cjson|cmsgpack|bit|struct|os|loadstring|require|_G)\b", text)
    named = set(re.findall(r"\bfor ([\w, ]+?) in\b|\bfor (\w+) =", text))
    local = {name for group in named for part in group for name in part.split(", ") if name}
    for names in re.findall(r"\blocal (?!function)([\w, ]+?)(?: =|\n)", text):
        local |= set(names.split(", "))
    for name, parameters in re.findall(r"\blocal function (\w+)\(([\w, ]*)\)", text):
        local |= {name, *parameters.split(", ")}
    assert len(re.findall(r"\bfunction\b", text)) == len(re.findall(r"\blocal function\b", text))
    assigned = set()
    for names in re.findall(r"(?:^|;|\bthen\b|\belse\b|\bdo\b)[ ]*([\w, ]+?) = ", text, re.M):
        assigned |= set(re.sub(r"^(local|for) ", "", names).split(", "))
    assert assigned <= local


@every_script
def test_a_script_opens_with_its_contract(script: Script) -> None:
    source = files("switchroom.store").joinpath("lua", f"{script.name}.lua").read_text()
    words = source.split("local ")[0]
    assert source.startswith("-- ")
    assert "KEYS" in words


def in_lua(name: str, body: str) -> set[str]:
    (table,) = re.findall(rf"local {name} = {{(.*)}}", body)
    return set(re.findall(r"\['(\w+)'\] = true", table))


def test_the_states_of_the_scripts_are_those_of_the_life_cycle() -> None:
    tables = [script.body for script in SCRIPTS if "local TERMINAL" in script.body]
    assert tables
    for body in tables:
        assert in_lua("TERMINAL", body) == TERMINAL | {ANSWERED}
        assert in_lua("INTERRUPTED", body) == INTERRUPTED


@pytest.mark.parametrize("state", [*TaskState, ANSWERED])
async def test_the_scripts_treat_each_state_as_the_life_cycle_does(
    store: Store, state: str
) -> None:
    task_id = await new_task(store)
    await store.commit(command("HSET", store.keys.task(task_id), "state", state))
    ended = state in TERMINAL or state == ANSWERED
    found, _ = await store.tasks.request_cancel(task_id, owner=OWNER)
    assert found == ("terminal" if ended else "idle")
    accepted = await store.tasks.accept(send_of(store, task_id, new=False))
    if ended:
        assert accepted.outcome == "terminal"
    else:
        assert accepted.outcome == ("more" if state in INTERRUPTED else "busy")


async def test_scripts_that_the_server_forgot_are_loaded_again(store: Store) -> None:
    task_id = new_id()
    await store.commit(command("SCRIPT", "FLUSH"))
    send = send_of(store, task_id)
    accepted = await store.tasks.accept(send, then=[store.queue.enqueueing(task_id, 1)])
    assert accepted.outcome == "new"
    await store.commit(command("SCRIPT", "FLUSH"))
    view = await store.tasks.read(task_id)
    assert view is not None and view.turn == 1
    begun = await begin(store, task_id)
    assert begun.attempt == 1
    assert await store.queue.depth() == 1
    assert len(await entries_of(store, task_id)) == 1


async def test_every_answer_shows_the_clock_of_the_server(store: Store) -> None:
    seconds, micros = map(int, (await store.commit(command("TIME")))[0])
    store.clock.learn(0)
    assert store.clock.now() < 1_000_000
    await store.tasks.read(await new_task(store))
    assert store.clock.now() >= seconds * 1000 + micros // 1000


async def test_numbers_are_kept_as_whole_numbers(store: Store) -> None:
    task_id = await new_task(store)
    await begin(store, task_id)
    kept = await stored(store, task_id)
    for field in ("ts", "seq", "turn", "done", "attempt", "fence", "n", "base_seq"):
        assert kept[field].isdigit(), field
