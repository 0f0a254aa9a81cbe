"""Room for a whole gang, made by others that leave in bundles.

Bundles are added, the cheapest first, until the gang has a place on nodes: tried for real, with all
filters and the queue's limits, in one statement. Then everybody whose leaving turned out to be of
no use is spared. A gang that must be close together looks so at one domain after the other, the
widest and freest first; for all others the domain is the whole cluster.

Volcano makes room for every waiting task of the job; here it is the gang's minimum, as elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from hekla.api.wellknown import PREEMPTABLE
from hekla.scheduler.actionargs import MAX_DOMAINS
from hekla.scheduler.actions.bundles import Bundle, bundles_of, in_order
from hekla.scheduler.actions.domains import domains_of, is_bound
from hekla.scheduler.actions.preempt import waiting
from hekla.scheduler.actions.reservation import needed
from hekla.scheduler.actions.verdicts import explain_promised
from hekla.scheduler.actions.victims import Failures, Rule, comes_back
from hekla.scheduler.dimensions import EPSILON, FloatArray
from hekla.scheduler.model import Job, Task
from hekla.scheduler.session import Session
from hekla.scheduler.statement import Statement
from hekla.scheduler.subgroups import SubGroup
from hekla.scheduler.topology import Domain


class GangHunt:
    """One action's search for gangs that could leave."""

    def __init__(self, session: Session, rule: Rule, *, allow_whole: bool) -> None:
        self._session = session
        self._rule = rule
        self._allow_whole = allow_whole
        self._most: int = session.config.argument(f"gang{rule.kind}", MAX_DOMAINS)
        self._domain: Domain | None = None
        """Where room is looked for now; None for everywhere."""
        self._in_vain = Failures(session)
        unevictable = session.cluster.unevictable
        self._leavable = [
            task
            for node in session.cluster.node_list
            for task in node.tasks.values()
            if task.job is not None
            and task.is_preemptable
            and task.uid not in unevictable
            and _gives_way(task.job)
        ]

    def take_for(self, job: Job) -> None:
        """Room for what the job lacks, or nothing."""
        session = self._session
        tasks = needed(job, waiting(session, job))
        if not tasks:
            return
        if not is_bound(session, job) and self._in_vain.known(tasks[0]):
            session.note_spared(job)
            return
        kept = session.lift(job)
        found: list[Domain] | None = session.tiers.first("domains_to_clear", job, tasks)
        for domain in [None] if found is None else found[: self._most]:
            self._domain = domain
            if self._take_in_domain(job, tasks):
                return
        session.hold(kept)
        session.note_spared(job)
        self._in_vain.add(tasks[0])

    def _take_in_domain(self, job: Job, tasks: list[Task]) -> bool:
        session = self._session
        bundles = self._bundles(job, tasks)
        with session.statement() as statement:
            found = self._grow(statement, job, tasks, bundles)
        if found is None:
            return False
        with session.statement() as statement:
            self._plan(statement, job, tasks, self._fewest(job, tasks, *found))
            if comes_back(session, self._rule, statement.promised, statement.evicted):
                return False
            statement.commit()
        explain_promised(session, job)
        return True

    def _fewest(
        self, job: Job, tasks: list[Task], bundles: list[Bundle], nodes: set[str]
    ) -> list[Bundle]:
        """Spare those who left nodes that nobody came to, as long as the gang keeps a place."""
        while _size(fewer := _of_use(bundles, nodes)) < _size(bundles):
            with self._session.statement() as attempt:
                if not self._plan(attempt, job, tasks, fewer):
                    break
                bundles, nodes = fewer, _nodes_of(attempt)
        return bundles

    def _bundles(self, job: Job, tasks: Sequence[Task]) -> list[Bundle]:
        rule, by_job = self._rule, dict[str, list[Task]]()
        here = None if self._domain is None else set(self._domain.nodes.tolist())
        nodes = self._session.cluster.nodes
        for task in self._leavable:
            if here is not None and nodes[task.node_name].index not in here:
                continue
            if task.status in rule.statuses and rule.may_take(tasks[0], task):
                assert task.job is not None
                by_job.setdefault(task.job.key, []).append(task)
        jobs = self._session.cluster.jobs
        found = [b for key, leaving in by_job.items() for b in bundles_of(jobs[key], leaving)]
        need_r, by_queue = _sum(tasks), rule.kind == "reclaim"
        found = in_order(self._session, found, need_r, job, by_queue=by_queue)
        found = self._allowed(found, tasks[0])
        found = [b for b in found if not b.is_whole or self._allow_whole]
        return in_order(self._session, found, need_r, job, by_queue=by_queue)

    def _allowed(self, bundles: list[Bundle], task: Task) -> list[Bundle]:
        """What the plugins leave of bundles: of a whole one, all or nothing."""
        flat = [victim for bundle in bundles for victim in bundle.tasks]
        votes = self._rule.votes(self._session, task, flat)
        may = {victim.uid for victim, vote in zip(flat, votes, strict=True) if vote}
        if self._rule.must_stay is not None:
            left = [victim for victim in flat if victim.uid in may]
            stays = self._rule.must_stay(left)
            may -= {victim.uid for victim, must in zip(left, stays, strict=True) if must}
        kept = []
        for bundle in bundles:
            going = [victim for victim in bundle.tasks if victim.uid in may]
            if going and (not bundle.is_whole or len(going) == len(bundle.tasks)):
                kept.append(Bundle(bundle.job, going, bundle.is_whole))
        return kept

    def _grow(
        self, statement: Statement, job: Job, tasks: list[Task], bundles: list[Bundle]
    ) -> tuple[list[Bundle], set[str]] | None:
        """Add bundles until the gang has a place; those bundles and the nodes it would use."""
        need_r = _sum(tasks)
        free_r = self._free()
        chosen: list[Bundle] = []
        tries, pause = 0, 0
        for bundle in [None, *bundles]:
            if bundle is not None:
                chosen.append(bundle)
                for victim in bundle.tasks:
                    statement.evict(victim, self._rule.reason)
                    free_r += victim.klass.request_r
            is_last = bundle is (bundles[-1] if bundles else None)
            pause -= 1
            if (pause > 0 and not is_last) or bool(np.any(need_r >= free_r + EPSILON)):
                continue
            with self._session.statement() as attempt:
                if self._place(attempt, job, tasks):
                    return chosen, _nodes_of(attempt)
            tries += 1
            pause = tries // 4  # many bundles: look less and less often, what is too much is spared
        return None

    def _plan(
        self, statement: Statement, job: Job, tasks: list[Task], bundles: list[Bundle]
    ) -> bool:
        for bundle in bundles:
            for victim in bundle.tasks:
                statement.evict(victim, self._rule.reason)
        return self._place(statement, job, tasks)

    def _place(self, statement: Statement, job: Job, tasks: list[Task]) -> bool:
        parts: dict[SubGroup | None, list[Task]] = {}
        for task in tasks:
            parts.setdefault(task.subgroup, []).append(task)
        for group, members in parts.items():
            domains: Iterable[Domain | None] = [self._domain]
            if group is not None:
                domains = domains_of(self._session, job, group, members, self._domain)
            if not any(self._promise_in(statement, job, members, domain) for domain in domains):
                return False
        return self._session.job_pipelined(job)

    def _promise_in(
        self, statement: Statement, job: Job, tasks: list[Task], domain: Domain | None
    ) -> bool:
        """Promise all of the tasks room in a domain, or none."""
        session, queue = self._session, job.queue
        assert queue is not None
        with (
            session.statement() as trial,
            session.within(None if domain is None else domain.nodes),
        ):
            for task in tasks:
                if session.allowance(queue, task, 1) == 0:
                    return False
                place = session.places(task, 1, future=True)
                if len(place) == 0:
                    place = session.places(task, 1)
                if len(place) == 0:
                    return False
                trial.pipeline((task,), place)
            statement.absorb(trial)
        return True

    def _free(self) -> FloatArray:
        columns = self._session.columns
        free_rn = columns.idle_rn + columns.releasing_rn - columns.pipelined_rn
        if self._domain is not None:
            free_rn = free_rn[:, self._domain.nodes]
        free_r: FloatArray = np.zeros_like(self._session.total_r)
        free_r[: free_rn.shape[0]] = np.maximum(free_rn, 0.0).sum(axis=1)
        return free_r


def _of_use(bundles: list[Bundle], nodes: set[str]) -> list[Bundle]:
    """Bundles without those that left nodes which nobody came to."""
    kept = []
    for bundle in bundles:
        going = [task for task in bundle.tasks if task.node_name in nodes]
        if going:
            kept.append(
                Bundle(bundle.job, bundle.tasks if bundle.is_whole else going, bundle.is_whole)
            )
    return kept


def _size(bundles: list[Bundle]) -> int:
    return sum(len(bundle.tasks) for bundle in bundles)


def _nodes_of(statement: Statement) -> set[str]:
    return {task.node_name for task in statement.promised}


def _sum(tasks: Sequence[Task]) -> FloatArray:
    total_r = tasks[0].klass.request_r.copy()
    for task in tasks[1:]:
        total_r += task.klass.request_r
    return total_r


def _gives_way(job: Job) -> bool:
    """Whether its PodGroup lets it be taken from; who does not say does."""
    flag = job.annotations.get(PREEMPTABLE, job.labels.get(PREEMPTABLE))
    return flag is None or flag.lower() in ("1", "t", "true")
