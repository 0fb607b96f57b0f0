"""The official clients with credentials, an API key or a token that ends and is renewed, on each
binding and at either gateway; and whoever brings them sees what is theirs.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import httpx
import pytest
import pytest_asyncio
from a2a.client import Client, ClientCallContext, ClientConfig, create_client
from a2a.client.auth import AuthInterceptor, CredentialService
from a2a.client.errors import A2AClientError
from a2a.types.a2a_pb2 import GetTaskRequest, ListTasksRequest, Task, TaskState
from a2a.utils.errors import TaskNotFoundError

from tests.support.issuer import AUDIENCE, Issuer, issuer_at_work
from tests.support.official import request, send, text_of
from tests.support.processes import Deployment, deployment, environment, processes
from tests.support.proxy import proxy_over
from tests.support.rpc import Event, answer_of, state_of
from tests.support.wait import wait_until
from tests.system.conftest import AGENT, CARD, Gates

pytestmark = [pytest.mark.requires("redis-server"), pytest.mark.asyncio(loop_scope="session")]

T = TypeVar("T")


@dataclass(frozen=True)
class Guarded:
    """A deployment where callers need a credential: a key of `keys`, or a token of `issuer`."""

    deployment: Deployment
    issuer: Issuer
    keys: dict[str, str]

    def logs(self) -> list[tuple[str, str]]:
        return self.deployment.logs()


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def guarded(tmp_path_factory: pytest.TempPathFactory, gates: Gates) -> AsyncIterator[Guarded]:
    """Two gateways and a worker."""
    folder = tmp_path_factory.mktemp("guarded")
    async with issuer_at_work() as issuer:
        with deployment(
            folder,
            agent=AGENT,
            environ={"TEST_GATES": str(gates.folder)},
            CARD=CARD,
            API_KEYS="redis",
            JWT_ISSUER=issuer.url,
            JWT_AUDIENCE=AUDIENCE,
            JWT_LEEWAY="0",
        ) as running:
            keys = {}
            for name in ("alice", "bob"):
                command = ("keys", "create", name)
                made = running.processes.switchroom(*command, environ=running.environ)
                assert await made.ended() == 0, made.output
                keys[name] = re.findall(r"^swk_\S+", made.output, re.MULTILINE)[0]
            await running.start(gateways=2, workers=1)
            yield Guarded(running, issuer, keys)


@pytest.fixture(params=["JSONRPC", "HTTP+JSON"])
def binding(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


class Credentials(CredentialService):
    """What a client has, by the name that the card gives to the way."""

    def __init__(self, **held: str) -> None:
        self.held = held

    async def get_credentials(
        self, security_scheme_name: str, context: ClientCallContext | None
    ) -> str | None:
        return self.held.get(security_scheme_name)


async def client_of(
    url: str, http: httpx.AsyncClient, binding: str, held: CredentialService, **more: Any
) -> Client:
    config = ClientConfig(httpx_client=http, supported_protocol_bindings=[binding], **more)
    return await create_client(url, config, interceptors=[AuthInterceptor(held)])


async def test_the_python_client_with_a_token_that_is_renewed(
    guarded: Guarded, http: httpx.AsyncClient, binding: str
) -> None:
    issuer = guarded.issuer
    held = Credentials(openid=issuer.token(exp=int(time.time()) + 1))
    renewals = 0

    async def persisted(job: Callable[[], Awaitable[T]]) -> T:
        """What it gives; with a new token if the one there is has ended."""
        nonlocal renewals
        try:
            return await job()
        except A2AClientError as error:
            assert "401" in str(error)
            renewals += 1
            held.held["openid"] = issuer.token()
            return await job()

    async with proxy_over(guarded.deployment.ports) as proxy:
        client = await client_of(proxy.url, http, binding, held, streaming=False)
        streaming = await client_of(proxy.url, http, binding, held)
        sent = (await persisted(lambda: send(client, "echo hello"))).task
        assert (sent.status.state, text_of(sent)) == (TaskState.TASK_STATE_COMPLETED, "hello")

        async def renewed() -> bool:
            assert await persisted(lambda: client.get_task(GetTaskRequest(id=sent.id))) == sent
            return renewals > 0

        await wait_until(renewed, what="the first token has ended")
        held.held["openid"] = issuer.token(exp=int(time.time()) - 1)

        async def streamed() -> list[Any]:
            return [event async for event in streaming.send_message(request("stream 5 1"))]

        events = await persisted(streamed)
        assert events[-1].status_update.status.state == TaskState.TASK_STATE_COMPLETED
        assert renewals == 2
        listed = await client.list_tasks(ListTasksRequest())
        assert {sent.id, events[0].task.id} <= {task.id for task in listed.tasks}
        assert min(proxy.served.values()) > 0
    await seen_by(guarded, http, binding, sent)


async def test_the_python_client_with_an_api_key(
    guarded: Guarded, http: httpx.AsyncClient, binding: str
) -> None:
    held = Credentials(apiKey=guarded.keys["alice"])
    async with proxy_over(guarded.deployment.ports) as proxy:
        client = await client_of(proxy.url, http, binding, held, streaming=False)
        sent = (await send(client, "echo hello")).task
        assert text_of(sent) == "hello"
        streaming = await client_of(proxy.url, http, binding, held)
        events = [event async for event in streaming.send_message(request("stream 5 1"))]
        assert events[-1].status_update.status.state == TaskState.TASK_STATE_COMPLETED
    await seen_by(guarded, http, binding, sent)


async def seen_by(guarded: Guarded, http: httpx.AsyncClient, binding: str, task: Task) -> None:
    """The task is alice's, however she proves who she is, and nobody else's."""
    issuer, keys, url = guarded.issuer, guarded.keys, guarded.deployment.gateways[0].url
    get = GetTaskRequest(id=task.id)
    for held in (Credentials(openid=issuer.token()), Credentials(apiKey=keys["alice"])):
        client = await client_of(url, http, binding, held)
        assert await client.get_task(get) == task
    for held in (Credentials(openid=issuer.token(sub="bob")), Credentials(apiKey=keys["bob"])):
        client = await client_of(url, http, binding, held)
        with pytest.raises(TaskNotFoundError):
            await client.get_task(get)
        assert task.id not in {t.id for t in (await client.list_tasks(ListTasksRequest())).tasks}
    for held in (Credentials(), Credentials(openid="x.y.z"), Credentials(apiKey="swk_bad")):
        client = await client_of(url, http, binding, held)
        with pytest.raises(A2AClientError, match="401"):
            await client.get_task(get)


@pytest.mark.requires("node")
@pytest.mark.parametrize("credential", ["token", "key"])
async def test_the_javascript_client_with_its_authenticating_fetch(
    guarded: Guarded, js_clients: Path, binding: str, credential: str
) -> None:
    brought = guarded.issuer.url if credential == "token" else guarded.keys["alice"]
    with processes(js_clients) as running:
        async with proxy_over(guarded.deployment.ports) as proxy:
            command = ("node", "credentials.mjs", proxy.url, binding, brought)
            script = running.start(*command, name="js", environ=environment(), cwd=js_clients)
            assert await script.ended() == 0, script.output
        said = json.loads(script.output)
    assert ("Rest" in said["transport"]) is (binding == "HTTP+JSON")
    assert (state_of(said["sent"]), answer_of(said["sent"])) == ("COMPLETED", "hello")
    for name in ("stream", "restreamed"):
        events = [Event("", event) for event in said[name]]
        assert events[-1].state == "COMPLETED"
        numbers = [event.text.split()[0] for event in events if event.text]
        assert numbers == ["0", "1", "2", "3", "4"]
    assert said["sent"]["id"] in {task["id"] for task in said["listed"]["tasks"]}
    assert said["statuses"].count(401) == (2 if credential == "token" else 0)
    assert set(said["statuses"]) <= {200, 401}
