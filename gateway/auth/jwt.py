"""A bearer token that an issuer has signed (JWT: RFC 6750, RFC 7519, RFC 8725) tells who calls.

Promises a caller only for a token with a signature by a key of the issuer, of an algorithm that is
allowed, made for this audience, and at its time; what the token's header says of keys besides an
id is not read. One that was good once costs a hash and a look-up until it ends, or until the
issuer's keys change. Relies on PyJWT for the signature, audience and issuer, on `jwks.py` for keys.
"""

from __future__ import annotations

import hashlib
import math
import time
from base64 import urlsafe_b64decode
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import jwt
from jwt.types import Options
from pydantic_core import from_json

from switchroom.gateway.auth.caller import ORDINARY, Caller, Request
from switchroom.gateway.auth.gate import Way
from switchroom.gateway.auth.jwks import DISCOVERY_PATH, IssuerKeys
from switchroom.gateway.auth.keyset import KeySet
from switchroom.protocol.errors import AuthenticationFailed
from switchroom.protocol.methods import SCOPES, Scope
from switchroom.protocol.model import Json
from switchroom.settings import Settings
from switchroom.store import Store

__all__ = ["JwtBearer"]

_LONGEST = 8192  # characters, as proxies take them
_REMEMBERED = 10_000


class _Proved(NamedTuple):
    caller: Caller
    until: float


class JwtBearer(Way):
    """Believes tokens in `Authorization: Bearer`."""

    challenge = 'Bearer realm="a2a"'

    def __init__(
        self,
        settings: Settings,
        *,
        keys: IssuerKeys | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """keys: in place of those that the settings name.  clock: seconds since 1970."""
        self._keys = keys or IssuerKeys(settings)
        self._discovers = settings.jwt_issuer if settings.jwt_jwks_url is None else None
        self._issuer = settings.jwt_issuer
        self._audience = settings.jwt_audience
        self._tenant_claim = settings.jwt_tenant_claim
        self._algorithms = frozenset(settings.jwt_algorithms)
        self._leeway = settings.jwt_leeway.total_seconds()
        self._clock = clock
        required = ["exp", "aud", "sub", *(["iss"] if self._issuer else [])]
        # The times are read here: PyJWT takes true and "1" for one.
        times = Options(verify_exp=False, verify_nbf=False, verify_iat=False)
        self._options = Options(require=required, **times)
        self._proved: OrderedDict[bytes, _Proved] = OrderedDict()
        self._proved_by: KeySet | None = None

    @property
    def schemes(self) -> Mapping[str, Json]:
        """OpenID Connect where clients can discover the issuer too; else a bearer token."""
        if self._discovers:
            url = self._discovers.rstrip("/") + DISCOVERY_PATH
            return {"openid": {"openIdConnectSecurityScheme": {"openIdConnectUrl": url}}}
        return {"jwt": {"httpAuthSecurityScheme": {"scheme": "Bearer", "bearerFormat": "JWT"}}}

    async def caller(self, request: Request) -> Caller | None:
        """Whom the token names; None without a bearer token."""
        given = request.headers.get(b"authorization")
        if given is None:
            return None
        scheme, _, token = given.partition(b" ")
        if scheme.lower() != b"bearer":
            return None
        token = token.strip()
        known = self._keys.known
        if known is not self._proved_by:
            self._proved.clear()  # also where keys have become too old to be believed
            self._proved_by = known
        digest = hashlib.sha256(token).digest()
        if (proved := self._proved.get(digest)) and self._clock() < proved.until:
            self._proved.move_to_end(digest)
            return proved.caller
        proved = await self._prove(token)
        # The keys may have become others meanwhile.
        if self._proved_by is not None and self._proved_by is self._keys.known:
            self._proved[digest] = proved
            if len(self._proved) > _REMEMBERED:
                self._proved.popitem(last=False)
        return proved.caller

    @asynccontextmanager
    async def running(self, store: Store | None) -> AsyncIterator[None]:
        """Within it the keys are fetched."""
        async with self._keys.running():
            yield

    async def _prove(self, token: bytes) -> _Proved:
        """Raises AuthenticationFailed, and Unavailable where the keys are not known."""
        key_id, algorithm = self._head(token)
        key = await self._keys.find(key_id, algorithm)
        if key is None:
            raise AuthenticationFailed()
        try:
            claims = jwt.decode(
                token,
                key,
                algorithms=[algorithm],
                options=self._options,
                audience=self._audience,
                issuer=self._issuer,
            )
        except jwt.PyJWTError:
            raise AuthenticationFailed() from None
        until = self._end(claims)
        return _Proved(
            Caller(
                claims["sub"],
                self._tenant(claims),
                _scopes(claims),
                credential=f"jwt:{key_id}" if key_id else "jwt",
            ),
            until,
        )

    def _head(self, token: bytes) -> tuple[str | None, str]:
        """The id of the key and the algorithm, if the token is worth a closer look."""
        if len(token) > _LONGEST or token.count(b".") != 2:
            raise AuthenticationFailed()
        head = token.partition(b".")[0]
        try:
            said = from_json(urlsafe_b64decode(head + b"=" * (-len(head) % 4)))
        except ValueError:
            raise AuthenticationFailed() from None
        if not isinstance(said, dict):
            raise AuthenticationFailed()
        key_id, algorithm = said.get("kid"), said.get("alg")
        if not isinstance(algorithm, str) or algorithm not in self._algorithms:
            raise AuthenticationFailed()
        # `crit` names what must be understood, and nothing it could name is (RFC 7515 §4.1.11).
        if "crit" in said or not (key_id is None or isinstance(key_id, str)):
            raise AuthenticationFailed()
        return key_id, algorithm

    def _end(self, claims: Json) -> float:
        """When the token ends. Raises AuthenticationFailed if it has, or has not begun."""
        now = self._clock()
        exp, begins = _time(claims["exp"]), [_time(claims.get(name, 0)) for name in ("nbf", "iat")]
        if exp + self._leeway <= now or max(begins) - self._leeway > now:
            raise AuthenticationFailed()
        return exp + self._leeway

    def _tenant(self, claims: Json) -> str:
        if self._tenant_claim is None:
            return ""
        tenant = claims.get(self._tenant_claim)
        if not isinstance(tenant, str) or not tenant:
            raise AuthenticationFailed()
        return tenant


def _time(value: Any) -> float:
    """Seconds since 1970 (NumericDate, RFC 7519 §2)."""
    try:
        seconds = float(value) if type(value) in (int, float) else math.nan
    except OverflowError:
        seconds = math.nan
    if not math.isfinite(seconds):
        raise AuthenticationFailed()
    return seconds


def _scopes(claims: Json) -> frozenset[Scope]:
    """Those of ours that `scope`, or else `scp`, lists between spaces (RFC 8693 §4.2) or as a list;
    what is usual if it lists none of ours.
    """
    listed = claims.get("scope", claims.get("scp", ""))
    names = listed.split() if isinstance(listed, str) else listed
    if not isinstance(names, list):
        raise AuthenticationFailed()
    return frozenset(scope for scope in SCOPES if scope in names) or ORDINARY
