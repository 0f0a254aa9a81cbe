"""Kinds as data: group, version, plural, scope, and the type to decode into.

    pod = await client.get(PODS, "web-0", namespace="prod")              # a dict
    job = await client.get(JOBS.into(Job), "train", namespace="ml")      # a Job

Note: a typed struct drops unknown fields, so reading with `.into(...)` and writing back with
`replace` erases data. Read typed and patch; read plain to replace.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import msgspec

T = TypeVar("T")
U = TypeVar("U")

Obj = dict[str, Any]
"""An API object as plain data, with all its fields."""


class Resource(msgspec.Struct, Generic[T], frozen=True):
    """A kind at one version of the API."""

    group: str
    version: str
    plural: str
    kind: str = ""
    namespaced: bool = True
    has_status: bool = True
    """Whether the status is a subresource. PodGroup's is not."""
    type: Any = dict

    def into(self, type: type[U]) -> Resource[U]:
        """Return the same resource, decoded into `type`."""
        return Resource(
            group=self.group,
            version=self.version,
            plural=self.plural,
            kind=self.kind,
            namespaced=self.namespaced,
            has_status=self.has_status,
            type=type,
        )

    @property
    def api_version(self) -> str:
        """apiVersion: `v1`, `batch.volcano.sh/v1alpha1`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def root(self) -> str:
        """The path of its API group version: `/api/v1`, `/apis/batch.volcano.sh/v1alpha1`."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    def __str__(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural


def resource(
    group_version: str,
    plural: str,
    *,
    kind: str = "",
    namespaced: bool = True,
    has_status: bool = True,
) -> Resource[Obj]:
    """Return a resource: `resource("apps/v1", "deployments", kind="Deployment")`."""
    group, slash, version = group_version.rpartition("/")
    if not version or (slash and not group) or "/" in group:
        raise ValueError(f"{group_version!r} is not an API version; write 'v1' or 'apps/v1'")
    if not plural or "/" in plural:
        raise ValueError(f"{plural!r} is not a plural resource name such as 'pods'")
    return Resource(
        group=group,
        version=version,
        plural=plural,
        kind=kind,
        namespaced=namespaced,
        has_status=has_status,
    )


def _cluster(group_version: str, plural: str, kind: str) -> Resource[Obj]:
    return resource(group_version, plural, kind=kind, namespaced=False)


def _spaced(group_version: str, plural: str, kind: str) -> Resource[Obj]:
    return resource(group_version, plural, kind=kind)


# core
NAMESPACES = _cluster("v1", "namespaces", "Namespace")
NODES = _cluster("v1", "nodes", "Node")
PODS = _spaced("v1", "pods", "Pod")
SERVICES = _spaced("v1", "services", "Service")
ENDPOINTS = _spaced("v1", "endpoints", "Endpoints")
CONFIGMAPS = _spaced("v1", "configmaps", "ConfigMap")
SECRETS = _spaced("v1", "secrets", "Secret")
SERVICE_ACCOUNTS = _spaced("v1", "serviceaccounts", "ServiceAccount")
EVENTS = _spaced("v1", "events", "Event")
PERSISTENT_VOLUMES = _cluster("v1", "persistentvolumes", "PersistentVolume")
PERSISTENT_VOLUME_CLAIMS = _spaced("v1", "persistentvolumeclaims", "PersistentVolumeClaim")
RESOURCE_QUOTAS = _spaced("v1", "resourcequotas", "ResourceQuota")
LIMIT_RANGES = _spaced("v1", "limitranges", "LimitRange")
REPLICATION_CONTROLLERS = _spaced("v1", "replicationcontrollers", "ReplicationController")

# other groups of Kubernetes
LEASES = _spaced("coordination.k8s.io/v1", "leases", "Lease")
RUNTIME_CLASSES = _cluster("node.k8s.io/v1", "runtimeclasses", "RuntimeClass")
PRIORITY_CLASSES = _cluster("scheduling.k8s.io/v1", "priorityclasses", "PriorityClass")
POD_DISRUPTION_BUDGETS = _spaced("policy/v1", "poddisruptionbudgets", "PodDisruptionBudget")
DEPLOYMENTS = _spaced("apps/v1", "deployments", "Deployment")
REPLICA_SETS = _spaced("apps/v1", "replicasets", "ReplicaSet")
STATEFUL_SETS = _spaced("apps/v1", "statefulsets", "StatefulSet")
DAEMON_SETS = _spaced("apps/v1", "daemonsets", "DaemonSet")
CONTROLLER_REVISIONS = resource(
    "apps/v1", "controllerrevisions", kind="ControllerRevision", has_status=False
)
ENDPOINT_SLICES = resource(
    "discovery.k8s.io/v1", "endpointslices", kind="EndpointSlice", has_status=False
)
NETWORK_POLICIES = _spaced("networking.k8s.io/v1", "networkpolicies", "NetworkPolicy")
STORAGE_CLASSES = _cluster("storage.k8s.io/v1", "storageclasses", "StorageClass")
CSI_NODES = _cluster("storage.k8s.io/v1", "csinodes", "CSINode")
ROLES = _spaced("rbac.authorization.k8s.io/v1", "roles", "Role")
ROLE_BINDINGS = _spaced("rbac.authorization.k8s.io/v1", "rolebindings", "RoleBinding")
CLUSTER_ROLES = _cluster("rbac.authorization.k8s.io/v1", "clusterroles", "ClusterRole")
CLUSTER_ROLE_BINDINGS = _cluster(
    "rbac.authorization.k8s.io/v1", "clusterrolebindings", "ClusterRoleBinding"
)
TOKEN_REVIEWS = _cluster("authentication.k8s.io/v1", "tokenreviews", "TokenReview")
SELF_SUBJECT_REVIEWS = _cluster(
    "authentication.k8s.io/v1", "selfsubjectreviews", "SelfSubjectReview"
)
SUBJECT_ACCESS_REVIEWS = _cluster(
    "authorization.k8s.io/v1", "subjectaccessreviews", "SubjectAccessReview"
)
CUSTOM_RESOURCE_DEFINITIONS = _cluster(
    "apiextensions.k8s.io/v1", "customresourcedefinitions", "CustomResourceDefinition"
)
VALIDATING_WEBHOOKS = _cluster(
    "admissionregistration.k8s.io/v1",
    "validatingwebhookconfigurations",
    "ValidatingWebhookConfiguration",
)
MUTATING_WEBHOOKS = _cluster(
    "admissionregistration.k8s.io/v1",
    "mutatingwebhookconfigurations",
    "MutatingWebhookConfiguration",
)
VALIDATING_POLICIES = _cluster(
    "admissionregistration.k8s.io/v1", "validatingadmissionpolicies", "ValidatingAdmissionPolicy"
)
VALIDATING_POLICY_BINDINGS = _cluster(
    "admissionregistration.k8s.io/v1",
    "validatingadmissionpolicybindings",
    "ValidatingAdmissionPolicyBinding",
)

# Volcano. JOBS and CRON_JOBS are Volcano's; Kubernetes' kinds of that name are BATCH_…
JOBS = _spaced("batch.volcano.sh/v1alpha1", "jobs", "Job")
CRON_JOBS = _spaced("batch.volcano.sh/v1alpha1", "cronjobs", "CronJob")
COMMANDS = resource("bus.volcano.sh/v1alpha1", "commands", kind="Command", has_status=False)
PODGROUPS = resource(
    "scheduling.volcano.sh/v1beta1", "podgroups", kind="PodGroup", has_status=False
)
QUEUES = _cluster("scheduling.volcano.sh/v1beta1", "queues", "Queue")
JOB_FLOWS = _spaced("flow.volcano.sh/v1alpha1", "jobflows", "JobFlow")
JOB_TEMPLATES = _spaced("flow.volcano.sh/v1alpha1", "jobtemplates", "JobTemplate")
HYPER_NODES = _cluster("topology.volcano.sh/v1alpha1", "hypernodes", "HyperNode")
NUMA_TOPOLOGIES = resource(
    "nodeinfo.volcano.sh/v1alpha1",
    "numatopologies",
    kind="Numatopology",
    namespaced=False,
    has_status=False,
)
COLOCATION_CONFIGURATIONS = _spaced(
    "config.volcano.sh/v1alpha1", "colocationconfigurations", "ColocationConfiguration"
)
NODE_SHARDS = _cluster("shard.volcano.sh/v1alpha1", "nodeshards", "NodeShard")
BATCH_JOBS = _spaced("batch/v1", "jobs", "Job")
BATCH_CRON_JOBS = _spaced("batch/v1", "cronjobs", "CronJob")

CATALOGUE: tuple[Resource[Obj], ...] = tuple(
    value for value in list(globals().values()) if isinstance(value, Resource)
)
"""All resources above."""
