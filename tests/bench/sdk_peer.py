"""The peer to compare with: the official SDK's server in memory, with `examples/scripted.py`'s
contract as its agent.

    OTEL_INSTRUMENTATION_A2A_SDK_ENABLED=false python -m tests.bench.sdk_peer PORT

Its friendliest settings: telemetry off, no access log, uvloop and httptools.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time

import uvicorn
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import (
    add_a2a_routes_to_fastapi,
    create_agent_card_routes,
    create_jsonrpc_routes,
)
from a2a.server.tasks.inmemory_task_store import InMemoryTaskStore
from a2a.server.tasks.task_updater import TaskUpdater
from a2a.types import (
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    AgentSkill,
    Part,
    Task,
    TaskState,
    TaskStatus,
)
from fastapi import FastAPI

__all__ = ["main"]


class Scripted(AgentExecutor):
    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.task_id and context.context_id and context.message
        if context.current_task is None:
            task = Task(
                id=context.task_id,
                context_id=context.context_id,
                status=TaskStatus(state=TaskState.TASK_STATE_SUBMITTED),
                history=[context.message],
            )
            await event_queue.enqueue_event(task)
        updater = TaskUpdater(event_queue, context.task_id, context.context_id)
        text = context.get_user_input()
        verb, _, rest = text.partition(" ")
        match verb:
            case "stream":
                await updater.start_work()
                await self._stream(updater, *map(float, rest.split()))
            case "sleep":
                await updater.start_work()
                await asyncio.sleep(float(rest) / 1000)
                await updater.complete()
            case "fail":
                await updater.failed(updater.new_agent_message([Part(text="Failed, as asked.")]))
            case "ask":
                await updater.requires_input(updater.new_agent_message([Part(text="What more?")]))
            case _:
                answer = rest if verb == "echo" else text
                await updater.add_artifact([Part(text=answer)], name="echo", last_chunk=True)
                await updater.complete()

    async def _stream(
        self, updater: TaskUpdater, count: float, pause: float = 0, wait: float = 0
    ) -> None:
        if wait:
            await asyncio.sleep(wait / 1000)
        for number in range(int(count)):
            if number and pause:
                await asyncio.sleep(pause / 1000)
            await updater.add_artifact(
                [Part(text=f"{number} {time.time_ns()} chunk")],
                artifact_id="stream",
                append=number > 0,
                last_chunk=number == count - 1,
            )
        await updater.complete()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.task_id and context.context_id
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


def main(port: int) -> None:
    logging.disable(logging.WARNING)
    card = AgentCard(
        name="Scripted",
        description="Does what the message says.",
        version="1.0.0",
        capabilities=AgentCapabilities(streaming=True, push_notifications=False),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[AgentSkill(id="test", name="Test", description="Test", tags=["test"])],
        supported_interfaces=[
            AgentInterface(
                url=f"http://127.0.0.1:{port}/", protocol_binding="JSONRPC", protocol_version="1.0"
            )
        ],
    )
    handler = DefaultRequestHandler(
        agent_executor=Scripted(), task_store=InMemoryTaskStore(), agent_card=card
    )
    app = FastAPI()
    add_a2a_routes_to_fastapi(
        app,
        agent_card_routes=create_agent_card_routes(agent_card=card),
        jsonrpc_routes=create_jsonrpc_routes(request_handler=handler, rpc_url="/"),
    )
    uvicorn.run(
        app,
        host="127.0.0.1",
        port=port,
        loop="uvloop",
        http="httptools",
        access_log=False,
        log_level="error",
        backlog=4096,
    )


if __name__ == "__main__":
    main(int(sys.argv[1]))
