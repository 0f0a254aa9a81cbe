"""Admission of PodGroups, and of annotations on pods."""

from __future__ import annotations

from hekla.api import wellknown
from hekla.api.rules.amounts import resource_list
from hekla.api.rules.fields import FieldErrors, forbidden, invalid
from hekla.api.volcano.jobs import tier
from hekla.api.volcano.view import View, state_of
from hekla.api.wellknown import QueueState
from hekla.units.objects import Object


def default(group: Object, view: View) -> None:
    """Set the queue of the namespace's annotation."""
    spec = group.setdefault("spec", {})
    if spec.get("queue") in (None, "", wellknown.DEFAULT_QUEUE):
        namespace = view.namespace(group["metadata"].get("namespace") or "") or {}
        annotations = (namespace.get("metadata") or {}).get("annotations") or {}
        spec["queue"] = annotations.get(wellknown.POD_QUEUE_NAME) or wellknown.DEFAULT_QUEUE


def check(group: Object, old: Object | None, view: View) -> FieldErrors:
    """Check a new PodGroup; controllers make later changes."""
    spec = group.get("spec") or {}
    yield from tier("spec.networkTopology", spec.get("networkTopology"))
    for index, policy in enumerate(spec.get("subGroupPolicy") or ()):
        yield from tier(
            f"spec.subGroupPolicy[{index}].networkTopology", policy.get("networkTopology")
        )
    minimum = spec.get("minResources")
    if old is None or minimum != (old.get("spec") or {}).get("minResources"):
        yield from resource_list("spec.minResources", minimum)
    if old is not None:
        return
    if (spec.get("minMember") or 0) < 0:
        yield invalid("spec.minMember", spec["minMember"], "must not be negative")
    name = spec.get("queue")
    queue = view.queue(name) if name else None
    if name and queue is None:
        yield invalid(
            "spec.queue",
            name,
            f"unable to find queue: queues {name!r} not found: no such queue; create it or choose "
            "another",
        )
    # An admitted job may restart while its queue closes: closing rejects only new jobs.
    elif queue is not None and not _is_open(queue) and not _belongs_to_job(group):
        state = state_of(queue)
        yield forbidden(
            "spec.queue",
            f"can only submit PodGroup to queue with state `Open`, queue `{name}` status is "
            f"`{state}`: queue {name!r} is {state}; open it or choose another",
        )


def _is_open(queue: Object) -> bool:
    return state_of(queue) in ("", QueueState.OPEN)


def _belongs_to_job(group: Object) -> bool:
    return any(
        owner.get("controller")
        and owner.get("kind") == "Job"
        and owner.get("apiVersion") == wellknown.BATCH_API
        for owner in group["metadata"].get("ownerReferences") or ()
    )


def check_pod(pod: Object, view: View) -> FieldErrors:
    """Check disruption budgets in annotations of pods with our scheduler names."""
    if (pod.get("spec") or {}).get("schedulerName") not in view.scheduler_names:
        return
    annotations = pod["metadata"].get("annotations") or {}
    minimum = annotations.get(wellknown.JDB_MIN_AVAILABLE)
    maximum = annotations.get(wellknown.JDB_MAX_UNAVAILABLE)
    if minimum is not None and maximum is not None:
        yield forbidden(
            "metadata.annotations",
            f"not allow configure multiple annotations <{wellknown.JDB_MIN_AVAILABLE}, "
            f"{wellknown.JDB_MAX_UNAVAILABLE}> at same time: they are exclusive; keep one",
        )
    for key, text in (
        (wellknown.JDB_MIN_AVAILABLE, minimum),
        (wellknown.JDB_MAX_UNAVAILABLE, maximum),
    ):
        if text is not None and not _is_count_or_percentage(text):
            yield invalid(
                f"metadata.annotations[{key}]",
                text,
                "it must be a positive integer, or a valid percentage which between 1% ~ 99%",
            )


def _is_count_or_percentage(text: str) -> bool:
    number, percent = (text[:-1], True) if text.endswith("%") else (text, False)
    if not number.isascii() or not number.isdigit():
        return False
    return 1 <= int(number) <= 99 if percent else int(number) >= 1


def default_queue_gate(pod: Object) -> None:
    """Add Volcano's queue-allocation gate to a new pod whose annotation asks for it."""
    annotations = (pod.get("metadata") or {}).get("annotations") or {}
    if annotations.get(wellknown.QUEUE_ALLOCATION_GATE) != "true":
        return
    spec = pod.setdefault("spec", {})
    gates = spec.get("schedulingGates") or []
    if all(gate.get("name") != wellknown.QUEUE_ALLOCATION_GATE for gate in gates):
        spec["schedulingGates"] = [*gates, {"name": wellknown.QUEUE_ALLOCATION_GATE}]
