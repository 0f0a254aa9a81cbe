"""training.volcano.sh/v1alpha1: HyperJob, related jobs in one or several clusters.

Volcano has no CRD for it; a multi-cluster add-on has. `template_spec` is a job spec that is copied,
hence a plain dict.
"""

from __future__ import annotations

from typing import Any

from msgspec import field

from hekla.api.batch import JobState
from hekla.api.meta import Condition, Model, Object


class SplitPolicy(Model):
    mode: str = ""
    accelerators: int | None = None
    accelerator_type: str = ""


class ReplicatedJob(Model):
    name: str = ""
    template_spec: dict[str, Any] = field(default_factory=dict)
    split_policy: SplitPolicy | None = None
    replicas: int = 1
    cluster_names: tuple[str, ...] = ()


class HyperJobSpec(Model):
    replicated_jobs: tuple[ReplicatedJob, ...] = ()
    min_available: int | None = None
    max_domains: int | None = None
    plugins: dict[str, tuple[str, ...]] = field(default_factory=dict)


class ReplicatedJobStatus(Model):
    name: str = ""
    job_states: dict[str, JobState] = field(default_factory=dict)
    pending: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    terminating: int = 0
    unknown: int = 0


class HyperJobStatus(Model):
    conditions: tuple[Condition, ...] = ()
    replicated_jobs_status: tuple[ReplicatedJobStatus, ...] = ()
    split_count: int | None = None
    observed_generation: int = 0


class HyperJob(Object):
    spec: HyperJobSpec = field(default_factory=HyperJobSpec)
    status: HyperJobStatus = field(default_factory=HyperJobStatus)
