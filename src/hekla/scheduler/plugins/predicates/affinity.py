"""Pod affinity and topology spread: where other pods are.

Pods with equal labels are one group with a count per node, so a selector is matched once per group
and not once per pod. Counts are summed per domain (all nodes with one value of a label), and a
domain's count holds for each of its nodes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from hekla.api.meta import LabelSelector
from hekla.api.pods import PodAffinityTerm, TopologySpreadConstraint
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


def _groups(session: Session) -> Iterator[tuple[LabelGroup, dict[int, int]]]:
    """Return every label group with its pods per column, including this cycle's placements."""
    nodes = session.cluster.nodes
    for group in session.cluster.label_groups.values():
        counts = {
            nodes[name].index: count
            for name, count in group.per_node.items()
            if name in nodes and nodes[name].is_known
        }
        for column, count in session.placed.groups.get(group, {}).items():
            counts[column] = counts.get(column, 0) + count
        if counts:
            yield group, counts


def _per_domain(session: Session, key: str, count_n: FloatArray) -> FloatArray:
    """Sum counts of nodes over each domain of a topology key; 0 without the label."""
    ids_n = session.cluster.node_table.labels.column(key).ids_n
    has_n = ids_n != ABSENT
    sums = np.bincount(ids_n[has_n], weights=count_n[has_n], minlength=1)
    out = np.zeros(len(count_n))
    out[has_n] = sums[ids_n[has_n]]
    return out


def _matching(session: Session, matcher: Matcher) -> FloatArray:
    count_n = np.zeros(len(session.nodes))
    for group, counts in _groups(session):
        if matcher.matches(group):
            for column, count in counts.items():
                count_n[column] += count
    return count_n


def rejections(session: Session, task: Task) -> Iterator[tuple[BoolArray, str]]:
    """Return the masks of InterPodAffinity's filter."""
    klass = task.klass
    near, far = required(klass)
    has_n = {
        term.topology_key: session.cluster.node_table.labels.column(term.topology_key).ids_n
        != ABSENT
        for term in (*near, *far)
    }
    if near:
        found = [_matching(session, Matcher(session, term, klass)) for term in near]
        feasible_n = np.ones(len(session.nodes), dtype=bool)
        is_first = not any(count_n.any() for count_n in found) and all(
            task.group is not None and Matcher(session, term, klass).matches(task.group)
            for term in near
        )
        for term, count_n in zip(near, found, strict=True):
            feasible_n &= has_n[term.topology_key]
            if not is_first:  # the first pod of a group with affinity to itself may go anywhere
                feasible_n &= _per_domain(session, term.topology_key, count_n) > 0
        yield ~feasible_n, "node(s) didn't match pod affinity rules"
    if far:
        bad_n = np.zeros(len(session.nodes), dtype=bool)
        for term in far:
            count_n = _matching(session, Matcher(session, term, klass))
            bad_n |= _per_domain(session, term.topology_key, count_n) > 0
        yield bad_n, "node(s) didn't match pod anti-affinity rules"
    bad_n = np.zeros(len(session.nodes), dtype=bool)
    for other, term in _others(session, anti=True):
        if task.group is not None and Matcher(session, term, other).matches(task.group):
            bad_n |= _per_domain(session, term.topology_key, _where(session, other)) > 0
    if bad_n.any():
        yield bad_n, "node(s) didn't satisfy existing pods anti-affinity rules"


def _others(session: Session, *, anti: bool) -> Iterator[tuple[TaskClass, PodAffinityTerm]]:
    for other in session.cluster.term_classes:
        near, far = required(other)
        for term in far if anti else near:
            yield other, term


def _where(session: Session, klass: TaskClass) -> FloatArray:
    """Return the number of tasks of a class per node."""
    count_n = np.zeros(len(session.nodes))
    nodes = session.cluster.nodes
    for name, count in session.cluster.node_table.placed_terms.get(klass, {}).items():
        if name in nodes and nodes[name].is_known:
            count_n[nodes[name].index] += count
    for column, count in session.placed.terms.get(klass, {}).items():
        count_n[column] += count
    return count_n


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
    klass = task.klass
    total_n = np.zeros(len(session.nodes))
    is_asked = False
    for sign, side in (
        (1.0, klass.affinity.pod_affinity),
        (-1.0, klass.affinity.pod_anti_affinity),
    ):
        for weighted in side.preferred if side else ():
            term = weighted.pod_affinity_term
            count_n = _matching(session, Matcher(session, term, klass))
            total_n += sign * weighted.weight * _per_domain(session, term.topology_key, count_n)
            is_asked = True
    for other in session.cluster.term_classes:
        near, far = other.affinity.pod_affinity, other.affinity.pod_anti_affinity
        for sign, side in ((1.0, near), (-1.0, far)):
            for weighted in side.preferred if side else ():
                term = weighted.pod_affinity_term
                if task.group is not None and Matcher(session, term, other).matches(task.group):
                    here_n = _per_domain(session, term.topology_key, _where(session, other))
                    total_n += sign * weighted.weight * here_n
                    is_asked = True
    return total_n if is_asked else None


# --- topology spread --------------------------------------------------------------------------


def _spread_counts(
    session: Session, task: Task, constraint: TopologySpreadConstraint, eligible_n: BoolArray
) -> tuple[FloatArray, bool]:
    """Return matching pods of the namespace per node, and whether the pod itself matches."""
    selector = _compiled(constraint.label_selector)
    equal = {key: task.klass.labels.get(key) for key in constraint.match_label_keys}

    def matches(group: LabelGroup) -> bool:
        return (
            group.namespace == task.namespace
            and selector.matches(group.labels)
            and all(group.labels.get(key) == value for key, value in equal.items())
        )

    count_n = np.zeros(len(session.nodes))
    for group, counts in _groups(session):
        if matches(group):
            for column, count in counts.items():
                count_n[column] += count
    count_n[~eligible_n] = 0.0
    return count_n, task.group is not None and matches(task.group)


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


def spread_rejections(session: Session, task: Task) -> Iterator[tuple[BoolArray, str]]:
    """Return the masks of PodTopologySpread's filter, for DoNotSchedule constraints."""
    hard = [c for c in task.klass.spread if c.when_unsatisfiable != "ScheduleAnyway"]
    for constraint in hard:
        ids_n = session.cluster.node_table.labels.column(constraint.topology_key).ids_n
        yield (
            ids_n == ABSENT,
            "node(s) didn't match pod topology spread constraints (missing required label)",
        )
        eligible_n = _eligible(session, task, hard, constraint)
        count_n, matches_self = _spread_counts(session, task, constraint, eligible_n)
        domain_n = _per_domain(session, constraint.topology_key, count_n)
        domains = np.unique(ids_n[eligible_n])
        fewest = float(domain_n[eligible_n].min()) if len(domains) else 0.0
        if constraint.min_domains is not None and len(domains) < constraint.min_domains:
            fewest = 0.0
        skew_n = domain_n + float(matches_self) - fewest
        yield (
            skew_n > constraint.max_skew,
            "node(s) didn't match pod topology spread constraints",
        )


def spread_score(session: Session, task: Task) -> FloatArray | None:
    """Return PodTopologySpread's raw score: lower is better; infinite without a label."""
    soft = [c for c in task.klass.spread if c.when_unsatisfiable == "ScheduleAnyway"]
    if not soft:
        return None
    total_n = np.zeros(len(session.nodes))
    for constraint in soft:
        ids_n = session.cluster.node_table.labels.column(constraint.topology_key).ids_n
        eligible_n = _eligible(session, task, soft, constraint)
        count_n, _ = _spread_counts(session, task, constraint, eligible_n)
        domains = len(np.unique(ids_n[eligible_n]))
        domain_n = _per_domain(session, constraint.topology_key, count_n)
        total_n += domain_n * math.log(domains + 2) + (constraint.max_skew - 1)
        total_n[ids_n == ABSENT] = np.inf
    finite = np.isfinite(total_n)
    total_n[finite] = np.round(total_n[finite])
    return total_n
