"""The agent card and all that it holds (§4.4, §4.5).

Promises: a card that validates has every REQUIRED field, and at least one element in every
REQUIRED list (§5.7). Relies on :mod:`switchroom.protocol.protojson` for the rules of JSON.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

from annotated_types import MinLen
from pydantic import FailFast, Field

from switchroom.protocol.protojson import Array, Flag, Id, Model, OneOf, Struct, Text

__all__ = [
    "APIKeySecurityScheme",
    "AgentCapabilities",
    "AgentCard",
    "AgentCardSignature",
    "AgentExtension",
    "AgentInterface",
    "AgentProvider",
    "AgentSkill",
    "AuthorizationCodeOAuthFlow",
    "ClientCredentialsOAuthFlow",
    "DeviceCodeOAuthFlow",
    "HTTPAuthSecurityScheme",
    "ImplicitOAuthFlow",
    "MutualTlsSecurityScheme",
    "OAuth2SecurityScheme",
    "OAuthFlows",
    "OpenIdConnectSecurityScheme",
    "PasswordOAuthFlow",
    "SecurityRequirement",
    "SecurityScheme",
    "StringList",
]

Texts: TypeAlias = Annotated[list[Text], FailFast(), MinLen(1)]
Scopes: TypeAlias = dict[Text, Text]


class AgentProvider(Model):
    """Who offers the agent (§4.4.2)."""

    url: Text
    organization: Text


class AgentExtension(Model):
    """An extension of the protocol that the agent supports (§4.4.4)."""

    uri: Text = ""
    description: Text = ""
    required: Flag = False
    params: Struct | None = None


class AgentCapabilities(Model):
    """What the agent can do beyond the least (§4.4.3). None means the card does not say: no."""

    streaming: Flag | None = None
    push_notifications: Flag | None = None
    extensions: Array[AgentExtension] = Field(default_factory=list)
    extended_agent_card: Flag | None = None


class AgentInterface(Model):
    """An address, and the binding and version spoken there (§4.4.6)."""

    url: Id
    protocol_binding: Id
    tenant: Text = ""
    protocol_version: Id


class AgentCardSignature(Model):
    """A JSON Web Signature over the card (§4.4.7, §8.4)."""

    protected: Id
    signature: Id
    header: Struct | None = None


class APIKeySecurityScheme(Model):
    """An API key in a header, a query parameter or a cookie (§4.5.2)."""

    description: Text = ""
    location: Id
    name: Id


class HTTPAuthSecurityScheme(Model):
    """HTTP authentication, such as Bearer (§4.5.3)."""

    description: Text = ""
    scheme: Id
    bearer_format: Text = ""


class AuthorizationCodeOAuthFlow(Model):
    """§4.5.8."""

    authorization_url: Text
    token_url: Text
    refresh_url: Text = ""
    scopes: Scopes
    pkce_required: Flag = False


class ClientCredentialsOAuthFlow(Model):
    """§4.5.9."""

    token_url: Text
    refresh_url: Text = ""
    scopes: Scopes


class ImplicitOAuthFlow(Model):
    """Deprecated by the specification, still read."""

    authorization_url: Text = ""
    refresh_url: Text = ""
    scopes: Scopes = {}


class PasswordOAuthFlow(Model):
    """Deprecated by the specification, still read."""

    token_url: Text = ""
    refresh_url: Text = ""
    scopes: Scopes = {}


class DeviceCodeOAuthFlow(Model):
    """§4.5.10."""

    device_authorization_url: Text
    token_url: Text
    refresh_url: Text = ""
    scopes: Scopes


class OAuthFlows(OneOf):
    """Exactly one flow (§4.5.7)."""

    authorization_code: AuthorizationCodeOAuthFlow | None = None
    client_credentials: ClientCredentialsOAuthFlow | None = None
    implicit: ImplicitOAuthFlow | None = None
    password: PasswordOAuthFlow | None = None
    device_code: DeviceCodeOAuthFlow | None = None


class OAuth2SecurityScheme(Model):
    """OAuth 2.0 (§4.5.4)."""

    description: Text = ""
    flows: OAuthFlows
    oauth2_metadata_url: Text = ""


class OpenIdConnectSecurityScheme(Model):
    """OpenID Connect (§4.5.5)."""

    description: Text = ""
    open_id_connect_url: Text


class MutualTlsSecurityScheme(Model):
    """Mutual TLS (§4.5.6)."""

    description: Text = ""


class SecurityScheme(OneOf):
    """Exactly one way to authenticate (§4.5.1)."""

    api_key_security_scheme: APIKeySecurityScheme | None = None
    http_auth_security_scheme: HTTPAuthSecurityScheme | None = None
    oauth2_security_scheme: OAuth2SecurityScheme | None = None
    open_id_connect_security_scheme: OpenIdConnectSecurityScheme | None = None
    mtls_security_scheme: MutualTlsSecurityScheme | None = None


class StringList(Model):
    """The scopes of one scheme in a requirement."""

    list: Array[Text] = Field(default_factory=list)


class SecurityRequirement(Model):
    """Schemes that must all be met. A list of requirements is a choice between them."""

    schemes: dict[Text, StringList] = {}


class AgentSkill(Model):
    """A thing the agent is good at (§4.4.5)."""

    id: Text
    name: Text
    description: Text
    tags: Texts
    examples: Array[Text] = Field(default_factory=list)
    input_modes: Array[Text] = Field(default_factory=list)
    output_modes: Array[Text] = Field(default_factory=list)
    security_requirements: Array[SecurityRequirement] = Field(default_factory=list)


class AgentCard(Model):
    """The agent's description of itself (§4.4.1). The first interface is the preferred one."""

    name: Text
    description: Text
    supported_interfaces: Annotated[list[AgentInterface], FailFast(), MinLen(1)]
    provider: AgentProvider | None = None
    version: Text
    documentation_url: Text | None = None
    capabilities: AgentCapabilities
    security_schemes: dict[Text, SecurityScheme] = {}
    security_requirements: Array[SecurityRequirement] = Field(default_factory=list)
    default_input_modes: Texts
    default_output_modes: Texts
    skills: Annotated[list[AgentSkill], FailFast(), MinLen(1)]
    signatures: Array[AgentCardSignature] = Field(default_factory=list)
    icon_url: Text | None = None
