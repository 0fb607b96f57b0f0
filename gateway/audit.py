"""The audit log: one JSON line for each call that changes something, and for each refusal.

Promises who, what, which task and how it ended, and nothing that a client or an agent has said:
neither content nor a secret. Writing never keeps a call waiting: a thread does it, and what it
cannot keep up with is told on stderr.
"""

from __future__ import annotations

import json
import logging
import logging.handlers
import os
import queue
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Final

from switchroom.gateway.auth.caller import Caller
from switchroom.protocol.errors import A2AError
from switchroom.protocol.methods import Method
from switchroom.settings import Settings, SettingsError

__all__ = ["Audit", "load_audit"]

_MOST_WAITING: Final = 100_000
_READING: Final = ("tasks:read", None)


class Audit:
    """Where the lines go.  handler: writes them; None writes none."""

    def __init__(self, handler: logging.Handler | None = None) -> None:
        self._handler = handler
        self._waiting: queue.Queue[logging.LogRecord] = queue.Queue(_MOST_WAITING)
        self._put = logging.handlers.QueueHandler(self._waiting)

    def note(
        self,
        *,
        method: Method | None,
        caller: Caller,
        peer: str,
        request_id: str,
        binding: str,
        version: str,
        task_id: str,
        fault: A2AError | None,
    ) -> None:
        """Notes how a call has ended, if that is worth a line.

        method: None where it is not known.  peer: the address that is connected.  fault: what it
        was answered; None is success.
        """
        if self._handler is None:
            return
        if fault is None and (method is None or method.scope in _READING):
            return
        line = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "request": request_id,
            "caller": caller.principal,
            "tenant": caller.tenant,
            "credential": caller.credential,
            "from": peer,
            "binding": binding,
            "version": version,
            "method": method.name if method else "",
            "task": task_id,
            "result": fault.reason if fault else "OK",
            "code": fault.code if fault else 0,
        }
        text = json.dumps(line, separators=(",", ":"))
        self._put.emit(logging.LogRecord("audit", logging.INFO, "", 0, text, None, None))

    @contextmanager
    def running(self) -> Iterator[None]:
        """Lines are written; at the end of the block all are."""
        if self._handler is None:
            yield
            return
        listener = logging.handlers.QueueListener(self._waiting, self._handler)
        listener.start()
        try:
            yield
        finally:
            listener.stop()
            self._handler.close()


def load_audit(settings: Settings) -> Audit:
    """The log that the settings ask for: `-` is stdout, else a file, which may be rotated by moving
    it away. Raises SettingsError.
    """
    if settings.audit_log is None:
        return Audit()
    if settings.audit_log == "-":
        return Audit(logging.StreamHandler(sys.stdout))
    try:
        # Made here, so that it is nobody's to read but ours and our group's.
        os.close(os.open(settings.audit_log, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o640))
        return Audit(logging.handlers.WatchedFileHandler(settings.audit_log, encoding="utf-8"))
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise SettingsError(
            f"SWITCHROOM_AUDIT_LOG is {settings.audit_log!r}, which cannot be written ({reason}); "
            "give a file, or - for stdout."
        ) from None
