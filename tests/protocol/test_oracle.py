"""The official SDK as judge: its protobuf types and ours must read and write the same JSON.

a2a-sdk is a dependency of the tests only.
"""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from a2a.types import a2a_pb2 as pb
from google.api import field_behavior_pb2
from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from hypothesis import given, settings
from hypothesis import strategies as st

from switchroom.protocol import card, event, model, params
from switchroom.protocol.model import Json, Model, Role, TaskState

REQUIRED = field_behavior_pb2.FieldBehavior.Value("REQUIRED")
DESCRIPTORS: dict[str, Descriptor] = dict(pb.DESCRIPTOR.message_types_by_name)


def ours(name: str) -> type[Model]:
    for module in (model, card, params, event):
        if found := getattr(module, name, None):
            assert issubclass(found, Model)
            return found
    raise AssertionError(f"no model for {name}")


def is_required(field: FieldDescriptor) -> bool:
    return REQUIRED in field.GetOptions().Extensions[field_behavior_pb2.field_behavior]


def is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


# --- every field is known -------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(DESCRIPTORS))
def test_every_field_of_every_message_is_known_and_no_other(name: str) -> None:
    theirs = {f.name: f.json_name for f in DESCRIPTORS[name].fields}
    assert {n: f.alias for n, f in ours(name).model_fields.items()} == theirs


@pytest.mark.parametrize("name", list(DESCRIPTORS))
def test_exactly_the_required_fields_are_required(name: str) -> None:
    theirs = {f.name for f in DESCRIPTORS[name].fields if is_required(f)}
    assert {n for n, f in ours(name).model_fields.items() if f.is_required()} == theirs


@pytest.mark.parametrize("name", list(DESCRIPTORS))
def test_what_has_presence_is_none_when_it_is_absent(name: str) -> None:
    for field in DESCRIPTORS[name].fields:
        ours_field = ours(name).model_fields[field.name]
        if is_required(field):
            continue
        assert (ours_field.get_default() is None) is field.has_presence, field.name


@pytest.mark.parametrize("enum", [TaskState, Role])
def test_the_enums_have_the_same_names_and_numbers(enum: type[TaskState] | type[Role]) -> None:
    theirs = pb.DESCRIPTOR.enum_types_by_name[enum.__name__]
    assert {str(m): n for n, m in enumerate(enum)} == {v.name: v.number for v in theirs.values}


# --- their messages, in many spellings ------------------------------------------------------------

texts = st.text(max_size=8)
# Their Struct turns every number into a double; within these bounds that loses nothing.
free_json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)
moments = st.datetimes().map(lambda d: d.isoformat(timespec="milliseconds") + "Z")


def scalars(field: FieldDescriptor, *, required: bool) -> st.SearchStrategy[Any]:
    match field.type:
        case FieldDescriptor.TYPE_STRING:
            return st.text(min_size=1 if required else 0, max_size=8)
        case FieldDescriptor.TYPE_BYTES:
            return st.binary(max_size=8).map(lambda b: base64.b64encode(b).decode())
        case FieldDescriptor.TYPE_BOOL:
            return st.booleans()
        case FieldDescriptor.TYPE_INT32:
            return st.integers(1, 100)
        case FieldDescriptor.TYPE_ENUM:
            names = [v.name for v in field.enum_type.values]
            return st.sampled_from(names[1:] if required else names)
    raise AssertionError(field.full_name)


def values(field: FieldDescriptor, *, required: bool) -> st.SearchStrategy[Any]:
    if field.message_type is None:
        return scalars(field, required=required)
    match field.message_type.full_name:
        case "google.protobuf.Struct":
            return st.dictionaries(texts, free_json, max_size=3)
        case "google.protobuf.Value":
            return free_json
        case "google.protobuf.Timestamp":
            return moments
    return messages(field.message_type)


@st.composite
def messages(draw: st.DrawFn, descriptor: Descriptor) -> Json:
    """A valid message as JSON in its plainest spelling."""
    chosen = {
        draw(st.sampled_from(list(oneof.fields))).name
        for oneof in descriptor.oneofs
        if len(oneof.fields) > 1 or not oneof.name.startswith("_")
    }
    made: Json = {}
    for field in descriptor.fields:
        required = is_required(field)
        in_oneof = field.containing_oneof is not None and len(field.containing_oneof.fields) > 1
        if in_oneof:
            if field.name not in chosen:
                continue
        elif not required and not draw(st.booleans()):
            continue
        # What REQUIRED an SDK peer sets, it sets to something: at its default it would be absent.
        needed = required or (field.name == "url" and not in_oneof)
        if is_map(field):
            value = values(field.message_type.fields_by_name["value"], required=False)
            made[field.json_name] = draw(st.dictionaries(texts, value, min_size=1, max_size=2))
        elif field.is_repeated:
            one = values(field, required=False)
            made[field.json_name] = draw(st.lists(one, min_size=int(needed), max_size=2))
        else:
            made[field.json_name] = draw(values(field, required=needed))
    return made


@st.composite
def respelt(draw: st.DrawFn, descriptor: Descriptor, value: Json) -> Json:
    """The same message in another legal spelling of ProtoJSON."""
    out: Json = {}
    for field in descriptor.fields:
        name = draw(st.sampled_from([field.json_name, field.name]))
        if field.json_name not in value:
            if draw(st.booleans()) and field.name != "data":
                out[name] = None
            continue
        given_value = value[field.json_name]
        if is_map(field):
            inner = field.message_type.fields_by_name["value"]
            out[name] = {k: draw(respelt_value(inner, v)) for k, v in given_value.items()}
        elif field.is_repeated:
            out[name] = [draw(respelt_value(field, v)) for v in given_value]
        else:
            out[name] = draw(respelt_value(field, given_value))
    if draw(st.booleans()):
        out["fieldOfTheFuture"] = draw(free_json)
    return out


def respelt_value(field: FieldDescriptor, value: Any) -> st.SearchStrategy[Any]:
    if field.message_type is not None:
        if field.message_type.full_name == "google.protobuf.Timestamp":
            return st.sampled_from([value, value[:-1] + "000000Z", value[:-1] + "+00:00"])
        if field.message_type.full_name.startswith("google.protobuf."):
            return st.just(value)
        return respelt(field.message_type, value)
    match field.type:
        case FieldDescriptor.TYPE_BYTES:
            safe = value.replace("+", "-").replace("/", "_")
            return st.sampled_from([value, safe, safe.rstrip("="), value.rstrip("=")])
        case FieldDescriptor.TYPE_INT32:
            return st.sampled_from([value, float(value), str(value)])
        case FieldDescriptor.TYPE_ENUM:
            return st.sampled_from([value, field.enum_type.values_by_name[value].number])
    return st.just(value)


def parse(name: str, value: Json) -> Any:
    """As their protobuf reads it; strictly: an unknown field is an error."""
    return json_format.ParseDict(value, getattr(pb, name)())


# The others are parts of these.
ROOTS = sorted(
    set(DESCRIPTORS)
    - {
        inner.message_type.name
        for descriptor in DESCRIPTORS.values()
        for field in descriptor.fields
        for inner in (field.message_type.fields if is_map(field) else [field])
        if inner.message_type is not None
    }
)
# Sixteen messages, three tests, and each example is a whole tree: fewer of them will do.
fewer = settings(max_examples=settings().max_examples // 3)
every_root = pytest.mark.parametrize("name", ROOTS)


@every_root
@fewer
@given(data=st.data())
def test_they_read_what_we_write_and_it_is_what_was_meant(name: str, data: st.DataObject) -> None:
    plain = data.draw(messages(DESCRIPTORS[name]))
    made = ours(name).model_validate(plain)
    assert parse(name, made.to_dict()) == parse(name, plain)
    assert json_format.Parse(made.to_json(), getattr(pb, name)()) == parse(name, plain)


@every_root
@fewer
@given(
    data=st.data(),
    snake=st.booleans(),
    numbers=st.booleans(),
    defaults=st.booleans(),
)
def test_we_read_what_they_write_and_it_is_what_was_meant(
    name: str, data: st.DataObject, snake: bool, numbers: bool, defaults: bool
) -> None:
    theirs = parse(name, data.draw(messages(DESCRIPTORS[name])))
    written = json_format.MessageToDict(
        theirs,
        preserving_proto_field_name=snake,
        use_integers_for_enums=numbers,
        always_print_fields_with_no_presence=defaults,
    )
    read = ours(name).model_validate(written)
    assert parse(name, read.to_dict()) == theirs
    assert ours(name).model_validate_json(json.dumps(written)).to_dict() == read.to_dict()


@every_root
@fewer
@given(data=st.data())
def test_every_legal_spelling_means_the_same_to_both(name: str, data: st.DataObject) -> None:
    plain = data.draw(messages(DESCRIPTORS[name]))
    spelt = data.draw(respelt(DESCRIPTORS[name], plain))
    theirs = json_format.ParseDict(spelt, getattr(pb, name)(), ignore_unknown_fields=True)
    assert theirs == parse(name, plain)
    read = ours(name).model_validate(spelt)
    assert parse(name, read.to_dict()) == theirs
    # Our own spelling is one: what we wrote we read back, and write the same again.
    assert ours(name).model_validate(read.to_dict()).to_dict() == read.to_dict()
