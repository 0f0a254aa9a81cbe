"""Writing the plan at the end of a cycle: binds, evictions, status and events as effects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from hekla.scheduler.explain.status import group_effects, queue_effects
from hekla.scheduler.framework import hooks
from hekla.scheduler.framework.plan import PREEMPTING, Bind, Effect, Event, Evict
from hekla.scheduler.framework.tiers import FAILED
from hekla.scheduler.framework.verdict import Gate, Verdict, shown_job
from hekla.scheduler.session.session import Session
from hekla.scheduler.state.model import Job, Task
from hekla.scheduler.state.operation import Operation
from hekla.scheduler.state.status import ALLOCATED, PENDING, PIPELINED, RELEASING

PODS_NAMED: Final = 3


def write_plan(session: Session) -> None:
    """Write everything that a session decided to its plan."""
    plan = session.plan
    annotations, unbindable = _bind_annotations(session)
    for operation in session.operations:
        for task in operation.tasks:
            if operation.to == PIPELINED:
                plan.pipelined[task.uid] = task.node_name
            elif operation.is_committed and operation.job.key not in unbindable:
                plan.effects.append(_effect(operation, task, annotations.get(task.uid)))
    for job in session.jobs:
        if not job.has_group and job.by_status[PENDING]:
            session.verdicts.explain(_without_group(job))
    plan.effects += group_effects(session)
    plan.effects += queue_effects(session)
    plan.effects += eviction_events(session)
    plan.effects += session.events
    plan.failures = session.tiers.failures
    plan.timings_s.update(session.tiers.timings_s)
    plan.considered = len(session.jobs)


def write_queue_metrics(session: Session) -> None:
    """Write what plugins computed for queues to the plan, for the metrics endpoint."""
    for answer in session.tiers.each(hooks.queue_metrics):
        session.plan.queues.update(answer)


def _bind_annotations(session: Session) -> tuple[dict[str, Mapping[str, str]], set[str]]:
    """Return the annotations to write with each binding by uid, and the jobs not to bind.

    A job is not bound if an essential plugin fails to give its annotations.
    """
    annotations: dict[str, Mapping[str, str]] = {}
    unbindable: set[str] = set()
    for call in session.tiers.calls(hooks.bind_annotations):
        for operation in session.operations:
            if operation.to != ALLOCATED or not operation.is_committed:
                continue
            answers = session.tiers.call(
                call, hooks.bind_annotations, operation.tasks, operation.index
            )
            if answers is FAILED:
                if call[0].essential:
                    unbindable.add(operation.job.key)
                continue
            for task, answer in zip(operation.tasks, answers or (), strict=False):
                if answer:
                    known = annotations.get(task.uid)
                    annotations[task.uid] = {**known, **answer} if known else answer
    return annotations, unbindable


def _without_group(job: Job) -> Verdict:
    pods = job.count(PENDING)
    named = "1 pod names it" if pods == 1 else f"{pods} pods name it"
    return Verdict(
        job.key,
        Gate.GROUP_MISSING,
        f"PodGroup {job.name!r} of namespace {job.namespace!r} does not exist, and {named}",
        change=f"create PodGroup {job.name!r}, or create the pods again without naming it",
    )


def _effect(operation: Operation, task: Task, annotations: Mapping[str, str] | None) -> Effect:
    job = operation.job.key
    if operation.to == ALLOCATED:
        return Bind(task.namespace, task.name, task.uid, task.node_name, job, annotations or {})
    return Evict(
        task.namespace,
        task.name,
        task.uid,
        task.node_name,
        operation.reason,
        job,
        _describe(operation.job, operation.preemptor),
    )


def _describe(victim: Job, preemptor: Job | None) -> str:
    """Describe the preemptor to the owner of a victim: the job, and the rule by which it is."""
    if preemptor is None:
        return ""
    return f"job {shown_job(preemptor.key)}: {_rule(victim, preemptor)}"


def _rule(victim: Job, preemptor: Job) -> str:
    name = shown_job(victim.key)
    if preemptor.queue_name != victim.queue_name:
        return (
            f"its queue {preemptor.queue_name!r} uses less than it deserves, and queue "
            f"{victim.queue_name!r} of job {name} has more"
        )
    if preemptor.priority != victim.priority:
        return f"its priority {preemptor.priority} is above {victim.priority} of job {name}"
    if preemptor is victim:
        return "its tasks of higher priority come first"
    return f"it comes before {name} in queue {preemptor.queue_name!r}"


def eviction_events(session: Session) -> list[Effect]:
    """Return Events on the PodGroups of preemptors: which pods are evicted for them, and why."""
    evicted: dict[tuple[str, str], tuple[Operation, list[str]]] = {}
    for operation in session.operations:
        if operation.to == RELEASING and operation.is_committed and operation.preemptor is not None:
            key = (operation.job.key, operation.preemptor.key)
            evicted.setdefault(key, (operation, []))[1].extend(t.name for t in operation.tasks)
    events: list[Effect] = []
    for operation, names in evicted.values():
        victim, preemptor = operation.job, operation.preemptor
        assert preemptor is not None
        if preemptor.has_group:
            rule = f"{operation.reason}: {_rule(victim, preemptor)}"
            text = f"evicts {_listed(sorted(names))} of job {shown_job(victim.key)} ({rule})"
            about = (preemptor.namespace, preemptor.name, preemptor.uid)
            events.append(Event("PodGroup", *about, "Normal", PREEMPTING, text))
    return events


def _listed(names: list[str]) -> str:
    """Return `pod a`, or `5 pods: a, b, c and 2 more`."""
    if len(names) == 1:
        return f"pod {names[0]}"
    more = f" and {len(names) - PODS_NAMED} more" if len(names) > PODS_NAMED else ""
    return f"{len(names)} pods ({', '.join(names[:PODS_NAMED])}{more})"
