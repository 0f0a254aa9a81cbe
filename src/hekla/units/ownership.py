"""Field ownership: `metadata.managedFields` after a create, update or patch.

Entries are identified by manager, operation and subresource, and updates also by API version.

Note: ownership follows changes, not requests. A manager that sends a whole object owns only the
fields that it changed, and a manager that removes a field owns nothing.
"""

from __future__ import annotations

from collections.abc import Container
from datetime import datetime
from typing import Any, Final, TypeAlias, TypedDict, cast

from hekla.units.comparison import changes, created
from hekla.units.errors import FieldSetError
from hekla.units.fieldsets import SELF, FieldSet, check_fields, subtract, union
from hekla.units.shapes import Shape
from hekla.units.timestamps import format_time

__all__ = [
    "MAX_UPDATE_MANAGERS",
    "Entry",
    "Moment",
    "entries_of",
    "managed_fields_after_update",
    "new_entry",
    "sort_entries",
]


class Entry(TypedDict, total=False):
    """An entry of `metadata.managedFields`."""

    manager: str
    operation: str
    apiVersion: str
    time: str
    fieldsType: str
    fieldsV1: dict[str, Any]
    subresource: str


Moment: TypeAlias = float | datetime | str
"""Unix seconds, an aware datetime, or its text."""

MAX_UPDATE_MANAGERS: Final = 10
ANCIENT: Final = "ancient-changes"


def managed_fields_after_update(
    old: dict[str, Any] | None,
    new: dict[str, Any],
    *,
    manager: str,
    api_version: str,
    now: Moment,
    shape: Shape,
    subresource: str = "",
    ignored: Container[str] = (),
    blank: dict[str, Any] | None = None,
) -> list[Entry]:
    """Return the entries of `new` when `manager` writes it over `old` (None on create).

    `blank` is an empty object of the kind: the creator owns the fields beyond it. `ignored` names
    top-level fields that this endpoint resets, so that they get no owner: `status` on the main
    resource, for example. If nothing changed, the result is the same list object as before.
    """
    entries = _entries_before(old, new, subresource)
    removed: FieldSet = {}
    if old is None:
        changed = created(new, shape, ignored)
        if blank is not None:
            changed = _without_members(changed, blank)
    elif not entries:
        return []  # not tracked so far: the first apply starts it, as in Kubernetes
    else:
        changed, removed = changes(old, new, shape, ignored)
    if not changed and not removed:
        return entries
    identity = (manager or "unknown", "Update", api_version, subresource)
    result: list[Entry] = []
    own: FieldSet = {}
    for entry in entries:
        before = entry.get("fieldsV1") or {}
        fields = subtract(subtract(before, changed), removed)
        if changed and _identity(entry) == identity:
            own = fields
        elif fields is before:
            result.append(entry)
        elif fields:
            result.append({**entry, "fieldsV1": fields})
    if changed:
        result.append(new_entry(*identity, union(own, changed), now))
    return sort_entries(_capped(result))


def _without_members(fields: FieldSet, blank: dict[str, Any]) -> FieldSet:
    """Remove the parts that an empty object has too; fields below them remain."""
    made: FieldSet = {}
    for element, below in fields.items():
        name = element.removeprefix("f:")
        if not below or name not in blank:
            made[element] = below
            continue
        inner = blank[name] if isinstance(blank[name], dict) else {}
        kept = {key: value for key, value in below.items() if key != SELF}
        made[element] = _without_members(kept, inner)
    return made


def new_entry(
    manager: str,
    operation: str,
    api_version: str,
    subresource: str,
    fields: FieldSet,
    now: Moment,
) -> Entry:
    entry: Entry = {
        "manager": manager,
        "operation": operation,
        "apiVersion": api_version,
        "time": now if isinstance(now, str) else format_time(now),
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
    }
    if subresource:
        entry["subresource"] = subresource
    return entry


def sort_entries(entries: list[Entry]) -> list[Entry]:
    """Sort appliers first, then by time; ties by name, version and subresource."""
    if len(entries) > 1:
        entries.sort(key=_order)
    return entries


def _order(entry: Entry) -> tuple[str, str, str, str, str]:
    return (
        entry["operation"],
        entry.get("time") or "",  # RFC 3339 in UTC sorts as text
        entry.get("manager", ""),
        entry["apiVersion"],
        entry.get("subresource", ""),
    )


def _identity(entry: Entry) -> tuple[str, str, str, str]:
    return (
        entry.get("manager", ""),
        entry["operation"],
        entry["apiVersion"],
        entry.get("subresource", ""),
    )


def _entries_before(
    old: dict[str, Any] | None, new: dict[str, Any], subresource: str
) -> list[Entry]:
    """Return the entries to start from: those of the request, else those of the object.

    A client may edit managedFields on the main resource; `[]` or `[{}]` clears them. Omitting them
    or sending invalid ones does not delete them.
    """
    stored = _raw_entries(old)
    sent = _raw_entries(new)
    if sent is not None and not subresource and sent is not stored and sent != stored:
        if sent in ([], [{}]):
            return []
        checked = _checked(sent)
        if checked:
            return checked
    if stored is None:
        return []
    return stored if all(map(_is_entry, stored)) else []


def _raw_entries(item: dict[str, Any] | None) -> list[Any] | None:
    metadata = item.get("metadata") if item else None
    entries = metadata.get("managedFields") if metadata else None
    return entries if isinstance(entries, list) else None


def _is_entry(entry: Any) -> bool:
    return (
        isinstance(entry, dict)
        and entry.get("operation") in ("Apply", "Update")
        and isinstance(entry.get("apiVersion"), str)
        and entry.get("fieldsType") == "FieldsV1"
    )


def _checked(entries: list[Any]) -> list[Entry]:
    try:
        return [
            {**cast(Entry, entry), "fieldsV1": check_fields(entry.get("fieldsV1") or {})}
            for entry in entries
            if _is_entry(entry) or _reject(entry)
        ]
    except FieldSetError:
        return []


def _reject(entry: Any) -> bool:
    raise FieldSetError(f"managedFields: {entry!r} needs operation, apiVersion and fieldsType")


def entries_of(item: dict[str, Any] | None) -> list[Entry]:
    """Return the entries of a stored object; raise FieldSetError if they are invalid."""
    entries = _raw_entries(item) or []
    for entry in entries:
        _is_entry(entry) or _reject(entry)
    return entries


def _capped(entries: list[Entry]) -> list[Entry]:
    """Merge the oldest updates of one API version, so that the list stays bounded."""
    updates = [entry for entry in entries if entry["operation"] == "Update"]
    surplus = len(updates) - MAX_UPDATE_MANAGERS
    if surplus <= 0:
        return entries
    kept = [entry for entry in entries if entry["operation"] != "Update"]
    buckets = {
        entry["apiVersion"]: entry
        for entry in updates
        if _identity(entry) == (ANCIENT, "Update", entry["apiVersion"], "")
    }
    others = [entry for entry in updates if entry is not buckets.get(entry["apiVersion"])]
    for entry in sorted(others, key=_order):
        version = entry["apiVersion"]
        bucket = buckets.get(version)
        if surplus <= 0:
            kept.append(entry)
        elif bucket is None:
            buckets[version] = entry  # becomes a bucket when a second one of its version follows
        else:
            merged = union(entry.get("fieldsV1") or {}, bucket.get("fieldsV1") or {})
            newest = max(entry.get("time") or "", bucket.get("time") or "")
            buckets[version] = new_entry(ANCIENT, "Update", version, "", merged, newest)
            surplus -= 1
    return kept + list(buckets.values())
