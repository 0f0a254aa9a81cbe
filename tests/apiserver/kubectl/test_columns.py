"""The columns of every built-in kind, as kubectl prints them with `-o wide`."""

from __future__ import annotations

from hekla.units.objects import Object
from tests.apiserver.kubectl.conftest import Kubectl
from tests.apiserver.threads import ServerThread

LABELS = {"app": "x"}
TEMPLATE: Object = {
    "metadata": {"labels": LABELS},
    "spec": {"containers": [{"name": "main", "image": "busybox"}]},
}
SELECTOR = {"matchLabels": LABELS}
WORKLOAD: Object = {"selector": SELECTOR, "template": TEMPLATE}
JOB_SPEC = {"template": {"spec": {**TEMPLATE["spec"], "restartPolicy": "Never"}}}
WEBHOOK: Object = {
    "name": "a.example.com",
    "sideEffects": "None",
    "admissionReviewVersions": ["v1"],
    "clientConfig": {"url": "https://example.com/hook"},
}
CREATED = "NAME|CREATED AT"
REPLICAS = "NAME|DESIRED|CURRENT|READY|AGE|CONTAINERS|IMAGES|SELECTOR"
BINDING = "NAME|ROLE|AGE|USERS|GROUPS|SERVICEACCOUNTS"
RBAC = "rbac.authorization.k8s.io"
STORAGE = "storage.k8s.io/v1"
NETWORK = "networking.k8s.io/v1"
ADMISSION = "admissionregistration.k8s.io/v1"


def role_ref(kind: str) -> Object:
    return {"apiGroup": RBAC, "kind": kind, "name": "view"}


# resource: (apiVersion, kind, the rest of an object, columns)
KINDS: dict[str, tuple[str, str, Object, str]] = {
    "nodes": (
        "v1", "Node", {},
        "NAME|STATUS|ROLES|AGE|VERSION|INTERNAL-IP|EXTERNAL-IP|OS-IMAGE|KERNEL-VERSION|"
        "CONTAINER-RUNTIME",
    ),
    "namespaces": ("v1", "Namespace", {}, "NAME|STATUS|AGE"),
    "pods": (
        "v1", "Pod", {"spec": TEMPLATE["spec"]},
        "NAME|READY|STATUS|RESTARTS|AGE|IP|NODE|NOMINATED NODE|READINESS GATES",
    ),
    "services": (
        "v1", "Service", {"spec": {"ports": [{"port": 80}]}},
        "NAME|TYPE|CLUSTER-IP|EXTERNAL-IP|PORT(S)|AGE|SELECTOR",
    ),
    "endpoints": ("v1", "Endpoints", {}, "NAME|ENDPOINTS|AGE"),
    "endpointslices": (
        "discovery.k8s.io/v1", "EndpointSlice", {"addressType": "IPv4", "endpoints": []},
        "NAME|ADDRESSTYPE|PORTS|ENDPOINTS|AGE",
    ),
    "configmaps": ("v1", "ConfigMap", {}, "NAME|DATA|AGE"),
    "secrets": ("v1", "Secret", {}, "NAME|TYPE|DATA|AGE"),
    "serviceaccounts": ("v1", "ServiceAccount", {}, "NAME|AGE"),
    "persistentvolumeclaims": (
        "v1", "PersistentVolumeClaim",
        {
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}},
            }
        },
        "NAME|STATUS|VOLUME|CAPACITY|ACCESS MODES|STORAGECLASS|VOLUMEATTRIBUTESCLASS|AGE|"
        "VOLUMEMODE",
    ),
    "persistentvolumes": (
        "v1", "PersistentVolume",
        {
            "spec": {
                "capacity": {"storage": "1Gi"},
                "accessModes": ["ReadWriteOnce"],
                "hostPath": {"path": "/tmp"},
            }
        },
        "NAME|CAPACITY|ACCESS MODES|RECLAIM POLICY|STATUS|CLAIM|STORAGECLASS|"
        "VOLUMEATTRIBUTESCLASS|REASON|AGE|VOLUMEMODE",
    ),
    "resourcequotas": ("v1", "ResourceQuota", {}, "NAME|REQUEST|LIMIT|AGE"),
    "limitranges": ("v1", "LimitRange", {"spec": {"limits": []}}, CREATED),
    "podtemplates": (
        "v1", "PodTemplate", {"template": TEMPLATE}, "NAME|CONTAINERS|IMAGES|POD LABELS",
    ),
    "replicationcontrollers": (
        "v1", "ReplicationController", {"spec": {"selector": LABELS, "template": TEMPLATE}},
        REPLICAS,
    ),
    "deployments.apps": (
        "apps/v1", "Deployment", {"spec": WORKLOAD},
        "NAME|READY|UP-TO-DATE|AVAILABLE|AGE|CONTAINERS|IMAGES|SELECTOR",
    ),
    "replicasets.apps": ("apps/v1", "ReplicaSet", {"spec": WORKLOAD}, REPLICAS),
    "statefulsets.apps": (
        "apps/v1", "StatefulSet", {"spec": {**WORKLOAD, "serviceName": "s"}},
        "NAME|READY|AGE|CONTAINERS|IMAGES",
    ),
    "daemonsets.apps": (
        "apps/v1", "DaemonSet", {"spec": WORKLOAD},
        "NAME|DESIRED|CURRENT|READY|UP-TO-DATE|AVAILABLE|NODE SELECTOR|AGE|CONTAINERS|IMAGES|"
        "SELECTOR",
    ),
    "controllerrevisions.apps": (
        "apps/v1", "ControllerRevision", {"revision": 1, "data": {}},
        "NAME|CONTROLLER|REVISION|AGE",
    ),
    "jobs.batch": (
        "batch/v1", "Job", {"spec": JOB_SPEC},
        "NAME|STATUS|COMPLETIONS|DURATION|AGE|CONTAINERS|IMAGES|SELECTOR",
    ),
    "cronjobs.batch": (
        "batch/v1", "CronJob",
        {"spec": {"schedule": "0 3 * * *", "jobTemplate": {"spec": JOB_SPEC}}},
        "NAME|SCHEDULE|TIMEZONE|SUSPEND|ACTIVE|LAST SCHEDULE|AGE|CONTAINERS|IMAGES|SELECTOR",
    ),
    "leases.coordination.k8s.io": ("coordination.k8s.io/v1", "Lease", {}, "NAME|HOLDER|AGE"),
    "priorityclasses.scheduling.k8s.io": (
        "scheduling.k8s.io/v1", "PriorityClass", {"value": 1},
        "NAME|VALUE|GLOBAL-DEFAULT|AGE|PREEMPTIONPOLICY",
    ),
    "poddisruptionbudgets.policy": (
        "policy/v1", "PodDisruptionBudget", {"spec": {"minAvailable": 1, "selector": SELECTOR}},
        "NAME|MIN AVAILABLE|MAX UNAVAILABLE|ALLOWED DISRUPTIONS|AGE",
    ),
    f"roles.{RBAC}": (f"{RBAC}/v1", "Role", {"rules": []}, CREATED),
    f"clusterroles.{RBAC}": (f"{RBAC}/v1", "ClusterRole", {"rules": []}, CREATED),
    f"rolebindings.{RBAC}": (
        f"{RBAC}/v1", "RoleBinding", {"roleRef": role_ref("ClusterRole")}, BINDING,
    ),
    f"clusterrolebindings.{RBAC}": (
        f"{RBAC}/v1", "ClusterRoleBinding", {"roleRef": role_ref("ClusterRole")}, BINDING,
    ),
    "storageclasses.storage.k8s.io": (
        STORAGE, "StorageClass", {"provisioner": "example.com/none"},
        "NAME|PROVISIONER|RECLAIMPOLICY|VOLUMEBINDINGMODE|ALLOWVOLUMEEXPANSION|AGE",
    ),
    "csinodes.storage.k8s.io": (STORAGE, "CSINode", {"spec": {"drivers": []}}, "NAME|DRIVERS|AGE"),
    "csidrivers.storage.k8s.io": (
        STORAGE, "CSIDriver", {"spec": {}},
        "NAME|ATTACHREQUIRED|PODINFOONMOUNT|STORAGECAPACITY|TOKENREQUESTS|REQUIRESREPUBLISH|MODES|"
        "AGE",
    ),
    "networkpolicies.networking.k8s.io": (
        NETWORK, "NetworkPolicy", {"spec": {"podSelector": {}}}, "NAME|POD-SELECTOR|AGE",
    ),
    "ingresses.networking.k8s.io": (
        NETWORK, "Ingress",
        {"spec": {"defaultBackend": {"service": {"name": "s", "port": {"number": 80}}}}},
        "NAME|CLASS|HOSTS|ADDRESS|PORTS|AGE",
    ),
    "runtimeclasses.node.k8s.io": (
        "node.k8s.io/v1", "RuntimeClass", {"handler": "runc"}, "NAME|HANDLER|AGE",
    ),
    "mutatingwebhookconfigurations.admissionregistration.k8s.io": (
        ADMISSION, "MutatingWebhookConfiguration", {"webhooks": [WEBHOOK]}, "NAME|WEBHOOKS|AGE",
    ),
    "validatingwebhookconfigurations.admissionregistration.k8s.io": (
        ADMISSION, "ValidatingWebhookConfiguration", {"webhooks": [WEBHOOK]}, "NAME|WEBHOOKS|AGE",
    ),
}  # fmt: skip


def headers(text: str) -> list[str]:
    """Return the header of each table that kubectl printed, with one bar between columns."""
    lines = (block.splitlines()[0] for block in text.strip().split("\n\n"))
    return ["|".join(name for name in line.split("   ") if name.strip()) for line in lines]


def squeezed(header: str) -> str:
    return "|".join(part.strip() for part in header.split("|"))


def test_every_kind_has_the_columns_of_kubernetes(
    kubectl: Kubectl, cluster: ServerThread, unique: str
) -> None:
    for api_version, kind, rest, _ in KINDS.values():
        served = cluster.server.registry.by_kind(api_version, kind)
        assert served is not None
        metadata = {"name": f"{unique}-x"}
        if served.kind.namespaced:
            metadata["namespace"] = kubectl.namespace
        cluster.create(api_version, kind, {"metadata": metadata, **rest})
    printed = kubectl("get", ",".join(KINDS), "-o", "wide")
    want = {resource: columns for resource, (_, _, _, columns) in KINDS.items()}
    found = dict(zip(KINDS, map(squeezed, headers(printed)), strict=True))
    assert found == want
