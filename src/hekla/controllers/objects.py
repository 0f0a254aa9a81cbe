"""Accessors for plain API objects.

Objects stay dicts from the watch to the patch: a typed struct would lose unknown fields.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Required, TypedDict

from hekla.api import wellknown
from hekla.units.objects import Object
from hekla.units.timestamps import TimestampError, parse_time

Key = tuple[str, str]
"""Namespace (empty for cluster-scoped kinds) and name."""


class OwnerReference(TypedDict, total=False):
    """An entry of `metadata.ownerReferences`."""

    apiVersion: Required[str]
    kind: Required[str]
    name: Required[str]
    uid: Required[str]
    controller: bool
    blockOwnerDeletion: bool


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
    """Return a Job's phase; empty before its first reconciliation."""
    return str((status_of(job).get("state") or {}).get("phase") or "")


def created_at(obj: Object) -> float:
    """Return the creation time in unix seconds; 0 for an object that is not stored."""
    return seconds(obj["metadata"].get("creationTimestamp")) or 0.0


def seconds(text: Any) -> float | None:
    """Return a timestamp as unix seconds; None if it is absent or invalid."""
    if not text:
        return None
    try:
        return parse_time(text)
    except TimestampError:
        return None


def controller_of(obj: Object) -> OwnerReference | None:
    """Return the owner reference of the controller of an object, if any."""
    for owner in obj["metadata"].get("ownerReferences") or ():
        if owner.get("controller"):
            found: OwnerReference = owner
            return found
    return None


def is_controlled_by(obj: Object, uid: str) -> bool:
    """Return whether the object with this UID is the controller of `obj`."""
    owner = controller_of(obj)
    return owner is not None and owner.get("uid") == uid


def owner_reference(api_version: str, kind: str, obj: Object) -> OwnerReference:
    """Return a reference that makes `obj` the controller of another object."""
    return {
        "apiVersion": api_version,
        "kind": kind,
        "name": obj["metadata"]["name"],
        "uid": uid_of(obj),
        "controller": True,
        "blockOwnerDeletion": True,
    }


def version_number(obj: Object) -> int:
    """Return the resourceVersion as a number; -1 if it is not one."""
    text = str(obj["metadata"].get("resourceVersion") or "")
    return int(text) if text.isdecimal() else -1


def by_name(objects: Iterable[Object]) -> list[Object]:
    return sorted(objects, key=key_of)


def command_signature(command: Object) -> str:
    """Return the text by which the status of a target names a carried-out command."""
    return f"command {command['metadata']['name']} ({uid_of(command)})"


def act_for_submitter(metadata: Object, source: Object) -> None:
    """Record the submitter of `source` on an object made for it, and nobody else.

    Admission lets controllers name the submitter, so a template must not.
    """
    annotations = metadata.setdefault("annotations", {})
    annotations.pop(wellknown.SUBMITTED_BY, None)
    if user := annotations_of(source).get(wellknown.SUBMITTED_BY):
        annotations[wellknown.SUBMITTED_BY] = user
    if not annotations:
        del metadata["annotations"]
