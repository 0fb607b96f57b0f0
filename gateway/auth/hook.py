"""A way to tell who calls that comes with the deployment: `SWITCHROOM_AUTH`.

Promises that what cannot be one is refused at the start, in a sentence. Relies on it not to keep
the event loop waiting. What it raises and is no A2AError is a failure of its own: the client gets
an id, the log the traceback.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from pydantic import TypeAdapter, ValidationError

from switchroom.gateway.auth.caller import Caller, Request
from switchroom.gateway.auth.gate import Way
from switchroom.importing import ImportFailed, import_object
from switchroom.protocol.card import SecurityScheme
from switchroom.protocol.model import Json
from switchroom.settings import Settings, SettingsError
from switchroom.store import Store

__all__ = ["Hook", "load_hook"]

_SCHEMES = TypeAdapter(dict[str, SecurityScheme])


class Hook(Way):
    """Asks what the deployment brings along."""

    def __init__(self, found: Any) -> None:
        """found: a callable of the `Request`, or an object with such a method `caller`; sync or
        async, it answers a `Caller` or None. The object may have `schemes` and `challenge`, as a
        `Way` has them, and an async context manager `running()`.

        Raises ValueError: what is wrong with it.
        """
        self._ask = getattr(found, "caller", found)
        if not callable(self._ask):
            raise ValueError(f"found {type(found).__name__}, which has no caller(request)")
        self._running = getattr(found, "running", None)
        schemes = getattr(found, "schemes", {})
        try:
            _SCHEMES.validate_python(schemes)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(str(part) for part in first["loc"])
            raise ValueError(f"its schemes{where and '.'}{where}: {first['msg']}") from None
        self._schemes: Mapping[str, Json] = dict(schemes)
        challenge = getattr(found, "challenge", "")
        if not isinstance(challenge, str) or not (challenge.isascii() and challenge.isprintable()):
            raise ValueError(f"its challenge is {challenge!r:.100}, not the text of a header")
        self.challenge = challenge

    @property
    def schemes(self) -> Mapping[str, Json]:
        """What it says itself; nothing if it does not."""
        return self._schemes

    async def caller(self, request: Request) -> Caller | None:
        """Its answer. Raises what it raises, and TypeError for an answer that is none."""
        answer = self._ask(request)
        if inspect.isawaitable(answer):
            answer = await answer
        if answer is not None and not isinstance(answer, Caller):
            raise TypeError(f"SWITCHROOM_AUTH answers {answer!r:.100}, not a Caller or None")
        return answer

    @asynccontextmanager
    async def running(self, store: Store | None) -> AsyncIterator[None]:
        """Within its own `running()`, if it has one."""
        if self._running is None:
            yield
            return
        async with self._running():
            yield


def load_hook(settings: Settings) -> Hook:
    """What `auth` names; the attribute is `auth` where it names none. A class is made an object of,
    with the settings if it takes something.

    Raises SettingsError: one sentence.
    """
    spec = settings.auth
    assert spec is not None
    try:
        found = import_object(spec, default="auth")
        if inspect.isclass(found):
            found = _made(found, settings)
        return Hook(found)
    except ImportFailed as error:
        raise SettingsError(f"SWITCHROOM_AUTH is {spec!r}: {error}") from error
    except ValueError as error:
        raise SettingsError(
            f"SWITCHROOM_AUTH is {spec!r}: {error}; it should be a callable of the request, or an "
            "object with a method caller(request)."
        ) from error


def _made(found: type, settings: Settings) -> Any:
    if not callable(getattr(found, "caller", None)):
        raise ValueError(f"found the class {found.__name__}, which has no caller(request)")
    try:
        signature = inspect.signature(found)
    except ValueError:  # made in C
        signature = inspect.Signature()
    for arguments in ((), (settings,)):
        try:
            signature.bind(*arguments)
        except TypeError:
            continue
        try:
            return found(*arguments)
        except Exception as error:
            reason = str(error).partition("\n")[0]
            kind = type(error).__name__
            raise ValueError(f"making the object fails with {kind}: {reason}") from error
    raise ValueError(f"found the class {found.__name__}{signature}, which takes more than settings")
