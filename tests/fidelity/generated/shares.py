"""What queues deserve in a generated cluster, computed from what it was drawn from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from fractions import Fraction

from tests.fidelity.generated.facts import Facts, Json, amounts, guarantee, needs
from tests.fidelity.generated.worlds import GPU

RESOURCES = ("cpu", "memory", "gpu")


def is_within(facts: Facts, job: str) -> bool:
    """Whether the queue of a job uses no more than it deserves of all that the job's pods need."""
    queue = facts.queue(job)
    used = _requests(facts, queue, facts.running)
    needed = [key for key in RESOURCES if needs(facts.jobs[job])[key]]
    if "capacity" in facts.plugins:
        said = facts.case.body.get("queues", {}).get(queue, {}).get("deserved", {})
        owed = {"cpu": said.get("cpu", 0), "gpu": said.get(GPU, 0)}
        stated = [key for key in needed if owed.get(key)]
        return bool(stated) and all(used[key] <= owed[key] for key in stated)
    return "proportion" in facts.plugins and all(
        used[key] <= deserved(facts, key)[queue] for key in needed
    )


def dominant(facts: Facts, job: str, pods: int) -> Fraction:
    """Return the dominant share of a job with a number of pods."""
    total: Counter[str] = Counter()
    for node in facts.case.body["nodes"].values():
        total.update(amounts(node))
    need = needs(facts.jobs[job])
    return max(Fraction(need[key] * pods, total[key]) for key in RESOURCES if total[key])


def leaves_guarantees(facts: Facts, job: str) -> bool:
    """Whether the queue of a job, as hekla placed its pods, leaves other queues their guarantees.

    Without a plugin for queues nothing is guaranteed.
    """
    if {"capacity", "proportion"}.isdisjoint(facts.plugins):
        return True
    queue = facts.queue(job)
    used = _requests(facts, queue, facts.running) + _requests(facts, queue, facts.ours.placed)
    queues: Mapping[str, Json] = facts.case.body.get("queues", {})
    owed = sum(guarantee(said) for name, said in queues.items() if name != queue)
    return used["cpu"] <= facts.total_cpu - owed


def pods_decide(facts: Facts, theirs: str, ours: str) -> bool:
    """Whether the queue of one job is before that of another only if pods are no resource."""
    both = {job: min(count, facts.theirs.placed.get(job, 0))
            for job, count in facts.ours.placed.items()}  # fmt: skip

    def share(queue: str, keys: Iterable[str]) -> Fraction:
        used = _requests(facts, queue, facts.running) + _requests(facts, queue, both)
        owed = {key: deserved(facts, key)[queue] for key in keys}
        return max(
            (used[key] / amount for key, amount in owed.items() if amount), default=Fraction(0)
        )

    one, other = facts.queue(theirs), facts.queue(ours)
    with_pods = (*RESOURCES, "pods")
    return share(other, RESOURCES) < share(one, RESOURCES) and (
        share(other, with_pods) >= share(one, with_pods)
    )


def deserved(facts: Facts, key: str) -> dict[str, Fraction]:
    """Divide a resource by weight; what a queue does not ask for goes to the others."""
    queues = facts.case.body.get("queues", {})
    every = {job: _pods(facts, job) for job in facts.jobs}
    asked = {name: _requests(facts, name, every)[key] for name in map(facts.queue, facts.jobs)}
    found = dict.fromkeys(asked, Fraction(0))
    left = Fraction(sum(amounts(node)[key] for node in facts.case.body["nodes"].values()))
    hungry = set(asked)
    while left > 0 and hungry:
        weights = {name: int(queues.get(name, {}).get("weight", 1)) for name in hungry}
        part = left / sum(weights.values())
        left = Fraction(0)
        for name, weight in weights.items():
            found[name] += part * weight
            if found[name] >= asked[name]:
                left += found[name] - asked[name]
                found[name] = Fraction(asked[name])
                hungry.discard(name)
    return found


def _requests(facts: Facts, queue: str, pods: Mapping[str, int]) -> Counter[str]:
    total: Counter[str] = Counter()
    for job, count in pods.items():
        if job in facts.jobs and facts.queue(job) == queue:
            total.update({key: need * count for key, need in needs(facts.jobs[job]).items()})
    return total


def _pods(facts: Facts, job: str) -> int:
    said = facts.jobs[job]
    return sum(role["pods"] for role in said.get("roles", {"": said}).values())
