"""Defaults of the core group except pods: namespaces, services, secrets, storage, limits."""

from __future__ import annotations

import base64

from hekla.api import wellknown
from hekla.api.defaults import pods
from hekla.units.objects import Object


def namespace(obj: Object) -> None:
    metadata = obj.setdefault("metadata", {})
    if metadata.get("name"):
        # Policies select namespaces by this label; users cannot change it.
        labels = metadata.get("labels")
        if labels is None:
            labels = metadata["labels"] = {}
        labels[wellknown.LABEL_METADATA_NAME] = metadata["name"]
    spec = obj.get("spec")
    if spec is None:
        spec = obj["spec"] = {}
    # Not for a terminating namespace: there an empty list means that clean-up is done.
    if spec.get("finalizers") is None and not metadata.get("deletionTimestamp"):
        spec["finalizers"] = [wellknown.NAMESPACE_FINALIZER]
    _phase(obj, "Active")


def service(obj: Object) -> None:
    spec = obj.get("spec")
    if spec is None:
        return
    if not spec.get("sessionAffinity"):
        spec["sessionAffinity"] = "None"
    if spec["sessionAffinity"] == "ClientIP" and not spec.get("sessionAffinityConfig"):
        spec["sessionAffinityConfig"] = {"clientIP": {"timeoutSeconds": 10800}}
    kind = spec.get("type")
    if not kind:
        kind = spec["type"] = "ClusterIP"
    for port in spec.get("ports") or ():
        if not port.get("protocol"):
            port["protocol"] = "TCP"
        if not port.get("targetPort") and "port" in port:
            port["targetPort"] = port["port"]
    if kind == "ExternalName":
        return
    if not spec.get("internalTrafficPolicy"):
        spec["internalTrafficPolicy"] = "Cluster"
    if kind in ("NodePort", "LoadBalancer") and not spec.get("externalTrafficPolicy"):
        spec["externalTrafficPolicy"] = "Cluster"
    if kind == "LoadBalancer" and spec.get("allocateLoadBalancerNodePorts") is None:
        spec["allocateLoadBalancerNodePorts"] = True


def endpoints(obj: Object) -> None:
    for subset in obj.get("subsets") or ():
        for port in subset.get("ports") or ():
            if not port.get("protocol"):
                port["protocol"] = "TCP"


def secret(obj: Object) -> None:
    if not obj.get("type"):
        obj["type"] = wellknown.SECRET_OPAQUE
    # Write-only: clients read everything from `data`.
    text = obj.pop("stringData", None)
    if text:
        data = obj.get("data")
        if data is None:
            data = obj["data"] = {}
        for key, value in text.items():
            data[key] = base64.b64encode(value.encode()).decode()


def node(obj: Object) -> None:
    status = obj.get("status")
    if status and status.get("capacity") and not status.get("allocatable"):
        status["allocatable"] = dict(status["capacity"])


def claim(obj: Object) -> None:
    spec = obj.get("spec")
    if spec is not None:
        pods.claim_spec(spec)
    _phase(obj, "Pending")


def persistent_volume(obj: Object) -> None:
    spec = obj.get("spec")
    if spec is not None:
        if not spec.get("persistentVolumeReclaimPolicy"):
            spec["persistentVolumeReclaimPolicy"] = "Retain"
        pods.claim_spec(spec)
        pods.volume_source(spec)
    _phase(obj, "Pending")


def limit_range(obj: Object) -> None:
    for item in (obj.get("spec") or {}).get("limits") or ():
        if item.get("type") != "Container":
            continue
        # A limit without a default would reject every container without one.
        limits = _filled(item, "default", item.get("max"))
        _filled(item, "defaultRequest", limits)
        _filled(item, "defaultRequest", item.get("min"))


def _filled(item: Object, field: str, source: Object | None) -> Object | None:
    if source:
        target = item.get(field)
        if target is None:
            target = item[field] = {}
        for resource, amount in source.items():
            target.setdefault(resource, amount)
    value: Object | None = item.get(field)
    return value


def replication_controller(obj: Object) -> None:
    spec = obj.get("spec")
    if spec is None:
        return
    if spec.get("replicas") is None:
        spec["replicas"] = 1
    labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels")
    if labels:
        if not spec.get("selector"):
            spec["selector"] = dict(labels)
        metadata = obj.setdefault("metadata", {})
        if not metadata.get("labels"):
            metadata["labels"] = dict(labels)
    pods.template(spec)


def _phase(obj: Object, phase: str) -> None:
    status = obj.get("status")
    if status is None:
        status = obj["status"] = {}
    if not status.get("phase"):
        status["phase"] = phase


TABLE = (
    ("v1", "Namespace", namespace),
    ("v1", "Service", service),
    ("v1", "Endpoints", endpoints),
    ("v1", "Secret", secret),
    ("v1", "Node", node),
    ("v1", "PersistentVolumeClaim", claim),
    ("v1", "PersistentVolume", persistent_volume),
    ("v1", "LimitRange", limit_range),
    ("v1", "ReplicationController", replication_controller),
)
