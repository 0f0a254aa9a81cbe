"""Jobs and queues of the scheduler's cluster state, and priority classes.

The sums of a queue are those of its jobs. Every change updates them; they are never summed from
scratch. `pending` are the jobs with something to decide, `changed` those with a status to write. A
cycle visits only these jobs, so an idle cluster costs nothing.
"""

from __future__ import annotations

from hekla.api import core, scheduling, wellknown
from hekla.api.wellknown import QueueState
from hekla.scheduler.state.dimensions import MAX_AMOUNT, Dimensions, padded
from hekla.scheduler.state.fields import seconds
from hekla.scheduler.state.model import Job, Queue
from hekla.scheduler.state.status import ALLOCATED_CLASS, PENDING
from hekla.scheduler.state.subgroups import policies_of
from hekla.scheduler.state.usage_history import History

_SUMS = ("allocated_r", "pending_r", "inqueue_r", "elastic_r", "pipelined_r")


class JobTable:
    """All jobs, queues and priority classes."""

    def __init__(self, dimensions: Dimensions, default_queue: str) -> None:
        self.dimensions = dimensions
        self.jobs: dict[str, Job] = {}
        self.queues: dict[str, Queue] = {}
        self.pending: dict[str, Job] = {}
        """Jobs with pending tasks, or with a PodGroup in phase Pending."""
        self.changed: dict[str, Job] = {}
        """Jobs whose status may have to be written."""
        self.changed_queues: dict[str, None] = {}
        """Queues whose sums changed, also by jobs that are deleted."""
        self.history: History | None = None
        """Usage of queues, namespaces and users over time; kept if a plugin needs it."""
        self._capacity = dimensions.capacity
        self._default_queue = default_queue
        self._priority_classes: dict[str, core.PriorityClass] = {}
        self._stale_sums: dict[str, Job] = {}
        self._others: dict[str, str] = {}
        self._others_of: dict[str, set[str]] = {}

    # --- PodGroups ----------------------------------------------------------------------------

    def set_group(self, group: scheduling.PodGroup) -> None:
        job = self.get_or_create(f"{group.namespace}/{group.name}")
        spec = group.spec
        job.has_group = True
        job.uid = group.uid
        job.min_member = spec.min_member
        job.min_task_member = spec.min_task_member
        job.phase = group.status.phase
        job.conditions = group.status.conditions
        job.counts_written = (group.status.running, group.status.succeeded, group.status.failed)
        job.created = seconds(group.metadata.creation_timestamp)
        job.annotations, job.labels = group.annotations, group.labels
        job.priority_class = spec.priority_class_name
        problems: list[str] = []
        job.min_resources_r, job.min_rows = None, ()
        if spec.min_resources is not None:
            job.min_resources_r, wrong = self.dimensions.vector(spec.min_resources)
            job.min_rows = tuple(
                sorted(
                    row
                    for name in spec.min_resources
                    if (row := self.dimensions.row(name)) is not None
                )
            )
            problems += [f"minResources {text}" for text in wrong]
        job.topology = spec.network_topology
        job.domain = group.annotations.get(wellknown.JOB_ALLOCATED_HYPERNODE, "")
        policies, wrong = policies_of(spec.sub_group_policy)
        if policies or job.policies:
            job.set_policies(policies)
        problems += wrong
        if spec.min_member < 0:
            problems.append(f"minMember is {spec.min_member}")
        self.fit_rows()
        job.priority, wrong_class = self._priority(job.priority_class)
        job.problems = (*problems, *wrong_class)
        self._move_to_queue(job, spec.queue or self._default_queue)
        self.mark_changed(job)

    def assume_group(
        self,
        key: str,
        phase: str,
        counts: tuple[int, int, int],
        domain: str | None,
        conditions: tuple[scheduling.PodGroupCondition, ...],
    ) -> None:
        """Take over a decided status of a PodGroup until the watch confirms it.

        Nothing is left to write for it. Otherwise a write that waits in the queue would be decided
        again in every cycle.
        """
        job = self.jobs.get(key)
        if job is not None:
            job.phase, job.counts_written, job.conditions = phase, counts, conditions
            job.domain = job.domain if domain is None else domain
            self.mark_changed(job, is_written=True)

    def delete_group(self, namespace: str, name: str) -> None:
        job = self.jobs.get(f"{namespace}/{name}")
        if job is None:
            return
        # The remaining pods get a new job without a group: state depends on the objects that
        # exist, not on earlier ones.
        self.forget(job)
        tasks = list(job.tasks.values())
        for task in tasks:
            job.remove(task)
        for task in tasks:
            self.get_or_create(job.key).add(task)
        if tasks:
            self.mark_changed(self.get_or_create(job.key))

    def get_or_create(self, key: str) -> Job:
        job = self.jobs.get(key)
        if job is None:
            job = self.jobs[key] = Job(key, self.dimensions)
        return job

    def forget(self, job: Job) -> None:
        if self.history is not None:
            self.history.mark_changed(job)
        self._leave_queue(job)
        for jobs in (self.jobs, self.pending, self.changed, self._stale_sums):
            jobs.pop(job.key, None)

    def mark_changed(self, job: Job, *, is_written: bool = False) -> None:
        """Mark a job for the next cycle; with `is_written`, only its status changed."""
        self.changed_queues[job.queue_name] = None
        self._stale_sums[job.key] = job
        if self.history is not None:
            self.history.mark_changed(job)
        if self._others_of and self._is_others(job):
            self.changed.pop(job.key, None)
            self.pending.pop(job.key, None)
            return
        if not is_written:
            self.changed[job.key] = job
        if job.has_group and (job.by_status[PENDING] or job.is_pending):
            self.pending[job.key] = job
        else:
            self.pending.pop(job.key, None)

    # --- queues -------------------------------------------------------------------------------

    def set_queue(self, obj: scheduling.Queue) -> None:
        queue = self.queues.get(obj.name)
        if queue is None:
            queue = self.queues[obj.name] = Queue(obj.name, self.dimensions)
            for job in list(self.jobs.values()):
                if job.queue_name == obj.name:
                    self._move_to_queue(job, obj.name)
        spec = obj.spec
        queue.uid = obj.uid
        queue.created = seconds(obj.metadata.creation_timestamp)
        queue.weight, queue.priority, queue.parent = spec.weight, spec.priority, spec.parent
        # A new queue has no state until its controller has seen it. Volcano's webhook and
        # controller make it Open.
        queue.state = obj.status.state or QueueState.OPEN
        queue.is_reclaimable = spec.reclaimable is not False
        queue.annotations = obj.annotations
        queue.affinity = spec.affinity
        queue.allocated_written = obj.status.allocated
        queue.capability_r, bad1 = self.dimensions.vector(spec.capability)
        queue.guarantee_r, bad2 = self.dimensions.vector(spec.guarantee.resource)
        queue.deserved_r, bad3 = self.dimensions.vector(spec.deserved)
        queue.problems = (*bad1, *bad2, *bad3)
        # A guarantee beyond any cluster would leave nothing for the other queues.
        queue.guarantee_r[queue.guarantee_r >= MAX_AMOUNT] = 0.0
        queue.has_guarantee = bool(queue.guarantee_r.any())
        self.fit_rows()

    def delete_queue(self, name: str) -> None:
        queue = self.queues.get(name)
        if queue is None:
            return
        for job in list(queue.jobs.values()):
            self._leave_queue(job)
            job.queue_name = name
            self.mark_changed(job)
        del self.queues[name]

    def _move_to_queue(self, job: Job, name: str) -> None:
        queue = self.queues.get(name)
        if job.queue_name == name and job.queue is queue:
            return
        self._leave_queue(job)
        job.queue_name, job.queue = name, queue
        if queue is None:
            return
        queue.jobs[job.key] = job
        queue.allocated_pods += job.count(*ALLOCATED_CLASS)
        queue.allocated_r += job.allocated_r
        queue.pending_r += job.pending_r
        queue.inqueue_r += job.inqueue_r
        queue.elastic_r += job.elastic_r

    def _leave_queue(self, job: Job) -> None:
        queue = job.queue
        if queue is None:
            return
        queue.jobs.pop(job.key, None)
        self.changed_queues[queue.name] = None
        queue.allocated_pods -= job.count(*ALLOCATED_CLASS)
        queue.allocated_r -= job.allocated_r
        queue.pending_r -= job.pending_r
        queue.inqueue_r -= job.inqueue_r
        queue.elastic_r -= job.elastic_r
        job.queue = None

    def refresh_sums(self) -> None:
        """Update the sums of jobs that changed, and of their queues."""
        for job in self._stale_sums.values():
            self._refresh_sums(job)
        self._stale_sums = {}

    def mark_clean(self) -> None:
        """Record that the results of a cycle are written or being written."""
        self.changed = {}
        self.changed_queues = {}

    def _refresh_sums(self, job: Job) -> None:
        queue = job.queue
        old_inqueue_r, old_elastic_r = job.inqueue_r, job.elastic_r
        job.refresh_sums()
        if queue is not None:
            queue.inqueue_r += job.inqueue_r - old_inqueue_r
            queue.elastic_r += job.elastic_r - old_elastic_r

    # --- priorities ---------------------------------------------------------------------------

    def set_priority_class(self, obj: core.PriorityClass) -> None:
        self._priority_classes[obj.name] = obj
        self._reprioritise()

    def delete_priority_class(self, name: str) -> None:
        self._priority_classes.pop(name, None)
        self._reprioritise()

    def _reprioritise(self) -> None:
        for job in self.jobs.values():
            job.priority, wrong = self._priority(job.priority_class)
            kept = tuple(text for text in job.problems if not text.startswith("priority class"))
            job.problems = (*kept, *wrong)

    def priority_of_class(self, name: str) -> int | None:
        """Return the value of a priority class; None if it does not exist."""
        found = self._priority_classes.get(name)
        return None if found is None else found.value

    def _priority(self, name: str) -> tuple[int, tuple[str, ...]]:
        """Return the value of a priority class, or of the global default, or 0."""
        named = self._priority_classes.get(name)
        if named is not None:
            return named.value, ()
        defaults = [c.value for c in self._priority_classes.values() if c.global_default]
        value = max(defaults, default=0)
        if name:
            return value, (f"priority class {name!r} does not exist; the default counts",)
        return value, ()

    # --- pods of other schedulers -------------------------------------------------------------

    def add_other(self, uid: str, key: str) -> None:
        """Record a pod of another scheduler, and its job."""
        if key and uid not in self._others:
            self._others[uid] = key
            self._others_of.setdefault(key, set()).add(uid)
            if key in self.jobs:
                self.mark_changed(self.jobs[key])

    def remove_other(self, uid: str) -> None:
        key = self._others.pop(uid, "")
        if key:
            self._others_of[key].discard(uid)
            if not self._others_of[key]:
                del self._others_of[key]
            if key in self.jobs:
                self.mark_changed(self.jobs[key])

    def _is_others(self, job: Job) -> bool:
        """Tell whether all pods of a job name another scheduler, which then writes its status."""
        others = self._others_of.get(job.key)
        return others is not None and job.tasks.keys() <= others

    def fit_rows(self) -> None:
        """Lengthen vectors after a new resource was interned."""
        capacity = self.dimensions.capacity
        if self._capacity >= capacity:
            return
        self._capacity = capacity
        for job in self.jobs.values():
            for name in _SUMS:
                setattr(job, name, padded(getattr(job, name), capacity))
            if job.min_resources_r is not None:
                job.min_resources_r = padded(job.min_resources_r, capacity)
        for queue in self.queues.values():
            for name in _SUMS:
                setattr(queue, name, padded(getattr(queue, name), capacity))
            for name in ("capability_r", "guarantee_r", "deserved_r"):
                setattr(queue, name, padded(getattr(queue, name), capacity))
