"""Checkpoint: the cluster state as a list of changes that build it from nothing.

Objects alone are not enough: binds and evictions in flight, and statuses that were sent, count in a
decision before the watch confirms them.
"""

from __future__ import annotations

from collections.abc import Iterator

from hekla.api.wellknown import JOB_ALLOCATED_HYPERNODE
from hekla.scheduler.service.cache import Cache
from hekla.scheduler.state.changes import (
    Assumed,
    Change,
    Due,
    Elapsed,
    GroupWritten,
    Leaves,
    Measured,
    PodWritten,
    QueueWritten,
    Recalled,
    Rescheduled,
    Resources,
    Settled,
    Stays,
    condition_rows,
)
from hekla.scheduler.state.cluster import Cluster
from hekla.scheduler.state.status import BINDING


def checkpoint(cache: Cache) -> list[Change]:
    """Return changes that, applied to an empty cluster, give one that decides alike."""
    cluster = cache.cluster
    found: list[Change] = [Resources(tuple(cluster.dimensions.names)), *cache.objects()]
    found += _tasks(cluster, cache)
    found += _jobs(cluster, cache)
    if cluster.job_table.history is not None:
        past = cluster.job_table.history.exact(cluster.jobs)
        at = cluster.job_table.history.at
        found += [Elapsed(at, cluster.job_table.history.half_life_s), Recalled(at, past)]
    if cluster.node_table.readings:
        found.append(
            Measured({period: dict(each) for period, each in cluster.node_table.readings.items()})
        )
    if cluster.rescheduled_at:
        found.append(Rescheduled(cluster.rescheduled_at))
    found += [
        Settled(),
        Due(tuple(cluster.job_table.changed), tuple(cluster.job_table.changed_queues)),
    ]
    return found


def _tasks(cluster: Cluster, cache: Cache) -> Iterator[Change]:
    for task in cluster.tasks.values():
        if task.status == BINDING:
            yield Assumed(task.uid, task.node_name, task.notes)
        if task.uid in cluster.leaving:
            yield Leaves(task.uid)
        if task.uid in cluster.unevictable:
            yield Stays(task.uid)
        pod = cache.pods.get(task.namespace, task.name)
        if pod is None:
            continue
        told = [c for c in pod.status.conditions or () if c.type == "PodScheduled"]
        condition = (told[0].status, told[0].reason, told[0].message) if told else ("", "", "")
        shown = (condition, pod.status.nominated_node_name)
        if (task.condition, task.nominated_node) != shown:
            yield PodWritten(task.uid, task.condition, task.nominated_node)


def _jobs(cluster: Cluster, cache: Cache) -> Iterator[Change]:
    for job in cluster.jobs.values():
        group = cache.groups.get(job.namespace, job.name)
        if group is not None:
            status = group.status
            counts = (status.running, status.succeeded, status.failed)
            domain = group.annotations.get(JOB_ALLOCATED_HYPERNODE, "")
            shown = (status.phase, counts, domain, condition_rows(status.conditions))
            known = (job.phase, job.counts_written, job.domain, condition_rows(job.conditions))
            if known != shown:
                yield GroupWritten(job.key, *known)
    for name, queue in cluster.queues.items():
        stored = cache.queues.get("", name)
        if stored is not None and queue.allocated_written != stored.status.allocated:
            yield QueueWritten(name, queue.allocated_written)
