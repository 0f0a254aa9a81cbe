"""One scheduling decision: the cluster in, effects out. Pure.

Admits PodGroups, then places gangs whole or not at all, oldest first, on the node with the most
room left. Fairness between queues, preemption and the plugin tiers build on this.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hekla.api import wellknown
from hekla.api.wellknown import PodGroupPhase, PodPhase, PodReason
from hekla.units.quantity import parse_quantity

Object = dict[str, Any]
_FINISHED = (PodPhase.SUCCEEDED, PodPhase.FAILED)


@dataclass(frozen=True, slots=True)
class Bind:
    namespace: str
    pod: str
    uid: str
    node: str


@dataclass(frozen=True, slots=True)
class SetGroupStatus:
    namespace: str
    group: str
    status: Object


Effect = Bind | SetGroupStatus


def requests_of(pod: Object) -> dict[str, int]:
    """What a pod asks for, in thousandths, so that every resource is an exact integer."""
    total: dict[str, int] = defaultdict(int)
    spec = pod["spec"]
    for container in spec.get("containers", ()):
        for name, text in ((container.get("resources") or {}).get("requests") or {}).items():
            total[name] += parse_quantity(text).milli_value()
    for container in spec.get("initContainers") or ():
        for name, text in ((container.get("resources") or {}).get("requests") or {}).items():
            total[name] = max(total[name], parse_quantity(text).milli_value())
    total["pods"] = 1000
    return dict(total)


class Room:
    """What is left on each node: one array over the nodes for each resource."""

    def __init__(self, nodes: Sequence[Object], pods: Iterable[Object]) -> None:
        usable = [node for node in nodes if not (node.get("spec") or {}).get("unschedulable")]
        self.names = [node["metadata"]["name"] for node in usable]
        self._idle: dict[str, npt.NDArray[np.float64]] = {}
        for i, node in enumerate(usable):
            allocatable = (node.get("status") or {}).get("allocatable") or {}
            for name, text in allocatable.items():
                self._idle_n(name)[i] = parse_quantity(text).milli_value()
        index = {name: i for i, name in enumerate(self.names)}
        for pod in pods:
            where = index.get(pod["spec"].get("nodeName", ""))
            if where is not None:
                self.take(where, requests_of(pod))

    def _idle_n(self, resource: str) -> npt.NDArray[np.float64]:
        return self._idle.setdefault(resource, np.zeros(len(self.names)))

    def take(self, node: int, request: dict[str, int]) -> None:
        for name, amount in request.items():
            self._idle_n(name)[node] -= amount

    def best(self, request: dict[str, int]) -> int | None:
        """The feasible node with the largest free share of its scarcest asked resource."""
        if not self.names:
            return None
        fits_n = np.ones(len(self.names), dtype=bool)
        left_n = np.full(len(self.names), np.inf)
        for name, amount in request.items():
            idle_n = self._idle_n(name)
            np.logical_and(fits_n, idle_n >= amount, out=fits_n)
            np.minimum(left_n, (idle_n - amount) / max(amount, 1), out=left_n)
        if not fits_n.any():
            return None
        return int(np.argmax(np.where(fits_n, left_n, -np.inf)))

    def copy(self) -> Room:
        twin = Room([], [])
        twin.names = self.names
        twin._idle = {name: idle_n.copy() for name, idle_n in self._idle.items()}
        return twin


def decide(
    nodes: Sequence[Object], groups: Sequence[Object], pods: Sequence[Object], *, scheduler: str
) -> list[Effect]:
    """What to do now."""
    room = Room(nodes, [pod for pod in pods if _phase(pod) not in _FINISHED])
    members: dict[tuple[str, str], list[Object]] = defaultdict(list)
    for pod in pods:
        name = (pod["metadata"].get("annotations") or {}).get(wellknown.GROUP_NAME)
        if name and pod["spec"].get("schedulerName") == scheduler:
            members[pod["metadata"]["namespace"], name].append(pod)
    effects: list[Effect] = []
    ordered = sorted(groups, key=lambda g: (g["metadata"]["creationTimestamp"], _key(g)))
    for group in ordered:
        found, room = _place(group, members.get(_key(group), []), room)
        effects += found
    return effects


def _place(group: Object, pods: list[Object], room: Room) -> tuple[list[Effect], Room]:
    """Bind what is pending of a gang if its minimum can run; else leave the room untouched."""
    namespace, name = _key(group)
    minimum = (group.get("spec") or {}).get("minMember", 0)
    waiting = sorted(
        (p for p in pods if not p["spec"].get("nodeName") and not _is_leaving(p)), key=_key
    )
    placed = len([p for p in pods if p["spec"].get("nodeName")])
    trial = room.copy()
    binds: list[Effect] = []
    for pod in waiting:
        request = requests_of(pod)
        node = trial.best(request)
        if node is None:
            continue
        trial.take(node, request)
        metadata = pod["metadata"]
        binds.append(Bind(namespace, metadata["name"], metadata["uid"], trial.names[node]))
    is_whole = placed + len(binds) >= minimum
    status = _group_status(group, pods, placed + len(binds) if is_whole else placed, len(waiting))
    effects: list[Effect] = [*binds] if is_whole else []
    if status is not None:
        effects.append(SetGroupStatus(namespace, name, status))
    return effects, trial if is_whole else room


def _group_status(group: Object, pods: list[Object], placed: int, waiting: int) -> Object | None:
    """The status a PodGroup should have, or None when it has it."""
    now = group.get("status") or {}
    minimum = (group.get("spec") or {}).get("minMember", 0)
    phases = [_phase(pod) for pod in pods]
    if pods and placed >= minimum:
        finished = all(phase in _FINISHED for phase in phases)
        phase = PodGroupPhase.COMPLETED if finished else PodGroupPhase.RUNNING
    else:
        phase = PodGroupPhase.INQUEUE
    status: Object = {
        "phase": phase,
        "running": phases.count(PodPhase.RUNNING),
        "succeeded": phases.count(PodPhase.SUCCEEDED),
        "failed": phases.count(PodPhase.FAILED),
    }
    if pods and placed < minimum:
        short = f"{waiting}/{len(pods)} tasks in gang unschedulable: not enough room for {minimum}"
        status["conditions"] = [
            {
                "type": PodReason.UNSCHEDULABLE,
                "status": "True",
                "reason": "NotEnoughResources",
                "message": short,
            }
        ]
    same = all(now.get(name) == value for name, value in status.items())
    return None if same else status


def _phase(pod: Object) -> str:
    return (pod.get("status") or {}).get("phase") or PodPhase.PENDING


def _is_leaving(pod: Object) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def _key(obj: Object) -> tuple[str, str]:
    return obj["metadata"]["namespace"], obj["metadata"]["name"]
