"""Pod affinity and topology spread: where other pods are.

Pods with equal labels are one group with a count per node, so a selector is matched once per group
and not once per pod. Counts are summed per domain (all nodes with one value of a label), and a
domain's count holds for each of its nodes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hekla.api.meta import LabelSelector
from hekla.api.pods import PodAffinityTerm, TopologySpreadConstraint
from hekla.scheduler.framework.nodes import Nodes
from hekla.scheduler.state.classes import TaskClass
from hekla.scheduler.state.dimensions import BoolArray, FloatArray
from hekla.scheduler.state.labels import ABSENT
from hekla.scheduler.state.model import LabelGroup, Task
from hekla.units import selectors
from hekla.units.errors import SelectorError

if TYPE_CHECKING:
    from hekla.scheduler.session.session import Session


def required(klass: TaskClass) -> tuple[tuple[PodAffinityTerm, ...], tuple[PodAffinityTerm, ...]]:
    """Return the required affinity and anti-affinity terms."""
    near, far = klass.affinity.pod_affinity, klass.affinity.pod_anti_affinity
    return (near.required if near else (), far.required if far else ())


def _compiled(selector: LabelSelector | None) -> selectors.LabelSelector:
    try:
        return selectors.NOTHING if selector is None else selector.compiled()
    except SelectorError:
        return selectors.NOTHING


class Matcher:
    """The pods that a term of a pod matches."""

    def __init__(self, session: Session, term: PodAffinityTerm, owner: TaskClass) -> None:
        self._selector = _compiled(term.label_selector)
        self._equal = {key: owner.labels.get(key) for key in term.match_label_keys}
        self._unequal = {key: owner.labels.get(key) for key in term.mismatch_label_keys}
        self._names = set(term.namespaces)
        self._by_label = (
            None if term.namespace_selector is None else _compiled(term.namespace_selector)
        )
        if not self._names and self._by_label is None:
            self._names = {owner.namespace}
        self._namespaces = session.cluster.namespaces

    def matches(self, group: LabelGroup) -> bool:
        if group.namespace not in self._names and not (
            self._by_label is not None
            and self._by_label.matches(self._namespaces.get(group.namespace, {}))
        ):
            return False
        labels = group.labels
        return (
            self._selector.matches(labels)
            and all(labels.get(key) == value for key, value in self._equal.items())
            and all(labels.get(key) != value for key, value in self._unequal.items())
        )


class PodCounts:
    """Where the pods of the cluster are, this cycle's placements included.

    With `future`, releasing pods are gone.
    """

    def __init__(self, session: Session, *, future: bool = False) -> None:
        self._session = session
        self._gone_groups: dict[LabelGroup, dict[int, int]] = {}
        self._gone_terms: dict[TaskClass, dict[int, int]] = {}
        nodes = session.cluster.nodes
        for task in session.releasing_tasks() if future else ():
            node = nodes.get(task.node_name)
            if node is None or not node.is_known:
                continue
            if task.group is not None:
                gone = self._gone_groups.setdefault(task.group, {})
                gone[node.index] = gone.get(node.index, 0) + 1
            if task.klass.has_pod_terms:
                gone = self._gone_terms.setdefault(task.klass, {})
                gone[node.index] = gone.get(node.index, 0) + 1

    def matching(self, matches: Callable[[LabelGroup], bool]) -> FloatArray:
        """Return the pods per node whose labels and namespace match."""
        session, count_n = self._session, np.zeros(len(self._session.nodes))
        for group in session.cluster.label_groups.values():
            placed = session.placed.groups.get(group)
            if (group.per_node or placed) and matches(group):
                self._add(count_n, group.per_node, placed, self._gone_groups.get(group))
        return count_n

    def of_class(self, klass: TaskClass) -> FloatArray:
        """Return the pods per node of a class with pod affinity of its own."""
        session, count_n = self._session, np.zeros(len(self._session.nodes))
        per_node = session.cluster.node_table.placed_terms.get(klass, {})
        placed = session.placed.terms.get(klass)
        self._add(count_n, per_node, placed, self._gone_terms.get(klass))
        return count_n

    def _add(
        self,
        count_n: FloatArray,
        per_node: Mapping[str, int],
        placed: Mapping[int, int] | None,
        gone: Mapping[int, int] | None,
    ) -> None:
        nodes = self._session.cluster.nodes
        for name, count in per_node.items():
            if name in nodes and nodes[name].is_known:
                count_n[nodes[name].index] += count
        for column, count in (placed or {}).items():
            count_n[column] += count
        for column, count in (gone or {}).items():
            count_n[column] -= count


def per_domain(session: Session, key: str, count_n: FloatArray) -> FloatArray:
    """Sum counts of nodes over each domain of a topology key; 0 without the label."""
    ids_n = session.cluster.node_table.labels.column(key).ids_n
    has_n = ids_n != ABSENT
    sums = np.bincount(ids_n[has_n], weights=count_n[has_n], minlength=1)
    out = np.zeros(len(count_n))
    out[has_n] = sums[ids_n[has_n]]
    return out


def rejections(session: Session, task: Task, nodes: Nodes) -> Iterator[tuple[BoolArray, str]]:
    """Return the masks of InterPodAffinity's filter."""
    klass, pods = task.klass, PodCounts(session, future=nodes.is_future)
    near, far = required(klass)
    has_n = {
        term.topology_key: session.cluster.node_table.labels.column(term.topology_key).ids_n
        != ABSENT
        for term in (*near, *far)
    }
    if near:
        found = [pods.matching(Matcher(session, term, klass).matches) for term in near]
        feasible_n = np.ones(len(session.nodes), dtype=bool)
        is_first = not any(count_n.any() for count_n in found) and all(
            task.group is not None and Matcher(session, term, klass).matches(task.group)
            for term in near
        )
        for term, count_n in zip(near, found, strict=True):
            feasible_n &= has_n[term.topology_key]
            if not is_first:  # the first pod of a group with affinity to itself may go anywhere
                feasible_n &= per_domain(session, term.topology_key, count_n) > 0
        yield ~feasible_n, "node(s) didn't match pod affinity rules"
    if nodes.is_without_pods:
        return
    if far:
        bad_n = np.zeros(len(session.nodes), dtype=bool)
        for term in far:
            count_n = pods.matching(Matcher(session, term, klass).matches)
            bad_n |= per_domain(session, term.topology_key, count_n) > 0
        yield bad_n, "node(s) didn't match pod anti-affinity rules"
    bad_n = np.zeros(len(session.nodes), dtype=bool)
    for other, term in other_terms(session, anti=True):
        if task.group is not None and Matcher(session, term, other).matches(task.group):
            bad_n |= per_domain(session, term.topology_key, pods.of_class(other)) > 0
    if bad_n.any():
        yield bad_n, "node(s) didn't satisfy existing pods anti-affinity rules"


def other_terms(session: Session, *, anti: bool) -> Iterator[tuple[TaskClass, PodAffinityTerm]]:
    for other in session.cluster.term_classes:
        near, far = required(other)
        for term in far if anti else near:
            yield other, term


def is_coupled(session: Session, task: Task) -> bool:
    """Tell whether placing such a task changes other nodes for the next."""
    if task.klass.has_pod_terms:
        return True
    if task.group is None:
        return False
    for other in session.cluster.term_classes:
        near, far = other.affinity.pod_affinity, other.affinity.pod_anti_affinity
        terms = [*(far.required if far else ())]
        terms += [weighted.pod_affinity_term for weighted in (near.preferred if near else ())]
        terms += [weighted.pod_affinity_term for weighted in (far.preferred if far else ())]
        if any(Matcher(session, term, other).matches(task.group) for term in terms):
            return True
    return False


def preference(session: Session, task: Task) -> FloatArray | None:
    """Return InterPodAffinity's raw score: preferred terms of the pod and of placed pods."""
    klass, pods = task.klass, PodCounts(session)
    total_n = np.zeros(len(session.nodes))
    is_asked = False
    for sign, side in (
        (1.0, klass.affinity.pod_affinity),
        (-1.0, klass.affinity.pod_anti_affinity),
    ):
        for weighted in side.preferred if side else ():
            term = weighted.pod_affinity_term
            count_n = pods.matching(Matcher(session, term, klass).matches)
            total_n += sign * weighted.weight * per_domain(session, term.topology_key, count_n)
            is_asked = True
    for other in session.cluster.term_classes:
        near, far = other.affinity.pod_affinity, other.affinity.pod_anti_affinity
        for sign, side in ((1.0, near), (-1.0, far)):
            for weighted in side.preferred if side else ():
                term = weighted.pod_affinity_term
                if task.group is not None and Matcher(session, term, other).matches(task.group):
                    here_n = per_domain(session, term.topology_key, pods.of_class(other))
                    total_n += sign * weighted.weight * here_n
                    is_asked = True
    return total_n if is_asked else None


# --- topology spread --------------------------------------------------------------------------


def _spread_matches(
    task: Task, constraint: TopologySpreadConstraint
) -> Callable[[LabelGroup], bool]:
    """Return the test for pods that a constraint counts: of its namespace, by labels."""
    selector = _compiled(constraint.label_selector)
    equal = {key: task.klass.labels.get(key) for key in constraint.match_label_keys}

    def matches(group: LabelGroup) -> bool:
        return (
            group.namespace == task.namespace
            and selector.matches(group.labels)
            and all(group.labels.get(key) == value for key, value in equal.items())
        )

    return matches


def _eligible(
    session: Session,
    task: Task,
    constraints: list[TopologySpreadConstraint],
    one: TopologySpreadConstraint,
) -> BoolArray:
    """Return the nodes that count as domains: with all keys, and by default matching the pod."""
    labels, klass = session.cluster.node_table.labels, task.klass
    out = np.ones(len(session.nodes), dtype=bool)
    for constraint in constraints:
        out &= labels.column(constraint.topology_key).ids_n != ABSENT
    if one.node_affinity_policy != "Ignore":
        out &= labels.matches_selector(klass.node_selector)
        node_affinity = klass.affinity.node_affinity
        if node_affinity is not None and node_affinity.required is not None:
            out &= labels.matches_terms(node_affinity.required)
    if one.node_taints_policy == "Honor":
        out &= labels.tolerated(klass.tolerations, ("NoSchedule", "NoExecute"))
    return out


@dataclass(frozen=True, slots=True)
class Spread:
    """One DoNotSchedule constraint of a task, with the pods that it counts."""

    matches: Callable[[LabelGroup], bool]
    has_key_n: BoolArray
    eligible_n: BoolArray
    domain_n: FloatArray
    """Matching pods in the domain of each node."""
    fewest: float
    """Matching pods in the emptiest domain."""
    is_self_counted: bool
    max_skew: int


def hard_spreads(session: Session, task: Task, *, future: bool = False) -> Iterator[Spread]:
    """Return the DoNotSchedule constraints of a task."""
    hard = [c for c in task.klass.spread if c.when_unsatisfiable != "ScheduleAnyway"]
    pods = PodCounts(session, future=future)
    for constraint in hard:
        ids_n = session.cluster.node_table.labels.column(constraint.topology_key).ids_n
        eligible_n = _eligible(session, task, hard, constraint)
        matches = _spread_matches(task, constraint)
        count_n = np.where(eligible_n, pods.matching(matches), 0.0)
        domain_n = per_domain(session, constraint.topology_key, count_n)
        domains = np.unique(ids_n[eligible_n])
        fewest = float(domain_n[eligible_n].min()) if len(domains) else 0.0
        if constraint.min_domains is not None and len(domains) < constraint.min_domains:
            fewest = 0.0
        is_self_counted = task.group is not None and matches(task.group)
        yield Spread(
            matches,
            ids_n != ABSENT,
            eligible_n,
            domain_n,
            fewest,
            is_self_counted,
            constraint.max_skew,
        )


def spread_rejections(
    session: Session, task: Task, nodes: Nodes
) -> Iterator[tuple[BoolArray, str]]:
    """Return the masks of PodTopologySpread's filter, for DoNotSchedule constraints."""
    for spread in hard_spreads(session, task, future=nodes.is_future):
        yield (
            ~spread.has_key_n,
            "node(s) didn't match pod topology spread constraints (missing required label)",
        )
        if not nodes.is_without_pods:
            skew_n = spread.domain_n + float(spread.is_self_counted) - spread.fewest
            yield (
                skew_n > spread.max_skew,
                "node(s) didn't match pod topology spread constraints",
            )


def spread_score(session: Session, task: Task) -> FloatArray | None:
    """Return PodTopologySpread's raw score: lower is better; infinite without a label."""
    soft = [c for c in task.klass.spread if c.when_unsatisfiable == "ScheduleAnyway"]
    if not soft:
        return None
    total_n, pods = np.zeros(len(session.nodes)), PodCounts(session)
    for constraint in soft:
        ids_n = session.cluster.node_table.labels.column(constraint.topology_key).ids_n
        eligible_n = _eligible(session, task, soft, constraint)
        count_n = np.where(eligible_n, pods.matching(_spread_matches(task, constraint)), 0.0)
        domains = len(np.unique(ids_n[eligible_n]))
        domain_n = per_domain(session, constraint.topology_key, count_n)
        total_n += domain_n * math.log(domains + 2) + (constraint.max_skew - 1)
        total_n[ids_n == ABSENT] = np.inf
    finite = np.isfinite(total_n)
    total_n[finite] = np.round(total_n[finite])
    return total_n
