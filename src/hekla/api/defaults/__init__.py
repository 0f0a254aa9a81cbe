"""Defaulting, as in kube-apiserver: in place, by kind.

One function per (apiVersion, kind); other kinds are not changed. The server applies the schema
defaults of custom kinds; kinds that need more, such as Volcano's Job, use `register`.

Note: defaults run after type checks and before validation rules. They rely on `spec.containers`
being a list, and rules rely on defaults.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from hekla.api.defaults import cluster, core, pods, workloads

Default: TypeAlias = Callable[[dict[str, Any]], None]

_DAEMON_SET_COUNTS = (
    "currentNumberScheduled",
    "desiredNumberScheduled",
    "numberMisscheduled",
    "numberReady",
)
_BUDGET_COUNTS = ("currentHealthy", "desiredHealthy", "disruptionsAllowed", "expectedPods")

_DEFAULTS: dict[tuple[str, str], Default] = {}


def register(table: Iterable[tuple[str, str, Default]]) -> None:
    """Register defaults of more kinds: (apiVersion, kind, function). A kind may have only one."""
    for api_version, kind, default in table:
        known = _DEFAULTS.setdefault((api_version, kind), default)
        if known is not default:
            raise ValueError(f"{api_version} {kind} already has defaults: {known.__qualname__}")


def apply_defaults(obj: dict[str, Any]) -> None:
    """Apply the defaults of a built-in or registered kind to `obj`, in place."""
    default = _DEFAULTS.get((obj.get("apiVersion", ""), obj.get("kind", "")))
    if default is not None:
        default(obj)


def apply_status_defaults(obj: dict[str, Any]) -> None:
    """Apply the defaults of a written status to `obj`, in place."""
    if (obj.get("apiVersion"), obj.get("kind")) == ("v1", "Pod"):
        pods.pod_status(obj.get("status") or {})


def initial_status(obj: dict[str, Any]) -> dict[str, Any] | None:
    """Return the initial status of a new object, whatever the client sent; None to keep it."""
    match obj.get("apiVersion"), obj.get("kind"):
        case "v1", "Pod":
            return {"phase": "Pending", "qosClass": pods.qos_class(obj.get("spec") or {})}
        case "v1", "Namespace":
            return {"phase": "Active"}
        case "v1", "PersistentVolumeClaim" | "PersistentVolume":
            return {"phase": "Pending"}
        case (
            ("v1", "ResourceQuota")
            | ("batch/v1", "Job" | "CronJob")
            | (
                "apps/v1",
                "Deployment",
            )
        ):
            return {}
        case "certificates.k8s.io/v1" | "flowcontrol.apiserver.k8s.io/v1", _:
            return {}
        case "resource.k8s.io/v1", "ResourceClaim":
            return {}
        case "v1", "Service":
            return {"loadBalancer": {}}
        # Counts that clients expect, even before a controller has set them.
        case ("v1", "ReplicationController") | ("apps/v1", "ReplicaSet"):
            return {"replicas": 0}
        case "apps/v1", "StatefulSet":
            return {"replicas": 0, "availableReplicas": 0}
        case "apps/v1", "DaemonSet":
            return dict.fromkeys(_DAEMON_SET_COUNTS, 0)
        case "policy/v1", "PodDisruptionBudget":
            return dict.fromkeys(_BUDGET_COUNTS, 0)
    return None


for _table in (pods.TABLE, core.TABLE, workloads.TABLE, cluster.TABLE):
    register(_table)
