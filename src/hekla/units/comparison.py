"""Field sets of an object, and of the changes between two versions of it.

An atomic list or map is one leaf, and so is an empty container. A new container is a field itself,
in addition to its content; an existing one is not.

Every write of the server calls `changes`, so it descends only where old and new differ; `==` on
dicts runs in C. (It also equates `True` with `1`; a schema does not let one replace the other, and
at worst an owner is not updated.)
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any, Final, NamedTuple

from hekla.units.errors import ApplyError
from hekla.units.fieldsets import SELF, FieldSet, key_element, value_element
from hekla.units.shapes import Shape

__all__ = [
    "Changes",
    "Duplicates",
    "all_fields",
    "changes",
    "created",
    "index_items",
    "item_element",
]

UNOWNED: Final = frozenset({"apiVersion", "kind"})
UNOWNED_METADATA: Final = frozenset(
    {
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "selfLink",
        "clusterName",
        "managedFields",
    }
)
"""Fields that the server writes and no manager owns."""


class Changes(NamedTuple):
    """Field sets: added or changed fields, and removed fields."""

    changed: FieldSet
    removed: FieldSet


class Duplicates(list[Any]):
    """List elements with the same key; together they count as one atomic value."""


def created(new: dict[str, Any], shape: Shape, ignored: Container[str] = ()) -> FieldSet:
    """Return the fields of a new object."""
    fields: FieldSet = {}
    for key, value in new.items():
        if key in UNOWNED or key in ignored:
            continue
        if key == "metadata":
            if metadata := _created_metadata(value, shape.field(key)):
                fields["f:metadata"] = metadata
        elif isinstance(value, (dict, list)):
            fields["f:" + key] = all_fields(value, shape.field(key))
        else:
            fields["f:" + key] = {}
    return fields


def _created_metadata(metadata: Any, shape: Shape) -> FieldSet:
    return {
        "f:" + key: all_fields(value, shape.field(key))
        for key, value in (metadata or {}).items()
        if key not in UNOWNED_METADATA
    }


def all_fields(value: Any, shape: Shape) -> FieldSet:
    """Return the value and everything in it, as a tree below its path."""
    if isinstance(value, dict):
        if not value or shape.is_atomic_map:
            return {}
        fields: FieldSet = {SELF: {}}
        for key, item in value.items():
            if isinstance(item, (dict, list)):
                fields["f:" + key] = all_fields(item, shape.field(key))
            else:
                fields["f:" + key] = {}
        return fields
    if isinstance(value, list) and value and shape.list_type != "atomic":
        items = index_items(value, shape)
        if items is not None:
            return {SELF: {}, **{key: _item_fields(item, shape) for key, item in items.items()}}
    return {}


def _item_fields(item: Any, shape: Shape) -> FieldSet:
    return {} if isinstance(item, Duplicates) else all_fields(item, shape.items)


def changes(
    old: dict[str, Any], new: dict[str, Any], shape: Shape, ignored: Container[str] = ()
) -> Changes:
    """Return the differences between two versions of an object."""
    changed: FieldSet = {}
    removed: FieldSet = {}
    for key in (*new, *(key for key in old if key not in new)):
        if key in UNOWNED or key in ignored:
            continue
        before, after = old.get(key, _ABSENT), new.get(key, _ABSENT)
        if before is after or before == after:
            continue
        child = shape.field(key)
        if key == "metadata":
            before, after = _owned_metadata(before), _owned_metadata(after)
        _record(changed, removed, "f:" + key, before, after, child)
    return Changes(changed, removed)


def _owned_metadata(metadata: Any) -> dict[str, Any]:
    if not isinstance(metadata, dict):
        return {}
    return {key: value for key, value in metadata.items() if key not in UNOWNED_METADATA}


class _Absent:
    __slots__ = ()


_ABSENT: Final = _Absent()


def _record(
    changed: FieldSet, removed: FieldSet, element: str, before: Any, after: Any, shape: Shape
) -> None:
    """Compare one field and record the result under `element`."""
    if before is _ABSENT:
        changed[element] = all_fields(after, shape)
    elif after is _ABSENT:
        removed[element] = all_fields(before, shape)
    elif before is not after and before != after:
        below_changed, below_removed = _differences(before, after, shape)
        if below_changed is not None:
            changed[element] = below_changed
        if below_removed is not None:
            removed[element] = below_removed


def _differences(before: Any, after: Any, shape: Shape) -> tuple[FieldSet | None, FieldSet | None]:
    """Return the trees of changed and removed fields at and below a path; None for none."""
    # null equals an empty container of the other side's type
    if before is None and isinstance(after, (dict, list)):
        before = type(after)()
    elif after is None and isinstance(before, (dict, list)):
        after = type(before)()
    if isinstance(before, dict) and isinstance(after, dict):
        if not shape.is_atomic_map and (before or after):
            return _map_differences(before, after, shape)
    elif (
        isinstance(before, list)
        and isinstance(after, list)
        and shape.list_type != "atomic"
        and (before or after)
    ):
        old_items, new_items = index_items(before, shape), index_items(after, shape)
        if old_items is not None and new_items is not None:
            return _list_differences(old_items, new_items, shape)
    elif isinstance(before, (dict, list)) or isinstance(after, (dict, list)):
        return all_fields(after, shape), all_fields(before, shape)  # another type
    return {}, None


def _map_differences(
    before: dict[str, Any], after: dict[str, Any], shape: Shape
) -> tuple[FieldSet | None, FieldSet | None]:
    changed: FieldSet = {}
    removed: FieldSet = {}
    for key, value in after.items():
        previous = before.get(key, _ABSENT)
        if previous is not value and previous != value:
            _record(changed, removed, "f:" + key, previous, value, shape.field(key))
    for key, value in before.items():
        if key not in after:
            removed["f:" + key] = all_fields(value, shape.field(key))
    return changed or None, removed or None


def _list_differences(
    before: dict[str, Any], after: dict[str, Any], shape: Shape
) -> tuple[FieldSet | None, FieldSet | None]:
    changed: FieldSet = {}
    removed: FieldSet = {}
    for element, item in after.items():
        previous = before.get(element, _ABSENT)
        were_many, are_many = isinstance(previous, Duplicates), isinstance(item, Duplicates)
        if previous is _ABSENT:
            changed[element] = _item_fields(item, shape)
        elif were_many and are_many:
            if previous != item:
                changed[element] = {}
        elif were_many or are_many:
            removed[element] = _item_fields(previous, shape)
            changed[element] = _item_fields(item, shape)
        else:
            _record(changed, removed, element, previous, item, shape.items)
    for element, item in before.items():
        if element not in after:
            removed[element] = _item_fields(item, shape)
    return changed or None, removed or None


def index_items(items: list[Any], shape: Shape) -> dict[str, Any] | None:
    """Return elements by path element, or None if keys are ambiguous: then the list is atomic.

    Note: writes other than apply must not fail because of an invalid list that is already stored.
    """
    found: dict[str, Any] = {}
    for item in items:
        try:
            element = item_element(item, shape)
        except ApplyError:
            return None
        if element not in found:
            found[element] = item
        elif isinstance(found[element], Duplicates):
            found[element].append(item)
        else:
            found[element] = Duplicates([found[element], item])
    return found


def item_element(item: Any, shape: Shape) -> str:
    """Return the path element of an element of a set or a map list."""
    if shape.list_type == "set":
        if item is None or isinstance(item, (dict, list)):
            raise ApplyError(f"an element of a set must be a plain value, not {item!r}")
        return value_element(item)
    names = shape.list_keys
    if not isinstance(item, dict):
        raise ApplyError(f"an element must be an object with {_listed(names)}, not {item!r}")
    if len(names) == 1:
        value = item.get(names[0])
        if value is not None:
            return key_element(((names[0], value),))
    pairs = []
    for name in sorted(names):
        value = item.get(name)
        if value is None:
            value = shape.items.default_of(name)
        if value is not None:  # a key may be absent if another is present
            pairs.append((name, value))
    if not pairs:
        raise ApplyError(f"an element lacks its key {_listed(names)}; add it")
    return key_element(pairs)


def _listed(names: tuple[str, ...]) -> str:
    return " and ".join(map(repr, names))
