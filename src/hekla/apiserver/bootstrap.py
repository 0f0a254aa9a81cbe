"""Bootstrap objects of a cluster: namespaces, roles and Volcano's CustomResourceDefinitions.

Runs at each start and adds only what is missing: an upgrade brings new roles and definitions, and
an administrator's changes stay.
"""

from __future__ import annotations

import msgspec

from hekla.api import crds, wellknown
from hekla.api.volcano.queues import BUILTIN_QUEUES, builtin_queue
from hekla.apiserver import errors
from hekla.apiserver.registry.options import Options
from hekla.apiserver.registry.resources import Resources
from hekla.units.objects import Object

NAMESPACES = (
    "default",
    "kube-system",
    "kube-public",
    "kube-node-lease",
    wellknown.SYSTEM_NAMESPACE,
)
_RBAC = "rbac.authorization.k8s.io"
_READ = ["get", "list", "watch"]
_WRITE = ["create", "delete", "deletecollection", "patch", "update"]
_ALL_VERBS = [*_READ, *_WRITE]
_VOLCANO_GROUPS = [
    "batch.volcano.sh",
    "bus.volcano.sh",
    "flow.volcano.sh",
    "scheduling.volcano.sh",
]
_WORKLOADS = [
    "pods",
    "services",
    "endpoints",
    "configmaps",
    "secrets",
    "serviceaccounts",
    "persistentvolumeclaims",
    "replicationcontrollers",
]


def _rule(groups: list[str], resources: list[str], verbs: list[str]) -> Object:
    return {"apiGroups": groups, "resources": resources, "verbs": verbs}


_VIEW = [
    _rule([""], [r for r in _WORKLOADS if r != "secrets"], _READ),
    _rule([""], ["pods/log", "pods/status", "events", "namespaces", "resourcequotas",
                 "limitranges"], _READ),
    _rule(["apps", "batch", "policy", "networking.k8s.io"], ["*"], _READ),
    _rule(_VOLCANO_GROUPS, ["*"], _READ),
]  # fmt: skip
_EDIT = [
    *_VIEW,
    _rule([""], _WORKLOADS, _ALL_VERBS),
    _rule([""], ["pods/exec", "pods/attach", "pods/portforward", "pods/eviction"],
          ["create", "get"]),
    _rule([""], ["serviceaccounts/token"], ["create"]),
    _rule(["apps", "batch", "policy", "networking.k8s.io"], ["*"], _ALL_VERBS),
    _rule(["batch.volcano.sh", "bus.volcano.sh", "flow.volcano.sh"], ["*"], _ALL_VERBS),
    _rule(["scheduling.volcano.sh"], ["podgroups"], _ALL_VERBS),
]  # fmt: skip
_ADMIN = [*_EDIT, _rule([_RBAC], ["roles", "rolebindings"], _ALL_VERBS)]

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
PRIORITY_CLASSES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


def _initial_objects() -> list[Object]:
    made: list[Object] = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in NAMESPACES
    ]
    for name, rules in CLUSTER_ROLES.items():
        made.append(
            {
                "apiVersion": f"{_RBAC}/v1",
                "kind": "ClusterRole",
                "metadata": {
                    "name": name,
                    "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
                },
                "rules": rules,
            }
        )
    for name, (role, groups) in CLUSTER_BINDINGS.items():
        made.append(
            {
                "apiVersion": f"{_RBAC}/v1",
                "kind": "ClusterRoleBinding",
                "metadata": {
                    "name": name,
                    "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
                },
                "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": role},
                "subjects": [{"apiGroup": _RBAC, "kind": "Group", "name": g} for g in groups],
            }
        )
    for name, value in PRIORITY_CLASSES.items():
        made.append(
            {
                "apiVersion": "scheduling.k8s.io/v1",
                "kind": "PriorityClass",
                "metadata": {"name": name},
                "value": value,
                "description": "for parts of the system that must keep running",
            }
        )
    return made


async def populate(resources: Resources) -> None:
    """Create what is missing and update Volcano's CustomResourceDefinitions to this version."""
    for obj in _initial_objects():
        await _ensure(resources, obj)
    for crd in crds.load():
        await _ensure(resources, crd, refresh=True)
    for name in BUILTIN_QUEUES:
        await _ensure_queue(resources, name)


async def create_kubernetes_service(resources: Resources, port: int) -> None:
    """Create the Service `kubernetes` that clients look for; headless, as there is no service
    network."""
    ports = [{"name": "https", "port": 443, "targetPort": port, "protocol": "TCP"}]
    obj = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": "kubernetes",
            "namespace": "default",
            "labels": {"component": "apiserver", "provider": "kubernetes"},
        },
        "spec": {"clusterIP": "None", "ports": ports},
    }
    await _ensure(resources, obj, refresh=True)


async def _ensure(resources: Resources, obj: Object, *, refresh: bool = False) -> None:
    served = resources.registry.by_kind(obj["apiVersion"], obj["kind"])
    assert served is not None
    name, namespace = obj["metadata"]["name"], obj["metadata"].get("namespace", "")
    entry = resources.store.get(served.storage, served.key(namespace, name))
    if entry is None:
        try:
            await resources.create(served, namespace, _copy(obj), Options())
        except errors.StatusError as error:
            if error.reason != "AlreadyExists":
                raise
    elif refresh:
        spec = _copy(obj)["spec"]
        await resources.update(
            served,
            namespace,
            name,
            lambda live: {**live, "spec": {**live["spec"], **spec}},
            Options(),
        )


async def _ensure_queue(resources: Resources, name: str) -> None:
    """Open the default queue, so that jobs can be submitted at once."""
    served = resources.registry.by_kind(wellknown.SCHEDULING_API, "Queue")
    assert served is not None
    if resources.store.get(served.storage, name) is None:
        await resources.create(served, "", builtin_queue(name))
        await resources.update(
            served,
            "",
            name,
            lambda queue: {**queue, "status": {"state": wellknown.QueueState.OPEN}},
            Options(subresource="status"),
        )


def _copy(obj: Object) -> Object:
    copied: Object = msgspec.json.decode(msgspec.json.encode(obj))
    return copied
