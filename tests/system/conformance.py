"""Runs the A2A conformance kit against Switchroom as a developer and as an operator starts it.

`make conformance KIT=path/to/the/checkout` runs it against `switchroom dev`, and against two
gateways and two workers behind a round-robin proxy. The kit is a checkout of
github.com/a2aproject/a2a-tck, and wants a Python with its own dependencies: of the 1.0 suite, or
of the 0.3 one (0.3.0.beta4), which is told by the options it takes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from tests.support.processes import Process, deployment, environment, processes, until_ready
from tests.support.proxy import proxy_over

__all__ = ["TARGETS", "main"]

AGENT, CARD = "examples/conformance.py", "examples/conformance.json"
EXTENDED = f"{AGENT}:extended_card"


@asynccontextmanager
async def dev(**settings: str) -> AsyncIterator[str]:
    """The base URL of `switchroom dev`."""
    with tempfile.TemporaryDirectory() as folder, processes(Path(folder)) as running:
        process: Process = running.switchroom(
            "dev", AGENT, "--port", "0", environ=environment(**settings)
        )
        process.port = int((await process.said(r"Card +http://[^ ]*:(\d+)/"))[1])
        await until_ready(process)
        yield process.url


@asynccontextmanager
async def distributed(**settings: str) -> AsyncIterator[str]:
    """The base URL of a proxy over two gateways, with two workers behind them."""
    with tempfile.TemporaryDirectory() as folder:
        with deployment(Path(folder), agent=AGENT, **settings) as running:
            await running.start(gateways=2, workers=2)
            async with proxy_over(running.ports) as proxy:
                yield proxy.url
                sys.stdout.write(f"requests per gateway: {proxy.served}\n")


TARGETS: dict[str, Callable[..., AbstractAsyncContextManager[str]]] = {
    "dev": dev,
    "distributed": distributed,
}


def _is_old(kit: Path) -> bool:
    return "--sut-url" in (kit / "run_tck.py").read_text()


def _promises_another(card: str) -> bool:
    """Whether there is an extended card, for which the kit then asks."""
    return bool(json.loads(Path(card).read_text())["capabilities"].get("extendedAgentCard"))


def _asks_for(kit: Path, url: str) -> list[str]:
    """The arguments that have the kit try all it has over HTTP."""
    if _is_old(kit):
        return ["--sut-url", f"{url}/", "--category", "all", "--transports", "jsonrpc,rest"]
    return ["--sut-host", url, "--transport", "jsonrpc,http_json"]


async def _run(kit: Path, python: str, target: str, card: str, extra: list[str]) -> int:
    # The schema of the 1.0 kit forbids in a card what it does not know, as the fields of 0.3.
    versions = "0.3,1.0" if _is_old(kit) else "1.0"
    settings = {"CARD": card, "PROTOCOL_VERSIONS": versions}
    # The kit's receiver is beside it, on plain http and any port; its other one does not exist.
    allowed = "localhost,127.0.0.1,::1,example.com"
    settings |= {"PUSH_HTTP": "true", "PUSH_PORTS": "any", "PUSH_ALLOW": allowed}
    if _promises_another(card):
        # That of 0.3 wants to be refused without credentials, that of 1.0 has none and wants it.
        settings["EXTENDED_CARD"] = card if _is_old(kit) else EXTENDED
    async with TARGETS[target](**settings) as url:
        sys.stdout.write(f"\n=== the kit against {target}, {url}\n")
        sys.stdout.flush()
        command = ["run_tck.py", *_asks_for(kit, url), *extra]
        process = await asyncio.create_subprocess_exec(python, *command, cwd=kit)
        return await process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kit", type=Path, help="a checkout of the kit")
    parser.add_argument("--python", help="a Python with the kit's dependencies")
    parser.add_argument("--target", choices=TARGETS, help="default: one after the other")
    parser.add_argument("--card", default=CARD, help="another card: what it declares is tried")
    parser.add_argument("extra", nargs="*", help="arguments for the kit, after --")
    given = parser.parse_args()
    if not (given.kit / "run_tck.py").is_file():
        sys.exit(f"{given.kit} is no checkout of the conformance kit: it has no run_tck.py.")
    own = given.kit.resolve() / ".venv" / "bin" / "python"
    python = given.python or (str(own) if own.exists() else sys.executable)
    targets = [given.target] if given.target else list(TARGETS)
    codes = [
        asyncio.run(_run(given.kit, python, name, given.card, given.extra)) for name in targets
    ]
    sys.exit(max(codes))


if __name__ == "__main__":
    main()
