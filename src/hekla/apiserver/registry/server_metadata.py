"""Metadata that the server manages: preconditions, preserved fields, generation and finalizers."""

from __future__ import annotations

import msgspec

from hekla.apiserver import errors
from hekla.apiserver.registry import strategies
from hekla.apiserver.registry.managed_fields import STATUS_LIKE
from hekla.apiserver.registry.options import DeleteOptions, Options
from hekla.apiserver.schema.kinds import Served
from hekla.units.objects import Object

FOREGROUND = "foregroundDeletion"
ORPHAN = "orphan"


def check_update_preconditions(served: Served, obj: Object, old: Object) -> None:
    kind = served.kind
    metadata, was = obj["metadata"], old["metadata"]
    if metadata.get("uid") and metadata["uid"] != was["uid"]:
        raise errors.conflict(
            kind.group,
            kind.plural,
            was["name"],
            f"Precondition failed: UID in precondition: {metadata['uid']}, "
            f"UID in object meta: {was['uid']}",
        )
    requested = metadata.get("resourceVersion")
    if requested in (None, "", "0"):
        return
    if requested != was["resourceVersion"]:
        raise errors.conflict(kind.group, kind.plural, was["name"], errors.CHANGED_MEANWHILE)


def preserve_server_fields(served: Served, obj: Object, old: Object, options: Options) -> None:
    """Restore fields that the server manages or that this endpoint must not change."""
    metadata, was = obj["metadata"], old["metadata"]
    for name in (
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
        "resourceVersion",
        "selfLink",
    ):
        if name in was:
            metadata[name] = was[name]
        else:
            metadata.pop(name, None)
    if options.subresource in STATUS_LIKE:
        status = obj.get("status")
        managed = metadata.get("managedFields")
        if served.custom:
            # Only the status may change, not a custom object's metadata.
            obj.clear()
            obj.update(msgspec.json.decode(msgspec.json.encode(old)))
        else:
            for name in [*obj, *old]:
                if name not in ("metadata", "status"):
                    _copy_field(obj, old, name)
            metadata["ownerReferences"] = was.get("ownerReferences")
            metadata["finalizers"] = was.get("finalizers")
            for name in ("ownerReferences", "finalizers"):
                if metadata[name] is None:
                    del metadata[name]
        if managed is not None:
            obj["metadata"]["managedFields"] = managed
        if status is None:
            obj.pop("status", None)
        else:
            obj["status"] = status
    elif served.has_status and not strategies.may_write_status(served, options.subresource):
        _copy_field(obj, old, "status")
    _forbid_new_finalizers(served, obj, old)


def _forbid_new_finalizers(served: Served, obj: Object, old: Object) -> None:
    if "deletionTimestamp" not in old["metadata"]:
        return
    added = set(obj["metadata"].get("finalizers") or ()) - set(
        old["metadata"].get("finalizers") or ()
    )
    if added:
        causes = [
            {
                "reason": "FieldValueForbidden",
                "message": "Forbidden: no new finalizers can be added if the object is being "
                f"deleted, found new finalizers {sorted(added)}",
                "field": "metadata.finalizers",
            }
        ]
        raise errors.invalid(served.kind.group, served.kind.kind, old["metadata"]["name"], causes)


def bump_generation(served: Served, obj: Object, old: Object) -> None:
    if not served.has_generation or served.kind.kind == "PriorityClass":  # always 1
        return
    skipped = ("metadata", "status") if served.has_status else ("metadata",)
    changed = any(obj.get(name) != old.get(name) for name in {*obj, *old} if name not in skipped)
    if served.kind.kind == "Deployment" and not served.custom:
        # Its annotations are copied to its ReplicaSets.
        now, before = (item["metadata"].get("annotations") for item in (obj, old))
        changed = changed or now != before
    if changed:
        obj["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1


def check_delete_preconditions(served: Served, obj: Object, delete_options: DeleteOptions) -> None:
    metadata = obj["metadata"]
    for label, requested, current in (
        ("UID", delete_options.uid, metadata["uid"]),
        ("ResourceVersion", delete_options.revision, metadata["resourceVersion"]),
    ):
        if requested and requested != current:
            raise errors.conflict(
                served.kind.group,
                served.kind.kind,  # not the resource, as upstream
                metadata["name"],
                f"Precondition failed: {label} in precondition: {requested}, "
                f"{label} in object meta: {current}",
            )


def set_deletion_finalizers(obj: Object, propagation: str) -> None:
    """Set the finalizer of foreground or orphan deletion for the garbage collector."""
    if not propagation:
        return
    finalizers = [
        name for name in obj["metadata"].get("finalizers") or () if name not in (FOREGROUND, ORPHAN)
    ]
    if propagation == "Foreground":
        finalizers.append(FOREGROUND)
    elif propagation == "Orphan":
        finalizers.append(ORPHAN)
    if finalizers:
        obj["metadata"]["finalizers"] = finalizers
    else:
        obj["metadata"].pop("finalizers", None)


def has_finalizers(served: Served, obj: Object) -> bool:
    """Return whether a finalizer prevents the deletion."""
    if obj["metadata"].get("finalizers"):
        return True
    return served.storage == "namespaces" and bool((obj.get("spec") or {}).get("finalizers"))


def _copy_field(obj: Object, old: Object, name: str) -> None:
    if name in old:
        obj[name] = old[name]
    else:
        obj.pop(name, None)
