"""What LeasedWorker leans on inside arq: should a release change it, this says what."""

from __future__ import annotations

import inspect
import json
from datetime import timedelta

from arq import constants
from arq.connections import ArqRedis
from arq.jobs import deserialize_job_raw, serialize_job
from arq.worker import Worker, func

from switchroom.store import Store
from switchroom.store.leased import JobOver, LeasedJob, LeasedWorker
from switchroom.store.scripts import command


async def nothing(job: LeasedJob) -> JobOver:
    return JobOver()


async def on_renewed(held: object, gone: object) -> None:
    pass


def worker_of(store: Store) -> LeasedWorker:
    return store.queue.worker(
        nothing,
        subscriber=store.queue_subscriber,
        lease=timedelta(seconds=15),
        concurrency=7,
        on_renewed=on_renewed,
    )


def test_the_options_that_the_constructor_takes() -> None:
    known = inspect.signature(Worker.__init__).parameters
    given = """functions queue_name redis_pool handle_signals max_jobs keep_result job_serializer
        job_deserializer health_check_key health_check_interval log_results""".split()
    assert set(given) <= set(known)
    pool = inspect.signature(ArqRedis.__init__).parameters
    assert {"job_serializer", "job_deserializer", "default_queue_name"} <= set(pool)


def test_the_methods_that_are_replaced_are_there_to_be_replaced() -> None:
    for name in ("main", "close", "_poll_iteration", "record_health"):
        assert inspect.iscoroutinefunction(getattr(Worker, name)), name
    assert "record_health" not in vars(LeasedWorker)


async def test_the_attributes_of_a_worker(store: Store) -> None:
    worker = worker_of(store)
    assert worker.max_jobs == 7
    assert worker.allow_pick_jobs is True
    assert (worker.jobs_complete, worker.jobs_failed) == (0, 0)
    assert worker.ctx == {}
    assert isinstance(worker.pool, ArqRedis)
    assert worker.job_deserializer is json.loads
    assert inspect.iscoroutinefunction(worker.functions["run"].coroutine)
    assert worker.queue_name == store.keys.queue.queue


async def test_the_sign_of_health(store: Store) -> None:
    worker = worker_of(store)
    await worker.record_health()
    left, queued = await store.queue_commit(
        command("PTTL", worker.health_check_key), command("GET", worker.health_check_key)
    )
    assert 0 < left <= 11_000 and b"queued=0" in queued
    await worker.record_health()  # not again before its time
    await worker.close()
    (gone,) = await store.queue_commit(command("EXISTS", worker.health_check_key))
    assert gone == 0


def test_the_format_of_a_job() -> None:
    blob = serialize_job("run", ("t", 2), {}, None, 5, serializer=lambda v: json.dumps(v).encode())
    assert json.loads(blob) == {"t": None, "f": "run", "a": ["t", 2], "k": {}, "et": 5}
    function, args, kwargs, tries, enqueued = deserialize_job_raw(blob, deserializer=json.loads)
    assert (function, list(args), kwargs, tries, enqueued) == ("run", ["t", 2], {}, None, 5)


def test_the_layout_of_the_keys() -> None:
    assert constants.job_key_prefix == "arq:job:"
    assert constants.in_progress_key_prefix == "arq:in-progress:"


def test_a_function_keeps_its_name() -> None:
    async def run(ctx: dict[str, object]) -> None:
        pass

    assert func(run, name="other").name == "other"
