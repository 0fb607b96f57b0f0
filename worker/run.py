"""One run, top to bottom: begin, drive the agent, append, let go.

A run ends for one of a few reasons, and each leaves the task in order: its agent ended or failed,
it was cancelled, it took too long, the worker drains, or the task is another's by now. Whatever the
agent does after that, nothing of it reaches the log.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Sequence
from contextlib import aclosing
from datetime import timedelta
from typing import Final

from switchroom.agent import Agent, Declared, Retry, Run
from switchroom.protocol.errors import InvalidAgentResponse
from switchroom.protocol.lifecycle import may_follow
from switchroom.protocol.model import Json, TaskState
from switchroom.settings import Settings
from switchroom.store import Store
from switchroom.store.attempt import Begun, RunEnded, Unreadable
from switchroom.store.commit import StoreUnavailable, patiently
from switchroom.store.growth import TooLarge
from switchroom.store.leased import JobOver, LeasedJob, LeasedWorker
from switchroom.store.runlog import RunLog
from switchroom.store.tasks import new_mark
from switchroom.worker.damage import give_up
from switchroom.worker.drive import drive
from switchroom.worker.notice import notice

__all__ = ["Runner"]

_log = logging.getLogger("switchroom.worker")
_NEWER: Final = 10.0
"""Seconds after which a turn that only a newer release can run is offered again."""


class Runner:
    """Runs turns with one agent; the handler of a worker's jobs.

    agent: None stands for state transitions only.
    """

    def __init__(self, store: Store, agent: Agent | None, settings: Settings) -> None:
        self._store = store
        self._agent = agent
        self._settings = settings
        self._declared = Declared.of(agent) if agent is not None else Declared()
        self.attempts = settings.attempts if self._declared.retry else 1
        self.run_limit = _less(self._declared.run_limit, settings.run_limit)
        self.inactivity_limit = _less(self._declared.inactivity_limit, settings.inactivity_limit)
        self.active: dict[str, _ActiveRun] = {}
        """Runs in progress, by job id. Empty when the worker has stopped."""
        self.deaf: set[asyncio.Task[None]] = set()
        """Agents that were cancelled and do not end; they cannot write any more."""

    async def __call__(self, job: LeasedJob) -> JobOver:
        try:
            begun = await self._begin(job)
            if isinstance(begun, JobOver):
                return begun
            run = _ActiveRun(self, job, begun)
        except Unreadable as damage:
            await give_up(self._store, job.task_id, damage)
            return JobOver()
        self.active[job.job_id] = run
        try:
            return await run.go()
        except Exception as error:
            if isinstance(error, RunEnded) and error.why != "broken":
                return JobOver()  # the task is not ours any more
            if begun.attempt >= self.attempts:
                await give_up(self._store, job.task_id, error)
                return JobOver()
            _log.exception("task %s: attempt %d broke off", job.task_id, begun.attempt)
            return JobOver(again=1.0)  # the store, or we, failed it; another attempt may not
        finally:
            del self.active[job.job_id]

    async def _begin(self, job: LeasedJob) -> Begun | JobOver:
        mark, runs = new_mark(), self._store.runs

        async def begin() -> Begun:
            # In the clock of the tasks' Redis: the queue's may be another.
            deadline = self._store.clock.now() + round(job.left * 1000)
            return await runs.begin(job.task_id, job.turn, run=mark, deadline=deadline, new=job.new)

        try:
            if job.begun is not None:
                mark, answer = job.begun
                return runs.begun(job.task_id, job.turn, run=mark, answer=answer)
            return await patiently(begin)
        except RunEnded as ended:
            _log.debug("task %s turn %d: %s", job.task_id, job.turn, ended.why)
            if ended.why == "newer":
                _log.warning("task %s: left for a worker of a newer release", job.task_id)
            # `late`: whoever holds the lease now runs it; if nobody does, it is still due.
            return JobOver(again={"late": 0.0, "newer": _NEWER}.get(ended.why))

    # -- what is asked of running runs

    def hear(self, payload: bytes) -> None:
        """A message on the control channel: `cancel <task id>` or `fence <task id>`."""
        word, _, task_id = payload.decode().partition(" ")
        for run in tuple(self.active.values()):
            if run.task_id == task_id:
                run.stop("cancelled" if word == "cancel" else "fenced")

    def release_all(self) -> None:
        """The drain time is over: what still runs goes back to the queue."""
        for run in tuple(self.active.values()):
            run.stop("drained")

    async def renewed(
        self, worker: LeasedWorker, held: Sequence[LeasedJob], gone: Sequence[LeasedJob]
    ) -> None:
        """After a renewal: a lost message on the control channel costs one renewal, not the run; so
        does a store, or a queue, that has lost what it knew.
        """
        runs = [run for job in (*held, *gone) if (run := self.active.get(job.job_id)) is not None]
        asked = [(run, run.log.known, self._store.reads.ask(run.log.look())) for run in runs]
        forgotten, back = set(gone), list[LeasedJob]()
        for run, known, answered in asked:
            try:
                ((fence, mark, n, cancel),) = await answered
            except StoreUnavailable:
                continue
            except Exception:
                _log.exception("task %s: what is stored of it cannot be read", run.task_id)
                continue
            run.log.compare(known, fence, mark, n)
            if run.log.stopped is not None:
                continue
            if cancel is not None:
                run.stop("cancelled")
            if run.job in forgotten:
                back.append(run.job)
        await asyncio.gather(*map(worker.put_back, back))


class _ActiveRun:
    def __init__(self, runner: Runner, job: LeasedJob, begun: Begun) -> None:
        self._runner = runner
        self._settings = runner._settings
        self._begun = begun
        self.job = job
        self.task_id = begun.task_id
        self.log: RunLog = runner._store.runs.open(begun, self.stop)
        self._why: str | None = None
        self._signal: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._closed = False
        self._heard = asyncio.get_running_loop().time()

    def stop(self, why: str) -> None:
        """Ends the run; the first reason counts."""
        if self._why is None:
            self._why = why
            self._poke()

    async def go(self) -> JobOver:
        """Raises RunEnded when the store refuses the run, or fails it (`broken`)."""
        begun, limit = self._begun, self._runner.attempts
        if begun.cancel:
            return await self._end(TaskState.CANCELED)
        if begun.attempt > limit:
            lost = begun.attempt - 1
            how = "once, and its worker lost"
            if lost > 1:
                how = f"{lost} times, and its worker lost each time"
            return await self._end(TaskState.FAILED, f"The task was begun {how}.")
        if begun.attempt > 1:
            await self._status(
                TaskState.WORKING, f"Attempt {begun.attempt} of {limit}: begun again."
            )
        elif begun.shown:
            await self._status(TaskState.WORKING)
        agent = asyncio.get_running_loop().create_task(self._drive())
        try:
            why = await self._watch(agent)
        except asyncio.CancelledError:
            # The lease is lost. Whatever the agent still does, it writes nothing more.
            await self._quiet(agent)
            await self._release(counted=False)
            raise
        return await self._settle(agent, why)

    # -- the agent

    async def _drive(self) -> None:
        begun, given = self._begun, self._begun.input
        run = Run(
            begun.task(),
            given.message,
            turn=begun.turn,
            attempt=begun.attempt,
            metadata=given.metadata,
            accepted_output_modes=given.accepted_output_modes,
            extensions=given.extensions,
        )
        try:
            async with aclosing(drive(self._runner._agent, run)) as events:
                async for event in events:
                    if self._closed:
                        return
                    self._heard = asyncio.get_running_loop().time()
                    await self._write(event)
        except (SystemExit, KeyboardInterrupt, GeneratorExit) as left:
            # `sys.exit` in some library of the agent's: asyncio would end the whole worker with it.
            raise RuntimeError(f"the agent raised {type(left).__name__}") from left

    async def _write(self, event: Json) -> None:
        if (message := event.get("message")) is not None:
            if await self.log.answer(event):
                return
            # Somebody has been shown a task meanwhile, so the answer is that task's.
            await self._working()
            await self.log.write(
                self._event(TaskState.COMPLETED, {**message, "taskId": self.task_id})
            )
            return
        status = event.get("statusUpdate", {}).get("status")
        if status is None or not may_follow(self.log.state, status["state"]):
            await self._working()
        await self.log.write(event)

    async def _working(self) -> None:
        if self.log.state == TaskState.SUBMITTED:
            await self._status(TaskState.WORKING)

    async def _watch(self, agent: asyncio.Task[None]) -> str | None:
        """Waits for the agent's end, or the reason to end it. None: the agent ended by itself."""
        loop, silence = asyncio.get_running_loop(), self._runner.inactivity_limit
        agent.add_done_callback(lambda _: self._poke())
        timers = [
            loop.call_later(self._runner.run_limit, self.stop, "overrun"),
            loop.call_at(self._heard + silence, self._poke),
        ]
        show_at = loop.time() + self._settings.show_after.total_seconds()
        if not self.log.shown:
            timers.append(loop.call_at(show_at, self._poke))
        try:
            while True:
                # Made before the facts are looked at: what changes from here on wakes us.
                self._signal = loop.create_future()
                if agent.done():
                    return None
                if self._why is not None:
                    return self._why
                if not self.log.shown and loop.time() >= show_at:
                    try:
                        await self._working()
                    except RunEnded as ended:
                        return ended.why
                quiet_until = self._heard + silence
                if loop.time() >= quiet_until:
                    return "silent"
                if timers[1].when() <= loop.time() + 0.01:  # it has rung, or might as well have
                    timers[1] = loop.call_at(quiet_until, self._poke)
                await self._signal
        finally:
            for timer in timers:
                timer.cancel()

    def _poke(self) -> None:
        if not self._signal.done():
            self._signal.set_result(None)

    async def _quiet(self, agent: asyncio.Task[None]) -> None:
        """Cancels the agent and gives it its grace; then it is left alone, and cannot write."""
        agent.cancel()
        try:
            await asyncio.wait([agent], timeout=self._settings.cancel_grace.total_seconds())
        finally:  # also when the lease is lost meanwhile
            self._closed = True
            agent.add_done_callback(lambda late: late.cancelled() or late.exception())
            if not agent.done():
                _log.warning("task %s: the agent does not end after it was cancelled", self.task_id)
                self._runner.deaf.add(agent)
                agent.add_done_callback(self._runner.deaf.discard)

    # -- the end

    async def _settle(self, agent: asyncio.Task[None], why: str | None) -> JobOver:
        if why is None:
            return await self._after(agent)
        await self._quiet(agent)
        if self.log.ended:  # it got there first
            await self.log.flush()
            return JobOver()
        match why:
            case "cancelled":
                return await self._end(TaskState.CANCELED)
            case "overrun":
                return await self._end(TaskState.FAILED, "The run took longer than it may.")
            case "silent":
                return await self._end(TaskState.FAILED, "The agent was silent for too long.")
            case "drained":
                await self._release(counted=False)
                return JobOver(again=0.0)
            case _:  # the store refuses this run
                await self.log.close()
                raise RunEnded(why)

    async def _after(self, agent: asyncio.Task[None]) -> JobOver:
        """The agent has ended by itself: with its last event, or with an exception."""
        try:
            agent.result()
        except RunEnded:
            raise
        except Retry as asked:
            return await self._again(asked)
        except InvalidAgentResponse as wrong:
            return await self._fail(wrong, "The agent's answer cannot be used.")
        except TooLarge as wrong:
            return await self._fail(wrong, "The agent's answer is larger than it may be.")
        except (Exception, asyncio.CancelledError) as error:
            return await self._fail(error, "The agent failed.")
        await self.log.flush()
        return JobOver()

    async def _again(self, asked: Retry) -> JobOver:
        attempt = self._begun.attempt
        if attempt >= self._runner.attempts:
            return await self._fail(asked, f"The agent gave up after {attempt} attempts.")
        delays = self._settings.retry_delays
        delay = delays[min(attempt, len(delays)) - 1].total_seconds()
        _log.info("task %s: attempt %d is to be repeated in %g s", self.task_id, attempt, delay)
        await self._release(counted=True)
        return JobOver(again=delay)

    async def _fail(self, error: BaseException, text: str) -> JobOver:
        if self.log.ended:
            _log.warning(
                "task %s: the agent failed after its last event", self.task_id, exc_info=error
            )
            await self.log.flush()
            return JobOver()
        reference, named = uuid.uuid4().hex[:12], type(error).__name__
        _log.error(
            *("task %s: run failed [%s]: %s: %s", self.task_id, reference, named, error),
            exc_info=error,
        )
        return await self._end(TaskState.FAILED, f"{text} Reference: {reference}")

    async def _end(self, state: TaskState, text: str | None = None) -> JobOver:
        await self._status(state, text)
        await self.log.flush()
        return JobOver()

    async def _status(self, state: TaskState, text: str | None = None) -> None:
        message = None
        if text is not None:
            message = notice(text, task_id=self.task_id, context_id=self._begun.context_id)
        await self.log.write(self._event(state, message))

    def _event(self, state: TaskState, message: Json | None) -> Json:
        status: Json = {"state": state}
        if message is not None:
            status["message"] = message
        return {
            "statusUpdate": {
                "taskId": self.task_id,
                "contextId": self._begun.context_id,
                "status": status,
            }
        }

    async def _release(self, *, counted: bool) -> None:
        await patiently(lambda: self.log.release(counted=counted))


def _less(asked: timedelta | None, limit: timedelta) -> float:
    """What an agent asks for, where it is less than it may take; in seconds."""
    return min(asked or limit, limit).total_seconds()
