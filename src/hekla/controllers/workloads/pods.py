"""Pods of workloads: readiness, adoption, deletion order, and pods from templates. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from hashlib import sha256
from typing import Any, Final

import msgspec

from hekla.api.wellknown import PodPhase
from hekla.controllers.objects import (
    annotations_of,
    created_at,
    is_deleting,
    key_of,
    labels_of,
    owner_reference,
    seconds,
    status_of,
    uid_of,
)
from hekla.controllers.workloads.effects import Adopt, Effect, Patch
from hekla.kube.resources import PODS, Resource
from hekla.units.errors import SelectorError
from hekla.units.objects import Object
from hekla.units.selectors import LabelSelector

SAFE_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"
"""As in Kubernetes: no vowels and no lookalikes, so that no words appear."""
HASH_CHARS: Final = 10
FINISHED: Final = (PodPhase.SUCCEEDED, PodPhase.FAILED)
DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
_PHASE_RANK: Final = {PodPhase.PENDING: 0, PodPhase.UNKNOWN: 1, PodPhase.RUNNING: 2}


def template_hash(template: Object, collisions: int = 0) -> str:
    """Return ten letters derived from a template and the number of collisions."""
    text = msgspec.json.encode(template, order="sorted") + (b"%d" % collisions)
    number = int.from_bytes(sha256(text).digest(), "big")
    letters = []
    for _ in range(HASH_CHARS):
        number, digit = divmod(number, len(SAFE_LETTERS))
        letters.append(SAFE_LETTERS[digit])
    return "".join(letters)


def label_selector(selector: Object | None) -> LabelSelector | None:
    """Return a label selector; None if it selects nothing or is invalid."""
    given = {key: value for key, value in (selector or {}).items() if value}
    if not given:
        return None
    try:
        return LabelSelector.from_dict(given)
    except SelectorError:
        return None


def from_template(resource: Resource[Any], owner: Object, template: Object) -> Object:
    """Return a pod without a name from a template, controlled by the owner."""
    given = template.get("metadata") or {}
    metadata: Object = {
        "namespace": owner["metadata"]["namespace"],
        "labels": dict(given.get("labels") or {}),
        "annotations": dict(given.get("annotations") or {}),
        "ownerReferences": [owner_reference(resource.api_version, resource.kind, owner)],
    }
    if given.get("finalizers"):
        metadata["finalizers"] = list(given["finalizers"])
    spec = deepcopy(template.get("spec") or {})
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


# Adoption


def release_and_adopt(
    resource: Resource[Any],
    owner: Object,
    selector: LabelSelector | None,
    kind: Resource[Any],
    owned: Iterable[Object],
    orphans: Iterable[Object],
) -> list[Effect]:
    """Release objects that no longer match the selector, and adopt orphans that do."""
    effects: list[Effect] = []
    for obj in owned:
        fits = selector is not None and selector.matches(labels_of(obj))
        if not fits and not is_deleting(obj):
            others = [
                each
                for each in obj["metadata"].get("ownerReferences") or ()
                if each.get("uid") != uid_of(owner)
            ]
            patch = {"metadata": {"uid": uid_of(obj), "ownerReferences": others or None}}
            effects.append(Patch(kind, obj, patch))
    if selector is None or is_deleting(owner):
        return effects
    for obj in orphans:
        over = kind is PODS and status_of(obj).get("phase") in FINISHED
        if not is_deleting(obj) and not over and selector.matches(labels_of(obj)):
            effects.append(Adopt(kind, obj))
    return effects


# The state of a pod


def phase_of(pod: Object) -> str:
    return str(status_of(pod).get("phase") or PodPhase.PENDING)


def is_finished(pod: Object) -> bool:
    return phase_of(pod) in FINISHED


def is_active(pod: Object) -> bool:
    """Return whether a pod is neither finished nor being deleted."""
    return not is_finished(pod) and not is_deleting(pod)


def condition(obj: Object, kind: str) -> Object | None:
    """Return a condition of an object by its type."""
    for each in status_of(obj).get("conditions") or ():
        if each.get("type") == kind:
            found: Object = each
            return found
    return None


def is_ready(pod: Object) -> bool:
    return (condition(pod, "Ready") or {}).get("status") == "True" and not is_finished(pod)


def available_in(pod: Object, min_ready_s: float, now: float) -> float | None:
    """Return the seconds until a ready pod is available, 0 if it is; None if it is not ready."""
    ready = condition(pod, "Ready")
    if ready is None or not is_ready(pod):
        return None
    if not min_ready_s:
        return 0.0
    since = seconds(ready.get("lastTransitionTime"))
    return None if since is None else max(0.0, since + min_ready_s - now)


def is_available(pod: Object, min_ready_s: float, now: float) -> bool:
    return available_in(pod, min_ready_s, now) == 0.0


def next_available(pods: Iterable[Object], min_ready_s: float, now: float) -> float | None:
    """Return the seconds until the next ready pod is available."""
    waits = [wait for pod in pods if (wait := available_in(pod, min_ready_s, now))]
    return min(waits, default=None)


def deletion_order(pods: Sequence[Object]) -> list[Object]:
    """Return pods in the order in which a scale-down deletes them, as upstream."""
    pods_per_node = Counter(pod["spec"].get("nodeName") for pod in pods if is_active(pod))

    def rank(pod: Object) -> tuple[Any, ...]:
        node = pod["spec"].get("nodeName")
        ready = is_ready(pod)
        ready_since = seconds((condition(pod, "Ready") or {}).get("lastTransitionTime")) or 0.0
        restarts = max(
            (
                each.get("restartCount") or 0
                for each in status_of(pod).get("containerStatuses") or ()
            ),
            default=0,
        )
        return (
            bool(node),
            _PHASE_RANK.get(phase_of(pod), 2),
            ready,
            _deletion_cost(pod),
            -pods_per_node[node],
            -ready_since if ready else 0.0,
            -restarts,
            -created_at(pod),
            key_of(pod),
        )

    return sorted(pods, key=rank)


def _deletion_cost(pod: Object) -> int:
    try:
        return int(annotations_of(pod).get(DELETION_COST, "0"))
    except ValueError:
        return 0


# Conditions


def with_condition(
    conditions: Sequence[Object],
    kind: str,
    holds: bool,
    reason: str,
    message: str,
    now: str,
    *,
    stamped: Mapping[str, str] | None = None,
) -> list[Object]:
    """Return the conditions with one set; lastTransitionTime changes only with its status."""
    old = next((each for each in conditions if each.get("type") == kind), None)
    status = "True" if holds else "False"
    same = old is not None and old.get("status") == status
    is_unchanged = old is not None and (old.get("reason"), old.get("message")) == (reason, message)
    if same and not stamped and is_unchanged:
        return list(conditions)
    new: Object = {"type": kind, "status": status, "reason": reason, "message": message}
    new["lastTransitionTime"] = old["lastTransitionTime"] if same and old else now
    new.update(stamped or {})
    return [*(each for each in conditions if each.get("type") != kind), new]


def without_condition(conditions: Sequence[Object], kind: str) -> list[Object]:
    return [each for each in conditions if each.get("type") != kind]
