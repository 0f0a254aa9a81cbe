"""The server's own roles and bindings, with the rights of kube-apiserver's bootstrap policy.

`view`, `edit` and `admin` also cover Volcano's kinds, with the rights that the Helm chart adds on
Kubernetes. No status, no binding and no `pods/ephemeralcontainers` is among them.
"""

from __future__ import annotations

import hashlib

import msgspec

from hekla.api import history
from hekla.units.objects import Object

RBAC = "rbac.authorization.k8s.io"
_READ = ["get", "list", "watch"]
_WRITE = ["create", "delete", "deletecollection", "patch", "update"]


def _rule(groups: list[str], resources: list[str], verbs: list[str]) -> Object:
    return {"apiGroups": groups, "resources": resources, "verbs": verbs}


def _with(resources: list[str], *subresources: str) -> list[str]:
    return [*resources, *(f"{r}/{s}" for r in resources for s in subresources)]


_SCALED = ["deployments", "replicasets", "statefulsets"]
_CONNECT = ["pods/attach", "pods/exec", "pods/portforward", "pods/proxy"]
_VIEW = [
    _rule([""], ["configmaps", "endpoints", "pods", "serviceaccounts",
                 *_with(["persistentvolumeclaims", "services"], "status"),
                 *_with(["replicationcontrollers"], "scale", "status")], _READ),
    _rule([""], ["bindings", "limitranges", "namespaces", "namespaces/status", "pods/log",
                 "pods/status", "resourcequotas", "resourcequotas/status"], _READ),
    _rule(["", "events.k8s.io"], ["events"], _READ),
    _rule(["discovery.k8s.io"], ["endpointslices"], _READ),
    _rule(["apps"], ["controllerrevisions", *_with(["daemonsets"], "status"),
                     *_with(_SCALED, "scale", "status")], _READ),
    _rule(["batch"], _with(["cronjobs", "jobs"], "status"), _READ),
    _rule(["policy"], _with(["poddisruptionbudgets"], "status"), _READ),
    _rule(["networking.k8s.io"], ["networkpolicies", *_with(["ingresses"], "status")], _READ),
    _rule(["resource.k8s.io"], ["resourceclaims", "resourceclaims/status",
                                "resourceclaimtemplates"], _READ),
    _rule(["batch.volcano.sh"], ["jobs", "cronjobs"], _READ),
    _rule(["flow.volcano.sh"], ["jobflows", "jobtemplates"], _READ),
    _rule(["scheduling.volcano.sh"], ["podgroups", "queues"], _READ),
    _rule(["bus.volcano.sh"], ["commands"], _READ),
    _rule(["topology.volcano.sh"], ["hypernodes"], _READ),
    _rule([history.GROUP], [history.PLURAL], ["get", "list"]),
]  # fmt: skip
_EDIT = [
    *_VIEW,
    _rule([""], [*_CONNECT, "secrets", "services/proxy"], _READ),
    _rule([""], ["serviceaccounts"], ["impersonate"]),
    _rule([""], ["pods", *_CONNECT], _WRITE),
    _rule([""], ["pods/eviction", "serviceaccounts/token"], ["create"]),
    _rule([""], ["configmaps", "persistentvolumeclaims", "replicationcontrollers",
                 "replicationcontrollers/scale", "secrets", "serviceaccounts", "services",
                 "services/proxy"], _WRITE),
    _rule(["", "events.k8s.io"], ["events"], _WRITE),
    _rule(["apps"], ["daemonsets", *_with(_SCALED, "scale")], _WRITE),
    _rule(["batch"], ["cronjobs", "jobs"], _WRITE),
    _rule(["policy"], ["poddisruptionbudgets"], _WRITE),
    _rule(["networking.k8s.io"], ["ingresses", "networkpolicies"], _WRITE),
    _rule(["coordination.k8s.io"], ["leases"], [*_READ, *_WRITE]),
    _rule(["resource.k8s.io"], ["resourceclaims", "resourceclaimtemplates"], _WRITE),
    _rule(["batch.volcano.sh"], ["jobs", "cronjobs"], _WRITE),
    _rule(["flow.volcano.sh"], ["jobflows", "jobtemplates"], _WRITE),
    _rule(["scheduling.volcano.sh"], ["podgroups"], _WRITE),
    _rule(["bus.volcano.sh"], ["commands"], ["create"]),
]  # fmt: skip
_ADMIN = [
    *_EDIT,
    _rule(["authorization.k8s.io"], ["localsubjectaccessreviews"], ["create"]),
    _rule([RBAC], ["roles", "rolebindings"], [*_READ, *_WRITE]),
]

CLUSTER_ROLES: dict[str, list[Object]] = {
    "cluster-admin": [
        {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
        {"nonResourceURLs": ["*"], "verbs": ["*"]},
    ],
    "admin": _ADMIN,
    "edit": _EDIT,
    "view": _VIEW,
    "system:discovery": [
        {
            "nonResourceURLs": [
                "/api",
                "/api/*",
                "/apis",
                "/apis/*",
                "/openapi",
                "/openapi/*",
                "/version",
                "/version/",
                "/healthz",
                "/livez",
                "/readyz",
            ],
            "verbs": ["get"],
        }
    ],
    "system:public-info-viewer": [{"nonResourceURLs": ["/version", "/version/"], "verbs": ["get"]}],
    "system:basic-user": [
        _rule(
            ["authorization.k8s.io"],
            ["selfsubjectaccessreviews", "selfsubjectrulesreviews"],
            ["create"],
        ),
        _rule(["authentication.k8s.io"], ["selfsubjectreviews"], ["create"]),
    ],
}
CLUSTER_BINDINGS: dict[str, tuple[str, list[str]]] = {
    "cluster-admin": ("cluster-admin", ["system:masters"]),
    "system:discovery": ("system:discovery", ["system:authenticated"]),
    "system:basic-user": ("system:basic-user", ["system:authenticated"]),
    "system:public-info-viewer": (
        "system:public-info-viewer",
        ["system:authenticated", "system:unauthenticated"],
    ),
}

# Digests of rules that earlier versions wrote. A role that still has them gets those of this
# version at the next start; one that an administrator changed is left alone.
_FORMER = frozenset(
    {
        "5c04f61769502fb8c3894b6ede0f8fc23e1125fe1ba4cefff07e4317470c3c5f",
        "58d3dae2b7a0f45c1fec17ceda3a2e60ec457a811784bcec1015dd8cf9015c52",
        "a9b6fbf11585e06e52c03a60e368b15a53ecafdbd32529a1b3372e57e4c87bea",
        # Without job records.
        "a1c9f66167563d62df2a41b37bba69df5286fc9f99a6aa0147a0831e80707cb2",
        "8362833645ed9ba5fae5414b761201c5282426d50b76a5df299be44a362922f8",
        "2e7c0d2c5e7881dbbfbbacdad439388dfc7c80e9f6c2e5df7dbf4acdf6e020da",
    }
)


def is_former(rules: list[Object]) -> bool:
    """Return whether these are the rules of an earlier version."""
    encoded = msgspec.json.encode(rules, order="sorted")
    return hashlib.sha256(encoded).hexdigest() in _FORMER


def role(name: str) -> Object:
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": "ClusterRole",
        "metadata": {"name": name, "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"}},
        "rules": CLUSTER_ROLES[name],
    }


def binding(name: str) -> Object:
    to, groups = CLUSTER_BINDINGS[name]
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name, "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"}},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": to},
        "subjects": [{"apiGroup": RBAC, "kind": "Group", "name": group} for group in groups],
    }
