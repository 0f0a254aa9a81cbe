"""The cluster state that a cycle decides on, built from one object at a time.

Objects may arrive in any order: pods before their PodGroup, node or queue, and the other way round.
The result is the same. Nothing here does I/O: the cache feeds it from watches, tests and
simulations from lists. A cycle reads it and leaves it as it was.

`nodes.NodeTable` holds the nodes, `jobs.JobTable` the jobs and queues.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from hekla.api import core, nodeinfo, topology, wellknown
from hekla.scheduler.state import wire
from hekla.scheduler.state.classes import NUMBERING_LABELS, TaskClass
from hekla.scheduler.state.devices.requests import given_to, recorded
from hekla.scheduler.state.dimensions import is_counted
from hekla.scheduler.state.fields import (
    condition_of,
    cooldown_end,
    index_of,
    integer,
    is_leaving,
    is_revocable,
    seconds,
    started,
    status_of,
    truth,
    two_groups,
)
from hekla.scheduler.state.jobs import JobTable
from hekla.scheduler.state.model import LabelGroup, Task
from hekla.scheduler.state.nodes import NodeTable, decrement
from hekla.scheduler.state.status import (
    BINDING,
    BOUND,
    COMPLETED_CLASS,
    PENDING,
    RELEASING,
    RUNNING,
    Status,
)
from hekla.scheduler.state.topology import Patterns, Tree
from hekla.scheduler.state.usage_history import History, Owner, Past

DEFAULT_TASK_PRIORITY = 1
_IN_PLACE = (BINDING, BOUND, RUNNING)
"""Statuses of a task on a node between which the node's columns do not change."""
MAX_RECALLED = 256
"""The number of resources beyond which stored usage adds no new ones."""


class Cluster:
    """The state that a cycle decides on."""

    def __init__(
        self,
        *,
        scheduler_names: Iterable[str] = (wellknown.DEFAULT_SCHEDULER,),
        default_queue: str = wellknown.DEFAULT_QUEUE,
    ) -> None:
        self.node_table = NodeTable()
        self.dimensions = self.node_table.dimensions
        self.classes = self.node_table.classes
        self.matrix = self.node_table.matrix
        self.nodes = self.node_table.nodes
        self.job_table = JobTable(self.dimensions, default_queue)
        self.jobs = self.job_table.jobs
        self.queues = self.job_table.queues
        self.tasks: dict[str, Task] = {}
        self.claims: dict[tuple[str, str], core.PersistentVolumeClaim] = {}
        self.volumes: dict[str, core.PersistentVolume] = {}
        self.storage_classes: dict[str, core.StorageClass] = {}
        """By name. A claim of an unknown class counts as provisioned where its pod goes, so without
        storage classes (the embedded cluster has none) no pod waits for volumes."""
        self.csi_nodes: dict[str, core.CSINode] = {}
        """By node name: how many volumes it can attach. Without an entry there is no limit."""
        self.quotas: dict[str, dict[str, core.ResourceQuota]] = {}
        self.budgets: dict[tuple[str, str], core.PodDisruptionBudget] = {}
        self.namespaces: dict[str, Mapping[str, str]] = {}
        self.numa_topologies: dict[str, nodeinfo.Numatopology] = {}
        """By node name."""
        self.hypernodes: dict[str, topology.HyperNode] = {}
        self._patterns = Patterns()
        self._tree: tuple[int, Tree] | None = None
        self.label_groups: dict[tuple[str, tuple[tuple[str, str], ...]], LabelGroup] = {}
        self.term_classes: dict[TaskClass, int] = {}
        """The number of tasks of each class with pod affinity terms, placed or not."""
        self.leaving: dict[str, Status] = {}
        """Tasks whose eviction was sent and not confirmed by the watch, with their old status."""
        self.unevictable: set[str] = set()
        """Tasks whose eviction was refused recently. They are not considered as victims."""
        self.rescheduled_at = 0.0
        """When overloaded nodes were rebalanced last."""
        self._scheduler_names = frozenset(scheduler_names)

    # --- reading ------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Update columns and sums; call before reading. Costs nothing without changes."""
        self._fit_rows()
        self.node_table.arrange()
        if len(self.label_groups) > 2 * len(self.tasks) + 64:
            # Drop label groups without pods.
            used = {id(task.group) for task in self.tasks.values()}
            self.label_groups = {k: g for k, g in self.label_groups.items() if id(g) in used}
        if self.job_table.history is not None:
            self.job_table.history.refresh(self.jobs)
        self.job_table.refresh_sums()

    def mark_clean(self) -> None:
        """Record that the results of a cycle are written or being written."""
        self.job_table.mark_clean()

    def _fit_rows(self) -> None:
        """Lengthen vectors after a new resource was interned."""
        self.node_table.fit_rows()
        self.job_table.fit_rows()

    # --- nodes --------------------------------------------------------------------------------

    def set_node(self, obj: core.Node) -> None:
        """Add or update a node."""
        self.node_table.set_node(obj)
        self.job_table.fit_rows()

    def delete_node(self, name: str) -> None:
        node = self.nodes.get(name)
        if node is None or not node.is_known:
            return
        node.index = -1
        self.node_table.nodes_changed = True
        if not node.tasks:
            del self.nodes[name]
        for task in node.tasks.values():
            if task.job is not None:
                self.job_table.mark_changed(task.job)

    # --- pods ---------------------------------------------------------------------------------

    def set_pod(self, pod: wire.Pod) -> None:
        meta, spec = pod.metadata, pod.spec
        is_ours = spec.scheduler_name in self._scheduler_names
        group = (meta.annotations or {}).get(wellknown.GROUP_NAME)
        if not is_ours and not spec.node_name:
            self.delete_pod(meta.uid)
            self.job_table.add_other(meta.uid, f"{meta.namespace}/{group}" if group else "")
            return
        if not is_ours:
            self.job_table.add_other(meta.uid, f"{meta.namespace}/{group}" if group else "")
        old = self.tasks.get(meta.uid)
        if old is not None and old.status == BINDING and not spec.node_name and not is_leaving(pod):
            # The watch is behind our own bind: the task stays on its node.
            return
        if old is not None:
            self._drop(old)
        task = self._task(pod)
        if task.uid in self.leaving:
            if task.status in (BOUND, RUNNING):
                # The watch is behind our own eviction.
                self.leaving[task.uid], task.status = task.status, RELEASING
            else:
                del self.leaving[task.uid]
        self._fit_rows()
        self.tasks[task.uid] = task
        if task.klass.has_pod_terms:
            self.term_classes[task.klass] = self.term_classes.get(task.klass, 0) + 1
        if group:
            job = self.job_table.get_or_create(f"{meta.namespace}/{group}")
            job.add(task)
            self.job_table.mark_changed(job)
        if task.node_name and task.status not in COMPLETED_CLASS:
            self.node_table.add_task(task)

    def advance_pod(self, pod: wire.Pod) -> None:
        """Update a pod of which only node, phase and conditions changed; like `set_pod`.

        Most events are of this kind: a pod is bound where we placed it, and then it runs. Its
        resources are accounted already, so only its status changes.
        """
        task, status = self.tasks.get(pod.metadata.uid), status_of(pod)
        if (
            task is None
            or task.status not in _IN_PLACE
            or status not in _IN_PLACE
            or task.node_name != pod.spec.node_name
        ):
            self.set_pod(pod)
            return
        task.nominated_node = pod.status.nominated_node_name
        task.condition = condition_of(pod)
        task.cooldown_end = cooldown_end(pod)
        task.started = started(pod)
        if task.job is None:
            task.status = status
        else:
            task.job.move((task,), status)
            self.job_table.mark_changed(task.job)

    def delete_pod(self, uid: str) -> None:
        task = self.tasks.get(uid)
        if task is not None:
            self._drop(task)
            del self.tasks[uid]
        self.leaving.pop(uid, None)
        self.unevictable.discard(uid)
        self.job_table.remove_other(uid)

    def _drop(self, task: Task) -> None:
        if task.klass.has_pod_terms:
            decrement(self.term_classes, task.klass)
        if task.node_name:
            self.node_table.remove_task(task)
        job = task.job
        if job is not None:
            job.remove(task)
            self.job_table.mark_changed(job)
            if not job.tasks and not job.has_group:
                self.job_table.forget(job)

    def _task(self, pod: wire.Pod) -> Task:
        meta, spec = pod.metadata, pod.spec
        annotations, labels = meta.annotations or {}, meta.labels or {}
        task = Task(meta.uid, meta.namespace, meta.name, self.classes.of(pod))
        task.role = annotations.get(wellknown.TASK_SPEC) or labels.get(wellknown.TASK_SPEC, "")
        task.priority = DEFAULT_TASK_PRIORITY if spec.priority is None else spec.priority
        given = integer(annotations.get(wellknown.TASK_PRIORITY))
        if given is not None:
            task.priority = given
        task.priority_class = spec.priority_class_name
        task.preemption_policy = spec.preemption_policy or ""
        task.created = seconds(meta.creation_timestamp)
        task.started = started(pod)
        task.index = index_of(meta.name)
        task.status = status_of(pod)
        task.node_name = spec.node_name
        task.nominated_node = pod.status.nominated_node_name
        gates = {gate.name for gate in spec.scheduling_gates or ()}
        task.is_queue_gated = gates == {wellknown.QUEUE_ALLOCATION_GATE}
        task.is_gated = bool(gates)
        flag = annotations.get(wellknown.PREEMPTABLE, labels.get(wellknown.PREEMPTABLE))
        task.is_preemptable = flag is None or truth(flag)
        task.is_revocable = is_revocable(annotations)
        task.cooldown_end = cooldown_end(pod)
        task.group = self._label_group(meta.namespace, labels)
        task.labels = labels
        task.problem = two_groups(meta.name, annotations)
        task.condition = condition_of(pod)
        if task.node_name:
            self._note(task, annotations)
        return task

    def _label_group(self, namespace: str, labels: Mapping[str, str]) -> LabelGroup:
        kept = tuple(sorted((k, v) for k, v in labels.items() if k not in NUMBERING_LABELS))
        group = self.label_groups.get((namespace, kept))
        if group is None:
            group = self.label_groups[namespace, kept] = LabelGroup(namespace, dict(kept))
        return group

    # --- where tasks are ----------------------------------------------------------------------

    def assume(self, task: Task, node_name: str, notes: Mapping[str, str] | None = None) -> None:
        """Place a task whose bind was sent, until the watch confirms it."""
        task.node_name = node_name
        self._note(task, notes or {})
        if task.job is not None:
            task.job.move((task,), BINDING)
            self.job_table.mark_changed(task.job)
        else:
            task.status = BINDING
        self.node_table.add_task(task)

    def forget(self, task: Task) -> None:
        """Make a task pending again: its bind failed."""
        if task.status != BINDING:
            return
        self.node_table.remove_task(task)
        if task.job is not None:
            task.job.move((task,), PENDING)
            self.job_table.mark_changed(task.job)
        else:
            task.status = PENDING
        task.node_name = ""
        task.notes, task.devices = {}, ()

    def _note(self, task: Task, annotations: Mapping[str, str]) -> None:
        """Record the devices and CPUs that a task has on its node."""
        wanted = task.klass.devices
        if wanted is not None:
            task.notes = recorded(wanted, annotations)
            task.devices = given_to(wanted, task.notes)
        if task.klass.whole_cpus and wellknown.TOPOLOGY_DECISION in annotations:
            decision = annotations[wellknown.TOPOLOGY_DECISION]
            task.notes = {**task.notes, wellknown.TOPOLOGY_DECISION: decision}

    def release(self, task: Task) -> None:
        """Mark a task as releasing: its eviction was sent."""
        if task.status in (BOUND, RUNNING):
            self.leaving[task.uid] = task.status
            self._restate(task, RELEASING)

    def retain(self, task: Task) -> None:
        """Restore the status of a task: its eviction failed."""
        status = self.leaving.pop(task.uid, None)
        if status is not None:
            self._restate(task, status)

    def _restate(self, task: Task, status: Status) -> None:
        """Change the status of a task that stays on its node."""
        self.node_table.remove_task(task)
        if task.job is not None:
            task.job.move((task,), status)
            self.job_table.mark_changed(task.job)
        else:
            task.status = status
        self.node_table.add_task(task)

    # --- quotas -------------------------------------------------------------------------------

    def set_quota(self, obj: core.ResourceQuota) -> None:
        self.quotas.setdefault(obj.namespace, {})[obj.name] = obj
        for amounts in (obj.status.hard, obj.status.used, obj.spec.hard):
            self.dimensions.vector(amounts)
        self._fit_rows()

    def delete_quota(self, namespace: str, name: str) -> None:
        self.quotas.get(namespace, {}).pop(name, None)

    # --- over time ----------------------------------------------------------------------------

    def elapse(self, at: float, half_life_s: float, *, tidy: bool = False) -> None:
        """Advance the usage history to a time."""
        if self.job_table.history is None:
            self.job_table.history = History(self.dimensions, at, half_life_s)
            for job in self.jobs.values():
                self.job_table.history.mark_changed(job)
        self.job_table.history.elapse(at, half_life_s, self.jobs)
        if tidy:
            self.node_table.arrange()
            self.job_table.history.prune(self.node_table.total_r)

    def shares(self, now: float) -> dict[Owner, float]:
        """Return the usage shares of all owners; empty without a history."""
        return (
            {}
            if self.job_table.history is None
            else dict(self.job_table.history.shares(self.node_table.total_r, now))
        )

    def recall(self, accounts: Iterable[Past], at: float) -> None:
        """Add stored usage accounts, of this process or an earlier one."""
        if self.job_table.history is None:
            return
        told = list(accounts)
        for name in sorted({name for past in told for name in past.mean}):
            if is_counted(name) and len(self.dimensions) < MAX_RECALLED:
                self.dimensions.intern(name)
        self._fit_rows()
        self.job_table.history.recall(told, at)

    # --- the network --------------------------------------------------------------------------

    def set_hypernode(self, obj: topology.HyperNode) -> None:
        old = self.hypernodes.get(obj.name)
        self.hypernodes[obj.name] = obj
        if old is None or old.spec != obj.spec:
            self._tree = None

    def delete_hypernode(self, name: str) -> None:
        if self.hypernodes.pop(name, None) is not None:
            self._tree = None

    @property
    def tree(self) -> Tree:
        """The tree of HyperNodes over the current nodes."""
        if self._tree is None or self._tree[0] != self.node_table.labels_version:
            made = Tree(self.hypernodes.values(), self.node_table.labels, self._patterns)
            self._tree = (self.node_table.labels_version, made)
        return self._tree[1]
