"""ReplicaSets, and ReplicationControllers, which are the same with an older selector.

`next_step` is pure: the set and its pods in, effects out. Pods that end or are deleted are
replaced; of pods too many those go whose loss is the least.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from hekla.controllers.metrics import Metrics
from hekla.controllers.objects import is_deleting, labels_of, status_of, uid_of
from hekla.controllers.watched import World
from hekla.controllers.workloads.base import MAX_BURST, WorkloadController, wakes
from hekla.controllers.workloads.effects import Create, Delete, Effect, SetStatus, Wake
from hekla.controllers.workloads.pods import (
    claims,
    first_to_go,
    from_template,
    is_active,
    is_available,
    is_ready,
    matcher,
    next_available,
    with_condition,
    without_condition,
)
from hekla.kube.recorder import EventRecorder
from hekla.kube.resources import PODS, REPLICA_SETS, REPLICATION_CONTROLLERS, Resource
from hekla.units.objects import Object
from hekla.units.patches import create_merge_patch
from hekla.units.selectors import LabelSelector
from hekla.units.timestamps import format_time

REPLICA_FAILURE: Final = "ReplicaFailure"


@dataclass(frozen=True)
class SetView:
    owner: Object
    now: float
    pods: Sequence[Object] = ()
    orphans: Sequence[Object] = ()
    failure: str = ""
    """Why the last creation failed."""
    resource: Resource[Any] = REPLICA_SETS
    selector: LabelSelector | None = None


def next_step(view: SetView) -> list[Effect]:
    """What to do about a replica set."""
    taken = claims(view.resource, view.owner, view.selector, PODS, view.pods, view.orphans)
    if taken:
        return [*taken, Wake(0.0)]
    active = [pod for pod in view.pods if is_active(pod)]
    effects: list[Effect] = []
    if not is_deleting(view.owner):
        effects += _resized(view, active)
    spec = view.owner["spec"]
    patch = create_merge_patch(status_of(view.owner), _status(view, active))
    if patch:
        effects.append(SetStatus(patch))
    wait = next_available(active, spec.get("minReadySeconds") or 0, view.now)
    return [*effects, *wakes(wait)]


def _resized(view: SetView, active: list[Object]) -> list[Effect]:
    missing = (view.owner["spec"].get("replicas") or 0) - len(active)
    if missing < 0:
        return [Delete(PODS, pod) for pod in first_to_go(active)[: min(-missing, MAX_BURST)]]
    made: list[Effect] = []
    for _ in range(min(missing, MAX_BURST)):
        body = from_template(view.resource, view.owner, view.owner["spec"]["template"])
        body["metadata"]["generateName"] = f"{view.owner['metadata']['name']}-"
        made.append(Create(PODS, body))
    return made


def _status(view: SetView, active: list[Object]) -> Object:
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


class ReplicaSetController(WorkloadController):
    name = "replicaset-controller"
    resource = REPLICA_SETS

    def __init__(self, world: World, recorder: EventRecorder, metrics: Metrics) -> None:
        super().__init__(world, recorder, metrics)
        self.follow(PODS)

    def decide(self, owner: Object) -> list[Effect]:
        return next_step(
            SetView(
                owner,
                self.clock.now(),
                self.owned(PODS, owner),
                self.orphans(PODS, owner),
                self.failures.get(uid_of(owner), ""),
                self.resource,
                self.selector(owner),
            )
        )


class ReplicationControllers(ReplicaSetController):
    """They select by labels alone."""

    name = "replicationcontroller-controller"
    resource = REPLICATION_CONTROLLERS

    def selector(self, owner: Object) -> LabelSelector | None:
        return matcher({"matchLabels": (owner.get("spec") or {}).get("selector")})
