"""The agent card as 0.3 has it (0.3 §5.5), and the one JSON that readers of both versions accept.

Promises a card that the 0.3 schema accepts, from one that is valid 1.0; never changes what it is
given. A scheme of 1.0 is a wrapper of one member, one of 0.3 says its `type`; an entry that is both
at once is read by either. Relies on the models of 1.0 for what is valid.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from switchroom.protocol.model import Json

__all__ = ["card_v03", "core_card", "hybrid_card"]

_VERSION = "0.3.0"  # as cards of 0.3 say it, with the patch

_TYPES = {
    "apiKeySecurityScheme": "apiKey",
    "httpAuthSecurityScheme": "http",
    "oauth2SecurityScheme": "oauth2",
    "openIdConnectSecurityScheme": "openIdConnect",
    "mtlsSecurityScheme": "mutualTLS",
}
_WRAPPERS = {kind: wrapper for wrapper, kind in _TYPES.items()}


def card_v03(card: Json) -> Json:
    """The card of 0.3, from one of 1.0 as JSON.

    Its addresses are the interfaces that speak 0.3, or all where none says so. Without signatures:
    those are over the other shape.
    """
    interfaces = card["supportedInterfaces"]
    spoken = [i for i in interfaces if i["protocolVersion"].startswith("0.3")] or interfaces
    said = {
        **card,
        "protocolVersion": _VERSION,
        "url": spoken[0]["url"],
        "preferredTransport": spoken[0]["protocolBinding"],
        "additionalInterfaces": [
            {"url": each["url"], "transport": each["protocolBinding"]} for each in spoken
        ],
        "capabilities": dict(card["capabilities"]),
        "skills": [_secured(skill) for skill in card["skills"]],
    }
    for name in ("supportedInterfaces", "signatures"):
        said.pop(name, None)
    extended = said["capabilities"].pop("extendedAgentCard", None)
    if extended is not None:
        said["supportsAuthenticatedExtendedCard"] = extended
    if schemes := card.get("securitySchemes"):
        said["securitySchemes"] = {name: _typed(scheme) for name, scheme in schemes.items()}
    return _secured(said)


def hybrid_card(card: Json) -> Json:
    """A card of 1.0 with all that 0.3 wants beside it, for readers of either."""
    old = card_v03(card)
    said = {**old, **card}
    pairs = zip(old["skills"], card["skills"], strict=True)
    said["skills"] = [{**then, **now} for then, now in pairs]
    if schemes := card.get("securitySchemes"):
        said["securitySchemes"] = {
            name: {**old["securitySchemes"][name], **scheme} for name, scheme in schemes.items()
        }
    return said


def core_card(found: Mapping[str, Any]) -> Json:
    """The JSON of 1.0 that a card of 0.3, of 1.0 or of both means, but for its addresses.

    What has not the shape of either is left for the models of 1.0 to refuse.
    """
    card = _required(found)
    capabilities, extended = card.get("capabilities"), card.get("supportsAuthenticatedExtendedCard")
    if isinstance(capabilities, Mapping) and extended is not None:
        card["capabilities"] = {"extendedAgentCard": extended, **capabilities}
    if isinstance(skills := card.get("skills"), list):
        card["skills"] = [_required(s) if isinstance(s, Mapping) else s for s in skills]
    if isinstance(schemes := card.get("securitySchemes"), Mapping):
        card["securitySchemes"] = {name: _wrapped(scheme) for name, scheme in schemes.items()}
    return card


def _secured(value: Json) -> Json:
    """A card or skill whose requirements are said as 0.3 says them."""
    said = dict(value)
    if requirements := said.pop("securityRequirements", None):
        said["security"] = [
            {name: scopes.get("list", []) for name, scopes in each.get("schemes", {}).items()}
            for each in requirements
        ]
    return said


def _required(value: Mapping[str, Any]) -> Json:
    """A card or skill whose requirements are said as 1.0 says them."""
    said = dict(value)
    security = said.pop("security", None)
    if isinstance(security, list):
        security = [
            {"schemes": {name: {"list": scopes} for name, scopes in each.items()}}
            if isinstance(each, Mapping)
            else each
            for each in security
        ]
    return said if security is None else {"securityRequirements": security, **said}


def _typed(scheme: Json) -> Json:
    """A security scheme that says its type. Flows that 0.3 does not know are kept: it skips them,
    and a reader of 1.0 that prefers this shape finds them.
    """
    ((wrapper, inner),) = scheme.items()
    said = {"type": _TYPES[wrapper], **inner}
    if "location" in said:
        said["in"] = said.pop("location")
    if "flows" in said:
        said["flows"] = {name: {"scopes": {}, **flow} for name, flow in said["flows"].items()}
    return said


def _wrapped(scheme: Any) -> Any:
    """A security scheme of 1.0, whichever shape it has."""
    if not isinstance(scheme, Mapping) or scheme.keys() & _TYPES.keys():
        return scheme
    wrapper = _WRAPPERS.get(str(scheme.get("type")))
    if wrapper is None:
        return scheme
    inner = {"location" if name == "in" else name: each for name, each in scheme.items()}
    del inner["type"]
    return {wrapper: inner}
