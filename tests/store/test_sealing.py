"""What webhooks are registered with is sealed in Redis, by keys that take each other's place."""

from __future__ import annotations

import json
from typing import Any

import pytest
from cryptography.fernet import Fernet
from pydantic import ValidationError

from switchroom.protocol.errors import TaskNotFound, Unavailable
from switchroom.settings import Settings
from switchroom.store.scripts import command
from switchroom.store.sealing import Sealed, Sealer
from tests.support.house import Gateway, House

OLD, NEW = Fernet.generate_key().decode(), Fernet.generate_key().decode()
HOOK = {
    "url": "https://a.test/hook?key=in-the-url",
    "token": "tell-nobody",
    "authentication": {"scheme": "Bearer", "credentials": "secret-of-the-hook"},
}


async def register(gateway: Gateway, task_id: str, **more: Any) -> str:
    config = await gateway.call(
        "CreateTaskPushNotificationConfig", {"taskId": task_id, **HOOK, **more}
    )
    return str(config["id"])


async def kept(gateway: Gateway, task_id: str) -> bytes:
    """All that Redis holds of the task's webhooks."""
    store = gateway.store
    (found,) = await store.commit(command("HVALS", store.keys.push(task_id)))
    return b" ".join(found)


async def test_redis_does_not_learn_what_is_sealed(house: House) -> None:
    gateway = await house.gateway(push_seal_keys=(NEW,))
    task = await gateway.send("ask", returnImmediately=True, taskPushNotificationConfig=HOOK)
    await register(gateway, task["id"])
    held = await kept(gateway, task["id"])
    assert held
    for secret in ("in-the-url", "tell-nobody", "secret-of-the-hook", "https"):
        assert secret.encode() not in held
    listed = await gateway.call("ListTaskPushNotificationConfigs", {"taskId": task["id"]})
    assert [each["url"] for each in listed["configs"]] == [HOOK["url"]] * 2
    assert "secret-of-the-hook" not in json.dumps(listed)


async def test_a_new_key_takes_the_place_of_the_old_one(house: House) -> None:
    plain = await house.gateway()
    task_id = (await plain.send("ask", returnImmediately=True))["id"]
    await register(plain, task_id, id="plain")
    before = await house.gateway(push_seal_keys=(OLD,))
    await register(before, task_id, id="old")
    both = await house.gateway(push_seal_keys=(NEW, OLD))
    await register(both, task_id, id="new")
    for gateway, reads in ((both, "plain old new"), (before, "plain old"), (plain, "plain")):
        for config_id in reads.split():
            ident = {"taskId": task_id, "id": config_id}
            found = await gateway.call("GetTaskPushNotificationConfig", ident)
            assert found["url"] == HOOK["url"]
    after = await house.gateway(push_seal_keys=(NEW,))
    await after.call("GetTaskPushNotificationConfig", {"taskId": task_id, "id": "new"})
    with pytest.raises(Unavailable):
        await after.call("GetTaskPushNotificationConfig", {"taskId": task_id, "id": "old"})


async def test_what_cannot_be_opened_is_told_to_its_operator_and_can_be_deleted(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    sealing = await house.gateway(push_seal_keys=(OLD,))
    task_id = (await sealing.send("ask", returnImmediately=True))["id"]
    await register(sealing, task_id, id="c")
    other = await house.gateway(push_seal_keys=(NEW,))
    ident = {"taskId": task_id, "id": "c"}
    for method, params in (
        ("GetTaskPushNotificationConfig", ident),
        ("ListTaskPushNotificationConfigs", {"taskId": task_id}),
    ):
        caplog.clear()
        with pytest.raises(Unavailable) as refused:
            await other.call(method, params)
        assert refused.value.message == ("A push config of this task cannot be read at the moment")
        assert "SWITCHROOM_PUSH_SEAL_KEYS" in caplog.text and task_id in caplog.text
    await other.call("DeleteTaskPushNotificationConfig", ident)
    with pytest.raises(TaskNotFound):
        await other.call("GetTaskPushNotificationConfig", ident)


def test_what_was_tampered_with_is_not_opened() -> None:
    sealer = Sealer((NEW,))
    sealed = sealer.seal(b'{"url": "https://a.test"}')
    assert sealer.open(sealed) == b'{"url": "https://a.test"}'
    changed = sealed[:30] + bytes([sealed[30] ^ 1]) + sealed[31:]
    for other in (changed, sealed[:-4], b"", b"not sealed"):
        with pytest.raises(Sealed):
            sealer.open(other)
        with pytest.raises(Sealed):
            Sealer().open(other)


@pytest.mark.parametrize("given", ["short", "x" * 44, "é" * 32])
def test_what_is_no_key_is_refused_at_the_start(given: str) -> None:
    with pytest.raises(ValidationError) as refused:
        Settings.model_validate({"push_seal_keys": (given,)})
    assert given not in str(refused.value.errors(include_input=False))
