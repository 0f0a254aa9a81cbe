"""Whether a cluster has room for a job that waits, by plain arithmetic on what it was drawn from.

Nothing of the scheduler is asked: not its filters, its amounts or its queues.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from hekla.testing import TestCluster
from tests.fidelity.catalogue import NAMESPACE, Case
from tests.fidelity.generated import compare
from tests.fidelity.generated.compare import Level
from tests.fidelity.generated.facts import REQUIRED, Facts, Json, amounts, guarantee, needs

_FOREIGN = {"cpu": 1, "pods": 1}


def facts_of(case: Case) -> Facts:
    """Return the facts of a cluster that is compared with nothing."""
    return Facts(case, compare.Difference(Level.SAME, (), ()))


def job_of(uid: str) -> str:
    """`Pod-j0-1+` is a pod of j0."""
    return uid.removeprefix("Pod-").partition("-")[0]


def running(world: TestCluster) -> Counter[str]:
    """Return how many pods of each job have a node."""
    return Counter(job_of(uid) for uid, pod in world.pods.items() if pod.spec.node_name)


class Room:
    """The room that a cluster has when a cycle begins."""

    def __init__(self, facts: Facts, world: TestCluster) -> None:
        self.facts = facts
        self.world = world
        self.running = running(world)
        self.pods = Counter(job_of(uid) for uid in world.pods)
        self.on: dict[str, Counter[str]] = {name: Counter() for name in facts.case.body["nodes"]}
        for uid, pod in world.pods.items():
            if pod.spec.node_name:
                self.on[pod.spec.node_name][job_of(uid)] += 1

    def waiting(self) -> Iterator[str]:
        """Yield the jobs that wait although there is a place for them."""
        for name in self.facts.jobs:
            need = self.wanted(name)
            if not need or not self.is_simple(name) or not self.may_enter(name):
                continue
            room = min(self.places(name), self.quota(name))
            if room >= need:
                yield f"{name} waits for {need} pods, and there is room for {room}"

    def wanted(self, name: str) -> int:
        """Return how many pods a job must get at once; 0 if all have a node."""
        if self.running[name] == self.pods[name]:
            return 0
        return max(1, self.facts.minimum(name) - self.running[name])

    def is_simple(self, name: str) -> bool:
        """Whether the place of a job is a matter of amounts, filters and limits.

        A network topology is more than that. `proportion` keeps what it divides for queues that
        wait themselves, so it owes a place only to the last queue that waits. A BestEffort pod is
        for `backfill`, which need not be configured.
        """
        said, facts = self.facts.jobs[name], self.facts
        if "networkTopology" in said.get("group", {}):
            return False
        if "proportion" in facts.plugins:
            others = [job for job in facts.jobs if facts.queue(job) != facts.queue(name)]
            if any(self.running[job] < self.pods[job] for job in others):
                return False
        return bool(needs(said)["cpu"]) or "backfill" in facts.actions

    def may_enter(self, name: str) -> bool:
        """Whether a job is let in, or must be: nothing that is let in waits besides it."""
        phases = {job: self._phase(job) for job in self.facts.jobs}
        if "enqueue" not in self.facts.actions or phases[name] != "Pending":
            return True
        others = self.facts.jobs.keys() - {name}
        return all(self.running[job] == self.pods[job] for job in others)

    def _phase(self, name: str) -> str:
        return self.world.state.jobs[f"{NAMESPACE}/{name}"].phase

    # --- limits of the queue ----------------------------------------------------------------------

    def quota(self, name: str) -> int:
        """Return how many pods of a job its queue may still get: a limit on CPUs, if any."""
        facts, cpu = self.facts, needs(self.facts.jobs[name])["cpu"]
        if not cpu or not {"capacity", "proportion"} & facts.plugins.keys():
            return self.pods[name]
        queues: Json = facts.case.body.get("queues", {})
        own = facts.queue(name)
        limit: int = facts.total_cpu - sum(
            guarantee(queue) for key, queue in queues.items() if key != own
        )
        limit = min(limit, queues.get(own, {}).get("capability", {}).get("cpu", limit))
        return max(0, limit - self.used_cpu(own)) // cpu

    def used_cpu(self, queue: str) -> int:
        return sum(
            self.running[job] * needs(said)["cpu"]
            for job, said in self.facts.jobs.items()
            if self.facts.queue(job) == queue
        )

    # --- nodes ------------------------------------------------------------------------------------

    def places(self, name: str) -> int:
        """Return how many pods of a job fit on what is idle."""
        nodes = self.facts.case.body["nodes"]
        found = [self._on(name, node) for node in nodes]
        target = self._attracted(name)
        if target is None:
            return sum(found)
        if target == name and not self.running[name]:
            return max(found)  # the first pod may be anywhere, and the others are with it
        return sum(room for room, node in zip(found, nodes, strict=True) if self.on[node][target])

    def _on(self, name: str, node: str) -> int:
        facts, here = self.facts, self.on[node]
        said = facts.case.body["nodes"][node]
        if not facts.admits(name, said):
            return 0
        present = {job for job, count in here.items() if count}
        if present & facts.repelled(name):
            return 0
        idle = amounts(said)
        for job, count in here.items():
            need = needs(facts.jobs[job]) if job in facts.jobs else Counter(_FOREIGN)
            idle.subtract({key: amount * count for key, amount in need.items()})
        room = min(idle[key] // need for key, need in needs(facts.jobs[name]).items() if need)
        if facts.has_port(name):
            room = min(room, 0 if any(facts.has_port(job) for job in present & facts.jobs.keys())
                       else 1)  # fmt: skip
        if name in facts.repelled(name):
            room = min(room, 1)
        return max(0, room)

    def _attracted(self, name: str) -> str | None:
        """Return the job beside which pods of this one must be; None if anywhere."""
        spec = self.facts.jobs[name].get("spec", {})
        terms = spec.get("affinity", {}).get("podAffinity", {}).get(REQUIRED, ())
        return next((term["labelSelector"]["matchLabels"]["app"] for term in terms), None)
