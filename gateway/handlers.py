"""The distributed handler: eleven short methods over the store; no agent runs, no state is kept."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

from switchroom.gateway.access import Access, Policy
from switchroom.gateway.answers import Answers, ClosingStream, item_of
from switchroom.gateway.content import InputModes
from switchroom.gateway.context import CallContext
from switchroom.gateway.dispatch import Answer, StreamItem, require_scope
from switchroom.gateway.extended import ExtendedCard
from switchroom.gateway.limits import CallLimits
from switchroom.gateway.pressure import Pressure
from switchroom.gateway.registration import Registration
from switchroom.gateway.sends import Sends, too_many_configs
from switchroom.gateway.sizes import MessageSizes
from switchroom.protocol.card import AgentCard
from switchroom.protocol.errors import (
    ExtendedAgentCardNotConfigured,
    MethodNotImplemented,
    PushNotificationNotSupported,
    TaskNotCancelable,
    TaskNotFound,
    Unavailable,
    UnsupportedOperation,
)
from switchroom.protocol.event import encode
from switchroom.protocol.lifecycle import is_terminal, with_history
from switchroom.protocol.methods import Scope
from switchroom.protocol.model import Json, TaskState, milliseconds
from switchroom.protocol.params import (
    CancelTaskRequest,
    CreateTaskPushNotificationConfigRequest,
    DeleteTaskPushNotificationConfigRequest,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTasksRequest,
    SendMessageRequest,
    SubscribeToTaskRequest,
    decode,
)
from switchroom.settings import Settings
from switchroom.store import Store
from switchroom.store.entry import Position
from switchroom.store.feed import Follower
from switchroom.store.read import TaskView
from switchroom.store.sealing import Sealed

__all__ = ["DistributedHandler"]

log = logging.getLogger(__name__)

_PAGE = 50
_INLINE = "configuration.taskPushNotificationConfig."
_LONGEST_ID = 100


class DistributedHandler:
    """Answers every method from the store, so that any gateway can answer any request."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        *,
        card: AgentCard,
        extended: ExtendedCard | None = None,
        policy: Policy | None = None,
    ) -> None:
        self._store = store
        self._settings = settings
        self._card = card
        self._extended = extended
        self._modes = InputModes(card)
        self._sizes = MessageSizes(settings)
        self._registration = Registration(settings)
        self.pressure = Pressure(store.queue, runs=settings.waiting_limit, age=settings.waiting_age)
        self._access = Access(store.tasks, policy)
        self._limits = CallLimits(store, settings)
        self._sends = Sends(
            store, settings, pressure=self.pressure, access=self._access, limits=self._limits
        )
        self._answers = Answers(store, settings)
        self._methods: dict[str, Callable[[Json | None, CallContext], Awaitable[Answer]]] = {
            "SendMessage": self.send_message,
            "SendStreamingMessage": self.send_streaming_message,
            "GetTask": self.get_task,
            "ListTasks": self.list_tasks,
            "CancelTask": self.cancel_task,
            "SubscribeToTask": self.subscribe_to_task,
            "CreateTaskPushNotificationConfig": self.create_push_config,
            "GetTaskPushNotificationConfig": self.get_push_config,
            "ListTaskPushNotificationConfigs": self.list_push_configs,
            "DeleteTaskPushNotificationConfig": self.delete_push_config,
            "GetExtendedAgentCard": self.get_extended_agent_card,
        }

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """What goes on beside the calls."""
        watches = [asyncio.create_task(each.watch()) for each in (self.pressure, self._limits)]
        try:
            yield
        finally:
            for watch in watches:
                watch.cancel()
            await asyncio.wait(watches)

    def drain(self) -> None:
        """This gateway goes away: blocking sends are answered with the Task as it is."""
        self._answers.drain()

    async def dispatch(self, method: str, params: Json | None, context: CallContext) -> Answer:
        answer = self._methods.get(method)
        if answer is None:
            raise MethodNotImplemented()
        return await answer(params, context)

    # -- sending

    async def send_message(self, params: Json | None, context: CallContext) -> Answer:
        request = await self._send_request(params, context)
        configuration = request.configuration
        at_once = bool(configuration and configuration.return_immediately)
        sent = await self._sends.accept("SendMessage", request, context, shown=at_once)
        history = configuration.history_length if configuration else None
        return await self._answers.answer(sent, history=history, wait=not at_once)

    async def send_streaming_message(self, params: Json | None, context: CallContext) -> Answer:
        request = await self._send_request(params, context)
        sent = await self._sends.accept("SendStreamingMessage", request, context, shown=False)
        history = request.configuration.history_length if request.configuration else None
        after = Position.parse(context.last_event_id)
        return self._answers.stream(sent, history=history, after=after)

    async def _send_request(self, params: Json | None, context: CallContext) -> SendMessageRequest:
        request = decode(SendMessageRequest, params)
        _check_id(request.message.task_id)
        self._sizes.check(request)
        self._modes.check(request.message)
        configuration = request.configuration
        if configuration and (config := configuration.task_push_notification_config):
            if not self._card.capabilities.push_notifications:
                raise PushNotificationNotSupported()
            require_scope("push:write", context)
            target = self._registration.check(config, at=_INLINE)
            await self._registration.resolve(target, at=_INLINE)
        return request

    # -- reading

    async def get_task(self, params: Json | None, context: CallContext) -> Answer:
        request = decode(GetTaskRequest, params)
        view = await self._task(request.id, context, "tasks:read")
        return encode(with_history(view.task, request.history_length))

    async def list_tasks(self, params: Json | None, context: CallContext) -> Answer:
        request = decode(ListTasksRequest, params)
        state = request.status if request.status != TaskState.UNSPECIFIED else None
        after = request.status_timestamp_after
        since = None if after is None else milliseconds(after)
        size = request.page_size or _PAGE
        lists, owner = self._store.lists, context.owner
        filters = (request.context_id, state or "", "" if since is None else str(since))
        cursor = (
            lists.cursor(request.page_token, owner=owner, filters=filters)
            if request.page_token
            else None
        )
        page = await lists.page(
            owner,
            context_id=request.context_id or None,
            state=state,
            since=since,
            size=size,
            after=cursor,
            artifacts=bool(request.include_artifacts),
        )
        tasks = []
        for task in page.tasks:
            shown = with_history(task, request.history_length)
            if request.include_artifacts:
                shown.setdefault("artifacts", [])
            else:
                shown.pop("artifacts", None)
            tasks.append(shown)
        token = lists.token(page.next, owner=owner, filters=filters) if page.next else ""
        return encode(
            {
                "tasks": tasks,
                "nextPageToken": token,
                "pageSize": size,
                "totalSize": page.total,
            }
        )

    async def _task(self, task_id: str, context: CallContext, action: Scope) -> TaskView:
        _check_id(task_id)
        context.notes.task_id = task_id
        return await self._access.view(task_id, context, action)

    # -- cancelling

    async def cancel_task(self, params: Json | None, context: CallContext) -> Answer:
        request = decode(CancelTaskRequest, params)
        tasks, task_id = self._store.tasks, request.id
        _check_id(task_id)
        context.notes.task_id = task_id
        follower = await self._store.feed.subscribe(task_id)
        try:
            owner = await self._access.owner(task_id, context, "tasks:cancel")
            found, state = await tasks.request_cancel(task_id, owner=owner)
            if found == "absent":
                raise TaskNotFound()
            if found == "terminal":
                raise _not_cancelable(state)
            view = (
                await tasks.end(task_id, TaskState.CANCELED, force=False)
                if found == "idle"
                else None
            )
            if view is None or not view.terminal:
                await self._until_ended(follower, task_id)
                view = await tasks.end(task_id, TaskState.CANCELED, force=True)
        finally:
            follower.close()
        if view is None:
            raise TaskNotFound()
        if view.state != TaskState.CANCELED:
            raise _not_cancelable(view.state)
        return encode(view.task)

    async def _until_ended(self, follower: Follower, task_id: str) -> None:
        """Gives the worker its time to end the task; whoever is deaf, dead or stopped loses it."""
        view = await self._store.tasks.read(task_id)
        if view is None or view.terminal:
            return
        entries = follower.follow(view.position)
        try:
            async with asyncio.timeout(self._settings.cancel_wait.total_seconds()):
                async for entry in entries:
                    if is_terminal(entry.state):
                        return
        except TimeoutError:
            pass
        finally:
            await entries.aclose()

    # -- following

    async def subscribe_to_task(self, params: Json | None, context: CallContext) -> Answer:
        request = decode(SubscribeToTaskRequest, params)
        _check_id(request.id)
        ticket = self._limits.for_stream(context)
        asked = self._limits.ask(ticket)
        follower = await self._store.feed.subscribe(request.id)
        try:
            ticket = await self._limits.have(ticket, asked, context)
            view = await self._task(request.id, context, "tasks:read")
            after = Position.parse(context.last_event_id)
            missed = None
            if after is not None:
                missed = await self._store.feed.since(request.id, after)
            if view.terminal and not missed and (missed == [] or context.last_event_id is None):
                raise UnsupportedOperation(
                    f"The task has ended ({view.state}); nothing will follow. Use GetTask"
                )
        except BaseException:
            follower.close()
            if ticket is not None:
                ticket.close()
            raise
        if missed is not None and after is not None:
            items = self._following(follower, after, view=None)
        else:
            items = self._following(follower, view.position, view=view)
        return ClosingStream(items, follower, ticket)

    async def _following(
        self, follower: Follower, after: Position, *, view: TaskView | None
    ) -> AsyncGenerator[StreamItem, None]:
        """The Task as it is (unless the client goes on where it was), then all after it."""
        entries = follower.follow(after, catch_up=view is None)
        try:
            if view is not None:
                yield StreamItem(encode({"task": view.task}), str(view.position))
                if view.terminal:
                    return
            else:
                yield StreamItem(b"")  # accepted, though there may be nothing to say for a while
            async for entry in entries:
                if item := item_of(entry):
                    yield item
                if is_terminal(entry.state):
                    return
        finally:
            await entries.aclose()
            follower.close()

    # -- push configs

    async def create_push_config(self, params: Json | None, context: CallContext) -> Answer:
        request = decode(CreateTaskPushNotificationConfigRequest, params)
        target = self._registration.check(request)
        await self._task(request.task_id, context, "push:write")
        await self._registration.resolve(target)
        config = {**request.to_dict(), "id": request.id or str(uuid.uuid4())}
        if not await self._store.pushes.put(
            request.task_id, config["id"], config, version=context.version
        ):
            raise too_many_configs(self._store.pushes.most)
        return config

    async def get_push_config(self, params: Json | None, context: CallContext) -> Answer:
        request = decode(GetTaskPushNotificationConfigRequest, params)
        await self._task(request.task_id, context, "tasks:read")
        with _readable(request.task_id):
            config = await self._store.pushes.get(request.task_id, request.id)
        if config is None:
            raise TaskNotFound("The task has no such push config")
        return _redacted(config)

    async def list_push_configs(self, params: Json | None, context: CallContext) -> Answer:
        request = decode(ListTaskPushNotificationConfigsRequest, params)
        await self._task(request.task_id, context, "tasks:read")
        with _readable(request.task_id):
            configs = await self._store.pushes.all(request.task_id)
        return {"configs": [_redacted(config) for config in configs], "nextPageToken": ""}

    async def delete_push_config(self, params: Json | None, context: CallContext) -> Answer:
        request = decode(DeleteTaskPushNotificationConfigRequest, params)
        await self._task(request.task_id, context, "push:write")
        await self._store.pushes.delete(request.task_id, request.id)
        return None

    # -- the card

    async def get_extended_agent_card(self, params: Json | None, context: CallContext) -> Answer:
        if self._extended is None:
            raise ExtendedAgentCardNotConfigured()
        return await self._extended.answer(context)


def _check_id(task_id: str) -> None:
    """Nothing as long as this is a task's id; so it need not become a key or a channel."""
    if len(task_id) > _LONGEST_ID:
        raise TaskNotFound()


def _not_cancelable(state: str) -> TaskNotCancelable:
    return TaskNotCancelable(f"The task has ended ({state}) and cannot be canceled")


@contextmanager
def _readable(task_id: str) -> Iterator[None]:
    """Whoever operates the server learns why a config cannot be read, its client that it cannot."""
    try:
        yield
    except Sealed as why:
        log.error("A push config of task %s cannot be read: %s.", task_id, why)
        raise Unavailable("A push config of this task cannot be read at the moment") from None


def _redacted(config: Json) -> Json:
    """A config without its credentials, which only the receiver needs."""
    if credentials := config.get("authentication"):
        return {**config, "authentication": {"scheme": credentials["scheme"]}}
    return config
