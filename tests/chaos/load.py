"""The load of `make chaos`: visitors who want work done, give up on nothing and note it all.

Each draws its choices from a seed of its own. A visitor repeats a send until it is answered, and
comes back to a stream by its last id, on whichever gateway the dice name. What it may repeat
follows `docs/architecture.md`: the claim of a bare messageId ends with the turn or a cancel, so
whoever follows up or cancels sends an Idempotency-Key.
"""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from tests.chaos.client import Away, Client, Refused
from tests.chaos.records import Cancel, Event, Records, Segment, Send, View
from tests.chaos.said import INTERRUPTED, TERMINAL, said

__all__ = ["Visitor", "final_look"]

_ENDED, _NOT_CANCELABLE = -32004, -32002


class Visitor:
    """One client. calm: nothing is broken any more."""

    def __init__(self, client: Client, records: Records, seed: str, *, calm: bool = False) -> None:
        self._client = client
        self._records = records
        self._calm = calm
        self._dice = random.Random(seed)
        self._context = str(uuid.UUID(int=self._dice.getrandbits(128)))
        self._visits: dict[Callable[[], Awaitable[None]], int] = {
            self.waits: 5,
            self.streams: 6,
            self.sends_and_subscribes: 5,
            self.answers_questions: 4,
            self.cancels: 4,
            self.sends_twice: 3,
            self.chats: 2,
            self.reads_slowly: 1,
        }

    async def stay(self, leaves: asyncio.Event) -> None:
        """One visit after the other, until it is time to go; the last one is ended properly."""
        while not leaves.is_set():
            await self.visit()

    async def visit(self) -> None:
        """One visit, of a kind that the dice choose."""
        (visit,) = self._dice.choices([*self._visits], [*self._visits.values()])
        self._records.counts[f"visits: {visit.__name__}"] += 1
        await visit()

    # -- what visitors do

    async def waits(self) -> None:
        """A blocking send."""
        verb = self._dice.choices(("work", "again", "fail"), (8, 1, 1))[0]
        send = self._send(f"{verb} %s {self._size()}")
        await self._settle(send, await self._deliver(send))

    async def streams(self) -> None:
        """A streaming send; whoever is restless leaves now and then, and comes back."""
        send = self._send(f"{self._verb()} %s {self._size()}")
        restless = self._dice.choice((0.0, 0.0, 0.2))
        await self._watch(self._view(send), opening=send, restless=restless)
        send.settled = True

    async def sends_and_subscribes(self) -> None:
        """A send that is answered at once, and some who watch what comes of it."""
        send = self._send(f"{self._verb()} %s {self._size()}")
        await self._deliver(send, now=True)
        (task_id,) = send.tasks or ("",)
        if task_id:
            restless = self._dice.choice((0.0, 0.1))
            views = [self._view(send, task_id) for _ in range(self._dice.randint(1, 3))]
            await asyncio.gather(*(self._watch(view, restless=restless) for view in views))
            send.settled = True

    async def answers_questions(self) -> None:
        """A task that asks, is answered (mostly), and is watched through both turns."""
        send = self._send(f"ask %s {self._size()}", kept=True)
        watching: list[asyncio.Task[None]] = []
        if self._dice.random() < 0.5:
            await self._watch(self._view(send, to_end=False), opening=send)
        else:
            await self._deliver(send, now=True)
            (task_id,) = send.tasks or ("",)
            if not task_id:
                return
            send.left = self._dice.random() < 0.3
            if not send.left:
                whole = self._view(send, task_id)
                watching.append(asyncio.create_task(self._watch(whole)))
            await self._watch(self._view(send, task_id, to_end=False))
        send.settled = True
        (task_id,) = send.tasks or ("",)
        if send.left or not task_id or await self._state(task_id, send) not in INTERRUPTED:
            await asyncio.gather(*watching)
            return
        more = self._send(f"work {send.key} {self._size()}", turn=2, key=send.key)
        more.version = send.version
        if self._dice.random() < 0.5:
            view = self._view(more, task_id)
            await self._watch(view, opening=more, follows=task_id)
            more.settled = True
        else:
            await self._settle(more, await self._deliver(more, follows=task_id))
        await asyncio.gather(*watching)

    async def cancels(self) -> None:
        """A task that is cancelled, by up to three at once, while it is watched."""
        verb = self._dice.choice(("work", "work", "deaf"))
        send = self._send(f"{verb} %s {self._dice.randint(20, 60)} 100", kept=True)
        await self._deliver(send, now=True)
        (task_id,) = send.tasks or ("",)
        if not task_id:
            return
        watching = asyncio.create_task(self._watch(self._view(send, task_id)))
        await asyncio.sleep(self._dice.choice((0.0, self._dice.uniform(0.0, 2.5))))
        send.cancelled = True
        cancel = Cancel(send.key, task_id)
        self._records.cancels.append(cancel)
        await asyncio.gather(
            *(self._cancel(cancel, send) for _ in range(self._dice.choice((1, 1, 2, 3))))
        )
        await watching
        send.settled = True

    async def sends_twice(self) -> None:
        """The same send at all gateways at once, and once more when it is done."""
        send = self._send(f"work %s {self._size()}", kept=self._dice.random() < 0.5)
        answers = await asyncio.gather(
            *(self._deliver(send, at=at) for at in (0, 1, self._gateway()))
        )
        await self._settle(send, answers[0])
        await self._deliver(send)

    async def chats(self) -> None:
        """A Message answer; the same send again brings the same."""
        send = self._send("reply %s")
        streams = self._dice.random() < 0.5
        for _ in range(self._dice.choice((1, 2))):
            if streams:
                await self._watch(self._view(send), opening=send)
                send.settled = True
            else:
                await self._settle(send, await self._deliver(send))

    async def reads_slowly(self) -> None:
        """A stream that comes faster than it is read."""
        send = self._send("work %s 100 2 6000")
        await self._watch(self._view(send), opening=send, slow=True)
        send.settled = True

    # -- what visits are made of

    def _send(self, text: str, *, turn: int = 1, key: str = "", kept: bool = False) -> Send:
        key = key or f"{self._dice.getrandbits(48):012x}"
        version = self._dice.choices(("1.0", "0.3"), (4, 1))[0]
        send = Send(key, turn, text.replace("%s", key), version, kept=kept, calm=self._calm)
        self._records.sends.append(send)
        return send

    def _view(self, send: Send, task_id: str = "", *, to_end: bool = True) -> View:
        view = View(send.key, send.version, send.turn, to_end, task_id)
        self._records.views.append(view)
        return view

    def _verb(self) -> str:
        return self._dice.choices(("work", "again", "fail"), (8, 1, 1))[0]

    def _size(self) -> str:
        count, pause = self._dice.choice(((5, 20), (10, 50), (15, 100), (40, 60), (20, 150)))
        return f"{count} {pause}"

    def _gateway(self) -> int:
        return self._dice.getrandbits(1)

    async def _deliver(
        self, send: Send, *, now: bool = False, follows: str = "", at: int | None = None
    ) -> Any:
        """Sends until it is answered; the answer, or None if it was refused."""
        params = _params(send, self._context, now=now, follows=follows)
        headers = _kept(send)
        while True:
            gateway = self._gateway() if at is None else at
            self._records.counts["sends"] += 1
            try:
                answer = await self._client.ask(
                    "SendMessage", params, at=gateway, version=send.version, **headers
                )
            except Away:
                await self._pause()
                at = None
                self._records.counts["sends repeated"] += 1
                continue
            except Refused as refused:
                self._strange("", f"the send of {send.text!r} was refused: {refused}")
                return None
            self._noted(send, answer)
            return answer

    def _noted(self, send: Send, answer: Any) -> None:
        told = said(answer)
        if told.kind == "message":
            send.replies.add(told.text)
            send.settled = True
        else:
            send.tasks.add(told.task_id)
            if told.state in TERMINAL:
                send.ends.append(answer)

    async def _settle(self, send: Send, answer: Any) -> None:
        """Waits for the end of what was answered while it still ran, by asking or by watching."""
        if answer is None or send.settled:
            return
        told = said(answer)
        if told.state not in TERMINAL | INTERRUPTED:
            if self._dice.random() < 0.5:
                await self._watch(self._view(send, told.task_id))
            else:
                while await self._state(told.task_id, send) not in TERMINAL | INTERRUPTED:
                    await self._pause()
        send.settled = True

    async def _state(self, task_id: str, send: Send) -> str:
        while True:
            try:
                answer = await self._client.ask(
                    "GetTask", {"id": task_id}, at=self._gateway(), version=send.version
                )
                return said(answer).state
            except Away:
                await self._pause()
            except Refused as refused:
                self._strange(task_id, f"GetTask of an accepted task: {refused}")
                return "COMPLETED"

    async def _watch(
        self,
        view: View,
        *,
        opening: Send | None = None,
        follows: str = "",
        restless: float = 0.0,
        slow: bool = False,
    ) -> None:
        """Watches until all is seen.  opening: the send that begins it; without one, it subscribes.
        follows: the task of a follow-up.  restless: how likely it leaves after an event.
        """
        sent = False
        while True:
            after = view.events[-1].id if view.events else ""
            by_send = opening is not None and (
                not sent or not view.events or self._dice.random() < 0.5
            )
            segment = Segment(after, by_send)
            view.segments.append(segment)
            try:
                if opening is not None and by_send:
                    sent = True
                    method, headers = "SendStreamingMessage", _kept(opening)
                    params = _params(opening, self._context, follows=follows)
                    self._records.counts["sends"] += 1
                else:
                    method, params, headers = "SubscribeToTask", {"id": view.task_id}, {}
                self._records.counts["streams resumed" if after else "streams opened"] += 1
                async with self._client.stream(
                    method,
                    params,
                    at=self._gateway(),
                    version=view.version,
                    slow=slow,
                    Last_Event_ID=after,
                    **headers,
                ) as events:
                    async for event in events:
                        segment.events.append(event)
                        self._heard(view, event, opening)
                        if view.over and not by_send and said(event.data).state in INTERRUPTED:
                            break
                        if slow:
                            await asyncio.sleep(0.01)
                        if self._dice.random() < restless:
                            self._records.counts["streams left by the client"] += 1
                            break
            except Away:
                pass
            except Refused as refused:
                if refused.code != _ENDED or by_send:
                    self._strange(view.task_id, f"{method} was refused: {refused}")
                view.over = True
            if view.over:
                return
            await self._pause()

    def _heard(self, view: View, event: Event, opening: Send | None) -> None:
        told = said(event.data)
        if told.kind == "message":
            if opening is not None:
                opening.replies.add(told.text)
            view.over = True
            return
        view.task_id = view.task_id or told.task_id
        if opening is not None:
            opening.tasks.add(told.task_id)
        if told.state in TERMINAL or (told.state in INTERRUPTED and not view.to_end):
            view.over = True

    async def _cancel(self, cancel: Cancel, send: Send) -> None:
        while True:
            try:
                answer = await self._client.ask(
                    "CancelTask", {"id": cancel.task_id}, at=self._gateway(), version=send.version
                )
                cancel.answers.append(said(answer).state)
                return
            except Away:
                await self._pause()
            except Refused as refused:
                if refused.code != _NOT_CANCELABLE:
                    self._strange(cancel.task_id, f"CancelTask was refused: {refused}")
                cancel.answers.append(str(refused.code))
                return

    async def _pause(self) -> None:
        await asyncio.sleep(self._dice.uniform(0.05, 0.5))

    def _strange(self, task_id: str, what: str) -> None:
        self._records.strange.append((task_id, what))


async def final_look(client: Client, records: Records, task_ids: Iterable[str]) -> None:
    """Every task as each gateway tells it, and what the lists hold, when all is quiet."""
    for task_id in task_ids:
        for at in (0, 1):
            try:
                answer = await client.ask("GetTask", {"id": task_id}, at=at)
                records.looks.setdefault(task_id, []).append(answer["task"])
            except (Away, Refused) as error:
                records.strange.append((task_id, f"GetTask when all was quiet: {error}"))
    token = ""
    while True:
        params = {"pageSize": 100, "pageToken": token}
        try:
            page = await client.ask("ListTasks", params, at=len(records.listed) // 100)
        except (Away, Refused) as error:
            records.strange.append(("", f"ListTasks when all was quiet: {error}"))
            return
        records.listed += [task["id"] for task in page["tasks"]]
        token = page["nextPageToken"]
        if not token:
            return


def _kept(send: Send) -> dict[str, str]:
    return {"Idempotency_Key": f"{send.key}-{send.turn}"} if send.kept else {}


def _params(send: Send, context: str, *, now: bool = False, follows: str = "") -> dict[str, Any]:
    where = {"taskId": follows} if follows else {"contextId": context}
    message: dict[str, Any] = {"messageId": f"{send.key}-{send.turn}", **where}
    if send.version == "1.0":
        message |= {"role": "ROLE_USER", "parts": [{"text": send.text}]}
        configuration: dict[str, Any] = {"returnImmediately": True}
    else:
        part = {"kind": "text", "text": send.text}
        message |= {"kind": "message", "role": "user", "parts": [part]}
        configuration = {"blocking": False}
    return {"message": message, **({"configuration": configuration} if now else {})}
