"""Laws that a history must obey under any faults.

    report = judge(read_audit(path))
    assert not report.broken, report

Every law is a function from the facts to sentences that describe violations; it does not depend on
the faults. The workload consists of gangs whose pods are neither evicted nor deleted before their
job has finished, so a pod is created once and runs once.

Note: a killed server may have stored writes that its audit log does not contain. So a pod in a
later response counts, not only its binding.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from hekla.units.quantity import parse_quantity
from tools.faults.history import Json, Write

REPAIR_S = 120.0
"""How long a gang may stay partly bound. A lease, a list and a decision take seconds; a gang that
exceeds this limit is stuck."""
GROUP = "scheduling.k8s.io/group-name"
ENDED = frozenset({"Completed", "Failed", "Aborted", "Terminated"})


@dataclass
class PodFacts:
    """One pod (by its uid) over time."""

    name: str = ""
    gang: str = ""
    requests: dict[str, int] = field(default_factory=dict)
    binds: list[tuple[float, str]] = field(default_factory=list)
    """Accepted bindings."""
    seen_on: list[tuple[float, str]] = field(default_factory=list)
    freed_at: float | None = None

    @property
    def bound(self) -> tuple[float, str] | None:
        """Return the node, and the latest possible time of the bind."""
        return min([*self.binds[:1], *self.seen_on[:1]], default=None)


@dataclass
class JobFacts:
    """One job (by its uid): its phases in the order of the store."""

    name: str
    phases: list[tuple[int, float, str]] = field(default_factory=list)
    deleted_at: float | None = None

    def ends(self) -> list[tuple[int, float, str]]:
        """Return each time at which it finished."""
        phases = sorted(self.phases)
        before = ["", *(phase for _, _, phase in phases)]
        return [p for p, was in zip(phases, before, strict=False) if p[2] in ENDED and was != p[2]]


@dataclass
class Term:
    """The term of one leader of a component."""

    at: float
    done: float
    version: int
    holder: str


@dataclass
class Facts:
    """A history by pod, job, node and leader."""

    pods: dict[str, PodFacts] = field(default_factory=lambda: defaultdict(PodFacts))
    made: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    """When a pod of this namespace and name was created."""
    jobs: dict[str, JobFacts] = field(default_factory=dict)
    min_members: dict[str, int] = field(default_factory=dict)
    nodes: dict[str, dict[str, int]] = field(default_factory=dict)
    terms: dict[str, list[Term]] = field(default_factory=lambda: defaultdict(list))
    spoken: list[Write] = field(default_factory=list)
    """Writes of replicas except leases."""


@dataclass
class Report:
    """The checked facts, and the violations of each law."""

    broken: list[str]
    counts: dict[str, float]

    def __str__(self) -> str:
        shown = "\n".join(self.broken[:20]) or "every law was kept"
        return f"{shown}\n{self.counts}"


def judge(history: Sequence[Write], *, repair_s: float = REPAIR_S) -> Report:
    """Check every law on a history."""
    facts = gather(history)
    spans = dict(half_bound_spans(facts))
    broken = [f"{law.__name__}: {said}" for law in LAWS for said in law(facts)]
    broken += [
        f"gangs_are_repaired: {gang} was half-bound for {span:.0f} s"
        for gang, span in spans.items()
        if span > repair_s
    ]
    counts: dict[str, float] = {
        "writes": len(history),
        "pods bound": sum(pod.bound is not None for pod in facts.pods.values()),
        "gangs": len(spans),
        "jobs ended": sum(bool(job.ends()) for job in facts.jobs.values()),
        "terms": sum(len(terms) for terms in facts.terms.values()),
        "longest half-bound s": round(max(spans.values(), default=0.0), 2),
    }
    return Report(broken, counts)


# --- the facts --------------------------------------------------------------------------------


def gather(history: Sequence[Write]) -> Facts:
    facts = Facts()
    for write in sorted(history, key=lambda one: one.at):
        if component_of(write.replica) and write.resource != "leases":
            facts.spoken.append(write)
        if not write.succeeded:
            continue
        match write.resource:
            case "pods":
                _pod(facts, write)
            case "jobs":
                _job(facts, write)
            case "podgroups":
                _group(facts, write)
            case "nodes":
                _node(facts, write)
            case "leases" if component_of(write.replica):
                _lease(facts, write)
    return facts


def _pod(facts: Facts, write: Write) -> None:
    if write.subresource == "binding":
        pod = facts.pods[(write.asked.get("metadata") or {}).get("uid", "")]
        pod.binds.append((write.at, write.asked["target"]["name"]))
        return
    if write.answer.get("kind") != "Pod":
        return
    metadata, spec = write.answer["metadata"], write.answer.get("spec") or {}
    pod = facts.pods[metadata["uid"]]
    pod.name = f"{metadata['namespace']}/{metadata['name']}"
    group = (metadata.get("annotations") or {}).get(GROUP, "")
    pod.gang = f"{metadata['namespace']}/{group}" if group else ""
    pod.requests = _requests(spec)
    if write.verb == "create" and not write.subresource:
        facts.made[pod.name].append(write.at)
    if spec.get("nodeName"):
        pod.seen_on.append((write.at, spec["nodeName"]))
    if pod.freed_at is None and _frees(write):
        pod.freed_at = write.at


def _frees(write: Write) -> bool:
    """Return whether the pod no longer uses its node: it has finished or is deleted."""
    if (write.answer.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
        return True
    gone = write.asked.get("gracePeriodSeconds") == 0 or not write.answer["spec"].get("nodeName")
    return write.verb == "delete" and gone


def _requests(spec: Json) -> dict[str, int]:
    total: dict[str, int] = {"pods": _amount(1)}
    for container in spec.get("containers") or ():
        asked = (container.get("resources") or {}).get("requests") or {}
        for name, amount in asked.items():
            total[name] = total.get(name, 0) + _amount(amount)
    return total


def _amount(text: Any) -> int:
    return parse_quantity(str(text)).nanos


def _job(facts: Facts, write: Write) -> None:
    if write.answer.get("kind") != "Job":
        return
    metadata = write.answer["metadata"]
    name = f"{metadata['namespace']}/{metadata['name']}"
    job = facts.jobs.setdefault(metadata["uid"], JobFacts(name))
    if write.verb == "delete":
        job.deleted_at = write.at
    phase = ((write.answer.get("status") or {}).get("state") or {}).get("phase", "")
    if phase:
        job.phases.append((write.version, write.at, phase))


def _group(facts: Facts, write: Write) -> None:
    if write.answer.get("kind") == "PodGroup":
        metadata = write.answer["metadata"]
        name = f"{metadata['namespace']}/{metadata['name']}"
        facts.min_members[name] = (write.answer.get("spec") or {}).get("minMember", 0)


def _node(facts: Facts, write: Write) -> None:
    amounts = (write.answer.get("status") or {}).get("allocatable")
    if amounts:
        facts.nodes[write.name] = {name: _amount(value) for name, value in amounts.items()}


def _lease(facts: Facts, write: Write) -> None:
    holder = (write.answer.get("spec") or {}).get("holderIdentity")
    component = component_of(write.replica)
    who = write.replica if holder else ""
    terms = facts.terms[component]
    terms.append(Term(write.at, write.done, write.version, who))
    terms.sort(key=lambda term: term.version)
    # Renewals change nothing: keep the first of consecutive equal holders.
    facts.terms[component] = [
        term for before, term in zip([None, *terms], terms, strict=False)
        if before is None or before.holder != term.holder
    ]  # fmt: skip


def component_of(replica: str) -> str:
    """`scheduler` of `scheduler-a`."""
    return replica.rpartition("-")[0]


# --- the laws ---------------------------------------------------------------------------------


def no_pod_is_bound_twice(facts: Facts) -> Iterator[str]:
    for uid, pod in facts.pods.items():
        if len(pod.binds) > 1:
            yield f"pod {pod.name} ({uid}) was bound {len(pod.binds)} times"
        places = {node for _, node in (*pod.binds, *pod.seen_on)}
        if len(places) > 1:
            yield f"pod {pod.name} ({uid}) was on {', '.join(sorted(places))}"
        if pod.binds and not uid:
            yield "a binding did not say which pod (uid) it means"


def no_pod_is_made_twice(facts: Facts) -> Iterator[str]:
    for name, moments in facts.made.items():
        if len(moments) > 1:
            yield f"pod {name} was created {len(moments)} times"


def no_gang_is_left_half_bound(facts: Facts) -> Iterator[str]:
    for gang, members in _gangs(facts).items():
        bound, wanted = sum(p.bound is not None for p in members), facts.min_members.get(gang, 0)
        if 0 < bound < wanted:
            yield f"of gang {gang} {bound} pods are bound, and it takes {wanted}"


def no_node_is_overfull(facts: Facts) -> Iterator[str]:
    """A pod uses its node from the binding request until the request that ends it.

    A scheduler that reuses the resources of a finished pod has seen the end stored, which is after
    its request; so these intervals overlap only if the node is overcommitted.
    """
    by_node: dict[str, list[PodFacts]] = defaultdict(list)
    for pod in facts.pods.values():
        if pod.bound is not None:
            by_node[pod.bound[1]].append(pod)
    for node, pods in by_node.items():
        room = facts.nodes.get(node)
        if room is None:
            yield f"pods were bound to {node}, which does not exist"
            continue
        yield from _overfull(node, room, pods)


def _overfull(node: str, room: dict[str, int], pods: list[PodFacts]) -> Iterator[str]:
    steps: list[tuple[float, int, PodFacts]] = []
    for pod in pods:
        assert pod.bound is not None
        steps.append((pod.bound[0], 1, pod))
        if pod.freed_at is not None:
            steps.append((max(pod.freed_at, pod.bound[0]), -1, pod))
    used: dict[str, int] = defaultdict(int)
    for _, sign, pod in sorted(steps, key=lambda step: step[:2]):
        for name, amount in pod.requests.items():
            used[name] += sign * amount
            if sign > 0 and used[name] > room.get(name, 0):
                yield f"{node} has no room for the {name} of {pod.name}"


def no_job_is_lost(facts: Facts) -> Iterator[str]:
    for job in facts.jobs.values():
        if job.deleted_at is None and not job.ends():
            last = max(job.phases, default=(0, 0.0, "nothing"))[2]
            yield f"job {job.name} never ended; the last that was heard of it is {last}"


def no_job_ends_twice(facts: Facts) -> Iterator[str]:
    for job in facts.jobs.values():
        phases = [phase for _, _, phase in sorted(job.phases)]
        ended = [number for number, phase in enumerate(phases) if phase in ENDED]
        if ended and len(set(phases[ended[0] :])) > 1:
            yield f"job {job.name} ended and went on: {' > '.join(phases)}"


def only_the_leader_writes(facts: Facts) -> Iterator[str]:
    """A write that the server received after another replica had acquired the lease."""
    for write in facts.spoken:
        terms = facts.terms.get(component_of(write.replica), [])
        holder = _holder(terms, write.at, lambda term: term.done)
        taking = _holder(terms, write.at, lambda term: term.at)
        if write.replica not in (holder, taking):
            what = f"{write.verb} {write.resource}/{write.subresource} {write.name}"
            yield f"{write.replica} sent {what} while {holder or 'no replica'} led"


def _holder(terms: list[Term], moment: float, when: Callable[[Term], float]) -> str:
    place = bisect_right(terms, moment, key=when)
    return terms[place - 1].holder if place else ""


def half_bound_spans(facts: Facts) -> Iterator[tuple[str, float]]:
    """Return for each bound gang the seconds from its first to its last required bind."""
    for gang, members in _gangs(facts).items():
        moments = sorted(pod.bound[0] for pod in members if pod.bound is not None)
        wanted = facts.min_members.get(gang, 0)
        if wanted and len(moments) >= wanted:
            yield gang, moments[wanted - 1] - moments[0]


def _gangs(facts: Facts) -> dict[str, list[PodFacts]]:
    gangs: dict[str, list[PodFacts]] = defaultdict(list)
    for pod in facts.pods.values():
        if pod.gang:
            gangs[pod.gang].append(pod)
    return gangs


LAWS: tuple[Callable[[Facts], Iterator[str]], ...] = (
    no_pod_is_bound_twice,
    no_pod_is_made_twice,
    no_gang_is_left_half_bound,
    no_node_is_overfull,
    no_job_is_lost,
    no_job_ends_twice,
    only_the_leader_writes,
)
