"""What rules ask about a cluster: jobs, priorities, the plugins that vote on victims."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import yaml

from tests.fidelity.catalogue import Case
from tests.fidelity.generated import lives
from tests.fidelity.generated.compare import Difference
from tests.fidelity.generated.lives import Counts, Cycle
from tests.fidelity.generated.worlds import GPU

Json = dict[str, Any]
_VOTERS = {
    "preempt": ("gang", "priority", "conformance", "drf", "pdb"),
    "reclaim": ("gang", "conformance", "proportion", "capacity", "drf", "pdb"),
}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_SWITCHES = {"preempt": "enablePreemptable", "reclaim": "enableReclaimable"}


@dataclass(frozen=True)
class Facts:
    """A cluster with a difference, seen at the first cycle that differs."""

    case: Case
    difference: Difference

    @cached_property
    def jobs(self) -> Json:
        found: Json = self.case.body["groups"]
        return found

    @cached_property
    def conf(self) -> Json:
        found: Json = yaml.safe_load(self.case.conf)
        return found

    @cached_property
    def actions(self) -> list[str]:
        return [action.strip() for action in self.conf["actions"].split(",")]

    @cached_property
    def plugins(self) -> dict[str, Json]:
        return {one["name"]: one for tier in self.conf["tiers"] for one in tier["plugins"]}

    @property
    def theirs(self) -> Cycle:
        return self.difference.theirs[self.difference.cycle]

    @property
    def ours(self) -> Cycle:
        return self.difference.ours[self.difference.cycle]

    @property
    def before(self) -> Cycle | None:
        """The cycle before, which is equal in both; None for the first."""
        number = self.difference.cycle
        return self.difference.ours[number - 1] if number else None

    @cached_property
    def running(self) -> Counts:
        """Running pods per job when the cycle begins."""
        if self.before is not None:
            return {job: len(places) for job, places in self.before.where.items()}
        return {
            name: sum(
                sum(role.get("running", {}).values())
                for role in (group, *group.get("roles", {}).values())
            )
            for name, group in self.jobs.items()
        }

    def minimum(self, job: str) -> int:
        return int(self.jobs[job]["min"])

    def is_repaired(self, job: str) -> bool:
        """Whether a job has started and lacks members of its minimum when the cycle begins."""
        return 0 < self.running.get(job, 0) < self.minimum(job)

    def priority(self, job: str) -> int:
        name = self.jobs[job].get("priority", "")
        return int(self.case.body.get("priorities", {}).get(name, 0))

    def queue(self, job: str) -> str:
        return str(self.jobs[job].get("queue", "default"))

    def deserves(self, job: str) -> bool:
        """Whether the queue of a job has a deserved amount, or a share by weight."""
        queue = self.case.body.get("queues", {}).get(self.queue(job), {})
        return "proportion" in self.plugins or bool(queue.get("deserved") or queue.get("guarantee"))

    @cached_property
    def is_tree(self) -> bool:
        """Whether queues are a hierarchy for `capacity`."""
        return bool(self.plugins.get("capacity", {}).get("enableHierarchy"))

    @cached_property
    def total_cpu(self) -> int:
        return sum(int(node["cpu"]) for node in self.case.body["nodes"].values())

    @cached_property
    def nodes_by_shape(self) -> Counter[str]:
        """How many nodes are equal to the one that stands for them."""
        return Counter(lives.shapes(self.case).values())

    def has_port(self, job: str) -> bool:
        return "container" in self.jobs[job].get("spec", {})

    def repelled(self, job: str) -> set[str]:
        """Return the jobs that must not share a node with this one; it may be among them."""
        return {
            other
            for other in self.jobs
            if _repels(self.jobs[job], self.jobs[other])
            or _repels(self.jobs[other], self.jobs[job])
        }

    def attracted(self, job: str, other: str) -> bool:
        """Whether pods of a job must be beside pods of another, or of the same."""
        rules = self.jobs[job].get("spec", {}).get("affinity", {}).get("podAffinity", {})
        return _selects(rules.get(REQUIRED, ()), self.jobs[other])

    def prefers(self, job: str, other: str) -> bool:
        """Whether one of two jobs prefers to be beside the other, or not to be."""
        one, two = self.jobs[job], self.jobs[other]
        return _scores(one, two) or _scores(two, one)

    def capacity(self, job: str) -> int:
        """Return how many pods of a job fit on the nodes if these are empty."""
        return sum(self._on(job, node) for node in self.case.body["nodes"].values())

    def _on(self, job: str, node: Json) -> int:
        said = self.jobs[job]
        if not self.admits(job, node):
            return 0
        has = amounts(node)
        fits = min(has[key] // need for key, need in needs(said).items() if need)
        return min(fits, 1) if self.has_port(job) or _repels(said, said) else fits

    def admits(self, job: str, node: Json) -> bool:
        """Whether the labels and taints of a node let pods of a job in."""
        spec = self.jobs[job].get("spec", {})
        zone = spec.get("nodeSelector", {}).get("zone")
        if zone and node.get("labels", {}).get("zone") != zone:
            return False
        is_closed = any(taint.endswith(":NoSchedule") for taint in node.get("taints", ()))
        return not is_closed or "tolerations" in spec

    def voters(self, action: str) -> list[list[str]]:
        """Return the plugins that vote on victims of an action, by tier; tiers without are left
        out."""
        tiers = [
            [
                one["name"]
                for one in tier["plugins"]
                if one["name"] in _VOTERS[action] and one.get(_SWITCHES[action], True)
            ]
            for tier in self.conf["tiers"]
        ]
        return [tier for tier in tiers if tier]


def amounts(node: Json) -> Counter[str]:
    """Return what a node has."""
    return Counter(
        cpu=node["cpu"],
        memory=_gib(node.get("memory", "16Gi")),
        gpu=node.get("extra", {}).get(GPU, 0),
        pods=node.get("pods", 110),
    )


def needs(said: Json) -> Counter[str]:
    """Return what a pod of a job needs."""
    return Counter(
        cpu=said.get("cpu", 0),
        memory=_gib(said.get("memory", "0Gi")),
        gpu=said.get("requests", {}).get(GPU, 0),
        pods=1,
    )


def guarantee(queue: Json) -> int:
    """Return the CPUs that a queue is guaranteed."""
    return int(queue.get("guarantee", {}).get("resource", {}).get("cpu", 0))


def _gib(text: str) -> int:
    return int(text.removesuffix("Gi"))


def _repels(said: Json, other: Json) -> bool:
    rules = said.get("spec", {}).get("affinity", {}).get("podAntiAffinity", {})
    return _selects(rules.get(REQUIRED, ()), other)


def _scores(said: Json, other: Json) -> bool:
    rules = said.get("spec", {}).get("affinity", {}).values()
    preferred = "preferredDuringSchedulingIgnoredDuringExecution"
    terms = [each["podAffinityTerm"] for rule in rules for each in rule.get(preferred, ())]
    return _selects(terms, other)


def _selects(terms: Iterable[Json], other: Json) -> bool:
    labels = other.get("labels", {}).items()
    return any(term["labelSelector"]["matchLabels"].items() <= labels for term in terms)


def more(one: Counts, other: Counts) -> Counts:
    """Return by how much one exceeds the other, where it does."""
    found = {job: count - other.get(job, 0) for job, count in one.items()}
    return {job: count for job, count in found.items() if count > 0}
