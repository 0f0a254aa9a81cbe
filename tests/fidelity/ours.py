"""Run a case through our core, cycle by cycle until nothing changes.

As on the recorded server, bound pods run and evicted pods are deleted.
"""

from __future__ import annotations

from hekla.api import core, nodeinfo, scheduling, topology
from hekla.api.meta import convert
from hekla.scheduler.framework import config
from hekla.scheduler.plugins import builtin
from hekla.scheduler.state import changes
from hekla.scheduler.state.changes import Measured
from hekla.scheduler.state.classes import pod_of
from hekla.scheduler.state.cluster import Cluster
from hekla.testing import TestCluster
from hekla.testing.objects import START
from hekla.units.timestamps import format_time
from tests.fidelity import catalogue, extender, load, outcome
from tests.fidelity.catalogue import NAMESPACE, Case, Json

MAX_CYCLES = 40
QUIET_CYCLES = 4
CYCLE_S = 1.0
_FIRST = START - 100.0


def decide(case: Case) -> Json:
    with extender.answering(case) as asked:
        return _decide(asked)


def _decide(case: Case) -> Json:
    running = world(case)
    before = _pods(running)
    quiet = 0
    for cycle in range(MAX_CYCLES):
        result = running.run(now=START + cycle * CYCLE_S)
        was = _state(running)
        running.live(result, remake=False)
        quiet = quiet + 1 if _state(running) == was else 0
        if quiet == QUIET_CYCLES:
            return outcome.summary(before, _pods(running), _phases(running))
    raise AssertionError(f"{case} does not come to rest in {MAX_CYCLES} cycles")


def world(case: Case) -> TestCluster:
    """Return the cluster of a case, before its first cycle."""
    objects = stored(case)
    state = Cluster()
    for body in objects["priorityClasses"]:
        state.job_table.set_priority_class(convert(body, core.PriorityClass))
    for body in objects["queues"]:
        state.job_table.set_queue(convert(body, scheduling.Queue))
    for body in objects["nodes"]:
        state.set_node(convert(body, core.Node))
    for body in objects["hyperNodes"]:
        state.set_hypernode(convert(body, topology.HyperNode))
    for body in catalogue.numa_topologies(case):
        layout = convert(body, nodeinfo.Numatopology)
        state.numa_topologies[layout.name] = layout
    for body in objects["quotas"]:
        state.set_quota(convert(body, core.ResourceQuota))
    for body in objects["budgets"]:
        budget = convert(body, core.PodDisruptionBudget)
        state.budgets[budget.namespace, budget.name] = budget
    for group in objects["podGroups"]:
        state.job_table.set_group(convert(group, scheduling.PodGroup))
    if case.is_measured:
        changes.apply(state, Measured(load.readings(case, START)))
    made = [pod_of(pod) for pod in objects["pods"]]
    for pod in made:
        state.set_pod(pod)
    return TestCluster(state, config.parse(case.conf, builtin()), made)


def stored(case: Case) -> dict[str, list[Json]]:
    """Return the objects as a server stores them: with uids, times and phases."""
    clock = iter(range(1000))
    queues = [_made(body, next(clock)) for body in catalogue.queues(case)]
    pods = [_made(pod, next(clock)) for pod in catalogue.foreign_pods(case)]
    groups = []
    for group, members in catalogue.groups(case):
        moment = next(clock)
        groups.append(_made(group, moment))
        pods += [_made(pod, moment) for pod in members]
    return {
        "priorityClasses": catalogue.priority_classes(case),
        "queues": queues,
        "nodes": [_made(body, 0) for body in catalogue.nodes(case)],
        "hyperNodes": catalogue.hypernodes(case),
        "quotas": catalogue.quotas(case),
        "budgets": catalogue.budgets(case),
        "podGroups": groups,
        "pods": pods,
    }


def _made(body: Json, second: int) -> Json:
    meta = {
        **body["metadata"],
        "uid": f"{body['kind']}-{body['metadata']['name']}",
        "creationTimestamp": format_time(_FIRST + second),
    }
    made = {**body, "metadata": meta}
    if body["kind"] == "Pod":
        phase = "Running" if body["spec"].get("nodeName") else "Pending"
        made["status"] = {**body.get("status", {}), "phase": phase, "qosClass": _qos(body)}
    return made


def _qos(pod: Json) -> str:
    amounts = [container["resources"] for container in pod["spec"]["containers"]]
    whole = all({"cpu", "memory"} <= each["limits"].keys() for each in amounts)
    return "Guaranteed" if whole else "Burstable"


def _pods(world: TestCluster) -> list[outcome.PodSeen]:
    return [
        outcome.seen(
            {
                "metadata": {"name": pod.metadata.name, "annotations": pod.metadata.annotations},
                "spec": {"nodeName": pod.spec.node_name},
            }
        )
        for pod in world.pods.values()
    ]


def _phases(world: TestCluster) -> dict[str, str]:
    jobs = world.state.jobs.values()
    return {job.name: job.phase for job in jobs if job.namespace == NAMESPACE}


def _state(world: TestCluster) -> object:
    return sorted((p.name, p.node) for p in _pods(world)), _phases(world)
