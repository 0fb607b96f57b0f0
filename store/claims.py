"""Idempotent sends: who says "again" gets the same task.

A claim (`SET NX`) fixes the task id of a send before anything else is written; whoever holds or
finds it then calls `accept`, which decides. So every step can be repeated, by anyone, after a
kill or a lost answer at any point.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass
from hashlib import blake2b
from typing import Literal

from switchroom.protocol.model import Json
from switchroom.store.keys import Keys
from switchroom.store.scripts import SCRIPTS, Call, command

__all__ = ["Claim", "claim_for"]

Idempotency = Literal["request", "message-id", "header"]


@dataclass(frozen=True, slots=True)
class Claim:
    """What makes a send a repeat.

    digest: names the claim, and is remembered with the turn that it makes.  params: digest of
    the whole request; a claim held with other params is a refusal.  renewable: made from a bare
    messageId, so it has ended once the task's turn is above the claim's, or its cancel came
    after (the caller provably has the answer).  kept: whether there is a claim at all; without
    one only our own retries are safe.
    """

    digest: str
    params: str
    renewable: bool
    kept: bool

    def value(self, task_id: str) -> str:
        return f"{task_id} {self.params}"

    def read(self, keys: Keys, owner: str) -> Call:
        """Answers the value that holds, or None."""
        return command("GET", keys.claim(owner, self.digest))

    def take(self, keys: Keys, owner: str, task_id: str, ttl: int) -> Call:
        """Answers None if the claim is ours now, else the value that holds."""
        return command(
            "SET", keys.claim(owner, self.digest), self.value(task_id), "NX", "GET", "PX", ttl
        )

    def replace(self, keys: Keys, owner: str, held: str, task_id: str | None, ttl: int) -> Call:
        """Compare-and-set; `task_id` None takes the claim back. The answer's third item is the
        value that holds now.
        """
        value = "" if task_id is None else self.value(task_id)
        return SCRIPTS.replace_claim([keys.claim(owner, self.digest)], held, value, ttl)


def claim_for(
    method: str,
    params: Json,
    *,
    message_id: str,
    key: str | None,
    idempotency: Idempotency,
) -> Claim:
    """The claim of one send.

    params: the decoded request as JSON (never raw bytes, headers or the JSON-RPC id).  key: the
    `Idempotency-Key` header.
    """
    whole = _digest(method, json.dumps(params, sort_keys=True, separators=(",", ":")))
    if key:
        return Claim(_digest("key", key), whole, renewable=False, kept=True)
    if idempotency == "header":
        return Claim(secrets.token_hex(16), whole, renewable=False, kept=False)
    if idempotency == "message-id":
        return Claim(_digest("message", message_id), whole, renewable=True, kept=True)
    return Claim(whole, whole, renewable=True, kept=True)


def _digest(kind: str, text: str) -> str:
    return blake2b(f"{kind}\0{text}".encode(), digest_size=16).hexdigest()
