"""The OpenAPI v2 document as protobuf (gnostic), for Go clients.

client-go requests OpenAPI v2 in protobuf only, and kubectl needs it to validate a manifest of
`kind: List` (the output of `kubectl get -o yaml`). Only definitions are written: these clients do
not use paths, and older ones that do fall back to client-side validation.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any

import msgspec

MEDIA_TYPE = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
# Clients request this name, which is not a valid media type, and expect the other one.
_ASKED = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"

# Field numbers of a Schema, by encoding.
_TEXTS = {"$ref": 1, "format": 2, "title": 3, "description": 4, "pattern": 13}
_DOUBLES = {"multipleOf": 6, "maximum": 7, "minimum": 9}
_FLAGS = {"exclusiveMaximum": 8, "exclusiveMinimum": 10, "uniqueItems": 16}
_COUNTS = {
    "maxLength": 11,
    "minLength": 12,
    "maxItems": 14,
    "minItems": 15,
    "maxProperties": 17,
    "minProperties": 18,
}
_VARINT, _FIXED64, _BYTES = 0, 1, 2


def media_type(accept: str) -> str:
    """Return the binary media type if the client accepts it."""
    return MEDIA_TYPE if _ASKED in accept or MEDIA_TYPE in accept else ""


def encode(document: dict[str, Any]) -> bytes:
    """Encode an OpenAPI v2 document as a gnostic `Document`."""
    info = document["info"]
    pieces = [
        _text(1, document["swagger"]),
        _message(2, [_text(1, info["title"]), _text(2, info["version"])]),
        _message(8, []),
        _message(9, _named_schemas(document["definitions"])),
    ]
    return b"".join(pieces)


def _varint(value: int) -> bytes:
    pieces = bytearray()
    value &= (1 << 64) - 1
    while value > 0x7F:
        pieces.append(value & 0x7F | 0x80)
        value >>= 7
    pieces.append(value)
    return bytes(pieces)


def _bytes(number: int, data: bytes) -> bytes:
    return _varint(number << 3 | _BYTES) + _varint(len(data)) + data


def _text(number: int, text: str) -> bytes:
    return _bytes(number, text.encode())


def _number(number: int, value: int) -> bytes:
    return _varint(number << 3 | _VARINT) + _varint(value)


def _message(number: int, pieces: Iterable[bytes]) -> bytes:
    return _bytes(number, b"".join(pieces))


def _any(number: int, value: Any) -> bytes:
    """Encode any value as YAML, of which JSON is a subset."""
    return _message(number, [_text(2, msgspec.json.encode(value).decode())])


def _named_schemas(schemas: dict[str, Any]) -> list[bytes]:
    return [
        _message(1, [_text(1, name), _bytes(2, _schema(schema))])
        for name, schema in schemas.items()
    ]


def _schema(schema: dict[str, Any]) -> bytes:
    return b"".join(piece for key, value in schema.items() for piece in _keyword(key, value))


def _keyword(key: str, value: Any) -> list[bytes]:
    if key in _TEXTS:
        return [_text(_TEXTS[key], value)]
    if key in _COUNTS:
        return [_number(_COUNTS[key], value)]
    if key in _FLAGS:
        return [_number(_FLAGS[key], int(value))]
    if key in _DOUBLES:
        return [_varint(_DOUBLES[key] << 3 | _FIXED64) + struct.pack("<d", value)]
    if key.startswith("x-"):
        return [_message(31, [_text(1, key), _any(2, value)])]
    match key:
        case "default":
            return [_any(5, value)]
        case "required":
            return [_text(19, name) for name in value]
        case "enum":
            return [_any(20, option) for option in value]
        case "additionalProperties" if isinstance(value, bool):
            return [_message(21, [_number(2, int(value))])]
        case "additionalProperties":
            return [_message(21, [_bytes(1, _schema(value))])]
        case "type":
            return [_message(22, [_text(1, value)])]
        case "items":
            return [_message(23, [_bytes(1, _schema(value))])]
        case "allOf":
            return [_bytes(24, _schema(inner)) for inner in value]
        case "properties":
            return [_message(25, _named_schemas(value))]
    return []
