"""One cycle over a given cluster: binds, evictions and verdicts, in the form that tests compare."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from hekla.api import core, scheduling, topology, wellknown
from hekla.api.meta import convert
from hekla.scheduler.core import decide
from hekla.scheduler.explain.status import group_written
from hekla.scheduler.framework import config
from hekla.scheduler.framework.plan import Plan, SetGroupStatus, SetPodCondition
from hekla.scheduler.framework.plugin import Plugin
from hekla.scheduler.framework.registry import Registry
from hekla.scheduler.framework.verdict import Verdict
from hekla.scheduler.plugins import builtin
from hekla.scheduler.state import changes, wire
from hekla.scheduler.state.cluster import Cluster
from hekla.testing.objects import START, GroupBuilder, queue
from hekla.units.timestamps import format_time

DELETED: Final = format_time(START)


class Result:
    """The plan of a cycle, in the form that tests compare.

    >>> from hekla.testing import cluster, gang, node
    >>> cluster([node("n1")], [gang("a", cpu=1)]).run().binds
    {'a-0': 'n1'}
    """

    def __init__(self, plan: Plan, cluster: Cluster) -> None:
        self.plan = plan
        self._cluster = cluster

    @property
    def binds(self) -> dict[str, str]:
        """The bound pods, with their nodes."""
        return {bind.pod: bind.node for bind in self.plan.binds}

    @property
    def evictions(self) -> list[str]:
        """The evicted pods."""
        return [eviction.pod for eviction in self.plan.evictions]

    @property
    def pipelined(self) -> dict[str, str]:
        """The pipelined pods, with their nodes."""
        tasks = self._cluster.tasks
        return {tasks[uid].name: node for uid, node in self.plan.pipelined.items()}

    @property
    def phases(self) -> dict[str, str]:
        """The phases of PodGroups with a status write."""
        return {
            effect.group: effect.phase
            for effect in self.plan.effects
            if isinstance(effect, SetGroupStatus)
        }

    def verdict(self, job: str, namespace: str = "default") -> Verdict | None:
        """Return the verdict of a job; None if it has none."""
        return self.plan.verdicts.get(f"{namespace}/{job}")

    def why(self, job: str, namespace: str = "default") -> str:
        """Return the text of a job's verdict; empty if it has none."""
        found = self.verdict(job, namespace)
        return "" if found is None else str(found)


class TestCluster:
    """A cluster for tests. `run` decides one cycle and does not change it.

    >>> from hekla.testing import cluster, gang, node
    >>> world = cluster([node("n1", cpu=1)], [gang("a", cpu=1), gang("b", cpu=1)])
    >>> world.apply(world.run())
    >>> world.run().binds
    {}
    """

    __test__ = False  # not a test class

    def __init__(
        self, state: Cluster, settings: config.Config, pods: Iterable[wire.Pod] = ()
    ) -> None:
        self.state = state
        self.config = settings
        self.pods = {pod.metadata.uid: pod for pod in pods}

    def run(self, *, now: float = START) -> Result:
        """Decide one cycle at a time."""
        return Result(decide(self.state, self.config, now), self.state)

    def apply(self, result: Result) -> None:
        """Apply the binds and phases of a plan, as the API server would confirm them."""
        for bind in result.plan.binds:
            task = self.state.tasks[bind.uid]
            self.state.assume(task, bind.node, bind.annotations)
        for effect in result.plan.effects:
            if isinstance(effect, SetGroupStatus):
                self.state.jobs[f"{effect.namespace}/{effect.group}"].phase = effect.phase
        self.state.mark_clean()

    def live(self, result: Result, *, remake: bool = True, are_terminated: bool = True) -> None:
        """Apply a plan: bound pods run, evicted pods are deleted and created again.

        Without `remake`, evicted pods are not created again. Without `are_terminated`, they are
        terminating until `terminate`.
        """
        self.state.mark_clean()  # the changes below are for the next cycle
        if result.plan.rescheduled_at is not None:
            self.state.rescheduled_at = result.plan.rescheduled_at
        for bind in result.plan.binds:
            pod = self.pods[bind.uid]
            self._set(
                replace(
                    pod,
                    metadata=replace(
                        pod.metadata,
                        annotations={**(pod.metadata.annotations or {}), **bind.annotations},
                    ),
                    spec=replace(pod.spec, node_name=bind.node),
                    status=replace(pod.status, phase="Running", nominated_node_name=""),
                )
            )
        for effect in result.plan.effects:
            if isinstance(effect, SetPodCondition):
                pod = self.pods[effect.uid]
                status = replace(pod.status, nominated_node_name=effect.nominated_node)
                self._set(replace(pod, status=status))
            elif isinstance(effect, SetGroupStatus):
                changes.apply(self.state, group_written(effect))
        for eviction in result.plan.evictions:
            pod = self.pods[eviction.uid]
            self._set(replace(pod, metadata=replace(pod.metadata, deletion_timestamp=DELETED)))
        if are_terminated:
            self.terminate(remake=remake)

    def terminate(self, *, remake: bool = True) -> None:
        """Delete the pods that are terminating; with `remake`, create them again."""
        for uid, pod in list(self.pods.items()):
            if not pod.metadata.deletion_timestamp:
                continue
            del self.pods[uid]
            self.state.delete_pod(uid)
            if remake:
                self._set(
                    replace(
                        pod,
                        metadata=replace(pod.metadata, uid=f"{uid}+", deletion_timestamp=None),
                        spec=replace(pod.spec, node_name=""),
                        status=wire.PodStatus(phase="Pending"),
                    )
                )

    def add(self, job: GroupBuilder) -> None:
        """Add a job to the cluster."""
        self.state.job_table.set_group(job.group)
        for pod in job.pods:
            self._set(pod)

    def _set(self, pod: wire.Pod) -> None:
        self.pods[pod.metadata.uid] = pod
        self.state.set_pod(pod)


def cluster(
    nodes: Iterable[core.Node] = (),
    jobs: Iterable[GroupBuilder] = (),
    *,
    queues: Iterable[scheduling.Queue] = (),
    pods: Iterable[wire.Pod] = (),
    priorities: Mapping[str, int] | None = None,
    quotas: Iterable[core.ResourceQuota] = (),
    claims: Iterable[core.PersistentVolumeClaim] = (),
    volumes: Iterable[core.PersistentVolume] = (),
    hypernodes: Iterable[topology.HyperNode] = (),
    plugins: Sequence[Plugin] = (),
    conf: str = config.DEFAULT,
    registry: Registry | None = None,
) -> TestCluster:
    """Return a cluster with these objects, and the queue `default` unless it is given.

    `plugins` come after those of the configuration, which is Volcano's by default.

        >>> from hekla.testing import cluster, gang, node
        >>> cluster([node("n1", cpu=2)], [gang("a", members=2, cpu=1)]).run().binds
        {'a-0': 'n1', 'a-1': 'n1'}
    """
    state = Cluster()
    given = list(queues)
    if not any(q.name == wellknown.DEFAULT_QUEUE for q in given):
        given.append(queue(wellknown.DEFAULT_QUEUE))
    for name, value in (priorities or {}).items():
        state.job_table.set_priority_class(
            convert({"metadata": {"name": name}, "value": value}, core.PriorityClass)
        )
    for one in given:
        state.job_table.set_queue(one)
    for machine in nodes:
        state.set_node(machine)
    for part in hypernodes:
        state.set_hypernode(part)
    for quota in quotas:
        state.set_quota(quota)
    for claim in claims:
        state.claims[claim.namespace, claim.name] = claim
    for volume in volumes:
        state.volumes[volume.name] = volume
    every: list[wire.Pod] = []
    for job in jobs:
        state.job_table.set_group(job.group)
        every += job.pods
    every += pods
    for member in every:
        state.set_pod(member)
    settings = config.parse(conf, registry or builtin())
    return TestCluster(state, settings.with_plugins(plugins) if plugins else settings, every)
