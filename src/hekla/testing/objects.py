"""Objects in a line: only what a test is about has to be said.

Amounts are as in manifests; a bare number is whole units (`cpu=1`, `memory="2Gi"`, `gpu=8`).
Names of resources that are no Python names go into `requests`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hekla.api import core, scheduling, topology, wellknown
from hekla.api.meta import convert
from hekla.scheduler.state import wire
from hekla.scheduler.state.classes import pod_of
from hekla.units.timestamps import format_time

Amount = str | int | float
Manifest = dict[str, Any]
START = 1_700_000_000.0
"""When the objects of tests were made, unless they say otherwise."""


def amounts(
    cpu: Amount | None = None,
    memory: Amount | None = None,
    gpu: Amount | None = None,
    more: Mapping[str, Amount] | None = None,
) -> dict[str, Amount]:
    """Return a resource list without the resources that are None."""
    named = {"cpu": cpu, "memory": memory, wellknown.NVIDIA_GPU: gpu}
    return {**{k: v for k, v in named.items() if v is not None}, **(more or {})}


def node(
    name: str,
    *,
    cpu: Amount = 4,
    memory: Amount = "16Gi",
    gpu: Amount | None = None,
    pods: int = 110,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    taints: Iterable[str] = (),
    unschedulable: bool = False,
    ready: bool = True,
    images: Mapping[str, int] | None = None,
    extra: Mapping[str, Amount] | None = None,
) -> core.Node:
    """Return a node. Taints are written `key=value:NoSchedule`, images as name and bytes.

    >>> node("n1", cpu=8, taints=["spot=true:NoSchedule"]).spec.taints[0].effect
    'NoSchedule'
    """
    allocatable = {**amounts(cpu, memory, gpu, extra), "pods": pods}
    body = {
        "metadata": {
            "name": name,
            "uid": f"node-{name}",
            "labels": {wellknown.LABEL_HOSTNAME: name, **(labels or {})},
            "annotations": dict(annotations or {}),
        },
        "spec": {"unschedulable": unschedulable, "taints": [_taint(text) for text in taints]},
        "status": {
            "allocatable": allocatable,
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
            "images": [{"names": [n], "sizeBytes": b} for n, b in (images or {}).items()],
        },
    }
    return convert(body, core.Node)


def _taint(text: str) -> Manifest:
    pair, _, effect = text.rpartition(":")
    key, _, value = pair.partition("=")
    return {"key": key, "value": value, "effect": effect}


def hypernode(
    name: str,
    tier: int,
    *,
    nodes: Iterable[str] = (),
    children: Iterable[str] = (),
    pattern: str = "",
    labels: Mapping[str, str] | None = None,
    tier_name: str = "",
) -> topology.HyperNode:
    """Return a HyperNode with nodes by name, pattern or label, and children by name.

    >>> hypernode("rack", tier=1, nodes=["n1", "n2"]).spec.tier
    1
    """
    members: list[Manifest] = [
        {"type": kind, "selector": {"exactMatch": {"name": member}}}
        for kind, named in (("Node", nodes), ("HyperNode", children))
        for member in named
    ]
    if pattern:
        members.append({"type": "Node", "selector": {"regexMatch": {"pattern": pattern}}})
    if labels is not None:
        chosen = {"labelMatch": {"matchLabels": dict(labels)}}
        members.append({"type": "Node", "selector": chosen})
    body = {
        "metadata": {"name": name, "uid": f"hypernode-{name}"},
        "spec": {"tier": tier, "tierName": tier_name, "members": members},
    }
    return convert(body, topology.HyperNode)


def queue(
    name: str,
    *,
    weight: int = 1,
    priority: int = 0,
    capability: Mapping[str, Amount] | None = None,
    guarantee: Mapping[str, Amount] | None = None,
    deserved: Mapping[str, Amount] | None = None,
    reclaimable: bool | None = None,
    parent: str = "",
    state: str = "Open",
    age: float = 0.0,
    annotations: Mapping[str, str] | None = None,
    affinity: Mapping[str, Any] | None = None,
) -> scheduling.Queue:
    """Return a queue.

    >>> queue("research", weight=3, capability={"cpu": 8}).spec.weight
    3
    """
    body: Manifest = {
        "metadata": {
            "name": name,
            "uid": f"queue-{name}",
            "creationTimestamp": format_time(START - age),
            "annotations": dict(annotations or {}),
        },
        "spec": {
            "weight": weight,
            "priority": priority,
            "capability": dict(capability or {}),
            "guarantee": {"resource": dict(guarantee or {})},
            "deserved": dict(deserved or {}),
            "reclaimable": reclaimable,
            "parent": parent,
            "affinity": affinity,
        },
        "status": {"state": state},
    }
    return convert(body, scheduling.Queue)


def pod(
    name: str,
    *,
    namespace: str = "default",
    cpu: Amount | None = None,
    memory: Amount | None = None,
    gpu: Amount | None = None,
    requests: Mapping[str, Amount] | None = None,
    group: str = "",
    role: str = "",
    node: str = "",
    phase: str = "",
    deleting: bool = False,
    age: float = 0.0,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    scheduler: str = wellknown.DEFAULT_SCHEDULER,
    ports: Sequence[int] = (),
    image: str = "",
    spec: Mapping[str, Any] | None = None,
    status: Mapping[str, Any] | None = None,
) -> wire.Pod:
    """Return a pod; with a node it is Running unless `phase` is given.

    >>> pod("p", cpu=1, node="n1").status.phase
    'Running'
    """
    notes = dict(annotations or {})
    if group:
        notes[wellknown.GROUP_NAME] = group
    if role:
        notes[wellknown.TASK_SPEC] = role
    container: Manifest = {
        "name": "main",
        "image": image,
        "resources": {"requests": amounts(cpu, memory, gpu, requests)},
        "ports": [{"hostPort": number, "containerPort": number} for number in ports],
    }
    metadata: Manifest = {
        "name": name,
        "namespace": namespace,
        "uid": f"{namespace}-{name}",
        "creationTimestamp": format_time(START - age),
        "labels": dict(labels or {}),
        "annotations": notes,
    }
    if deleting:
        metadata["deletionTimestamp"] = format_time(START)
    return pod_of(
        {
            "metadata": metadata,
            "spec": {
                "schedulerName": scheduler,
                "nodeName": node,
                "containers": [container],
                **(spec or {}),
            },
            "status": {"phase": phase or ("Running" if node else "Pending"), **(status or {})},
        }
    )


@dataclass
class GroupBuilder:
    """A PodGroup with its pods.

    >>> len(gang("a", members=2, cpu=1).and_pods(pod("extra", group="a")).pods)
    3
    """

    group: scheduling.PodGroup
    pods: list[wire.Pod] = field(default_factory=list)

    def and_pods(self, *more: wire.Pod) -> GroupBuilder:
        """Return the same PodGroup with more pods."""
        return GroupBuilder(self.group, [*self.pods, *more])


def gang(
    name: str,
    *,
    members: int = 1,
    minimum: int | None = None,
    namespace: str = "default",
    queue: str = wellknown.DEFAULT_QUEUE,
    priority_class: str = "",
    phase: str = "Inqueue",
    min_resources: Mapping[str, Amount] | None = None,
    roles: Mapping[str, int] | None = None,
    role: str = "",
    running_on: Sequence[str] = (),
    age: float = 0.0,
    annotations: Mapping[str, str] | None = None,
    pod_annotations: Mapping[str, str] | None = None,
    network: Mapping[str, Any] | None = None,
    subgroups: Sequence[Mapping[str, Any]] = (),
    **pods: Any,
) -> GroupBuilder:
    """Return a PodGroup `name` with pods `name-0` …; the first run on the nodes in `running_on`.

        >>> [pod.metadata.name for pod in gang("train", members=2, cpu=1).pods]
        ['train-0', 'train-1']

    `minimum` is minMember, by default all members; `roles` is minTaskMember; `network` and
    `subgroups` are networkTopology and subGroupPolicy; everything else goes to the pods.
    """
    body: Manifest = {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"group-{namespace}-{name}",
            "creationTimestamp": format_time(START - age),
            "annotations": dict(annotations or {}),
        },
        "spec": {
            "minMember": members if minimum is None else minimum,
            "minTaskMember": dict(roles or {}),
            "queue": queue,
            "priorityClassName": priority_class,
        },
        "status": {"phase": phase},
    }
    if network is not None:
        body["spec"]["networkTopology"] = dict(network)
    if subgroups:
        body["spec"]["subGroupPolicy"] = [dict(each) for each in subgroups]
    if min_resources is not None:
        body["spec"]["minResources"] = dict(min_resources)
    middle = f"{role}-" if role else ""
    made = [
        pod(
            f"{name}-{middle}{i}",
            namespace=namespace,
            group=name,
            role=role,
            age=age,
            node=running_on[i] if i < len(running_on) else "",
            annotations=pod_annotations,
            **pods,
        )
        for i in range(members)
    ]
    return GroupBuilder(convert(body, scheduling.PodGroup), made)
