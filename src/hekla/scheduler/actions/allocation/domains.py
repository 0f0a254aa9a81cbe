"""Placing gangs with a network topology, and gangs made of sub-groups.

Each domain is tried in a statement that is rolled back unless the whole gang fits. Plugins choose
the domains and their order; without such a plugin, the whole cluster is the one domain. A domain
where the gang can start now is preferred to a closer one where it would be pipelined.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hekla.scheduler.actions.allocation.pending import pending_tasks
from hekla.scheduler.actions.allocation.tasks import place, place_all
from hekla.scheduler.explain.attempts import Attempt
from hekla.scheduler.framework import hooks
from hekla.scheduler.session.session import Session
from hekla.scheduler.session.statement import Statement
from hekla.scheduler.state.model import Job, Queue, Task
from hekla.scheduler.state.subgroups import SubGroup
from hekla.scheduler.state.topology import Choice, Domain


def needs_domain(session: Session, job: Job) -> bool:
    """Tell whether the members of a job are placed by network domain or sub-group."""
    return bool(job.policies) or (job.topology is not None and session.tiers.has(hooks.domains))


def has_hard_topology(session: Session, job: Job) -> bool:
    """Tell whether the job must be placed as a whole: sub-groups, or a hard topology."""
    topology = job.topology
    return needs_domain(session, job) and (
        bool(job.policies) or topology is None or topology.mode.lower() != "soft"
    )


def place_in_domains(
    session: Session, statement: Statement, job: Job, queue: Queue, most: int | None = None
) -> Attempt:
    """Place tasks as `place` does, in the first domain in which the gang fits."""
    tasks = pending_tasks(job)
    if session.job_ready(job):
        return _place_surplus(session, statement, job, queue, tasks, most)
    choice = _choice(session, job, None, tasks, max(job.needs_until_ready, 1), None)
    attempt, later = Attempt(job), None
    for domain in [None] if choice is None else choice.domains:
        with session.statement() as trial:
            attempt = _place_in(session, trial, job, queue, domain)
            if session.job_ready(job):
                statement.merge(trial)
                return attempt
            if later is None and session.job_pipelined(job):
                later = (domain,)
    if later is not None:
        attempt = _place_in(session, statement, job, queue, later[0])
    elif choice is not None and attempt.refused is None:
        attempt.no_domain_for(session, session.in_task_order(tasks)[0], choice)
    return attempt


def _place_surplus(
    session: Session,
    statement: Statement,
    job: Job,
    queue: Queue,
    tasks: list[Task],
    most: int | None,
) -> Attempt:
    """Place members beyond the minimum, as close to the others as possible."""
    choice = _choice(session, job, None, tasks, 1, None)
    attempt = Attempt(job)
    for domain in [None] if choice is None else choice.domains:
        left = None if most is None else most - statement.placed
        with session.statement() as trial:
            attempt = _place_in(session, trial, job, queue, domain, left)
            statement.merge(trial)
        if not pending_tasks(job) or attempt.refused is not None or statement.placed == most:
            return attempt
    if choice is not None and not choice.numbers:
        attempt.no_domain_for(session, session.in_task_order(tasks)[0], choice)
    return attempt


def _place_in(
    session: Session,
    statement: Statement,
    job: Job,
    queue: Queue,
    domain: Domain | None,
    most: int | None = None,
) -> Attempt:
    with session.placer.restrict_to(None if domain is None else domain.nodes):
        if not job.policies:
            return place(session, statement, job, queue, most)
    return _place_subgroups(session, statement, job, queue, domain)


# --- sub-groups -------------------------------------------------------------------------------


def _place_subgroups(
    session: Session, statement: Statement, job: Job, queue: Queue, inside: Domain | None
) -> Attempt:
    """Place sub-groups one by one, each whole or not at all; then surplus members."""
    attempt, subgroups = Attempt(job), _by_subgroup(session, job)
    is_surplus = session.job_ready(job)
    have = job.subgroup_ready(pipelined=True)
    for group, tasks in subgroups.items():
        shortfall = 0 if group is None else group.policy.size - have.get(group, 0)
        if group is None or shortfall <= 0 or len(tasks) < shortfall:
            continue
        if place_subgroup(
            session, statement, job, queue, group, tasks[:shortfall], inside, attempt
        ):
            subgroups[group] = tasks[shortfall:]
            have[group] = group.policy.size
        if not is_surplus and session.job_ready(job):
            return attempt
    for group, tasks in subgroups.items():
        if group is not None and have.get(group, 0) < group.policy.size:
            continue
        for task in tasks:
            if not is_surplus and session.job_ready(job):
                return attempt
            if not place_subgroup(session, statement, job, queue, group, [task], inside, attempt):
                break
    return attempt


def place_subgroup(
    session: Session,
    statement: Statement,
    job: Job,
    queue: Queue,
    group: SubGroup | None,
    tasks: list[Task],
    inside: Domain | None,
    attempt: Attempt,
) -> bool:
    """Place all of these tasks of one sub-group in one domain."""
    choice = None if group is None else _choice(session, job, group, tasks, len(tasks), inside)
    domains: Iterable[Domain | None] = [inside] if choice is None else choice.domains
    own = Attempt(job)
    for domain in domains:
        own = Attempt(job)
        with session.statement() as trial:
            with session.placer.restrict_to(None if domain is None else domain.nodes):
                is_placed = place_all(session, trial, queue, tasks, own)
            if is_placed:
                statement.merge(trial)
                return True
        if own.refused is not None:
            break
    if choice is not None and own.refused is None:
        own.no_domain_for(session, tasks[0], choice)
    attempt.takes_over(own)
    return False


def domains_of(
    session: Session, job: Job, group: SubGroup, tasks: list[Task], inside: Domain | None
) -> Iterable[Domain | None]:
    """Return the domains in which all of these tasks of one sub-group could be placed."""
    choice = _choice(session, job, group, tasks, len(tasks), inside)
    return [inside] if choice is None else choice.domains


def _by_subgroup(session: Session, job: Job) -> dict[SubGroup | None, list[Task]]:
    """Return the pending tasks by sub-group: first those that the job needs to be ready."""
    subgroups: dict[SubGroup | None, list[Task]] = {}
    for task in session.in_task_order(pending_tasks(job)):
        subgroups.setdefault(task.subgroup, []).append(task)
    ranks: dict[object, int] = {}
    keys: dict[SubGroup, tuple[bool, int, tuple[Any, ...]]] = {}
    for group in sorted((g for g in subgroups if g is not None), key=lambda g: g.order):
        policy = group.policy
        ranks[policy] = ranks.get(policy, 0) + 1
        keys[group] = (ranks[policy] > policy.least, job.policies.index(policy), group.order)
    ordered = sorted(keys, key=lambda group: keys[group])
    return {group: subgroups[group] for group in (*ordered, None) if group in subgroups}


def _choice(
    session: Session,
    job: Job,
    group: SubGroup | None,
    tasks: list[Task],
    missing: int,
    inside: Domain | None,
) -> Choice | None:
    found = session.tiers.first(hooks.domains, job, group, tasks, missing, inside)
    return found if isinstance(found, Choice) else None
