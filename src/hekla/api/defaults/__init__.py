"""Fills in what a manifest leaves out, as kube-apiserver does, in place and by kind.

One function per kind, found by (apiVersion, kind); kinds without one are left as they are. Custom
kinds get the defaults of their CRD's schema from the server, and those that need more (Volcano's
jobs, say) join by `register`.

The one thing a newcomer gets wrong: defaults run after types have been checked and before rules
are. They trust that `spec.containers` is a list, and rules trust that defaults have run.
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
    """Adds defaults for more kinds: (apiVersion, kind, function) each. A kind may have only one."""
    for api_version, kind, default in table:
        known = _DEFAULTS.setdefault((api_version, kind), default)
        if known is not default:
            raise ValueError(f"{api_version} {kind} already has defaults: {known.__qualname__}")


def apply_defaults(obj: dict[str, Any]) -> None:
    """Fills in the defaults of a built-in or registered kind, changing `obj`."""
    default = _DEFAULTS.get((obj.get("apiVersion", ""), obj.get("kind", "")))
    if default is not None:
        default(obj)


def apply_status_defaults(obj: dict[str, Any]) -> None:
    """Fills in what a status that was written lacks, changing `obj`."""
    if (obj.get("apiVersion"), obj.get("kind")) == ("v1", "Pod"):
        pods.pod_status(obj.get("status") or {})


def initial_status(obj: dict[str, Any]) -> dict[str, Any] | None:
    """The status that a new object starts with, whatever its creator sent; None to leave it."""
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
        # Counts that a reader expects to find, even before a controller has counted.
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
