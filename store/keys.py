"""Every key and channel name, how long each lives, and what may live for ever.

All that one script touches lies in one slot: ``{task id}`` for a task, ``{owner}`` for an
owner's lists and claims. Two deployments with different prefixes never meet on one Redis.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from urllib.parse import quote, unquote

__all__ = ["Keys", "QueueKeys", "owner_key", "owner_of"]


def owner_key(tenant: str, caller: str) -> str:
    """The part of a key that stands for one caller of one tenant; both may be empty (an open
    server).
    """
    return f"{quote(tenant, safe='')}/{quote(caller, safe='')}"


def owner_of(key: str) -> tuple[str, str]:
    """Tenant and caller of an `owner_key`."""
    tenant, _, caller = key.partition("/")
    return unquote(tenant), unquote(caller)


@dataclass(frozen=True, slots=True)
class Keys:
    """Names under one deployment's prefix; `agent` is the name of the agent and its queue."""

    prefix: str
    agent: str

    # -- one task: hash, log, push configs; and the channel that says what is appended
    def task(self, task_id: str) -> str:
        return f"{self.prefix}:{{{task_id}}}:task"

    def log(self, task_id: str) -> str:
        return f"{self.prefix}:{{{task_id}}}:log"

    def push(self, task_id: str) -> str:
        return f"{self.prefix}:{{{task_id}}}:push"

    def sent(self, task_id: str) -> str:
        """How far each push config has been told of the task."""
        return f"{self.prefix}:{{{task_id}}}:sent"

    def live(self, task_id: str) -> str:
        return f"{self.prefix}:{{{task_id}}}:live"

    def of_task(self, task_id: str) -> tuple[str, str, str]:
        """The three keys that scripts over a task take."""
        return self.task(task_id), self.log(task_id), self.push(task_id)

    # -- one owner
    def claim(self, owner: str, digest: str) -> str:
        return f"{self.prefix}:claim:{{{owner}}}:{digest}"

    def tasks(self, owner: str) -> str:
        return f"{self.prefix}:{{{owner}}}:tasks"

    def context(self, owner: str, context_id: str) -> str:
        # Clients make context ids; a digest keeps the key short whatever they send.
        digest = blake2b(context_id.encode(), digest_size=16).hexdigest()
        return f"{self.prefix}:{{{owner}}}:ctx:{digest}"

    def state(self, owner: str, state: str) -> str:
        return f"{self.prefix}:{{{owner}}}:state:{state}"

    # -- what a caller and its tenant use; all in the tenant's slot
    def send_buckets(self, owner: str) -> tuple[str, str]:
        """The caller's, and its tenant's."""
        return self._used(owner, "sends")

    def tasks_in_flight(self, owner: str) -> tuple[str, str]:
        """The caller's, and its tenant's."""
        return self._used(owner, "tasks")

    def streams(self, owner: str) -> str:
        return self._used(owner, "streams")[0]

    def used(self, owner: str) -> tuple[str, str, str, str, str]:
        """All of these, in the order above."""
        return *self._used(owner, "sends"), *self._used(owner, "tasks"), self.streams(owner)

    def _used(self, owner: str, what: str) -> tuple[str, str]:
        tenant, _, caller = owner.partition("/")
        of_tenant = f"{self.prefix}:used:{{{tenant}/}}"
        return f"{of_tenant}:{what}:{caller}", f"{of_tenant}:all-{what}"

    # -- the deployment
    @property
    def open(self) -> str:
        """Every task that is not terminal; score = when to look next. One of the few keys
        without a TTL.
        """
        return f"{self.prefix}:open:{self.agent}"

    @property
    def control(self) -> str:
        return f"{self.prefix}:ctl"

    @property
    def reconciler(self) -> str:
        return f"{self.prefix}:reconciler:{self.agent}"

    @property
    def cursor_secret(self) -> str:
        """Signs page tokens; another key without a TTL."""
        return f"{self.prefix}:cursor-secret"

    @property
    def api_keys(self) -> str:
        """Every API key, by id; without a TTL too."""
        return f"{self.prefix}:api-keys"

    @property
    def api_keys_changed(self) -> str:
        return f"{self.prefix}:api-keys:changed"

    @property
    def pushes(self) -> str:
        """What may have to be delivered to webhooks; score = when to try. Without a TTL."""
        return f"{self.prefix}:pushes:{self.agent}"

    @property
    def pushes_bell(self) -> str:
        return f"{self.pushes}:bell"

    @property
    def dead_letters(self) -> str:
        """Deliveries that were given up; score = when. Without a TTL: what is older than any task
        is dropped with the next that comes.
        """
        return f"{self.prefix}:dead-letters:{self.agent}"

    @property
    def queue(self) -> QueueKeys:
        return QueueKeys(f"{self.prefix}:queue:{self.agent}")

    def lives_for_ever(self, key: str) -> bool:
        """Whether `key` may have no TTL: the shortlist that the leak check knows."""
        queue = self.queue
        return key in (
            self.open,
            self.cursor_secret,
            self.api_keys,
            self.pushes,
            self.dead_letters,
            queue.queue,
            queue.running,
        )


@dataclass(frozen=True, slots=True)
class QueueKeys:
    """One agent's queue. `queue` and `running` are zsets that empty themselves; jobs keep arq's
    key layout.
    """

    queue: str

    @property
    def running(self) -> str:
        return f"{self.queue}:running"

    @property
    def bell(self) -> str:
        return f"{self.queue}:bell"

    def health(self, worker: str) -> str:
        return f"{self.queue}:health:{worker}"
