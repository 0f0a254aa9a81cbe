"""Recording verdicts during a cycle: why a job is pending, with remarks and resource holders."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Final

from hekla.scheduler.framework import hooks
from hekla.scheduler.framework.verdict import Holder, Verdict
from hekla.scheduler.state.model import Job, Queue
from hekla.scheduler.state.queue_tree import descendants

if TYPE_CHECKING:
    from hekla.scheduler.session.session import Session

HOLDERS_SHOWN: Final = 3
NOTES_SHOWN: Final = 3


class Verdicts:
    """Writes the verdicts of a session's plan."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._holders: dict[tuple[tuple[str, bool] | None, int], tuple[Holder, ...]] = {}

    def explain(self, verdict: Verdict) -> None:
        """Set the verdict of a job; it replaces an earlier one of this cycle."""
        session = self._session
        job = session.cluster.jobs.get(verdict.job)
        notes: tuple[str, ...] = ()
        if job is not None and not verdict.notes:
            notes = (*_notes(job), *self._network_notes(job))
            for answer in session.tiers.each(hooks.job_notes, job):
                notes += tuple(answer)
        session.plan.verdicts[verdict.job] = replace(verdict, notes=notes) if notes else verdict

    def add_note(self, job: Job, text: str) -> None:
        """Add a remark to the verdict of a job, if it has one."""
        verdicts = self._session.plan.verdicts
        verdict = verdicts.get(job.key)
        if verdict is not None and text not in verdict.notes:
            verdicts[job.key] = replace(verdict, notes=(*verdict.notes, text))

    def explain_protected(self, job: Job) -> None:
        """Add which victims plugins protected from a job that could not preempt."""
        for answer in self._session.tiers.each(hooks.protection_notes, job):
            for text in answer:
                self.add_note(job, text)

    def _network_notes(self, job: Job) -> tuple[str, ...]:
        """Return problems of the network topology, for a job that uses it."""
        topologies = (job.topology, *(policy.topology for policy in job.policies))
        if all(topology is None for topology in topologies):
            return ()
        if not self._session.tiers.has(hooks.domains):
            return ("networkTopology does not count: network-topology-aware is not configured",)
        problems = self._session.cluster.tree.problems
        notes = [
            f"HyperNode {name}: {text}" for name in sorted(problems) for text in problems[name]
        ]
        return tuple(notes[:NOTES_SHOWN])

    def holders(self, job: Job, row: int, queue: Queue | None = None) -> tuple[Holder, ...]:
        """Return the other jobs that hold most of a resource, in a queue or in the cluster.

        In a queue above the job's they are those of all queues below it.
        """
        session = self._session
        where = None if queue is None else (queue.name, queue is job.queue)
        known = self._holders.get((where, row))
        if known is None:
            if queue is None:
                jobs: Iterable[Job] = session.cluster.jobs.values()
            elif queue is job.queue:
                jobs = queue.jobs.values()
            else:
                queues = session.cluster.queues
                names = descendants(queue.name, queues)
                jobs = chain.from_iterable(queues[name].jobs.values() for name in names)
            held = ((float(other.allocated_r[row]), other.key) for other in jobs)
            most = sorted((h for h in held if h[0] > 0), key=lambda h: (-h[0], h[1]))
            name = session.dimensions.names[row]
            known = tuple(Holder(key, name, amount) for amount, key in most[: HOLDERS_SHOWN + 1])
            self._holders[where, row] = known
        return tuple(holder for holder in known if holder.job != job.key)[:HOLDERS_SHOWN]


def _notes(job: Job) -> tuple[str, ...]:
    """Return the first problems of a job, its pods and its queue."""
    pods = sorted(task.problem for task in job.tasks.values() if task.problem)
    queue = () if job.queue is None else job.queue.problems
    return (*job.problems, *pods[:NOTES_SHOWN], *(f"queue {job.queue_name!r}: {p}" for p in queue))
