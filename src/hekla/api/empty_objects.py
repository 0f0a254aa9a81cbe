"""The encoding of an empty object of each built-in kind: fields that Go always writes.

Go encodes an empty struct that is not a pointer, and a list without `omitempty` as null.
Kubernetes compares a new object with the empty one to find the fields that a manager owns
(`metadata.managedFields`), so these fields have no owner, while fields below them have one.
"""

from __future__ import annotations

from typing import Any, Final

_TEMPLATE: Final = {"metadata": {}, "spec": {"containers": None}}
_SELECTED: Final = {"selector": None, "template": _TEMPLATE}
_SPEC: Final[dict[str, Any]] = {"spec": {}}

EMPTY_OBJECTS: Final[dict[tuple[str, str], dict[str, Any]]] = {
    ("v1", "LimitRange"): {"spec": {"limits": None}},
    ("v1", "Namespace"): _SPEC,
    ("v1", "Node"): _SPEC,
    ("v1", "PersistentVolume"): _SPEC,
    ("v1", "PersistentVolumeClaim"): {"spec": {"resources": {}}},
    ("v1", "Pod"): {"spec": {"containers": None}},
    ("v1", "PodTemplate"): {"template": _TEMPLATE},
    ("v1", "ReplicationController"): _SPEC,
    ("v1", "ResourceQuota"): _SPEC,
    ("v1", "Service"): _SPEC,
    ("apps/v1", "DaemonSet"): {"spec": {**_SELECTED, "updateStrategy": {}}},
    ("apps/v1", "Deployment"): {"spec": {**_SELECTED, "strategy": {}}},
    ("apps/v1", "ReplicaSet"): {"spec": _SELECTED},
    ("apps/v1", "StatefulSet"): {"spec": {**_SELECTED, "serviceName": "", "updateStrategy": {}}},
    ("batch/v1", "CronJob"): {
        "spec": {"schedule": "", "jobTemplate": {"metadata": {}, "spec": {"template": _TEMPLATE}}}
    },
    ("batch/v1", "Job"): {"spec": {"template": _TEMPLATE}},
    ("coordination.k8s.io/v1", "Lease"): _SPEC,
    ("networking.k8s.io/v1", "Ingress"): _SPEC,
    ("networking.k8s.io/v1", "NetworkPolicy"): {"spec": {"podSelector": {}}},
    ("policy/v1", "PodDisruptionBudget"): _SPEC,
    ("rbac.authorization.k8s.io/v1", "ClusterRole"): {"rules": None},
    ("rbac.authorization.k8s.io/v1", "Role"): {"rules": None},
}
