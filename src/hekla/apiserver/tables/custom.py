"""Columns of custom kinds: `additionalPrinterColumns`, or name and age.

Note: a column shows the *first* match of its path, also if the path ends in `[*]`, as in
Kubernetes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from hekla.apiserver.tables.age import age
from hekla.apiserver.tables.columns import AGE, NAME, Column, Printer
from hekla.apiserver.tables.formats import name_of
from hekla.units.jsonpath import PathError, compile_path
from hekla.units.objects import Object

Find = Callable[[Any], list[Any]]

_NAME_AND_AGE: list[Object] = [
    {
        "name": AGE.name,
        "type": "date",
        "jsonPath": ".metadata.creationTimestamp",
        "description": AGE.description,
    }
]


def custom_printer(columns: Sequence[Object]) -> Printer:
    """Return the printer of a CustomResourceDefinition."""
    wanted = columns or _NAME_AND_AGE
    readers = [(_reader(column), column.get("type", "string")) for column in wanted]

    def cells(obj: Object, now: float) -> list[Any]:
        return [name_of(obj), *(cell(find(obj), kind, now) for find, kind in readers)]

    return Printer((NAME, *map(_column, wanted)), cells)


def _column(column: Object) -> Column:
    return Column(
        column.get("name", ""),
        column.get("description") or f"From the object's field {column.get('jsonPath')}.",
        column.get("type", "string"),
        column.get("format") or "",
        column.get("priority") or 0,
    )


def _reader(column: Object) -> Find:
    try:
        return compile_path(column.get("jsonPath", "")).find
    except PathError:
        return lambda _: []  # an invalid column must not fail the table


def cell(values: list[Any], kind: str, now: float) -> Any:
    """Return a value as its column's type; None if it is missing or does not fit."""
    value = values[0] if values else None
    if value is None:
        return None
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    match kind:
        case "string":
            return _text(value)
        case "date":
            return age(value, now) if isinstance(value, str) else None
        case "integer":
            return int(value) if is_number else None
        case "number":
            return float(value) if is_number else None
        case "boolean":
            return value if isinstance(value, bool) else None
    return None


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode()
