"""Bootstrap objects of a cluster: namespaces, roles, classes and Volcano's
CustomResourceDefinitions.

Runs at each start and adds only what is missing: an upgrade brings new roles and definitions, and
an administrator's changes stay.
"""

from __future__ import annotations

import msgspec

from hekla.api import crds, runtime_classes, wellknown
from hekla.api.volcano.queues import BUILTIN_QUEUES, builtin_queue
from hekla.apiserver import default_roles, errors
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
PRIORITY_CLASSES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


def _initial_objects() -> list[Object]:
    made: list[Object] = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in NAMESPACES
    ]
    made += map(default_roles.role, default_roles.CLUSTER_ROLES)
    made += map(default_roles.binding, default_roles.CLUSTER_BINDINGS)
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
    made += map(runtime_classes.runtime_class, runtime_classes.HANDLERS)
    return made


async def populate(resources: Resources) -> None:
    """Create what is missing and update Volcano's CustomResourceDefinitions to this version."""
    for obj in _initial_objects():
        await _ensure(resources, obj)
    for name in default_roles.CLUSTER_ROLES:
        await _narrow_role(resources, name)
    for crd in crds.load():
        await _ensure(resources, crd, refresh=True)
    for name in BUILTIN_QUEUES:
        await _ensure_queue(resources, name)


async def _narrow_role(resources: Resources, name: str) -> None:
    """Replace the rules that an earlier version gave to a role by those of this version."""
    served = resources.registry.by_kind(f"{default_roles.RBAC}/v1", "ClusterRole")
    assert served is not None
    entry = resources.store.get(served.storage, name)
    if entry is None or not default_roles.is_former(msgspec.json.decode(entry.body).get("rules")):
        return
    rules = _copy(default_roles.role(name))["rules"]
    await resources.update(served, "", name, lambda live: {**live, "rules": rules}, Options())


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
