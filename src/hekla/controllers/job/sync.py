"""Decide what to do for a job: `next_step`, a pure function of a `JobView`.

    effects = next_step(JobView(job, now, group, pods, commands))

In order: a command of the user; then events, by policy; then the sync of the phase. Each call makes
one decision, and its record triggers the next call.

Note: the status is written *before* the pods are deleted. It is the record of the decision; the
deletions follow from it, here or after a restart. Only targeted restarts annotate pods first, as
the status does not list pods.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from hekla.api import wellknown
from hekla.api.wellknown import Action, JobEvent, JobPhase, JobReason, PodGroupPhase
from hekla.controllers.job import dependents
from hekla.controllers.job.effects import (
    DeleteGroup,
    DeletePod,
    DropObjects,
    Effect,
    EmitEvent,
    FinishCommand,
    MarkPod,
    PatchGroup,
    PatchJob,
    RequeueAfter,
    SetStatus,
)
from hekla.controllers.job.events import (
    EVICTED_PODS,
    ObservedEvent,
    has_returned,
    observed_events,
    partition_of,
    stored_evictions,
)
from hekla.controllers.job.plugins import plugins_of
from hekla.controllers.job.policies import matching_policy
from hekla.controllers.job.state import (
    TARGETED,
    PodOperation,
    Transition,
    phase_after_sync,
    transition_for,
)
from hekla.controllers.job.status import status_patch
from hekla.controllers.job.view import JobView, is_finished, task_of, version_of
from hekla.controllers.objects import (
    annotations_of,
    command_signature,
    created_at,
    is_deleting,
    key_of,
    uid_of,
)
from hekla.units.objects import Object

__all__ = ["next_step"]

_ACTIVE: Final = (JobPhase.PENDING, JobPhase.RUNNING)
_ENDED: Final = JobPhase.FINISHED | {JobPhase.ABORTED}
# While a job restarts, only events that a restart can fix are handled; others wait.
_HANDLED_WHILE_RESTARTING: Final = (
    JobEvent.POD_FAILED,
    JobEvent.TASK_FAILED,
    JobEvent.TASK_COMPLETED,
)


def next_step(view: JobView) -> list[Effect]:
    """Return the effects that reconcile a job."""
    if is_deleting(view.job):
        return []
    effects: list[Effect] = []
    for command in sorted(view.commands, key=lambda each: (created_at(each), key_of(each))):
        if _is_done(view, command):
            effects.append(FinishCommand(command))
            continue
        decided = _by_command(view, command)
        effects += [*decided, FinishCommand(command)]
        if decided:
            return effects
    decided, waiting = _by_policy(view)
    return effects + (decided or _sync_phase(view)) + waiting


# Commands


def _is_done(view: JobView, command: Object) -> bool:
    """Return whether the status names the command: it was carried out but not deleted yet."""
    message = (view.status.get("state") or {}).get("message") or ""
    return command_signature(command) in message


def _by_command(view: JobView, command: Object) -> list[Effect]:
    action = str(command.get("action") or "")
    reason = command.get("message") or command.get("reason") or ""
    why = f"{action} by {command_signature(command)}" + (f": {reason}" if reason else "")
    effects = _apply_action(view, action, [], why)
    if effects:
        effects.append(EmitEvent("Normal", JobReason.COMMAND_ISSUED, f"{action}: carried out"))
    return effects


# Policies


@dataclass
class _PolicyMatches:
    """The events that trigger an action now, and those with a timeout that is still running."""

    action: str = ""
    triggers: list[ObservedEvent] = field(default_factory=list)
    waits_s: list[float] = field(default_factory=list)
    pending_evictions: list[ObservedEvent] = field(default_factory=list)


def _match_policies(view: JobView) -> _PolicyMatches:
    """Match events with policies; the oldest event decides the action."""
    matches = _PolicyMatches()
    for event in observed_events(view):
        if view.phase == JobPhase.RESTARTING and event.name not in _HANDLED_WHILE_RESTARTING:
            continue
        policy = matching_policy(event, view.job, view.tasks)
        if policy is None or policy.action == Action.SYNC_JOB:
            continue
        left_s = event.since + policy.timeout_s - view.now if policy.timeout_s else 0.0
        if left_s > 0:
            matches.waits_s.append(left_s)
            if event.name == JobEvent.POD_EVICTED:
                matches.pending_evictions.append(event)
        elif not matches.action or policy.action == matches.action:
            matches.action = policy.action
            matches.triggers.append(event)
    return matches


def _by_policy(view: JobView) -> tuple[list[Effect], list[Effect]]:
    """Return the effects of matching policies, and those that wait for timeouts."""
    if view.phase not in (*_ACTIVE, JobPhase.RESTARTING) or not _has_policies(view):
        return [], []
    matches = _match_policies(view)
    effects: list[Effect] = []
    if matches.action:
        why = f"{matches.triggers[0].message}; by policy: {matches.action}"
        effects = _apply_action(view, matches.action, matches.triggers, why)
        if effects:
            effects.append(EmitEvent("Normal", JobReason.EXECUTE_ACTION, why))
    stored = _store_evictions(view, matches.pending_evictions)
    waiting: list[Effect] = [RequeueAfter(min(matches.waits_s))] if matches.waits_s else []
    return (stored + effects, waiting) if effects else ([], stored + waiting)


def _has_policies(view: JobView) -> bool:
    """Return whether any policy exists; without one, events need not be computed."""
    return bool(view.spec.get("policies")) or any(task.get("policies") for task in view.tasks)


def _store_evictions(view: JobView, pending: list[ObservedEvent]) -> list[Effect]:
    """Store the time of evictions while a timeout runs.

    A deleted pod has no object that holds it.
    """
    known = stored_evictions(view.job)
    is_active = view.phase in _ACTIVE
    wanted = {name: at for name, at in known.items() if is_active and not has_returned(view, name)}
    for event in pending:
        wanted.setdefault(event.pod, event.since)
    if wanted == known:
        return []
    text = json.dumps(wanted, sort_keys=True) if wanted else None
    return [PatchJob({"metadata": {"annotations": {EVICTED_PODS: text}}})]


# Actions


def _apply_action(
    view: JobView, action: str, events: list[ObservedEvent], why: str
) -> list[Effect]:
    """Return the effects of an action; none if it changes nothing in this phase."""
    for_eviction = bool(events) and all(each.name == JobEvent.POD_EVICTED for each in events)
    transition = transition_for(view.phase, action, view.facts, for_eviction=for_eviction)
    if transition.operation is PodOperation.KILL_TARGET:
        return _restart_targets(view, transition, action, events, why)
    if transition.to is None and transition.operation is not PodOperation.KILL_ALL:
        return []
    if transition.to is None and not any(view.is_current(pod) for pod in view.pods):
        return []  # restarting already, and no pod of the current version is left
    if transition.to == JobPhase.FAILED:
        why = f"{why}, but all {view.facts.max_retry} retries are used"
    patch = status_patch(
        view,
        phase=transition.to or view.phase,
        reason=action,
        message=why,
        version=view.version + 1,
        retry_count=view.retry_count + (1 if transition.is_retry else 0),
    )
    assert patch is not None, "a version that grows is a change"
    soft = transition.operation is PodOperation.KILL_SOFT
    return [
        SetStatus(patch),
        *_delete_pods(pod for pod in view.pods if not (soft and is_finished(pod))),
    ]


def _restart_targets(
    view: JobView, transition: Transition, action: str, events: list[ObservedEvent], why: str
) -> list[Effect]:
    """Restart the pods that the events select. Pods that no event names are annotated first."""
    targets = _targets(view, action, events)
    if action == Action.RESTART_PARTITION and not targets:
        return []
    named = {event.pod for event in events}
    effects: list[Effect] = [
        MarkPod(pod)
        for pod in targets
        if pod["metadata"]["name"] not in named and view.is_current(pod)
    ]
    if transition.to is not None:
        patch = status_patch(
            view,
            phase=transition.to,
            reason=action,
            message=why,
            retry_count=view.retry_count + (1 if transition.is_retry else 0),
        )
        assert patch is not None, "a new phase is a change"
        effects.append(SetStatus(patch))
    return effects + _delete_pods(targets)


def _targets(view: JobView, action: str, events: list[ObservedEvent]) -> list[Object]:
    found: dict[str, Object] = {}
    for event in events:
        for pod in view.pods:
            if is_deleting(pod) or task_of(pod) != event.task:
                continue
            name = pod["metadata"]["name"]
            if action == Action.RESTART_TASK or name == event.pod:
                found[name] = pod
            elif action == Action.RESTART_PARTITION:
                partition = dependents.partition_at(view, event.task, event.index)
                if partition is not None and partition_of(pod) == partition:
                    found[name] = pod
    return list(found.values())


def _delete_pods(pods: Iterable[Object]) -> list[Effect]:
    return [DeletePod(pod) for pod in pods if not is_deleting(pod)]


# Sync of a phase


def _sync_phase(view: JobView) -> list[Effect]:
    if view.phase in _ACTIVE:
        return dependents.sync_dependents(view)
    if view.phase == JobPhase.RESTARTING:
        return _restarting(view)
    effects = _delete_pods(pod for pod in view.pods if not is_finished(pod))
    if view.phase in _ENDED:
        return effects + _clean_up(view, bool(effects))
    return effects + _record(view, None if effects else _next_phase(view))


def _restarting(view: JobView) -> list[Effect]:
    effects = _delete_pods(_pods_to_restart(view))
    group = view.group
    if group is not None and (group.get("status") or {}).get("phase") == PodGroupPhase.UNKNOWN:
        # This state may have caused the restart; if it stayed, it would cause the next one.
        effects.append(
            PatchGroup(group["metadata"]["name"], {"status": {"phase": PodGroupPhase.INQUEUE}})
        )
    next_phase = None if effects else _next_phase(view)
    return effects + _store_evictions(view, []) + _record(view, next_phase)


def _next_phase(view: JobView) -> str | None:
    return phase_after_sync(view.phase, view.facts, view.counts)


def _pods_to_restart(view: JobView) -> Iterable[Object]:
    """Yield the pods that a restart in progress still has to delete."""
    for pod in view.pods:
        if wellknown.OUT_OF_SYNC in annotations_of(pod) or (
            version_of(pod) < view.version and not _survives_restart(view, pod)
        ):
            yield pod


def _survives_restart(view: JobView, pod: Object) -> bool:
    return view.reason in TARGETED or (view.reason == Action.RESUME_JOB and is_finished(pod))


def _record(view: JobView, phase: str | None) -> list[Effect]:
    patch = status_patch(view, phase=phase)
    return [] if patch is None else [SetStatus(patch, is_urgent=phase is not None)]


def _clean_up(view: JobView, has_kills: bool) -> list[Effect]:
    """Delete the group and the plugins' objects of an ended job; its counts stay in the status."""
    effects: list[Effect] = _store_evictions(view, [])
    if view.group is not None and not is_deleting(view.group):
        effects.append(DeleteGroup(view.group["metadata"]["name"], uid_of(view.group)))
    marks: dict[str, str] = view.status.get("controlledResources") or {}
    prefix = wellknown.CONTROLLED_PLUGIN.format(name="")
    kept = {key: value for key, value in marks.items() if not key.startswith(prefix)}
    if kept != marks and not has_kills and not view.counts.terminating:
        objects = tuple(
            each for plugin in plugins_of(view.job) for each in plugin.objects(view.job)
        )
        if objects:
            effects.append(DropObjects(objects))
    else:
        kept = marks
    patch = status_patch(view, controlled=kept)
    if patch is not None:
        effects.append(SetStatus(patch, is_urgent=False))
    return effects
