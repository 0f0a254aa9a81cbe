"""Reconcile ReplicaSets and ReplicationControllers, which differ only in their selector.

`next_step` is pure: the set and its pods in, effects out. Pods that end or are deleted are
replaced; surplus pods are deleted in the order of `deletion_order`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from hekla.controllers.objects import is_deleting, labels_of, status_of
from hekla.controllers.workloads.effects import (
    MAX_BURST,
    Create,
    Delete,
    Effect,
    RequeueAfter,
    SetStatus,
    requeue,
)
from hekla.controllers.workloads.pods import (
    deletion_order,
    from_template,
    is_active,
    is_available,
    is_ready,
    next_available,
    release_and_adopt,
    with_condition,
    without_condition,
)
from hekla.kube.resources import PODS, REPLICA_SETS, Resource
from hekla.units.objects import Object
from hekla.units.patches import create_merge_patch
from hekla.units.selectors import LabelSelector
from hekla.units.timestamps import format_time

REPLICA_FAILURE: Final = "ReplicaFailure"


@dataclass(frozen=True)
class ReplicaSetView:
    """The input of a decision about one replica set or replication controller."""

    owner: Object
    now: float
    pods: Sequence[Object] = ()
    orphans: Sequence[Object] = ()
    failure: str = ""
    """Why the last creation failed, for a condition."""
    resource: Resource[Any] = REPLICA_SETS
    selector: LabelSelector | None = None


def next_step(view: ReplicaSetView) -> list[Effect]:
    """Return the effects that reconcile a replica set."""
    taken = release_and_adopt(
        view.resource, view.owner, view.selector, PODS, view.pods, view.orphans
    )
    if taken:
        return [*taken, RequeueAfter(0.0)]
    active = [pod for pod in view.pods if is_active(pod)]
    effects: list[Effect] = []
    if not is_deleting(view.owner):
        effects += _scale(view, active)
    spec = view.owner["spec"]
    patch = create_merge_patch(status_of(view.owner), _status(view, active))
    if patch:
        effects.append(SetStatus(patch))
    wait = next_available(active, spec.get("minReadySeconds") or 0, view.now)
    return [*effects, *requeue(wait)]


def _scale(view: ReplicaSetView, active: list[Object]) -> list[Effect]:
    missing = (view.owner["spec"].get("replicas") or 0) - len(active)
    if missing < 0:
        return [Delete(PODS, pod) for pod in deletion_order(active)[: min(-missing, MAX_BURST)]]
    effects: list[Effect] = []
    for _ in range(min(missing, MAX_BURST)):
        body = from_template(view.resource, view.owner, view.owner["spec"]["template"])
        body["metadata"]["generateName"] = f"{view.owner['metadata']['name']}-"
        effects.append(Create(PODS, body))
    return effects


def _status(view: ReplicaSetView, active: list[Object]) -> Object:
    old, spec = status_of(view.owner), view.owner["spec"]
    labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}
    min_ready_s = spec.get("minReadySeconds") or 0
    counts = {
        "fullyLabeledReplicas": sum(labels.items() <= labels_of(pod).items() for pod in active),
        "readyReplicas": sum(map(is_ready, active)),
        "availableReplicas": sum(is_available(pod, min_ready_s, view.now) for pod in active),
    }
    new: Object = {key: value for key, value in old.items() if key not in counts}
    new |= {"replicas": len(active), **{key: value for key, value in counts.items() if value}}
    new["observedGeneration"] = view.owner["metadata"].get("generation", 0)
    conditions = old.get("conditions") or []
    if view.failure and len(active) < (spec.get("replicas") or 0):
        conditions = with_condition(
            conditions, REPLICA_FAILURE, True, "FailedCreate", view.failure, format_time(view.now)
        )
    else:
        conditions = without_condition(conditions, REPLICA_FAILURE)
    new.pop("conditions", None)
    if conditions:
        new["conditions"] = conditions
    return new
