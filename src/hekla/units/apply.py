"""Server-side apply: merge a manager's configuration into an object, field by field.

A configuration states fields and values that a manager owns:

1. a field that another manager owns with another value is a conflict, unless forced;
2. a field that the manager applied before and omits now is removed, if it has no other owner;
3. everything else is unchanged.

Note: an applied configuration contains only fields that the manager wants to own; do not send back
a whole object. A null counts as omitted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable, Sequence
from typing import Any, Final

from hekla.units.comparison import (
    UNOWNED,
    UNOWNED_METADATA,
    Changes,
    changes,
    created,
    item_element,
)
from hekla.units.documents import MAX_DEPTH, copy_json, is_too_deep
from hekla.units.errors import ApplyConflict, ApplyError, Conflict, FieldSetError
from hekla.units.fieldsets import (
    SELF,
    FieldSet,
    decode_fields,
    encode_fields,
    field_path,
    intersect,
    iterate,
    subtract,
    union,
)
from hekla.units.ownership import (
    Entry,
    Moment,
    entries_of,
    managed_fields_after_update,
    new_entry,
    sort_entries,
)
from hekla.units.shapes import Shape

__all__ = [
    "ApplyConflict",
    "ApplyError",
    "Conflict",
    "applied_fields",
    "apply",
    "decode_fields",
    "encode_fields",
    "managed_fields_after_update",
]

BEFORE_FIRST_APPLY: Final = "before-first-apply"


def apply(
    live: dict[str, Any] | None,
    applied: dict[str, Any],
    *,
    manager: str,
    force: bool,
    shape: Shape,
    api_version: str,
    now: Moment,
    subresource: str = "",
    ignored: Container[str] = (),
) -> dict[str, Any]:
    """Return the object after `manager` applied a configuration, with its managedFields.

    `live` is None if the object does not exist. `ignored` names top-level fields that this endpoint
    does not write: they are dropped from the configuration. The caller applies defaults afterwards.
    If nothing changes, the result equals `live`, times included.
    """
    config = _checked_config(applied, ignored)
    entries = _entries_of_live(live, shape, api_version, now, subresource)
    last, others = _split(entries, manager, subresource)
    config_fields = applied_fields(config, shape)

    merged = _merge(live if live is not None else {}, config, shape, "")
    owned = config_fields
    for entry in others:
        owned = union(owned, entry.get("fieldsV1") or {})
    if last and (fields := last.get("fieldsV1")):
        merged = _pruned_map(merged, shape, fields, owned)

    difference = Changes({}, {}) if live is None else changes(live, merged, shape, ignored)
    others = _remaining_entries(others, difference, force)
    if config_fields:
        changed = live is None or difference.changed or difference.removed
        own = new_entry(manager, "Apply", api_version, subresource, config_fields, now)
        if last and not changed and _same_entry(last, own):
            own = last
        others.append(own)
    return _finished(merged, sort_entries(others))


def applied_fields(config: dict[str, Any], shape: Shape) -> FieldSet:
    """Return the fields that an applied configuration owns."""
    fields: FieldSet = {}
    for key, value in config.items():
        if key in UNOWNED:
            continue
        if key == "metadata" and isinstance(value, dict):
            value = {name: item for name, item in value.items() if name not in UNOWNED_METADATA}
            below = _owned_fields(value, shape.field(key), key)
            if below:
                fields["f:metadata"] = {name: tree for name, tree in below.items() if name != SELF}
            continue
        below = _owned_fields(value, shape.field(key), key)
        fields["f:" + key] = _with_self(below, value, shape, key)
    return fields


def _owned_fields(value: Any, shape: Shape, path: str) -> FieldSet:
    """Return the tree below a path; {} for a leaf, such as an empty container.

    Kubernetes gives empty maps an owner but not empty lists, so that the latter can never be
    removed.
    """
    if isinstance(value, dict):
        if not value or shape.is_atomic_map:
            return {}
        fields: FieldSet = {}
        for key, item in value.items():
            below = _owned_fields(item, shape.field(key), f"{path}.{key}")
            fields["f:" + key] = _with_self(below, item, shape, key)
        return fields
    if isinstance(value, list) and shape.list_type != "atomic":
        fields = {}
        for element, item in _indexed(value, shape, path).items():
            below = _owned_fields(item, shape.items, path)
            fields[element] = {SELF: {}, **below} if below else {}
        return fields
    return {}


def _with_self(below: FieldSet, value: Any, shape: Shape, key: str) -> FieldSet:
    """Return the tree; keys of a map are owned with their content, declared fields are not."""
    if not below or not isinstance(value, dict) or key in shape.field_names:
        return below
    return {SELF: {}, **below}


def _checked_config(applied: Any, ignored: Container[str]) -> dict[str, Any]:
    if not isinstance(applied, dict):
        raise ApplyError("apply: the configuration must be an object")
    if is_too_deep(applied):
        raise ApplyError(f"apply: the configuration is nested deeper than {MAX_DEPTH} levels")
    metadata = applied.get("metadata")
    if isinstance(metadata, dict) and metadata.get("managedFields") is not None:
        raise ApplyError(
            "apply: metadata.managedFields must be left out; send only the fields you decide"
        )
    kept = {key: value for key, value in applied.items() if key not in ignored}
    config: dict[str, Any] = _without_nulls(kept)
    return config


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


def _entries_of_live(
    live: dict[str, Any] | None, shape: Shape, api_version: str, now: Moment, subresource: str
) -> list[Entry]:
    if live is None:
        return []
    try:
        entries = entries_of(live)
    except FieldSetError as error:
        raise ApplyError(f"apply: the object's own managedFields are broken: {error}") from error
    if entries:
        return entries
    fields = created(live, shape)
    if not fields:
        return []
    return [new_entry(BEFORE_FIRST_APPLY, "Update", api_version, subresource, fields, now)]


def _split(
    entries: Iterable[Entry], manager: str, subresource: str
) -> tuple[Entry | None, list[Entry]]:
    """Return the manager's last applied entry, and the entries of others."""
    last, others = None, []
    for entry in entries:
        if (
            entry["operation"] == "Apply"
            and entry.get("manager", "") == manager
            and entry.get("subresource", "") == subresource
        ):
            last = entry
        else:
            others.append(entry)
    return last, others


def _remaining_entries(others: list[Entry], difference: Changes, force: bool) -> list[Entry]:
    """Return the fields that other managers keep; raise if they own fields that would change."""
    conflicts: list[Conflict] = []
    settled: list[Entry] = []
    for entry in others:
        before = entry.get("fieldsV1") or {}
        if not force and difference.changed:
            conflicts += [
                Conflict(
                    entry.get("manager", ""),
                    entry.get("subresource", ""),
                    entry["apiVersion"],
                    field_path(path),
                )
                for path in sorted(iterate(intersect(before, difference.changed)), key=_by_depth)
            ]
        fields = subtract(subtract(before, difference.changed), difference.removed)
        if fields is before:
            settled.append(entry)
        elif fields:
            settled.append({**entry, "fieldsV1": fields})
    if conflicts:
        raise ApplyConflict(sorted(conflicts, key=lambda conflict: conflict[:3]))
    return settled


def _by_depth(path: Sequence[str]) -> tuple[tuple[bool, str], ...]:
    """Sort as Kubernetes does: paths of a level come before deeper ones."""
    last = len(path) - 1
    return tuple((depth != last, element) for depth, element in enumerate(path))


def _same_entry(last: Entry, own: Entry) -> bool:
    return all(last.get(key) == own[key] for key in ("apiVersion", "fieldsV1"))


def _finished(merged: dict[str, Any], entries: list[Entry]) -> dict[str, Any]:
    metadata = merged.get("metadata")
    bare = {key: value for key, value in (metadata or {}).items() if key != "managedFields"}
    result: dict[str, Any] = copy_json({**merged, "metadata": bare})
    if entries:
        result["metadata"]["managedFields"] = entries
    elif not bare and metadata is None:
        del result["metadata"]
    return result


def _merge(live: Any, config: Any, shape: Shape, path: str) -> Any:
    if isinstance(live, dict) and isinstance(config, dict):
        if shape.is_atomic_map:
            return config
        result = dict(live)
        for key, value in config.items():
            if key in live:
                result[key] = _merge(live[key], value, shape.field(key), f"{path}.{key}")
            else:
                result[key] = value
        return result
    if isinstance(live, list) and isinstance(config, list) and shape.list_type != "atomic":
        return _merged_items(live, config, shape, path)
    return config


def _merged_items(live: list[Any], config: list[Any], shape: Shape, path: str) -> list[Any]:
    """Merge both lists in the configuration's order; other elements stay near their place.

    As in Kubernetes: walk both lists in parallel, take live elements that the configuration does
    not name as they come, and the named ones in the configuration's order.
    """
    config_items = _indexed(config, shape, path)
    present = [(_element(item, shape, path), item) for item in live]
    counts: dict[str, int] = {}
    for element, _ in present:
        counts[element] = counts.get(element, 0) + 1
    # Elements with the same key cannot be merged: the configuration's element replaces them.
    mergeable = {element: item for element, item in present if counts[element] == 1}
    # those on both sides, in order
    order = deque(element for element in config_items if element in counts)
    result: list[Any] = []
    pending = deque(config_items)
    done: set[str] = set()

    def take() -> None:
        element = pending.popleft()
        done.add(element)
        if order and order[0] == element:
            order.popleft()
        value = config_items[element]
        if element in mergeable:
            value = _merge(mergeable[element], value, shape.items, path + _shown(element))
        result.append(value)

    for element, item in present:
        if element not in config_items:
            result.append(item)
        elif element not in done and (not order or order[0] == element):
            while element not in done:
                take()
    while pending:
        take()
    return result


def _indexed(items: list[Any], shape: Shape, path: str) -> dict[str, Any]:
    indexed: dict[str, Any] = {}
    for item in items:
        element = _element(item, shape, path)
        if element in indexed:
            raise ApplyError(f"apply: {path}{_shown(element)} appears twice; keep one of them")
        indexed[element] = item
    return indexed


def _element(item: Any, shape: Shape, path: str) -> str:
    try:
        return item_element(item, shape)
    except ApplyError as error:
        raise ApplyError(f"apply: {path}: {error}") from None


def _shown(element: str) -> str:
    return field_path((element,))


def _pruned_map(
    value: dict[str, Any], shape: Shape, last: FieldSet, owned: FieldSet
) -> dict[str, Any]:
    """Remove the fields of `last` that have no owner any more."""
    result = dict(value)
    declared = shape.field_names
    for element, last_below in last.items():
        key = element[2:]
        if element[:2] != "f:" or key not in value:
            continue
        owned_below = owned.get(element)
        was_claimed = key in declared or not last_below or SELF in last_below
        # Kubernetes drops a map's key with its content as soon as the key itself has no owner. We
        # keep it while any field below it has one.
        if owned_below is None and was_claimed:
            del result[key]
            continue
        pruned = _pruned(value[key], shape.field(key), last_below, owned_below or {})
        if _is_emptied(value[key], pruned, owned_below):
            del result[key]
        else:
            result[key] = pruned
    return result


def _is_emptied(before: Any, after: Any, owned: FieldSet | None) -> bool:
    is_owned = owned is not None and (not owned or SELF in owned)
    return not is_owned and bool(before) and isinstance(after, (dict, list)) and not after


def _pruned(value: Any, shape: Shape, last: FieldSet, owned: FieldSet) -> Any:
    if isinstance(value, dict) and not shape.is_atomic_map:
        return _pruned_map(value, shape, last, owned)
    if isinstance(value, list) and shape.list_type != "atomic":
        return _pruned_list(value, shape, last, owned)
    return value


def _pruned_list(items: list[Any], shape: Shape, last: FieldSet, owned: FieldSet) -> list[Any]:
    kept: list[Any] = []
    for item in items:
        try:
            element = item_element(item, shape)
        except ApplyError:  # an invalid stored element cannot have an owner
            kept.append(item)
            continue
        last_below, held_below = last.get(element), owned.get(element)
        if last_below is None:
            kept.append(item)
            continue
        was_claimed = not last_below or SELF in last_below
        is_held = held_below is not None and (not held_below or SELF in held_below)
        # An element exists while the element itself has an owner: a controller that only set a
        # container's resources does not keep a container that its applier removed.
        if was_claimed and not is_held:
            continue
        kept.append(_pruned(item, shape.items, last_below, held_below or {}))
    return kept
