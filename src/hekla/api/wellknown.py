"""Well-known strings: labels, annotations, finalizers, phases, reasons, names.

Note: the annotation `GROUP_NAME` under `scheduling.k8s.io/` assigns a pod to a PodGroup; the alias
under `scheduling.volcano.sh/` is read almost nowhere.
"""

from __future__ import annotations

from typing import Final

# --- API groups and versions ------------------------------------------------------------------

BATCH_API: Final = "batch.volcano.sh/v1alpha1"
BUS_API: Final = "bus.volcano.sh/v1alpha1"
CONFIG_API: Final = "config.volcano.sh/v1alpha1"
DATA_API: Final = "datadependency.volcano.sh/v1alpha1"
FLOW_API: Final = "flow.volcano.sh/v1alpha1"
NODEINFO_API: Final = "nodeinfo.volcano.sh/v1alpha1"
SCHEDULING_API: Final = "scheduling.volcano.sh/v1beta1"
SHARD_API: Final = "shard.volcano.sh/v1alpha1"
TOPOLOGY_API: Final = "topology.volcano.sh/v1alpha1"
TRAINING_API: Final = "training.volcano.sh/v1alpha1"

# --- names and numbers ------------------------------------------------------------------------

DEFAULT_SCHEDULER: Final = "volcano"
AGENT_SCHEDULER: Final = "agent-scheduler"
KUBERNETES_SCHEDULER: Final = "default-scheduler"
LOCAL_SCHEDULERS: Final = (DEFAULT_SCHEDULER, KUBERNETES_SCHEDULER)
"""Scheduler names that hekla serves on one machine, where no other scheduler runs."""
DEFAULT_QUEUE: Final = "default"
ROOT_QUEUE: Final = "root"
DEFAULT_TASK: Final = "default"  # admission names nameless tasks default0, default1, ...
BARE_POD_GROUP_PREFIX: Final = "podgroup-"
SYSTEM_NAMESPACE: Final = "volcano-system"
SCHEDULER_CONFIG_MAP: Final = "volcano-scheduler-configmap"
FAIRSHARE_CONFIG_MAP: Final = "hekla-fairshare"
SUBMITTED_BY: Final = "hekla.io/submitted-by"  # job, PodGroup: a user's name
SCHEDULER_CONFIG_KEY: Final = "volcano-scheduler.conf"
CONTROLLER_CONFIG_MAP: Final = "volcano-controller-configmap"
CONTROLLER_CONFIG_KEY: Final = "volcano-controller.conf"
SHARDING_CONFIG_MAP: Final = "volcano-sharding-configmap"
SHARDING_CONFIG_KEY: Final = "sharding.yaml"
ADMISSION_CONFIG_KEY: Final = "volcano-admission.conf"
ADMISSION_SERVICE: Final = "volcano-admission-service"
# Source of controller events; the scheduler's events carry its scheduler name.
CONTROLLER_COMPONENT: Final = "vc-controller-manager"
QUEUE_CONTROLLER_MANAGER: Final = "queue-controller"  # field manager of queue state
HELM_RESOURCE_POLICY: Final = "helm.sh/resource-policy"
HELM_KEEP: Final = "keep"

# --- pods of a job ----------------------------------------------------------------------------

GROUP_NAME: Final = "scheduling.k8s.io/group-name"
GROUP_NAME_ALIAS: Final = "scheduling.volcano.sh/group-name"  # a fallback of vGPU spreading only
TASK_SPEC: Final = "volcano.sh/task-spec"
TASK_INDEX: Final = "volcano.sh/task-index"
JOB_NAME: Final = "volcano.sh/job-name"
JOB_NAMESPACE: Final = "volcano.sh/job-namespace"
QUEUE_NAME: Final = "volcano.sh/queue-name"  # on pods of jobs; compare POD_QUEUE_NAME
JOB_VERSION: Final = "volcano.sh/job-version"
JOB_RETRY_COUNT: Final = "volcano.sh/job-retry-count"
TEMPLATE_UID: Final = "volcano.sh/template-uid"
PARTITION_ID: Final = "volcano.sh/partition-id"
JOB_TYPE: Final = "volcano.sh/job-type"  # shown by listings only
OUT_OF_SYNC: Final = "volcano.sh/controller-out-of-sync"  # the pod is about to be replaced
HCCL_RANK_INDEX: Final = "hccl/rankIndex"

# --- job arrays -------------------------------------------------------------------------------

ARRAY_INDICES: Final = "hekla.io/array-indices"  # job: such as `0-99` or `1,3,5-9:2`
ARRAY_PARALLELISM: Final = "hekla.io/array-parallelism"  # job: how many pods at a time
ARRAY_RETRIES: Final = "hekla.io/array-retries"  # job: how often a failed index is retried
ARRAY_RETRIED: Final = "hekla.io/array-retried"  # job: `{"1": "3,7-9"}`, indices by retries so far
ARRAY_WHOLE: Final = "hekla.io/array-whole"  # job: the indices of the array that it retries
ARRAY_INDEX: Final = "hekla.io/array-index"  # pod, also as label
ARRAY_ATTEMPT: Final = "hekla.io/array-attempt"  # pod: 0, and 1 more for each retry

# --- jobs on this machine ---------------------------------------------------------------------

RUN_ENVIRONMENT: Final = "hekla.io/environment"  # pod: the cached virtual environment it uses
RUN_DIRECTORY: Final = "hekla.io/run-directory"  # pod: where it starts if it runs on the host
RUN_SNAPSHOT: Final = "hekla.io/snapshot"  # pod: the snapshot of a directory it runs in

# --- bare pods, workloads, namespaces ---------------------------------------------------------

POD_QUEUE_NAME: Final = "scheduling.volcano.sh/queue-name"  # bare pods, and a namespace's default
GROUP_MIN_MEMBER: Final = "scheduling.volcano.sh/group-min-member"
GROUP_MIN_RESOURCES: Final = "scheduling.volcano.sh/group-min-resources"
QUEUE_ALLOCATION_GATE: Final = "scheduling.volcano.sh/queue-allocation-gate"  # also the gate's name
RESOURCE_GROUP: Final = "volcano.sh/resource-group"
NETWORK_TOPOLOGY_MODE: Final = "volcano.sh/network-topology-mode"
NETWORK_TOPOLOGY_HIGHEST_TIER: Final = "volcano.sh/network-topology-highest-tier"
OWNER_ANNOTATION_PREFIX: Final = "volcano.sh/"  # inherited by PodGroups of workloads

# --- scheduling hints on pods and PodGroups ---------------------------------------------------

PREEMPTABLE: Final = "volcano.sh/preemptable"
COOLDOWN_TIME: Final = "volcano.sh/cooldown-time"
REVOCABLE_ZONE: Final = "volcano.sh/revocable-zone"  # on nodes it is a label that names the zone
JDB_MIN_AVAILABLE: Final = "volcano.sh/jdb-min-available"
JDB_MAX_UNAVAILABLE: Final = "volcano.sh/jdb-max-unavailable"
SLA_WAITING_TIME: Final = "volcano.sh/sla-waiting-time"
SLA_WAITING_TIME_LEGACY: Final = "sla-waiting-time"
TASK_PRIORITY: Final = "volcano.sh/task-priority"
TASK_TOPOLOGY: Final = "volcano.sh/task-topology"  # declared by Volcano and read nowhere
TASK_TOPOLOGY_AFFINITY: Final = "volcano.sh/task-topology-affinity"
TASK_TOPOLOGY_ANTI_AFFINITY: Final = "volcano.sh/task-topology-anti-affinity"
TASK_TOPOLOGY_ORDER: Final = "volcano.sh/task-topology-task-order"
NUMA_TOPOLOGY_POLICY: Final = "volcano.sh/numa-topology-policy"
TOPOLOGY_DECISION: Final = "volcano.sh/topology-decision"  # the scheduler's NUMA decision, JSON
JOB_ALLOCATED_HYPERNODE: Final = "volcano.sh/job-allocated-hypernode"
RESOURCE_STRATEGY_SCORING_TYPE: Final = "volcano.sh/resource-strategy-scoring-type"
RESOURCE_STRATEGY_WEIGHT: Final = "volcano.sh/resource-strategy-weight"
SCHEDULING_PRIORITY: Final = "volcano.sh/scheduling-priority"
SCHEDULING_PRIORITY_REASON: Final = "volcano.sh/scheduling-priority-reason"
SCHEDULING_PRIORITY_TIMESTAMP: Final = "volcano.sh/scheduling-priority-timestamp"

# --- queues, nodes, hypernodes ----------------------------------------------------------------

HIERARCHY: Final = "volcano.sh/hierarchy"
HIERARCHY_WEIGHTS: Final = "volcano.sh/hierarchy-weights"
CLOSED_BY_PARENT: Final = "volcano.sh/closed-by-parent"
NODEGROUP_RESOURCE_LIMITS: Final = "volcano.sh/nodegroup-resource-limits"
NODEGROUP_NAME: Final = "volcano.sh/nodegroup-name"
NETWORK_TOPOLOGY_SOURCE: Final = "volcano.sh/network-topology-source"

# --- cron jobs, flows, other clusters ---------------------------------------------------------

CRONJOB_SCHEDULED_TIMESTAMP: Final = "volcano.sh/cronjob-scheduled-timestamp"
CREATED_BY_JOB_TEMPLATE: Final = "volcano.sh/createdByJobTemplate"
CREATED_BY_JOB_FLOW: Final = "volcano.sh/createdByJobFlow"
JOB_FORWARDING: Final = "volcano.sh/job-forwarding"
FORWARD_CLUSTER: Final = "volcano.sh/forward-cluster"
HYPERJOB_NAME: Final = "volcano.sh/hyperjob-name"
REPLICATED_JOB_NAME: Final = "volcano.sh/replicatedjob-name"
BURST_NAME: Final = "volcano.sh/burst-name"
SILO_RESOURCE: Final = "volcano.sh/silo-resource"

# --- colocation and the node agent ------------------------------------------------------------

COLOCATION: Final = "volcano.sh/colocation"
OVERSUBSCRIPTION: Final = "volcano.sh/oversubscription"
OVERSUBSCRIPTION_TYPES: Final = "volcano.sh/oversubscription-types"
OVERSUBSCRIPTION_CPU: Final = "volcano.sh/oversubscription-cpu"
OVERSUBSCRIPTION_MEMORY: Final = "volcano.sh/oversubscription-memory"
OFFLINE_JOB_EVICTING: Final = "volcano.sh/offline-job-evicting"
EVICTING_CPU_HIGH_WATERMARK: Final = "volcano.sh/evicting-cpu-high-watermark"
EVICTING_CPU_LOW_WATERMARK: Final = "volcano.sh/evicting-cpu-low-watermark"
EVICTING_MEMORY_HIGH_WATERMARK: Final = "volcano.sh/evicting-memory-high-watermark"
EVICTING_MEMORY_LOW_WATERMARK: Final = "volcano.sh/evicting-memory-low-watermark"
DEPRECATED_EVICTING_PREFIX: Final = "volcano.sh/oversubscription-evicting-"
QOS_LEVEL: Final = "volcano.sh/qos-level"
QOS_LEVELS: Final = {"LC": 2, "HLS": 2, "LS": 1, "BE": -1}  # anything else counts as 0
NETWORK_BANDWIDTH_RATE: Final = "volcano.sh/network-bandwidth-rate"  # in Mbps
ENABLE_QUOTA_BURST: Final = "volcano.sh/enable-quota-burst"
QUOTA_BURST_TIME: Final = "volcano.sh/quota-burst-time"
COLOCATION_POLICY: Final = "colocation-policy"
COLOCATION_CONFIG: Final = "volcano.sh/colocation-config"  # JSON; `{}` resets the settings
COLOCATION_CONFIG_NAME: Final = "volcano.sh/colocation-config-name"
WARMUP: Final = "node.volcano.sh/warmup"
BATCH_CPU: Final = "kubernetes.io/batch-cpu"
BATCH_MEMORY: Final = "kubernetes.io/batch-memory"

# --- devices ----------------------------------------------------------------------------------

GPU_MEMORY: Final = "volcano.sh/gpu-memory"
GPU_NUMBER: Final = "volcano.sh/gpu-number"
GPU_INDEX: Final = "volcano.sh/gpu-index"
GPU_ASSIGNED: Final = "volcano.sh/gpu-assigned"
PREDICATE_TIME: Final = "volcano.sh/predicate-time"
GPU_UNHEALTHY_IDS: Final = "volcano.sh/gpu-unhealthy-ids"
VGPU_NUMBER: Final = "volcano.sh/vgpu-number"
VGPU_MEMORY: Final = "volcano.sh/vgpu-memory"
VGPU_MEMORY_PERCENTAGE: Final = "volcano.sh/vgpu-memory-percentage"
VGPU_PERCENTAGE_UNSET: Final = 101
VGPU_CORES: Final = "volcano.sh/vgpu-cores"
NODE_VGPU_REGISTER: Final = "volcano.sh/node-vgpu-register"
NODE_VGPU_HANDSHAKE: Final = "volcano.sh/node-vgpu-handshake"
POD_NETWORK: Final = "hekla.io/pod-network"  # node: `bridge` or `host`
POD_USER: Final = "hekla.io/pod-user"  # node: `namespace` or `owner`, who its pods run as
MEMORY_LIMITS: Final = "hekla.io/memory-limits"  # node: `enforced` or `none`
LOCAL_NODE: Final = "hekla.io/local-node"  # node: the agent of `hekla up` made it
SIMULATED_NODE: Final = "hekla.io/simulated"
DRAIN_REASON: Final = "hekla.io/drain-reason"  # node: why `hekla drain` took it out of service
DRAINED_BY: Final = "hekla.io/drained-by"
DRAINED_AT: Final = "hekla.io/drained-at"
CARD_GROUPS: Final = "hekla.io/card-groups"  # node: `0,1,2,3;4,5,6,7`, cards joined by a fast link
VGPU_MODE: Final = "volcano.sh/vgpu-mode"
VGPU_MODES: Final = ("hami-core", "mig", "mps")
VGPU_PODGROUP_POLICY: Final = "volcano.sh/vgpu-podgroup-policy"
VGPU_USE_UUID: Final = "volcano.sh/vgpu-use-gpuuuid"
VGPU_NOUSE_UUID: Final = "volcano.sh/vgpu-nouse-gpuuuid"
USE_GPU_TYPE: Final = "nvidia.com/use-gputype"
NOUSE_GPU_TYPE: Final = "nvidia.com/nouse-gputype"
VGPU_NODE: Final = "volcano.sh/vgpu-node"
VGPU_IDS_NEW: Final = "volcano.sh/vgpu-ids-new"
DEVICES_TO_ALLOCATE: Final = "volcano.sh/devices-to-allocate"
VGPU_TIME: Final = "volcano.sh/vgpu-time"
BIND_TIME: Final = "volcano.sh/bind-time"
BIND_PHASE: Final = "volcano.sh/bind-phase"
BIND_ALLOCATING: Final = "allocating"
BIND_SUCCESS: Final = "success"
VNPU_MODE: Final = "huawei.com/vnpu-mode"
"""On a pod: the partitioning of its NPUs; the default is by templates."""
HAMI_VGPU_NODE: Final = "hami.io/vgpu-node"
HAMI_VGPU_TIME: Final = "hami.io/vgpu-time"
HAMI_BIND_PHASE: Final = "hami.io/bind-phase"
HAMI_BIND_TIME: Final = "hami.io/bind-time"
HAMI_MUTEX: Final = "hami.io/mutex.lock"
HAMI_TO_ALLOCATE: Final = "hami.io/{type}-devices-to-allocate"
HAMI_ALLOCATED: Final = "hami.io/{type}-devices-allocated"
HAMI_NODE_REGISTER: Final = "hami.io/node-register-{type}"
NVIDIA_GPU: Final = "nvidia.com/gpu"

# --- job plugins: environment, files, ports ---------------------------------------------------

ENV_ARRAY_INDEX: Final = "HEKLA_ARRAY_INDEX"
ENV_VK_TASK_INDEX: Final = "VK_TASK_INDEX"
ENV_VC_TASK_INDEX: Final = "VC_TASK_INDEX"
ENV_TASK_HOSTS: Final = "VC_{task}_HOSTS"
ENV_TASK_NUM: Final = "VC_{task}_NUM"
ENV_TF_CONFIG: Final = "TF_CONFIG"
ENV_MASTER_ADDR: Final = "MASTER_ADDR"
ENV_MASTER_PORT: Final = "MASTER_PORT"
ENV_WORLD_SIZE: Final = "WORLD_SIZE"
ENV_RANK: Final = "RANK"
ENV_MPI_HOST: Final = "MPI_HOST"
ENV_KUBE_POD_NAMESPACE: Final = "KUBE_POD_NAMESPACE"
ENV_HELM_RELEASE_NAME: Final = "HELM_RELEASE_NAME"
ENV_CUDA_VISIBLE_DEVICES: Final = "CUDA_VISIBLE_DEVICES"
HOSTS_PATH: Final = "/etc/volcano"
SSH_PATH: Final = "/root/.ssh"
SSH_KEYS: Final = ("id_rsa", "id_rsa.pub", "authorized_keys", "config")
PYTORCH_PORT_NAME: Final = "pytorchjob-port"
MPI_PORT_NAME: Final = "mpijob-port"
WAIT_FOR_MASTER: Final = "wait-for-master"
JOB_PLUGINS: Final = (
    "env",
    "hcclrank",
    "mpi",
    "pytorch",
    "ray",
    "ssh",
    "svc",
    "tensorflow",
)
CONTROLLED_PLUGIN: Final = "plugin-{name}"  # keys of job.status.controlledResources
CONTROLLED_VOLUME: Final = "volume-pvc-{name}"


# --- phases and states ------------------------------------------------------------------------


class JobPhase:
    """Phases of a job; an empty or unknown phase counts as Pending."""

    PENDING: Final = "Pending"
    ABORTING: Final = "Aborting"
    ABORTED: Final = "Aborted"
    RUNNING: Final = "Running"
    RESTARTING: Final = "Restarting"
    COMPLETING: Final = "Completing"
    COMPLETED: Final = "Completed"
    TERMINATING: Final = "Terminating"
    TERMINATED: Final = "Terminated"
    FAILED: Final = "Failed"
    FINISHED: Final = frozenset({COMPLETED, FAILED, TERMINATED})  # Aborted can be resumed


class PodGroupPhase:
    PENDING: Final = "Pending"
    INQUEUE: Final = "Inqueue"
    RUNNING: Final = "Running"
    UNKNOWN: Final = "Unknown"
    COMPLETED: Final = "Completed"


class QueueState:
    OPEN: Final = "Open"
    CLOSED: Final = "Closed"
    CLOSING: Final = "Closing"
    UNKNOWN: Final = "Unknown"


class FlowPhase:
    PENDING: Final = "Pending"
    RUNNING: Final = "Running"
    SUCCEED: Final = "Succeed"  # Volcano's spelling
    FAILED: Final = "Failed"
    TERMINATING: Final = "Terminating"


class PodPhase:
    PENDING: Final = "Pending"
    RUNNING: Final = "Running"
    SUCCEEDED: Final = "Succeeded"
    FAILED: Final = "Failed"
    UNKNOWN: Final = "Unknown"


class ClaimPhase:
    PENDING: Final = "Pending"
    BOUND: Final = "Bound"
    LOST: Final = "Lost"


class NamespacePhase:
    ACTIVE: Final = "Active"
    TERMINATING: Final = "Terminating"


# --- job events and actions -------------------------------------------------------------------


class JobEvent:
    """Events of a job; policies map events to actions."""

    ANY: Final = "*"
    POD_PENDING: Final = "PodPending"
    POD_RUNNING: Final = "PodRunning"
    POD_FAILED: Final = "PodFailed"
    POD_EVICTED: Final = "PodEvicted"
    UNKNOWN: Final = "Unknown"
    TASK_COMPLETED: Final = "TaskCompleted"
    TASK_FAILED: Final = "TaskFailed"
    OUT_OF_SYNC: Final = "OutOfSync"
    COMMAND_ISSUED: Final = "CommandIssued"
    JOB_UPDATED: Final = "JobUpdated"
    # The schema accepts all of them, admission only these.
    IN_POLICIES: Final = frozenset(
        {
            ANY,
            POD_FAILED,
            POD_EVICTED,
            POD_PENDING,
            UNKNOWN,
            TASK_COMPLETED,
            TASK_FAILED,
            JOB_UPDATED,
        }
    )


class Action:
    ABORT_JOB: Final = "AbortJob"
    RESTART_JOB: Final = "RestartJob"
    RESTART_TASK: Final = "RestartTask"
    RESTART_POD: Final = "RestartPod"
    RESTART_PARTITION: Final = "RestartPartition"
    TERMINATE_JOB: Final = "TerminateJob"
    COMPLETE_JOB: Final = "CompleteJob"
    RESUME_JOB: Final = "ResumeJob"
    SYNC_JOB: Final = "SyncJob"
    ENQUEUE_JOB: Final = "EnqueueJob"
    SYNC_QUEUE: Final = "SyncQueue"
    OPEN_QUEUE: Final = "OpenQueue"
    CLOSE_QUEUE: Final = "CloseQueue"
    IN_POLICIES: Final = frozenset(
        {
            ABORT_JOB,
            RESTART_JOB,
            RESTART_TASK,
            RESTART_POD,
            RESTART_PARTITION,
            TERMINATE_JOB,
            COMPLETE_JOB,
            RESUME_JOB,
        }
    )


# --- reasons of events and conditions ---------------------------------------------------------


class JobReason:
    """Reasons of events on jobs."""

    COMMAND_ISSUED: Final = "CommandIssued"
    PLUGIN_ERROR: Final = "PluginError"
    PVC_ERROR: Final = "PVCError"
    POD_GROUP_ERROR: Final = "PodGroupError"
    EXECUTE_ACTION: Final = "ExecuteAction"
    JOB_STATUS_ERROR: Final = "JobStatusError"
    POD_GROUP_PENDING: Final = "PodGroupPending"
    FAILED_CREATE: Final = "FailedCreate"
    SUCCESSFUL_CREATE: Final = "SuccessfulCreate"
    FAILED_DELETE: Final = "FailedDelete"
    SUCCESSFUL_DELETE: Final = "SuccessfulDelete"


class CronReason:
    """Reasons of events on cron jobs."""

    SAW_COMPLETED_JOB: Final = "SawCompletedJob"
    ORPHANED_JOB: Final = "OrphanedJob"
    STALE_REFERENCE: Final = "StaleReference"
    FORBID_CONCURRENT: Final = "ForbidConcurrent"
    REPLACE_CONCURRENT: Final = "ReplaceConcurrent"
    SUCCESSFUL_CREATE: Final = "SuccessfulCreate"
    FAILED_CREATE: Final = "FailedCreate"
    SUCCESSFUL_DELETE: Final = "SuccessfulDelete"
    FAILED_DELETE: Final = "FailedDelete"
    FAILED_GET: Final = "FailedGet"
    FOREIGN_JOB: Final = "ForeignJob"
    NAMESPACE_TERMINATING: Final = "NamespaceTerminating"
    INVALID_SCHEDULE: Final = "InvalidSchedule"
    INVALID_TIME_ZONE: Final = "InvalidTimeZone"
    UNSUPPORTED_SCHEDULE: Final = "UnsupportedSchedule"
    UNPARSEABLE_SCHEDULE: Final = "UnParseableCronJobSchedule"
    TOO_MANY_MISSED_TIMES: Final = "TooManyMissedTimes"


class GroupCondition:
    """Types and reasons of PodGroup conditions, and of events on PodGroups."""

    UNSCHEDULABLE: Final = "Unschedulable"
    SCHEDULED: Final = "Scheduled"
    POD_FAILED: Final = "PodFailed"
    POD_DELETED: Final = "PodDeleted"
    NOT_ENOUGH_RESOURCES: Final = "NotEnoughResources"
    NOT_ENOUGH_TASKS: Final = "NotEnoughTasks"
    NOT_ENOUGH_PODS_OF_TASK: Final = "NotEnoughPodsOfTask"
    READY_REASON: Final = "tasks in gang are ready to be scheduled"  # a phrase; clients compare it
    READY_EVENT: Final = "pod group is ready"


class FlowReason:
    """Reasons of events on job flows."""

    JOB_CREATED: Final = "Created"
    MISSING_TEMPLATE: Final = "MissingTemplate"
    FOREIGN_JOB: Final = "ForeignJob"


class PodReason:
    """Reasons of the PodScheduled condition and of pod failures."""

    SCHEDULABLE: Final = "Schedulable"  # fits, and waits for the rest of its gang
    UNSCHEDULABLE: Final = "Unschedulable"
    SCHEDULING_GATED: Final = "SchedulingGated"
    EVICTED: Final = "Evicted"
    DEADLINE_EXCEEDED: Final = "DeadlineExceeded"
    NODE_LOST: Final = "NodeLost"
    NODE_SHUTDOWN: Final = "NodeShutdown"
    TERMINATED: Final = "Terminated"  # by the shutdown of its node, as kubelet has it
    PREEMPTED: Final = "Preempted"


class PodCondition:
    SCHEDULED: Final = "PodScheduled"
    INITIALIZED: Final = "Initialized"
    CONTAINERS_READY: Final = "ContainersReady"
    READY: Final = "Ready"
    DISRUPTION_TARGET: Final = "DisruptionTarget"


class EventType:
    NORMAL: Final = "Normal"
    WARNING: Final = "Warning"


# --- Kubernetes -------------------------------------------------------------------------------

DEFAULT_NAMESPACE: Final = "default"
KUBE_SYSTEM: Final = "kube-system"
KUBE_PUBLIC: Final = "kube-public"
KUBE_NODE_LEASE: Final = "kube-node-lease"
DEFAULT_SERVICE_ACCOUNT: Final = "default"
NAMESPACE_FINALIZER: Final = "kubernetes"  # in spec.finalizers, not in metadata
FOREGROUND_DELETION: Final = "foregroundDeletion"
ORPHAN: Final = "orphan"
PVC_PROTECTION: Final = "kubernetes.io/pvc-protection"
PV_PROTECTION: Final = "kubernetes.io/pv-protection"
CRD_FINALIZER: Final = "customresourcecleanup.apiextensions.k8s.io"

LABEL_METADATA_NAME: Final = "kubernetes.io/metadata.name"
LABEL_HOSTNAME: Final = "kubernetes.io/hostname"
LABEL_OS: Final = "kubernetes.io/os"
LABEL_ARCH: Final = "kubernetes.io/arch"
LABEL_ZONE: Final = "topology.kubernetes.io/zone"
LABEL_REGION: Final = "topology.kubernetes.io/region"
LABEL_INSTANCE_TYPE: Final = "node.kubernetes.io/instance-type"
LABEL_POD_TEMPLATE_HASH: Final = "pod-template-hash"
LABEL_CONTROLLER_REVISION_HASH: Final = "controller-revision-hash"
LABEL_SERVICE_NAME: Final = "kubernetes.io/service-name"
LABEL_BOOTSTRAPPING: Final = "kubernetes.io/bootstrapping"

TAINT_NOT_READY: Final = "node.kubernetes.io/not-ready"
TAINT_UNREACHABLE: Final = "node.kubernetes.io/unreachable"
TAINT_UNSCHEDULABLE: Final = "node.kubernetes.io/unschedulable"
TAINT_MEMORY_PRESSURE: Final = "node.kubernetes.io/memory-pressure"
TAINT_DISK_PRESSURE: Final = "node.kubernetes.io/disk-pressure"
TAINT_PID_PRESSURE: Final = "node.kubernetes.io/pid-pressure"
TAINT_NETWORK_UNAVAILABLE: Final = "node.kubernetes.io/network-unavailable"

LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
RESTARTED_AT: Final = "kubectl.kubernetes.io/restartedAt"
DEFAULT_CONTAINER: Final = "kubectl.kubernetes.io/default-container"
DEPLOYMENT_REVISION: Final = "deployment.kubernetes.io/revision"
RBAC_AUTOUPDATE: Final = "rbac.authorization.kubernetes.io/autoupdate"
MIRROR_POD: Final = "kubernetes.io/config.mirror"
DEFAULT_STORAGE_CLASS: Final = "storageclass.kubernetes.io/is-default-class"
SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
SERVICE_ACCOUNT_NAME: Final = "kubernetes.io/service-account.name"
SERVICE_ACCOUNT_UID: Final = "kubernetes.io/service-account.uid"
PATH_SERVICE_ACCOUNT: Final = "/var/run/secrets/kubernetes.io/serviceaccount"

SECRET_OPAQUE: Final = "Opaque"
SECRET_SERVICE_ACCOUNT_TOKEN: Final = "kubernetes.io/service-account-token"
SECRET_TLS: Final = "kubernetes.io/tls"
SECRET_DOCKER_CONFIG_JSON: Final = "kubernetes.io/dockerconfigjson"
SECRET_DOCKER_CFG: Final = "kubernetes.io/dockercfg"
SECRET_BASIC_AUTH: Final = "kubernetes.io/basic-auth"
SECRET_SSH_AUTH: Final = "kubernetes.io/ssh-auth"

SYSTEM_CLUSTER_CRITICAL: Final = "system-cluster-critical"
SYSTEM_NODE_CRITICAL: Final = "system-node-critical"
SYSTEM_CRITICAL_PRIORITY: Final = 2_000_000_000
HIGHEST_USER_PRIORITY: Final = 1_000_000_000

GROUP_MASTERS: Final = "system:masters"
GROUP_AUTHENTICATED: Final = "system:authenticated"
GROUP_UNAUTHENTICATED: Final = "system:unauthenticated"
GROUP_SERVICE_ACCOUNTS: Final = "system:serviceaccounts"
GROUP_NODES: Final = "system:nodes"
USER_ANONYMOUS: Final = "system:anonymous"
SERVICE_ACCOUNT_USER: Final = "system:serviceaccount:{namespace}:{name}"
NODE_USER: Final = "system:node:{name}"

CPU: Final = "cpu"
MEMORY: Final = "memory"
PODS: Final = "pods"
EPHEMERAL_STORAGE: Final = "ephemeral-storage"
STORAGE: Final = "storage"
HUGEPAGES_PREFIX: Final = "hugepages-"
REQUESTS_PREFIX: Final = "requests."
LIMITS_PREFIX: Final = "limits."
COUNT_PREFIX: Final = "count/"
