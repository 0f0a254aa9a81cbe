"""batch.volcano.sh/v1alpha1: Job and CronJob, with all fields of their CRDs.

A task's `template` is a plain dict, because the controller copies it into pods. Read it with
`meta.convert(task.template, pods.PodTemplateSpec)`.

Note: models drop unknown fields; patch, and never write one back.
"""

from __future__ import annotations

from typing import Any

from msgspec import field

from hekla.api.meta import Model, Object, ObjectReference
from hekla.api.scheduling import NetworkTopology


class LifecyclePolicy(Model):
    action: str = ""
    event: str = ""
    events: tuple[str, ...] = ()
    exit_code: int | None = None
    timeout: str | None = None

    @property
    def all_events(self) -> tuple[str, ...]:
        """`events` and `event` combined: a policy may use either or both."""
        return (*self.events, self.event) if self.event else self.events


class DependsOn(Model):
    name: tuple[str, ...] = ()
    iteration: str = ""


class PartitionPolicy(Model):
    total_partitions: int = 0
    partition_size: int = 0
    network_topology: NetworkTopology | None = None
    min_partitions: int = 0


class TaskSpec(Model):
    name: str = ""
    replicas: int = 0
    min_available: int | None = None
    template: dict[str, Any] = field(default_factory=dict)
    policies: tuple[LifecyclePolicy, ...] = ()
    topology_policy: str = ""
    max_retry: int = 0
    depends_on: DependsOn | None = None
    partition_policy: PartitionPolicy | None = None


class VolumeSpec(Model):
    mount_path: str = ""
    volume_claim_name: str = ""
    volume_claim: dict[str, Any] | None = None
    """A PersistentVolumeClaimSpec, copied to the claim."""


class JobSpec(Model):
    scheduler_name: str = ""
    min_available: int = 0
    volumes: tuple[VolumeSpec, ...] = ()
    tasks: tuple[TaskSpec, ...] = ()
    policies: tuple[LifecyclePolicy, ...] = ()
    plugins: dict[str, tuple[str, ...]] = field(default_factory=dict)
    running_estimate: str | None = None
    queue: str = ""
    max_retry: int = 0
    ttl_seconds_after_finished: int | None = None
    priority_class_name: str = ""
    min_success: int | None = None
    network_topology: NetworkTopology | None = None

    @property
    def total_replicas(self) -> int:
        return sum(task.replicas for task in self.tasks)


class JobState(Model):
    phase: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class TaskState(Model):
    phase: dict[str, int] = field(default_factory=dict)


class JobCondition(Model):
    status: str = ""
    last_transition_time: str | None = None


class JobStatus(Model):
    state: JobState = field(default_factory=JobState)
    min_available: int = 0
    task_status_count: dict[str, TaskState] = field(default_factory=dict)
    pending: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    terminating: int = 0
    unknown: int = 0
    version: int = 0
    retry_count: int = 0
    running_duration: str | None = None
    controlled_resources: dict[str, str] = field(default_factory=dict)
    conditions: tuple[JobCondition, ...] = ()


class Job(Object):
    spec: JobSpec = field(default_factory=JobSpec)
    status: JobStatus = field(default_factory=JobStatus)

    @property
    def pod_group_name(self) -> str:
        """The PodGroup of this job; the UID distinguishes it from that of an earlier job."""
        return f"{self.metadata.name}-{self.metadata.uid}"


class TemplateMeta(Model):
    name: str = ""
    namespace: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    finalizers: tuple[str, ...] = ()


class JobTemplateSpec(Model):
    metadata: TemplateMeta = field(default_factory=TemplateMeta)
    spec: dict[str, Any] = field(default_factory=dict)
    """A JobSpec, copied to the created jobs."""


class CronJobSpec(Model):
    schedule: str = ""
    time_zone: str | None = None
    starting_deadline_seconds: int | None = None
    concurrency_policy: str = "Allow"
    suspend: bool | None = None
    job_template: JobTemplateSpec = field(default_factory=JobTemplateSpec)
    successful_jobs_history_limit: int | None = None
    failed_jobs_history_limit: int | None = None


class CronJobStatus(Model):
    active: tuple[ObjectReference, ...] = ()
    last_schedule_time: str | None = None
    last_successful_time: str | None = None


class CronJob(Object):
    spec: CronJobSpec = field(default_factory=CronJobSpec)
    status: CronJobStatus = field(default_factory=CronJobStatus)
