"""Text formats that several kinds' columns share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hekla.apiserver.tables.age import age
from hekla.units.objects import Object
from hekla.units.quantity import QuantityError, parse_quantity
from hekla.units.selectors import LabelSelector, SelectorError

NONE = "<none>"
UNSET = "<unset>"
LISTED = 3
"""Hosts, addresses or ports that a cell shows before it counts the rest."""


def name_of(obj: Object) -> str:
    return str(obj["metadata"].get("name", ""))


def age_of(obj: Object, now: float) -> str:
    return age(obj["metadata"].get("creationTimestamp"), now)


def part(obj: Object, *path: str) -> Any:
    """Return the object or list at `path`; an empty object if it is unset."""
    value: Any = obj
    for step in path:
        value = (value or {}).get(step)
    return value or {}


def is_terminating(obj: Object) -> bool:
    return "deletionTimestamp" in obj["metadata"]


def labels_text(labels: Mapping[str, str] | None) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted((labels or {}).items())) or NONE


def selector_text(selector: Mapping[str, Any] | None) -> str:
    try:
        return (str(LabelSelector.from_dict(selector)) if selector else "") or NONE
    except SelectorError:
        return "<error>"


def template_texts(template: Object) -> tuple[str, str]:
    """Return names and images of a pod template's containers."""
    containers = part(template, "spec", "containers") or []
    names = ",".join(container.get("name", "") for container in containers)
    return names, ",".join(container.get("image", "") for container in containers)


def quantity_text(value: Any) -> str:
    """Return a quantity in canonical form; `0` for none, as upstream."""
    if value is None:
        return "0"
    try:
        return str(parse_quantity(str(value)))
    except QuantityError:
        return str(value)


def first_few(items: Sequence[str], total: int | None = None) -> str:
    """Return the first few items and the number of the others; empty for none."""
    total = len(items) if total is None else total
    text = ",".join(items[:LISTED])
    return f"{text} + {total - LISTED} more..." if total > LISTED else text


def condition(conditions: Iterable[Object] | None, kind: str) -> str | None:
    """Return the status of a condition, or None if it is missing."""
    for item in conditions or ():
        if item.get("type") == kind:
            return str(item.get("status"))
    return None


def is_true(conditions: Iterable[Object] | None, kind: str) -> bool:
    return condition(conditions, kind) == "True"
