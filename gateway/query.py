"""What a query says of a method's params (§11.5), as JSON would have it.

Promises that parameters which are no fields are ignored, and that a value is never judged here: the
model does that, as it does for JSON.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, get_args, get_origin
from urllib.parse import parse_qsl

from pydantic.alias_generators import to_camel

from switchroom.protocol.errors import InvalidParams
from switchroom.protocol.model import Json, Model

__all__ = ["queried"]


def queried(model: type[Model], query: bytes, *, proto: bool = False) -> Json:
    """The fields of `model` that a query names; of a field that stands twice, the last.

    proto: whether a field's name in the proto is one too. Raises InvalidParams for a query that is
    no text.
    """
    kinds = _kinds(model, proto=proto)
    params: Json = {}
    try:
        pairs = parse_qsl(query.decode(), keep_blank_values=True, errors="strict")
    except ValueError:
        raise InvalidParams("The query is not percent-encoded UTF-8") from None
    for name, text in pairs:
        kind = kinds.get(name)
        if kind is bool:
            params[name] = {"true": True, "false": False}.get(text, text)
        elif kind is list:
            params.setdefault(name, []).extend(text.split(","))
        elif kind is not None:  # numbers, enums and times are strings in ProtoJSON too
            params[name] = text
    return params


@lru_cache
def _kinds(model: type[Model], *, proto: bool) -> dict[str, type]:
    """For each field by its name: bool, list, or str for all that may be told as a string."""
    kinds = {name: _kind(field.annotation) for name, field in model.model_fields.items()}
    named = {to_camel(name): kind for name, kind in kinds.items()}
    return {**kinds, **named} if proto else named


def _kind(annotation: Any) -> type:
    if annotation is bool:
        return bool
    if get_origin(annotation) is list:
        return list
    return next((kind for each in get_args(annotation) if (kind := _kind(each)) is not str), str)
