"""An issuer of tokens (OpenID Connect) on a port of its own, which can be as bad as one wishes.

Promises real HTTP, so that what it does on the wire (hang, drip, flood) is what a gateway meets.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import ssl
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from functools import cache, partial
from typing import Any, Literal, TypeAlias
from urllib.parse import parse_qs, urlsplit

import httpx2
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from switchroom.gateway.auth import jwks

__all__ = [
    "AUDIENCE",
    "Issuer",
    "Mood",
    "PrivateKey",
    "issuer_at_work",
    "jwk_of",
    "rsa_key",
    "without_tls",
]

AUDIENCE = "switchroom"

PrivateKey: TypeAlias = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey
Mood: TypeAlias = Literal[
    "well", "hangs", "fails", "drips", "floods", "redirects", "garbage", "a list", "packed", "gone"
]


def without_tls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys are fetched without the world's certificates: to load them takes longer than a test."""
    bare = partial(httpx2.AsyncClient, verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
    monkeypatch.setattr(jwks.httpx2, "AsyncClient", bare)


@cache
def rsa_key(number: int = 0, bits: int = 2048) -> rsa.RSAPrivateKey:
    """The same one for the same number: they take long to make."""
    return rsa.generate_private_key(65537, bits)


def jwk_of(key: PrivateKey, **members: Any) -> dict[str, Any]:
    """The public half, as a JSON Web Key."""
    public = key.public_key()
    match public:
        case rsa.RSAPublicKey():
            found = RSAAlgorithm.to_jwk(public, as_dict=True)
        case ec.EllipticCurvePublicKey():
            found = ECAlgorithm.to_jwk(public, as_dict=True)
        case ed25519.Ed25519PublicKey():
            found = OKPAlgorithm.to_jwk(public, as_dict=True)
    found.pop("key_ops", None)
    return {**found, **members}


class Issuer:
    """What it publishes and signs.

    keys: by id, each with its algorithm; the last one signs.  mood: how it answers.  discovery: in
    place of what it should say of itself.  asked: the paths that were asked for.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.keys: dict[str, tuple[str, PrivateKey]] = {}
        self.mood: Mood = "well"
        self.discovery: dict[str, Any] = {}
        self.published: dict[str, Any] | None = None
        self.headers: dict[str, str] = {}
        self.asked: list[str] = []
        self.cut = asyncio.Event()
        self._answering: set[asyncio.Task[None]] = set()
        self.rotate("first")

    def rotate(self, kid: str, *, keep: bool = False) -> None:
        """A new key signs; the others are forgotten, or kept."""
        if not keep:
            self.keys.clear()
        self.keys[kid] = ("ES256", ec.generate_private_key(ec.SECP256R1()))

    def claims(self, **claims: Any) -> dict[str, Any]:
        """Those of a good token; None leaves one out."""
        now = int(time.time())
        usual = {
            "iss": self.url,
            "aud": AUDIENCE,
            "sub": "alice",
            "iat": now,
            "exp": now + 300,
        }
        return {name: value for name, value in {**usual, **claims}.items() if value is not None}

    def token(self, *, head: Mapping[str, Any] | None = None, **claims: Any) -> str:
        """A good one, but for these claims and members of its header."""
        kid, (algorithm, key) = list(self.keys.items())[-1]
        headers = {"kid": kid, **(head or {})}
        return jwt.encode(self.claims(**claims), key, algorithm=algorithm, headers=headers)

    @property
    def key_set(self) -> dict[str, Any]:
        """What it publishes."""
        listed = [jwk_of(key, kid=kid, alg=alg, use="sig") for kid, (alg, key) in self.keys.items()]
        return {"keys": listed} if self.published is None else self.published

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request."""
        task = asyncio.current_task()
        assert task is not None
        self._answering.add(task)
        try:
            await self._answer(reader, writer)
        finally:
            writer.close()
            self._answering.discard(task)

    async def close(self) -> None:
        """Leave no answer half told."""
        self.cut.set()
        for task in (answering := tuple(self._answering)):
            task.cancel()
        await asyncio.gather(*answering, return_exceptions=True)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            line = (await reader.readuntil(b"\r\n\r\n")).decode().partition("\r\n")[0]
            target = urlsplit(line.split()[1])
            self.asked.append(target.path)
            if target.path == "/token":  # not the standard's: what a client of ours asks for one
                lifetime = int(parse_qs(target.query)["lifetime"][0])
                now = int(time.time())
                told: Any = {"token": self.token(iat=now - 3600, exp=now + lifetime)}
            elif target.path == "/keys":
                told = self.key_set
            else:
                keys = f"{self.url}/keys"
                told = {"issuer": self.url, "jwks_uri": keys, **self.discovery}
            mood = "well" if target.path == "/token" else self.mood
            await self._say(json.dumps(told).encode(), mood, writer)

    async def _say(self, body: bytes, mood: Mood, writer: asyncio.StreamWriter) -> None:
        length = 0
        status, headers = 200, {"Content-Type": "application/json", **self.headers}
        match mood:
            case "hangs":
                await self.cut.wait()
                return
            case "gone":
                return
            case "fails":
                status = 500
            case "redirects":
                status, headers["Location"] = 302, f"{self.url}/elsewhere"
            case "garbage":
                body = b"<html>\xff"
            case "a list":
                body = b"[" + body + b"]"
            case "packed":
                headers["Content-Encoding"] = "gzip"
                body = gzip.compress(body)
            case "floods":
                length = 10 * 1024 * 1024 * 1024
        head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        writer.write(
            f"HTTP/1.1 {status} -\r\n{head}Content-Length: {length or len(body)}\r\n"
            "Connection: close\r\n\r\n".encode()
        )
        if mood == "drips":
            for byte in body:
                writer.write(bytes([byte]))
                await writer.drain()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self.cut.wait(), 0.02)
            return
        writer.write(body)
        while mood == "floods":
            try:
                writer.write(bytes(65536))
                await writer.drain()
            except ConnectionError:
                self.cut.set()
                raise


@asynccontextmanager
async def issuer_at_work() -> AsyncIterator[Issuer]:
    """An issuer that listens as long as the block lasts."""
    issuer = Issuer("")
    server = await asyncio.start_server(issuer.answer, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    issuer.url = f"http://{host}:{port}"
    try:
        yield issuer
    finally:
        server.close()
        await issuer.close()
        await server.wait_closed()
