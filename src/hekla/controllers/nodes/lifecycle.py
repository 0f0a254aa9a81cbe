"""Decide about lost nodes and the pods on them: objects in, effects out. Pure.

As kube-controller-manager's node lifecycle, taint eviction and pod garbage collection: a node whose
lease is not renewed for the grace period gets the Ready condition Unknown, a node that is not ready
gets taints; a pod is deleted after the time for which it tolerates the NoExecute taints of its
node; a pod of a node that does not exist fails and is deleted.

Note: only a node with a lease can be lost. A node that no agent manages (simulated, by kwok, or
created with kubectl) has none and stays as it is. As in Kubernetes, the clocks of machines are not
compared: the time counts from when a renewal was seen here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from hekla.api.wellknown import TAINT_NOT_READY, TAINT_UNREACHABLE, PodCondition, PodPhase
from hekla.controllers.objects import created_at, is_deleting, seconds, status_of
from hekla.units.objects import Object
from hekla.units.timestamps import format_time

GRACE_S: Final = 40.0
"""The default of `--node-monitor-grace-period`, which equals the duration of a kubelet's lease."""
QUARANTINE_S: Final = 40.0
"""How long a node must be missing before its pods fail, as in Kubernetes."""
STATUS_UNKNOWN: Final = "NodeStatusUnknown"
_TAINT_OF: Final = {"Unknown": TAINT_UNREACHABLE, "False": TAINT_NOT_READY}
_OWN_TAINTS: Final = frozenset(_TAINT_OF.values())
_FINISHED: Final = (PodPhase.SUCCEEDED, PodPhase.FAILED)


@dataclass(frozen=True, slots=True)
class Renewal:
    """The last renewal of a node's lease that was seen."""

    version: str
    seen_at: float
    """On the monotonic clock."""


def lost_at(lease: Object, renewal: Renewal) -> float:
    """Return the monotonic time from which a node counts as lost."""
    duration_s = (lease.get("spec") or {}).get("leaseDurationSeconds") or 0
    return renewal.seen_at + max(GRACE_S, float(duration_s))


def ready_status(node: Object) -> str | None:
    """Return the status of the Ready condition; None if the node has none."""
    conditions = status_of(node).get("conditions") or ()
    return next((c.get("status") for c in conditions if c.get("type") == "Ready"), None)


def unknown_conditions(node: Object, now: float) -> list[Object] | None:
    """Return the conditions of a lost node; None if they are already so."""
    if ready_status(node) in (None, "Unknown"):
        return None
    conditions: list[Object] = []
    for condition in status_of(node).get("conditions") or ():
        if condition.get("type") == "Ready":
            condition = {
                **condition,
                "status": "Unknown",
                "reason": STATUS_UNKNOWN,
                "message": "the node agent stopped renewing the lease of the node",
                "lastTransitionTime": format_time(now),
            }
        conditions.append(condition)
    return conditions


def not_ready_conditions(pod: Object, now: float) -> list[Object] | None:
    """Return the conditions of a pod on a lost node, which is not ready; None if it is not so."""
    conditions = status_of(pod).get("conditions") or ()
    if not any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions):
        return None
    changed = {"status": "False", "lastTransitionTime": format_time(now)}
    return [c | changed if c.get("type") == "Ready" else c for c in conditions]


def wanted_taints(node: Object, now: float) -> list[Object] | None:
    """Return all taints of a node by its Ready condition; None if they are already so."""
    status = ready_status(node)
    if status is None:
        return None
    taints = (node.get("spec") or {}).get("taints") or []
    key = _TAINT_OF.get(status)
    kept = [t for t in taints if t.get("key") not in _OWN_TAINTS or t.get("key") == key]
    if key is not None:
        present = {t.get("effect") for t in kept if t.get("key") == key}
        missing = [effect for effect in ("NoSchedule", "NoExecute") if effect not in present]
        added = format_time(now)
        kept += [{"key": key, "effect": effect, "timeAdded": added} for effect in missing]
    return None if kept == taints else kept


def evicting_taints(node: Object) -> list[Object]:
    """Return the taints of a node that pods have to tolerate to stay."""
    taints = (node.get("spec") or {}).get("taints") or ()
    return [taint for taint in taints if taint.get("effect") == "NoExecute"]


def eviction_at(pod: Object, taints: Iterable[Object]) -> float | None:
    """Return when a pod has to leave a node with these NoExecute taints; None for never."""
    if is_deleting(pod) or status_of(pod).get("phase") in _FINISHED:
        return None
    tolerations = (pod.get("spec") or {}).get("tolerations") or ()
    times: list[float] = []
    for taint in taints:
        matching = [t for t in tolerations if _tolerates(t, taint)]
        if not matching:
            return 0.0
        limits = [
            t["tolerationSeconds"] for t in matching if t.get("tolerationSeconds") is not None
        ]
        if limits:
            since = max(seconds(taint.get("timeAdded")) or 0.0, created_at(pod))
            times.append(since + max(0.0, min(limits)))
    return min(times, default=None)


def _tolerates(toleration: Object, taint: Object) -> bool:
    if toleration.get("effect") not in (None, "", taint["effect"]):
        return False
    if toleration.get("key") and toleration["key"] != taint["key"]:
        return False
    if toleration.get("operator") == "Exists":
        return True
    # An empty key tolerates everything only with Exists.
    return bool(toleration.get("key")) and (toleration.get("value") or "") == (
        taint.get("value") or ""
    )


def is_orphan(pod: Object) -> bool:
    """Return whether a pod of a missing node has to fail.

    Note: Kubernetes also deletes finished pods. Here they stay: they are the results of a job.
    """
    return status_of(pod).get("phase") not in _FINISHED


def disrupted(pod: Object, reason: str, message: str, now: float) -> list[Object]:
    """Return the conditions of a pod with DisruptionTarget."""
    kind = PodCondition.DISRUPTION_TARGET
    others = [c for c in status_of(pod).get("conditions") or () if c.get("type") != kind]
    return [
        *others,
        {
            "type": kind,
            "status": "True",
            "reason": reason,
            "message": message,
            "lastTransitionTime": format_time(now),
        },
    ]
