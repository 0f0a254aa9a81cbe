"""The status of PodGroups, pods and queues at the end of a cycle.

Status is a function of what exists. A write is planned only where the object has another status.
Unlike in Volcano, an `Unschedulable` condition becomes False once the gang is placed, and a group
that was not enqueued has its reason in a condition too, not only in an event.
"""

from __future__ import annotations

import numpy as np

from hekla.api.wellknown import ROOT_QUEUE, PodGroupPhase, PodReason
from hekla.scheduler.explain.attempts import gang_runs, precheck
from hekla.scheduler.framework import hooks
from hekla.scheduler.framework.plan import (
    Condition,
    Effect,
    Event,
    SetGroupStatus,
    SetPodCondition,
    SetQueueStatus,
)
from hekla.scheduler.framework.verdict import Gate, Verdict
from hekla.scheduler.session.session import Session
from hekla.scheduler.state.changes import GroupWritten, condition_rows
from hekla.scheduler.state.dimensions import is_bytes
from hekla.scheduler.state.model import Job, Queue, Task
from hekla.scheduler.state.queue_tree import descendants, lineage
from hekla.scheduler.state.status import (
    ALLOCATED_CLASS,
    BOUND,
    FAILED,
    PENDING,
    PIPELINED,
    RELEASING,
    RUNNING,
    SUCCEEDED,
)
from hekla.units.quantity import Quantity

UNSCHEDULABLE = "Unschedulable"
SCHEDULED = "Scheduled"
NOT_ENOUGH_RESOURCES = "NotEnoughResources"
READY_REASON = "tasks in gang are ready to be scheduled"
MAX_MESSAGE = 1024
_NOT_FOR_AUTOSCALERS = (
    Gate.QUEUE_MISSING,
    Gate.QUEUE_CLOSED,
    Gate.INVALID_REQUESTS,
    Gate.BACKED_OFF,
)
_HAS_RUN = (PodGroupPhase.RUNNING, PodGroupPhase.UNKNOWN, PodGroupPhase.COMPLETED)


def group_effects(session: Session) -> list[Effect]:
    """Return the status writes for every job of the session, in order of their keys."""
    effects: list[Effect] = []
    for job in session.jobs:
        if job.has_group:
            verdict = _final_verdict(session, job)
            effects += _group(session, job, verdict)
            effects += _pods(session, job, verdict)
    return effects


def queue_effects(session: Session) -> list[Effect]:
    """Return writes of `status.allocated` for queues that changed, and for their ancestors.

    A queue whose last job was deleted is among those that changed.
    """
    queues = session.cluster.queues
    touched: dict[str, Queue] = {}
    for start in {
        *session.cluster.job_table.changed_queues,
        *(job.queue_name for job in session.jobs),
    }:
        queue = queues.get(start)
        while queue is not None and queue.name not in touched:
            touched[queue.name] = queue
            parent = queue.parent or (ROOT_QUEUE if queue.name != ROOT_QUEUE else "")
            queue = queues.get(parent)
    effects: list[Effect] = []
    for name in sorted(touched):
        family = descendants(name, queues)
        pods = sum(queues[each].allocated_pods for each in family)
        vector_r = sum(
            (queues[each].allocated_r for each in family), np.zeros_like(session.total_r)
        )
        amounts = {
            resource: _quantity(resource, float(vector_r[row]))
            for row, resource in enumerate(session.dimensions.names)
            if vector_r[row] or row < 2
        }
        if pods:
            amounts["pods"] = str(pods)
        if (touched[name].allocated_written or None) != (amounts if pods else None):
            effects.append(SetQueueStatus(name, amounts if pods else {}))
    return effects


def _quantity(resource: str, amount: float) -> str:
    """Format an amount as Volcano does: bytes in binary units, the rest in thousandths."""
    whole = int(amount)
    return str(
        Quantity.from_int(whole, binary=True) if is_bytes(resource) else Quantity.from_milli(whole)
    )


def _final_verdict(session: Session, job: Job) -> Verdict | None:
    """Return the verdict on a job; jobs that no action visited get one here."""
    known = session.plan.verdicts.get(job.key)
    if known is None and (job.is_pending or _waits(job)):
        known = precheck(session, job)
        if known is None and all(task.is_gated for task in job.by_status[PENDING].values()):
            gated = len(job.by_status[PENDING])
            if gated:
                held = "task is" if gated == 1 else "tasks are"
                message = f"{gated} {held} held by scheduling gates"
                known = Verdict(job.key, Gate.GATED, message, change="remove the gates")
        if known is None and _waits(job) and not job.is_pending:
            known = Verdict(job.key, Gate.ORDERING, "other jobs go first")
        if known is not None:
            session.verdicts.explain(known)
    return known


def _waits(job: Job) -> bool:
    return bool(job.by_status[PENDING])


def _group(session: Session, job: Job, verdict: Verdict | None) -> list[Effect]:
    conditions = {c.type: (c.status, c.reason, c.message) for c in job.conditions}
    wanted: dict[str, tuple[str, str, str]] = {}
    is_unschedulable = False
    message = ""
    if job.tasks and (gang_runs(session, job) or (verdict is None and session.job_ready(job))):
        wanted[SCHEDULED] = ("True", READY_REASON, "")
        if conditions.get(UNSCHEDULABLE, ("",))[0] == "True":
            wanted[UNSCHEDULABLE] = ("False", READY_REASON, "")
    elif not _has_ended(job) and (job.tasks or verdict is not None):
        is_unschedulable = bool(job.tasks) and not session.job_ready(job)
        message = _message(job, verdict)
        wanted[UNSCHEDULABLE] = ("True", NOT_ENOUGH_RESOURCES, message)
        if conditions.get(SCHEDULED, ("",))[0] == "True":
            wanted[SCHEDULED] = ("False", NOT_ENOUGH_RESOURCES, "")
    phase = _phase(job, is_unschedulable)
    counts = (job.count(RUNNING), job.count(SUCCEEDED), job.count(FAILED))
    changed = {kind: value for kind, value in wanted.items() if conditions.get(kind) != value}
    domain = _domain(session, job)
    if phase != job.phase and _needs_another_cycle(session, job, phase):
        session.wake_at_once()
    is_written = phase == session.phase_before(job) and counts == job.counts_written
    if is_written and not changed and domain is None:
        return []
    kept = [
        Condition(c.type, c.status, c.reason, c.message)
        for c in job.conditions
        if c.type not in changed
    ]
    kept += [Condition(kind, *value) for kind, value in sorted(changed.items())]
    effects: list[Effect] = [
        SetGroupStatus(job.namespace, job.name, job.uid, phase, *counts, tuple(kept), domain)
    ]
    if UNSCHEDULABLE in changed and changed[UNSCHEDULABLE][0] == "True":
        effects.append(_event(job, "Warning", UNSCHEDULABLE, message))
    elif SCHEDULED in changed and changed[SCHEDULED][0] == "True":
        effects.append(_event(job, "Normal", SCHEDULED, "pod group is ready"))
    return effects


def _domain(session: Session, job: Job) -> str | None:
    """Return the HyperNode that contains all members, if the PodGroup does not have it yet.

    It stays when all members are gone: new members are placed there again if possible.
    """
    is_close = job.topology is not None or any(policy.topology for policy in job.policies)
    if not is_close or not session.tiers.has(hooks.domains):
        return None
    nodes, tree = session.cluster.nodes, session.cluster.tree
    members = (task for status in ALLOCATED_CLASS for task in job.by_status[status].values())
    places = {node.index for each in members if (node := nodes.get(each.node_name)) is not None}
    places.discard(-1)  # nodes that are not known yet
    if not places or not tree:
        return None
    number = tree.around(np.asarray(sorted(places)))
    domain = "" if number == tree.root else tree.name(number)
    return None if domain == job.domain else domain


def _event(job: Job, kind: str, reason: str, message: str) -> Event:
    is_normal = kind == "Normal"
    return Event(
        "PodGroup",
        job.namespace,
        job.name,
        job.uid,
        "Normal" if is_normal else "Warning",
        reason,
        message,
    )


def _has_ended(job: Job) -> bool:
    """Tell whether no task is pending and enough members have run."""
    scheduled = job.count(BOUND, RUNNING, SUCCEEDED, FAILED) + _releasing_count(job)
    return scheduled >= job.min_member and not job.count(PENDING, PIPELINED) and bool(job.tasks)


def _releasing_count(job: Job) -> int:
    return sum(1 for task in job.by_status[RELEASING].values() if task.node_name)


def _message(job: Job, verdict: Verdict | None) -> str:
    if not job.tasks:
        return _bounded(str(verdict)) if verdict is not None else ""
    fitting = verdict.fitting if verdict is not None and verdict.fitting else job.ready_count
    short = max(job.min_member - fitting, 0)
    why = str(verdict) if verdict is not None else _missing(job)
    members = max(len(job.tasks), job.min_member)
    return _bounded(f"{short}/{members} tasks in gang unschedulable: {why}")


def _missing(job: Job) -> str:
    """Return how many pods a gang lacks of which none is pending, for example while it restarts."""
    exist = "pod exists" if len(job.tasks) == 1 else "pods exist"
    gone = job.count(RELEASING)
    ending = f", {gone} of them terminating" if gone else ""
    return f"{len(job.tasks)} {exist}{ending}, and the gang needs {job.min_member}"


def _phase(job: Job, is_unschedulable: bool) -> str:
    if not job.tasks and job.min_member == 0 and job.phase in _HAS_RUN:
        # No member is required and all are gone. Volcano also completes a group whose pods were
        # never created; here that group stays pending.
        return PodGroupPhase.COMPLETED
    if job.count(RUNNING) and is_unschedulable:
        return PodGroupPhase.UNKNOWN
    scheduled = job.count(BOUND, RUNNING, SUCCEEDED, FAILED) + _releasing_count(job)
    if job.tasks and scheduled and scheduled >= job.min_member:
        is_over = job.count(SUCCEEDED, FAILED) == scheduled
        return PodGroupPhase.COMPLETED if is_over else PodGroupPhase.RUNNING
    return PodGroupPhase.INQUEUE if job.phase == PodGroupPhase.INQUEUE else PodGroupPhase.PENDING


def _needs_another_cycle(session: Session, job: Job, phase: str) -> bool:
    """Tell whether a new phase leaves something to decide for which no event will come.

    A job whose members are all gone must be enqueued again. A job that counts as run without having
    been enqueued may have pods to place. A job that no longer reserves lets others be enqueued.
    """
    is_pending = phase == PodGroupPhase.PENDING
    if is_pending != job.is_pending:
        return is_pending or _waits(job)
    was_enqueued = session.phase_before(job) != job.phase  # in this cycle
    has_reserved = was_enqueued or bool(job.inqueue_r.any())
    return has_reserved and any(each.is_pending for each in session.jobs)


def _pods(session: Session, job: Job, verdict: Verdict | None) -> list[Effect]:
    """Return writes of PodScheduled=False for pending pods that do not have it yet.

    A gang whose pods are still being created has the reason in its PodGroup only: the text changes
    with every new pod and would be written to all of them.
    """
    if verdict is None or verdict.gate == Gate.NOT_ENOUGH_TASKS:
        return []
    effects: list[Effect] = []
    waiting = [*job.by_status[PENDING].values(), *job.by_status[PIPELINED].values()]
    # Not the whole verdict: resource holders change often, and a gang has many pods.
    why = _bounded(verdict.histogram or verdict.message)
    reason = _pod_reason(session, job, verdict)
    for task in sorted(waiting, key=lambda task: task.key):
        if task.is_gated:
            continue  # the API server sets this condition
        nominated = _nomination(session, task)
        message = _pipelined_message(task, nominated) if task.status == PIPELINED else why
        is_said = task.condition == ("False", reason, message)
        if not is_said or task.nominated_node != nominated:
            effects.append(
                SetPodCondition(task.namespace, task.name, task.uid, reason, message, nominated)
            )
            if task.name == verdict.task:
                effects.append(
                    Event(
                        "Pod",
                        task.namespace,
                        task.name,
                        task.uid,
                        "Warning",
                        "FailedScheduling",
                        message,
                    )
                )
    return effects


def _pod_reason(session: Session, job: Job, verdict: Verdict) -> str:
    """Return the reason of PodScheduled=False.

    For `Unschedulable`, autoscalers add nodes. A pod that more nodes would not help has the gate
    instead.
    """
    if verdict.gate in _NOT_FOR_AUTOSCALERS:
        return verdict.gate
    if verdict.gate in (Gate.QUEUE_SHARE, Gate.NOT_ENQUEUED) and (
        _is_at_capability(session, job, verdict) or _has_free_node(session, job)
    ):
        return verdict.gate
    return PodReason.UNSCHEDULABLE


def _is_at_capability(session: Session, job: Job, verdict: Verdict) -> bool:
    """Tell whether a capability that somebody set stops the job, and not the cluster's size."""
    for queue in lineage(job.queue, session.cluster.queues):
        for blocked in verdict.blocked:
            row = session.dimensions.row(blocked.resource)
            if row is not None and 0 < queue.capability_r[row] < blocked.used + blocked.asked:
                return True
    return False


def _has_free_node(session: Session, job: Job) -> bool:
    tasks = [task for task in job.by_status[PENDING].values() if task.is_schedulable]
    return bool(tasks) and session.reasons(tasks[0]).rejected < len(session.nodes)


def _nomination(session: Session, task: Task) -> str:
    """Return the nominated node of a pipelined task; empty once that plan no longer holds."""
    is_pipelined = task.status == PIPELINED
    if is_pipelined and (task.uid in session.nominated or task.nominated_node == task.node_name):
        return task.node_name
    return ""


def _pipelined_message(task: Task, nominated: str) -> str:
    """Return the message of a pipelined pod. Only a nominated node is stable enough to name."""
    where = f" to {nominated}" if nominated else ""
    return (
        f"Pod {task.key} can possibly be assigned{where}, "
        "once resource is released and minAvailable is satisfied"
    )


def _bounded(text: str) -> str:
    return text if len(text) <= MAX_MESSAGE else text[: MAX_MESSAGE - 1] + "…"


def group_written(effect: SetGroupStatus) -> GroupWritten:
    """Return the change of state that counts once a status was decided."""
    return GroupWritten(
        job=f"{effect.namespace}/{effect.group}",
        phase=effect.phase,
        counts=(effect.running, effect.succeeded, effect.failed),
        domain=effect.domain,
        conditions=condition_rows(effect.conditions),
    )
