"""What lets a pod onto a node that rejects it, by the reason of most nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Final

from hekla.scheduler.placement.feasibility import PODS_EXCEEDED
from hekla.scheduler.placement.reasons import DRAINED, RESERVED, UNSCHEDULABLE
from hekla.scheduler.session.session import Session
from hekla.scheduler.state.labels import HARD_EFFECTS, tolerates
from hekla.scheduler.state.model import Node, Task

TAINTS_SHOWN: Final = 3


def advice(session: Session, task: Task, reasons: Mapping[str, int]) -> str:
    """Return the smallest change after which a node of the most frequent reason is feasible."""
    if not reasons:
        return ""
    worst = max(sorted(reasons.items()), key=lambda item: item[1])[0]
    for start, write in _ADVICE.items():
        if worst.startswith(start):
            return write(session, task)
    return f"a node without: {worst}"


def _undrain(session: Session, task: Task) -> str:
    return f"undrain a node: `hekla undrain {_first(session, _is_unschedulable)}`"


def _uncordon(session: Session, task: Task) -> str:
    return f"return a node to service: `kubectl uncordon {_first(session, _is_unschedulable)}`"


def _ready(session: Session, task: Task) -> str:
    name = _first(session, lambda node: not node.is_ready)
    return f"make a node ready: `kubectl describe node {name}` tells what it reports"


def _tolerate(session: Session, task: Task) -> str:
    taints = dict.fromkeys(_untolerated(session, task))
    shown = ", ".join(islice(taints, TAINTS_SHOWN))
    more = f" and {len(taints) - TAINTS_SHOWN} more" if len(taints) > TAINTS_SHOWN else ""
    return f"a node without taints, or a toleration of {shown}{more}"


def _untolerated(session: Session, task: Task) -> Iterator[str]:
    for node in session.nodes.all:
        for taint in node.taints:
            if taint.effect in HARD_EFFECTS and not any(
                tolerates(each, taint.key, taint.value, taint.effect)
                for each in task.klass.tolerations
            ):
                value = f"={taint.value}" if taint.value else ""
                yield f"{taint.key}{value}:{taint.effect}"


def _is_unschedulable(node: Node) -> bool:
    return node.is_unschedulable


def _first(session: Session, wanted: Callable[[Node], bool]) -> str:
    return next((node.name for node in session.nodes.all if wanted(node)), "NODE")


def _text(text: str) -> Callable[[Session, Task], str]:
    return lambda session, task: text


_NO_VOLUME: Final = "create a PersistentVolume that the claim can use, or correct its storage class"
_ADVICE: Final[dict[str, Callable[[Session, Task], str]]] = {
    DRAINED: _undrain,
    UNSCHEDULABLE: _uncordon,
    RESERVED: _text("wait: the pods that it is reserved for start first"),
    "node(s) were not ready": _ready,
    "node(s) had untolerated taint(s)": _tolerate,
    "node(s) didn't match Pod's node affinity/selector": _text(
        "a node with the labels that the pod's nodeSelector and node affinity name, or correct them"
    ),
    "node(s) didn't have free ports": _text(
        "wait for the pods that use the host port to end, or request another host port"
    ),
    PODS_EXCEEDED: _text("wait for pods to end, or add nodes: the nodes run as many as they may"),
    "node(s) didn't match pod affinity rules": _text(
        "start the pods that the pod affinity names, or correct it"
    ),
    "node(s) didn't match pod anti-affinity rules": _text(
        "wait for the pods that the anti-affinity names to end, or add nodes"
    ),
    "node(s) didn't satisfy existing pods anti-affinity rules": _text(
        "wait for the pods whose anti-affinity repels the pod to end, or add nodes"
    ),
    "persistentvolumeclaim": _text("create the claim that the pod names, or correct its name"),
    "pod has unbound immediate PersistentVolumeClaims": _text(_NO_VOLUME),
    "node(s) didn't find available persistent volumes to bind": _text(_NO_VOLUME),
}
