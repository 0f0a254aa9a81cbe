"""One cycle over a stated cluster: what was bound, what was evicted, and why the rest waits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

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


class Result:
    """The plan of a cycle, in the form that tests compare."""

    def __init__(self, plan: Plan, cluster: Cluster) -> None:
        self.plan = plan
        self._cluster = cluster

    @property
    def binds(self) -> dict[str, str]:
        """Pod name to node name."""
        return {bind.pod: bind.node for bind in self.plan.binds}

    @property
    def evictions(self) -> list[str]:
        return [eviction.pod for eviction in self.plan.evictions]

    @property
    def pipelined(self) -> dict[str, str]:
        tasks = self._cluster.tasks
        return {tasks[uid].name: node for uid, node in self.plan.pipelined.items()}

    @property
    def phases(self) -> dict[str, str]:
        """PodGroups whose status is to be written, with their phase."""
        return {
            effect.group: effect.phase
            for effect in self.plan.effects
            if isinstance(effect, SetGroupStatus)
        }

    def verdict(self, job: str, namespace: str = "default") -> Verdict | None:
        return self.plan.verdicts.get(f"{namespace}/{job}")

    def why(self, job: str, namespace: str = "default") -> str:
        """The verdict on a job in words; empty if it has none."""
        found = self.verdict(job, namespace)
        return "" if found is None else str(found)


class TestCluster:
    """A stated cluster. `run` decides one cycle and leaves it as it is."""

    __test__ = False  # not a test, whatever pytest thinks of the name

    def __init__(
        self, state: Cluster, settings: config.Config, pods: Iterable[wire.Pod] = ()
    ) -> None:
        self.state = state
        self.config = settings
        self.pods = {pod.metadata.uid: pod for pod in pods}

    def run(self, *, now: float = START) -> Result:
        return Result(decide(self.state, self.config, now), self.state)

    def apply(self, result: Result) -> None:
        """Carry the binds and phases of a plan out, as a server would confirm them."""
        for bind in result.plan.binds:
            task = self.state.tasks[bind.uid]
            self.state.assume(task, bind.node, bind.annotations)
        for effect in result.plan.effects:
            if isinstance(effect, SetGroupStatus):
                self.state.jobs[f"{effect.namespace}/{effect.group}"].phase = effect.phase
        self.state.mark_clean()

    def live(self, result: Result, *, remake: bool = True) -> None:
        """Let a plan come true: who was bound runs, who was evicted leaves and is made anew.

        Without `remake` nobody makes the evicted anew.
        """
        self.state.mark_clean()  # what follows are changes, due in the next cycle
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
            pod = self.pods.pop(eviction.uid)
            self.state.delete_pod(eviction.uid)
            if not remake:
                continue
            self._set(
                replace(
                    pod,
                    metadata=replace(pod.metadata, uid=f"{eviction.uid}+"),
                    spec=replace(pod.spec, node_name=""),
                    status=wire.PodStatus(phase="Pending"),
                )
            )

    def add(self, job: GroupBuilder) -> None:
        """A job that comes later."""
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
    """A cluster with what is named, and the queue `default` unless it is given.

    `plugins` are asked after those of the configuration, which is Volcano's by default.
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
