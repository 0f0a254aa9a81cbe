"""Fields of API objects in the form that the scheduler needs; defaults for invalid values."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from hekla.api import wellknown
from hekla.api.wellknown import PodPhase
from hekla.scheduler.state import wire
from hekla.scheduler.state.status import (
    BOUND,
    FAILED,
    PENDING,
    RELEASING,
    RUNNING,
    SUCCEEDED,
    UNKNOWN,
    Status,
)
from hekla.units.durations import DurationError, parse_duration
from hekla.units.timestamps import TimestampError, parse_time


def is_leaving(pod: wire.Pod) -> bool:
    return pod.metadata.deletion_timestamp is not None


def status_of(pod: wire.Pod) -> Status:
    phase = pod.status.phase or PodPhase.PENDING
    if phase == PodPhase.SUCCEEDED:
        return SUCCEEDED
    if phase == PodPhase.FAILED:
        return FAILED
    if phase not in (PodPhase.PENDING, PodPhase.RUNNING):
        return UNKNOWN
    if is_leaving(pod):
        return RELEASING
    if phase == PodPhase.RUNNING:
        return RUNNING
    return BOUND if pod.spec.node_name else PENDING


def condition_of(pod: wire.Pod) -> tuple[str, str, str]:
    """Return status, reason and message of the condition PodScheduled."""
    for condition in pod.status.conditions or ():
        if condition.type == "PodScheduled":
            return condition.status, condition.reason, condition.message
    return "", "", ""


def cooldown_end(pod: wire.Pod) -> float:
    """Return the end of a pod's cooldown after scheduling; 0 if it requests none."""
    labels, annotations = pod.metadata.labels or {}, pod.metadata.annotations or {}
    text = labels.get(wellknown.COOLDOWN_TIME) or annotations.get(wellknown.COOLDOWN_TIME)
    if not text:
        return 0.0
    try:
        lasts_s = parse_duration(text)
    except DurationError:
        return 0.0
    for condition in pod.status.conditions or ():
        if condition.type == "PodScheduled" and condition.status == "True":
            return seconds(condition.last_transition_time) + lasts_s
    return 0.0


def started(pod: wire.Pod) -> float:
    """Return when the node started the pod, or its creation time."""
    return seconds(pod.status.start_time or pod.metadata.creation_timestamp)


def is_revocable(annotations: Mapping[str, str]) -> bool:
    """Tell whether a pod may use revocable nodes."""
    zone = annotations.get(wellknown.REVOCABLE_ZONE)
    return zone == "*" if zone is not None else truth(annotations.get(wellknown.PREEMPTABLE))


def truth(text: str | None) -> bool:
    """Parse a boolean as Go does; an invalid value is False."""
    return text is not None and text.lower() in ("1", "t", "true")


@lru_cache(maxsize=1024)  # pods of a gang are created in the same second
def seconds(text: str | None) -> float:
    if not text:
        return 0.0
    try:
        return parse_time(text)
    except TimestampError:
        return 0.0


def index_of(name: str) -> int:
    """Return the number at the end of `job-role-7`; -1 for names of fewer than three parts."""
    parts = name.rsplit("-", 2)
    return int(parts[2]) if len(parts) == 3 and parts[2].isdecimal() else -1


def integer(text: str | None) -> int | None:
    try:
        return None if text is None else int(text)
    except ValueError:
        return None


def oversubscribed(text: str | None) -> float:
    """Parse an oversubscription annotation: a whole number, or 0."""
    value = integer(text)
    return float(value) if value is not None and 0 <= value < 2**50 else 0.0


def two_groups(pod: str, annotations: Mapping[str, str]) -> str:
    """Return the problem of a pod with two PodGroup annotations; empty otherwise."""
    one, other = annotations.get(wellknown.GROUP_NAME), annotations.get(wellknown.GROUP_NAME_ALIAS)
    if not one or not other or one == other:
        return ""
    return f"pod {pod} names two PodGroups, {one!r} and {other!r}; {one!r} counts"
