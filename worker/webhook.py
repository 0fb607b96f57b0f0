"""One request to one webhook: what it says, and what its answer means (§4.3.3).

Promises that only 2xx counts as delivered, that a request takes no longer than
`SWITCHROOM_PUSH_TIMEOUT` and reads no more than a little of the answer, and that no secret of the
registration gets into a message. Relies on `webhook_client.py` for where a connection may go.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from types import TracebackType
from typing import Final, Self
from urllib.parse import urlsplit

import httpx2

from switchroom.protocol.model import Json
from switchroom.settings import Settings
from switchroom.webhook_url import WebhookRefused, WebhookRules
from switchroom.worker.signature import WebhookSigner
from switchroom.worker.webhook_client import webhook_client

__all__ = ["Failed", "Webhooks", "origin_of"]

_log = logging.getLogger("switchroom.worker")
_CONNECT: Final = 5.0  # seconds
_READ: Final = 16 * 1024
"""Bytes of an answer that are read, so that its connection can be used again."""
_TYPES: Final = {"1.0": "application/a2a+json", "0.3": "application/json"}


@dataclass(frozen=True, slots=True)
class Failed:
    """An attempt in vain.  why: for operators, in a few words.  retry_after: seconds that the
    receiver asked for.  final: it wants no more.
    """

    why: str
    retry_after: float | None = None
    final: bool = False


def origin_of(url: str) -> str:
    """Scheme, host and port: what one receiver is."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


class Webhooks:
    """Sends to webhooks. Open as a context.

    rules: where they may lead, if not as the settings say.
    """

    def __init__(self, settings: Settings, *, rules: WebhookRules | None = None) -> None:
        total = settings.push_timeout.total_seconds()
        self._total = total
        self._signer = WebhookSigner.of(settings)
        self._rules = rules or WebhookRules.of(settings)
        self._client = webhook_client(
            self._rules,
            connect=min(_CONNECT, total),
            total=total,
            connections=settings.push_concurrency,
        )

    async def __aenter__(self) -> Self:
        await self._client.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._client.__aexit__(kind, error, trace)

    async def post(
        self, config: Json, body: bytes, *, version: str, task_id: str, delivery_id: str
    ) -> Failed | None:
        """Tells the webhook of `config`; None if it has taken it."""
        url = config["url"]
        try:
            self._rules.target(url)
            async with asyncio.timeout(self._total):
                headers = self._headers(config, body, version, task_id, delivery_id)
                async with self._client.stream("POST", url, content=body, headers=headers) as told:
                    await _drain(told)
        except TimeoutError:
            return Failed(f"no answer within {self._total:g} s")
        except WebhookRefused as refused:
            return Failed(str(refused))
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError, ValueError) as error:
            return Failed(
                f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            )
        if told.is_success:
            return None
        return Failed(
            f"HTTP {told.status_code}",
            retry_after=_seconds(told.headers.get("retry-after")),
            final=told.status_code == httpx2.codes.GONE,
        )

    def _headers(
        self, config: Json, body: bytes, version: str, task_id: str, delivery_id: str
    ) -> dict[str, str]:
        headers = {
            "Content-Type": _TYPES[version],
            "A2A-Version": version,
            "A2A-Delivery-Id": delivery_id,
        }
        if token := config.get("token"):
            # The second is how SDKs in other languages spell it.
            headers["X-A2A-Notification-Token"] = headers["A2A-Notification-Token"] = token
        signature = None
        if self._signer is not None:
            signature = self._signer.sign(
                body, audience=config["url"], delivery_id=delivery_id, task_id=task_id
            )
            headers["A2A-Notification-Signature"] = signature
        if wanted := config.get("authentication"):
            scheme, credentials = wanted["scheme"], wanted.get("credentials")
            if credentials:
                headers["Authorization"] = f"{scheme} {credentials}"
            elif signature and scheme.lower() == "bearer":
                headers["Authorization"] = f"{scheme} {signature}"
        elif signature:
            headers["Authorization"] = f"Bearer {signature}"
        return headers


async def _drain(answer: httpx2.Response) -> None:
    """Reads what there is of an answer, within bounds; more is cut off."""
    read = 0
    async for piece in answer.aiter_raw():
        read += len(piece)
        if read > _READ:
            return


def _seconds(retry_after: str | None) -> float | None:
    """What Retry-After says: seconds, or a date (RFC 9110 §10.2.3); None if it says nothing."""
    if not retry_after:
        return None
    if retry_after.isascii() and retry_after.isdigit() and len(retry_after) < 10:
        return float(retry_after)
    try:
        until = parsedate_to_datetime(retry_after)
    except ValueError:
        return None
    if until.tzinfo is None:
        until = until.replace(tzinfo=UTC)
    return max(0.0, (until - datetime.now(UTC)).total_seconds())
