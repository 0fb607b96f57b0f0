"""Whose tasks a caller may touch: its own, and what a sharing policy adds.

The one place that is asked, for every method and every binding. Promises that what a caller may not
touch looks to it as if it were not there, whatever it asks, and costs the store the same. A policy
shares single tasks by their id; lists and claims are always the caller's own.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

from switchroom.gateway.auth.caller import Caller
from switchroom.gateway.context import CallContext
from switchroom.importing import ImportFailed, import_object
from switchroom.protocol.errors import TaskNotFound
from switchroom.protocol.methods import Scope
from switchroom.protocol.model import Json
from switchroom.settings import Settings, SettingsError
from switchroom.store.keys import owner_of
from switchroom.store.read import TaskView
from switchroom.store.tasks import TaskStore

__all__ = ["Access", "Policy", "Shared", "load_policy"]


@dataclass(frozen=True, slots=True)
class Shared:
    """A task of somebody else, for a policy to decide about.

    tenant, principal: whose it is.  task: as GetTask answers it, to be left as it is.
    """

    tenant: str
    principal: str
    task: Json


Policy: TypeAlias = Callable[[Caller, Scope, Shared], bool | Awaitable[bool]]
"""`may(caller, action, task)`: whether a caller who is not the task's owner may do this with it.
`action` is the scope of the method, which the caller has."""


class Access:
    """Finds tasks for callers."""

    def __init__(self, tasks: TaskStore, policy: Policy | None = None) -> None:
        self._tasks = tasks
        self._policy = policy

    async def view(self, task_id: str, context: CallContext, action: Scope) -> TaskView:
        """The task, for this action. Raises TaskNotFound."""
        view = await self._tasks.read(task_id, owner=self.reader(context))
        return await self.check(view, context, action)

    def reader(self, context: CallContext) -> str | None:
        """For whom a task is to be read: of others not even that is needed. None is anybody."""
        return context.owner if self._policy is None else None

    async def check(self, view: TaskView | None, context: CallContext, action: Scope) -> TaskView:
        """The same, for what was read as for `reader`. Raises TaskNotFound."""
        if view is None or not view.visible:
            raise TaskNotFound()
        if view.owner == context.owner:
            return view
        if self._policy is not None:
            caller = Caller(context.caller, context.tenant, context.scopes, context.credential)
            may = self._policy(caller, action, Shared(*owner_of(view.owner), view.task))
            if (await may if inspect.isawaitable(may) else may) is True:
                return view
        raise TaskNotFound()

    async def owner(self, task_id: str, context: CallContext, action: Scope) -> str:
        """In whose name to do this, by a script that checks the owner itself."""
        if self._policy is None:
            return context.owner
        return (await self.view(task_id, context, action)).owner


def load_policy(settings: Settings) -> Policy | None:
    """The policy that the settings name, by an import string whose attribute is `may` if it has
    none. Raises SettingsError.
    """
    spec = settings.sharing
    if spec is None:
        return None
    try:
        found = import_object(spec, default="may")
    except ImportFailed as error:
        raise SettingsError(f"SWITCHROOM_SHARING is {spec!r}: {error}") from error
    try:
        inspect.signature(found).bind(None, None, None)
    except TypeError:
        raise SettingsError(
            f"SWITCHROOM_SHARING is {spec!r}: found {type(found).__name__}, which cannot be called "
            "as may(caller, action, task)."
        ) from None
    policy: Policy = found
    return policy
