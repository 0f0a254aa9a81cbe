"""What an empty object of each built-in kind looks like on the wire: parts that are always there.

Go writes a struct that is no pointer even when nothing is in it, and a list without `omitempty` as
null. Upstream compares a new object with such an empty one to see what its creator set, so these
parts are nobody's own (`metadata.managedFields`), while the fields below them are.
"""

from __future__ import annotations

from typing import Any, Final

_TEMPLATE: Final = {"metadata": {}, "spec": {"containers": None}}
_SELECTED: Final = {"selector": None, "template": _TEMPLATE}
_SPEC: Final[dict[str, Any]] = {"spec": {}}

BLANKS: Final[dict[tuple[str, str], dict[str, Any]]] = {
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
