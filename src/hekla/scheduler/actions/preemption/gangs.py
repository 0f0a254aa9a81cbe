"""Preemption for a whole gang, which evicts victim sets of other gangs.

Victim sets are added, the cheapest first, until the gang fits: placed with all filters and the
queue's limits in one statement. Then every victim that is not needed is dropped. A gang with a
network topology tries one domain after the other, the widest and freest first; for all others the
domain is the whole cluster.

Volcano preempts for every pending task of the job; here for the gang's minimum, as elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import compress

import numpy as np

from hekla.api.wellknown import PREEMPTABLE
from hekla.scheduler.actions.allocation.domains import domains_of, has_hard_topology
from hekla.scheduler.actions.allocation.reservation import needed
from hekla.scheduler.actions.preemption.jobs import preemptor_tasks
from hekla.scheduler.actions.preemption.victim_sets import VictimSet, in_order, victim_sets_of
from hekla.scheduler.actions.preemption.victims import (
    EvictionRule,
    FailedSearches,
    keep_their_nodes,
    nominated_beside_pods,
    victims_would_retake,
)
from hekla.scheduler.explain.attempts import explain_pipelined
from hekla.scheduler.framework import hooks
from hekla.scheduler.framework.action_arguments import MAX_DOMAINS
from hekla.scheduler.session.session import Session
from hekla.scheduler.session.statement import Statement
from hekla.scheduler.state.dimensions import EPSILON, FloatArray
from hekla.scheduler.state.model import Job, Task
from hekla.scheduler.state.subgroups import SubGroup
from hekla.scheduler.state.topology import Domain


class GangPreemption:
    """Gang preemption of one action, shared by its jobs."""

    def __init__(self, session: Session, rule: EvictionRule, *, allow_whole: bool) -> None:
        self._session = session
        self._rule = rule
        self._allow_whole = allow_whole
        self._most: int = session.config.argument(f"gang{rule.kind}", MAX_DOMAINS)
        self._domain: Domain | None = None
        """The domain that is tried now; None for the whole cluster."""
        self._failed = FailedSearches(session)

    @cached_property
    def _evictable(self) -> list[Task]:
        cluster = self._session.cluster
        return [
            task
            for node in cluster.node_table.node_list
            for task in node.tasks.values()
            if task.job is not None
            and task.is_preemptable
            and task.uid not in cluster.unevictable
            and _is_preemptable(task.job)
        ]

    def preempt_for(self, job: Job) -> None:
        """Evict for the tasks that the job needs to be ready, or evict nothing."""
        session = self._session
        tasks = needed(job, preemptor_tasks(session, job))
        if not tasks:
            return
        if not has_hard_topology(session, job) and self._failed.includes(tasks):
            session.verdicts.explain_protected(job)
            return
        kept = session.reservations.release(job)
        found: list[Domain] | None = session.tiers.first(hooks.domains_to_clear, job, tasks)
        for domain in [None] if found is None else found[: self._most]:
            self._domain = domain
            if self._preempt_in_domain(job, tasks):
                return
        session.reservations.add(kept)
        session.verdicts.explain_protected(job)
        self._failed.add(tasks)

    def _preempt_in_domain(self, job: Job, tasks: list[Task]) -> bool:
        session = self._session
        victim_sets = self._victim_sets(job, tasks)
        with session.statement() as statement:
            found = self._add_until_fits(statement, job, tasks, victim_sets)
        if found is None:
            return False
        beside = nominated_beside_pods(session)
        with session.statement() as statement:
            self._plan(statement, job, tasks, self._without_surplus(job, tasks, *found))
            if not statement.evicted:
                return True  # left to allocate, which may run after this action
            if not keep_their_nodes(session, beside):
                return False
            if victims_would_retake(session, self._rule, statement.pipelined, statement.evicted):
                return False
            statement.commit()
        explain_pipelined(session, job)
        return True

    def _without_surplus(
        self, job: Job, tasks: list[Task], victim_sets: list[VictimSet], nodes: set[str]
    ) -> list[VictimSet]:
        """Drop victims on nodes that the gang does not use, as long as the gang still fits."""
        while _size(fewer := _needed(victim_sets, nodes)) < _size(victim_sets):
            with self._session.statement() as attempt:
                if not self._plan(attempt, job, tasks, fewer):
                    break
                victim_sets, nodes = fewer, _nodes_of(attempt)
        return victim_sets

    def _victim_sets(self, job: Job, tasks: Sequence[Task]) -> list[VictimSet]:
        rule, by_job = self._rule, dict[str, list[Task]]()
        here = None if self._domain is None else set(self._domain.nodes.tolist())
        nodes = self._session.cluster.nodes
        for task in self._evictable:
            if here is not None and nodes[task.node_name].index not in here:
                continue
            if task.status in rule.statuses and rule.may_preempt(tasks[0], task):
                assert task.job is not None
                by_job.setdefault(task.job.key, []).append(task)
        jobs = self._session.cluster.jobs
        found = [
            b
            for key, tasks_of_job in by_job.items()
            for b in victim_sets_of(jobs[key], tasks_of_job)
        ]
        need_r, by_queue = _sum(tasks), rule.kind == "reclaim"
        found = in_order(self._session, found, need_r, job, by_queue=by_queue)
        found = self._allowed(found, tasks[0])
        found = [b for b in found if not b.is_whole or self._allow_whole]
        return in_order(self._session, found, need_r, job, by_queue=by_queue)

    def _allowed(self, victim_sets: list[VictimSet], task: Task) -> list[VictimSet]:
        """Return the victim sets that plugins allow: of a whole one, all or nothing."""
        flat = [victim for victim_set in victim_sets for victim in victim_set.tasks]
        votes = self._rule.votes(self._session, task, flat)
        may = {victim.uid for victim in compress(flat, votes)}
        kept = []
        for victim_set in victim_sets:
            evicted = [victim for victim in victim_set.tasks if victim.uid in may]
            if evicted and (not victim_set.is_whole or len(evicted) == len(victim_set.tasks)):
                kept.append(VictimSet(victim_set.job, evicted, victim_set.is_whole))
        return kept

    def _add_until_fits(
        self, statement: Statement, job: Job, tasks: list[Task], victim_sets: list[VictimSet]
    ) -> tuple[list[VictimSet], set[str]] | None:
        """Add victim sets until the gang fits; return these sets and the nodes that it uses."""
        need_r = _sum(tasks)
        free_r = self._free()
        chosen: list[VictimSet] = []
        tries, pause = 0, 0
        for victim_set in [None, *victim_sets]:
            if victim_set is not None:
                chosen.append(victim_set)
                for victim in victim_set.tasks:
                    statement.evict(victim, self._rule.reason, job)
                    free_r += victim.klass.request_r
            is_last = victim_set is (victim_sets[-1] if victim_sets else None)
            pause -= 1
            if (pause > 0 and not is_last) or bool(np.any(need_r >= free_r + EPSILON)):
                continue
            with self._session.statement() as attempt:
                if self._place(attempt, job, tasks):
                    return chosen, _nodes_of(attempt)
            tries += 1
            pause = tries // 4  # with many sets, try less often; surplus victims are dropped later
        return None

    def _plan(
        self, statement: Statement, job: Job, tasks: list[Task], victim_sets: list[VictimSet]
    ) -> bool:
        for victim_set in victim_sets:
            for victim in victim_set.tasks:
                statement.evict(victim, self._rule.reason, job)
        return self._place(statement, job, tasks)

    def _place(self, statement: Statement, job: Job, tasks: list[Task]) -> bool:
        parts: dict[SubGroup | None, list[Task]] = {}
        for task in tasks:
            parts.setdefault(task.subgroup, []).append(task)
        for group, members in parts.items():
            domains: Iterable[Domain | None] = [self._domain]
            if group is not None:
                domains = domains_of(self._session, job, group, members, self._domain)
            if not any(self._pipeline_in(statement, job, members, domain) for domain in domains):
                return False
        return self._session.job_pipelined(job)

    def _pipeline_in(
        self, statement: Statement, job: Job, tasks: list[Task], domain: Domain | None
    ) -> bool:
        """Pipeline all of the tasks in a domain, or none."""
        session, queue = self._session, job.queue
        assert queue is not None
        with (
            session.statement() as trial,
            session.placer.restrict_to(None if domain is None else domain.nodes),
        ):
            for task in tasks:
                if session.allowance(queue, task, 1) == 0:
                    return False
                place = session.placer.best_nodes(task, 1, future=True)
                if len(place) == 0:
                    place = session.placer.best_nodes(task, 1)
                if len(place) == 0:
                    return False
                trial.pipeline((task,), place)
            statement.merge(trial)
        return True

    def _free(self) -> FloatArray:
        columns = self._session.columns
        free_rn = columns.idle_rn + columns.releasing_rn - columns.pipelined_rn
        if self._domain is not None:
            free_rn = free_rn[:, self._domain.nodes]
        free_r: FloatArray = np.zeros_like(self._session.total_r)
        free_r[: free_rn.shape[0]] = np.maximum(free_rn, 0.0).sum(axis=1)
        return free_r


def _needed(victim_sets: list[VictimSet], nodes: set[str]) -> list[VictimSet]:
    """Return victim sets without those on nodes that the gang does not use."""
    kept = []
    for victim_set in victim_sets:
        evicted = [task for task in victim_set.tasks if task.node_name in nodes]
        if evicted:
            kept.append(
                VictimSet(
                    victim_set.job,
                    victim_set.tasks if victim_set.is_whole else evicted,
                    victim_set.is_whole,
                )
            )
    return kept


def _size(victim_sets: list[VictimSet]) -> int:
    return sum(len(victim_set.tasks) for victim_set in victim_sets)


def _nodes_of(statement: Statement) -> set[str]:
    return {task.node_name for task in statement.pipelined}


def _sum(tasks: Sequence[Task]) -> FloatArray:
    total_r = tasks[0].klass.request_r.copy()
    for task in tasks[1:]:
        total_r += task.klass.request_r
    return total_r


def _is_preemptable(job: Job) -> bool:
    """Tell whether the PodGroup allows preemption, which is the default."""
    flag = job.annotations.get(PREEMPTABLE, job.labels.get(PREEMPTABLE))
    return flag is None or flag.lower() in ("1", "t", "true")
