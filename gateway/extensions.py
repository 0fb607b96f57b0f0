"""Methods that extensions add (§4.6): a row of the table, and what answers it.

Promises that such a method is called as those of the specification are, on every binding, through
the same checks; and that it is not there for a client that does not name its extension.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias

from switchroom.gateway.context import CallContext
from switchroom.gateway.dispatch import Answer
from switchroom.protocol.card import AgentCard
from switchroom.protocol.methods import METHODS, Method
from switchroom.protocol.model import Json

__all__ = ["AddedMethods", "Answering"]

Answering: TypeAlias = Callable[[Json | None, CallContext], Awaitable[Answer]]
"""What answers a method: its raw params (decode them with `protocol.params.decode`) and the call.
An A2AError that it raises reaches the client as it is."""


class AddedMethods:
    """The request handler of the methods that extensions add.

    Attributes:
        table: All methods that can be called, those of the specification among them.
    """

    def __init__(self, methods: Mapping[Method, Answering], card: AgentCard) -> None:
        """methods: each row with what answers it.

        Raises ValueError for a row that cannot be added: it names no extension of the card, or
        another row has its name or its path.
        """
        declared = {extension.uri for extension in card.capabilities.extensions}
        self.table = dict(METHODS)
        self._answering: dict[str, Answering] = {}
        for row, answering in methods.items():
            if row.extension not in declared:
                raise ValueError(
                    f"The method {row.name} is of the extension {row.extension!r}, which is not "
                    "among capabilities.extensions of the card."
                )
            if taken := _places(row) & {p for other in self.table.values() for p in _places(other)}:
                raise ValueError(
                    f"The method {row.name} cannot be added: there is {min(taken)} already."
                )
            self.table[row.name] = row
            self._answering[row.name] = answering

    async def dispatch(self, method: str, params: Json | None, context: CallContext) -> Answer:
        return await self._answering[method](params, context)


def _places(row: Method) -> set[str]:
    """Where a method can be called: its names, and its paths with their verbs."""
    names = {row.name, row.v03} - {None}
    return {*map(str, names), *(f"{verb} {path}" for verb, path in (*row.rest, *row.rest_v03))}
