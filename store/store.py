"""The store of one deployment, as one process holds it: lanes, subscriber, and the parts over
them.
"""

from __future__ import annotations

import asyncio
import secrets
from datetime import timedelta
from typing import Self

from redis.asyncio import Redis
from redis.exceptions import RedisError

from switchroom.settings import Settings
from switchroom.store.api_keys import RedisKeys
from switchroom.store.commit import Clock, GroupCommit
from switchroom.store.connect import check_server, connect, in_one_sentence
from switchroom.store.deliveries import Deliveries
from switchroom.store.feed import Feed
from switchroom.store.growth import LogLimits
from switchroom.store.keys import Keys
from switchroom.store.limits import CallerLimits, Limits
from switchroom.store.lists import TaskLists
from switchroom.store.pushes import PushConfigs
from switchroom.store.queue import RunQueue
from switchroom.store.runs import RunStore
from switchroom.store.scripts import SCRIPTS
from switchroom.store.sealing import Sealer
from switchroom.store.subscriber import Subscriber
from switchroom.store.tasks import Lifetimes, TaskStore

__all__ = ["Store"]

_DEFAULT_URL = "redis://127.0.0.1:6379"


class Store:
    """Everything a gateway or a worker asks of Redis.

    tasks, lists, runs, pushes: the tasks.  deliveries: what webhooks are told of them.  feed:
    following them.  queue: runs that wait for a
    worker.  api_keys: who may call.  limits: what callers may use.  subscriber, queue_subscriber:
    pub/sub of the tasks' Redis and of the queue's.
    """

    def __init__(
        self,
        settings: Settings,
        redis: Redis,
        listening: Redis,
        queue: Redis,
        queue_listening: Redis,
    ) -> None:
        self._clients = list(dict.fromkeys((redis, listening, queue, queue_listening)))
        self._redis = redis
        self._settings = settings
        self.keys = Keys(settings.prefix, settings.queue)
        self.clock = Clock()
        patience = settings.redis_timeout.total_seconds()
        self.commit = GroupCommit(listening, clock=self.clock, patience=patience)
        self.reads = GroupCommit(listening, clock=self.clock, patience=patience)
        check = settings.position_check.total_seconds()
        self.subscriber = Subscriber(listening, silence=check, patience=patience)
        self.feed = Feed(
            self.subscriber,
            self.reads,
            keys=self.keys,
            limit=settings.client_buffer,
            check_every=check,
        )
        lifetimes = Lifetimes.of(
            retention=settings.retention,
            log_retention=settings.log_retention,
            interrupted_limit=settings.interrupted_limit,
            run_limit=settings.run_limit,
            claim_ttl=settings.claim_ttl,
            look=2 * settings.reconcile_every,
        )
        self.lists = TaskLists(
            self.commit, self.reads, keys=self.keys, clock=self.clock, longest=lifetimes.longest
        )
        self.limits = CallerLimits(
            self.commit,
            self.reads,
            Limits.of(settings),
            keys=self.keys,
            clock=self.clock,
            lives=lifetimes.open,
        )
        self.tasks = TaskStore(
            self.commit,
            self.reads,
            keys=self.keys,
            clock=self.clock,
            lists=self.lists,
            limits=self.limits,
            lifetimes=lifetimes,
            most_configs=settings.push_configs,
        )
        self.runs = RunStore(
            self.tasks,
            LogLimits.of(settings),
        )
        self.pushes = PushConfigs(
            self.commit,
            self.reads,
            keys=self.keys,
            sealer=Sealer([key.get_secret_value() for key in settings.push_seal_keys]),
            most=settings.push_configs,
        )
        self.deliveries = Deliveries(
            self.commit,
            self.reads,
            keys=self.keys,
            clock=self.clock,
            lease=round(2_000 * settings.push_timeout.total_seconds()),
            longest=lifetimes.longest,
        )
        self.api_keys = RedisKeys(self.commit, self.reads, self.subscriber, keys=self.keys)
        one = queue is redis
        self.queue_clock = self.clock if one else Clock()
        self.queue_commit = (
            self.commit
            if one
            else GroupCommit(queue_listening, clock=self.queue_clock, patience=patience)
        )
        self.queue_subscriber = (
            self.subscriber
            if one
            else Subscriber(queue_listening, silence=check, patience=patience)
        )
        self.leases = GroupCommit(queue_listening, clock=self.queue_clock, patience=patience)
        self.queue = RunQueue(
            queue,
            self.queue_commit,
            leases=self.leases,
            keys=self.keys.queue,
            clock=self.queue_clock,
            with_store=one,
        )

    @classmethod
    async def open(cls, settings: Settings) -> Self:
        """Connects, checks the server and loads what is needed.

        Raises `connect.ServerError` and `connect.UrlError`: one sentence each.
        """
        url = settings.redis_url or _DEFAULT_URL
        clients: list[Redis] = []
        store: Self | None = None
        try:
            for where in dict.fromkeys((url, settings.queue_url or url)):
                clients += (
                    connect(where, timeout=settings.redis_timeout),
                    connect(where, timeout=settings.redis_timeout, listening=True),
                )
                await check_server(clients[-2])
            store = cls(settings, *clients[:2], *clients[-2:])
            for redis in {clients[0], clients[-2]}:
                with in_one_sentence(redis):
                    for script in SCRIPTS:
                        await redis.script_load(script.body)
            with in_one_sentence(clients[0]):
                await store._learn()
            await store.subscriber.start()
            if store.queue_subscriber is not store.subscriber:
                await store.queue_subscriber.start()
            store.feed.start()
        except BaseException:
            # Also when whoever opens it is told to stop: nothing may be left open.
            if store is not None:
                await store.close()
            else:
                for client in clients:
                    await client.aclose()
            raise
        return store

    async def _learn(self) -> None:
        secret = secrets.token_bytes(32)
        await self._redis.set(self.keys.cursor_secret, secret, nx=True)
        self.lists.secret = await self._redis.get(self.keys.cursor_secret) or secret
        seconds, micros = await self._redis.time()
        self.clock.learn(seconds * 1000 + micros // 1000)

    async def ping(self, *, within: timedelta) -> bool:
        """Whether Redis answers in time, and what it publishes reaches us: no send does without."""
        try:
            async with asyncio.timeout(within.total_seconds()):
                return bool(await self._redis.ping()) and self.subscriber.connected
        except (RedisError, OSError, TimeoutError):
            return False

    async def close(self) -> None:
        await self.feed.close()
        await self.subscriber.close()
        if self.queue_subscriber is not self.subscriber:
            await self.queue_subscriber.close()
        for lane in dict.fromkeys((self.commit, self.reads, self.queue_commit, self.leases)):
            await lane.close()
        for client in self._clients:
            await client.aclose()
