"""The controllers' metrics, under Volcano's names where it has them.

Every metric is declared here; counting an undeclared one raises. Series of a job are removed with
the job, and series of a queue with the queue; Volcano's counters keep those of all jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from hekla.web.metrics import Counter, Gauge, Registry, exponential_buckets, keep_series, series

COUNTERS: Final[dict[str, tuple[str, str, tuple[str, ...]]]] = {
    "pods_created": ("hekla_controller_pods_created_total", "Pods created.", ()),
    "pods_deleted": ("hekla_controller_pods_deleted_total", "Pods deleted.", ()),
    "job_phase_changes": ("hekla_job_phase_changes_total", "Phases that jobs entered.", ("phase",)),
    "job_sync_conflicts": (
        "hekla_job_sync_conflicts_total",
        "Reconciliations of a job that met a conflict.",
        (),
    ),
    "job_sync_errors": ("hekla_job_sync_errors_total", "Reconciliations of a job that failed.", ()),
    "sync_errors": (
        "hekla_controller_sync_errors_total",
        "Reconciliations that failed, by controller.",
        ("controller",),
    ),
    "cronjob_runs_started": ("hekla_cronjob_runs_started_total", "Jobs created by CronJobs.", ()),
    "commands_without_target": (
        "hekla_commands_without_target_total",
        "Commands deleted because their target does not exist.",
        (),
    ),
    "jobs_expired": ("hekla_jobs_expired_total", "Finished jobs deleted after their TTL.", ()),
    "job_completed_phase_count": (
        "volcano_job_completed_phase_count",
        "Times a job completed.",
        ("job_name", "queue_name"),
    ),
    "job_failed_phase_count": (
        "volcano_job_failed_phase_count",
        "Times a job failed.",
        ("job_name", "queue_name"),
    ),
    "jobflow_succeed_phase_count": (
        "hekla_jobflow_succeed_phase_total",
        "Flows that succeeded.",
        ("jobflow_namespace",),
    ),
    "jobflow_failed_phase_count": (
        "hekla_jobflow_failed_phase_total",
        "Flows that failed.",
        ("jobflow_namespace",),
    ),
}
GROUP_PHASES: Final = ("pending", "running", "unknown", "inqueue", "completed")
BY_JOB: Final = ("job_completed_phase_count", "job_failed_phase_count")


class Metrics:
    """Counters by short names, and gauges."""

    def __init__(self, registry: Registry | None = None) -> None:
        self.registry = registry or Registry()
        self._counters: dict[str, Counter | Gauge] = {
            short: self._declare(name, text, labels)
            for short, (name, text, labels) in COUNTERS.items()
        }
        self._creation = self.registry.histogram(
            "volcano_controller_job_to_pod_creation_latency_milliseconds",
            "From the creation of a job to the creation of each of its pods.",
            exponential_buckets(10, 600_000, 20),
        )
        self._groups = {
            phase: self.registry.gauge(
                f"volcano_queue_pod_group_{phase}_count",
                f"PodGroups of a queue that are {phase}.",
                ("queue_name",),
            )
            for phase in GROUP_PHASES
        }
        self._leader = self.registry.gauge(
            "hekla_leader", "1 while this process is the leader, else 0."
        )

    def _declare(self, name: str, text: str, labels: tuple[str, ...]) -> Counter | Gauge:
        is_suffixed = name.endswith("_total")
        declare = self.registry.counter if is_suffixed else self.registry.unsuffixed_counter
        return declare(name, text, labels)

    def count(self, name: str, by: int = 1, **labels: str) -> None:
        counter = self._counters[name]
        (counter.labels(**labels) if labels else counter).inc(by)

    def pod_created(self, job_age_s: float) -> None:
        self.count("pods_created")
        self._creation.observe(max(job_age_s, 0.0) * 1000)

    def count_groups(self, queue: str, counts: Mapping[str, int]) -> None:
        """Set the number of PodGroups of a queue in each phase."""
        for phase, gauge in self._groups.items():
            gauge.labels(queue).set(counts[phase])

    def forget_queue(self, queue: str) -> None:
        for gauge in self._groups.values():
            gauge.remove(queue)

    def set_leader(self, is_leader: bool) -> None:
        self._leader.set(is_leader)

    def get(self, name: str, **labels: str) -> int:
        """Return one counter, or the sum over its labels when none are given."""
        values = series(self._counters[name])
        if not labels:
            return int(sum(values.values()))
        return int(values.get(tuple(labels[label] for label in COUNTERS[name][2]), 0))

    def keep_jobs(self, exists: Callable[[str], bool]) -> None:
        """Remove the series of deleted jobs."""
        for name in BY_JOB:
            keep_series(self._counters[name], lambda labels: exists(labels[0]))
