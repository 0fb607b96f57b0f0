"""The table: one row for each method of A2A (§5.3).

Promises: names, parameter and result types, needed capabilities and scopes, and REST paths are
written here and nowhere else; bindings, checks, metric labels and documentation read them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal, get_args

from switchroom.protocol import params as p
from switchroom.protocol.card import AgentCard
from switchroom.protocol.event import StreamResponse
from switchroom.protocol.model import Task
from switchroom.protocol.protojson import Model

__all__ = ["METHODS", "SCOPES", "Capability", "Method", "Scope"]

Capability = Literal["streaming", "push_notifications", "extended_agent_card"]
"""A field of AgentCapabilities."""

Scope = Literal["tasks:send", "tasks:read", "tasks:cancel", "push:write", "admin"]
"""What a caller may be allowed to do; `admin` is all of it."""

SCOPES: Final[frozenset[Scope]] = frozenset(get_args(Scope))


@dataclass(frozen=True, kw_only=True)
class Method:
    """One operation.

    name: its name in JSON-RPC 1.0 and in gRPC.
    params: what it takes.
    result: what it gives, or each item of the stream; None is empty.
    stream: whether the answer is a stream.
    needs: the capability the card must declare, before anything else is done.
    rest: (verb, path) pairs; each path also exists behind one tenant segment. In braces: the field
        of `params`, by its JSON name, that the segment fills.
    v03: its name in JSON-RPC 0.3; None if 0.3 had no such method.
    rest_v03: `rest` in 0.3, where no path has a tenant before it.
    scope: what a caller needs for it; None is nothing but to be known.
    extension: URI of the extension that adds it (§4.6); empty for those of the specification.
    """

    name: str
    params: type[Model]
    result: type[Model] | None
    stream: bool = False
    needs: Capability | None = None
    rest: tuple[tuple[str, str], ...] = ()
    v03: str | None = None
    rest_v03: tuple[tuple[str, str], ...] = ()
    scope: Scope | None = "tasks:send"
    extension: str = ""


_CONFIGS = "/tasks/{taskId}/pushNotificationConfigs"

_ROWS = (
    Method(
        name="SendMessage",
        params=p.SendMessageRequest,
        result=p.SendMessageResponse,
        rest=(("POST", "/message:send"),),
        v03="message/send",
        rest_v03=(("POST", "/v1/message:send"),),
        scope="tasks:send",
    ),
    Method(
        name="SendStreamingMessage",
        params=p.SendMessageRequest,
        result=StreamResponse,
        stream=True,
        needs="streaming",
        rest=(("POST", "/message:stream"),),
        v03="message/stream",
        rest_v03=(("POST", "/v1/message:stream"),),
        scope="tasks:send",
    ),
    Method(
        name="GetTask",
        params=p.GetTaskRequest,
        result=Task,
        rest=(("GET", "/tasks/{id}"),),
        v03="tasks/get",
        rest_v03=(("GET", "/v1/tasks/{id}"),),
        scope="tasks:read",
    ),
    Method(
        name="ListTasks",
        params=p.ListTasksRequest,
        result=p.ListTasksResponse,
        rest=(("GET", "/tasks"),),
        v03=None,
        scope="tasks:read",
    ),
    Method(
        name="CancelTask",
        params=p.CancelTaskRequest,
        result=Task,
        rest=(("POST", "/tasks/{id}:cancel"),),
        v03="tasks/cancel",
        rest_v03=(("POST", "/v1/tasks/{id}:cancel"),),
        scope="tasks:cancel",
    ),
    Method(
        name="SubscribeToTask",
        params=p.SubscribeToTaskRequest,
        result=StreamResponse,
        stream=True,
        needs="streaming",
        # The proto says GET, the text (§11.3.2) and the clients say POST.
        rest=(("GET", "/tasks/{id}:subscribe"), ("POST", "/tasks/{id}:subscribe")),
        v03="tasks/resubscribe",
        rest_v03=(("GET", "/v1/tasks/{id}:subscribe"), ("POST", "/v1/tasks/{id}:subscribe")),
        scope="tasks:read",
    ),
    Method(
        name="CreateTaskPushNotificationConfig",
        params=p.CreateTaskPushNotificationConfigRequest,
        result=p.TaskPushNotificationConfig,
        needs="push_notifications",
        rest=(("POST", _CONFIGS),),
        v03="tasks/pushNotificationConfig/set",
        rest_v03=(("POST", "/v1" + _CONFIGS),),
        scope="push:write",
    ),
    Method(
        name="GetTaskPushNotificationConfig",
        params=p.GetTaskPushNotificationConfigRequest,
        result=p.TaskPushNotificationConfig,
        needs="push_notifications",
        rest=(("GET", _CONFIGS + "/{id}"),),
        v03="tasks/pushNotificationConfig/get",
        rest_v03=(("GET", "/v1" + _CONFIGS + "/{id}"),),
        scope="tasks:read",
    ),
    Method(
        name="ListTaskPushNotificationConfigs",
        params=p.ListTaskPushNotificationConfigsRequest,
        result=p.ListTaskPushNotificationConfigsResponse,
        needs="push_notifications",
        rest=(("GET", _CONFIGS),),
        v03="tasks/pushNotificationConfig/list",
        rest_v03=(("GET", "/v1" + _CONFIGS),),
        scope="tasks:read",
    ),
    Method(
        name="DeleteTaskPushNotificationConfig",
        params=p.DeleteTaskPushNotificationConfigRequest,
        result=None,
        needs="push_notifications",
        rest=(("DELETE", _CONFIGS + "/{id}"),),
        v03="tasks/pushNotificationConfig/delete",
        rest_v03=(("DELETE", "/v1" + _CONFIGS + "/{id}"),),
        scope="push:write",
    ),
    Method(
        name="GetExtendedAgentCard",
        params=p.GetExtendedAgentCardRequest,
        result=AgentCard,
        needs="extended_agent_card",
        rest=(("GET", "/extendedAgentCard"),),
        v03="agent/getAuthenticatedExtendedCard",
        rest_v03=(("GET", "/v1/card"),),
        scope=None,
    ),
)

METHODS: Mapping[str, Method] = MappingProxyType({row.name: row for row in _ROWS})
"""The eleven methods, by name."""
