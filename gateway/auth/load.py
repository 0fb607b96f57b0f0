"""The gate that the settings ask for."""

from __future__ import annotations

from switchroom.gateway.auth.api_keys import ApiKeys
from switchroom.gateway.auth.gate import Gate, Way
from switchroom.gateway.auth.hook import load_hook
from switchroom.gateway.auth.proxied import ClientCertificate
from switchroom.settings import Settings
from switchroom.store.key_file import FileKeys

__all__ = ["load_gate"]


def load_gate(settings: Settings) -> Gate:
    """A gate with each way that is configured; with none it is open.

    Raises SettingsError: one sentence.
    """
    ways: list[Way] = []
    if settings.api_keys == "redis":
        ways.append(ApiKeys())
    elif settings.api_keys:
        ways.append(ApiKeys(FileKeys(settings.api_keys)))
    if settings.jwt_issuer or settings.jwt_jwks_url:
        # Only here: who takes no tokens need not load what reads them and asks for keys.
        from switchroom.gateway.auth.jwt import JwtBearer

        ways.append(JwtBearer(settings))
    if settings.client_cert_header:
        ways.append(ClientCertificate(settings))
    if settings.auth:
        ways.append(load_hook(settings))
    return Gate(ways)
