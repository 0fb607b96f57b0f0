"""A task that cannot be run, nor ended in the usual way, ends alone: nobody tries it for ever."""

from __future__ import annotations

import logging
import uuid

from switchroom.protocol.model import TaskState
from switchroom.store import Store
from switchroom.store.commit import patiently
from switchroom.store.scripts import command
from switchroom.worker.notice import notice

__all__ = ["give_up"]

_log = logging.getLogger("switchroom.worker")


async def give_up(store: Store, task_id: str, why: BaseException) -> None:
    """Ends the task as FAILED, whoever has it. If what is stored does not allow even that, it is
    left alone until it expires.
    """
    reference = uuid.uuid4().hex[:12]
    _log.error("task %s: given up [%s]: %s", task_id, reference, why, exc_info=why)

    async def end() -> None:
        view = await store.tasks.read(task_id)
        if view is None:
            return
        message = notice(
            f"The task cannot be continued. Reference: {reference}",
            task_id=task_id,
            context_id=view.context_id,
        )
        await store.tasks.end(task_id, TaskState.FAILED, message=message, force=True)

    try:
        await patiently(end)
    except Exception:
        _log.exception("task %s: it cannot be ended, and is left until it expires", task_id)
        await patiently(lambda: store.commit(command("ZREM", store.keys.open, task_id)))
