"""The catalogue: small clusters in a few lines each, and their objects.

A file of `cases/` has a scheduler configuration and cases by name; a case may override it. In a
file `about` a plugin the outcome of each case depends on the plugin, except those marked
`indifferent`.

    nodes:  {n1: {cpu: 4}, m: {count: 3, labels: {zone: a}, taints: ["key=value:NoSchedule"]}}
    hypernodes: {s1: {tier: 1, nodes: [n1, n2]}, s2: {tier: 2, tierName: rack, children: [s1]}}
                                              `regex` or `labels` instead of names
    numa:   {n1: {policy: restricted, cpus: [4, 4]}}  a Numatopology; `free` as it lists CPUs
    queues: {q1: {weight: 3}}                 the spec of a Queue; `default` is always there
    priorities: {high: 1000}                  PriorityClasses
    groups:                                   PodGroups, oldest first, with their pods
      train: {pods: 4, min: 2, cpu: 1, queue: q1, priority: high, running: {n1: 2}}
      ring:  {roles: {ps: {pods: 1, min: 1, cpu: 1}, worker: {pods: 2, cpu: 2}}}
    pods:   {dns: {node: n1, cpu: 1}}         of other schedulers, running
    quotas, budgets                           with the status that their controllers write
    extender                                  its responses; see `extender.py`
    load                                      measured load of nodes; see `load.py`
    compare: nodes | shape | numbers          what is determined; see `outcome.comparable`
    differs: {why: …, ours: …}                an intended difference

The first pods of a group run where `running` says, since `scheduled` if that is stated. `spec`,
`labels`, `annotations` of a group go to its pods, `group` is merged into the PodGroup's spec,
`notes` are the PodGroup's annotations. Pods are Guaranteed (limits as requests) if `guaranteed`.

Note: the same manifests go to the real server and to our core, and only the server defaults
them; so defaults are written here for both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from tools.kube.cluster import node_manifest

Json = dict[str, Any]
HERE = Path(__file__).parent / "cases"
NAMESPACE = "fidelity"
GROUP = "scheduling.k8s.io/group-name"
ROLE = "volcano.sh/task-spec"
_POD_KEYS = (
    "cpu", "memory", "requests", "spec", "labels", "annotations", "guaranteed", "scheduled"
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    file: str
    name: str
    conf: str
    body: Json = field(repr=False)
    about: str = ""
    opens_late: bool = False
    """Whether nodes are uncordoned, and so change, after Volcano's first session: only then does it
    read their devices."""
    waits_s: float = 0.0
    """Minimum time that Volcano is observed."""

    @property
    def is_measured(self) -> bool:
        """Return whether it has measured load."""
        return "load" in self.body

    @property
    def queues(self) -> Json:
        return dict(self.body.get("queues", {}))

    @property
    def compare(self) -> str:
        return str(self.body.get("compare", "nodes"))

    @property
    def differs(self) -> Json | None:
        found: Json | None = self.body.get("differs")
        return found

    @property
    def is_indifferent(self) -> bool:
        """Return whether its outcome does not depend on the plugin of its file."""
        return bool(self.body.get("indifferent", False))

    def __str__(self) -> str:
        return f"{self.file}: {self.name}"


def cases() -> list[Case]:
    return [case for path in sorted(HERE.glob("*.yaml")) for case in _file(path)]


def _file(path: Path) -> Iterator[Case]:
    content = yaml.safe_load(path.read_text())
    for name, body in content["cases"].items():
        conf = body.get("conf", content["conf"])
        about, late = content.get("about", ""), content.get("opens_late", False)
        yield Case(path.stem, name, conf, body, about, late, content.get("waits_s", 0.0))


# --- the objects ----------------------------------------------------------------------------------


def nodes(case: Case) -> list[Json]:
    made = []
    for name, shape in case.body["nodes"].items():
        rest = {key: value for key, value in (shape or {}).items() if key != "count"}
        rest["taints"] = tuple(_taint(text) for text in rest.get("taints", ()))
        count = (shape or {}).get("count", 0)
        names = [f"{name}{number}" for number in range(1, count + 1)] or [name]
        made += [node_manifest(one, **{"cpu": 4, "memory": "16Gi", **rest}) for one in names]
    return made


def hypernodes(case: Case) -> list[Json]:
    return [
        {
            "apiVersion": "topology.volcano.sh/v1alpha1",
            "kind": "HyperNode",
            "metadata": {"name": name},
            "spec": {
                "tier": said["tier"],
                **({"tierName": said["tierName"]} if "tierName" in said else {}),
                "members": list(_hypernode_members(said)),
            },
        }
        for name, said in case.body.get("hypernodes", {}).items()
    ]


def _hypernode_members(said: Json) -> Iterator[Json]:
    for kind, key in (("Node", "nodes"), ("HyperNode", "children")):
        for name in said.get(key, ()):
            yield {"type": kind, "selector": {"exactMatch": {"name": name}}}
    if "regex" in said:
        yield {"type": "Node", "selector": {"regexMatch": {"pattern": said["regex"]}}}
    if "labels" in said:
        yield {"type": "Node", "selector": {"labelMatch": {"matchLabels": said["labels"]}}}


def numa_topologies(case: Case) -> list[Json]:
    """Layouts of one socket per NUMA node and one CPU per core."""
    made = []
    for name, said in case.body.get("numa", {}).items():
        numas = [number for number, count in enumerate(said["cpus"]) for _ in range(count)]
        policies = {
            "CPUManagerPolicy": said.get("manager", "static"),
            "TopologyManagerPolicy": said["policy"],
        }
        cpu = {"allocatable": said.get("free", f"0-{len(numas) - 1}"), "capacity": len(numas)}
        made.append(
            {
                "apiVersion": "nodeinfo.volcano.sh/v1alpha1",
                "kind": "Numatopology",
                "metadata": {"name": name},
                "spec": {
                    "policies": policies,
                    "numares": {"cpu": cpu},
                    "resReserved": {"cpu": str(said.get("reserved", 0))},
                    "cpuDetail": {
                        str(cpu): {"numa": numa, "socket": numa, "core": cpu}
                        for cpu, numa in enumerate(numas)
                    },
                },
            }
        )
    return made


def _taint(text: str) -> Json:
    pair, _, effect = text.rpartition(":")
    key, _, value = pair.partition("=")
    return {"key": key, "value": value, "effect": effect}


def queues(case: Case) -> list[Json]:
    always = {"root": {"reclaimable": False}, "default": {}}  # as both schedulers create them
    wanted = {**always, **case.queues}
    return [
        {
            "apiVersion": "scheduling.volcano.sh/v1beta1",
            "kind": "Queue",
            "metadata": {"name": name, "annotations": dict((spec or {}).get("notes", {}))},
            "spec": {"weight": 1, "reclaimable": True, **_without(spec or {}, "notes", "state")},
            "status": _stated((spec or {}).get("state", "Open")),
        }
        for name, spec in wanted.items()
    ]


def _stated(state: str | None) -> Json:
    return {} if state is None else {"state": state}


def priority_classes(case: Case) -> list[Json]:
    return [
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name},
            "value": value,
        }
        for name, value in case.body.get("priorities", {}).items()
    ]


def groups(case: Case) -> list[tuple[Json, list[Json]]]:
    """PodGroups with their pods, oldest first."""
    classes = case.body.get("priorities", {})
    return [_group(name, said, classes) for name, said in case.body["groups"].items()]


def _group(name: str, said: Json, classes: Mapping[str, int]) -> tuple[Json, list[Json]]:
    roles: Json = said.get("roles") or {"": said}
    total = sum(role.get("pods", 1) for role in roles.values())
    spec: Json = {"minMember": said.get("min", total), "queue": said.get("queue", "default")}
    least = {role: each["min"] for role, each in roles.items() if role and "min" in each}
    if least:
        spec["minTaskMember"] = least
    if "priority" in said:
        spec["priorityClassName"] = said["priority"]
    if "minResources" in said:
        spec["minResources"] = _amounts(said["minResources"])
    spec |= said.get("group", {})
    members = [pod for role, each in roles.items() for pod in _members(name, role, said, each)]
    for pod in members:
        _prioritise(pod, said.get("priority", ""), classes)
    body: Json = {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {
            "name": name, "namespace": NAMESPACE, "annotations": dict(said.get("notes", {}))
        },
        "spec": spec,
    }  # fmt: skip
    runs = any(pod["spec"].get("nodeName") for pod in members)
    phase = said.get("phase", "Running" if runs else "")
    if phase:
        body["status"] = {"phase": phase}
    return body, members


def _members(name: str, role: str, group: Json, said: Json) -> list[Json]:
    places = [node for node, count in said.get("running", {}).items() for _ in range(count)]
    inherited = {key: group[key] for key in _POD_KEYS if key in group}
    made = []
    for number in range(said.get("pods", 1)):
        stem = f"{name}-{role}" if role else name
        pod = _pod(f"{stem}-{number}", {**inherited, **said})
        pod["metadata"]["annotations"][GROUP] = name
        if role:
            pod["metadata"]["annotations"][ROLE] = role
        if number < len(places):
            pod["spec"]["nodeName"] = places[number]
        made.append(pod)
    return made


def _pod(name: str, said: Json, scheduler: str = "volcano") -> Json:
    asked: Json = {key: said[key] for key in ("cpu", "memory") if key in said}
    asked |= said.get("requests", {})
    limits = _amounts(asked) if said.get("guaranteed") else _limits(asked)
    container: Json = {
        "name": "main",
        "image": "none",
        "resources": {"requests": _amounts(asked), "limits": limits},
    }
    spec = dict(said.get("spec", {}))
    container |= spec.pop("container", {})
    made: Json = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "labels": dict(said.get("labels", {})),
            "annotations": dict(said.get("annotations", {})),
        },
        "spec": {"schedulerName": scheduler, "containers": [container], **spec},
    }
    if "scheduled" in said:
        condition = {"type": "PodScheduled", "status": "True"}
        condition["lastTransitionTime"] = said["scheduled"]
        made["status"] = {"conditions": [condition]}
    return made


def _prioritise(pod: Json, name: str, classes: Mapping[str, int]) -> None:
    """Return the priority value, which must equal the one that admission computes."""
    name = pod["spec"].get("priorityClassName", name)
    if name:
        pod["spec"]["priorityClassName"] = name
    system = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
    pod["spec"]["priority"] = {**system, **classes}.get(name, 0)


def foreign_pods(case: Case) -> list[Json]:
    """Return the pods of other schedulers, which only use resources."""
    made = []
    for name, said in case.body.get("pods", {}).items():
        pod = _pod(name, said, "default-scheduler")
        pod["spec"] |= {"nodeName": said["node"], "priority": 0}
        made.append(pod)
    return made


def quotas(case: Case) -> list[Json]:
    return [
        {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {"hard": _amounts(said["hard"])},
            "status": {"hard": _amounts(said["hard"]), "used": _amounts(said["used"])},
        }
        for name, said in case.body.get("quotas", {}).items()
    ]


def budgets(case: Case) -> list[Json]:
    return [
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": said["matches"]}},
            "status": {
                "disruptionsAllowed": said["allowed"],
                "currentHealthy": 1,
                "desiredHealthy": 1,
                "expectedPods": 1,
            },
        }
        for name, said in case.body.get("budgets", {}).items()
    ]


def _amounts(said: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(amount) for name, amount in said.items()}


def _limits(asked: Mapping[str, Any]) -> dict[str, str]:
    """Limits of extended resources must equal their requests."""
    return {name: str(amount) for name, amount in asked.items() if "/" in name}


def _without(mapping: Json, *keys: str) -> Json:
    return {key: value for key, value in mapping.items() if key not in keys}
