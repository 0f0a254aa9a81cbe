"""The status of a deployment, from its replica sets: counts, availability and progress. Pure.

`kubectl rollout status` reads nothing else. The time of progress is stored in the condition, so a
restart of the controller does not change a deadline.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hekla.controllers.objects import seconds, status_of
from hekla.controllers.workloads.pods import condition, with_condition, without_condition
from hekla.controllers.workloads.replicaset import REPLICA_FAILURE
from hekla.controllers.workloads.rollout import (
    desired_replicas,
    name_of,
    size,
    surge_and_unavailable,
)
from hekla.units.objects import Object
from hekla.units.timestamps import format_time

AVAILABLE: Final = "Available"
PROGRESSING: Final = "Progressing"
NO_DEADLINE: Final = 2**31 - 1
COUNTS: Final = ("replicas", "readyReplicas", "availableReplicas")


def status(deployment: Object, new: Object | None, old: Sequence[Object], now: float) -> Object:
    """Return the current status."""
    sets = [*([new] if new is not None else []), *old]
    old_status = status_of(deployment)
    counts = {name: sum(status_of(each).get(name) or 0 for each in sets) for name in COUNTS}
    counts["updatedReplicas"] = (status_of(new).get("replicas") or 0) if new is not None else 0
    counts["unavailableReplicas"] = max(0, sum(map(size, sets)) - counts["availableReplicas"])
    result: Object = {name: value for name, value in counts.items() if value}
    result["observedGeneration"] = deployment["metadata"].get("generation", 0)
    if old_status.get("collisionCount"):
        result["collisionCount"] = old_status["collisionCount"]
    conditions = _availability(deployment, old_status.get("conditions") or [], counts, now)
    conditions = _progress(deployment, new, sets, conditions, counts, now)
    failure = condition(new, REPLICA_FAILURE) if new is not None else None
    if failure is not None:
        reason, message = failure["reason"], failure["message"]
        conditions = with_condition(
            conditions, REPLICA_FAILURE, True, reason, message, format_time(now)
        )
    else:
        conditions = without_condition(conditions, REPLICA_FAILURE)
    result["conditions"] = conditions
    return result


def _availability(
    deployment: Object, conditions: list[Object], counts: dict[str, int], now: float
) -> list[Object]:
    enough = (
        counts["availableReplicas"]
        >= desired_replicas(deployment) - surge_and_unavailable(deployment)[1]
    )
    reason = "MinimumReplicasAvailable" if enough else "MinimumReplicasUnavailable"
    message = f"Deployment {'has' if enough else 'does not have'} minimum availability."
    return _stamped(conditions, AVAILABLE, enough, reason, message, now)


def _progress(
    deployment: Object,
    new: Object | None,
    sets: Sequence[Object],
    conditions: list[Object],
    counts: dict[str, int],
    now: float,
) -> list[Object]:
    spec = deployment["spec"]
    deadline_s = spec.get("progressDeadlineSeconds")
    if deadline_s is None or deadline_s == NO_DEADLINE:
        return without_condition(conditions, PROGRESSING)
    known = next((each for each in conditions if each.get("type") == PROGRESSING), None)
    if spec.get("paused"):
        message = "Deployment is paused"
        return _stamped(
            conditions, PROGRESSING, True, "DeploymentPaused", message, now, is_soft=True
        )
    if known is not None and known.get("reason") == "DeploymentPaused":
        message, reason = "Deployment is resumed", "DeploymentResumed"
        return _stamped(conditions, PROGRESSING, True, reason, message, now, is_soft=True)
    which = f'ReplicaSet "{name_of(new)}"' if new is not None else "Deployment"
    goal = desired_replicas(deployment)
    if counts["updatedReplicas"] == counts["replicas"] == counts["availableReplicas"] == goal and (
        new is not None
    ):
        message = f"{which} has successfully progressed."
        return _stamped(conditions, PROGRESSING, True, "NewReplicaSetAvailable", message, now)
    is_new = known is None or _is_new(known, new)
    if known is not None and known.get("reason") == "NewReplicaSetAvailable" and not is_new:
        return conditions  # a complete rollout stays complete when a pod dies
    if is_new or _moved(status_of(deployment), counts):
        reason = "ReplicaSetUpdated" if new is not None else "NewReplicaSetCreated"
        message = f"{which} is progressing."
        return _stamped(conditions, PROGRESSING, True, reason, message, now, is_news=True)
    left_s = deadline_in(deployment, now)
    if left_s is not None and left_s <= 0:
        message = f"{which} has timed out progressing."
        return _stamped(conditions, PROGRESSING, False, "ProgressDeadlineExceeded", message, now)
    return conditions


def _moved(old_status: Object, counts: dict[str, int]) -> bool:
    """Return whether there are more new, fewer old, or more ready or available pods than before."""

    def was(name: str) -> int:
        return int(old_status.get(name) or 0)

    old_now = counts["replicas"] - counts["updatedReplicas"]
    return (
        counts["updatedReplicas"] > was("updatedReplicas")
        or old_now < was("replicas") - was("updatedReplicas")
        or counts["readyReplicas"] > was("readyReplicas")
        or counts["availableReplicas"] > was("availableReplicas")
    )


def _is_new(known: Object, new: Object | None) -> bool:
    """Return whether the condition belongs to an earlier, complete rollout."""
    if known.get("reason") != "NewReplicaSetAvailable" or new is None:
        return False
    return f'"{name_of(new)}"' not in str(known.get("message"))


def deadline_in(deployment: Object, now: float) -> float | None:
    """Return the seconds until a rollout without progress has failed.

    None if none is in progress.
    """
    known = condition(deployment, PROGRESSING)
    deadline_s = deployment["spec"].get("progressDeadlineSeconds")
    if known is None or deadline_s in (None, NO_DEADLINE) or deployment["spec"].get("paused"):
        return None
    if known.get("reason") in ("NewReplicaSetAvailable", "ProgressDeadlineExceeded"):
        return None
    since = seconds(known.get("lastUpdateTime"))
    return None if since is None else max(0.0, since + float(deadline_s) - now)


def _stamped(
    conditions: list[Object],
    kind: str,
    holds: bool,
    reason: str,
    message: str,
    now: float,
    *,
    is_news: bool = False,
    is_soft: bool = False,
) -> list[Object]:
    """Set a condition; its update time changes with its text, or if `is_news`.

    A soft condition has the status Unknown.
    """
    known = next((each for each in conditions if each.get("type") == kind), None)
    status_text = "Unknown" if is_soft else ("True" if holds else "False")
    same = (
        known is not None
        and (known["status"], known["reason"], known["message"]) == (status_text, reason, message)
        and not is_news
    )
    if same:
        return conditions
    stamped = {"lastUpdateTime": format_time(now), "status": status_text}
    if known is None or known["status"] != status_text:
        stamped["lastTransitionTime"] = format_time(now)
    else:
        stamped["lastTransitionTime"] = known["lastTransitionTime"]
    return with_condition(
        conditions, kind, holds, reason, message, format_time(now), stamped=stamped
    )
