"""What may be registered as a webhook (§4.3.1, §13.2): its URL, and what is sent along to it.

Promises InvalidParams with the field and the reason, and nothing about this network in it. A name
that was resolved lately is not resolved again: what counts is where it leads when it is told.
"""

from __future__ import annotations

import re
import time
from collections import OrderedDict
from typing import Final

from switchroom.protocol.errors import InvalidParams
from switchroom.protocol.model import TaskPushNotificationConfig
from switchroom.settings import Settings
from switchroom.webhook_url import Target, WebhookRefused, WebhookRules

__all__ = ["Registration"]

_FRESH: Final = 30.0  # seconds
_REMEMBERED: Final = 1_000
_SCHEME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}")
_VALUE: Final = re.compile(r"[!-~]([ -~]{0,8190}[!-~])?")


class Registration:
    """Judges what clients register."""

    def __init__(self, settings: Settings) -> None:
        self.rules = WebhookRules.of(settings)
        self._good: OrderedDict[str, float] = OrderedDict()

    def check(self, config: TaskPushNotificationConfig, *, at: str = "") -> Target:
        """Raises InvalidParams for what cannot be a webhook, whatever its name leads to.

        at: where in the params it stands, with a dot at its end. -> what its URL names.
        """
        if config.token and not _VALUE.fullmatch(config.token):
            raise _refused(f"{at}token", "must be printable ASCII that a header can hold")
        if given := config.authentication:
            if not _SCHEME.fullmatch(given.scheme):
                raise _refused(f"{at}authentication.scheme", "must be the name of a scheme")
            if given.credentials and not _VALUE.fullmatch(given.credentials):
                raise _refused(
                    f"{at}authentication.credentials",
                    "must be printable ASCII that a header can hold",
                )
        try:
            return self.rules.target(config.url)
        except WebhookRefused as refused:
            raise _refused(f"{at}url", f"must not be used: {refused}") from None

    async def resolve(self, target: Target, *, at: str = "") -> None:
        """Raises InvalidParams for a name that leads where webhooks may not go."""
        now = time.monotonic()
        if self._good.get(target.host, 0) > now:
            return
        try:
            await self.rules.check(target)
        except WebhookRefused as refused:
            raise _refused(f"{at}url", f"must not be used: {refused}") from None
        self._good[target.host] = now + _FRESH
        self._good.move_to_end(target.host)
        if len(self._good) > _REMEMBERED:
            self._good.popitem(last=False)


def _refused(field: str, why: str) -> InvalidParams:
    return InvalidParams(violations=[(field, why)])
