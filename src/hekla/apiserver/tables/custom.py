"""Columns of custom kinds: a definition's `additionalPrinterColumns`, or name and age without any.

What a newcomer gets wrong: a column shows the *first* thing its path finds, also where the path
ends in `[*]`. That is how Kubernetes has always shown them.
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
    """The printer a definition asks for."""
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
        return lambda _: []  # one bad column must not take the table away


def cell(found: list[Any], kind: str, now: float) -> Any:
    """One value as its column's type wants it; None where it does not fit or is not there."""
    value = found[0] if found else None
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
