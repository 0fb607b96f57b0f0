"""What `switchroom dev` adds: a Redis wherever it runs, a card, and a command line to paste.

Promises that it says which Redis it took and what is kept. Relies on `store.connect` for the search
and on `gateway.card` for cards.
"""

from __future__ import annotations

import inspect
import json
import logging
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import switchroom
from switchroom.agent import Agent
from switchroom.gateway.card import CARD_PATH, CardSource, load_card
from switchroom.gateway.card_files import card_beside, minimal_card
from switchroom.importing import split_spec
from switchroom.protocol.model import Json
from switchroom.settings import Settings, without_password
from switchroom.store.connect import ServerError, find_server, private_server

__all__ = ["any_redis", "banner", "make_card"]

log = logging.getLogger("switchroom")


@asynccontextmanager
async def any_redis(settings: Settings) -> AsyncIterator[tuple[str, str]]:
    """The URL of the configured Redis, a private or a fake one; and what is kept, for people."""
    if settings.redis_url:
        yield (
            settings.redis_url,
            f"Tasks are kept in Redis at {without_password(settings.redis_url)}.",
        )
        return
    url = "fake://dev"
    kept = (
        "Tasks are in the memory of this process (fakeredis); nothing is kept when it ends. "
        "SWITCHROOM_REDIS_URL keeps them."
    )
    async with AsyncExitStack() as stack:
        if binary := find_server():
            try:
                url = await stack.enter_async_context(private_server(binary))
                kept = (
                    f"Tasks are in a private {binary.name}; nothing is kept when this process "
                    "ends. SWITCHROOM_REDIS_URL keeps them."
                )
            except ServerError as error:
                log.warning("%s Going on without it.", error)
        yield url, kept


def banner(settings: Settings, base_url: str, kept: str, *, is_open: bool) -> str:
    """What to tell a developer: which agent, what is kept, who may call, the card, and a `curl`
    that streams.
    """
    params = {
        "message": {"messageId": "ID", "role": "ROLE_USER", "parts": [{"text": "Hello there"}]}
    }
    call = {"jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage", "params": params}
    # The shell makes the id: a message sent twice under one id is one message. (A plain sh has no
    # RANDOM; then pasting twice within a second is such a repeat.)
    body = json.dumps(call).replace("ID", "'$(date +%s)$RANDOM'")
    headers = "-H 'A2A-Version: 1.0' -H 'Content-Type: application/json'"
    agent = settings.agent or (
        "no agent, so every task is completed without output; "
        "name one: `switchroom dev my_agent.py`"
    )
    callers = (
        f"ANYBODY who reaches {settings.host} may call it: no way to authenticate is set."
        if is_open
        else "Callers must authenticate: add a credential to the command below."
    )
    return (
        f"Switchroom {switchroom.__version__} runs {agent}.\n{kept}\n{callers}\n\n"
        f"Card  {base_url}{CARD_PATH}\n\n"
        f"curl -N {base_url}/ {headers} -d '{body}'\n"
    )


def make_card(
    settings: Settings, agent: Agent | None, *, schemes: Mapping[str, Json]
) -> CardSource:
    """SWITCHROOM_CARD, else the card beside the agent's file, else one made from the agent.

    schemes: the ways to authenticate that it names.
    Raises CardError.
    """
    if settings.card or settings.agent is None:
        return load_card(settings.card, settings, schemes=schemes)
    if beside := card_beside(settings.agent):
        return load_card(str(beside), settings, schemes=schemes)
    module, attribute = split_spec(settings.agent, default="agent")
    name = Path(module).stem if module.endswith(".py") else module.rpartition(".")[2]
    home = sys.modules.get(getattr(agent, "__module__", ""))
    doc = inspect.getdoc(agent) or inspect.getdoc(home) or ""
    card = minimal_card(
        name=(name if attribute == "agent" else attribute).replace("_", " ").capitalize(),
        description=" ".join(doc.partition("\n\n")[0].split()) or None,
        version=str(getattr(home, "__version__", "0.0.0")),
    )
    return load_card(None, settings, schemes=schemes, fallback=card)
