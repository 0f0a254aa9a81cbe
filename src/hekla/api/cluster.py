"""Kinds of Kubernetes' smaller groups: priority classes, budgets, leases, storage, RBAC.

Note: models drop unknown fields; patch, and never write one back.
"""

from __future__ import annotations

from msgspec import field

from hekla.api.meta import Condition, IntOrString, LabelSelector, Model, Object

# --- scheduling.k8s.io, policy, coordination.k8s.io -------------------------------------------


class PriorityClass(Object):
    value: int = 0
    global_default: bool = False
    preemption_policy: str = "PreemptLowerPriority"
    description: str = ""


class PodDisruptionBudgetSpec(Model):
    min_available: IntOrString | None = None
    max_unavailable: IntOrString | None = None
    selector: LabelSelector | None = None
    unhealthy_pod_eviction_policy: str | None = None


class PodDisruptionBudgetStatus(Model):
    observed_generation: int = 0
    disrupted_pods: dict[str, str] = field(default_factory=dict)
    disruptions_allowed: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0
    expected_pods: int = 0
    conditions: tuple[Condition, ...] = ()


class PodDisruptionBudget(Object):
    spec: PodDisruptionBudgetSpec = field(default_factory=PodDisruptionBudgetSpec)
    status: PodDisruptionBudgetStatus = field(default_factory=PodDisruptionBudgetStatus)


class LeaseSpec(Model):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class Lease(Object):
    spec: LeaseSpec = field(default_factory=LeaseSpec)


# --- storage.k8s.io ---------------------------------------------------------------------------


class TopologySelectorRequirement(Model):
    key: str = ""
    values: tuple[str, ...] = ()


class TopologySelectorTerm(Model):
    match_label_expressions: tuple[TopologySelectorRequirement, ...] = ()


class StorageClass(Object):
    provisioner: str = ""
    parameters: dict[str, str] = field(default_factory=dict)
    reclaim_policy: str | None = None
    allow_volume_expansion: bool | None = None
    volume_binding_mode: str | None = None
    allowed_topologies: tuple[TopologySelectorTerm, ...] = ()


class VolumeNodeResources(Model):
    count: int | None = None


class CSINodeDriver(Model):
    name: str = ""
    node_id: str = field(default="", name="nodeID")
    topology_keys: tuple[str, ...] = ()
    allocatable: VolumeNodeResources | None = None


class CSINodeSpec(Model):
    drivers: tuple[CSINodeDriver, ...] = ()


class CSINode(Object):
    spec: CSINodeSpec = field(default_factory=CSINodeSpec)


# --- rbac.authorization.k8s.io ----------------------------------------------------------------


class PolicyRule(Model):
    verbs: tuple[str, ...] = ()
    api_groups: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    resource_names: tuple[str, ...] = ()
    non_resource_urls: tuple[str, ...] = field(default=(), name="nonResourceURLs")


class Role(Object):
    rules: tuple[PolicyRule, ...] = ()


class AggregationRule(Model):
    cluster_role_selectors: tuple[LabelSelector, ...] = ()


class ClusterRole(Object):
    rules: tuple[PolicyRule, ...] = ()
    aggregation_rule: AggregationRule | None = None


class Subject(Model):
    kind: str = ""
    api_group: str = ""
    name: str = ""
    namespace: str = ""


class RoleRef(Model):
    api_group: str = ""
    kind: str = ""
    name: str = ""


class RoleBinding(Object):
    subjects: tuple[Subject, ...] = ()
    role_ref: RoleRef = field(default_factory=RoleRef)


class ClusterRoleBinding(Object):
    subjects: tuple[Subject, ...] = ()
    role_ref: RoleRef = field(default_factory=RoleRef)


# --- apps and batch, as owners of pods --------------------------------------------------------


class ReplicatedSpec(Model):
    """The part of ReplicaSet, StatefulSet and Deployment specs that PodGroups need."""

    replicas: int | None = None
    selector: LabelSelector | None = None


class ReplicaSet(Object):
    spec: ReplicatedSpec = field(default_factory=ReplicatedSpec)


class StatefulSetStatus(Model):
    replicas: int = 0
    update_revision: str = ""


class StatefulSet(Object):
    spec: ReplicatedSpec = field(default_factory=ReplicatedSpec)
    status: StatefulSetStatus = field(default_factory=StatefulSetStatus)


class Deployment(Object):
    spec: ReplicatedSpec = field(default_factory=ReplicatedSpec)
