"""What the official Python client of 0.3 sees: run with the base URL, the folder of the gates and a
transport, it prints one JSON object, a member for each scenario, in the spelling of its models.

It runs in a venv of its own (`make` puts it there), since that SDK cannot live beside the present
one; so it imports nothing of the project.
"""

from __future__ import annotations

import asyncio
import base64
import json
import sys
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
from a2a.client import Client, ClientConfig, ClientFactory
from a2a.client.errors import A2AClientHTTPError, A2AClientJSONRPCError
from a2a.types import (
    FilePart,
    FileWithBytes,
    GetTaskPushNotificationConfigParams,
    Message,
    MessageSendConfiguration,
    Part,
    PushNotificationAuthenticationInfo,
    PushNotificationConfig,
    Role,
    TaskIdParams,
    TaskPushNotificationConfig,
    TaskQueryParams,
    TextPart,
    TransportProtocol,
)

Json = dict[str, Any]

URL, GATES, TRANSPORT = sys.argv[1], Path(sys.argv[2]), TransportProtocol(sys.argv[3])
BINARY = bytes(range(256))


def message(text: str, *parts: Part, **more: Any) -> Message:
    said = [Part(root=TextPart(text=text)), *parts]
    return Message(message_id=uuid.uuid4().hex, role=Role.user, parts=said, **more)


def plain(answer: Any) -> Json:
    dumped: Json = answer.model_dump(mode="json", exclude_none=True, by_alias=True)
    return dumped


async def events_of(source: AsyncIterator[Any]) -> AsyncIterator[Json]:
    """The events as they came, not as the client adds them up."""
    async for event in source:
        if isinstance(event, tuple):
            task, update = event
            yield plain(update or task)
        else:
            yield plain(event)


async def failure(job: Callable[[], Awaitable[Any]]) -> int | None:
    """The code of the error that `job` ends with: of JSON-RPC, or of HTTP."""
    try:
        await job()
    except A2AClientJSONRPCError as error:
        return error.error.code
    except A2AClientHTTPError as error:
        return error.status_code
    return None


class Scenarios:
    def __init__(self, client: Client, streaming: Client) -> None:
        self.client = client
        self.streaming = streaming

    async def _send(self, said: Message, **configuration: Any) -> Json:
        asked = MessageSendConfiguration(**configuration) if configuration else None
        source = self.client.send_message(said, configuration=asked)
        (answer,) = [event async for event in events_of(source)]
        return answer

    async def _task(self, text: str, **more: Any) -> Json:
        return await self._send(message(text, **more))

    async def _get(self, task_id: str, **more: Any) -> Json:
        return plain(await self.client.get_task(TaskQueryParams(id=task_id, **more)))

    async def _all(self, said: Message) -> list[Json]:
        return [event async for event in events_of(self.streaming.send_message(said))]

    async def blocking(self) -> Json:
        return await self._task("echo hello")

    async def immediate(self) -> Json:
        gate = uuid.uuid4().hex
        answer = await self._send(message(f"gate {gate} 1"), blocking=False)
        (GATES / gate).touch()
        return answer

    async def stream(self) -> list[Json]:
        return await self._all(message("stream 20 1"))

    async def resubscribe(self) -> list[Json]:
        gate = uuid.uuid4().hex
        task_id = ""
        async for event in events_of(self.streaming.send_message(message(f"gate {gate} 3"))):
            parts = event.get("artifact", {}).get("parts", ())
            if parts and parts[0]["text"] == "2 ":
                task_id = event["taskId"]
                break
        seen: list[Json] = []
        source = self.streaming.resubscribe(TaskIdParams(id=task_id))
        async for event in events_of(source):
            if not seen:
                (GATES / gate).touch()
            seen.append(event)
        return seen

    async def cancel(self) -> Json:
        task = await self._send(message(f"gate {uuid.uuid4().hex} 1"), blocking=False)
        ident = TaskIdParams(id=task["id"])
        canceled: Json = {}
        seen: list[Json] = []
        async for event in events_of(self.streaming.resubscribe(ident)):
            seen.append(event)
            if len(seen) == 1:
                canceled = plain(await self.client.cancel_task(ident))
        again = await failure(lambda: self.client.cancel_task(ident))
        return {"canceled": canceled, "events": seen, "again": again}

    async def turns(self) -> Json:
        asked = await self._task("ask")
        streamed = await self._all(message("ask", task_id=asked["id"]))
        answer = await self._task("echo this", task_id=asked["id"])
        ident = asked["id"]
        return {
            "asked": asked,
            "streamed": streamed,
            "answer": answer,
            "whole": await self._get(ident),
            "last": await self._get(ident, history_length=1),
            "zero": await self._get(ident, history_length=0),
        }

    async def reply(self) -> Json:
        return {
            "sent": await self._send(message("reply just this")),
            "streamed": await self._all(message("reply and this")),
        }

    async def failed(self) -> Json:
        return await self._task("fail")

    async def file(self) -> Json:
        content = FileWithBytes(bytes=base64.b64encode(BINARY).decode(), mime_type="image/png")
        part = Part(root=FilePart(file=content, metadata={"of": "the part"}))
        task = await self._send(message("echo a file", part))
        return await self._get(task["id"])

    async def errors(self) -> Json:
        ended = (await self._task("echo done"))["id"]
        absent = str(uuid.uuid4())

        async def resubscribe(task_id: str) -> None:
            async for _ in self.streaming.resubscribe(TaskIdParams(id=task_id)):
                pass

        client = self.client
        return {
            "getAbsent": await failure(lambda: client.get_task(TaskQueryParams(id=absent))),
            "cancelAbsent": await failure(lambda: client.cancel_task(TaskIdParams(id=absent))),
            "sendToAbsent": await failure(lambda: self._task("echo x", task_id=absent)),
            "streamToAbsent": await failure(lambda: self._all(message("x", task_id=absent))),
            "resubscribeToAbsent": await failure(lambda: resubscribe(absent)),
            "sendToEnded": await failure(lambda: self._task("echo x", task_id=ended)),
            "streamToEnded": await failure(lambda: self._all(message("x", task_id=ended))),
            "resubscribeToEnded": await failure(lambda: resubscribe(ended)),
            "cancelEnded": await failure(lambda: client.cancel_task(TaskIdParams(id=ended))),
        }

    async def push(self) -> Json:
        task_id = (await self._task("ask"))["id"]

        async def made(name: str) -> Json:
            config = PushNotificationConfig(
                id=name,
                url=f"https://hooks.test/{name}",
                token="t",
                authentication=PushNotificationAuthenticationInfo(schemes=["Bearer"]),
            )
            asked = TaskPushNotificationConfig(task_id=task_id, push_notification_config=config)
            return plain(await self.client.set_task_callback(asked))

        async def found(name: str) -> Json:
            asked = GetTaskPushNotificationConfigParams(
                id=task_id, push_notification_config_id=name
            )
            return plain(await self.client.get_task_callback(asked))

        return {
            "task": task_id,
            "made": [await made("a"), await made("b")],
            "found": await found("a"),
            "absent": await failure(lambda: found("c")),
        }


async def main() -> None:
    said: Json = {}
    async with httpx.AsyncClient(timeout=60) as http:

        async def client(*, streaming: bool) -> Client:
            config = ClientConfig(
                httpx_client=http, supported_transports=[TRANSPORT], streaming=streaming
            )
            return await ClientFactory.connect(URL, config)

        scenarios = Scenarios(await client(streaming=False), await client(streaming=True))
        said["transport"] = type(scenarios.client._transport).__name__
        for name, scenario in vars(Scenarios).items():
            if not name.startswith("_"):
                said[name] = await scenario(scenarios)
    sys.stdout.write(json.dumps(said))


asyncio.run(main())
