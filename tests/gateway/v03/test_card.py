"""A card of 0.3, and the hybrid: what the official models of each version make of them."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from a2a.client.card_resolver import parse_agent_card
from a2a.compat.v0_3 import conversions, types
from google.protobuf.json_format import MessageToDict

from switchroom.gateway.v03.card import card_v03, core_card, hybrid_card
from switchroom.protocol.card import AgentCard

SCHEMES: dict[str, Any] = {
    "key": {"apiKeySecurityScheme": {"location": "header", "name": "X-Key", "description": "K"}},
    "http": {"httpAuthSecurityScheme": {"scheme": "bearer", "bearerFormat": "JWT"}},
    "oauth": {
        "oauth2SecurityScheme": {
            "flows": {
                "authorizationCode": {
                    "authorizationUrl": "https://a.test/auth",
                    "tokenUrl": "https://a.test/token",
                    "scopes": {"read": "Reads"},
                    "pkceRequired": True,
                }
            },
            "oauth2MetadataUrl": "https://a.test/meta",
        }
    },
    "device": {
        "oauth2SecurityScheme": {
            "flows": {
                "deviceCode": {
                    "deviceAuthorizationUrl": "https://a.test/device",
                    "tokenUrl": "https://a.test/token",
                    "scopes": {"read": "Reads"},
                }
            }
        }
    },
    "implicit": {
        "oauth2SecurityScheme": {"flows": {"implicit": {"authorizationUrl": "https://a.test/auth"}}}
    },
    "oidc": {"openIdConnectSecurityScheme": {"openIdConnectUrl": "https://a.test/oidc"}},
    "mtls": {"mtlsSecurityScheme": {"description": "A certificate"}},
}

CARD: dict[str, Any] = {
    "name": "Echo",
    "description": "Says what you said.",
    "version": "1.2.3",
    "provider": {"organization": "Acme", "url": "https://acme.test"},
    "documentationUrl": "https://acme.test/docs",
    "iconUrl": "https://acme.test/icon.png",
    "supportedInterfaces": [
        {"url": "https://a.test/", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"},
        {"url": "https://a.test", "protocolBinding": "HTTP+JSON", "protocolVersion": "1.0"},
        {"url": "https://a.test/", "protocolBinding": "JSONRPC", "protocolVersion": "0.3"},
        {"url": "https://a.test", "protocolBinding": "HTTP+JSON", "protocolVersion": "0.3"},
    ],
    "capabilities": {
        "streaming": True,
        "pushNotifications": False,
        "extendedAgentCard": True,
        "extensions": [{"uri": "urn:x", "required": True, "params": {"a": 1}}],
    },
    "securitySchemes": SCHEMES,
    "securityRequirements": [
        {"schemes": {"oauth": {"list": ["read"]}, "key": {"list": []}}},
        {"schemes": {"http": {}}},
    ],
    "defaultInputModes": ["text/plain"],
    "defaultOutputModes": ["text/plain"],
    "skills": [
        {
            "id": "echo",
            "name": "Echo",
            "description": "Echoes.",
            "tags": ["demo"],
            "examples": ["Hello"],
            "inputModes": ["text/plain"],
            "outputModes": ["application/json"],
            "securityRequirements": [{"schemes": {"oauth": {"list": ["read"]}}}],
        },
        {"id": "two", "name": "Two", "description": "Second.", "tags": ["demo"]},
    ],
    "signatures": [{"protected": "e30", "signature": "c2ln"}],
}


def read_by_03(card: dict[str, Any]) -> dict[str, Any]:
    """What the official 0.3 model reads, as 1.0 says it."""
    read = types.AgentCard.model_validate(card)
    return MessageToDict(conversions.to_core_agent_card(read))


def expected() -> dict[str, Any]:
    """What a reader of 0.3 can know of CARD, as 1.0 says it."""
    card = copy.deepcopy(CARD)
    card["supportedInterfaces"] = [
        {"url": url, "protocolBinding": binding, "protocolVersion": version}
        for url, binding, version in (
            ("https://a.test/", "JSONRPC", "0.3.0"),
            ("https://a.test/", "JSONRPC", "0.3"),
            ("https://a.test", "HTTP+JSON", "0.3"),
        )
    ]
    schemes = card["securitySchemes"]
    del schemes["oauth"]["oauth2SecurityScheme"]["flows"]["authorizationCode"]["pkceRequired"]
    del schemes["device"]["oauth2SecurityScheme"]["flows"]["deviceCode"]  # a flow of 1.0
    card["securityRequirements"][0]["schemes"]["key"] = {}
    return card


def test_a_client_of_03_learns_all_that_03_can_say() -> None:
    old = card_v03(CARD)
    assert old["protocolVersion"] == "0.3.0"
    assert (old["url"], old["preferredTransport"]) == ("https://a.test/", "JSONRPC")
    assert old["additionalInterfaces"] == [
        {"url": "https://a.test/", "transport": "JSONRPC"},
        {"url": "https://a.test", "transport": "HTTP+JSON"},
    ]
    unsigned = expected()
    del unsigned["signatures"]
    assert read_by_03(old) == unsigned


def test_it_has_no_word_of_10() -> None:
    old = card_v03(CARD)
    for name in ("supportedInterfaces", "securityRequirements", "signatures"):
        assert name not in old
    assert "extendedAgentCard" not in old["capabilities"]
    assert all("securityRequirements" not in skill for skill in old["skills"])
    assert all(scheme["type"] for scheme in old["securitySchemes"].values())
    assert all(
        not scheme.keys() & set(*SCHEMES["key"]) for scheme in old["securitySchemes"].values()
    )


def test_without_an_interface_of_03_it_names_those_there_are() -> None:
    only = CARD | {"supportedInterfaces": CARD["supportedInterfaces"][:1]}
    assert card_v03(only)["url"] == "https://a.test/"


def test_the_hybrid_is_read_by_either_as_if_it_were_its_own() -> None:
    hybrid = hybrid_card(CARD)
    assert read_by_03(hybrid) == expected()
    ours = MessageToDict(parse_agent_card(copy.deepcopy(hybrid)))
    assert ours == MessageToDict(parse_agent_card(copy.deepcopy(CARD)))
    assert AgentCard.model_validate(hybrid) == AgentCard.model_validate(CARD)


@pytest.mark.parametrize("make", [card_v03, hybrid_card, core_card])
def test_what_is_given_is_not_changed(make: Any) -> None:
    before = copy.deepcopy(CARD)
    make(CARD)
    assert before == CARD


def test_whatever_shape_a_card_has_it_means_the_same() -> None:
    meant = AgentCard.model_validate(CARD)
    for shape in (CARD, hybrid_card(CARD)):
        assert AgentCard.model_validate(core_card(shape)) == meant
    old = core_card(card_v03(CARD))
    for name in ("supportedInterfaces", "signatures"):
        old[name] = CARD[name]
    # A flow that says nothing of scopes says in 0.3 that there are none.
    flow = old["securitySchemes"]["implicit"]["oauth2SecurityScheme"]["flows"]["implicit"]
    assert flow.pop("scopes") == {}
    assert AgentCard.model_validate(old) == meant
