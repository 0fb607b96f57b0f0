"""One request to a webhook: what it says, what its answer means, and where it does not go."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from switchroom.gateway.card import CardPress
from switchroom.protocol.model import Json
from switchroom.settings import Settings
from switchroom.webhook_url import WebhookRules
from switchroom.worker.webhook import Failed, Webhooks
from tests.support.receiver import Answer, receiver

BODY = b'{"statusUpdate":{"taskId":"t"}}'


def settings_of(**more: Any) -> Settings:
    usual = {"push_http": True, "push_ports": "any", "push_allow": "127.0.0.1"}
    return Settings.model_validate({**usual, **more})


async def post(config: Json, *, version: str = "1.0", **more: Any) -> Failed | None:
    async with Webhooks(settings_of(**more)) as webhooks:
        return await webhooks.post(config, BODY, version=version, task_id="t", delivery_id="d1")


async def told(config: Json, **more: Any) -> dict[str, str]:
    """The headers that a receiver gets."""
    async with receiver() as at:
        assert await post({**config, "url": at.url("/hook?x=1")}, **more) is None
        (heard,) = at.heard
        assert (heard.path, heard.body) == ("/hook?x=1", BODY)
        assert heard.headers["host"] == f"127.0.0.1:{at.port}"
        return heard.headers


async def test_it_says_what_it_is() -> None:
    headers = await told({})
    assert headers["content-type"] == "application/a2a+json"
    assert headers["a2a-version"] == "1.0" and headers["a2a-delivery-id"] == "d1"
    assert not {"authorization", "x-a2a-notification-token", "cookie"} & set(headers)


async def test_to_0_3_it_is_json() -> None:
    headers = await told({}, version="0.3")
    assert (headers["content-type"], headers["a2a-version"]) == ("application/json", "0.3")


async def test_it_sends_what_the_registrant_gave() -> None:
    given = {"scheme": "Bearer", "credentials": "let me in"}
    headers = await told({"token": "n-77", "authentication": given})
    assert headers["authorization"] == "Bearer let me in"
    assert headers["x-a2a-notification-token"] == headers["a2a-notification-token"] == "n-77"


async def test_a_scheme_without_credentials_sends_nothing() -> None:
    assert "authorization" not in await told({"authentication": {"scheme": "Bearer"}})


def written(folder: Path, name: str) -> str:
    key = ec.generate_private_key(ec.SECP256R1())
    path = folder / name
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return str(path)


async def test_it_is_signed_by_a_key_that_is_published(tmp_path: Path) -> None:
    """Rotated, both keys are published, and the first one signs."""
    old, new = written(tmp_path, "old.pem"), written(tmp_path, "new.pem")
    kids = []
    for keys in (old, f"{new},{old}"):
        more = {"push_keys": keys, "public_url": "https://agents.test"}
        async with receiver() as at:
            assert await post({"url": at.url("/hook?secret=1")}, **more) is None
            headers = at.heard[0].headers
        published = CardPress(settings_of(**more)).key_set
        assert published is not None
        token = headers["a2a-notification-signature"]
        assert headers["authorization"] == f"Bearer {token}"
        key = jwt.PyJWKSet.from_dict(published)[jwt.get_unverified_header(token)["kid"]]
        claims = jwt.decode(
            token,
            key.key,
            algorithms=["ES256"],
            audience=at.url("/hook"),
            issuer="https://agents.test",
            options={"require": ["exp", "iat", "jti"]},
        )
        assert claims["request_body_sha256"] == hashlib.sha256(BODY).hexdigest()
        assert (claims["jti"], claims["taskId"]) == ("d1", "t")
        assert claims["exp"] - claims["iat"] == 300
        kids.append([each["kid"] for each in published["keys"]])
    assert kids[1][1:] == kids[0] and kids[1][0] != kids[0][0]


async def answered(answer: Answer) -> Failed | None:
    async with receiver() as at:
        at.answering = lambda _: answer
        return await post({"url": at.url()})


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
async def test_what_is_taken(status: int) -> None:
    body = b"" if status == 204 else b"{}"
    assert await answered(Answer(status, body=body)) is None


@pytest.mark.parametrize("status", [301, 302, 307, 400, 401, 404, 429, 500, 503])
async def test_what_is_not(status: int) -> None:
    assert await answered(Answer(status)) == Failed(f"HTTP {status}")


async def test_one_that_is_gone_wants_no_more() -> None:
    assert await answered(Answer(410)) == Failed("HTTP 410", final=True)


async def test_it_may_say_when_to_come_again() -> None:
    async def asked(said: str) -> float | None:
        failed = await answered(Answer(503, {"Retry-After": said}))
        assert failed is not None
        return failed.retry_after

    assert await asked("120") == 120
    date = format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)
    assert 3_500 < (await asked(date) or 0) <= 3_600
    assert await asked("soon") is None
    assert await asked("-1") is None


async def test_a_redirect_is_not_followed() -> None:
    async with receiver() as inside, receiver() as at:
        at.answering = lambda _: Answer(307, {"Location": inside.url()})
        assert await post({"url": at.url()}) == Failed("HTTP 307")
        assert inside.heard == []


async def test_one_that_hangs_is_left() -> None:
    async with receiver() as at:
        at.answering = lambda _: Answer(-1)
        assert await post({"url": at.url()}, push_timeout=0.2) == Failed("no answer within 0.2 s")


async def test_one_that_resets_or_is_not_there_has_failed() -> None:
    async with receiver() as at:
        at.answering = lambda _: Answer(0)
        assert isinstance(await post({"url": at.url()}), Failed)
        url = at.url()
    assert isinstance(await post({"url": url}), Failed)


async def test_no_more_is_read_of_an_answer_than_a_little() -> None:
    async with receiver() as at:
        at.answering = lambda _: Answer(200, body=b"x" * 50_000_000)
        assert await post({"url": at.url()}) is None


async def test_a_proxy_of_the_environment_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    async with receiver() as proxy, receiver() as at:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.url(""))
        assert await post({"url": at.url()}) is None
        assert proxy.heard == [] and len(at.heard) == 1


async def test_a_name_is_judged_again_when_it_is_connected_to() -> None:
    """Between registration and delivery its server of names has changed its mind."""
    told: list[str] = []

    async def resolve(host: str) -> Sequence[str]:
        told.append(host)
        return ["93.184.216.34"] if len(told) == 1 else ["127.0.0.1"]

    settings = settings_of(push_allow="")
    rules = WebhookRules(http=True, ports=frozenset(), resolve=resolve)
    async with receiver() as at:
        url = f"http://rebound.example.com:{at.port}/"
        await rules.check(rules.target(url))
        webhooks = Webhooks(settings, rules=rules)
        async with webhooks:
            failed = await webhooks.post(
                {"url": url}, BODY, version="1.0", task_id="t", delivery_id="d"
            )
        assert failed is not None and "may not reach" in failed.why
        assert at.heard == [] and told == ["rebound.example.com"] * 2


async def test_it_goes_to_the_address_that_was_judged() -> None:
    """Under the host's own name."""

    async def resolve(host: str) -> Sequence[str]:
        return ["127.0.0.1"]

    settings = settings_of()
    made = WebhookRules.of(settings)
    rules = WebhookRules(True, frozenset(), (), made.networks, resolve)
    async with receiver() as at, Webhooks(settings, rules=rules) as webhooks:
        url = f"http://receiver.example.com:{at.port}/hook"
        taken = await webhooks.post({"url": url}, BODY, version="1.0", task_id="t", delivery_id="d")
        assert taken is None
        assert at.heard[0].headers["host"] == f"receiver.example.com:{at.port}"


async def test_what_the_settings_refuse_by_now_is_not_told() -> None:
    async with receiver() as at:
        failed = await post({"url": at.url()}, push_http=False)
        assert failed is not None and "scheme" in failed.why and at.heard == []
