"""The core group: nodes, namespaces, services, config maps, claims, quotas; and pods, from `pods`.

Typed as far as hekla reads them.

Note: models drop unknown fields; patch, and never write one back. `binaryData` of Secrets and
ConfigMaps is base64 text, as in JSON.
"""

from __future__ import annotations

from typing import Any

from msgspec import field

from hekla.api.cluster import (
    ClusterRole,
    ClusterRoleBinding,
    CSINode,
    Deployment,
    Lease,
    PodDisruptionBudget,
    PolicyRule,
    PriorityClass,
    ReplicaSet,
    Role,
    RoleBinding,
    RoleRef,
    StatefulSet,
    StorageClass,
    Subject,
)
from hekla.api.meta import (
    IntOrString,
    LabelSelector,
    LocalObjectReference,
    Model,
    Object,
    ObjectMeta,
    ObjectReference,
    ResourceList,
    TypedLocalObjectReference,
)
from hekla.api.pods import (
    Affinity,
    Container,
    ContainerPort,
    ContainerState,
    ContainerStatus,
    EnvVar,
    NodeSelector,
    Pod,
    PodCondition,
    PodSpec,
    PodStatus,
    PodTemplateSpec,
    ResourceRequirements,
    Toleration,
    TopologySpreadConstraint,
    Volume,
)

# --- nodes and namespaces ---------------------------------------------------------------------


class Taint(Model):
    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: str | None = None


class NodeSpec(Model):
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()
    provider_id: str = field(default="", name="providerID")
    pod_cidr: str = field(default="", name="podCIDR")


class NodeCondition(Model):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_heartbeat_time: str | None = None
    last_transition_time: str | None = None


class NodeAddress(Model):
    type: str = ""
    address: str = ""


class ContainerImage(Model):
    names: tuple[str, ...] = ()
    size_bytes: int = 0


class NodeSystemInfo(Model):
    machine_id: str = field(default="", name="machineID")
    kernel_version: str = ""
    os_image: str = ""
    container_runtime_version: str = ""
    kubelet_version: str = ""
    operating_system: str = ""
    architecture: str = ""


class NodeStatus(Model):
    capacity: ResourceList = field(default_factory=dict)
    allocatable: ResourceList = field(default_factory=dict)
    conditions: tuple[NodeCondition, ...] = ()
    addresses: tuple[NodeAddress, ...] = ()
    images: tuple[ContainerImage, ...] = ()
    node_info: NodeSystemInfo = field(default_factory=NodeSystemInfo)


class Node(Object):
    spec: NodeSpec = field(default_factory=NodeSpec)
    status: NodeStatus = field(default_factory=NodeStatus)


class NamespaceSpec(Model):
    finalizers: tuple[str, ...] = ()


class NamespaceStatus(Model):
    phase: str = ""


class Namespace(Object):
    spec: NamespaceSpec = field(default_factory=NamespaceSpec)
    status: NamespaceStatus = field(default_factory=NamespaceStatus)


# --- services ---------------------------------------------------------------------------------


class ServicePort(Model):
    name: str = ""
    port: int = 0
    target_port: IntOrString = 0
    node_port: int = 0
    protocol: str = "TCP"
    app_protocol: str | None = None


class ServiceSpec(Model):
    ports: tuple[ServicePort, ...] = ()
    selector: dict[str, str] = field(default_factory=dict)
    cluster_ip: str = field(default="", name="clusterIP")
    cluster_ips: tuple[str, ...] = field(default=(), name="clusterIPs")
    type: str = "ClusterIP"
    external_name: str = ""
    publish_not_ready_addresses: bool = False
    session_affinity: str = ""


class Service(Object):
    spec: ServiceSpec = field(default_factory=ServiceSpec)


class EndpointAddress(Model):
    ip: str = ""
    hostname: str = ""
    node_name: str | None = None
    target_ref: ObjectReference | None = None


class EndpointPort(Model):
    name: str = ""
    port: int = 0
    protocol: str = "TCP"


class EndpointSubset(Model):
    addresses: tuple[EndpointAddress, ...] = ()
    not_ready_addresses: tuple[EndpointAddress, ...] = ()
    ports: tuple[EndpointPort, ...] = ()


class Endpoints(Object):
    subsets: tuple[EndpointSubset, ...] = ()


# --- configuration and identity ---------------------------------------------------------------


class ConfigMap(Object):
    data: dict[str, str] = field(default_factory=dict)
    binary_data: dict[str, str] = field(default_factory=dict)
    immutable: bool | None = None


class Secret(Object):
    data: dict[str, str] = field(default_factory=dict)
    type: str = ""
    immutable: bool | None = None


class ServiceAccount(Object):
    secrets: tuple[ObjectReference, ...] = ()
    image_pull_secrets: tuple[LocalObjectReference, ...] = ()
    automount_service_account_token: bool | None = None


# --- events -----------------------------------------------------------------------------------


class EventSource(Model):
    component: str = ""
    host: str = ""


class EventSeries(Model):
    count: int = 0
    last_observed_time: str | None = None


class Event(Object):
    involved_object: ObjectReference = field(default_factory=ObjectReference)
    reason: str = ""
    message: str = ""
    source: EventSource = field(default_factory=EventSource)
    first_timestamp: str | None = None
    last_timestamp: str | None = None
    count: int = 0
    type: str = ""
    event_time: str | None = None
    series: EventSeries | None = None
    action: str = ""
    related: ObjectReference | None = None
    reporting_component: str = ""
    reporting_instance: str = ""


# --- storage ----------------------------------------------------------------------------------


class VolumeResources(Model):
    requests: ResourceList = field(default_factory=dict)
    limits: ResourceList = field(default_factory=dict)


class PersistentVolumeClaimSpec(Model):
    access_modes: tuple[str, ...] = ()
    selector: LabelSelector | None = None
    resources: VolumeResources = field(default_factory=VolumeResources)
    volume_name: str = ""
    storage_class_name: str | None = None
    volume_mode: str | None = None
    data_source: TypedLocalObjectReference | None = None


class PersistentVolumeClaimStatus(Model):
    phase: str = ""
    access_modes: tuple[str, ...] = ()
    capacity: ResourceList = field(default_factory=dict)


class PersistentVolumeClaim(Object):
    spec: PersistentVolumeClaimSpec = field(default_factory=PersistentVolumeClaimSpec)
    status: PersistentVolumeClaimStatus = field(default_factory=PersistentVolumeClaimStatus)


class VolumeNodeAffinity(Model):
    required: NodeSelector | None = None


class HostPathSource(Model):
    path: str = ""
    type: str | None = None


class LocalSource(Model):
    path: str = ""
    fs_type: str | None = None


class PersistentVolumeSpec(Model):
    capacity: ResourceList = field(default_factory=dict)
    access_modes: tuple[str, ...] = ()
    claim_ref: ObjectReference | None = None
    persistent_volume_reclaim_policy: str = ""
    storage_class_name: str = ""
    volume_mode: str | None = None
    node_affinity: VolumeNodeAffinity | None = None
    host_path: HostPathSource | None = None
    local: LocalSource | None = None
    csi: dict[str, Any] | None = None


class PersistentVolumeStatus(Model):
    phase: str = ""
    message: str = ""
    reason: str = ""


class PersistentVolume(Object):
    spec: PersistentVolumeSpec = field(default_factory=PersistentVolumeSpec)
    status: PersistentVolumeStatus = field(default_factory=PersistentVolumeStatus)


# --- limits -----------------------------------------------------------------------------------


class ScopedSelectorRequirement(Model):
    scope_name: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class ScopeSelector(Model):
    match_expressions: tuple[ScopedSelectorRequirement, ...] = ()


class ResourceQuotaSpec(Model):
    hard: ResourceList = field(default_factory=dict)
    scopes: tuple[str, ...] = ()
    scope_selector: ScopeSelector | None = None


class ResourceQuotaStatus(Model):
    hard: ResourceList = field(default_factory=dict)
    used: ResourceList = field(default_factory=dict)


class ResourceQuota(Object):
    spec: ResourceQuotaSpec = field(default_factory=ResourceQuotaSpec)
    status: ResourceQuotaStatus = field(default_factory=ResourceQuotaStatus)


class LimitRangeItem(Model):
    type: str = ""
    max: ResourceList = field(default_factory=dict)
    min: ResourceList = field(default_factory=dict)
    default: ResourceList = field(default_factory=dict)
    default_request: ResourceList = field(default_factory=dict)
    max_limit_request_ratio: ResourceList = field(default_factory=dict)


class LimitRangeSpec(Model):
    limits: tuple[LimitRangeItem, ...] = ()


class LimitRange(Object):
    spec: LimitRangeSpec = field(default_factory=LimitRangeSpec)


__all__ = [
    "Affinity",
    "CSINode",
    "ClusterRole",
    "ClusterRoleBinding",
    "ConfigMap",
    "Container",
    "ContainerImage",
    "ContainerPort",
    "ContainerState",
    "ContainerStatus",
    "Deployment",
    "EndpointAddress",
    "EndpointPort",
    "EndpointSubset",
    "Endpoints",
    "EnvVar",
    "Event",
    "EventSeries",
    "EventSource",
    "Lease",
    "LimitRange",
    "LimitRangeItem",
    "Namespace",
    "Node",
    "NodeAddress",
    "NodeCondition",
    "NodeSelector",
    "NodeSpec",
    "NodeStatus",
    "ObjectMeta",
    "ObjectReference",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "Pod",
    "PodCondition",
    "PodDisruptionBudget",
    "PodSpec",
    "PodStatus",
    "PodTemplateSpec",
    "PolicyRule",
    "PriorityClass",
    "ReplicaSet",
    "ResourceQuota",
    "ResourceRequirements",
    "Role",
    "RoleBinding",
    "RoleRef",
    "Secret",
    "Service",
    "ServiceAccount",
    "ServicePort",
    "ServiceSpec",
    "StatefulSet",
    "StorageClass",
    "Subject",
    "Taint",
    "Toleration",
    "TopologySpreadConstraint",
    "Volume",
]
