"""What is special about single kinds when they are created, changed or deleted.

A kind without an entry here is stored as it comes. Keyed by kind name of the built-in groups;
custom kinds have nothing special but their status subresource.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hekla.apiserver import crds
from hekla.apiserver.registry import Served

Object = dict[str, Any]

# Built-in kinds that bring their own status along when they are created.
_STATUS_FROM_CREATOR = frozenset({"Node", "Namespace", "Lease"})
_FINISHED = ("Succeeded", "Failed")


def prepare_create(served: Served, obj: Object, now: str) -> None:
    if served.has_status and (served.custom or served.kind.kind not in _STATUS_FROM_CREATOR):
        obj.pop("status", None)
    if not served.custom:
        special = _CREATE.get(served.kind.kind)
        if special is not None:
            special(obj)
        elif served.storage == crds.CRDS:
            crds.prepare(obj, now)


def prepare_update(served: Served, obj: Object, old: Object, subresource: str, now: str) -> None:
    if served.custom:
        return
    if served.storage == crds.CRDS:
        crds.prepare(obj, now)
    if served.kind.kind == "Namespace" and subresource != "finalize":
        finalizers = (old.get("spec") or {}).get("finalizers")
        if finalizers is not None:
            obj.setdefault("spec", {})["finalizers"] = finalizers


def warnings(served: Served, obj: Object) -> list[str]:
    """What the writer should know although the object is accepted."""
    return crds.warnings(obj) if served.storage == crds.CRDS else []


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


def _pod(obj: Object) -> None:
    obj["status"] = {"phase": "Pending", "qosClass": quality_of_service(obj)}


def quality_of_service(pod: Object) -> str:
    """Guaranteed, Burstable or BestEffort, from cpu and memory of all containers."""
    spec = pod.get("spec") or {}
    containers = (spec.get("containers") or []) + (spec.get("initContainers") or [])
    asked = False
    guaranteed = True
    for container in containers:
        resources = container.get("resources") or {}
        requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
        for name in ("cpu", "memory"):
            if name in requests or name in limits:
                asked = True
            if name not in limits or requests.get(name, limits[name]) != limits[name]:
                guaranteed = False
    if not asked:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"


def _phase(phase: str) -> Callable[[Object], None]:
    def prepare(obj: Object) -> None:
        obj["status"] = {"phase": phase}

    return prepare


def _namespace(obj: Object) -> None:
    obj["status"] = {"phase": "Active"}
    spec = obj.setdefault("spec", {})
    if not spec.get("finalizers"):
        spec["finalizers"] = ["kubernetes"]
    labels = obj["metadata"].setdefault("labels", {})
    labels["kubernetes.io/metadata.name"] = obj["metadata"]["name"]


_CREATE: dict[str, Callable[[Object], None]] = {
    "Pod": _pod,
    "Namespace": _namespace,
    "PersistentVolume": _phase("Pending"),
    "PersistentVolumeClaim": _phase("Pending"),
}
