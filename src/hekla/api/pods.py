"""Pods, typed as far as scheduling, running and accounting need.

`env`, probes and security contexts are typed because the node agent uses them; volume sources
without a driver keep only their name.

Note: models drop unknown fields; patch, and never write one back.
"""

from __future__ import annotations

from typing import Any

from msgspec import field

from hekla.api.meta import (
    IntOrString,
    LabelSelector,
    LocalObjectReference,
    Model,
    Object,
    ObjectMeta,
    ResourceList,
)

# --- containers -------------------------------------------------------------------------------


class ContainerPort(Model):
    name: str = ""
    container_port: int = 0
    host_port: int = 0
    host_ip: str = field(default="", name="hostIP")
    protocol: str = "TCP"


class ResourceClaim(Model):
    name: str = ""
    request: str = ""


class ResourceRequirements(Model):
    requests: ResourceList = field(default_factory=dict)
    limits: ResourceList = field(default_factory=dict)
    claims: tuple[ResourceClaim, ...] = ()


class KeySelector(Model):
    """A key of a ConfigMap or Secret."""

    name: str = ""
    key: str = ""
    optional: bool | None = None


class ObjectFieldSelector(Model):
    api_version: str = "v1"
    field_path: str = ""


class ResourceFieldSelector(Model):
    container_name: str = ""
    resource: str = ""
    divisor: str | int | float = "0"


class EnvVarSource(Model):
    field_ref: ObjectFieldSelector | None = None
    resource_field_ref: ResourceFieldSelector | None = None
    config_map_key_ref: KeySelector | None = None
    secret_key_ref: KeySelector | None = None


class EnvVar(Model):
    name: str = ""
    value: str = ""
    value_from: EnvVarSource | None = None


class SourceReference(Model):
    """A whole ConfigMap or Secret."""

    name: str = ""
    optional: bool | None = None


class EnvFromSource(Model):
    prefix: str = ""
    config_map_ref: SourceReference | None = None
    secret_ref: SourceReference | None = None


class VolumeMount(Model):
    name: str = ""
    mount_path: str = ""
    sub_path: str = ""
    sub_path_expr: str = ""
    read_only: bool = False
    mount_propagation: str = ""


class ExecAction(Model):
    command: tuple[str, ...] = ()


class HTTPHeader(Model):
    name: str = ""
    value: str = ""


class HTTPGetAction(Model):
    path: str = ""
    port: IntOrString = 0
    host: str = ""
    scheme: str = "HTTP"
    http_headers: tuple[HTTPHeader, ...] = ()


class TCPSocketAction(Model):
    port: IntOrString = 0
    host: str = ""


class GRPCAction(Model):
    port: int = 0
    service: str = ""


class SleepAction(Model):
    seconds: int = 0


class LifecycleHandler(Model):
    exec: ExecAction | None = None
    http_get: HTTPGetAction | None = None
    tcp_socket: TCPSocketAction | None = None
    sleep: SleepAction | None = None


class Lifecycle(Model):
    post_start: LifecycleHandler | None = None
    pre_stop: LifecycleHandler | None = None
    stop_signal: str = ""


class Probe(Model):
    exec: ExecAction | None = None
    http_get: HTTPGetAction | None = None
    tcp_socket: TCPSocketAction | None = None
    grpc: GRPCAction | None = None
    initial_delay_seconds: int = 0
    timeout_seconds: int = 1
    period_seconds: int = 10
    success_threshold: int = 1
    failure_threshold: int = 3
    termination_grace_period_seconds: int | None = None


class SecurityContext(Model):
    run_as_user: int | None = None
    run_as_group: int | None = None
    run_as_non_root: bool | None = None
    privileged: bool | None = None
    read_only_root_filesystem: bool | None = None


class Container(Model):
    name: str = ""
    image: str = ""
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    working_dir: str = ""
    ports: tuple[ContainerPort, ...] = ()
    env: tuple[EnvVar, ...] = ()
    env_from: tuple[EnvFromSource, ...] = ()
    resources: ResourceRequirements = field(default_factory=ResourceRequirements)
    volume_mounts: tuple[VolumeMount, ...] = ()
    liveness_probe: Probe | None = None
    readiness_probe: Probe | None = None
    startup_probe: Probe | None = None
    lifecycle: Lifecycle | None = None
    termination_message_path: str = ""
    termination_message_policy: str = ""
    image_pull_policy: str = ""
    security_context: SecurityContext | None = None
    restart_policy: str = ""
    """Only on init containers; `Always` makes a sidecar, whose request counts permanently."""
    stdin: bool = False
    tty: bool = False


# --- volumes ----------------------------------------------------------------------------------


class KeyToPath(Model):
    key: str = ""
    path: str = ""
    mode: int | None = None


class EmptyDirVolume(Model):
    medium: str = ""
    size_limit: str | int | float | None = None


class HostPathVolume(Model):
    path: str = ""
    type: str = ""


class ConfigMapVolume(Model):
    name: str = ""
    items: tuple[KeyToPath, ...] = ()
    default_mode: int | None = None
    optional: bool | None = None


class SecretVolume(Model):
    secret_name: str = ""
    items: tuple[KeyToPath, ...] = ()
    default_mode: int | None = None
    optional: bool | None = None


class SecretProjection(Model):
    """A projected volume names a secret by `name`, not `secretName`."""

    name: str = ""
    items: tuple[KeyToPath, ...] = ()
    optional: bool | None = None


class ConfigMapProjection(Model):
    name: str = ""
    items: tuple[KeyToPath, ...] = ()
    optional: bool | None = None


class DownwardFile(Model):
    path: str = ""
    field_ref: ObjectFieldSelector | None = None
    resource_field_ref: ResourceFieldSelector | None = None
    mode: int | None = None


class DownwardVolume(Model):
    items: tuple[DownwardFile, ...] = ()
    default_mode: int | None = None


class DownwardProjection(Model):
    items: tuple[DownwardFile, ...] = ()


class TokenProjection(Model):
    audience: str = ""
    expiration_seconds: int | None = None
    path: str = ""


class VolumeProjection(Model):
    secret: SecretProjection | None = None
    config_map: ConfigMapProjection | None = None
    downward_api: DownwardProjection | None = field(default=None, name="downwardAPI")
    service_account_token: TokenProjection | None = None


class ProjectedVolume(Model):
    sources: tuple[VolumeProjection, ...] = ()
    default_mode: int | None = None


class ClaimVolume(Model):
    claim_name: str = ""
    read_only: bool = False


class Volume(Model):
    name: str = ""
    empty_dir: EmptyDirVolume | None = None
    host_path: HostPathVolume | None = None
    config_map: ConfigMapVolume | None = None
    secret: SecretVolume | None = None
    projected: ProjectedVolume | None = None
    downward_api: DownwardVolume | None = field(default=None, name="downwardAPI")
    persistent_volume_claim: ClaimVolume | None = None
    ephemeral: dict[str, Any] | None = None
    csi: dict[str, Any] | None = None
    nfs: dict[str, Any] | None = None


# --- placement --------------------------------------------------------------------------------


class NodeSelectorRequirement(Model):
    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class NodeSelectorTerm(Model):
    match_expressions: tuple[NodeSelectorRequirement, ...] = ()
    match_fields: tuple[NodeSelectorRequirement, ...] = ()


class NodeSelector(Model):
    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class PreferredSchedulingTerm(Model):
    weight: int = 0
    preference: NodeSelectorTerm = field(default_factory=NodeSelectorTerm)


class NodeAffinity(Model):
    required: NodeSelector | None = field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )
    preferred: tuple[PreferredSchedulingTerm, ...] = field(
        default=(), name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class PodAffinityTerm(Model):
    label_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] = ()
    topology_key: str = ""
    namespace_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] = ()
    mismatch_label_keys: tuple[str, ...] = ()


class WeightedPodAffinityTerm(Model):
    weight: int = 0
    pod_affinity_term: PodAffinityTerm = field(default_factory=PodAffinityTerm)


class PodAffinity(Model):
    """Also used for anti-affinity, which has the same structure."""

    required: tuple[PodAffinityTerm, ...] = field(
        default=(), name="requiredDuringSchedulingIgnoredDuringExecution"
    )
    preferred: tuple[WeightedPodAffinityTerm, ...] = field(
        default=(), name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(Model):
    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class Toleration(Model):
    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class TopologySpreadConstraint(Model):
    max_skew: int = 1
    topology_key: str = ""
    when_unsatisfiable: str = "DoNotSchedule"
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    match_label_keys: tuple[str, ...] = ()
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None


# --- pods -------------------------------------------------------------------------------------


class PodSchedulingGate(Model):
    name: str = ""


class PodReadinessGate(Model):
    condition_type: str = ""


class HostAlias(Model):
    ip: str = ""
    hostnames: tuple[str, ...] = ()


class PodResourceClaim(Model):
    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class PodSecurityContext(Model):
    run_as_user: int | None = None
    run_as_group: int | None = None
    run_as_non_root: bool | None = None
    fs_group: int | None = None
    supplemental_groups: tuple[int, ...] = ()


class PodSpec(Model):
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    volumes: tuple[Volume, ...] = ()
    restart_policy: str = "Always"
    termination_grace_period_seconds: int | None = None
    active_deadline_seconds: int | None = None
    dns_policy: str = ""
    node_selector: dict[str, str] = field(default_factory=dict)
    node_name: str = ""
    service_account_name: str = ""
    automount_service_account_token: bool | None = None
    host_network: bool = False
    host_pid: bool = field(default=False, name="hostPID")
    host_ipc: bool = field(default=False, name="hostIPC")
    security_context: PodSecurityContext | None = None
    image_pull_secrets: tuple[LocalObjectReference, ...] = ()
    hostname: str = ""
    subdomain: str = ""
    set_hostname_as_fqdn: bool | None = field(default=None, name="setHostnameAsFQDN")
    host_aliases: tuple[HostAlias, ...] = ()
    affinity: Affinity | None = None
    scheduler_name: str = ""
    tolerations: tuple[Toleration, ...] = ()
    priority_class_name: str = ""
    priority: int | None = None
    preemption_policy: str | None = None
    readiness_gates: tuple[PodReadinessGate, ...] = ()
    runtime_class_name: str | None = None
    enable_service_links: bool | None = None
    overhead: ResourceList = field(default_factory=dict)
    topology_spread_constraints: tuple[TopologySpreadConstraint, ...] = ()
    scheduling_gates: tuple[PodSchedulingGate, ...] = ()
    resource_claims: tuple[PodResourceClaim, ...] = ()
    resources: ResourceRequirements | None = None


class PodCondition(Model):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None
    last_probe_time: str | None = None


class ContainerStateWaiting(Model):
    reason: str = ""
    message: str = ""


class ContainerStateRunning(Model):
    started_at: str | None = None


class ContainerStateTerminated(Model):
    exit_code: int = 0
    signal: int = 0
    reason: str = ""
    message: str = ""
    started_at: str | None = None
    finished_at: str | None = None


class ContainerState(Model):
    waiting: ContainerStateWaiting | None = None
    running: ContainerStateRunning | None = None
    terminated: ContainerStateTerminated | None = None


class ContainerStatus(Model):
    name: str = ""
    state: ContainerState = field(default_factory=ContainerState)
    last_state: ContainerState = field(default_factory=ContainerState)
    ready: bool = False
    started: bool | None = None
    restart_count: int = 0
    image: str = ""
    container_id: str = field(default="", name="containerID")


class PodIP(Model):
    ip: str = ""


class PodStatus(Model):
    phase: str = ""
    conditions: tuple[PodCondition, ...] = ()
    message: str = ""
    reason: str = ""
    nominated_node_name: str = ""
    host_ip: str = field(default="", name="hostIP")
    pod_ip: str = field(default="", name="podIP")
    pod_ips: tuple[PodIP, ...] = field(default=(), name="podIPs")
    start_time: str | None = None
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    qos_class: str = ""


class Pod(Object):
    spec: PodSpec = field(default_factory=PodSpec)
    status: PodStatus = field(default_factory=PodStatus)


class PodTemplateSpec(Model):
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: PodSpec = field(default_factory=PodSpec)
