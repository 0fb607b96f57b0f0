"""The command line: `switchroom dev | gateway | worker | check | keys | webhooks`.

Promises one sentence for what a user can get wrong: exit 2 for a wrong agent, card, URL or setting,
exit 1 for a Redis or an address that cannot be had. It is the only place that reads the environment
and that knows all parts.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from datetime import timedelta

import click

import switchroom
from switchroom import key_commands, webhook_commands
from switchroom.agent import Agent, AgentError
from switchroom.command import Stopped, in_a_sentence, need_shared_redis, open_store
from switchroom.dev import any_redis, banner, make_card
from switchroom.gateway import server
from switchroom.gateway.app import create_app
from switchroom.gateway.auth.gate import Gate
from switchroom.gateway.auth.load import load_gate
from switchroom.gateway.card import CardSource, load_card
from switchroom.gateway.card_files import CardError
from switchroom.gateway.extended import load_extended
from switchroom.settings import Settings, SettingsError, without_password
from switchroom.store.connect import (
    address,
    check_server,
    connect,
    find_server,
)
from switchroom.worker.loader import load_agent
from switchroom.worker.main import serve as serve_worker

new_event_loop: Callable[[], asyncio.AbstractEventLoop]
try:
    import uvloop
except ImportError:  # Windows, PyPy
    new_event_loop = asyncio.new_event_loop
else:
    new_event_loop = uvloop.new_event_loop

__all__ = ["check", "dev", "gateway", "keys", "main", "webhooks", "worker"]

log = logging.getLogger("switchroom")
_FAREWELL = 2.0
"""Seconds that what an agent leaves behind may take to end, after the process has stopped."""


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(switchroom.__version__, prog_name="switchroom")
def main() -> None:
    """A distributed A2A server. Settings are read from SWITCHROOM_* variables."""


_agent = click.argument("agent", required=False)
_host = click.option("--host", help="Address to bind.  [default: 127.0.0.1]")
_port = click.option(
    "--port",
    type=click.IntRange(0, 65535),
    help="Port to bind; 0 is any.  [default: PORT, or 8000]",
)
_concurrency = click.option(
    "--concurrency", type=click.IntRange(1), help="Runs at once.  [default: 100]"
)


@main.command()
@_agent
@_host
@_port
def dev(agent: str | None, host: str | None, port: int | None) -> None:
    """Gateway and worker in one process, on any Redis it finds, or on none.

    AGENT is module, module:attr or path/file.py[:attr]; attr defaults to agent.
    """
    # On a developer's machine a stop is impatient; honcho, too, kills 5 s after the first one.
    environ = {"SWITCHROOM_DRAIN": "3", **os.environ}
    with in_a_sentence():
        settings = _settings(environ, agent=agent, host=host, port=port)
        _log_to_stderr(settings)
        _warn_of_unknown(environ)
        loaded = _load_agent(settings, given=agent)
        gate = load_gate(settings)
        source = _card(settings, lambda: make_card(settings, loaded, schemes=gate.schemes))
        _run(lambda stop: _dev(settings, loaded, gate, source, stop))


@main.command()
@_host
@_port
def gateway(host: str | None, port: int | None) -> None:
    """Answer clients. Any number may run on one Redis; SIGTERM stops it gently."""
    with in_a_sentence():
        settings = _settings(os.environ, host=host, port=port)
        _log_to_stderr(settings)
        _warn_of_unknown(os.environ)
        need_shared_redis(settings, "gateways")
        gate = load_gate(settings)
        source = _card(settings, lambda: load_card(settings.card, settings, schemes=gate.schemes))
        _run(lambda stop: _gateway(settings, gate, source, stop))


@main.command()
@_agent
@_concurrency
def worker(agent: str | None, concurrency: int | None) -> None:
    """Run the agent. Any number may run on one Redis; SIGTERM stops it gently.

    AGENT is module, module:attr or path/file.py[:attr]; attr defaults to agent. Without one, tasks
    are completed without output.
    """
    with in_a_sentence():
        settings = _settings(os.environ, agent=agent, concurrency=concurrency)
        _log_to_stderr(settings)
        _warn_of_unknown(os.environ)
        need_shared_redis(settings, "workers")
        loaded = _load_agent(settings, given=agent)
        if loaded is None:
            log.warning(
                "There is no agent, so every task is completed without output; name one: "
                "`switchroom worker my_agent.py`, or set SWITCHROOM_AGENT."
            )
        _run(lambda stop: _worker(settings, loaded, stop))


@main.command()
def check() -> None:
    """Say what is set, and whether agent, gate, card and Redis can be used."""
    with in_a_sentence():
        settings = _settings(os.environ)
    for line in _effective(settings):
        click.echo(line)
    for line in _unknown(os.environ):
        click.echo(f"unknown  {line}")
    codes = [
        _verdict("agent", lambda: _check_agent(settings)),
        _verdict("gate", lambda: _check_gate(settings)),
        _verdict("card", lambda: _check_card(settings)),
        _verdict("redis", lambda: _check_redis(settings)),
    ]
    raise SystemExit(max(codes))


@main.group()
@click.pass_context
def keys(context: click.Context) -> None:
    """Make, list and revoke API keys; SWITCHROOM_API_KEYS says where they are kept."""
    _for_commands(context)


keys.add_command(key_commands.create)
keys.add_command(key_commands.list_keys)
keys.add_command(key_commands.revoke)


@main.group()
@click.pass_context
def webhooks(context: click.Context) -> None:
    """See what is still to be delivered to webhooks, and set going again what was given up."""
    _for_commands(context)


webhooks.add_command(webhook_commands.list_webhooks)
webhooks.add_command(webhook_commands.redrive)


def _for_commands(context: click.Context) -> None:
    """What the commands of a group work with."""
    with in_a_sentence():
        context.obj = _settings(os.environ)
        _log_to_stderr(context.obj)
        _warn_of_unknown(os.environ)


_TEXTS = {
    "agent": ("AGENT", "module, module:attr or path/file.py"),
    "host": ("--host", "an address, such as 127.0.0.1"),
}


def _settings(environ: Mapping[str, str], **flags: str | int | None) -> Settings:
    """Settings from the environment, and above it what the command line says."""
    for name, flag in flags.items():
        if isinstance(flag, str) and not flag.strip():  # as a variable it would count as unset
            shown, wanted = _TEXTS[name]
            raise SettingsError(f"{shown} is {flag!r}; it should be {wanted}, or be left out.")
    said = {
        f"SWITCHROOM_{name.upper()}": str(flag) for name, flag in flags.items() if flag is not None
    }
    return Settings.from_env({**environ, **said})


def _log_to_stderr(settings: Settings) -> None:
    logging.basicConfig(
        level=settings.log_level.upper(),
        format="%(asctime)s %(levelname)-7s %(name)s: %(message)s",
        stream=sys.stderr,
    )
    if settings.log_level != "debug":
        # Its start and stop are ours to say; so is what an issuer of tokens is asked for.
        for name in ("uvicorn", "httpx2"):
            logging.getLogger(name).setLevel(logging.WARNING)


def _unknown(environ: Mapping[str, str]) -> Iterator[str]:
    for name, guess in Settings.unknown(environ).items():
        yield f"{name} is no setting" + (f"; did you mean {guess}?" if guess else "")


def _warn_of_unknown(environ: Mapping[str, str]) -> None:
    for line in _unknown(environ):
        log.warning("%s", line)


def _load_agent(settings: Settings, *, given: str | None = None) -> Agent | None:
    if settings.agent is None:
        return None
    try:
        return load_agent(settings.agent)
    except AgentError as error:
        name = "AGENT" if given else "SWITCHROOM_AGENT"
        raise AgentError(f"{name} is {settings.agent!r}: {error}") from (error.__cause__ or error)


def _run(job: Callable[[asyncio.Event], Awaitable[None]]) -> None:
    """Run `job` until it ends; the first signal sets its stop event, one more SIGINT cancels it."""

    async def until_signal() -> None:
        stop = asyncio.Event()
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None

        def on_signal(number: int) -> None:
            # Not a second SIGTERM: on Ctrl-C a process manager passes one on besides the SIGINT.
            if stop.is_set() and number == signal.SIGINT:
                task.cancel()
            stop.set()

        for number in (signal.SIGINT, signal.SIGTERM):
            try:
                loop.add_signal_handler(number, on_signal, number)
            except NotImplementedError:  # Windows
                signal.signal(number, lambda n, _: loop.call_soon_threadsafe(on_signal, n))
        code = 1
        try:
            await job(stop)
            code = 0
        except asyncio.CancelledError:
            code = 130
            raise
        finally:
            if stop.is_set():
                _leave_soon(code)

    try:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(until_signal())
    except asyncio.CancelledError:
        raise SystemExit(130) from None


def _leave_soon(code: int) -> None:
    """Ends a process that has stopped, should something of the agent's keep it: a loop that
    swallows its cancellation, a thread. All of ours is closed by now.
    """

    def leave() -> None:
        log.warning("something of the agent's does not end; leaving without it")
        sys.stdout.flush()
        os._exit(code)

    timer = threading.Timer(_FAREWELL, leave)
    timer.daemon = True
    timer.start()


async def _dev(
    settings: Settings, agent: Agent | None, gate: Gate, source: CardSource, stop: asyncio.Event
) -> None:
    with server.bind(settings.host, settings.port) as listener:
        async with any_redis(settings) as (url, kept):
            settings = settings.model_copy(update={"redis_url": url})
            async with open_store(settings) as store:
                app = create_app(settings, card=source, store=store, gate=gate)
                where = _base_url(settings, listener)
                click.echo(banner(settings, where, kept, is_open=gate.open))
                async with asyncio.TaskGroup() as group:
                    group.create_task(serve_worker(settings, agent, store=store, stop=stop))
                    group.create_task(server.serve(app, listener, drain=settings.drain, stop=stop))


async def _gateway(settings: Settings, gate: Gate, source: CardSource, stop: asyncio.Event) -> None:
    with server.bind(settings.host, settings.port) as listener:
        async with open_store(settings) as store:
            app = create_app(settings, card=source, store=store, gate=gate)
            where = _base_url(settings, listener)
            log.info("gateway at %s, tasks in %s", where, _where(settings))
            if gate.open:
                log.warning(
                    "ANYBODY who reaches this gateway may use it, and sees every task: no way to "
                    "authenticate is set. SWITCHROOM_API_KEYS=redis is the simplest one."
                )
            if source.card.capabilities.push_notifications and not settings.push_seal_keys:
                log.warning(
                    "CREDENTIALS of webhooks are kept in Redis as they are: set "
                    "SWITCHROOM_PUSH_SEAL_KEYS, and the same for workers."
                )
            await server.serve(app, listener, drain=settings.drain, stop=stop)
    log.info("gateway stopped")


async def _worker(settings: Settings, agent: Agent | None, stop: asyncio.Event) -> None:
    async with open_store(settings) as store:
        name = settings.agent or "no agent"
        log.info("worker of queue %s (%s), tasks in %s", settings.queue, name, _where(settings))
        await serve_worker(settings, agent, store=store, stop=stop)
    log.info("worker stopped")


async def _check_servers(settings: Settings) -> str:
    """See that each Redis can be used; says where they are."""
    urls = dict.fromkeys(filter(None, (settings.redis_url, settings.queue_url)))
    addresses = []
    for url in urls:
        redis = connect(url, timeout=settings.redis_timeout)
        try:
            await check_server(redis)
        finally:
            await redis.aclose()
        addresses.append(address(redis))
    return " and ".join(addresses)


def _where(settings: Settings) -> str:
    return without_password(settings.redis_url or "")


def _base_url(settings: Settings, listener: socket.socket) -> str:
    if settings.public_url:
        return settings.public_url.rstrip("/")
    host, port = listener.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _card(settings: Settings, load: Callable[[], CardSource]) -> CardSource:
    try:
        return load()
    except CardError as error:
        if settings.card is None:
            raise
        raise CardError(f"SWITCHROOM_CARD is {settings.card!r}: {error}") from error


def _effective(settings: Settings) -> Iterator[str]:
    for name in Settings.model_fields:
        value = getattr(settings, name)
        if name.endswith("_url") and value:
            value = without_password(value)
        elif isinstance(value, tuple):
            value = ", ".join(map(_plain, value)) or "-"
        else:
            value = _plain(value)
        origin = "" if name in settings.model_fields_set else "  (default)"
        yield f"SWITCHROOM_{name.upper():18} {value}{origin}"


def _plain(value: object) -> str:
    if isinstance(value, timedelta):
        return f"{value.total_seconds():g} s"
    return "-" if value is None else str(value)


def _verdict(name: str, job: Callable[[], str]) -> int:
    try:
        with in_a_sentence():
            click.echo(f"{name:6} ok: {job()}")
    except Stopped as fault:
        click.echo(f"{name:6} WRONG: {fault.message}")
        return fault.exit_code
    return 0


def _check_agent(settings: Settings) -> str:
    agent = _load_agent(settings)
    return settings.agent if agent and settings.agent else "none, tasks complete without output"


def _check_gate(settings: Settings) -> str:
    gate = load_gate(settings)
    asked = ", ".join(gate.schemes) or "callers are asked"
    return "open, ANYBODY may call" if gate.open else asked


def _check_card(settings: Settings) -> str:
    schemes = load_gate(settings).schemes
    source = _card(settings, lambda: load_card(settings.card, settings, schemes=schemes))
    load_extended(settings, source)
    card = source.card
    return f"{card.name} {card.version}" + ("" if settings.card else " (minimal; SWITCHROOM_CARD)")


def _check_redis(settings: Settings) -> str:
    if settings.redis_url is None:
        found = find_server()
        return f"none set; dev starts {found}" if found else "none set; dev runs on fakeredis"
    return asyncio.run(_check_servers(settings))
