"""Scalars of built-in kinds in their canonical form: quantities, times and binary data.

Go decodes them to values and encodes the values, so `0.5` is stored as `500m` and a time in UTC.
A text that is no such value cannot be decoded. Custom kinds keep what the client wrote, except for
their metadata.

Note: `canonicalize` modifies its argument. It runs on every write, so it walks only the parts of a
kind that have such scalars.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from hekla.api import schemas
from hekla.units.quantity import Quantity, QuantityError

_REF = "#/definitions/"
_TIME = "io.k8s.apimachinery.pkg.apis.meta.v1.Time"
_MICRO_TIME = "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime"
_MILLI = 1_000_000  # nano-units

_CLOCK = re.compile(
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?P<fraction>[.,]\d+)?(Z|[+-]\d\d:\d\d)", re.ASCII
)

Cause = dict[str, str]
Canonical = Callable[[Any], Any]


class Undecodable(ValueError):
    """A text that is no value of its type."""


@dataclass
class Scalars:
    """The parts of a schema with such scalars."""

    children: dict[str, Scalars] = field(default_factory=dict)
    items: Scalars | None = None
    values: Scalars | None = None
    canonical: Canonical | None = None

    def canonicalize(self, value: Any) -> list[Cause]:
        """Write the scalars of `value` in canonical form; return those that cannot be decoded."""
        try:
            self._write(value)
        except Undecodable:
            return list(self._causes(value, ""))
        return []

    def _write(self, value: Any) -> None:
        """As `canonicalize`, without paths, which most objects do not need."""
        if isinstance(value, dict):
            for name, child in self.children.items():
                inner = value.get(name)
                if inner is not None:
                    if child.canonical is not None:
                        value[name] = child.canonical(inner)
                    else:
                        child._write(inner)
            values = self.values
            if values is not None:
                for name, inner in value.items():
                    if values.canonical is not None:
                        value[name] = values.canonical(inner)
                    else:
                        values._write(inner)
        elif isinstance(value, list) and self.items is not None:
            items = self.items
            for index, inner in enumerate(value):
                if items.canonical is not None:
                    value[index] = items.canonical(inner)
                else:
                    items._write(inner)

    def _causes(self, value: Any, path: str) -> Iterator[Cause]:
        if self.canonical is not None:
            try:
                self.canonical(value)
            except Undecodable as error:
                yield {"reason": "FieldValueInvalid", "message": str(error), "field": path}
        elif isinstance(value, dict):
            for name, child in self.children.items():
                if value.get(name) is not None:
                    yield from child._causes(value[name], f"{path}.{name}" if path else name)
            if self.values is not None:
                for name, inner in value.items():
                    yield from self.values._causes(inner, f"{path}[{name}]")
        elif isinstance(value, list) and self.items is not None:
            for index, inner in enumerate(value):
                yield from self.items._causes(inner, f"{path}[{index}]")


def scalars_of(schema: Mapping[str, Any]) -> Scalars | None:
    """Return the scalars of a schema of a built-in kind; None if it has none."""
    return _Builder().build(schema)


class _Builder:
    def __init__(self) -> None:
        self._made: dict[str, Scalars | None] = {}

    def build(self, schema: Mapping[str, Any]) -> Scalars | None:
        if "$ref" in schema:
            return self._reference(schema["$ref"].removeprefix(_REF))
        if schema.get("format") == "byte":
            return Scalars(canonical=_bytes)
        made = Scalars()
        for name, inner in (schema.get("properties") or {}).items():
            child = self.build(inner)
            if child is not None:
                made.children[name] = child
        extra = schema.get("additionalProperties")
        if isinstance(extra, dict):
            made.values = self.build(extra)
            if made.values is not None and made.values.canonical is _quantity:
                # A resource list. Its amounts are rounded up to thousandths, as upstream.
                made.values = Scalars(canonical=_amount)
        if isinstance(schema.get("items"), dict):
            made.items = self.build(schema["items"])
        return made if made.children or made.items or made.values else None

    def _reference(self, name: str) -> Scalars | None:
        leaf = _LEAVES.get(name)
        if leaf is not None:
            return Scalars(canonical=leaf)
        if name not in self._made:
            self._made[name] = None  # ends the recursion: JSON schemas contain themselves
            self._made[name] = self.build(schemas.definitions()[name])
        return self._made[name]


# Objects repeat few amounts and times.
@lru_cache(maxsize=8192, typed=True)
def _quantity(value: Any) -> str:
    try:
        return str(Quantity.parse(value.strip() if isinstance(value, str) else value))
    except QuantityError as error:
        raise Undecodable(str(error)) from error


@lru_cache(maxsize=8192, typed=True)
def _amount(value: Any) -> str:
    text = _quantity(value)
    amount = Quantity.parse(text)
    if amount.nanos % _MILLI:
        return str(Quantity(-(-amount.nanos // _MILLI) * _MILLI, amount.format))
    return text


def _bytes(value: str) -> str:
    text = value.replace("\r", "").replace("\n", "")
    try:
        decoded = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        # Not the value: it may be secret.
        raise Undecodable("must be base64; use stringData for text in a Secret") from error
    return base64.b64encode(decoded).decode()


@lru_cache(maxsize=8192)
def _time(value: str) -> str:
    return _parsed(value).strftime("%Y-%m-%dT%H:%M:%SZ")


@lru_cache(maxsize=8192)
def _micro_time(value: str) -> str:
    found = _CLOCK.fullmatch(value)
    if found is None or len(found["fraction"] or "") != 7:
        raise Undecodable(
            f"{value[:80]!r} must be a time with microseconds, such as 2026-01-02T15:04:05.000000Z"
        )
    return _parsed(value).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _parsed(value: str) -> datetime:
    wrong = f"{value[:80]!r} must be a time (RFC 3339), such as 2026-01-02T15:04:05Z"
    if _CLOCK.fullmatch(value) is None:
        raise Undecodable(wrong)
    try:
        return datetime.fromisoformat(value.replace(",", ".")).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise Undecodable(wrong) from error


_LEAVES: dict[str, Canonical] = {
    schemas.QUANTITY: _quantity,
    _TIME: _time,
    _MICRO_TIME: _micro_time,
}
