"""Metrics of the scheduler, under Volcano's names where Volcano has one.

Frequent events (binds, cycles) are counted when they happen. What follows from the cluster (queues,
pending jobs) is computed on each scrape, and disappears with its object.

Unlike in Volcano, `job_id` is `namespace/name`, since bare names collide, and attempts are counted;
Volcano declares the counter and never increments it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

import numpy as np

from hekla.kube.informers import Informer
from hekla.scheduler.framework.plan import Plan, QueueMetrics
from hekla.scheduler.state.cluster import Cluster
from hekla.scheduler.state.dimensions import CPU, MEMORY, FloatArray
from hekla.scheduler.state.load import STALE_S
from hekla.scheduler.state.model import Job, Queue, Task
from hekla.scheduler.state.status import PENDING
from hekla.web.metrics import Labels, Registry, Snapshot, exponential_buckets, keep_series

PREFIX: Final = "volcano_"
SESSIONS: Final = {"open": "OnSessionOpen", "close": "OnSessionClose"}
AMOUNTS: Final[dict[str, tuple[str, Callable[[Queue], FloatArray]]]] = {
    "allocated": ("has allocated", lambda queue: queue.allocated_r),
    "request": (
        "requests, allocated amounts included",
        lambda queue: queue.allocated_r + queue.pending_r,
    ),
    "deserved": ("deserves", lambda queue: queue.deserved_r),
    "real_capacity": (
        "may use beside the guarantees of other queues",
        lambda queue: queue.capability_r,
    ),
    "capacity": ("may use at most", lambda queue: queue.capability_r),
    "inqueue": ("reserves for Inqueue jobs", lambda queue: queue.inqueue_r),
}


class SchedulerMetrics:
    """The metrics of one scheduler."""

    def __init__(self, registry: Registry | None = None) -> None:
        self.registry = registry or Registry()
        self._make_timings()
        self._make_counters()
        self._make_gauges()

    def _make_timings(self) -> None:
        make = self.registry.histogram
        cycle = exponential_buckets(1, 5000, 20)
        self._cycle = make(
            PREFIX + "e2e_scheduling_latency_milliseconds", "Length of cycles.", cycle
        )
        self._open = make(
            PREFIX + "open_session_duration_milliseconds", "Time to open a session.", cycle
        )
        self._job = make(
            PREFIX + "e2e_job_scheduling_latency_milliseconds",
            "From the creation of a job's PodGroup to the binding of its pods.",
            exponential_buckets(100, 120_000, 30),
        )
        self._plugin = make(
            PREFIX + "plugin_scheduling_latency_milliseconds",
            "Time of plugins to open and close a session.",
            exponential_buckets(0.1, 100, 15),
            ("plugin", "OnSession"),
        )
        self._action = make(
            PREFIX + "action_scheduling_latency_milliseconds",
            "Time of actions.",
            exponential_buckets(1, 2000, 20),
            ("action",),
        )
        tasks = make(
            PREFIX + "task_scheduling_latency_milliseconds",
            "From the creation of a pod to a stage of its scheduling.",
            exponential_buckets(50, 60_000, 30),
            ("stage",),
        )
        stages = make(
            PREFIX + "scheduling_stage_duration_milliseconds",
            "Time of scheduling stages of a pod.",
            exponential_buckets(0.1, 500, 20),
            ("stage",),
        )

        # Observed once per pod: the lookup of the label values is not repeated.
        self._bound_tasks = tasks.labels("Bound")
        self._bind_stage = stages.labels("Bind")

    def _make_counters(self) -> None:
        make = self.registry.counter
        self._attempts = make(
            PREFIX + "schedule_attempts_total",
            "Scheduling attempts of jobs, by result.",
            ("result",),
        )
        self._preemptions = self.registry.unsuffixed_counter(
            PREFIX + "total_preemption_attempts", "Jobs for which pods were evicted."
        )
        self._evictions = make(
            PREFIX + "eviction_transactions_total",
            "Preemption plans, by action.",
            ("action",),
        )
        self._retries = self.registry.unsuffixed_counter(
            PREFIX + "job_retry_counts", "Times that a job's binds failed.", ("job_id",)
        )
        self._failures = make("hekla_plugin_failures_total", "Failures of a plugin.", ("plugin",))
        self._failed_cycles = make("hekla_failed_cycles_total", "Cycles that raised an error.")
        self._breaches = make(
            "hekla_invariant_breaches_total",
            "Safety laws that a plan broke, with --check-invariants.",
            ("law",),
        )
        self._effects = self.registry.counter_snapshot(
            "hekla_effects_total",
            "Writes by effect and result.",
            ("effect", "result"),
        )
        self._watched = self.registry.counter_snapshot(
            "hekla_watch_total",
            "Lists, watches, events and failures of informers.",
            ("kind", "what"),
        )
        self._load_reads = make("hekla_load_reads_total", "Polls of node loads.", ("result",))

    def _make_gauges(self) -> None:
        make, snapshot = self.registry.gauge, self.registry.gauge_snapshot
        self._victims = make(
            PREFIX + "pod_preemption_victims", "Pods evicted by the last cycle with evictions."
        )
        by_job = ("job_name", "queue", "job_namespace")
        self._duration = make(
            PREFIX + "e2e_job_scheduling_duration",
            "Milliseconds from the creation of a job to its last binding.",
            by_job,
        )
        self._start = make(
            PREFIX + "e2e_job_scheduling_start_time", "Creation time of a job, Unix time.", by_job
        )
        self._last = make(
            PREFIX + "e2e_job_scheduling_last_time",
            "Time of a job's last binding, Unix time.",
            by_job,
        )
        self._waiting_tasks = snapshot(
            PREFIX + "unschedule_task_count", "Pending pods of a job.", ("job_id",)
        )
        self._waiting_jobs = make(PREFIX + "unschedule_job_count", "Pending jobs.")
        self._weight = snapshot(PREFIX + "queue_weight", "Weight of a queue.", ("queue_name",))
        self._share = snapshot(
            PREFIX + "queue_share",
            "Dominant share of a queue relative to its deserved amount.",
            ("queue_name",),
        )
        self._overused = snapshot(
            PREFIX + "queue_overused", "1 if a queue is overused, else 0.", ("queue_name",)
        )
        self._past = snapshot(
            "hekla_fairshare",
            "Dominant share of usage over time, with decay.",
            ("level", "name"),
        )
        self.figures: dict[str, QueueMetrics] = {}
        """What plugins computed for queues in the last cycle."""
        self._amounts: dict[str, tuple[Snapshot, Snapshot, Snapshot]] = {
            name: (
                snapshot(
                    f"{PREFIX}queue_{name}_milli_cpu", f"CPU a queue {text}.", ("queue_name",)
                ),
                snapshot(
                    f"{PREFIX}queue_{name}_memory_bytes", f"Memory it {text}.", ("queue_name",)
                ),
                snapshot(
                    f"{PREFIX}queue_{name}_scalar_resources",
                    f"Other resources it {text}: thousandths, or bytes.",
                    ("queue_name", "resource"),
                ),
            )
            for name, (text, _) in AMOUNTS.items()
        }
        self._leader = make("hekla_leader", "1 while this process is the leader, else 0.")
        self._backlog = make("hekla_unsent_binds", "Unsent binds.")

        self._load_nodes = snapshot(
            "hekla_load_nodes", "Nodes by the state of their load reading.", ("readings",)
        )

    # --- events -------------------------------------------------------------------------------

    def cycle(self, plan: Plan, took_s: float) -> None:
        self._cycle.observe(took_s * 1000)
        self.figures = plan.queues
        for (kind, name), seconds in plan.timings_s.items():
            if kind == "session":
                self._open.observe(seconds * 1000)
            elif kind == "action":
                self._action.labels(name).observe(seconds * 1000)
            else:
                self._plugin.labels(name, SESSIONS[kind]).observe(seconds * 1000)
        placed = {bind.job for bind in plan.binds}
        self._attempts.labels("scheduled").inc(len(placed))
        self._attempts.labels("unschedulable").inc(len(plan.verdicts.keys() - placed))
        evictions = plan.evictions
        if evictions:
            self._victims.set(len(evictions))
            transactions = {(effect.reason, effect.job) for effect in evictions}
            self._preemptions.inc(len({job for _, job in transactions}))
            for reason, _ in transactions:
                self._evictions.labels(reason).inc()
        for failure in plan.failures:
            self._failures.labels(failure.plugin).inc()

    def invariant_broken(self, law: str) -> None:
        """Count a breach of a safety law."""
        self._breaches.labels(law).inc()

    def cycle_failed(self) -> None:
        self._attempts.labels("error").inc()
        self._failed_cycles.inc()

    def bind_took(self, seconds: float) -> None:
        self._bind_stage.observe(seconds * 1000)

    def pod_bound(self, task: Task | None, now: float) -> None:
        if task is not None and task.created:
            self._bound_tasks.observe(max(now - task.created, 0.0) * 1000)

    def gang_bound(self, job: Job | None, now: float) -> None:
        if job is None or not job.created:
            return
        took_ms = max(now - job.created, 0.0) * 1000
        self._job.observe(took_ms)
        labels = (job.name, job.queue_name, job.namespace)
        self._duration.labels(*labels).set(took_ms)
        self._start.labels(*labels).set(job.created)
        self._last.labels(*labels).set(now)

    def load_read(self, result: str) -> None:
        self._load_reads.labels(result).inc()

    def job_retried(self, job: str) -> None:
        self._retries.labels(job).inc()

    # --- scrapes ------------------------------------------------------------------------------

    def collect(
        self,
        cluster: Cluster,
        *,
        effects: Mapping[tuple[str, str], int],
        informers: Iterable[Informer[object]],
        unsent: int,
        now: float = 0.0,
    ) -> None:
        """Compute the metrics of the current state, and drop series of deleted objects."""
        jobs = cluster.jobs
        for gauge in (self._duration, self._start, self._last):
            keep_series(gauge, lambda labels: f"{labels[2]}/{labels[0]}" in jobs)
        keep_series(self._retries, lambda labels: labels[0] in jobs)
        waiting: dict[Labels, float] = {
            (key,): float(len(job.by_status[PENDING]))
            for key, job in cluster.job_table.pending.items()
        }
        self._waiting_tasks.replace(waiting)
        self._waiting_jobs.set(len(waiting))
        self._collect_queues(cluster)
        past: dict[Labels, float] = dict(cluster.shares(now).items())
        self._past.replace(past)
        self._effects.replace(dict(effects.items()))
        self._watched.replace(
            {
                (informer.resource.kind, what): getattr(informer.stats, what)
                for informer in informers
                for what in ("lists", "watches", "events", "failures", "undecodable")
            }
        )
        self._backlog.set(unsent)
        self._collect_loads(cluster, now)

    def _collect_loads(self, cluster: Cluster, now: float) -> None:
        """Compute load metrics; none if no load was ever read."""
        if not cluster.node_table.readings:
            return
        total = sum(node.is_known for node in cluster.nodes.values())
        found = cluster.node_table.readings.values()
        fresh = max(sum(now - r.at <= STALE_S for r in each.values()) for each in found)
        self._load_nodes.replace({("fresh",): fresh, ("missing or stale",): max(total - fresh, 0)})

    def _collect_queues(self, cluster: Cluster) -> None:
        queues = cluster.queues
        self._weight.replace({(name,): float(queue.weight) for name, queue in queues.items()})
        figures = {name: f for name, f in self.figures.items() if name in queues}
        self._share.replace({(name,): f.share for name, f in figures.items()})
        self._overused.replace({(name,): float(f.is_overused) for name, f in figures.items()})
        names = cluster.dimensions.names
        for what, (cpu, memory, scalars) in self._amounts.items():
            read = AMOUNTS[what][1]
            vectors = {name: read(queue) for name, queue in queues.items()}
            if what == "deserved":
                vectors |= {name: f.deserved_r for name, f in figures.items()}
            elif what == "real_capacity":
                vectors = {name: _finite(f.limit_r) for name, f in figures.items()}
            cpu.replace({(name,): float(vector[CPU]) for name, vector in vectors.items()})
            memory.replace({(name,): float(vector[MEMORY]) for name, vector in vectors.items()})
            scalars.replace(
                {
                    (name, names[row]): float(vector[row])
                    for name, vector in vectors.items()
                    for row in np.flatnonzero(vector[: len(names)]).tolist()
                    if row not in (CPU, MEMORY)
                }
            )

    def set_leader(self, is_leader: bool) -> None:
        self._leader.set(is_leader)


def _finite(vector_r: FloatArray) -> FloatArray:
    """Return 0 for no limit, as Volcano shows it."""
    return np.where(np.isfinite(vector_r), vector_r, 0.0)
