"""ProtoJSON: how A2A spells its objects as JSON (§5.5 to §5.7, ADR-001).

Promises: every rule of spelling is in this module and nowhere else.

- Names go out in camelCase; camelCase and snake_case come in. Unknown fields are ignored.
- An explicit ``null`` is an absent field, except where null is a value (``Part.data``).
- Only fields that were given are written, so "unset" and "set to the default" stay different.
  This is also why a list that was never given is to be assigned, not appended to.
- Enums are names; a proto number is understood, an unknown name is an error.
- Bytes are base64: standard or URL-safe in, padding optional; standard with padding out.
- Timestamps: RFC 3339 with any offset and up to nine digits in; UTC, ``Z``, milliseconds out.
- ``metadata``, ``data`` and the like are kept as they are. No number is ever converted.
- What no JSON text can carry (NaN, lone surrogates, endless nesting) is an error here, so that
  nothing that was accepted can fail to be encoded later.

Relies on: pydantic. Wherever an annotation can do the work it does: a validator written in Python
costs more than the rest of its field.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Self, TypeAlias, TypeVar

from annotated_types import MaxLen, MinLen
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    FailFast,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    PlainSerializer,
    PlainValidator,
    Strict,
    WithJsonSchema,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

__all__ = [
    "MAX_DEPTH",
    "Array",
    "Base64",
    "Count",
    "Flag",
    "Id",
    "Int32",
    "Json",
    "Model",
    "Moment",
    "Named",
    "OneOf",
    "Specified",
    "Struct",
    "Text",
    "Value",
    "milliseconds",
    "timestamp",
]

Json: TypeAlias = dict[str, Any]
"""A JSON object, as the standard library and pydantic_core decode one."""

MAX_DEPTH = 100
"""How deep free-form JSON may nest. Decoders stop near 200 (pydantic_core) or 100 (protobuf), and
an event wraps its content a few levels deeper."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)

T = TypeVar("T")


class Named(StrEnum):
    """An enum of the proto: the members stand in the order of their numbers, from zero."""

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: type[Self], handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return _enum_schema(cls, first=0)

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {"type": "string", "enum": [str(member) for member in cls]}


class _Specified:
    def __get_pydantic_core_schema__(
        self, source: type[Named], handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return _enum_schema(source, first=1)

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {"type": "string", "enum": schema["metadata"]["names"]}


N = TypeVar("N", bound=Named)

Specified: TypeAlias = Annotated[N, _Specified()]
"""A required enum: its zero value says "not given", so it counts as missing (§5.7)."""


def _enum_schema(enum: type[Named], *, first: int) -> CoreSchema:
    # Not pydantic's own, which on its way to an error prints the value, however large or deep.
    members = list(enum)
    by_name = {str(member): member for member in members[first:]}
    by_number: dict[float, Named] = dict(enumerate(members[first:], first))
    *names, last = (str(member) for member in members[1:])

    def read(value: object) -> Named:
        if isinstance(value, str):
            found = by_name.get(value)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            found = by_number.get(value)
        else:
            found = None
        if found is None:
            raise PydanticCustomError(
                "enum", "must be {names} or {last}", {"names": ", ".join(names), "last": last}
            )
        return found

    return core_schema.no_info_plain_validator_function(
        read,
        metadata={"names": list(by_name)},
        serialization=core_schema.plain_serializer_function_ser_schema(str, when_used="json"),
    )


def _int32(value: object) -> object:
    """ProtoJSON's int32: a number, ``5.0``, or a numeric string."""
    if isinstance(value, bool):
        raise PydanticCustomError("int32", "must be a whole number")
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,20}", value):
        return int(value)
    if not isinstance(value, int):
        raise PydanticCustomError("int32", "must be a whole number")
    return value


def _bytes(value: object) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, str) and value.isascii():
        standard = value.rstrip("=").translate(_TO_STANDARD)
        try:
            return base64.b64decode(standard + "=" * (-len(standard) % 4), validate=True)
        except binascii.Error:
            pass
    raise PydanticCustomError("base64", "must be a base64 string")


_TO_STANDARD = str.maketrans("-_", "+/")


_BASE64 = "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode("ascii")


_RFC_3339 = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt]((?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9])"
    r"(?:\.([0-9]{1,9}))?(?:[Zz]|([+-](?:[01][0-9]|2[0-3]):[0-5][0-9]))"
)


def _moment(value: object) -> datetime:
    try:
        if isinstance(value, datetime) and value.tzinfo is not None:
            return value.astimezone(UTC)
        if isinstance(value, str) and (match := _RFC_3339.fullmatch(value)):
            date, time, fraction, offset = match.groups()
            found = datetime.fromisoformat(f"{date}T{time}{offset or '+00:00'}")
            microseconds = int((fraction or "0").ljust(6, "0")[:6])
            return found.replace(microsecond=microseconds).astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    raise PydanticCustomError(
        "timestamp", "must be an RFC 3339 time with an offset, like 2026-01-02T03:04:05.678Z"
    )


def _rfc3339(value: datetime) -> str:
    utc = value.astimezone(UTC).replace(tzinfo=None)
    return utc.isoformat(timespec="milliseconds") + "Z"


def timestamp(ms: int) -> str:
    """`ms` milliseconds after the epoch as A2A writes it: ``2026-01-02T03:04:05.678Z`` (§5.6.1)."""
    seconds, rest = divmod(ms, 1000)
    return f"{_second(seconds)}.{rest:03d}Z"


@lru_cache(maxsize=8)
def _second(seconds: int) -> str:
    # Many events share a second, and its digits are most of the work.
    return (_EPOCH + timedelta(seconds=seconds)).replace(tzinfo=None).isoformat()


def milliseconds(moment: datetime) -> int:
    """Milliseconds from the epoch to `moment`, rounded up.

    Up, because it serves "from this moment on" (`ListTasksRequest.status_timestamp_after`): a
    status of the millisecond in which the moment lies is older than the moment.
    """
    return -((_EPOCH - moment) // _MILLISECOND)


def _json(value: object) -> Any:
    """`value` itself, if it is JSON that every later encoder and decoder can take.

    Walks with its own stack: what it guards against is exactly what breaks recursion.
    """
    pending: list[Iterator[object]] = [iter((value,))]
    while pending:
        for item in pending[-1]:
            if isinstance(item, str):
                # A lone surrogate cannot be written as UTF-8. `isascii` only reads a flag.
                if not item.isascii() and _has_surrogate(item):
                    raise PydanticCustomError("unicode", _NOT_UNICODE)
            elif isinstance(item, int):
                if not -_LARGEST < item < _LARGEST:
                    raise PydanticCustomError("digits", "must not hold a number of such length")
            elif isinstance(item, float):
                if not math.isfinite(item):
                    raise PydanticCustomError("finite", "must not hold NaN or Infinity")
            elif isinstance(item, dict):
                pending.append(iter(item.values()))
                for key in item:
                    if not isinstance(key, str):
                        raise PydanticCustomError("json", "must have only strings as names")
                    if not key.isascii() and _has_surrogate(key):
                        raise PydanticCustomError("unicode", _NOT_UNICODE)
                break
            elif isinstance(item, list):
                pending.append(iter(item))
                break
            elif item is not None:
                raise PydanticCustomError("json", "must be a JSON value")
        else:
            pending.pop()
            continue
        if len(pending) > MAX_DEPTH + 1:
            raise PydanticCustomError(
                "depth", "must not nest deeper than {levels} levels", {"levels": MAX_DEPTH}
            )
    return value


_LARGEST = 10**4_200  # Python and pydantic_core read no more than 4,300 digits

_NOT_UNICODE = "must be valid Unicode, without lone surrogates"


def _has_surrogate(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return True
    return False


def _struct(value: object) -> Any:
    if not isinstance(value, dict):
        raise PydanticCustomError("dict_type", "must be an object")
    return _json(value)


# The bound is never met. Having one makes pydantic look into the string, and so refuse lone
# surrogates, which it would otherwise let pass.
_ANY_LENGTH = MaxLen(2**40)

Text: TypeAlias = Annotated[str, Strict(), _ANY_LENGTH, WithJsonSchema({"type": "string"})]
"""Any string, the empty one included."""
Id: TypeAlias = Annotated[str, Strict(), MinLen(1)]
"""A string that must say something."""
Flag: TypeAlias = Annotated[bool, Strict()]
Array: TypeAlias = Annotated[list[T], FailFast()]
"""A list. It stops at its first bad element: a million bad ones are one error, not a million."""
Int32: TypeAlias = Annotated[
    int, Field(strict=True, ge=-(2**31), le=2**31 - 1), BeforeValidator(_int32)
]
Count: TypeAlias = Annotated[Int32, Field(ge=0)]
Struct: TypeAlias = Annotated[Json, PlainValidator(_struct), WithJsonSchema({"type": "object"})]
"""Free-form JSON object, kept as it is."""
Value: TypeAlias = Annotated[Any, PlainValidator(_json)]
Base64: TypeAlias = Annotated[
    bytes,
    PlainValidator(_bytes),
    PlainSerializer(_base64, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "contentEncoding": "base64", "pattern": _BASE64}),
]
Moment: TypeAlias = Annotated[
    datetime,
    PlainValidator(_moment),
    PlainSerializer(_rfc3339, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]
"""A time, aware and in UTC once it is read."""


class Model(BaseModel):
    """An object of the protocol: reads and writes ProtoJSON, by the rules at the top.

    In Python its fields have their snake_case names. A field of the proto that has no presence of
    its own (most strings, lists and flags) is empty when it is absent: ``message.task_id == ""``.
    Every other optional field is None.
    """

    model_config = ConfigDict(
        alias_generator=to_camel,
        validate_by_alias=True,
        validate_by_name=True,
        serialize_by_alias=True,
        extra="ignore",
        ser_json_inf_nan="constants",
        hide_input_in_errors=True,
    )

    _null_is_value: ClassVar[frozenset[str]] = frozenset()

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, values: Any) -> Any:
        if isinstance(values, dict) and None in values.values():
            kept = cls._null_is_value
            return {k: v for k, v in values.items() if v is not None or k in kept}
        return values

    def to_dict(self) -> Json:
        """As plain JSON: camelCase, only what was given. The caller owns the result."""
        return self.model_dump(mode="json", exclude_unset=True)

    def to_json(self) -> bytes:
        """The same as compact UTF-8 text."""
        return self.model_dump_json(exclude_unset=True).encode()


class OneOf(Model):
    """An object of which exactly one of certain members must be given (a proto ``oneof``)."""

    _members: ClassVar[frozenset[str]] = frozenset()
    """The names of the members; empty means all fields."""

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        described = handler(schema)
        members = [n for n in cls.model_fields if n in (cls._members or cls.model_fields)]
        choice = [{"required": [to_camel(name)]} for name in members]
        handler.resolve_ref_schema(described)["oneOf"] = choice
        return described

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        members = self._members or type(self).model_fields.keys()
        if len(self.model_fields_set & members) != 1:
            names = ", ".join(to_camel(n) for n in type(self).model_fields if n in members)
            raise PydanticCustomError("one_of", "needs exactly one of {names}", {"names": names})
        return self
