"""Reading plain API objects: the few questions every controller asks.

Objects stay dicts from the watch to the patch: a typed one would lose fields on the way.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hekla.units.objects import Object
from hekla.units.timestamps import TimestampError, parse_time

Key = tuple[str, str]
"""Namespace (empty for cluster-scoped kinds) and name."""


def key_of(obj: Object) -> Key:
    return obj["metadata"].get("namespace") or "", obj["metadata"]["name"]


def uid_of(obj: Object) -> str:
    return str(obj["metadata"].get("uid") or "")


def is_deleting(obj: Object) -> bool:
    return bool(obj["metadata"].get("deletionTimestamp"))


def annotations_of(obj: Object) -> dict[str, str]:
    return obj["metadata"].get("annotations") or {}


def labels_of(obj: Object) -> dict[str, str]:
    return obj["metadata"].get("labels") or {}


def status_of(obj: Object) -> Object:
    return obj.get("status") or {}


def job_phase(job: Object) -> str:
    """A Job's phase; empty before its controller has seen it."""
    return str((status_of(job).get("state") or {}).get("phase") or "")


def created_at(obj: Object) -> float:
    """Unix seconds; 0 for an object that has not been stored yet."""
    return seconds(obj["metadata"].get("creationTimestamp")) or 0.0


def seconds(text: Any) -> float | None:
    """A time as unix seconds, or None where there is none that can be read."""
    if not text:
        return None
    try:
        return parse_time(text)
    except TimestampError:
        return None


def controller_of(obj: Object) -> Object | None:
    """The owner that manages this object, if any."""
    for owner in obj["metadata"].get("ownerReferences") or ():
        if owner.get("controller"):
            found: Object = owner
            return found
    return None


def is_controlled_by(obj: Object, uid: str) -> bool:
    owner = controller_of(obj)
    return owner is not None and owner.get("uid") == uid


def owner_reference(api_version: str, kind: str, obj: Object) -> Object:
    """What makes `obj` the manager of another object, and that object go with it."""
    return {
        "apiVersion": api_version,
        "kind": kind,
        "name": obj["metadata"]["name"],
        "uid": uid_of(obj),
        "controller": True,
        "blockOwnerDeletion": True,
    }


def version_number(obj: Object) -> int:
    """The resourceVersion as the number it is on every known server; -1 for one of another make."""
    text = str(obj["metadata"].get("resourceVersion") or "")
    return int(text) if text.isdecimal() else -1


def by_name(objects: Iterable[Object]) -> list[Object]:
    return sorted(objects, key=key_of)
