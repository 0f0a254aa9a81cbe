"""The pods that keep a task off a node: anti-affinity, spread, host ports, the number of pods.

A victim search needs to know for many sets of victims whether a task fits without them. The counts
of each domain are computed once for a task; for a set, only its victims are subtracted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from hekla.scheduler.plugins.predicates import affinity
from hekla.scheduler.plugins.predicates.affinity import Matcher, PodCounts, Spread, per_domain
from hekla.scheduler.state.classes import TaskClass, ports_conflict
from hekla.scheduler.state.dimensions import FloatArray
from hekla.scheduler.state.model import Task
from hekla.scheduler.state.status import RELEASING

if TYPE_CHECKING:
    from hekla.scheduler.session.session import Session


class Neighbours:
    """The neighbours of one task on every node, once releasing pods are gone."""

    def __init__(
        self, session: Session, task: Task, *, pod_affinity: bool, spread: bool, ports: bool
    ) -> None:
        self._session = session
        self._ports = task.klass.ports if ports else ()
        self._wanted: list[tuple[Callable[[Task], bool], FloatArray]] = []
        """Pods that a domain must have one of, and their number in the domain of each node."""
        self._repelled: list[tuple[Callable[[Task], bool], FloatArray]] = []
        """Pods that a domain must not have, and their number in the domain of each node."""
        if pod_affinity and session.cluster.term_classes:
            self._add_terms(task)
        self._spreads: list[Spread] = []
        if spread and task.klass.spread:
            self._spreads = list(affinity.hard_spreads(session, task, future=True))

    def _add_terms(self, task: Task) -> None:
        session, klass = self._session, task.klass
        pods = PodCounts(session, future=True)
        near, far = affinity.required(klass)
        for terms, found in ((near, self._wanted), (far, self._repelled)):
            for term in terms:
                matcher = Matcher(session, term, klass)
                count_n = per_domain(session, term.topology_key, pods.matching(matcher.matches))
                if count_n.any():  # else the task is the first of its group, or nothing repels it
                    found.append((_has_group(matcher), count_n))
        for other, term in affinity.other_terms(session, anti=True):
            if task.group is not None and Matcher(session, term, other).matches(task.group):
                count_n = per_domain(session, term.topology_key, pods.of_class(other))
                self._repelled.append((_is_of_class(other), count_n))

    def fits_without(self, node: int, victims: Sequence[Task]) -> bool:
        """Tell whether the other pods let the task onto a node once the victims there are gone."""
        gone = {victim.uid for victim in victims if victim.status != RELEASING}
        left = [victim for victim in victims if victim.uid in gone]
        for matches, count_n in self._repelled:
            if count_n[node] > sum(map(matches, left)):
                return False
        for matches, count_n in self._wanted:
            if count_n[node] <= sum(map(matches, left)):
                return False
        return (
            self._has_room(node, len(left))
            and all(_is_level(spread, node, left) for spread in self._spreads)
            and (not self._ports or self._has_ports(node, gone))
        )

    def _has_room(self, node: int, victims: int) -> bool:
        columns = self._session.columns
        leaving = self._session.releasing_pods()[node] + victims
        return bool(columns.pods_n[node] - leaving < columns.max_pods_n[node])

    def _has_ports(self, node: int, gone: set[str]) -> bool:
        if ports_conflict(self._ports, self._session.placed.ports.get(node, {})):
            return False
        return not any(
            ports_conflict(self._ports, dict.fromkeys(pod.klass.ports, 1))
            for pod in self._session.cluster.node_table.node_list[node].tasks.values()
            if pod.klass.ports and pod.uid not in gone and pod.status != RELEASING
        )


def _has_group(matcher: Matcher) -> Callable[[Task], bool]:
    return lambda pod: pod.group is not None and matcher.matches(pod.group)


def _is_of_class(klass: TaskClass) -> Callable[[Task], bool]:
    return lambda pod: pod.klass is klass


def _is_level(spread: Spread, node: int, victims: Sequence[Task]) -> bool:
    gone = 0
    if spread.eligible_n[node]:
        gone = sum(1 for pod in victims if pod.group is not None and spread.matches(pod.group))
    here = float(spread.domain_n[node]) - gone
    skew = here + float(spread.is_self_counted) - min(spread.fewest, here)
    return bool(spread.has_key_n[node]) and skew <= spread.max_skew
