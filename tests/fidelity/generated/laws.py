"""What hekla owes a generated cluster, whatever Volcano does: laws over twenty cycles.

`hekla.scheduler.invariants` has the laws of one plan, by what the scheduler itself counts. Here are
those that need the cluster's life, or that count what it was drawn from:

    work       no job waits at the end beside a place for it
    rest       a cluster that nobody changes comes to rest
    ping-pong  a state never returns after an eviction
    bystander  each victim makes place for a task on its node
    promise    what was evicted for a job is given to it in the next cycle
    guarantee  no eviction takes a queue below its guarantee
    gang       a job that gets pods has its minimum then, and voting, gang keeps victims whole
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from hekla.scheduler.framework.plan import Plan
from hekla.scheduler.invariants import breaches
from hekla.testing import TestCluster
from hekla.testing.objects import START
from tests.fidelity import ours
from tests.fidelity.catalogue import Case
from tests.fidelity.generated import worlds
from tests.fidelity.generated.facts import Facts, guarantee, needs
from tests.fidelity.generated.room import Room, facts_of, job_of

LAWS: Final = ("work", "rest", "ping-pong", "bystander", "promise", "guarantee", "gang")
CYCLES: Final = 20
QUIET: Final = 3
"""Cycles without a change after which a cluster is at rest."""


@dataclass(frozen=True)
class Violation:
    law: str
    message: str

    def __str__(self) -> str:
        return f"{self.law}: {self.message}"


def broken(seed: int) -> list[Violation]:
    """Return the laws that hekla breaks in the lives of the cluster of a seed, as it is drawn and
    with more to evict."""
    return [
        replace(found, message=f"{found.message}{note}")
        for case, note in ((worlds.draw(seed), ""), (worlds.contended(seed), " (contended)"))
        for found in violations(case, ours.world(case))
    ]


def violations(case: Case, world: TestCluster, cycles: int = CYCLES) -> list[Violation]:
    """Return the laws that are broken in the life of a cluster."""
    facts = facts_of(case)
    found: list[Violation] = []
    seen: dict[object, int] = {}
    evicted_in, quiet = -1, 0
    promised: Counter[str] = Counter()
    for number in range(cycles):
        state = _state(world)
        if seen.get(state, cycles) <= evicted_in:
            # What follows is the same again.
            message = f"cycle {number + 1} begins as cycle {seen[state] + 1}, and pods were evicted"
            return [*found, Violation("ping-pong", message)]
        seen[state] = number
        result = world.run(now=START + number)
        found += [
            Violation(law, f"cycle {number + 1}: {message}")
            for law, message in (
                *_of_the_plan(world, result.plan),
                *_broken_promises(promised, result.plan),
                *_bystanders(result.plan),
                *_lost_guarantees(Room(facts, world), result.plan),
                *_half_gangs(Room(facts, world), result.plan),
            )
        ]
        promised = _promised(result.plan)
        if result.plan.evictions:
            evicted_in = number
        world.live(result)
        quiet = quiet + 1 if _state(world) == state else 0
        if quiet == QUIET:
            found += [Violation("work", message) for message in Room(facts, world).waiting()]
            return found
    return [*found, Violation("rest", f"cycle {cycles} still changes the cluster")]


def _state(world: TestCluster) -> object:
    """Return where pods run, and the phases: equal pods are interchangeable."""
    where = Counter((job_of(uid), pod.spec.node_name) for uid, pod in world.pods.items())
    phases = sorted((key, job.phase) for key, job in world.state.jobs.items())
    return tuple(sorted(where.items())), tuple(phases)


Broken = Iterator[tuple[str, str]]
"""Names of laws, with the objects and numbers that break them."""


def _of_the_plan(world: TestCluster, plan: Plan) -> Broken:
    for breach in breaches(world.state, world.config, plan):
        yield breach.law, breach.message


def _promised(plan: Plan) -> Counter[str]:
    """Return how many pods of each job are pipelined by a plan that evicts."""
    return Counter(job_of(uid) for uid in plan.pipelined) if plan.evictions else Counter()


def _broken_promises(promised: Counter[str], plan: Plan) -> Broken:
    bound = Counter(job_of(bind.uid) for bind in plan.binds)
    for job, count in sorted(promised.items()):
        if bound[job] < count:
            yield "promise", f"{bound[job]} pods of {job} are bound, {count} were evicted for"


def _bystanders(plan: Plan) -> Broken:
    used = {*plan.pipelined.values()} | {bind.node for bind in plan.binds}
    for victim in plan.evictions:
        if victim.node not in used:
            yield "bystander", f"{victim.pod} is evicted, and nothing is placed on {victim.node}"


def _lost_guarantees(room: Room, plan: Plan) -> Broken:
    """Of CPUs, and against what the same plan gives the queue."""
    facts = room.facts
    if not {"capacity", "proportion"} & facts.plugins.keys():
        return
    change: Counter[str] = Counter()
    for sign, uids in (
        (-1, [victim.uid for victim in plan.evictions]),
        (1, [*plan.pipelined, *(bind.uid for bind in plan.binds)]),
    ):
        for job in map(job_of, uids):
            if job in facts.jobs:
                change[facts.queue(job)] += sign * needs(facts.jobs[job])["cpu"]
    for name, queue in facts.case.body.get("queues", {}).items():
        owed, left = guarantee(queue), room.used_cpu(name) + change[name]
        if change[name] < 0 and left < owed:
            yield "guarantee", f"{name} keeps {left} of {owed} CPUs"


def _half_gangs(room: Room, plan: Plan) -> Broken:
    """Of jobs that the plan changes, where `gang` is configured, and votes on victims."""
    facts = room.facts
    if "gang" not in facts.plugins:
        return
    bound = Counter(job_of(bind.uid) for bind in plan.binds)
    lost = Counter(job_of(victim.uid) for victim in plan.evictions)
    for job in facts.jobs:
        minimum, left = facts.minimum(job), room.running[job] + bound[job] - lost[job]
        if bound[job] and left < minimum and needs(facts.jobs[job])["cpu"]:
            yield "gang", f"{job} has {left} of {minimum} pods"
        if lost[job] and left < minimum > 1 and _protects(facts):
            yield "gang", f"{job} keeps {left} of {minimum} pods, {lost[job]} are evicted"


def _protects(facts: Facts) -> bool:
    """Whether `gang` is in the first tier that votes, whose refusal is final."""
    evicting = [action for action in ("preempt", "reclaim") if action in facts.actions]
    return all("gang" in tier for action in evicting for tier in facts.voters(action)[:1])
