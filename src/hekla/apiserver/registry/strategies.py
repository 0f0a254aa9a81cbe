"""What is special about single kinds when they are created, changed or deleted.

A kind without an entry here is stored as it comes. Keyed by kind name of the built-in groups;
custom kinds have nothing special but their status subresource.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from hekla.api import defaults
from hekla.apiserver.auth.authenticator import User
from hekla.apiserver.registry import crds
from hekla.apiserver.registry.kinds import Served
from hekla.units.objects import Object

if TYPE_CHECKING:
    from hekla.apiserver.registry.options import WriteResult


# Built-in kinds that bring their own status along when they are created.
_STATUS_FROM_CREATOR = frozenset({"Node"})
_FINISHED = ("Succeeded", "Failed")


def prepare_create(served: Served, obj: Object, now: str, user: User) -> None:
    """Give a new object the status it starts with, whatever its creator sent."""
    if served.has_status and (served.custom or served.kind.kind not in _STATUS_FROM_CREATOR):
        obj.pop("status", None)
    if served.custom:
        return
    status = defaults.initial_status(obj)
    if status is not None:
        obj["status"] = status
    if served.storage == crds.CRDS:
        crds.prepare(obj, now)
    if served.kind.kind == "CertificateSigningRequest":
        # Whoever signs must know who asked, not who the request says did.
        asked = {"username": user.name, "groups": list(user.groups)}
        obj["spec"] = {**(obj.get("spec") or {}), **asked}
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
    if served.kind.kind == "Service" and not (obj.get("spec") or {}).get("clusterIP"):
        for name in ("clusterIP", "clusterIPs"):
            if name in (old.get("spec") or {}):
                obj.setdefault("spec", {})[name] = old["spec"][name]
    if served.kind.kind == "Namespace" and subresource != "finalize":
        finalizers = (old.get("spec") or {}).get("finalizers")
        if finalizers is not None:
            obj.setdefault("spec", {})["finalizers"] = finalizers


def _checked(generation: int) -> Object:
    """The status of a policy: its expressions compiled, or it would have been refused."""
    return {"observedGeneration": generation, "typeChecking": {}}


def prepare_delete(served: Served, obj: Object) -> None:
    if not served.custom and served.kind.kind == "Namespace":
        obj.setdefault("status", {})["phase"] = "Terminating"


def keeps_status(served: Served, subresource: str) -> bool:
    """Whether a write to this endpoint may change the status too."""
    return subresource in ("binding", "finalize") and not served.custom


def grace_period(served: Served, obj: Object, asked: int | None) -> int:
    """How many seconds a deletion waits. Only pods are ever asked to wait."""
    if served.custom or served.kind.kind != "Pod":
        return 0
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    grace = asked if asked is not None else int(spec.get("terminationGracePeriodSeconds", 30))
    # Nobody runs it: no node agent will confirm, so there is nothing to wait for.
    if not spec.get("nodeName") or status.get("phase") in _FINISHED:
        return 0
    return max(0, grace)


def shown_removed(served: Served, written: WriteResult, now: str) -> WriteResult:
    """A pod that goes at once is shown as one whose grace is over, as upstream."""
    if served.storage == "pods":
        shown = msgspec.json.decode(msgspec.json.encode(written.obj))
        metadata = shown["metadata"]
        metadata.update(deletionTimestamp=now, deletionGracePeriodSeconds=0)
        metadata["generation"] = metadata.get("generation", 0) + 1
        written.obj, written.body = shown, msgspec.json.encode(shown)
    return written
