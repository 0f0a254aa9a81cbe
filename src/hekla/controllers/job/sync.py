"""What a job needs done now: `next_step`, a pure function of what exists.

    effects = next_step(JobView(job, now, group, pods, commands))

The order of asking: a command of the user; then what happened, by policy; then the plain upkeep of
the phase. Each call decides one thing, and the record of it brings the next call.

What a newcomer gets wrong: the status is written *before* the pods are killed. It is the record of
the decision; the kills follow from it, here or after a restart. Only targeted restarts mark pods
first: the record has no room for which ones.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Final

from hekla.api import wellknown
from hekla.api.wellknown import Action, JobEvent, JobPhase, JobReason, PodGroupPhase
from hekla.controllers.command import signature
from hekla.controllers.job import upkeep
from hekla.controllers.job.effects import (
    DeleteGroup,
    DeletePod,
    DropObjects,
    Effect,
    FinishCommand,
    MarkPod,
    PatchGroup,
    PatchJob,
    SetStatus,
    Tell,
    Wake,
)
from hekla.controllers.job.events import (
    EVICTED_PODS,
    Happening,
    happenings,
    is_back,
    partition_of,
    remembered_evictions,
)
from hekla.controllers.job.plugins import plugins_of
from hekla.controllers.job.policies import verdict_on
from hekla.controllers.job.state import TARGETED, Primitive, Step, step_for
from hekla.controllers.job.status import status_patch
from hekla.controllers.job.view import JobView, is_finished, task_of, version_of
from hekla.controllers.objects import annotations_of, created_at, is_deleting, key_of, uid_of
from hekla.units.objects import Object

__all__ = ["next_step"]

_ALIVE: Final = (JobPhase.PENDING, JobPhase.RUNNING)
_ENDED: Final = JobPhase.FINISHED | {JobPhase.ABORTED}
# Of a job that is being restarted only what a restart can mend is heard; the rest waits.
_HEARD_WHILE_RESTARTING: Final = (
    JobEvent.POD_FAILED,
    JobEvent.TASK_FAILED,
    JobEvent.TASK_COMPLETED,
)


def next_step(view: JobView) -> list[Effect]:
    """What to do about a job, given everything that exists of it."""
    if is_deleting(view.job):
        return []
    effects: list[Effect] = []
    for command in sorted(view.commands, key=lambda each: (created_at(each), key_of(each))):
        if _is_done(view, command):
            effects.append(FinishCommand(command))
            continue
        acted = _by_command(view, command)
        effects += [*acted, FinishCommand(command)]
        if acted:
            return effects
    acted, wake = _by_policy(view)
    return effects + (acted or _stay(view)) + wake


# Commands


def _is_done(view: JobView, command: Object) -> bool:
    """Whether the record shows that the command was carried out before we could delete it."""
    message = (view.status.get("state") or {}).get("message") or ""
    return signature(command) in message


def _by_command(view: JobView, command: Object) -> list[Effect]:
    action = str(command.get("action") or "")
    told = command.get("message") or command.get("reason") or ""
    why = f"{action} by {signature(command)}" + (f": {told}" if told else "")
    acted = _act(view, action, [], why)
    if acted:
        acted.append(Tell("Normal", JobReason.COMMAND_ISSUED, f"{action}: job carries it out"))
    return acted


# Policies


def _by_policy(view: JobView) -> tuple[list[Effect], list[Effect]]:
    """What policies make of what happened, and when to ask again."""
    if view.phase not in (*_ALIVE, JobPhase.RESTARTING) or not _has_policies(view):
        return [], []
    chosen, fired, wake = "", [], []
    waiting_evictions: list[Happening] = []
    for happening in happenings(view):
        if view.phase == JobPhase.RESTARTING and happening.event not in _HEARD_WHILE_RESTARTING:
            continue
        verdict = verdict_on(happening, view.job, view.tasks)
        if verdict is None or verdict.action == Action.SYNC_JOB:
            continue
        left_s = happening.since + verdict.timeout_s - view.now if verdict.timeout_s else 0.0
        if left_s > 0:
            wake.append(left_s)
            if happening.event == JobEvent.POD_EVICTED:
                waiting_evictions.append(happening)
        elif not chosen or verdict.action == chosen:
            chosen = verdict.action
            fired.append(happening)
    effects: list[Effect] = []
    if chosen:
        why = f"{fired[0].told}; by policy: {chosen}"
        effects = _act(view, chosen, fired, why)
        if effects:
            effects.append(Tell("Normal", JobReason.EXECUTE_ACTION, why))
    remember = _remember_evictions(view, waiting_evictions)
    return remember + effects if effects else [], (
        [*([] if effects else remember), *([Wake(min(wake))] if wake else [])]
    )


def _has_policies(view: JobView) -> bool:
    """Most jobs have none; then nothing that happens needs looking for."""
    return bool(view.spec.get("policies")) or any(task.get("policies") for task in view.tasks)


def _remember_evictions(view: JobView, waiting: list[Happening]) -> list[Effect]:
    """A deleted pod leaves no time behind: it is written down while a timeout runs."""
    known = remembered_evictions(view.job)
    alive = view.phase in _ALIVE
    wanted = {name: at for name, at in known.items() if alive and not is_back(view, name)}
    for happening in waiting:
        wanted.setdefault(happening.pod, happening.since)
    if wanted == known:
        return []
    text = json.dumps(wanted, sort_keys=True) if wanted else None
    return [PatchJob({"metadata": {"annotations": {EVICTED_PODS: text}}})]


# Acting


def _act(view: JobView, action: str, happened: list[Happening], why: str) -> list[Effect]:
    """Carry out an action; nothing if it changes nothing in this state."""
    step = step_for(view.phase, action, view.facts)
    if step.primitive is Primitive.KILL_TARGET:
        return _restart_part(view, step, action, happened, why)
    if step.to is None and step.primitive is not Primitive.KILL_ALL:
        return []
    if step.to is None and not any(view.is_current(pod) for pod in view.pods):
        return []  # restarting already, and nothing new is there to be killed
    spent = step.to == JobPhase.FAILED
    if spent:
        why = f"{why}, but all {view.facts.max_retry} retries are spent"
    patch = status_patch(
        view,
        phase=step.to or view.phase,
        reason=action,
        message=why,
        version=view.version + 1,
        retry_count=view.retry_count + (1 if step.is_retry else 0),
    )
    assert patch is not None, "a version that grows is a change"
    soft = step.primitive is Primitive.KILL_SOFT
    return [SetStatus(patch), *_kills(pod for pod in view.pods if not (soft and is_finished(pod)))]


def _restart_part(
    view: JobView, step: Step, action: str, happened: list[Happening], why: str
) -> list[Effect]:
    """Restart the pods that the events point at. The ones they do not name are marked first."""
    targets = _targets(view, action, happened)
    if action == Action.RESTART_PARTITION and not targets:
        return []
    named = {happening.pod for happening in happened}
    effects: list[Effect] = [
        MarkPod(pod)
        for pod in targets
        if pod["metadata"]["name"] not in named and view.is_current(pod)
    ]
    if step.to is not None:
        patch = status_patch(
            view,
            phase=step.to,
            reason=action,
            message=why,
            retry_count=view.retry_count + 1,
        )
        assert patch is not None, "a retry count that grows is a change"
        effects.append(SetStatus(patch))
    return effects + _kills(targets)


def _targets(view: JobView, action: str, happened: list[Happening]) -> list[Object]:
    found: dict[str, Object] = {}
    for happening in happened:
        for pod in view.pods:
            if is_deleting(pod) or task_of(pod) != happening.task:
                continue
            name = pod["metadata"]["name"]
            if action == Action.RESTART_TASK or name == happening.pod:
                found[name] = pod
            elif action == Action.RESTART_PARTITION:
                mine = upkeep.partition(view, happening.task, happening.index)
                if mine is not None and partition_of(pod) == mine:
                    found[name] = pod
    return list(found.values())


def _kills(pods: Iterable[Object]) -> list[Effect]:
    return [DeletePod(pod) for pod in pods if not is_deleting(pod)]


# Staying in a phase


def _stay(view: JobView) -> list[Effect]:
    if view.phase in _ALIVE:
        return upkeep.alive(view)
    if view.phase == JobPhase.RESTARTING:
        return _restarting(view)
    effects = _kills(pod for pod in view.pods if not is_finished(pod))
    if view.phase in _ENDED:
        return effects + _clear_away(view, bool(effects))
    step = step_for(view.phase, Action.SYNC_JOB, view.facts)
    follow = step.rule(view.facts, view.counts) if step.rule and not effects else None
    return effects + _record(view, follow)


def _restarting(view: JobView) -> list[Effect]:
    effects = _kills(_doomed(view))
    group = view.group
    if group is not None and (group.get("status") or {}).get("phase") == PodGroupPhase.UNKNOWN:
        # The state that may have caused the restart ends with it, or it would cause the next.
        effects.append(
            PatchGroup(group["metadata"]["name"], {"status": {"phase": PodGroupPhase.INQUEUE}})
        )
    step = step_for(view.phase, Action.SYNC_JOB, view.facts)
    follow = step.rule(view.facts, view.counts) if step.rule and not effects else None
    return effects + _remember_evictions(view, []) + _record(view, follow)


def _doomed(view: JobView) -> Iterable[Object]:
    """The pods that a restart in progress still has to remove."""
    for pod in view.pods:
        if wellknown.OUT_OF_SYNC in annotations_of(pod) or (
            version_of(pod) < view.version and not _outlives_restart(view, pod)
        ):
            yield pod


def _outlives_restart(view: JobView, pod: Object) -> bool:
    return view.reason in TARGETED or (view.reason == Action.RESUME_JOB and is_finished(pod))


def _record(view: JobView, phase: str | None) -> list[Effect]:
    patch = status_patch(view, phase=phase)
    return [] if patch is None else [SetStatus(patch, is_urgent=phase is not None)]


def _clear_away(view: JobView, has_kills: bool) -> list[Effect]:
    """A job that has ended gives up its group and its plugins' objects, and keeps its numbers."""
    effects: list[Effect] = _remember_evictions(view, [])
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
