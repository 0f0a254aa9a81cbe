"""Times of each pod as seen by a watch, and the numbers computed from them.

Times are of the monotonic clock of this process, taken when the bytes of an event arrive.

Note: `created` is the time of the watch event, not of the create request, so both ends of a latency
are measured the same way.
"""

from __future__ import annotations

import bisect
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from bench.sidebyside.cases import FILLER, NODE_CPU, Case

Json = dict[str, Any]


@dataclass(slots=True)
class PodTimes:
    """The times of one pod."""

    name: str
    gang: str
    created: float
    bound: float | None = None
    gone: float | None = None
    node: str = ""
    moves: int = 0
    """How often its node changed after the first bind: 0 on a correct cluster."""


@dataclass
class Timeline:
    """All pods of a run by uid."""

    pods: dict[str, PodTimes] = field(default_factory=dict)
    bound: int = 0

    def see(self, at: float, uid: str, name: str, gang: str, node: str) -> PodTimes | None:
        """Record an added or modified pod; return its times if it was bound by this."""
        pod = self.pods.get(uid)
        if pod is None:
            pod = self.pods[uid] = PodTimes(name, gang, at)
        if not node or node == pod.node:
            return None
        if pod.node:
            pod.moves += 1
            return None
        pod.node, pod.bound = node, at
        self.bound += 1
        return pod

    def load(self) -> list[PodTimes]:
        """Return the pods of the load, without those that fill the cluster before it."""
        return [pod for pod in self.pods.values() if not pod.gang.startswith(FILLER)]

    def displaced(self) -> int:
        """Return the evicted pods."""
        pods = self.pods.values()
        return sum(1 for pod in pods if pod.gang.startswith(FILLER) and pod.gone is not None)

    def lose(self, at: float, uid: str) -> None:
        if uid in self.pods:
            self.pods[uid].gone = at


def percentile(values: Sequence[float], share: float) -> float:
    """Return the quantile `share` (nearest rank)."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, round(share * len(ordered)) - 1))]


def speeds(timeline: Timeline, began: float) -> Json:
    """Return rates and latencies; seconds count from the start of the load."""
    pods = timeline.load()
    creates = sorted(pod.created for pod in pods)
    binds = sorted(pod.bound for pod in pods if pod.bound is not None)
    if not binds:
        return {"pods": len(pods), "bound": 0}
    waits = [pod.bound - pod.created for pod in pods if pod.bound is not None]
    gangs = _gang_waits(pods)
    span = binds[-1] - creates[0]
    return {
        "pods": len(pods),
        "bound": len(binds),
        "first_create_s": creates[0] - began,
        "last_create_s": creates[-1] - began,
        "first_bind_s": binds[0] - began,
        "last_bind_s": binds[-1] - began,
        "pods_per_s": len(binds) / span if span else 0.0,
        "binds_per_s": _steady_rate(binds),
        "wait_p50_s": percentile(waits, 0.5),
        "wait_p99_s": percentile(waits, 0.99),
        "gang_p50_s": percentile(gangs, 0.5) if gangs else None,
        "gang_p99_s": percentile(gangs, 0.99) if gangs else None,
    }


def _steady_rate(binds: Sequence[float]) -> float:
    """Return binds per second between the first and the last."""
    span = binds[-1] - binds[0]
    return (len(binds) - 1) / span if span else 0.0


def _gang_waits(pods: Iterable[PodTimes]) -> list[float]:
    """Return the seconds from the first pod to the last bind of each completely bound gang."""
    members: dict[str, list[PodTimes]] = defaultdict(list)
    for pod in pods:
        members[pod.gang].append(pod)
    return [
        max(pod.bound or 0.0 for pod in gang) - min(pod.created for pod in gang)
        for gang in members.values()
        if all(pod.bound is not None for pod in gang)
    ]


def faults(case: Case, timeline: Timeline, bindings: Counter[str]) -> Json:
    """Return violations. `bindings`: accepted binding requests by pod, from the audit log."""
    bound: Counter[str] = Counter()
    seen: Counter[str] = Counter()
    for pod in timeline.load():
        seen[pod.gang] += 1
        bound[pod.gang] += pod.bound is not None
    least = case.size if case.is_gang else 1
    return {
        "unbound_pods": case.pods - sum(bound.values()),
        "half_bound_gangs": sum(1 for gang in seen if 0 < bound[gang] < least),
        "overcommitted_nodes": _overcommitted(timeline.pods.values()),
        "double_binds": sum(1 for count in bindings.values() if count > 1)
        + sum(1 for pod in timeline.pods.values() if pod.moves),
    }


def _overcommitted(pods: Iterable[PodTimes]) -> int:
    """Return nodes that had more one-CPU pods than CPUs at any time."""
    changes: dict[str, list[tuple[float, int]]] = defaultdict(list)
    for pod in pods:
        if pod.bound is not None:
            changes[pod.node].append((pod.bound, 1))
            if pod.gone is not None:
                changes[pod.node].append((pod.gone, -1))
    guilty = 0
    for steps in changes.values():
        load = 0
        for _, step in sorted(steps):  # deletions first at equal times
            load += step
            if load > NODE_CPU:
                guilty += 1
                break
    return guilty


def curve(times: Iterable[float], began: float, points: int = 200) -> list[tuple[float, int]]:
    """Return cumulative counts over time, thinned for plotting, up to the last event."""
    ordered = sorted(times)
    if not ordered:
        return []
    span = ordered[-1] - began
    marks = [began + span * step / points for step in range(points)] + [ordered[-1]]
    return [(round(mark - began, 4), bisect.bisect_right(ordered, mark)) for mark in marks]
