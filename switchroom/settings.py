"""Settings: every knob, its default and its reason.

Promises one frozen, validated object; relies on `redis_url` for the forms of those. It is read from
the environment once, in `cli.py`, and passed down: nothing else reads it. Each field is the
variable `SWITCHROOM_<FIELD>`; durations are given in seconds, sizes in bytes; an empty variable is
unset.
"""

from __future__ import annotations

import difflib
import math
import re
from base64 import urlsafe_b64decode
from collections.abc import Mapping
from datetime import timedelta
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Annotated, Any, Literal, Self, TypeAlias
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    model_validator,
)
from pydantic_core import PydanticCustomError

from switchroom.redis_url import WrongUrl, checked, is_host

__all__ = ["IssuerUrl", "Network", "Settings", "SettingsError", "without_password"]

_PREFIX = "SWITCHROOM_"
_SHOWN_URLS = ("public_url", "jwt_issuer", "jwt_jwks_url")
_SERVICE_ADDRESSES = ("tcp://", "udp://", "sctp://")
_SERVICE_VARIABLE = re.compile(r"_SERVICE_(HOST|PORT(_\w+)?)$|_PORT_\d+_\w+$")


Network: TypeAlias = IPv4Network | IPv6Network


class SettingsError(Exception):
    """A setting is wrong; the text is one sentence: the setting, what was found and expected."""


def _duration(value: Any) -> timedelta | None:
    if isinstance(value, timedelta):
        return value
    try:
        return timedelta(seconds=math.nan if isinstance(value, bool) else float(value))
    except (TypeError, ValueError, OverflowError):
        return None


def _seconds(value: Any) -> timedelta:
    duration = _duration(value)
    if duration is None or duration <= timedelta(0):
        raise PydanticCustomError("seconds", "a number of seconds above 0, such as 15")
    return duration


def _seconds_or_none(value: Any) -> timedelta:
    duration = _duration(value)
    if duration is None or duration < timedelta(0):
        raise PydanticCustomError("seconds", "a number of seconds, such as 15, or 0 for no limit")
    return duration


def _listed(value: Any) -> Any:
    """What an iterable holds, or a text between its commas."""
    return value.split(",") if isinstance(value, str) else value


def _hosts(value: Any) -> tuple[str, ...]:
    hosts = tuple(host for part in _listed(value) if (host := str(part).strip().lower()))
    for host in hosts:
        if not re.fullmatch(r"(\*\.)?[a-z0-9_.-]+|\[[0-9a-f:.]+\]", host):
            raise PydanticCustomError(
                "hosts", "host names without a port, such as example.com or *.example.com"
            )
    return hosts


def _origins(value: Any) -> tuple[str, ...]:
    origins = tuple(origin for part in _listed(value) if (origin := str(part).strip()))
    for origin in origins:
        if origin != "*" and not re.fullmatch(r"https?://[A-Za-z0-9_.\[\]:-]+", origin):
            raise PydanticCustomError(
                "origins", "origins without a path, such as https://app.example.com, or *"
            )
    return origins


def _list_of_seconds(value: Any) -> tuple[timedelta, ...]:
    return tuple(_seconds(part) for part in _listed(value))


def _versions(value: Any) -> tuple[str, ...]:
    versions = tuple(sorted({str(part).strip() for part in _listed(value)}))
    if versions not in (("1.0",), ("0.3", "1.0")):
        raise PydanticCustomError("versions", "1.0,0.3 or 1.0")
    return versions


def _ports(value: Any) -> tuple[int, ...]:
    if value == "any":
        return ()
    try:
        ports = {int(part) for part in _listed(value)}
    except (TypeError, ValueError):
        ports = {0}
    if not all(0 < port < 65536 for port in ports):
        raise PydanticCustomError("ports", "ports, comma-separated, such as 443,8443, or any")
    return tuple(sorted(ports))


def _places(value: Any) -> tuple[Network | str, ...]:
    places: list[Network | str] = []
    for part in _listed(value):
        try:
            places += _networks((part,))
        except PydanticCustomError:
            places += _hosts((part,))
    return tuple(places)


def _secrets(value: Any) -> tuple[SecretStr, ...]:
    keys = tuple(
        part if isinstance(part, SecretStr) else SecretStr(text)
        for part in _listed(value)
        if (text := str(part).strip())
    )
    for key in keys:
        try:
            good = len(urlsafe_b64decode(key.get_secret_value())) == 32
        except ValueError:
            good = False
        if not good:
            raise PydanticCustomError("secrets", "keys of 32 bytes in url-safe base64")
    return keys


def _push_events(value: Any) -> tuple[str, ...]:
    events = tuple(sorted({str(part).strip() for part in _listed(value)}))
    if not events or not set(events) <= {"artifact", "message", "status", "task"}:
        raise PydanticCustomError("events", "some of task,status,artifact,message")
    return events


def _networks(value: Any) -> tuple[Network, ...]:
    try:
        return tuple(
            ip_network(part.strip() if isinstance(part, str) else part) for part in _listed(value)
        )
    except (TypeError, ValueError):
        raise PydanticCustomError(
            "networks", "addresses or networks, comma-separated, such as 10.0.0.0/8,::1"
        ) from None


def _paths(value: Any) -> tuple[str, ...]:
    paths = tuple(path for part in _listed(value) if (path := str(part).strip()))
    if any("\n" in path or path.startswith("-----") for path in paths):
        raise PydanticCustomError("paths", "names of PEM files, not what is in them")
    return paths


def _api_keys(place: str) -> str:
    # Whoever takes it for the place of one key, or of a Redis, must not find that in a log.
    if "://" in place or place.startswith("swk_") or not place.isprintable():
        raise PydanticCustomError("api_keys", "redis, or the path of the file that keeps API keys")
    return place


def _redis_url(url: str) -> str:
    try:
        return checked(url)
    except WrongUrl as error:
        raise PydanticCustomError("redis_url", "{form}", {"form": str(error)}) from None


def _public_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        parts = urlsplit("")
    # Clients get it as it is, so it must be a URL without urlsplit's leniency (RFC 3986 §2).
    fits = (
        re.fullmatch(r"https?://[A-Za-z0-9\-._~:/@!$&'()*+,;=%\[\]]+", url, re.IGNORECASE)
        and is_host(parts.hostname)
        and "@" not in parts.netloc
    )
    if not fits:
        raise PydanticCustomError(
            "public_url",
            "a URL such as https://agents.example.com, without user, query, fragment or spaces",
        )
    return url


def _issuer_url(url: str) -> str:
    """Where keys come from: whoever can change what is fetched there can be anybody here."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        parts = urlsplit("")
    safe = parts.scheme == "https" or (
        parts.scheme == "http" and parts.hostname in ("localhost", "127.0.0.1", "::1")
    )
    fits = (
        safe
        and is_host(parts.hostname)
        and re.fullmatch(r"[!$-;=?@A-Z\[\]_a-z~]+", url)
        and "@" not in parts.netloc
    )
    if not fits:
        raise PydanticCustomError(
            "issuer_url",
            "a URL such as https://login.example.com, without user or fragment; http only for "
            "this machine itself",
        )
    return url


_ALGORITHMS = frozenset(
    f"{family}{size}" for family in ("RS", "PS", "ES") for size in (256, 384, 512)
) | {"EdDSA"}


def _algorithms(value: Any) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(str(part).strip() for part in _listed(value)))
    if not names or not _ALGORITHMS.issuperset(names):
        # `none` proves nothing, and with HS256 whoever can verify a token can make one.
        raise PydanticCustomError(
            "algorithms",
            "names of asymmetric algorithms, comma-separated: {known}",
            {"known": ", ".join(sorted(_ALGORITHMS))},
        )
    return names


def _header_name(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9-]{1,64}", name):
        raise PydanticCustomError("header_name", "the name of a header, such as X-Client-Subject")
    return name


def _name_of(characters: str) -> AfterValidator:
    """A name of 1 to 64 of these characters, besides letters and digits."""

    def check(name: str) -> str:
        if not re.fullmatch(f"[A-Za-z0-9{re.escape(characters)}]{{1,64}}", name):
            allowed = " ".join(characters)
            raise PydanticCustomError(
                "name", "1 to 64 of the characters A-Z a-z 0-9 {allowed}", {"allowed": allowed}
            )
        return name

    return AfterValidator(check)


Seconds = Annotated[timedelta, BeforeValidator(_seconds)]
RedisUrl = Annotated[str, AfterValidator(_redis_url)]
PublicUrl = Annotated[str, AfterValidator(_public_url)]
IssuerUrl = Annotated[str, AfterValidator(_issuer_url)]
HeaderName = Annotated[str, AfterValidator(_header_name)]
# Braces would move Redis Cluster's hash tag away from the task id.
KeyPart = Annotated[str, _name_of("_.:-")]
# A colon would let one queue's key be another's: `a:running` is where queue `a` keeps its runs.
QueueName = Annotated[str, _name_of("_.-")]
Count = Annotated[int, Field(ge=1)]
# 0 is no limit.
SecondsOrNone = Annotated[timedelta, BeforeValidator(_seconds_or_none)]
CountOrNone = Annotated[int, Field(ge=0)]
Rate = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Settings(BaseModel):
    """What a deployment can decide. Immutable; see each field for what breaks when it is wrong."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    # Kept out of the repr: a URL may hold a password.
    redis_url: RedisUrl | None = Field(None, repr=False)
    """Redis that keeps the tasks, or the Sentinels that know where it is; none lets `dev` find or
    start one. Wrong: nothing starts.
    """
    queue_url: RedisUrl | None = Field(None, repr=False)
    """Redis of the queue; none means the same one. Gateways and workers that differ here never
    meet.
    """
    agent: str | None = None
    """The agent workers run: `module`, `module:attr` or `path/file.py[:attr]`. None only moves
    states.
    """
    card: str | None = None
    """The agent card: a JSON file or an import string. Gateways that differ here contradict each
    other.
    """
    extended_card: str | None = None
    """The card for authenticated callers: a JSON file, or an import string of a card, or of what
    makes one of a call's context. Unset although the card promises one, clients get -32007.
    """
    card_keys: Annotated[tuple[str, ...], BeforeValidator(_paths)] = ()
    """PEM files of the private keys that sign the cards, comma-separated; each signs. Whoever reads
    them can speak for this agent; gateways that differ here contradict each other.
    """
    public_url: PublicUrl | None = None
    """Where clients reach the gateways. Unset behind a proxy, the card may name an address nobody
    reaches.
    """
    trusted_proxies: Annotated[tuple[Network, ...], BeforeValidator(_networks)] = ()
    """Addresses of proxies whose X-Forwarded-* or Forwarded headers tell where clients reach the
    gateways, if `public_url` does not. One that passes on such headers of its clients lets them
    write into the card.
    """
    prefix: KeyPart = "switchroom"
    """First part of every key: two deployments with one prefix on one Redis share their tasks."""
    queue: QueueName = "main"
    """The queue's and agent's name; a queue without a worker keeps its tasks SUBMITTED."""

    lease: Seconds = timedelta(seconds=15)
    """How long a silent worker keeps its runs. Short: a blocked event loop loses runs; long: slow
    recovery.
    """
    concurrency: Count = 100
    """Runs at once per worker. Too many starve the worker's event loop, and leases lapse."""
    attempts: Count = 3
    """Starts of one turn before the task FAILS. One means that a worker's death ends its tasks."""
    retry_delays: Annotated[tuple[Seconds, ...], BeforeValidator(_list_of_seconds)] = (
        timedelta(seconds=1),
        timedelta(seconds=5),
    )
    """Waits before the second, third … attempt, the last one repeated; comma-separated."""
    run_limit: Seconds = timedelta(hours=1)
    """Longest run; an agent may ask for less. One that is stuck holds its place in the worker this
    long.
    """
    inactivity_limit: Seconds = timedelta(minutes=30)
    """Longest silence of a run; an agent may ask for less. Short: agents that answer only once, at
    their end, FAIL while they work; long: a stuck one looks as if it worked.
    """
    cancel_wait: Seconds = timedelta(seconds=3)
    """How long CancelTask waits for the worker before the gateway ends the task itself."""
    cancel_grace: Seconds = timedelta(seconds=2)
    """What a cancelled agent gets to clean up; must end before `cancel_wait` does."""
    drain: Seconds = timedelta(seconds=25)
    """What open requests and runs get after SIGTERM. Must be below the orchestrator's own grace
    time.
    """

    retention: Seconds = timedelta(days=7)
    """How long an ended task can be read. Long retention is memory."""
    log_retention: Seconds = timedelta(hours=1)
    """How long an ended task's events can be replayed one by one; later a client gets the Task."""
    interrupted_limit: Seconds = timedelta(days=7)
    """How long a task waits for its user (INPUT_REQUIRED, AUTH_REQUIRED) before it is ended."""
    claim_ttl: Seconds = timedelta(hours=24)
    """How long a repeated send is recognised; not above `retention`, or a repeat finds its task
    gone.
    """
    idempotency: Literal["request", "message-id", "header"] = "request"
    """What makes a send a repeat: the same whole request, the same messageId, or only `Idempotency-
    Key`.
    """
    replay_events: Count = 10_000
    """Events an open task keeps for resuming clients; a client further behind gets the Task
    instead.
    """
    replay_bytes: Count = 16 * 1024 * 1024
    """The same in bytes; whichever is reached first."""
    event_limit: Count = 1024 * 1024
    """Largest event an agent may emit; beyond it the run fails."""
    task_limit: Count = 64 * 1024 * 1024
    """Largest task; beyond it the run fails. A worker may hold `concurrency` tasks of this size."""

    jwt_issuer: IssuerUrl | None = None
    """Whose tokens (JWT) tell who calls, by OpenID Connect: its keys are found by discovery, and
    `iss` must be exactly this. Whoever controls it can be anybody here.
    """
    jwt_jwks_url: IssuerUrl | None = None
    """Where the keys of the tokens are, for an issuer without discovery. Without `jwt_issuer` too,
    a token of anybody with such a key is taken, whatever its `iss`.
    """
    jwt_audience: str | None = None
    """What must be in a token's `aud`. Wrong: every token is refused; that of others too: their
    tokens are good here.
    """
    jwt_tenant_claim: str | None = None
    """The claim that holds a caller's tenant; a token without it is refused. Unset, a token has no
    tenant, and callers of two tenants with the same `sub` are one.
    """
    jwt_algorithms: Annotated[tuple[str, ...], BeforeValidator(_algorithms)] = (
        "RS256",
        "PS256",
        "ES256",
        "EdDSA",
    )
    """The algorithms of signatures that are taken, comma-separated; a key of another kind is not
    used.
    """
    jwt_leeway: SecondsOrNone = timedelta(seconds=30)
    """How far the issuer's clock may be off. Long: a token works for so long after its end."""
    jwt_stale_limit: Seconds = timedelta(hours=24)
    """How long keys are believed that can no longer be fetched; then calls with a token get 503.
    Long: a key that was taken back meanwhile still works.
    """
    client_cert_header: HeaderName | None = None
    """The header in which a proxy of `trusted_proxies` names the subject or SPIFFE id of a client's
    certificate. One that does not verify it, or passes the header on, lets anybody be anybody.
    """
    auth: str | None = None
    """Import string of another way to tell who calls: a callable of the request, or an object with
    a method `caller`. It decides alone about whom the other ways do not know.
    """

    artifact_limit: Count = 64 * 1024 * 1024
    """Largest artifact; beyond it the run fails."""
    events_limit: Count = 1_000_000
    """Events of a task; beyond them the run fails. What each costs is its bytes and some 200 more.
    """
    history_limit: Count = 1_000
    """Messages of a task: with so many it takes no more of its user's, and a run that adds its own
    fails.
    """
    parts_limit: Count = 1_000
    """Parts of one message that a client sends; beyond them it is refused."""
    depth_limit: Annotated[int, Field(ge=1, le=100)] = 100
    """How deep metadata and data that a client sends may nest, 100 at most."""
    push_configs: Count = 32
    """Push-notification configs of one task."""

    push_http: bool = False
    """Let webhooks be plain http, too: what they are told, and their credentials, can be read on
    the way.
    """
    push_ports: Annotated[tuple[int, ...], BeforeValidator(_ports)] = (80, 443)
    """Ports that webhooks may have, comma-separated, or `any`: each more is one more kind of server
    that a client can make us talk to.
    """
    push_allow: Annotated[tuple[Network | str, ...], BeforeValidator(_places)] = ()
    """Hosts (`*.` before one for all below it) and networks that webhooks may reach though they are
    not public: for tests and intranets. All else inside is refused.
    """
    push_timeout: Seconds = timedelta(seconds=15)
    """How long one delivery to a webhook may take, its answer included; a receiver that hangs keeps
    a place for so long.
    """
    push_give_up: Seconds = timedelta(days=1)
    """For how long a delivery is tried again before it is given up; within `retention`, or its task
    would be gone.
    """
    push_concurrency: Count = 64
    """Deliveries at once in one worker process; one receiver gets half of them at most."""
    push_keys: Annotated[tuple[str, ...], BeforeValidator(_paths)] = ()
    """PEM files of EC P-256 keys: the first signs what webhooks are told, and gateways publish all.
    None: receivers cannot tell us from anybody who knows their URL. Needs `public_url`.
    """
    push_seal_keys: Annotated[tuple[SecretStr, ...], BeforeValidator(_secrets)] = ()
    """Keys that the registrations of webhooks are sealed with in Redis, as Fernet's: the first
    seals, all open. None: whoever reads Redis reads the credentials of webhooks.
    """
    push_events: Annotated[tuple[str, ...], BeforeValidator(_push_events)] = (
        "artifact",
        "message",
        "status",
        "task",
    )
    """Kinds of event that webhooks are told of; without `status` nobody learns how a task ends."""

    handler: str | None = None
    """Import string of a request handler that replaces ours."""
    host: str = "127.0.0.1"
    """Address the gateway binds; the default is not reachable from other machines."""
    port: Annotated[int, Field(ge=0, le=65535)] = 8000
    """Port the gateway binds; the variable `PORT` is honoured too. 0 picks a free one."""
    body_limit: Count = 10 * 1024 * 1024
    """Largest request body; beyond it 413."""
    header_limit: Count = 64 * 1024
    """Bytes of a request's headers, about; beyond them 431."""
    request_timeout: Seconds = timedelta(seconds=30)
    """How long a client may take to send its headers, and again to send its body; then 408. Short:
    large messages over slow lines fail.
    """
    connections: CountOrNone = 10_000
    """Connections of one gateway; beyond them 503; 0 is no limit. A stream holds one, so keep it
    below the open files that the system allows.
    """
    hosts: Annotated[tuple[str, ...], BeforeValidator(_hosts)] = ()
    """Host names that requests may be for, comma-separated, `*.example.com` for all below; none
    takes all. Probes are answered whatever they ask for.
    """
    cors_origins: Annotated[tuple[str, ...], BeforeValidator(_origins)] = ()
    """Origins whose pages may call, such as https://app.example.com, comma-separated, or `*`; none
    by default.
    """
    hsts: SecondsOrNone = timedelta(0)
    """How long browsers are to insist on https for this host; 0 says nothing about it. Where some
    clients must use http, they are shut out this long.
    """
    audit_log: str | None = None
    """File for a JSON line per call that changes something and per refusal; `-` is stdout. None:
    nobody can tell afterwards who did what.
    """
    protocol_versions: Annotated[tuple[str, ...], BeforeValidator(_versions)] = ("0.3", "1.0")
    """The versions of A2A that are spoken, comma-separated; `1.0` alone refuses clients of 0.3."""
    lenient_version: bool = False
    """Take 1.0 requests without A2A-Version, which means 0.3, for what they look like. Clients that
    rely on it fail elsewhere.
    """
    error_table: Literal["1.0.1", "1.0.0"] = "1.0.1"
    """The text of the specification whose HTTP statuses are answered; clients may know only one."""
    sharing: str | None = None
    """Import string of `may(caller, action, task)`, which decides about tasks of others; none:
    each caller has its own alone. What it allows by mistake is a leak.
    """
    api_keys: Annotated[str, AfterValidator(_api_keys)] | None = None
    """Where API keys are kept, of which each caller needs one: `redis`, or the path of a file; see
    `switchroom keys`. Unset, with no other way to authenticate: anybody may call, and sees every
    task. Gateways that differ here know different callers.
    """
    legacy_error_codes: bool = False
    """Answer 401 and 415 with the JSON-RPC codes -32001, -32002 and -32000, for clients that know
    no others. To all the rest -32001 and -32002 say something about a task.
    """
    blocking_limit: Seconds = timedelta(minutes=5)
    """Longest a blocking send waits before it answers the task as it is. Keep it below the proxy's
    timeout.
    """
    send_rate: Rate = 0
    """Sends per second of one caller, by all gateways together, after a burst of `send_burst`; 0 is
    no limit. Low: clients meet 429.
    """
    send_burst: Count = 10
    """Sends that one caller may make at once."""
    tenant_send_rate: Rate = 0
    """The same of all callers of a tenant together."""
    tenant_send_burst: Count = 100
    """The same of all callers of a tenant together."""
    caller_tasks: CountOrNone = 0
    """Tasks of one caller that are submitted or working at a time; 0 is no limit."""
    tenant_tasks: CountOrNone = 0
    """The same of all callers of a tenant together."""
    caller_streams: CountOrNone = 0
    """Open streams of one caller, at all gateways together; 0 is no limit. Low: a client that comes
    back before its old stream is given up meets 429.
    """
    limits_unknown: Literal["open", "closed"] = "open"
    """What a limit means while Redis takes no writes, so that nobody can count: nothing, or that
    all is refused with 503.
    """
    waiting_limit: CountOrNone = 10_000
    """Runs that may wait for a worker before new sends get 503; 0 is no limit. High: work comes too
    late, and Redis fills; low: bursts are refused that workers would manage.
    """
    waiting_age: SecondsOrNone = timedelta(0)
    """The same by how long the first of them has waited; 0 is no limit. Where workers scale to
    none, it refuses what would make them start.
    """
    show_after: Seconds = timedelta(seconds=1)
    """When a send that has not answered yet becomes a task that GetTask and ListTasks know."""
    heartbeat: Seconds = timedelta(seconds=15)
    """Pause after which a silent stream gets a comment; above the proxy's idle timeout streams
    break.
    """
    client_buffer: Count = 1_000
    """Events a slow client may lag behind before its stream is ended (it resumes by id)."""

    redis_timeout: Seconds = timedelta(seconds=1.5)
    """How long one Redis command may take; below `lease`, or one slow command loses the runs."""
    position_check: Seconds = timedelta(seconds=10)
    """How often open streams are compared with the store, to find a lost last event."""
    reconcile_every: Seconds = timedelta(seconds=30)
    """How often workers look for tasks that nobody will run."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """How much is logged."""

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> Self:
        """Read the variables `SWITCHROOM_<FIELD>`, and `PORT`.

        Raises SettingsError: one sentence for the first wrong one.
        """
        found = {
            name: text
            for name in cls.model_fields
            if (text := environ.get(_PREFIX + name.upper(), "").strip())
        }
        # Kubernetes sets SWITCHROOM_PORT=tcp://… in every pod beside a service named "switchroom".
        if found.get("port", "").startswith(_SERVICE_ADDRESSES):
            del found["port"]
        port_variable = _PREFIX + "PORT"
        if "port" not in found and (port := environ.get("PORT", "").strip()):
            found["port"], port_variable = port, "PORT"
        try:
            return cls.model_validate(found)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
        if not first["loc"]:
            raise SettingsError(str(first["ctx"]["error"]))
        field = str(first["loc"][0])
        variable = port_variable if field == "port" else _PREFIX + field.upper()
        shown = _without_user(found[field]) if field in _SHOWN_URLS else found[field]
        if field in ("redis_url", "queue_url"):
            shown = without_password(shown)
        elif field in ("card_keys", "api_keys", "push_keys", "push_seal_keys"):
            shown = "…"
        expected = first["msg"].removeprefix("Input should be ")
        raise SettingsError(f"{variable} is {shown!r}; it should be {expected}.")

    @staticmethod
    def unknown(environ: Mapping[str, str]) -> dict[str, str | None]:
        """Variables that look like settings and are none, each with the setting probably meant.

        Those that Kubernetes makes for services named "switchroom…" are not among them.
        """
        guesses: dict[str, str | None] = {}
        for variable, value in sorted(environ.items()):
            name = variable.removeprefix(_PREFIX).lower()
            if not variable.startswith(_PREFIX) or _SERVICE_VARIABLE.search(variable):
                continue
            if name not in Settings.model_fields and not value.startswith(_SERVICE_ADDRESSES):
                close = difflib.get_close_matches(name, Settings.model_fields, n=1, cutoff=0.75)
                guesses[variable] = f"{_PREFIX}{close[0].upper()}" if close else None
        return guesses

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        self._at_most("claim_ttl", "retention", "a repeated request would find its task gone")
        self._at_most("log_retention", "retention", "events would outlive their task")
        self._at_most("push_give_up", "retention", "a delivery would outlive its task")
        self._at_most("event_limit", "task_limit", "the largest event would fit into no task")
        self._at_most("event_limit", "replay_bytes", "the largest event could never be replayed")
        self._below(
            "cancel_grace", "cancel_wait", "the gateway would cut the agent's clean-up short"
        )
        self._below("redis_timeout", "lease", "one slow command would lose every run")
        self._no_more_than_its_tenant("send_rate", "tenant_send_rate")
        self._no_more_than_its_tenant("caller_tasks", "tenant_tasks")
        if self.send_rate and self.tenant_send_rate:
            self._no_more_than_its_tenant("send_burst", "tenant_send_burst")
        if self.push_keys and not self.public_url:
            raise ValueError(
                f"{_PREFIX}PUSH_KEYS is set without {_PREFIX}PUBLIC_URL: a signature would not say "
                "whose it is."
            )
        if self.card_keys and not self.public_url:
            raise ValueError(
                f"{_PREFIX}CARD_KEYS is set without {_PREFIX}PUBLIC_URL: a signature would vouch "
                "for whatever address a request names."
            )
        if self.api_keys == "redis" and not self.redis_url:
            raise ValueError(
                f"{_PREFIX}API_KEYS is redis without {_PREFIX}REDIS_URL: nobody could make a key "
                "in a Redis that ends with the server; name a file instead, or set the URL."
            )
        self._identity_fits()
        return self

    def _identity_fits(self) -> None:
        """What is half set up would let nobody in, or everybody."""
        issuer = self.jwt_issuer or self.jwt_jwks_url
        if issuer and not self.jwt_audience:
            name = "JWT_ISSUER" if self.jwt_issuer else "JWT_JWKS_URL"
            raise ValueError(
                f"{_PREFIX}{name} is set without {_PREFIX}JWT_AUDIENCE: tokens that it made for "
                "others would be good here."
            )
        for field in ("jwt_audience", "jwt_tenant_claim"):
            if getattr(self, field) and not issuer:
                raise ValueError(
                    f"{_PREFIX}{field.upper()} is set without {_PREFIX}JWT_ISSUER or "
                    f"{_PREFIX}JWT_JWKS_URL: no token would be asked for."
                )
        if self.jwt_issuer and "?" in self.jwt_issuer:
            raise ValueError(
                f"{_PREFIX}JWT_ISSUER has a query, which no issuer of OpenID Connect has; give "
                f"{_PREFIX}JWT_JWKS_URL the address of its keys."
            )
        if self.client_cert_header and not self.trusted_proxies:
            raise ValueError(
                f"{_PREFIX}CLIENT_CERT_HEADER is set without {_PREFIX}TRUSTED_PROXIES: nobody's "
                "word about a certificate would be believed."
            )

    def _no_more_than_its_tenant(self, name: str, limit: str) -> None:
        mine, all_of_it = getattr(self, name), getattr(self, limit)
        if all_of_it and not mine <= all_of_it:
            raise ValueError(
                f"{_PREFIX}{name.upper()} ({mine:g}) is above {_PREFIX}{limit.upper()} "
                f"({all_of_it:g}): one caller alone would reach its tenant's limit."
            )

    def _at_most(self, name: str, limit: str, why: str) -> None:
        if getattr(self, name) > getattr(self, limit):
            raise ValueError(self._misfit(name, "is above", limit, why))

    def _below(self, name: str, limit: str, why: str) -> None:
        if getattr(self, name) >= getattr(self, limit):
            raise ValueError(self._misfit(name, "is not below", limit, why))

    def _misfit(self, name: str, relation: str, limit: str, why: str) -> str:
        return (
            f"{_PREFIX}{name.upper()} ({_plain(getattr(self, name))}) {relation} "
            f"{_PREFIX}{limit.upper()} ({_plain(getattr(self, limit))}): {why}."
        )


def _plain(value: timedelta | int) -> str:
    return f"{value.total_seconds():g} s" if isinstance(value, timedelta) else f"{value} bytes"


def without_password(url: str) -> str:
    """A URL for logs and messages: no user, no password, no options (which may hold them)."""
    place, _, options = url.partition("?")
    # With an @ behind it, the question mark may belong to a password.
    return (
        re.sub(r"//.*", "//…", place, flags=re.DOTALL) if "@" in options else _without_user(place)
    )


def _without_user(url: str) -> str:
    return re.sub(r"//.*@", "//…@", url, flags=re.DOTALL)
