"""The status of a job, as the patch to its stored status.

Note: `lastTransitionTime` changes only with the phase. Volcano changes it on every write, so it
does not give the time at which a job finished.
"""

from __future__ import annotations

from typing import Any

from hekla.api import wellknown
from hekla.api.wellknown import JobPhase, PodPhase
from hekla.controllers.job.state import Counts
from hekla.controllers.job.view import JobView
from hekla.controllers.objects import created_at
from hekla.units.durations import format_duration
from hekla.units.objects import Object
from hekla.units.patches import create_merge_patch
from hekla.units.timestamps import format_time

_NUMBERS = ("pending", "running", "succeeded", "failed", "terminating", "unknown")
_FINAL = ("succeeded", "failed")
_ENDED = JobPhase.FINISHED | {JobPhase.ABORTED}


def status_patch(
    view: JobView,
    *,
    phase: str | None = None,
    reason: str = "",
    message: str = "",
    version: int | None = None,
    retry_count: int | None = None,
    controlled: dict[str, str] | None = None,
) -> Object | None:
    """Return the merge patch of the status; None if nothing changes."""
    old = view.status
    numbers: dict[str, Any] = {
        "minAvailable": view.facts.min_available,
        "version": view.version if version is None else version,
        "retryCount": view.retry_count if retry_count is None else retry_count,
        **_counted(view.counts, old, view.phase in JobPhase.FINISHED),
    }
    new: Object = {
        **old,
        # As Volcano, which omits zeros: a number is written once it is or was non-zero.
        **{name: value for name, value in numbers.items() if value or name in old},
    }
    tasks = _tasks(view.counts, old, view.phase in JobPhase.FINISHED)
    if tasks or old.get("taskStatusCount"):
        new["taskStatusCount"] = tasks
    if controlled is not None and (controlled or old.get("controlledResources")):
        new["controlledResources"] = controlled
    before = (old.get("state") or {}).get("phase")
    if phase is not None and phase != before:
        _enter(new, view, phase, reason, message)
    elif phase is not None and reason and reason != view.reason:
        new["state"] = {**(old.get("state") or {}), "reason": reason, "message": message}
    patch: Object = create_merge_patch(old, new)
    return patch or None


def _enter(new: Object, view: JobView, phase: str, reason: str, message: str) -> None:
    now = format_time(view.now)
    state = {"phase": phase, "lastTransitionTime": now}
    if reason:
        state["reason"] = reason
    if message:
        state["message"] = message
    new["state"] = state
    new["conditions"] = [
        *(each for each in new.get("conditions") or () if each.get("status") != phase),
        {"status": phase, "lastTransitionTime": now},
    ]
    if phase in _ENDED:
        lasted_s = max(0.0, float(int(view.now)) - created_at(view.job))
        new["runningDuration"] = format_duration(lasted_s)


def _counted(counts: Counts, old: Object, has_finished: bool) -> dict[str, int]:
    found = {name: int(getattr(counts, name)) for name in _NUMBERS}
    if has_finished:
        # A finished job keeps its counts when its pods are deleted.
        for name in _FINAL:
            found[name] = max(found[name], int(old.get(name) or 0))
    return found


def _tasks(counts: Counts, old: Object, has_finished: bool) -> Object:
    found: dict[str, dict[str, int]] = {
        task: dict(phases) for task, phases in counts.by_task.items()
    }
    if has_finished:
        for task, state in (old.get("taskStatusCount") or {}).items():
            for phase in (PodPhase.SUCCEEDED, PodPhase.FAILED):
                was = int((state.get("phase") or {}).get(phase) or 0)
                now = found.get(task, {}).get(phase, 0)
                if was > now:
                    found.setdefault(task, {})[phase] = was
    return {task: {"phase": phases} for task, phases in found.items()}


def plugin_marks(names: list[str]) -> dict[str, str]:
    """Return the entries of plugins in `status.controlledResources`."""
    return {wellknown.CONTROLLED_PLUGIN.format(name=name): name for name in names}


def claim_marks(names: list[str]) -> dict[str, str]:
    """Return the entries of claims in `status.controlledResources`."""
    return {wellknown.CONTROLLED_VOLUME.format(name=name): name for name in names}
