"""A deployment may bring its own way to tell who calls; what cannot be one is refused."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from switchroom.gateway.app import create_app
from switchroom.gateway.auth.load import load_gate
from switchroom.settings import Settings, SettingsError
from tests.support.gateways import V1, Witness, call, card_of, client_of

PREAMBLE = """
from contextlib import asynccontextmanager
from switchroom.gateway.auth.caller import Caller
from switchroom.protocol.errors import AuthenticationFailed, PermissionDenied, Unavailable

def known(request):
    name = request.headers.get(b"x-name")
    return Caller(name.decode(), "acme", credential="own") if name else None
"""


class Module:
    """A Python file that a deployment brings along."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, text: str) -> str:
        """Its import string, once it holds `text`."""
        self.path.write_text(PREAMBLE + textwrap.dedent(text))
        return str(self.path)


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Module:
    monkeypatch.setattr(sys, "path", sys.path[:])
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    return Module(tmp_path / f"own_{tmp_path.name.replace('-', '_')}.py")


@asynccontextmanager
async def served(spec: str, handler: Witness, **more: Any) -> AsyncIterator[httpx.AsyncClient]:
    app = create_app(Settings(auth=spec, **more), handler=handler, card=card_of())
    async with app.router.lifespan_context(app), client_of(app) as client:
        yield client


GOOD = {
    "a function": "auth = known",
    "a coroutine": """
        async def auth(request):
            return known(request)
    """,
    "an object": """
        class Own:
            async def caller(self, request):
                return known(request)
        auth = Own()
    """,
    "an object that does not wait": """
        class Own:
            def caller(self, request):
                return known(request)
        auth = Own()
    """,
    "a callable object": """
        class Own:
            def __call__(self, request):
                return known(request)
        auth = Own()
    """,
    "a class": """
        class auth:
            async def caller(self, request):
                return known(request)
    """,
    "a class that takes the settings": """
        class auth:
            def __init__(self, settings):
                self.header = settings.prefix
            async def caller(self, request):
                return known(request) if self.header == "switchroom" else None
    """,
    "a class that needs nothing": """
        class auth:
            def __init__(self, settings=None):
                assert settings is None
            caller = staticmethod(known)
    """,
}


@pytest.mark.parametrize("text", GOOD.values(), ids=GOOD)
async def test_it_is_asked_who_calls(module: Module, text: str) -> None:
    handler = Witness()
    async with served(module.write(text), handler) as client:
        assert (await call(client, "GetTask", {"id": "t"})).status_code == 401
        headers = {**V1, "X-Name": "alice"}
        assert (await call(client, "GetTask", {"id": "t"}, headers=headers)).status_code == 200
    (context,) = handler.contexts
    assert (context.caller, context.tenant, context.credential) == ("alice", "acme", "own")


async def test_the_attribute_can_be_named(module: Module) -> None:
    spec = module.write("")
    async with served(f"{spec}:known", Witness()) as client:
        headers = {**V1, "X-Name": "alice"}
        assert (await call(client, "GetTask", {"id": "t"}, headers=headers)).status_code == 200


async def test_its_schemes_and_challenge_are_told(module: Module) -> None:
    spec = module.write("""
        class auth:
            schemes = {"own": {"httpAuthSecurityScheme": {"scheme": "Own"}}}
            challenge = 'Own realm="a2a"'
            async def caller(self, request):
                return known(request)
    """)
    async with served(spec, Witness()) as client:
        card = (await client.get("/.well-known/agent-card.json")).json()
        response = await call(client, "GetTask", {"id": "t"})
    assert card["securitySchemes"]["own"]["httpAuthSecurityScheme"] == {"scheme": "Own"}
    assert card["securityRequirements"] == [{"schemes": {"own": {}}}]
    assert response.headers["www-authenticate"] == 'Own realm="a2a"'


async def test_it_runs_as_long_as_the_gateway(module: Module, tmp_path: Path) -> None:
    spec = module.write(f"""
        from pathlib import Path
        class auth:
            caller = staticmethod(known)
            @asynccontextmanager
            async def running(self):
                Path({str(tmp_path)!r}, "begun").touch()
                yield
                Path({str(tmp_path)!r}, "ended").touch()
    """)
    async with served(spec, Witness()):
        assert (tmp_path / "begun").exists()
        assert not (tmp_path / "ended").exists()
    assert (tmp_path / "ended").exists()


@pytest.mark.parametrize(
    ("raised", "status", "message"),
    [
        ("AuthenticationFailed()", 401, "Authentication failed"),
        ("PermissionDenied('Not on Sundays')", 403, "Not on Sundays"),
        ("Unavailable('Ask later', retry_after=7)", 503, "Ask later"),
        ("RuntimeError('secret')", 500, "Internal error"),
        ("OSError(111, 'db.internal')", 500, "Internal error"),
    ],
)
async def test_what_it_raises_is_the_answer_if_it_is_one(
    module: Module, raised: str, status: int, message: str, caplog: pytest.LogCaptureFixture
) -> None:
    spec = module.write(f"""
        def auth(request):
            raise {raised}
    """)
    handler = Witness()
    async with served(spec, handler) as client:
        response = await client.post("/message:send", content=b"not JSON", headers=V1)
        rpc = await call(client, "GetTask", {"id": "t"})
    assert response.status_code == status
    assert response.json()["error"]["message"] == message
    assert rpc.json()["error"]["message"] == message
    assert "secret" not in response.text + rpc.text
    assert "db.internal" not in response.text + rpc.text
    assert ("Traceback" in caplog.text) == (status == 500)
    assert handler.contexts == []


@pytest.mark.parametrize("answer", ["True", "'alice'", "{'principal': 'alice'}", "1"])
async def test_an_answer_that_is_no_caller_lets_nobody_in(
    module: Module, answer: str, caplog: pytest.LogCaptureFixture
) -> None:
    handler = Witness()
    async with served(module.write(f"auth = lambda request: {answer}"), handler) as client:
        response = await call(client, "GetTask", {"id": "t"})
    assert response.json()["error"]["message"] == "Internal error"
    assert "not a Caller or None" in caplog.text
    assert handler.contexts == []


@pytest.mark.parametrize("caller", ["Caller('')", "Caller('a\\nb')", "Caller('a', 'b\\0')"])
async def test_a_caller_without_a_proper_name_is_refused(module: Module, caller: str) -> None:
    async with served(module.write(f"auth = lambda request: {caller}"), Witness()) as client:
        assert (await call(client, "GetTask", {"id": "t"})).status_code == 401


WRONG = {
    "number": ("auth = 7", "found int, which has no caller(request)"),
    "caller no method": (
        "class auth:\n    caller = 7",
        "found the class auth, which has no caller",
    ),
    "class of nothing": ("class auth: pass", "found the class auth, which has no caller(request)"),
    "class of more": (
        "class auth:\n    def __init__(self, a, b): ...\n    caller = known",
        "found the class auth(a, b), which takes more than settings",
    ),
    "class that refuses": (
        "class auth:\n    def __init__(self): raise ValueError('no key')\n    caller = known",
        "no key",
    ),
    "class that breaks": (
        "class auth:\n    def __init__(self): 1 / 0\n    caller = known",
        "making the object fails with ZeroDivisionError: division by zero",
    ),
    "nothing": ("", "has no 'auth'; it defines"),
    "broken": ("import no_such_module", "fails with ModuleNotFoundError"),
    "schemes": (
        "class auth:\n    schemes = {'own': {'type': 'http'}}\n    caller = known",
        "its schemes",
    ),
    "schemes a list": ("class auth:\n    schemes = ['own']\n    caller = known", "its schemes"),
    "challenge": ("class auth:\n    challenge = 'a\\nb'\n    caller = known", "its challenge"),
}


@pytest.mark.parametrize(("text", "reason"), WRONG.values(), ids=WRONG)
def test_what_cannot_be_one_is_refused_at_the_start(module: Module, text: str, reason: str) -> None:
    spec = module.write(text)
    with pytest.raises(SettingsError) as caught:
        load_gate(Settings(auth=spec))
    sentence = str(caught.value)
    assert sentence.startswith(f"SWITCHROOM_AUTH is {spec!r}: ")
    assert reason in sentence
    assert "\n" not in sentence
