"""A Redis that fails over: a master, its replicas, and three Sentinels that watch them.

Promises free ports, replicas in step with their master when it is handed out, and failovers within
two or three seconds; all processes end with the block.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import redis

__all__ = ["MASTER", "Member", "Watched", "watched_redis"]

MASTER = "mymaster"
_SENTINELS = 3
# Of a Sentinel's own pace; in milliseconds. As they are, a failover takes ten seconds and more.
_PACE = {
    "ask-period": 100,
    "election-timeout": 500,
    "info-period": 500,
    "ping-period": 400,  # of what is known of a replica, more than five of them is too old
    "publish-period": 200,
    "slave-reconf-timeout": 1_000,
    "min-link-reconnect-period": 500,
}
# An overburdened machine makes Sentinels late; that must not look like a dead master.
_DOWN_AFTER = 1_000


@dataclass(eq=False)
class Member:
    """One server, by its port. `process` is the one that runs there now."""

    port: int
    process: subprocess.Popen[bytes]

    def client(self) -> redis.Redis:
        return redis.Redis(port=self.port, socket_timeout=5)

    def role(self) -> str:
        """`master`, `slave`, or nothing where nobody answers."""
        with self.client() as client, contextlib.suppress(redis.RedisError):
            return str(client.info("replication")["role"])
        return ""


class Watched:
    """url: what SWITCHROOM_REDIS_URL is.  servers: all, the master too.  sentinels: their ports."""

    def __init__(self, folder: Path, *options: str, replicas: int) -> None:
        self._folder = folder
        self._options = options
        self._running = ExitStack()
        first, *others = _free_ports(1 + replicas + _SENTINELS)
        self.sentinels = others[replicas:]
        self.servers = [self._server(first)]
        self.servers += [self._server(port, follows=first) for port in others[:replicas]]
        _until(lambda: self._in_step(self.servers[0]), "the replicas are in step")
        for port in self.sentinels:
            self._sentinel(port, first)
        _until(self._settled, "the Sentinels know each other, and the replicas")
        places = ",".join(f"127.0.0.1:{port}" for port in self.sentinels)
        self.url = f"redis+sentinel://{places}/{MASTER}"

    # -- what tests do to it

    @property
    def master(self) -> Member:
        """The server that most Sentinels name."""
        named = [_named(port) for port in self.sentinels]
        port = max(named, key=named.count)
        return next(server for server in self.servers if server.port == port)

    def kill_master(self) -> Member:
        """SIGKILL; whom it hits. The Sentinels notice, and promote another."""
        victim = self.master
        victim.process.kill()
        victim.process.wait()
        return victim

    def demote_master(self) -> Member:
        """SENTINEL FAILOVER, to a master that is well; whom it hits."""
        victim = self.master
        with redis.Redis(port=self.sentinels[0], socket_timeout=5) as sentinel:
            sentinel.execute_command("SENTINEL", "FAILOVER", MASTER)
        return victim

    def settle(self) -> None:
        """Returns when whoever is down is up again, all follow one master and all are in step, so
        that it can fail over again.
        """
        for server in self.servers:
            if server.process.poll() is not None:
                server.process = self._server(server.port, follows=self.master.port).process
        _until(self._settled, "all servers follow one master that all Sentinels name")

    def close(self) -> None:
        self._running.close()

    # -- how

    def _settled(self) -> bool:
        named = {_named(port) for port in self.sentinels}
        if len(named) != 1 or not named <= {server.port for server in self.servers}:
            return False
        for port in self.sentinels:
            with redis.Redis(port=port, socket_timeout=5) as sentinel:
                state = sentinel.sentinel_master(MASTER)
                replicas = sentinel.sentinel_slaves(MASTER)
            well = [
                one
                for one in replicas
                if one["flags"] == "slave" and one["master-link-status"] == "ok"
            ]
            if state["flags"] != "master" or len(well) != len(self.servers) - 1:
                return False
            if state["num-other-sentinels"] != _SENTINELS - 1:
                return False
        return self._in_step(self.master)

    def _in_step(self, master: Member) -> bool:
        with master.client() as client, contextlib.suppress(redis.RedisError):
            state = client.info("replication")
            followers = [state[f"slave{n}"] for n in range(state["connected_slaves"])]
            return (
                state["role"] == "master"
                and len(followers) == len(self.servers) - 1
                and all(one["state"] == "online" and one["lag"] <= 1 for one in followers)
            )
        return False

    def _server(self, port: int, *, follows: int = 0) -> Member:
        options = ("--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1")
        if follows:
            options += ("--replicaof", f"127.0.0.1 {follows}")
        folder = self._folder / str(port)
        folder.mkdir(exist_ok=True)
        # fmt: off
        process = self._start(
            folder, "--port", str(port), "--save", "", "--appendonly", "no",
            "--dir", str(folder), *options, *self._options,
        )
        # fmt: on
        return Member(port, process)

    def _sentinel(self, port: int, master: int) -> None:
        folder = self._folder / str(port)
        folder.mkdir()
        config = folder / "sentinel.conf"
        config.write_text(
            f"port {port}\n"
            f"dir {folder}\n"
            f"sentinel monitor {MASTER} 127.0.0.1 {master} 2\n"
            f"sentinel down-after-milliseconds {MASTER} {_DOWN_AFTER}\n"
            f"sentinel failover-timeout {MASTER} 1000\n"
            f"sentinel parallel-syncs {MASTER} 2\n"
        )
        self._start(folder, str(config), "--sentinel")
        with redis.Redis(port=port, socket_timeout=5) as sentinel:
            _until(lambda: _answers(sentinel), "a Sentinel answers")
            for name, pace in _PACE.items():
                # Only what this version knows of.
                with contextlib.suppress(redis.ResponseError):
                    sentinel.execute_command("SENTINEL", "DEBUG", name, pace)

    def _start(self, folder: Path, *command: str) -> subprocess.Popen[bytes]:
        binary = shutil.which("redis-server") or shutil.which("valkey-server")
        assert binary, "no redis-server here"
        with (folder / "log").open("ab") as output:
            process = subprocess.Popen(
                [binary, *command],
                stdout=output,
                # So that a test may kill the one that it talks to, and none is left if it fails.
                start_new_session=True,
            )
        self._running.callback(_end, process)
        return process


def _end(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(process.pid, signal.SIGKILL)
    process.wait()


def _named(sentinel: int) -> int:
    with redis.Redis(port=sentinel, socket_timeout=5) as client:
        found = client.sentinel_get_master_addr_by_name(MASTER)
    return int(found[1]) if found else 0


def _answers(client: redis.Redis) -> bool:
    with contextlib.suppress(redis.RedisError):
        return bool(client.ping())
    return False


def _free_ports(count: int) -> Sequence[int]:
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [probe.getsockname()[1] for probe in probes]


def _until(fact: Callable[[], bool], what: str) -> None:
    """The synchronous `wait_until`: fixtures of a module start these servers."""
    end = time.monotonic() + 60
    while not fact():
        assert time.monotonic() < end, f"After 60 s it is still not so that {what}."
        time.sleep(0.02)


@contextmanager
def watched_redis(folder: Path, *options: str, replicas: int = 1) -> Iterator[Watched]:
    """A master, `replicas` and three Sentinels, which keep what they need in `folder`.

    options: of the servers, not of the Sentinels.
    """
    watched = Watched(folder, *options, replicas=replicas)
    try:
        yield watched
    finally:
        watched.close()
