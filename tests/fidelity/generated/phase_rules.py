"""The intended differences in phases of PodGroups: who is let in, and when a victim's changes."""

from __future__ import annotations

from tests.fidelity.generated.compare import Level
from tests.fidelity.generated.facts import Facts, guarantee, needs
from tests.fidelity.generated.lives import Cycle

_IN = ("Inqueue", "Running")


def entitled_jobs_enqueued(facts: Facts) -> bool:
    """With reclaim, overcommit lets the deserved share of a queue in."""
    if "reclaim" not in facts.actions or "overcommit" not in facts.plugins:
        return False
    _, admitted = _admitted(facts)
    return bool(admitted) and all(facts.deserves(job) for job in admitted)


def unfit_jobs_reserve_nothing(facts: Facts) -> bool:
    """A job that would not fit on empty nodes does not keep others out of the queue.

    It is known not to fit once it was let in, a cycle before.
    """
    number, admitted = _admitted(facts)
    if not number:
        return False
    phases = facts.difference.theirs[number - 1].phases
    reserving = {
        job for job in facts.jobs
        if phases[job] == "Inqueue" and facts.capacity(job) < facts.minimum(job)
    }  # fmt: skip
    return bool(reserving) and bool(admitted - reserving)


def overcommit_counts_once(facts: Facts) -> bool:
    """Overcommit counts the part of a minimum that is not placed yet; Volcano counts all of it.

    It does until the phase of the group is Running, a cycle later: then it lets the same in.
    """
    number, admitted = _admitted(facts)
    theirs = facts.difference.theirs
    if "overcommit" not in facts.plugins or not admitted or not 0 < number < len(theirs) - 1:
        return False
    before = theirs[number - 1]
    twice = [
        job for job, phase in before.phases.items() if phase == "Inqueue" and job in before.where
    ]
    return bool(twice) and all(theirs[number + 1].phases[job] in _IN for job in admitted)


def root_without_a_limit(facts: Facts) -> bool:
    """The root of a hierarchy has no limit of its own; in Volcano it is what the cluster has.

    There the guarantees of other queues count as let in.
    """
    number, admitted = _admitted(facts)
    if not facts.is_tree or not admitted:
        return False
    ours = facts.difference.ours[number]
    queues = facts.case.body.get("queues", {})
    own = {facts.queue(job) for job in admitted}
    owed = sum(guarantee(queue) for name, queue in queues.items() if name not in own)
    let_in = [job for job, phase in ours.phases.items() if phase in _IN or job in ours.where]
    return sum(_reserved(facts, ours, job) for job in let_in) > facts.total_cpu - owed


def _reserved(facts: Facts, cycle: Cycle, job: str) -> int:
    said = facts.jobs[job]
    minimum = int(said.get("minResources", {}).get("cpu", 0))
    return max(minimum, len(cycle.where.get(job, ())) * int(said.get("cpu", 0)))


def refused_jobs_reserve_nothing(facts: Facts) -> bool:
    """A job that one plugin refuses reserves nothing with the others.

    In Volcano `capacity` and `proportion` count it, and then `overcommit` refuses it.
    """
    names = list(facts.plugins)
    share = next((name for name in names if name in ("capacity", "proportion")), None)
    if share is None or "overcommit" not in names[names.index(share) :]:
        return False
    number, admitted = _admitted(facts)
    return bool(admitted) and all(_is_kept_out(facts, number, job) for job in admitted)


def _is_kept_out(facts: Facts, number: int, job: str) -> bool:
    """Whether the CPUs of a queue are too few for a job only if refused ones count too."""
    cycle, queue = facts.difference.ours[number], facts.queue(job)
    together = [name for name in facts.jobs if facts.queue(name) == queue]
    refused = [
        name for name in together if name != job and cycle.phases[name] == "Pending"
        and name not in cycle.where and "minResources" in facts.jobs[name]
    ]  # fmt: skip
    said = facts.case.body.get("queues", {}).get(queue, {})
    limit = min(facts.total_cpu, said.get("capability", {}).get("cpu", facts.total_cpu))
    return bool(refused) and sum(_reserved(facts, cycle, name) for name in together) > limit


def best_effort_pods_do_not_preempt(facts: Facts) -> bool:
    """A BestEffort pod waits for `backfill`; Volcano's `preempt` pipelines it, and never binds it.

    So its job counts as unschedulable there, and has the phase Unknown.
    """
    if facts.difference.level != Level.PHASES or "preempt" not in facts.actions:
        return False
    for theirs, ours in zip(facts.difference.theirs, facts.difference.ours, strict=True):
        for job in facts.jobs:
            if theirs.phases[job] == ours.phases[job]:
                continue
            is_pipelined = job in theirs.pipelined and job not in ours.pipelined
            if not is_pipelined or needs(facts.jobs[job])["cpu"]:
                return False
    return True


def phase_of_a_victim(facts: Facts) -> bool:
    """A PodGroup's phase follows the pods that exist; Volcano's a victim that is yet to end.

    So it differs in the cycle of an eviction, and in the next one. A victim that Volcano lets in
    sooner for that stays Inqueue.
    """
    if facts.difference.level != Level.PHASES:
        return False
    victims: set[str] = set()
    before: set[str] = set()
    for theirs, ours in zip(facts.difference.theirs, facts.difference.ours, strict=True):
        recent, before = before | {*ours.evicted}, {*ours.evicted}
        victims |= recent
        for job in facts.jobs:
            pair = theirs.phases[job], ours.phases[job]
            is_sooner = job in victims and pair == ("Inqueue", "Pending")
            if pair[0] != pair[1] and job not in recent and not is_sooner:
                return False
    return True


def _admitted(facts: Facts) -> tuple[int, set[str]]:
    """Return the first cycle with other phases, and who is let in there by hekla only.

    It is none if what is placed or evicted differs before.
    """
    pairs = zip(facts.difference.theirs, facts.difference.ours, strict=True)
    for number, (theirs, ours) in enumerate(pairs):
        if theirs.phases != ours.phases:
            return number, {
                job for job, phase in ours.phases.items()
                if phase in _IN and theirs.phases[job] == "Pending"
            }  # fmt: skip
        if theirs.numbers != ours.numbers:
            break
    return 0, set()
