"""Writing the plan at the end of a cycle: binds, evictions, status and events as effects."""

from __future__ import annotations

from collections.abc import Mapping

from hekla.scheduler.explain.status import group_effects, queue_effects
from hekla.scheduler.framework import hooks
from hekla.scheduler.framework.plan import Bind, Effect, Evict
from hekla.scheduler.framework.tiers import FAILED
from hekla.scheduler.framework.verdict import Gate, Verdict
from hekla.scheduler.session.session import Session
from hekla.scheduler.state.model import Job, Task
from hekla.scheduler.state.operation import Operation
from hekla.scheduler.state.status import ALLOCATED, PENDING, PIPELINED


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
    return Verdict(
        job.key,
        Gate.GROUP_MISSING,
        f"PodGroup {job.name!r} of namespace {job.namespace!r} does not exist, "
        f"and {job.count(PENDING)} pods name it",
        change=f"create PodGroup {job.name!r}, or create the pods again without naming it",
    )


def _effect(operation: Operation, task: Task, annotations: Mapping[str, str] | None) -> Effect:
    job = operation.job.key
    if operation.to == ALLOCATED:
        return Bind(task.namespace, task.name, task.uid, task.node_name, job, annotations or {})
    return Evict(task.namespace, task.name, task.uid, task.node_name, operation.reason, job)
