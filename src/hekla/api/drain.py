"""Drained nodes: they take no new pods, and their annotations have the reason. Pure functions.

`spec.unschedulable` alone decides, as on Kubernetes: `kubectl uncordon` ends a drain, and
annotations that it leaves behind mean nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from hekla.api.wellknown import DRAIN_REASON, DRAINED_AT, DRAINED_BY
from hekla.units.objects import Object

MAX_REASON: Final = 200
"""Longer reasons are refused by `hekla drain`, and cut where others wrote them."""


@dataclass(frozen=True, slots=True)
class Drain:
    """Why a node takes no new pods, by whom and since when; empty fields are not known."""

    reason: str = ""
    by: str = ""
    at: str = ""


def drain_of(node: Object) -> Drain | None:
    """Return the drain of a node; None if it takes pods."""
    if not (node.get("spec") or {}).get("unschedulable"):
        return None
    notes = node["metadata"].get("annotations") or {}
    return Drain(
        drain_reason(notes), str(notes.get(DRAINED_BY, "")), str(notes.get(DRAINED_AT, ""))
    )


def drain_reason(annotations: Mapping[str, str]) -> str:
    """Return the reason in the annotations of an unschedulable node, on one line."""
    return " ".join(str(annotations.get(DRAIN_REASON, "")).split())[:MAX_REASON]


def draining(drain: Drain) -> Object:
    """Return the patch that drains a node."""
    notes = {DRAIN_REASON: drain.reason, DRAINED_BY: drain.by, DRAINED_AT: drain.at}
    return {"metadata": {"annotations": notes}, "spec": {"unschedulable": True}}


def undraining() -> Object:
    """Return the patch that ends the drain of a node."""
    notes = dict.fromkeys((DRAIN_REASON, DRAINED_BY, DRAINED_AT))
    return {"metadata": {"annotations": notes}, "spec": {"unschedulable": None}}
