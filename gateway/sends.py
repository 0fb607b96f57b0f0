"""Accepting a message: from the request to a turn of a task, and its job in the queue.

A claim fixes the task id, `accept` decides, the job is enqueued; each step may be repeated by
anyone. The run never depends on the request: a client may leave at any point.
"""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import dataclass, replace

from switchroom.gateway.access import Access
from switchroom.gateway.context import CallContext
from switchroom.gateway.limits import CallLimits, Ticket
from switchroom.gateway.opening import Opening, other_params
from switchroom.gateway.pressure import Pressure
from switchroom.protocol.errors import (
    InvalidParams,
    TaskNotFound,
    Unavailable,
    UnsupportedOperation,
)
from switchroom.protocol.event import encode
from switchroom.protocol.lifecycle import is_interrupted, is_terminal
from switchroom.protocol.model import Json
from switchroom.protocol.params import SendMessageRequest
from switchroom.settings import Settings
from switchroom.store import Store
from switchroom.store.claims import Claim, claim_for
from switchroom.store.entry import Entry, Position, fold_entries
from switchroom.store.feed import Follower
from switchroom.store.read import TaskView, read_call, view_of
from switchroom.store.tasks import Accepted, Send
from switchroom.store.turn import TurnInput

__all__ = ["Sends", "Sent", "gone_back", "too_many_configs"]


@dataclass(slots=True)
class Sent:
    """An accepted send.

    task: as JSON, folded up to `position`.  accepted: number of the entry that the message made.
    turn: the one that it opened.  shown: whether the task is visible.  repeated: the send had been
    accepted before.  said: the whole answer, if it was a Message.  ticket: what its caller's limits
    count.
    """

    owner: str
    task: Json
    position: Position
    accepted: int
    turn: int
    done: int
    shown: bool
    at: int
    follower: Follower
    repeated: bool = False
    said: bytes | None = None
    ticket: Ticket | None = None

    @property
    def over(self) -> bool:
        """Whether its turn has ended."""
        return self.done >= self.turn or is_terminal(self.task["status"]["state"])

    def begins_again(self, entry: Entry) -> bool:
        """Whether another writer goes on where one was at work: what the lost attempt left is not
        part of the task any more.
        """
        return entry.mark != self.position.mark and self.position.seq != self.accepted

    def fold(self, entry: Entry) -> None:
        task = fold_entries(
            self.task, [entry], task_id=self.task["id"], context_id=self.task["contextId"]
        )
        assert task is not None
        self.task, self.position = task, entry.position
        if entry.state and (is_terminal(entry.state) or is_interrupted(entry.state)):
            self.done = entry.turn


class Sends:
    """Accepts messages.

    pressure: what waits for a worker; beyond its limit new work is refused.  access: whose tasks
    a caller may speak to.  limits: how much it may ask for.
    """

    def __init__(
        self,
        store: Store,
        settings: Settings,
        *,
        pressure: Pressure,
        access: Access,
        limits: CallLimits,
    ) -> None:
        self._store = store
        self._settings = settings
        self._pressure = pressure
        self._access = access
        self._limits = limits
        self._claim_ttl = round(settings.claim_ttl.total_seconds() * 1000)

    async def accept(
        self, method: str, request: SendMessageRequest, context: CallContext, *, shown: bool
    ) -> Sent:
        """Accepts the message, or finds that it had been. `shown`: a new task is visible at once.

        Raises TaskNotFound, UnsupportedOperation, InvalidParams, RateLimited, Unavailable.
        """
        claim = claim_for(
            method,
            request.to_dict(),
            message_id=request.message.message_id,
            key=context.idempotency_key,
            idempotency=self._settings.idempotency,
        )
        follows_up = bool(request.message.task_id)
        if self._pressure.level >= 1:
            await self._shed(claim, context, follows_up=follows_up)
        context.notes.task_id = request.message.task_id
        opening = Opening(
            self._store,
            self._limits,
            context,
            claim=claim,
            ttl=self._claim_ttl,
            task_id=request.message.task_id or str(uuid.uuid4()),
            stream=method == "SendStreamingMessage",
        )
        try:
            if follows_up:
                sent = await self._follow_up(opening, request, context)
            else:
                sent = await self._first(opening, request, context, shown=shown)
        except BaseException as error:
            opening.failed(error)
            raise
        context.notes.task_id = sent.task["id"]
        sent.ticket = opening.ticket
        if sent.ticket is not None and sent.repeated:
            sent.ticket.unsent()
        return sent

    async def _shed(self, claim: Claim, context: CallContext, *, follows_up: bool) -> None:
        """Refuses, before anything is written, what is new: what has been begun is worth more to
        its client, and has room of its own, up to twice the limit.
        """
        if self._pressure.level < 2:
            if follows_up:
                return
            if claim.kept:
                (held,) = await self._store.reads(claim.read(self._store.keys, context.owner))
                if held is not None:
                    return
        raise self._pressure.refusal()

    async def _first(
        self,
        opening: Opening,
        request: SendMessageRequest,
        context: CallContext,
        *,
        shown: bool,
    ) -> Sent:
        store, owner, claim = self._store, context.owner, opening.claim
        context_id = request.message.context_id or str(uuid.uuid4())
        follower = await self._subscribe(opening.task_id, opening.ask())
        try:
            meant = opening.task_id
            await opening.granted()
            while True:
                task_id = opening.task_id
                if task_id != meant:
                    follower.close()
                    meant, follower = task_id, await store.feed.subscribe(task_id)
                asked = self._input(request, context, task_id, context_id, store.clock.now())
                task = asked.apply(None, task_id=task_id, context_id=context_id)
                send = Send(
                    task_id=task_id,
                    new=True,
                    owner=owner,
                    context_id=context_id,
                    digest=claim.digest,
                    renewable=claim.renewable,
                    event=encode({"task": task}),
                    input=asked.encode(),
                    at=asked.at,
                    shown=shown,
                    configs=self._configs(request, context, task_id),
                )
                accepted = await self._accept_and_enqueue(send)
                if accepted.outcome == "new":
                    at = accepted.position
                    return Sent(owner, task, at, at.seq, 1, 0, shown, asked.at, follower)
                if accepted.outcome == "known":
                    return await self._found(task_id, accepted, follower)
                # The claim's task has been used up: the same request makes a new one.
                await opening.replace(str(uuid.uuid4()))
        except BaseException:
            follower.close()
            raise

    async def _follow_up(
        self, opening: Opening, request: SendMessageRequest, context: CallContext
    ) -> Sent:
        store, task_id = self._store, request.message.task_id
        reading = read_call(store.keys, task_id, owner=self._access.reader(context))
        follower = await self._subscribe(task_id, opening.ask(reading))
        try:
            repeat, (read,) = await opening.granted()
            if opening.task_id != task_id:
                raise other_params()
            view = view_of(task_id, read)
            try:
                return await self._next_turn(
                    opening.claim, request, context, view, follower, repeat=repeat
                )
            except (TaskNotFound, UnsupportedOperation, InvalidParams):
                opening.give_up()
                raise
        except BaseException:
            follower.close()
            raise

    async def _next_turn(
        self,
        claim: Claim,
        request: SendMessageRequest,
        context: CallContext,
        view: TaskView | None,
        follower: Follower,
        *,
        repeat: bool,
    ) -> Sent:
        view = await self._access.check(view, context, "tasks:send")
        if request.message.context_id not in ("", view.context_id):
            raise _wrong_context()
        if not repeat and not is_interrupted(view.state):
            raise _busy(view.state)
        most = self._settings.history_limit
        if not repeat and len(view.task.get("history", ())) >= most:
            raise UnsupportedOperation(
                f"The task has {most} messages and takes no more; begin a new one"
            )
        # A status time of its own, even within one millisecond: lists tell states apart by it.
        task_id, at = view.task_id, max(self._store.clock.now(), view.ts + 1)
        asked = self._input(request, context, task_id, view.context_id, at)
        data, own = asked.encode(), view.owner == context.owner
        send = Send(
            task_id=task_id,
            new=False,
            owner=view.owner,
            context_id=view.context_id,
            # In the task of somebody else the same words are another send than the owner's.
            digest=claim.digest if own else f"{claim.digest}/{context.owner}",
            renewable=claim.renewable,
            event=data,
            input=data,
            at=at,
            shown=True,
            configs=self._configs(request, context, task_id),
        )
        accepted = await self._store.tasks.accept(send)
        match accepted.outcome:
            case "more" | "known":
                await self._store.queue.enqueue(task_id, accepted.turn)
            case "absent":
                raise TaskNotFound()
            case "context":
                raise _wrong_context()
            case "full":
                raise too_many_configs(self._store.pushes.most)
            case _:
                raise _busy(accepted.state)
        if accepted.outcome == "more" and accepted.position.seq == view.position.seq + 1:
            task = asked.apply(view.task, task_id=task_id, context_id=view.context_id)
            made, turn = accepted.position, accepted.turn
            return Sent(view.owner, task, made, made.seq, turn, turn - 1, True, at, follower)
        sent = await self._found(task_id, accepted, follower)
        return sent if accepted.outcome == "known" else replace(sent, repeated=False)

    async def _accept_and_enqueue(self, send: Send) -> Accepted:
        """One pipeline where the queue is on the tasks' Redis; a job too many ends at `begin`."""
        queue = self._store.queue
        if queue.with_store:
            return await self._store.tasks.accept(send, then=[queue.enqueueing(send.task_id, 1)])
        accepted = await self._store.tasks.accept(send)
        if accepted.outcome in ("new", "known"):
            await queue.enqueue(send.task_id, 1)
        return accepted

    async def _found(self, task_id: str, accepted: Accepted, follower: Follower) -> Sent:
        view = await self._store.tasks.read(task_id)
        if view is None:
            raise gone_back()
        return Sent(
            view.owner,
            view.task,
            view.position,
            accepted.position.seq,
            accepted.turn,
            view.done,
            view.shown,
            view.ts,
            follower,
            repeated=True,
            said=view.answer,
        )

    async def _subscribe(
        self, task_id: str, meanwhile: asyncio.Future[list[object]] | None
    ) -> Follower:
        """Subscribes while another answer is on its way."""
        try:
            return await self._store.feed.subscribe(task_id)
        except BaseException:
            if meanwhile is not None:
                meanwhile.add_done_callback(lambda told: told.cancelled() or told.exception())
            raise

    def _configs(
        self, request: SendMessageRequest, context: CallContext, task_id: str
    ) -> tuple[tuple[str, bytes], ...]:
        inline = request.configuration and request.configuration.task_push_notification_config
        if not inline:
            return ()
        config_id = inline.id or str(uuid.uuid4())
        config = {**inline.to_dict(), "id": config_id, "taskId": task_id}
        return ((config_id, self._store.pushes.seal(config, version=context.version)),)

    def _input(
        self,
        request: SendMessageRequest,
        context: CallContext,
        task_id: str,
        context_id: str,
        at: int,
    ) -> TurnInput:
        configuration = request.configuration
        return TurnInput(
            at,
            {**request.message.to_dict(), "taskId": task_id, "contextId": context_id},
            request.metadata,
            tuple(configuration.accepted_output_modes) if configuration else (),
            context.extensions,
        )


def too_many_configs(most: int) -> InvalidParams:
    """The error for a task that has as many push configs as it may."""
    return InvalidParams(f"A task has at most {most} push configs; delete one first")


def _wrong_context() -> InvalidParams:
    return InvalidParams(
        violations=[("message.contextId", "is not the context of the task in message.taskId")]
    )


def _busy(state: str) -> UnsupportedOperation:
    if is_terminal(state):
        return UnsupportedOperation(f"The task has ended ({state}) and takes no more messages")
    return UnsupportedOperation(
        f"The task is {state}; it takes a message again when it waits for input"
    )


def gone_back() -> Unavailable:
    """A task that had been accepted is not there: the store went back in time. Its run may write it
    anew; if not, the same send makes it.
    """
    return Unavailable("The task is not there at the moment; send again", retry_after=1)
