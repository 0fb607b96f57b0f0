"""The paths of HTTP+JSON: those of the method table, each of 1.0 also behind a tenant (§11.3).

Promises that a segment's text is decoded once, after the path was split: an encoded slash or colon
belongs to an id, a bare `:cancel` at the end is a verb. A path without tenant comes before one
that looks the same with it, so a tenant cannot be called as the first segment of a path is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import quote, unquote

from starlette.types import Scope

from switchroom.protocol.methods import METHODS, Method

__all__ = ["Found", "Route", "Routes"]


@dataclass(frozen=True, slots=True)
class Route:
    """A path of the table, and the methods behind its verbs.

    path: as in the table; in braces the fields that its segments fill.
    """

    path: str
    version: str
    methods: Mapping[str, Method]


class Found(NamedTuple):
    """A route, and what the path said: fields of the params by their JSON names."""

    route: Route
    fields: dict[str, str]


class Routes:
    """All paths of some versions."""

    def __init__(self, versions: tuple[str, ...], methods: Mapping[str, Method] = METHODS) -> None:
        """versions: those that are spoken, Major.Minor.  methods: those that can be called."""
        tables = {version: _table(version, methods) for version in ("0.3", "1.0")}
        self._routes = [route for version in versions for route in tables[version]]
        self._reserved = {route.path.split("/")[1] for table in tables.values() for route in table}
        self._plain: dict[str, Found] = {}
        self._patterns: dict[int, list[tuple[re.Pattern[str], Route]]] = {}
        tenant = "/(?P<tenant>[^/]+)"
        for before in ("", tenant):
            for route in sorted(self._routes, key=lambda route: ":" not in route.path):
                if before and route.version != "1.0":
                    continue
                if "{" not in route.path and not before:
                    self._plain[route.path] = Found(route, {})
                    continue
                pattern = before + re.sub(
                    r"\\{(\w+)\\}", r"(?P<\1>[^/:][^/]*)", re.escape(route.path)
                )
                slashes = route.path.count("/") + bool(before)
                self._patterns.setdefault(slashes, []).append((re.compile(pattern), route))

    def __iter__(self) -> Iterator[Route]:
        return iter(self._routes)

    def find(self, scope: Scope) -> Found | None:
        """The route of a request's path, whatever its verb."""
        path = _path(scope)
        if found := self._plain.get(path):
            return found
        for pattern, route in self._patterns.get(path.count("/"), ()):
            if match := pattern.fullmatch(path):
                fields = match.groupdict()
                if fields.get("tenant") in self._reserved:
                    continue
                if "%" not in path:
                    return Found(route, fields)
                try:
                    return Found(route, {n: unquote(t, errors="strict") for n, t in fields.items()})
                except UnicodeDecodeError:
                    return None
        return None


def _table(version: str, methods: Mapping[str, Method]) -> list[Route]:
    found: dict[str, dict[str, Method]] = {}
    for row in methods.values():
        for verb, path in row.rest if version == "1.0" else row.rest_v03:
            found.setdefault(path, {})[verb] = row
    return [Route(path, version, methods) for path, methods in found.items()]


def _path(scope: Scope) -> str:
    """The path below where the application is mounted, as it was sent."""
    raw: bytes | None = scope.get("raw_path")
    path = raw.decode("latin-1") if raw else quote(scope["path"], safe="/:")
    root: str = scope.get("root_path", "")
    return path.removeprefix(quote(root, safe="/:")) if root else path
