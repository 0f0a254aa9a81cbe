"""Verdicts on jobs that an action tried to place: what stopped them, and what would help."""

from __future__ import annotations

from dataclasses import replace

from hekla.scheduler.explain.advice import advice
from hekla.scheduler.explain.limits import (
    above_capability,
    absence,
    absent,
    change_for,
    limit_of,
)
from hekla.scheduler.framework import hooks
from hekla.scheduler.framework.tiers import FAILED
from hekla.scheduler.framework.verdict import Blocked, Gate, Verdict, shown_job
from hekla.scheduler.placement.reasons import RESERVED, Reasons
from hekla.scheduler.session.session import Session
from hekla.scheduler.state.dimensions import FloatArray, show_amount
from hekla.scheduler.state.model import Job, Queue, Task
from hekla.scheduler.state.status import PENDING, PIPELINED
from hekla.scheduler.state.topology import Choice


class Attempt:
    """The result of an attempt to place a job."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.failed_roles: set[str] = set()
        self.is_exhausted = True
        self.refused: Task | None = None
        self.unplaced: Task | None = None
        self.fitting = 0
        self.wanted = 0
        self.reasons = Reasons()
        self.choice: Choice | None = None
        """The network domains that were tried, if the topology is what stopped the job."""

    def refused_by_queue(self, task: Task) -> None:
        self.refused = self.refused or task
        self.fitting = self._fitting(task)

    def no_node_for(
        self, session: Session, task: Task, *, fitting: int = 0, wanted: int = 0
    ) -> None:
        """Record that a task found no node, or that only `fitting` of `wanted` tasks fit."""
        self.failed_roles.add(task.role)
        if self.unplaced is None:
            self.unplaced = task
            self.reasons = session.reasons(task, filled=wanted > 0)
            self.wanted = wanted
        self.fitting = self._fitting(task) + fitting

    def no_domain_for(self, session: Session, task: Task, choice: Choice) -> None:
        """Record that the job fits in no network domain that its topology allows."""
        self.failed_roles.add(task.role)
        self.unplaced, self.choice = task, choice
        self.reasons = session.reasons(task)
        self.wanted = choice.missing
        best = max((fitting for _, _, fitting in choice.lacking), default=0)
        self.fitting = self._fitting(task) + min(best, choice.missing)

    def takes_over(self, other: Attempt) -> None:
        """Take over what stopped a sub-group, unless something stopped the job before."""
        if self.unplaced is None and self.refused is None:
            self.__dict__.update(other.__dict__)

    def _fitting(self, task: Task) -> int:
        """Return how many members have a place; tasks without requests fit until one does not."""
        job = self.job
        best_effort = 0 if task.is_best_effort else job.pending_best_effort
        return job.ready_count + best_effort + job.waiting_count

    def cannot_become_ready(self, is_surplus: bool) -> bool:
        """Tell whether placing more tasks is of no use: a needed role found no node."""
        job = self.job
        if self.unplaced is None or is_surplus:
            return False
        if job.min_member >= len(job.tasks):
            return True
        if not job.checks_roles:
            left = sum(
                1 for task in job.by_status[PENDING].values() if task.role not in self.failed_roles
            )
            return job.ready_count + job.waiting_count + left < job.min_member
        return any(
            job.role_ready(role) + job.role_count(role, PIPELINED)
            < job.min_task_member.get(role, 0)
            for role in self.failed_roles
        )


def precheck(session: Session, job: Job) -> Verdict | None:
    """Return the verdict that stops a job before nodes are considered, or None."""
    if job.key in session.skipped:
        return Verdict(job.key, Gate.BACKED_OFF, session.skipped[job.key])
    if job.queue is None:
        return Verdict(
            job.key,
            Gate.QUEUE_MISSING,
            f"queue {job.queue_name!r} does not exist",
            change=f"create queue {job.queue_name!r}, or name another in the PodGroup",
        )
    wrong = invalid_requests(job)
    if wrong:
        return Verdict(job.key, Gate.INVALID_REQUESTS, wrong, change="correct the pods' requests")
    invalid = session.tiers.invalid(job)
    if invalid is not None:
        gate = Gate.GATED if any(task.is_gated for task in job.tasks.values()) else None
        change = "remove the gates" if gate else "create the missing pods, or lower the minimum"
        return Verdict(job.key, gate or Gate.NOT_ENOUGH_TASKS, invalid.message, change=change)
    return None


def invalid_requests(job: Job) -> str:
    """Return what is wrong with the requests of a job's pending pods, for the first by name."""
    wrong = [task for task in job.by_status[PENDING].values() if task.klass.problems]
    if not wrong:
        return ""
    first = min(wrong, key=lambda task: task.name)
    return f"pod {first.name} has invalid requests: {'; '.join(first.klass.problems)}"


def explain_overused(session: Session, job: Job, plugin: str) -> None:
    """Write the verdict of a job that is not tried, as its queue is overused."""
    queue = job.queue
    assert queue is not None
    limit_r = _queue_limit(session, plugin, queue)
    asked = [
        Blocked(name, float(job.pending_r[r]), float(limit_r[r]), float(queue.claimed_r[r]))
        for r, name in enumerate(session.dimensions.names)
        if limit_r is not None and job.pending_r[r] > 0
    ]
    blocked = [each for each in asked if each.used + each.asked > each.allowed] or asked
    if missing := absent(session, (each.resource for each in blocked)):
        message, change = absence(session, missing)
    elif not blocked:
        message = f"queue {queue.name!r} uses its share ({plugin})"
        change = f"wait for jobs of queue {queue.name!r} to end"
    else:
        limit = limit_of(session, queue, blocked[0].resource, blocked[0].allowed)
        message = {
            "share": f"queue {queue.name!r} uses its share ({plugin})",
            "capability": f"queue {limit.queue!r} uses its capability",
            "cluster": f"queue {queue.name!r} uses all {blocked[0].resource} of the cluster",
        }[limit.kind]
        change = change_for(session, limit, blocked[0])
    row = session.dimensions.intern(blocked[0].resource) if blocked else 0
    session.verdicts.explain(
        Verdict(
            job.key,
            Gate.QUEUE_SHARE,
            _surplus(session, job) + message,
            blocked=tuple(
                _with_basis(session, queue, b) for b in blocked if b.resource not in missing
            ),
            needed=job.min_member,
            holders=session.verdicts.holders(job, row, queue),
            change=change,
        )
    )


def gang_runs(session: Session, job: Job) -> bool:
    """Tell whether the minimum of a job has nodes.

    A job is ready earlier: tasks without requests count as placed before they have a node.
    """
    return session.job_ready(job) and job.ready_count >= job.min_member


def _surplus(session: Session, job: Job) -> str:
    """Return the start of a message about a job whose minimum runs."""
    count = job.count(PENDING)
    noun = "task does" if count == 1 else "tasks do"
    return f"the gang runs; {count} surplus {noun} not fit; " if gang_runs(session, job) else ""


def _with_basis(session: Session, queue: Queue, blocked: Blocked) -> Blocked:
    basis = limit_of(session, queue, blocked.resource, blocked.allowed).basis
    return replace(blocked, basis=basis)


def _queue_limit(session: Session, plugin: str, queue: Queue) -> FloatArray | None:
    """Return the limit that a plugin sets for a queue, if it implements the hook."""
    for call in session.tiers.calls(hooks.queue_limit):
        if call[0].name == plugin:
            limit_r = session.tiers.call(call, hooks.queue_limit, queue)
            return None if limit_r is FAILED else limit_r
    return None


def explain_attempt(session: Session, job: Job, attempt: Attempt) -> None:
    """Write the verdict of a job that was tried; none if all its tasks are placed."""
    if attempt.unplaced is None and attempt.refused is None:
        gated = sum(1 for task in job.by_status[PENDING].values() if task.is_gated)
        if session.job_ready(job):
            session.plan.verdicts.pop(job.key, None)
        elif job.count(PIPELINED) and session.job_pipelined(job):
            explain_pipelined(session, job)
        elif gated:
            held = "task that the gang needs is" if gated == 1 else "tasks that the gang needs are"
            session.verdicts.explain(
                Verdict(
                    job.key,
                    Gate.GATED,
                    f"{gated} {held} held by scheduling gates",
                    needed=job.min_member,
                    change="remove the gates",
                )
            )
        else:
            session.plan.verdicts.pop(job.key, None)
        return
    is_running = gang_runs(session, job)
    if attempt.unplaced is None and attempt.refused is not None:
        session.verdicts.explain(_refused(session, job, attempt, attempt.refused))
    elif job.count(PIPELINED) and session.job_pipelined(job) and not is_running:
        explain_pipelined(session, job)
    else:
        assert attempt.unplaced is not None
        session.verdicts.explain(_no_node(session, job, attempt, attempt.unplaced, is_running))


def explain_pipelined(session: Session, job: Job) -> None:
    """Write the verdict of a job whose tasks are pipelined."""
    pipelined = job.by_status[PIPELINED].values()
    # The text is the same in the cycle that evicts and in later ones, so it is written once.
    is_for_it = any(task.nominated_node or task.uid in session.nominated for task in pipelined)
    are, them = ("task is", "it") if len(pipelined) == 1 else ("tasks are", "them")
    until = (
        f"the pods evicted for {them} have terminated"
        if is_for_it
        else "releasing resources are free"
    )
    session.verdicts.explain(
        Verdict(
            job.key,
            Gate.VICTIMS if is_for_it else Gate.PIPELINED,
            f"{len(pipelined)} {are} placed once {until}",
            fitting=job.ready_count + len(pipelined),
            needed=job.min_member,
        )
    )


def _refused(session: Session, job: Job, attempt: Attempt, task: Task) -> Verdict:
    """Return the verdict of a job at its queue's limit: which resource, and by how much."""
    queue = job.queue
    assert queue is not None
    asked = ", ".join(
        f"{show_amount(session.dimensions.names[r], a)} {session.dimensions.names[r]}"
        for r, a in zip(task.klass.rows, task.klass.amounts, strict=True)
    )
    if not queue.is_open:
        message = f"queue {queue.name!r} is {queue.state}"
        return Verdict(job.key, Gate.QUEUE_CLOSED, message, change=f"open queue {queue.name!r}")
    blocked: list[Blocked] = []
    for limit_r in session.tiers.each(hooks.queue_limit, queue):
        for row, amount in zip(task.klass.rows, task.klass.amounts, strict=True):
            used = float(queue.allocated_r[row] + queue.pipelined_r[row])
            if used + amount > limit_r[row]:
                name = session.dimensions.names[row]
                blocked.append(Blocked(name, amount, float(limit_r[row]), used))
    blocked = blocked or above_capability(session, queue, task)
    if not blocked:
        message = f"queue {queue.name!r} takes no task of {asked}"
        return _refusal(session, job, attempt, task, message, "name another queue in the job", ())
    limit = limit_of(session, queue, blocked[0].resource, blocked[0].allowed)
    if limit.kind == "cluster":
        # A queue that deserves the whole cluster is not the limit: the cluster is too small.
        attempt.reasons = session.reasons(task)
        if attempt.reasons.rejected == len(session.nodes):
            return _no_node(session, job, attempt, task, gang_runs(session, job))
    message = {
        "share": f"queue {queue.name!r} has no share left for a task of {asked}",
        "cluster": f"queue {queue.name!r} uses all {blocked[0].resource} of the cluster",
        "capability": f"a task of {asked} would exceed the capability of queue {limit.queue!r}",
    }[limit.kind]
    change = change_for(session, limit, blocked[0])
    shown = tuple(_with_basis(session, queue, each) for each in blocked)
    return _refusal(session, job, attempt, task, message, change, shown, limit.queue)


def _refusal(
    session: Session,
    job: Job,
    attempt: Attempt,
    task: Task,
    message: str,
    change: str,
    blocked: tuple[Blocked, ...],
    limited: str = "",
) -> Verdict:
    row = session.dimensions.row(blocked[0].resource) if blocked else None
    queue = session.cluster.queues.get(limited) or job.queue
    if gang_runs(session, job):
        start = _surplus(session, job)
    else:
        start = f"{attempt.fitting}/{job.min_member} tasks fit; "
    return Verdict(
        job.key,
        Gate.QUEUE_SHARE,
        start + message,
        blocked=blocked,
        fitting=attempt.fitting,
        needed=job.min_member,
        task=task.name,
        change=change,
        holders=() if row is None else session.verdicts.holders(job, row, queue),
    )


def _domains(choice: Choice) -> str:
    """Describe the network domains that were tried, and what each lacked."""
    if choice.problem:
        return choice.problem
    text = f"{choice.total} HyperNode{'s' if choice.total != 1 else ''} of {choice.rule} "
    text += "were" if choice.total != 1 else "was"
    text += f" tried for {choice.missing} tasks"
    if choice.lacking:
        text += ", capacity is for " + ", ".join(
            f"{fitting} in {name} (tier {tier})" for name, tier, fitting in choice.lacking
        )
        more = choice.total - len(choice.numbers) - len(choice.lacking)
        text += f" and not for more in {more} others" if more > 0 else ""
    if choice.numbers:
        first = choice.tree.name(choice.numbers[0])
        text += (
            f"; {len(choice.numbers)} such as {first} have capacity, but do not meet all its rules"
        )
    return text


def _closer(session: Session, task: Task, choice: Choice) -> str:
    """Return the smallest change after which the gang fits in a domain."""
    if not choice.lacking:
        return "correct the HyperNodes, or the job's networkTopology" if choice.problem else ""
    name, _, fitting = choice.lacking[0]
    missing, names = max(choice.missing - fitting, 1), session.dimensions.names
    per_task = ", ".join(
        f"{show_amount(names[row], amount)} {names[row]}"
        for row, amount in zip(task.klass.rows, task.klass.amounts, strict=True)
    )
    return f"capacity for {missing} more task{'s' if missing > 1 else ''} of {per_task} in {name}"


def _reserved_for(session: Session, job: Job) -> str:
    """Describe the job that idle resources are reserved for."""
    first = sorted({one.job.key for one in session.reservations if one.job is not job})
    return (
        f"{shown_job(first[0])}, which has been pending for long"
        if first
        else "pods that are placed on it before"
    )


def _no_node(session: Session, job: Job, attempt: Attempt, task: Task, is_running: bool) -> Verdict:
    """Return the verdict of a job of which a task found no node."""
    prefix = "Insufficient "
    short = {reason[len(prefix) :] for reason in attempt.reasons if reason.startswith(prefix)}
    if is_running:
        gate = Gate.SURPLUS
        message = _surplus(session, job).removesuffix("; ")
    else:
        gate = Gate.GANG_SHORT if short or not attempt.reasons else Gate.NODE_FILTERS
        message = f"{attempt.fitting}/{job.min_member} tasks fit"
        if RESERVED in attempt.reasons:
            gate = Gate.ORDERING
            message += f"; idle capacity is reserved for {_reserved_for(session, job)}"
    if attempt.choice is not None:
        gate = Gate.SURPLUS if is_running else Gate.TOPOLOGY
        message += f"; {_domains(attempt.choice)}"
    missing = absent(session, short)
    if missing or not session.nodes.all:
        message += f"; {absence(session, missing)[0]}"
    blocked = _short_resources(session, attempt, task, short)
    scarce = session.dimensions.row(blocked[0].resource) if blocked else None
    total = len(session.nodes)
    return Verdict(
        job.key,
        gate,
        message,
        blocked=tuple(blocked),
        nodes=attempt.reasons,
        total_nodes=total,
        free_nodes=total - attempt.reasons.rejected,
        task=task.name,
        fitting=attempt.fitting,
        needed=job.min_member,
        change=absence(session, missing)[1]
        if missing and attempt.choice is None
        else _smallest_change(session, job, attempt, task, short),
        holders=session.verdicts.holders(job, scarce) if scarce is not None else (),
    )


def _short_resources(
    session: Session, attempt: Attempt, task: Task, short: set[str]
) -> list[Blocked]:
    """Return the insufficient resources of a task, with requested, allowed and used amounts."""
    blocked = []
    for row, amount in zip(task.klass.rows, task.klass.amounts, strict=True):
        name = session.dimensions.names[row]
        if name not in short:
            continue
        if not session.total_r[row]:
            continue  # the message says that no node has it
        offered_n, idle_n = session.columns.allocatable_rn[row], session.columns.idle_rn[row]
        if attempt.wanted:
            # The whole gang against all feasible nodes.
            basis = "the nodes that are feasible"
            feasible_n = session.placer.feasible(task)
            asked, allowed = amount * attempt.wanted, float(offered_n[feasible_n].sum())
            used = allowed - float(idle_n[feasible_n].sum())
        else:
            # The node with the most idle resources shows how far the task is from fitting.
            best = int(idle_n.argmax())
            basis = f"node {session.nodes.all[best].name}"
            asked, allowed = amount, float(offered_n[best])
            used = allowed - float(idle_n[best])
        blocked.append(Blocked(name, asked, allowed, used, basis))
    return blocked


def _smallest_change(
    session: Session, job: Job, attempt: Attempt, task: Task, short: set[str]
) -> str:
    """Return the smallest change after which the tasks fit."""
    if len(session.nodes) == 0:
        return "add a node"
    if attempt.choice is not None:
        return _closer(session, task, attempt.choice)
    names = session.dimensions.names
    per_task = ", ".join(
        f"{show_amount(names[row], amount)} {names[row]}"
        for row, amount in zip(task.klass.rows, task.klass.amounts, strict=True)
        if names[row] in short
    )
    for row, amount in zip(task.klass.rows, task.klass.amounts, strict=True):
        if names[row] in short and amount > session.largest_r[row]:
            largest = show_amount(names[row], float(session.largest_r[row]))
            return f"a node with {per_task}; the largest has {largest} {names[row]}"
    if per_task:
        missing = max(job.min_member - attempt.fitting, 1)
        return f"capacity for {missing} more task{'s' if missing > 1 else ''} of {per_task}"
    return advice(session, task, attempt.reasons)
