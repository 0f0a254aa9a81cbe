"""The intended differences in nodes: filters, ports, network topology, and the order of placing."""

from __future__ import annotations

from tests.fidelity.generated import shares
from tests.fidelity.generated.compare import Level
from tests.fidelity.generated.facts import Facts, more, needs


def filters_hold_in_a_session(facts: Facts) -> bool:
    """A pod respects ports and anti-affinity of those placed in the same session, and before.

    Preferred affinity to those counts in its score, and required affinity lets it in.
    """
    gained = more(facts.ours.pipelined, facts.theirs.pipelined)
    beside = facts.ours.placed | facts.ours.pipelined
    if any(facts.attracted(job, other) for job in gained for other in beside):
        return True
    theirs, ours = facts.theirs.where, facts.ours.where
    different = {job for job in facts.theirs.placed if theirs.get(job) != ours.get(job)}
    if facts.difference.level == Level.NODES and "nodeorder" in facts.plugins:
        placed = facts.ours.placed
        if any(facts.prefers(one, other) for one in different for other in placed):
            return True
    return bool(different & _in_conflict(facts)) and (
        bool(facts.ours.placed)
        or any(_is_full(facts, different, *shape) for shape in facts.nodes_by_shape.items())
    )


def _is_full(facts: Facts, jobs: set[str], shape: str, count: int) -> bool:
    """Whether hekla already has as many pods with the port on nodes of a shape as these hold."""
    where = facts.ours.where
    return all(facts.has_port(job) for job in jobs) and count == sum(
        where.get(job, []).count(shape) for job in facts.jobs if facts.has_port(job)
    )


def _in_conflict(facts: Facts) -> set[str]:
    """Return the jobs that break a filter under Volcano."""
    found = set()
    for here in facts.theirs.nodes:
        with_ports = [job for job in here if job in facts.jobs and facts.has_port(job)]
        if sum(here[job] for job in with_ports) > 1:
            found.update(with_ports)
        for job in here.keys() & facts.jobs.keys():
            others = {other for other in here if other != job or here[job] > 1}
            if facts.repelled(job) & others:
                found.add(job)
    return found


def moved(facts: Facts) -> set[str]:
    """Return the jobs of which both place as many pods, on other nodes."""
    theirs, ours = facts.theirs, facts.ours
    return {
        job
        for job, count in ours.placed.items()
        if theirs.placed.get(job) == count and theirs.where.get(job) != ours.where.get(job)
    }


def number_of_pods(facts: Facts) -> bool:
    """The number of pods is no resource: no limit without `predicates`, no part of a share."""
    gained = more(facts.ours.placed, facts.theirs.placed)
    lost = more(facts.theirs.placed, facts.ours.placed)
    if "proportion" in facts.plugins and lost and gained:
        return any(shares.pods_decide(facts, one, other) for one in lost for other in gained)
    is_limited = any("pods" in node for node in facts.case.body["nodes"].values())
    return bool(gained) and is_limited and "predicates" not in facts.plugins


def topology(facts: Facts) -> bool:
    """Domains are searched otherwise; jobs with a network topology differ, or made place.

    Where such a job is placed elsewhere, another one may fit, or fit no more.
    """
    theirs, ours = facts.theirs, facts.ours
    with_topology = _with_topology(facts)
    if facts.difference.level == Level.NODES:
        different = {job for job in facts.jobs if theirs.where.get(job) != ours.where.get(job)}
        return bool(different) and different <= with_topology
    lost, gained = more(theirs.placed, ours.placed), more(ours.placed, theirs.placed)
    if theirs.evicted != ours.evicted or not lost | gained:
        return False
    if with_topology & moved(facts) and bool(lost) != bool(gained):
        return True
    if lost and gained:
        return lost.keys() <= with_topology or gained.keys() <= with_topology
    return (lost | gained).keys() <= with_topology


def topology_preempts(facts: Facts) -> bool:
    """Jobs with a network topology preempt; in Volcano they do not.

    Gangs are evicted whole for them, even if `gang` does not vote.
    """
    lost = more(facts.theirs.pipelined, facts.ours.pipelined)
    if lost and not facts.ours.evicted and lost.keys() <= _with_topology(facts):
        victims = facts.theirs.evicted.items()
        return all(facts.running.get(job, 0) - many < facts.minimum(job) for job, many in victims)
    gained = more(facts.ours.pipelined, facts.theirs.pipelined)
    return (
        bool({"preempt", "reclaim"} & {*facts.actions})
        and bool(facts.ours.evicted)
        and bool(gained)
        and gained.keys() <= _with_topology(facts)
        and not more(facts.theirs.pipelined, facts.ours.pipelined)
    )


def _with_topology(facts: Facts) -> set[str]:
    return {job for job, said in facts.jobs.items() if "networkTopology" in said.get("group", {})}


def equal_tasks_together(facts: Facts) -> bool:
    """Equal tasks of a job are placed together; in Volcano roles interleave by index."""
    if facts.difference.level != Level.NODES:
        return False
    different = [
        job for job in facts.jobs if facts.theirs.where.get(job) != facts.ours.where.get(job)
    ]
    return any("roles" in facts.jobs[job] for job in different)


def half_gangs_release(facts: Facts) -> bool:
    """Members of a gang that lacks others hold no node; in Volcano they do until `backfill`."""
    if facts.difference.level != Level.NODES or "preempt" not in facts.actions:
        return False
    theirs, ours = facts.theirs.where, facts.ours.where
    different = [job for job in facts.jobs if theirs.get(job) != ours.get(job)]
    lacking = [job for job in facts.jobs if 0 < facts.minimum(job) > len(ours.get(job, ()))]
    return bool(lacking) and not any(needs(facts.jobs[job])["cpu"] for job in different)


def domain_scores_at_once(facts: Facts) -> bool:
    """Domain scores are computed once for equal pods that are placed together.

    Where several are placed elsewhere for that, another job may fit, or fit no more.
    """
    if "network-topology-aware" not in facts.plugins:
        return False
    theirs, ours = facts.theirs, facts.ours
    lost, gained = more(theirs.placed, ours.placed), more(ours.placed, theirs.placed)
    together = any(ours.placed.get(job, 0) > 1 for job in moved(facts))
    return facts.difference.level == Level.NODES or (
        together and theirs.evicted == ours.evicted and bool(lost) != bool(gained)
    )


def nodes_follow_the_order(facts: Facts) -> bool:
    """Jobs are placed in another order, minimums and repairs first, and so on other nodes."""
    placed = facts.ours.placed
    moved = [
        job for job, count in placed.items()
        if facts.running.get(job, 0) + count > facts.minimum(job)
        or facts.is_repaired(job)
    ]  # fmt: skip
    return facts.difference.level == Level.NODES and bool(moved) and len(placed) > 1
