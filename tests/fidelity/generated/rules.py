"""The intended differences from Volcano, each as a predicate on a cluster and its two lives.

A rule names the row of `docs/decisions/0005-scheduling-where-we-differ-from-volcano.md` that
it stands for, and looks at the first cycle that differs: after it the two clusters are not the same
any more. A rule is as narrow as it can be stated; a difference that no rule explains is a finding.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.fidelity.catalogue import Case
from tests.fidelity.generated import lives, node_rules, phase_rules, shares
from tests.fidelity.generated.compare import Difference, Level
from tests.fidelity.generated.facts import Facts, guarantee, more, needs
from tests.fidelity.generated.lives import Counts, Cycle

Rule = Callable[[Facts], bool]
_EVICTING = ("preempt", "reclaim")


def explain(case: Case, difference: Difference) -> str:
    """Return the name of the first rule that explains a difference; empty if none does."""
    facts = Facts(case, difference)
    return next((name for name, rule in RULES.items() if rule(facts)), "")


def minimum_before_surplus(facts: Facts) -> bool:
    """Among equal priorities every minimum first, then surplus; Volcano fills job after job."""
    theirs, ours = _placements(facts)
    minimums = {job: count for job, count in ours.items() if not _is_surplus(facts, job, count)}
    return (
        bool(theirs)
        and bool(minimums)
        and all(_is_surplus(facts, job, count) for job, count in theirs.items())
        and not _outranks(facts, theirs, minimums)
    )


def surplus_in_slices(facts: Facts) -> bool:
    """Jobs share what is left for surplus in turn; in Volcano one job takes it all."""
    theirs, ours = _placements(facts)
    return (
        bool(theirs)
        and bool(ours)
        and all(_is_surplus(facts, job, count) for job, count in (theirs | ours).items())
        and not _outranks(facts, theirs, ours)
    )


def repair_first(facts: Facts) -> bool:
    """A started gang that lost a member comes before new jobs of its priority."""
    theirs, ours = _placements(facts)
    repaired = [job for job in ours if facts.is_repaired(job)]
    return bool(repaired) and not _outranks(facts, theirs, ours)


def leftover_slots(facts: Facts) -> bool:
    """The fraction of a slot that queues deserve is used; in Volcano it stays idle."""
    theirs, ours = _placements(facts)
    return bool(ours) and not theirs and "proportion" in facts.plugins


def _placements(facts: Facts) -> tuple[Counts, Counts]:
    """Return what Volcano places more and what hekla places more; nothing if victims differ."""
    if facts.theirs.evicted != facts.ours.evicted:
        return {}, {}
    placed = facts.theirs.placed, facts.ours.placed
    return more(*placed), more(placed[1], placed[0])


def _outranks(facts: Facts, theirs: Counts, ours: Counts) -> bool:
    """Whether a job that Volcano serves has a higher priority than all in its queue that we do.

    Without the plugin, priorities order nothing.
    """
    if "priority" not in facts.plugins:
        return False
    for job in theirs:
        same = [facts.priority(o) for o in ours if facts.queue(o) == facts.queue(job)]
        if same and facts.priority(job) > max(same):
            return True
    return False


def _is_surplus(facts: Facts, job: str, count: int) -> bool:
    """Whether the last `count` pods placed, by whoever placed more, are beyond the minimum.

    Without `gang` every pod is.
    """
    if "gang" not in facts.plugins:
        return True
    placed = max(facts.theirs.placed.get(job, 0), facts.ours.placed.get(job, 0))
    return facts.running.get(job, 0) + placed - count >= facts.minimum(job)


def empty_vote_is_final(facts: Facts) -> bool:
    """A first tier that refuses every victim is final; in Volcano the next tier decides then."""
    victims = more(facts.theirs.evicted, facts.ours.evicted)
    if not victims or more(facts.ours.evicted, facts.theirs.evicted):
        return False
    action = _action(facts, victims)
    evicting = [action] if action else [each for each in _EVICTING if each in facts.actions]
    first = [voters[0] for action in evicting if len(voters := facts.voters(action)) > 1]
    return any(_refused(facts, voters, job) for voters in first for job in victims)


def _refused(facts: Facts, voters: list[str], job: str) -> bool:
    """Whether a plugin of the tier protects the pods of a job."""
    lost = facts.theirs.evicted[job]
    if "gang" in voters and facts.running.get(job, 0) - lost < facts.minimum(job):
        return True
    takers = more(facts.theirs.pipelined, facts.ours.pipelined)
    if "priority" in voters and all(facts.priority(t) <= facts.priority(job) for t in takers):
        return True
    labels = facts.jobs[job].get("labels", {}).items()
    budgets = facts.case.body.get("budgets", {}).values()
    return "pdb" in voters and any(said["matches"].items() <= labels for said in budgets)


def empty_intersection(facts: Facts) -> bool:
    """Votes of a tier without a common victim permit none; in Volcano the next plugin starts anew.

    So that needs three plugins, and one of those before the last refuses each victim.
    """
    victims = more(facts.theirs.evicted, facts.ours.evicted)
    if not victims or more(facts.ours.evicted, facts.theirs.evicted):
        return False
    action = _action(facts, victims)
    first = facts.voters(action)[0] if action and facts.voters(action) else []
    return len(first) > 2 and all(_refused(facts, first[:-1], job) for job in victims)


def _action(facts: Facts, victims: Counts) -> str:
    """Return the action that evicts, `preempt` in a queue or `reclaim` across; empty if unclear."""
    takers = more(facts.theirs.pipelined, facts.ours.pipelined)
    ours, theirs = ({facts.queue(job) for job in jobs} for jobs in (takers, victims))
    action = "preempt" if ours == theirs else "" if ours & theirs else "reclaim"
    return action if takers and action in facts.actions else ""


def shares_in_every_tier(facts: Facts) -> bool:
    """`proportion` and `capacity` protect a queue within its deserved share in every tier.

    In Volcano only in the tier that decides, which is the first one with a victim.
    """
    victims = more(facts.theirs.evicted, facts.ours.evicted)
    if not victims or facts.ours.evicted or _action(facts, victims) != "reclaim":
        return False
    first = facts.voters("reclaim")[:1]
    is_later = {"proportion", "capacity"}.isdisjoint(*first)
    return is_later and any(shares.is_within(facts, job) for job in victims)


def no_useless_eviction(facts: Facts) -> bool:
    """Victims and placements are one plan; Volcano evicts, and the preemptor may not get to run."""
    if not more(facts.theirs.evicted, facts.ours.evicted):
        return False
    if more(facts.ours.evicted, facts.theirs.evicted):
        return False
    takers = more(facts.theirs.pipelined, facts.ours.pipelined)
    theirs, ours = lives.running(facts.difference.theirs), lives.running(facts.difference.ours)
    return all(theirs.get(job, 0) <= ours.get(job, 0) for job in takers)


def nothing_to_undo(facts: Facts) -> bool:
    """A plan that its victim could undo at once is refused; Volcano evicts the preemptor later.

    Or it does not, because the victim finds another node, or none.
    """
    victims = more(facts.theirs.evicted, facts.ours.evicted)
    takers = more(facts.theirs.pipelined, facts.ours.pipelined)
    if not victims or more(facts.ours.evicted, facts.theirs.evicted):
        return False
    later = facts.difference.theirs[facts.difference.cycle + 1 :]
    if any(job in cycle.evicted for cycle in later for job in takers):
        return True
    voters = facts.voters("preempt")
    return (
        _action(facts, victims) == "preempt"
        and {"priority", "drf"}.isdisjoint(*voters[:1])
        and not any(_protected(facts, voters[0], job) for job in takers)
    )


def _protected(facts: Facts, voters: list[str], job: str) -> bool:
    """Whether `gang` keeps the pods that a job was given by eviction: they are its minimum."""
    count = facts.running.get(job, 0) + facts.theirs.pipelined[job]
    return "gang" in voters and count <= facts.minimum(job)


def drf_judges_the_plan(facts: Facts) -> bool:
    """`drf` compares shares as they are with idle resources used; Volcano evicts first.

    So there a gang may evict although its share is the larger one in the end.
    """
    victims = more(facts.theirs.evicted, facts.ours.evicted)
    takers = more(facts.theirs.pipelined, facts.ours.pipelined)
    voters = facts.voters("preempt")
    if not victims or not takers or facts.ours.evicted or "drf" not in (voters or [[]])[0]:
        return False
    theirs = facts.theirs
    return _action(facts, victims) == "preempt" and all(
        shares.dominant(facts, taker, facts.running.get(taker, 0) + theirs.pipelined[taker])
        > shares.dominant(facts, victim, facts.running.get(victim, 0) - count)
        for taker in takers
        for victim, count in victims.items()
        if victim in facts.jobs
    )


def fewest_victims(facts: Facts) -> bool:
    """The same preemptors are placed with fewer victims, or with others where that is cheaper."""
    theirs, ours = facts.theirs, facts.ours
    return (
        bool(ours.evicted)
        and ours.pipelined.keys() == theirs.pipelined.keys()
        and ours.evicted != theirs.evicted
        and sum(ours.evicted.values()) <= sum(theirs.evicted.values())
        and (ours.pipelined == theirs.pipelined or _freed(facts, ours) < _freed(facts, theirs))
    )


def _freed(facts: Facts, cycle: Cycle) -> int:
    """Return the CPUs of victims."""
    return sum(
        count * needs(facts.jobs[job])["cpu"] if job in facts.jobs else count
        for job, count in cycle.evicted.items()
    )


def victims_on_another_node(facts: Facts) -> bool:
    """Victims are taken where they cost least; in Volcano on the node with the best score."""
    theirs, ours = facts.theirs, facts.ours
    return (
        bool(ours.evicted)
        and ours.evicted == theirs.evicted
        and any(theirs.where.get(job) != ours.where.get(job) for job in ours.evicted)
    )


def candidates_in_turn(facts: Facts) -> bool:
    """A plugin is asked only about victims that the others allow; Volcano intersects the votes."""
    gained = more(facts.ours.evicted, facts.theirs.evicted)
    if not gained or more(facts.theirs.evicted, facts.ours.evicted):
        return False
    return any(
        len(tier) > 1
        for action in ("preempt", "reclaim")
        if action in facts.actions
        for tier in facts.voters(action)
    )


def budgets_of_a_plan(facts: Facts) -> bool:
    """A budget counts for the whole plan of a gang; in Volcano anew for each of its pods."""
    if not any("pdb" in tier for action in _EVICTING for tier in facts.voters(action)):
        return False
    budgets = facts.case.body.get("budgets", {}).values()
    return not more(facts.ours.evicted, facts.theirs.evicted) and any(
        sum(
            count for job, count in facts.theirs.evicted.items()
            if job in facts.jobs
            and said["matches"].items() <= facts.jobs[job].get("labels", {}).items()
        ) > said["allowed"]
        for said in budgets
    )  # fmt: skip


def opened_nodes(facts: Facts) -> bool:
    """Victims are searched that open a node closed by anti-affinity, ports or number of pods."""
    if facts.theirs.evicted == facts.ours.evicted:
        return False
    theirs, ours = facts.theirs.pipelined, facts.ours.pipelined
    is_full = any("pods" in node for node in facts.case.body["nodes"].values())
    takers = {*more(theirs, ours), *more(ours, theirs)} or {*ours}
    return bool(takers) and (
        is_full or any(facts.has_port(job) or facts.repelled(job) for job in takers)
    )


def guarantees_are_deserved(facts: Facts) -> bool:
    """In a hierarchy too, a queue deserves what it is guaranteed, and comes before others."""
    theirs, ours = _placements(facts)
    queues = facts.case.body.get("queues", {})
    return (
        facts.is_tree
        and bool(theirs)
        and bool(ours)
        and all(guarantee(queues.get(facts.queue(job), {})) for job in ours)
        and not all(guarantee(queues.get(facts.queue(job), {})) for job in theirs)
    )


def guarantees_beyond_the_cluster(facts: Facts) -> bool:
    """Guarantees that exceed the cluster stop nothing; in Volcano no job of the tree is placed."""
    guarantees = [guarantee(queue) for queue in facts.case.body.get("queues", {}).values()]
    return (
        facts.is_tree
        and sum(guarantees) > facts.total_cpu
        and not any(cycle.placed for cycle in facts.difference.theirs)
        and bool(facts.ours.placed)
    )


def rest_of_a_victim(facts: Facts) -> bool:
    """What a victim frees beyond the preemptor's need is idle a cycle later, and placed then."""
    effects = [
        [(cycle.placed, cycle.evicted) for cycle in life]
        for life in (facts.difference.theirs, facts.difference.ours)
    ]
    theirs, ours = facts.theirs.pipelined, facts.ours.pipelined
    is_way = facts.difference.level == Level.WAY
    return is_way and effects[0] == effects[1] and ours.keys() < theirs.keys()


def nominated_first(facts: Facts) -> bool:
    """Freed resources go to the task they were freed for; in Volcano to any task."""
    if facts.before is None or not facts.before.evicted:
        return False
    gained = more(facts.ours.placed, facts.theirs.placed)
    return bool(gained) and all(job in facts.before.pipelined for job in gained)


def idle_before_reclaim(facts: Facts) -> bool:
    """`reclaim` passes over a job that fits on idle nodes; in Volcano it is pipelined there.

    With `reclaim` before `allocate`, that is again so in every cycle. Or Volcano evicts for it.
    """
    actions = facts.actions
    gained = more(facts.ours.placed, facts.theirs.placed)
    if "reclaim" not in actions[: actions.index("allocate")]:
        return False
    if facts.theirs.evicted and not facts.ours.evicted:
        return facts.theirs.pipelined.keys() <= facts.ours.placed.keys()
    return (
        not facts.theirs.evicted
        and not facts.ours.evicted
        and bool(gained)
        and all(facts.theirs.pipelined.get(job, 0) >= count for job, count in gained.items())
        and not more(facts.theirs.placed, facts.ours.placed)
    )


def room_follows_the_order(facts: Facts) -> bool:
    """On other nodes, because minimums come first, surplus leaves room for one job more or less.

    What differs is a minimum that hekla places too, or a pod that fits no more. Repaired gangs come
    first too.
    """
    theirs, ours = _placements(facts)
    surplus = {
        job for job, count in facts.theirs.placed.items()
        if facts.running.get(job, 0) + count > facts.minimum(job)
    }  # fmt: skip
    repaired = [job for job in facts.ours.placed if facts.is_repaired(job)]
    if len(facts.theirs.placed | facts.ours.placed) < 2 or not (surplus or repaired):
        return False
    if ours and not theirs:
        is_minimum = not any(_is_surplus(facts, job, count) for job, count in ours.items())
        return is_minimum and all(shares.leaves_guarantees(facts, job) for job in ours)
    return (
        not ours
        and sum(theirs.values()) == 1
        and (bool(repaired) or theirs.keys() <= surplus)
        and bool(facts.ours.placed)
    )


RULES: dict[str, Rule] = {
    "minimum before surplus": minimum_before_surplus,
    "surplus in slices": surplus_in_slices,
    "repair first": repair_first,
    "leftover slots": leftover_slots,
    "an empty vote is final": empty_vote_is_final,
    "an empty intersection stays": empty_intersection,
    "shares in every tier": shares_in_every_tier,
    "no useless eviction": no_useless_eviction,
    "nothing to undo": nothing_to_undo,
    "drf judges the plan": drf_judges_the_plan,
    "fewest victims": fewest_victims,
    "victims on another node": victims_on_another_node,
    "candidates in turn": candidates_in_turn,
    "opened nodes": opened_nodes,
    "budgets of a plan": budgets_of_a_plan,
    "nominated first": nominated_first,
    "topology": node_rules.topology,
    "topology preempts": node_rules.topology_preempts,
    "domain scores at once": node_rules.domain_scores_at_once,
    "half gangs release": node_rules.half_gangs_release,
    "equal tasks together": node_rules.equal_tasks_together,
    "nodes follow the order": node_rules.nodes_follow_the_order,
    "filters hold in a session": node_rules.filters_hold_in_a_session,
    "number of pods": node_rules.number_of_pods,
    "guarantees are deserved": guarantees_are_deserved,
    "guarantees beyond the cluster": guarantees_beyond_the_cluster,
    "rest of a victim": rest_of_a_victim,
    "idle before reclaim": idle_before_reclaim,
    "best-effort pods do not preempt": phase_rules.best_effort_pods_do_not_preempt,
    "refused jobs reserve nothing": phase_rules.refused_jobs_reserve_nothing,
    "overcommit counts once": phase_rules.overcommit_counts_once,
    "unfit jobs reserve nothing": phase_rules.unfit_jobs_reserve_nothing,
    "entitled jobs enqueued": phase_rules.entitled_jobs_enqueued,
    "root without a limit": phase_rules.root_without_a_limit,
    "phase of a victim": phase_rules.phase_of_a_victim,
    "room follows the order": room_follows_the_order,
}
"""By the names that decision record 5 gives them."""
