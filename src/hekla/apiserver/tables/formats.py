"""Pieces of objects as text, the way more than one kind's columns need them."""

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
"""How many hosts, addresses or ports a cell names before it counts the rest."""


def name_of(obj: Object) -> str:
    return str(obj["metadata"].get("name", ""))


def age_of(obj: Object, now: float) -> str:
    return age(obj["metadata"].get("creationTimestamp"), now)


def part(obj: Object, *path: str) -> Any:
    """The object or list below `path`; an empty object when anything on the way is unset."""
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
    """Names and images of a pod template's containers."""
    containers = part(template, "spec", "containers") or []
    names = ",".join(container.get("name", "") for container in containers)
    return names, ",".join(container.get("image", "") for container in containers)


def quantity_text(value: Any) -> str:
    """A quantity in canonical form; `0` for none, as upstream's zero value prints."""
    if value is None:
        return "0"
    try:
        return str(parse_quantity(str(value)))
    except QuantityError:
        return str(value)


def some_of(items: Sequence[str], total: int | None = None) -> str:
    """The first few items, and how many more there are; the empty text for none."""
    total = len(items) if total is None else total
    text = ",".join(items[:LISTED])
    return f"{text} + {total - LISTED} more..." if total > LISTED else text


def condition(conditions: Iterable[Object] | None, kind: str) -> str | None:
    """The status of a condition, or None when it is not there."""
    for item in conditions or ():
        if item.get("type") == kind:
            return str(item.get("status"))
    return None


def is_true(conditions: Iterable[Object] | None, kind: str) -> bool:
    return condition(conditions, kind) == "True"
