"""The OpenAPI 3.1 document of HTTP+JSON 1.0, made from the method table, the models and the errors.

Promises that what it allows is understood, and that every answer is one it describes. It says less
than is understood: null for an absent field, numbers as strings and the names of the proto go
without saying.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from http import HTTPStatus
from typing import Any

from pydantic.json_schema import models_json_schema
from pydantic_core import to_json

import switchroom
from switchroom.gateway.routes import Route, Routes
from switchroom.protocol.errors import ERRORS, ErrorTable
from switchroom.protocol.methods import METHODS, Method
from switchroom.protocol.model import Json

__all__ = ["OPENAPI_PATH", "document", "encoded"]

OPENAPI_PATH = "/openapi.json"

_SCHEMAS = "#/components/schemas/"
_MEDIA_TYPES = ("application/json", "application/a2a+json")
_STREAM: Json = {
    "description": "Server-sent events; the schema is that of one. An `error` is the last.",
    "content": {
        "text/event-stream": {
            "schema": {
                "type": "object",
                "required": ["data"],
                "properties": {
                    "id": {"type": "string", "description": "Its position, for Last-Event-ID."},
                    "event": {"type": "string", "enum": ["message", "error"]},
                    "data": {
                        "type": "string",
                        "contentMediaType": "application/json",
                        "contentSchema": {
                            "anyOf": [
                                {"$ref": _SCHEMAS + "StreamResponse"},
                                {"$ref": _SCHEMAS + "Error"},
                            ]
                        },
                    },
                },
            }
        }
    },
}
_HEADERS: dict[str, Json] = {
    "A2A-Version": {
        "description": "Without it a request speaks 0.3, which has other paths.",
        "required": True,
        "schema": {"type": "string", "enum": ["1.0"]},
    },
    "A2A-Extensions": {
        "description": "URIs of the extensions that the client asks for, separated by commas.",
        "schema": {"type": "string"},
    },
}
_BOUNDS = {"ge": "minimum", "le": "maximum"}  # pydantic's words behind a validator of ours
_ERROR: Json = {
    "description": "A google.rpc.Status (§11.6). The first detail is an ErrorInfo.",
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["code", "status", "message", "details"],
            "properties": {
                "code": {"type": "integer"},
                "status": {"type": "string"},
                "message": {"type": "string"},
                "details": {
                    "type": "array",
                    "minItems": 1,
                    "items": {
                        "type": "object",
                        "required": ["@type"],
                        "properties": {"@type": {"type": "string"}},
                    },
                },
            },
        }
    },
}


@cache
def encoded(table: ErrorTable, rows: tuple[Method, ...]) -> bytes:
    """The document, as it is served."""
    return to_json(document(table, {row.name: row for row in rows}))


def document(table: ErrorTable, methods: Mapping[str, Method] = METHODS) -> Json:
    """The document; `table` is that of the statuses, `methods` those that can be called."""
    schemas, failures = _schemas(methods), dict(_failures(table))
    errors = {code: {"$ref": f"#/components/responses/{code}"} for code in failures}
    paths: Json = {}
    for tenant in ("", "/{tenant}"):
        for route in Routes(("1.0",), methods):
            paths[tenant + route.path] = {
                verb: {**told, "responses": {**told["responses"], **errors}}
                for verb, told in _operations(route, schemas, tenant=bool(tenant))
            }
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "A2A over HTTP+JSON",
            "description": "The operations of the A2A protocol 1.0, as this server speaks them.",
            "version": switchroom.__version__,
        },
        "paths": paths,
        "components": {
            "schemas": {**schemas, "Error": _ERROR},
            "parameters": {n: {"name": n, "in": "header", **h} for n, h in _HEADERS.items()},
            "responses": failures,
        },
    }


def _operations(route: Route, schemas: Json, *, tenant: bool) -> Iterator[tuple[str, Json]]:
    for number, (verb, method) in enumerate(route.methods.items()):
        name = method.name + (f"By{verb.title()}" if number and _has_twice(route, method) else "")
        yield (
            verb.lower(),
            {
                "operationId": name + ("OfTenant" if tenant else ""),
                "parameters": list(_parameters(route, verb, method, schemas, tenant=tenant)),
                **_body(route, verb, method, schemas, tenant=tenant),
                "responses": {"200": _success(method)},
            },
        )


def _has_twice(route: Route, method: Method) -> bool:
    return sum(row is method for row in route.methods.values()) > 1


def _parameters(
    route: Route, verb: str, method: Method, schemas: Json, *, tenant: bool
) -> Iterator[Json]:
    yield from ({"$ref": f"#/components/parameters/{name}"} for name in _HEADERS)
    if tenant:
        yield _in("path", "tenant", {"type": "string", "minLength": 1})
    for name, schema in schemas[method.params.__name__]["properties"].items():
        if f"{{{name}}}" in route.path:
            yield _in("path", name, {**schema, "minLength": 1})
        elif verb != "POST" and not (tenant and name == "tenant"):
            yield _in("query", name, schema)


def _in(place: str, name: str, schema: Json) -> Json:
    required = {"required": True} if place == "path" else {}
    return {"name": name, "in": place, **required, "schema": schema}


def _body(route: Route, verb: str, method: Method, schemas: Json, *, tenant: bool) -> Json:
    if verb != "POST":
        return {}
    name = method.params.__name__
    whole, path = schemas[name], ("/{tenant}" if tenant else "") + route.path
    required = [field for field in whole.get("required", ()) if f"{{{field}}}" not in path]
    schema: Json = {"$ref": _SCHEMAS + name}
    if "{" in path:  # what the path says, the body need not
        said = whole["properties"].items()
        rest = {field: each for field, each in said if f"{{{field}}}" not in path}
        schema = {**whole, "properties": rest, "required": required}
    content = {media_type: {"schema": schema} for media_type in _MEDIA_TYPES}
    return {"requestBody": {"content": content, "required": bool(required)}}


def _success(method: Method) -> Json:
    if method.stream:
        return _STREAM
    result = method.result.__name__ if method.result else None
    schema = {"$ref": _SCHEMAS + result} if result else {"type": "object", "maxProperties": 0}
    content = {media_type: {"schema": schema} for media_type in _MEDIA_TYPES}
    return {"description": "The result.", "content": content}


def _failures(table: ErrorTable) -> Iterator[tuple[str, Json]]:
    """A response for each HTTP status, with the reasons that it can have."""
    reasons: dict[int, dict[str, str]] = {}
    for error in ERRORS:
        http, _ = error().statuses(table)
        reasons.setdefault(http, {}).setdefault(error.reason, error.message)
    for http, told in sorted(reasons.items()):
        lines = [f"- `{reason}`: {message}" for reason, message in told.items()]
        content = {"application/json": {"schema": {"$ref": _SCHEMAS + "Error"}}}
        text = "\n".join([f"{HTTPStatus(http).phrase}. Reasons:", "", *lines])
        yield str(http), {"description": text, "content": content}


def _schemas(methods: Mapping[str, Method]) -> Json:
    models = {row.params for row in methods.values()}
    models |= {row.result for row in methods.values() if row.result}
    ordered = sorted(models, key=lambda model: model.__name__)
    _, found = models_json_schema(
        [(model, "validation") for model in ordered], ref_template=_SCHEMAS + "{model}"
    )
    schemas: Json = _plain(found["$defs"])
    return schemas


def _plain(schema: Any) -> Any:
    """A schema of pydantic's in the keywords of JSON Schema, and without what says nothing."""
    if isinstance(schema, list):
        return [_plain(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    match schema.get("anyOf"):
        case [inner, {"type": "null"}]:  # an absent field, which null is too
            schema = {**inner, **{k: v for k, v in schema.items() if k not in ("anyOf", "default")}}
    plain: Json = {}
    for name, value in schema.items():
        if name == "title" and isinstance(value, str):
            continue
        if name not in _BOUNDS:
            plain[name] = _plain(value)
    # A bound that is given beside one of JSON Schema is the narrower one.
    return plain | {_BOUNDS[name]: schema[name] for name in _BOUNDS if name in schema}
