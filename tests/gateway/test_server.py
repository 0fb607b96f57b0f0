"""The HTTP server: where it listens, and what it keeps to itself."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from switchroom.gateway.context import CallContext
from switchroom.gateway.server import BindError, bind
from tests.support.gateways import app_of, serving


class Silent:
    async def dispatch(self, method: str, params: Any, context: CallContext) -> Any:
        return None


async def test_a_client_that_wants_a_websocket_gets_an_answer_and_the_log_no_advice(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving(app_of(Silent())) as url, httpx.AsyncClient(base_url=url) as client:
        headers = {
            "Connection": "Upgrade",
            "Upgrade": "websocket",
            "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
            "Sec-WebSocket-Version": "13",
        }
        for upgrade in ("websocket", "h2c"):
            response = await client.get("/livez", headers={**headers, "Upgrade": upgrade})
            assert response.status_code == 200
    assert "pgrade" not in caplog.text
    assert "pip install" not in caplog.text


@pytest.mark.parametrize("host", ["a" * 70, "no.such.host.invalid", "203.0.113.1", "a..b"])
def test_an_address_that_is_not_ours_is_one_sentence(host: str) -> None:
    with pytest.raises(BindError) as caught:
        bind(host, 0)
    assert str(caught.value).startswith(f"The gateway cannot listen at {host}:0 (")
    assert "\n" not in str(caught.value)
