"""Decode Kubernetes' protobuf format, which Go clients send for built-in kinds.

kubectl and client-go send protobuf and accept JSON, so the server decodes it and responds in JSON.
A body is four magic bytes and an envelope with apiVersion, kind and the message;
`data/protobuf.json` (written by `tools/schemas`) maps field numbers.

Note: Go writes zero values of plain fields and omits nil pointers, so a zero may mean "unset" or
"zero". The table marks pointer fields; zero values of other fields are dropped, as by Go's JSON
encoder.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Iterator
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

import msgspec

from hekla.apiserver import errors
from hekla.units.durations import format_duration_ns
from hekla.units.objects import Object
from hekla.units.timestamps import format_micro_time, format_time

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"
MAGIC = b"k8s\x00"

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_DELETE_OPTIONS = "meta.k8s.io/v1.DeleteOptions"
_MAX_DEPTH = 100


class Malformed(ValueError):
    """The bytes are not a valid message."""


class Field(NamedTuple):
    name: str
    """JSON name; empty if its fields are inlined into the parent."""
    type: str
    container: str
    keeps_zero: bool


@cache
def _messages() -> dict[str, dict[int, Field]]:
    text = resources.files("hekla.apiserver").joinpath("data/protobuf.json").read_bytes()
    table: dict[str, list[tuple[int, str, str, str, int]]] = msgspec.json.decode(text)
    return {
        name: {row[0]: Field(row[1], row[2], row[3], bool(row[4])) for row in rows}
        for name, rows in table.items()
    }


def read(body: bytes) -> Object:
    """Return the object of a body; 400 if malformed, 415 for an unknown kind."""
    if not body.startswith(MAGIC):
        raise errors.bad_request("the body is not Kubernetes protobuf: it lacks its magic number")
    try:
        envelope = {number: value for number, _, value in _parts(memoryview(body)[len(MAGIC) :])}
        names = {number: _text(value) for number, _, value in _parts(envelope.get(1, b""))}
        api_version, kind = names.get(1, ""), names.get(2, "")
        message = f"{api_version}.{kind}"
        if kind == "DeleteOptions":
            message = _DELETE_OPTIONS  # sent with the group of the resource it is used with
        if message not in _messages():
            raise errors.unsupported_media(
                f"protobuf of {api_version} {kind}", ("application/json", "application/yaml")
            )
        obj = _message(envelope.get(2, b""), message, 0)
    except (ValueError, OverflowError, RecursionError, struct.error, TypeError) as error:
        raise errors.bad_request(f"the body is not valid protobuf: {error}") from error
    return {"apiVersion": api_version, "kind": kind, **obj}


def _varint(data: memoryview, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if position >= len(data) or shift > 63:
            raise Malformed("a varint is truncated")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7


def _parts(data: memoryview | bytes) -> Iterator[tuple[int, int, Any]]:
    """Yield the fields of a message: number, wire type and raw value."""
    data = memoryview(data)
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        number, wire = tag >> 3, tag & 7
        if wire == _VARINT:
            value, position = _varint(data, position)
            yield number, wire, value
            continue
        if wire == _BYTES:
            size, position = _varint(data, position)
        elif wire in (_FIXED64, _FIXED32):
            size = 8 if wire == _FIXED64 else 4
        else:
            raise Malformed(f"wire type {wire} is not in use")
        if position + size > len(data):
            raise Malformed("a field is longer than the body")
        yield number, wire, data[position : position + size]
        position += size


def _raw(value: memoryview | bytes | int) -> bytes:
    if isinstance(value, int):  # bytes(n) would succeed with n zero bytes
        raise Malformed("text is encoded as a number")
    return bytes(value)


def _text(value: memoryview | bytes | int) -> str:
    return _raw(value).decode()


def _integer(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value


def _message(data: memoryview | bytes, name: str, depth: int) -> Object:
    if depth > _MAX_DEPTH:
        raise Malformed("messages are nested too deeply")
    fields = _messages()[name]
    obj: Object = {}
    for number, wire, raw in _parts(data):
        field = fields.get(number)
        if field is None:
            continue  # from a newer client: dropped like an unknown field
        if field.container == "{":
            _put_entry(obj.setdefault(field.name, {}), field, raw, depth)
        elif field.container == "[":
            _put_items(obj.setdefault(field.name, []), field, wire, raw, depth)
        else:
            _put_value(obj, field, _value(raw, field.type, depth))
    return obj


def _put_value(obj: Object, field: Field, value: Any) -> None:
    if not field.name:
        obj.update(value)
    elif value is None or (not field.keeps_zero and value in ("", 0, False)):
        obj.pop(field.name, None)
    else:
        obj[field.name] = value


def _put_entry(entries: Object, field: Field, raw: memoryview, depth: int) -> None:
    parts = {number: value for number, _, value in _parts(raw)}
    empty = 0 if field.type in ("i", "b") else b""
    entries[_text(parts.get(1, memoryview(b"")))] = _value(parts.get(2, empty), field.type, depth)


def _put_items(items: list[Any], field: Field, wire: int, raw: Any, depth: int) -> None:
    if field.type in ("i", "b") and wire == _BYTES:  # packed: allowed, but Go does not write it
        position = 0
        while position < len(raw):
            value, position = _varint(raw, position)
            items.append(_value(value, field.type, depth))
        return
    items.append(_value(raw, field.type, depth))


def _value(raw: Any, kind: str, depth: int) -> Any:
    read_special = _SPECIAL.get(kind)
    if read_special is not None:
        return read_special(raw, depth)
    return _message(raw, kind, depth + 1)


# Types with a special JSON form


def _number(raw: Any, depth: int) -> int:
    if not isinstance(raw, int):
        raise Malformed("a number is encoded as something else")
    return _integer(raw)


def _double(raw: memoryview, depth: int) -> float | int:
    value: float = struct.unpack("<d", raw)[0]
    return int(value) if value.is_integer() else value


def _moment(raw: memoryview) -> tuple[int, int] | None:
    """Return seconds and nanoseconds as a time; empty is Go's zero time, null in JSON."""
    parts = {number: value for number, _, value in _parts(raw)}
    return (_integer(parts.get(1, 0)), parts.get(2, 0)) if parts else None


def _time(raw: memoryview, depth: int) -> str | None:
    moment = _moment(raw)
    return format_time(moment[0]) if moment else None


def _micro_time(raw: memoryview, depth: int) -> str | None:
    moment = _moment(raw)
    return format_micro_time(moment[0] + moment[1] / 1e9) if moment else None


def _duration(raw: memoryview, depth: int) -> str:
    parts = {number: value for number, _, value in _parts(raw)}
    return format_duration_ns(_integer(parts.get(1, 0)))


def _quantity(raw: memoryview, depth: int) -> str:
    parts = {number: value for number, _, value in _parts(raw)}
    return _text(parts.get(1, memoryview(b"0")))


def _int_or_string(raw: memoryview, depth: int) -> int | str:
    parts = {number: value for number, _, value in _parts(raw)}
    if parts.get(1, 0):
        return _text(parts.get(3, memoryview(b"")))
    return _integer(parts.get(2, 0))


def _json(raw: memoryview, depth: int) -> Any:
    parts = {number: value for number, _, value in _parts(raw)}
    text = _raw(parts.get(1, b""))
    return msgspec.json.decode(text) if text else None


def _strings(raw: memoryview, depth: int) -> list[str]:
    return [_text(value) for number, _, value in _parts(raw) if number == 1]


_SCHEMA = "apiextensions.k8s.io/v1.JSONSchemaProps"


def _schema_or(
    other: Callable[[memoryview, int], Any], schema: int
) -> Callable[[memoryview, int], Any]:
    """Return a decoder of a schema (if the field of that number is set) or something else."""

    def read_either(raw: memoryview, depth: int) -> Any:
        for number, _, value in _parts(raw):
            if number == schema:
                return _message(value, _SCHEMA, depth + 1)
        return other(raw, depth)

    return read_either


def _schema_list(raw: memoryview, depth: int) -> list[Object]:
    return [_message(value, _SCHEMA, depth + 1) for number, _, value in _parts(raw) if number == 2]


def _allows(raw: memoryview, depth: int) -> bool:
    return any(bool(value) for number, _, value in _parts(raw) if number == 1)


def _property_names(raw: memoryview, depth: int) -> list[str]:
    return [_text(value) for number, _, value in _parts(raw) if number == 2]


_SPECIAL: dict[str, Callable[[Any, int], Any]] = {
    "s": lambda raw, _: _text(raw),
    "i": _number,
    "b": lambda raw, _: bool(raw),
    "d": _double,
    "y": lambda raw, _: base64.b64encode(_raw(raw)).decode(),
    "strings": _strings,
    "time": _time,
    "micro-time": _micro_time,
    "duration": _duration,
    "quantity": _quantity,
    "int-or-string": _int_or_string,
    "json": _json,
    "schema-or-list": _schema_or(_schema_list, 1),
    "schema-or-bool": _schema_or(_allows, 2),
    "schema-or-names": _schema_or(_property_names, 1),
}
