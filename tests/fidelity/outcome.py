"""The outcome of a case, and how much of it is determined.

Pods of a group and role are equal, so an outcome counts them by node.

Note: Volcano picks among equally good nodes at random; such a case has `compare: shape`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tests.fidelity.catalogue import GROUP, ROLE, Json

CARDS = ("volcano.sh/gpu-index", "volcano.sh/vgpu-ids-new")


@dataclass(frozen=True)
class PodSeen:
    """A pod at the start or at the end."""

    name: str
    owner: str
    node: str
    cards: str = ""
    """Its allocated devices, if it requests any."""


def seen(pod: Json) -> PodSeen:
    notes = pod["metadata"].get("annotations") or {}
    owner = "/".join(filter(None, (notes.get(GROUP, ""), notes.get(ROLE, ""))))
    cards = next((notes[key] for key in CARDS if key in notes), "")
    return PodSeen(pod["metadata"]["name"], owner, pod["spec"].get("nodeName", ""), cards)


def summary(before: Iterable[PodSeen], after: Iterable[PodSeen], phases: dict[str, str]) -> Json:
    """Per group (and role): the nodes of its pods, the nodes of evicted pods, the pending pods.

    And the devices of its pods, if any.
    """
    left = {pod.name: pod for pod in after}
    found: dict[str, Json] = defaultdict(
        lambda: {"placed": Counter(), "evicted": Counter(), "waiting": 0, "cards": Counter()}
    )
    for pod in before:
        now = left.get(pod.name)
        entry = found[pod.owner]
        if now is None:
            entry["evicted"][pod.node or "nowhere"] += 1
        elif now.node:
            entry["placed"][now.node] += 1
            if now.cards:
                entry["cards"][f"{now.node}: {now.cards}"] += 1
        else:
            entry["waiting"] += 1
    return {"pods": _sorted(found), "phases": dict(sorted(phases.items()))}


def _sorted(found: dict[str, Json]) -> Json:
    return {
        owner: {
            "placed": dict(sorted(entry["placed"].items())),
            "evicted": dict(sorted(entry["evicted"].items())),
            "waiting": entry["waiting"],
            **({"cards": dict(sorted(entry["cards"].items()))} if entry["cards"] else {}),
        }
        for owner, entry in sorted(found.items())
        if owner
    }


def comparable(outcome: Json, how: str) -> Any:
    """Return the part of an outcome that is determined.

    nodes: all. shape: the numbers of pods per node without node names. numbers: totals.
    """
    if how == "nodes":
        return outcome
    reduce = {"shape": _shape, "numbers": _number}[how]
    pods = {
        owner: {
            key: reduce(value) if isinstance(value, dict) else value for key, value in e.items()
        }
        for owner, e in outcome["pods"].items()
    }
    return {"pods": pods, "phases": outcome["phases"]}


def _shape(counts: dict[str, int]) -> list[int]:
    return sorted(counts.values(), reverse=True)


def _number(counts: dict[str, int]) -> int:
    return sum(counts.values())
