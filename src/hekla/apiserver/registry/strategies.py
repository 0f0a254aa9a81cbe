"""Strategies: kind-specific steps of create, update and delete.

Keyed by the kind name of built-in groups. Other kinds have no special steps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from hekla.api import defaults
from hekla.api.wellknown import PodCondition, PodReason
from hekla.apiserver.auth.authenticator import User
from hekla.apiserver.schema import crds
from hekla.apiserver.schema.kinds import Served
from hekla.units.objects import Object

if TYPE_CHECKING:
    from hekla.apiserver.registry.options import WriteResult


# Built-in kinds that keep the status of the create request.
_STATUS_FROM_CREATOR = frozenset({"Node"})
_FINISHED = ("Succeeded", "Failed")


def prepare_create(served: Served, obj: Object, now: str, user: User) -> None:
    """Set the initial status of a new object."""
    if served.has_status and (served.custom or served.kind.kind not in _STATUS_FROM_CREATOR):
        obj.pop("status", None)
    if served.custom:
        return
    status = defaults.initial_status(obj)
    if status is not None:
        obj["status"] = status
    if served.storage == "pods" and (obj.get("spec") or {}).get("schedulingGates"):
        obj["status"]["conditions"] = [_gated(now)]
    if served.storage == crds.CRDS:
        crds.prepare(obj, now)
    if served.kind.kind == "CertificateSigningRequest":
        # The signer must see the authenticated user, not the one in the request.
        requested = {"username": user.name, "groups": list(user.groups)}
        obj["spec"] = {**(obj.get("spec") or {}), **requested}
    if served.storage == "batch/jobs":
        defaults.workloads.select_own_pods(obj)
    if served.kind.kind == "ValidatingAdmissionPolicy":
        obj["status"] = _checked(obj["metadata"].get("generation", 1))


def prepare_update(served: Served, obj: Object, old: Object, subresource: str, now: str) -> None:
    if served.custom:
        return
    if served.storage == crds.CRDS:
        crds.prepare(obj, now)
    if served.kind.kind == "ValidatingAdmissionPolicy":
        changed = obj.get("spec") != old.get("spec")
        obj["status"] = _checked(old["metadata"].get("generation", 1) + changed)
    if served.kind.kind == "Namespace" and subresource != "finalize":
        finalizers = (old.get("spec") or {}).get("finalizers")
        if finalizers is not None:
            obj.setdefault("spec", {})["finalizers"] = finalizers


def _gated(now: str) -> Object:
    """Return the condition of a new pod with scheduling gates; the scheduler leaves it alone."""
    return {
        "type": PodCondition.SCHEDULED,
        "status": "False",
        "reason": PodReason.SCHEDULING_GATED,
        "message": "Scheduling is blocked due to non-empty scheduling gates",
        "lastTransitionTime": now,
    }


def _checked(generation: int) -> Object:
    """Return the status of a policy whose expressions compile."""
    return {"observedGeneration": generation, "typeChecking": {}}


def prepare_delete(served: Served, obj: Object) -> None:
    if not served.custom and served.kind.kind == "Namespace":
        obj.setdefault("status", {})["phase"] = "Terminating"


MAX_GRACE_S = 2**31 - 1


def may_write_status(served: Served, subresource: str) -> bool:
    """Return whether a write to this subresource may change the status."""
    return subresource in ("binding", "finalize") and not served.custom


def grace_period(served: Served, obj: Object, requested: int | None) -> int:
    """Return the grace period of a deletion in seconds; only pods have one."""
    if served.custom or served.kind.kind != "Pod":
        return 0
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    grace = (
        requested if requested is not None else int(spec.get("terminationGracePeriodSeconds", 30))
    )
    # The pod is not bound: no node agent will confirm its termination.
    if not spec.get("nodeName") or status.get("phase") in _FINISHED:
        return 0
    # A negative period is a second, as upstream. After a huge one no time can be written.
    return 1 if grace < 0 else min(grace, MAX_GRACE_S)


def as_deleted(served: Served, written: WriteResult, now: str) -> WriteResult:
    """Return a pod that was deleted at once as one without grace period, as upstream."""
    if served.storage == "pods":
        shown = msgspec.json.decode(msgspec.json.encode(written.obj))
        metadata = shown["metadata"]
        metadata.update(deletionTimestamp=now, deletionGracePeriodSeconds=0)
        metadata["generation"] = metadata.get("generation", 0) + 1
        written.obj, written.body = shown, msgspec.json.encode(shown)
    return written
