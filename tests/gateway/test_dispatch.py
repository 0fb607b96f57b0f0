"""Dispatch: what is checked before a handler is asked, and which handler that is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from switchroom.gateway.app import create_app
from switchroom.gateway.context import CallContext
from switchroom.gateway.dispatch import Answer, dispatch, find
from switchroom.protocol.errors import (
    A2AError,
    ExtensionSupportRequired,
    MethodNotFound,
    PushNotificationNotSupported,
    Unavailable,
    UnsupportedOperation,
)
from switchroom.protocol.methods import METHODS
from switchroom.protocol.model import Json
from switchroom.settings import Settings, SettingsError
from tests.support.gateways import call, card_of, client_of

CONTEXT = CallContext(version="1.0")
PUSH = [name for name in METHODS if "PushNotification" in name]
STREAMS = [name for name, row in METHODS.items() if row.stream]
REQUIRED = card_of(
    streaming=True,
    pushNotifications=True,
    extendedAgentCard=True,
    extensions=[{"uri": "urn:must", "required": True}, {"uri": "urn:may"}],
)


class Recording:
    def __init__(self) -> None:
        self.asked: list[str] = []

    async def dispatch(self, method: str, params: Json | None, context: CallContext) -> Answer:
        self.asked.append(method)
        if METHODS[method].stream:
            return self._nothing()
        return None

    async def _nothing(self) -> Any:
        return
        yield


@pytest.mark.parametrize("method", METHODS)
async def test_every_method_of_the_table_reaches_the_handler(method: str) -> None:
    handler = Recording()
    card = card_of(streaming=True, pushNotifications=True, extendedAgentCard=True)
    await dispatch(handler, find(method), None, CONTEXT, card=card)
    assert handler.asked == [method]


@pytest.mark.parametrize("capabilities", [{}, {"streaming": False, "pushNotifications": False}])
@pytest.mark.parametrize(
    ("method", "error"),
    [
        *((name, UnsupportedOperation) for name in STREAMS),
        *((name, PushNotificationNotSupported) for name in PUSH),
        ("GetExtendedAgentCard", UnsupportedOperation),
    ],
)
async def test_what_the_card_does_not_offer_is_refused_before_any_work(
    method: str, error: type[A2AError], capabilities: dict[str, bool]
) -> None:
    handler = Recording()
    with pytest.raises(error):
        await dispatch(handler, find(method), None, CONTEXT, card=card_of(**capabilities))
    assert handler.asked == []


async def test_without_capabilities_tasks_still_work() -> None:
    handler = Recording()
    for method in ("SendMessage", "GetTask", "ListTasks", "CancelTask"):
        await dispatch(handler, find(method), None, CONTEXT, card=card_of())
    assert len(handler.asked) == 4


async def test_a_required_extension_must_be_named() -> None:
    handler = Recording()
    for method in METHODS:
        if method != "GetExtendedAgentCard":
            with pytest.raises(ExtensionSupportRequired, match="urn:must"):
                await dispatch(handler, find(method), None, CONTEXT, card=REQUIRED)
    assert handler.asked == []
    named = CallContext(version="1.0", extensions=("urn:must",))
    for method in METHODS:
        await dispatch(handler, find(method), None, named, card=REQUIRED)
    await dispatch(handler, find("GetExtendedAgentCard"), None, CONTEXT, card=REQUIRED)
    assert len(handler.asked) == 12


async def test_a_gateway_that_drains_opens_no_stream() -> None:
    handler = Recording()
    card = card_of(streaming=True)
    for method in STREAMS:
        with pytest.raises(Unavailable) as refused:
            await dispatch(handler, find(method), None, CONTEXT, card=card, draining=True)
        assert refused.value.retry_after
    await dispatch(handler, find("SendMessage"), None, CONTEXT, card=card, draining=True)
    assert handler.asked == ["SendMessage"]


def test_a_method_beyond_the_table() -> None:
    with pytest.raises(MethodNotFound):
        find("SendMessages")


def test_tenant_and_caller_make_the_owner() -> None:
    owners = {
        CallContext(version="1.0", tenant=tenant, caller=caller).owner
        for tenant, caller in [("", ""), ("a", ""), ("", "a"), ("a/b", ""), ("a", "b"), ("b", "a")]
    }
    assert len(owners) == 6


# -- which handler

MODULE = """
class Two:
    async def dispatch(self, method, params, context):
        return {"by": "a class"}

class WithStore:
    def __init__(self, store, settings):
        self.store = store
    async def dispatch(self, method, params, context):
        return {"by": f"a class over {self.store}"}

class Needy:
    def __init__(self, one):
        pass
    async def dispatch(self, method, params, context):
        return None

handler = Two()
number = 7
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_handler.py").write_text(MODULE)
    return "my_handler.py"


@pytest.mark.parametrize(
    ("attribute", "by"),
    [("", "a class"), (":Two", "a class"), (":WithStore", "a class over a store")],
)
async def test_a_setting_names_the_handler(module: str, attribute: str, by: str) -> None:
    settings = Settings(handler=module + attribute)
    app = create_app(settings, card=card_of(), store="a store")  # type: ignore[arg-type]
    async with client_of(app) as client:
        assert (await call(client, "GetTask")).json()["result"] == {"by": by}


@pytest.mark.parametrize(
    ("spec", "found"),
    [
        ("my_handler.py:number", "found int, which has no dispatch"),
        ("my_handler.py:Needy", r"found the class Needy\(one\)"),
        ("my_handler.py:nothing", "has no 'nothing'"),
        ("no_such_module_at_all:x", "There is no module"),
    ],
)
def test_what_is_no_handler_is_told_in_a_sentence(module: str, spec: str, found: str) -> None:
    with pytest.raises(SettingsError, match=f"SWITCHROOM_HANDLER is .*{found}") as error:
        create_app(Settings(handler=spec), card=card_of())
    assert "\n" not in str(error.value)


async def test_a_given_handler_wins_over_the_setting() -> None:
    handler = Recording()
    app = create_app(Settings(handler="nowhere:x"), handler=handler, card=card_of())
    async with client_of(app) as client:
        await call(client, "GetTask")
    assert handler.asked == ["GetTask"]
