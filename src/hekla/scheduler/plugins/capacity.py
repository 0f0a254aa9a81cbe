"""capacity: queues with a deserved share, a guarantee and a capability.

Unlike in proportion, nothing is computed from weights: an administrator sets `deserved`. A queue
may use more while other queues leave it idle, up to its capability. What exceeds `deserved` is
reclaimed when they need it. With `enableHierarchy: true` queues form a tree under `root`, and the
limits of a queue's ancestors apply to it too.

Volcano stops scheduling when a queue names a missing parent, when parents form a cycle, or when a
job is in a queue with children. Here only the affected jobs are pending, with a verdict.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np

from hekla.api.wellknown import ROOT_QUEUE
from hekla.scheduler.framework.answers import PERMIT, REJECT, EvictionContext, Vote
from hekla.scheduler.framework.arguments import Key
from hekla.scheduler.framework.plan import QueueMetrics
from hekla.scheduler.framework.plugin import Plugin
from hekla.scheduler.framework.verdict import Gate, Verdict
from hekla.scheduler.plugins.proportion import (
    blocked_rows,
    copies_below,
    explain_closed,
    refuse,
)
from hekla.scheduler.state.dimensions import (
    EPSILON,
    BoolArray,
    FloatArray,
    largest_share,
    less_equal,
)
from hekla.scheduler.state.model import Job, Queue, Task

CHILDREN_SHOWN = 3
if TYPE_CHECKING:
    from hekla.scheduler.session.session import Session


class Account:
    """One queue: its limits, and the leaf queues whose jobs count in it."""

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.ancestors: tuple[Account, ...] = ()
        """From the child of the root down to the parent; the root has limits of its own."""
        self.root: Account | None = None
        self.children: list[Account] = []
        self.leaves: list[Queue] = [queue]
        self.problem = self.way_out = ""
        self.guarantee_r = queue.guarantee_r
        self.capability_r: FloatArray = np.where(queue.capability_r > 0, queue.capability_r, np.inf)
        self.real_r = self.capability_r
        """The limit of what is enqueued."""
        self.allocatable_r = self.capability_r
        """The limit of what is allocated: guarantees of other queues stay free on the nodes."""
        self.deserved_r = queue.deserved_r
        self.enqueued_r: FloatArray = np.zeros_like(queue.inqueue_r)

    def limit(self, free_r: FloatArray) -> None:
        """Compute the limits, given what is not guaranteed to other queues."""
        self.real_r = np.minimum(free_r + self.guarantee_r, self.capability_r)
        self.allocatable_r = self.real_r
        self.deserved_r = np.maximum(np.minimum(self.deserved_r, self.real_r), self.guarantee_r)

    @property
    def is_limited(self) -> bool:
        return not bool(np.isinf(self.allocatable_r).all())

    @property
    def claimed_r(self) -> FloatArray:
        return self._sum([leaf.claimed_r for leaf in self.leaves])

    @property
    def allocated_r(self) -> FloatArray:
        return self._sum([leaf.allocated_r for leaf in self.leaves])

    @property
    def reserved_r(self) -> FloatArray:
        """The amount that counts against the capability when a job is enqueued."""
        parts = [leaf.allocated_r + leaf.inqueue_r - leaf.elastic_r for leaf in self.leaves]
        return self._sum([*parts, self.enqueued_r])

    @property
    def chain(self) -> tuple[Account, ...]:
        """The queue and its ancestors."""
        top = () if self.root is None or self.root is self else (self.root,)
        return (self, *reversed(self.ancestors), *top)

    @property
    def share(self) -> float:
        rows = np.flatnonzero(self.deserved_r >= EPSILON).tolist()
        # A queue that deserves nothing always uses its share.
        return largest_share(self.claimed_r, self.deserved_r, rows) if rows else 1.0

    @property
    def deserves_nothing(self) -> bool:
        return not self.deserved_r.any()

    @cached_property
    def oldest(self) -> tuple[float, str]:
        """The age and name of the oldest queue with jobs in this branch."""
        used = [leaf for leaf in self.leaves if leaf.jobs] or [self.queue]
        return min((each.created, each.name) for each in used)

    def exceeds(self, have_r: FloatArray, rows: Sequence[int]) -> bool:
        """Tell whether the queue uses more than it deserves of one of these rows."""
        return any(
            self.deserved_r[row] >= EPSILON and have_r[row] > self.deserved_r[row] + EPSILON
            for row in rows
        )

    def is_indifferent(self, rows: Sequence[int]) -> bool:
        """Tell whether the queue deserves nothing of these rows: all of it is borrowed."""
        return all(self.deserved_r[row] < EPSILON for row in rows)

    def _sum(self, parts: Sequence[FloatArray]) -> FloatArray:
        total_r = parts[0].copy()
        for part_r in parts[1:]:
            total_r += part_r
        return total_r


class Capacity(Plugin, name="capacity"):
    """Deserved, guarantee and capability of queues, flat or as a tree."""

    victims_by_class: ClassVar[bool] = True
    guards_queues: ClassVar[bool] = True

    ancestor_reclaim_level: Annotated[int, Key("ancestorReclaimLevel")] = 0
    dra: Annotated[bool, Key("capacity.DynamicResourceAllocationEnable")] = False
    dra_capacity: Annotated[bool, Key("capacity.DRAConsumableCapacityEnable")] = False
    """Accepted for compatibility with Volcano; device claims are not counted."""

    def open(self, session: Session) -> None:
        self._session = session
        self._level = max(self.ancestor_reclaim_level, 0)
        self._is_tree = self.switches.get("enableHierarchy", False)
        queues = session.cluster.queues
        compute = tree if self._is_tree else flat
        self._accounts = compute(queues, session.total_r)

    def queue_order(self, queue: Queue) -> tuple[int, tuple[tuple[float | str, ...], ...]]:
        account = self._accounts.get(queue.name)
        if account is None:
            return (-queue.priority, ((0.0, False),))
        # Queues with a common ancestor compare by the first ancestors that differ. If these are
        # equal, the branch with the oldest queue is first.
        branches = ((each.share, each.deserves_nothing, *each.oldest) for each in account.ancestors)
        own = (account.share, account.deserves_nothing)
        return (-queue.priority, (*branches, (*own, *account.oldest) if self._is_tree else own))

    def queue_metrics(self) -> dict[str, QueueMetrics]:
        return {
            name: QueueMetrics(each.deserved_r, each.real_r, each.share, each.share > 1.0)
            for name, each in self._accounts.items()
        }

    def victim_queue_order(self, queue: Queue | None, preemptor: Queue | None) -> int:
        """Sort queues with the deepest common ancestor first."""
        if queue is None or preemptor is None:
            return 0
        victim, taker = self._accounts.get(queue.name), self._accounts.get(preemptor.name)
        if victim is None or taker is None:
            return 0
        together = zip(victim.ancestors, taker.ancestors, strict=False)
        return -sum(1 for one, other in together if one is other)

    def allocatable(self, queue: Queue, task: Task) -> int:
        account = self._usable(queue)
        if account is None or not queue.is_open:
            return 0
        limited = [each for each in account.chain if each.is_limited]
        copies = (copies_below(each.claimed_r, each.allocatable_r, task) for each in limited)
        return min(copies, default=2**31)

    def preemptive(self, queue: Queue, task: Task) -> bool:
        """Tell whether the queue, or an ancestor within the limit, deserves more of a resource."""
        account = self._usable(queue)
        if account is None or not queue.is_open:
            return False
        if copies_below(account.claimed_r, account.allocatable_r, task) == 0:
            return False
        near = account.ancestors[::-1][: self._level] if self._is_tree else ()
        return any(_deserves_more(each, task) for each in (account, *near))

    def reclaimable(self, task: Task, candidates: Sequence[Task]) -> BoolArray:
        out = np.zeros(len(candidates), dtype=bool)
        taker = self._usable(task.job.queue) if task.job and task.job.queue else None
        if taker is None:
            return out
        left: dict[str, FloatArray] = {}
        for i, victim in enumerate(candidates):
            account = self._usable(victim.job.queue) if victim.job and victim.job.queue else None
            if account is None or not set(victim.klass.rows) & set(task.klass.rows):
                continue
            checked = (account, *self._ancestors_to_check(account, taker))
            have = [left.setdefault(a.queue.name, a.allocated_r) for a in checked]
            if self._may_lose(victim, account, have[0], task, taker) and all(
                a.is_indifferent(victim.klass.rows) or a.exceeds(have_r, victim.klass.rows)
                for a, have_r in zip(checked[1:], have[1:], strict=True)
            ):
                out[i] = True
                for have_r in have:
                    have_r -= victim.klass.request_r
        return out

    def unified_evictable(self, context: EvictionContext, candidates: Sequence[Task]) -> BoolArray:
        """Like `reclaimable`, without the checks of common resources and of ancestors."""
        out = np.ones(len(candidates), dtype=bool)
        if context.kind == "preempt":
            return out
        left: dict[str, FloatArray] = {}
        for i, victim in enumerate(candidates):
            account = self._usable(victim.job.queue) if victim.job and victim.job.queue else None
            rows = victim.klass.rows
            have_r = left.setdefault(account.queue.name, account.allocated_r) if account else None
            out[i] = (
                account is not None
                and have_r is not None
                and less_equal(account.guarantee_r, have_r - victim.klass.request_r)
                and (account.is_indifferent(rows) or account.exceeds(have_r, rows))
            )
            if out[i] and have_r is not None:
                have_r -= victim.klass.request_r
        return out

    def _may_lose(
        self, victim: Task, account: Account, have_r: FloatArray, task: Task, taker: Account
    ) -> bool:
        rows = victim.klass.rows
        if not less_equal(account.guarantee_r, have_r - victim.klass.request_r):
            return False
        if not account.is_indifferent(rows):
            return account.exceeds(have_r, rows)
        is_spared = (
            self._level > 0
            and taker.is_indifferent(task.klass.rows)
            and any(
                a is b
                for a in account.ancestors[::-1][: self._level]
                for b in taker.ancestors[::-1][: self._level]
            )
        )
        return not is_spared

    def _ancestors_to_check(self, victim: Account, taker: Account) -> list[Account]:
        if not self._is_tree:
            return []
        mine = taker.ancestors[::-1]
        return [
            ancestor
            for distance, ancestor in enumerate(victim.ancestors[::-1][: self._level])
            if distance >= len(mine) or mine[distance] is not ancestor
        ]

    def job_enqueueable(self, job: Job) -> Vote | None:
        queue, session = job.queue, self._session
        if queue is None:
            return REJECT
        if not queue.is_open:
            explain_closed(session, job, queue)
            return REJECT
        account = self._accounts.get(queue.name)
        if account is not None and account.problem:
            session.verdicts.explain(
                Verdict(job.key, Gate.NOT_ENQUEUED, account.problem, change=account.way_out)
            )
            return REJECT
        if job.min_resources_r is None or account is None:
            return PERMIT
        for each in account.chain:
            blocked = blocked_rows(session.dimensions, job, each.reserved_r, each.real_r)
            if blocked:
                refuse(session, job, each.queue, blocked)
                return REJECT
        return PERMIT

    def entitled(self, job: Job) -> bool:
        account = None if job.queue is None else self._usable(job.queue)
        if account is None or job.min_resources_r is None:
            return False
        wanted_r, reserved_r = job.min_resources_r, account.reserved_r
        return all(
            reserved_r[row] + wanted_r[row] <= account.deserved_r[row] for row in job.min_rows
        )

    def job_unplaceable(self, job: Job) -> None:
        account = self._accounts.get(job.queue_name)
        if account is not None:
            for each in account.chain:
                each.enqueued_r -= job.inqueue_r

    def job_enqueued(self, job: Job) -> None:
        account = self._accounts.get(job.queue_name)
        if account is not None and job.min_resources_r is not None:
            for each in account.chain:
                each.enqueued_r += job.without_gated(job.min_resources_r)

    def _usable(self, queue: Queue) -> Account | None:
        account = self._accounts.get(queue.name)
        return None if account is None or account.problem else account

    def queue_limit(self, queue: Queue) -> FloatArray:
        """Return the limit of a queue for verdicts."""
        account = self._accounts.get(queue.name)
        return queue.capability_r if account is None else account.allocatable_r


def _deserves_more(account: Account, task: Task) -> bool:
    claimed_r = account.claimed_r
    return any(
        claimed_r[row] + amount <= account.deserved_r[row]
        for row, amount in zip(task.klass.rows, task.klass.amounts, strict=True)
        if account.deserved_r[row] >= EPSILON or amount >= EPSILON
    )


def flat(queues: Mapping[str, Queue], total_r: FloatArray) -> dict[str, Account]:
    """Compute flat queues: each may use what is not guaranteed to another."""
    guaranteed_r = np.zeros_like(total_r)
    for queue in queues.values():
        guaranteed_r += queue.guarantee_r
    accounts = {name: Account(queue) for name, queue in queues.items() if queue.jobs}
    for account in accounts.values():
        account.limit(np.maximum(total_r - guaranteed_r, 0.0))
    return accounts


def tree(queues: Mapping[str, Queue], total_r: FloatArray) -> dict[str, Account]:
    """Compute queues under `root`, with limits from the top down."""
    accounts = {name: Account(queue) for name, queue in sorted(queues.items())}
    root = accounts.get(ROOT_QUEUE)
    tops: list[Account] = []
    for name, account in accounts.items():
        if name == ROOT_QUEUE:
            continue
        account.root = root
        path: list[Account] = []
        above = account.queue.parent or ROOT_QUEUE
        while above != ROOT_QUEUE:
            parent = accounts.get(above)
            if parent is None:
                account.problem = f"queue {above!r}, above queue {name!r}, does not exist"
                account.way_out = f"create queue {above!r}, or give queue {name!r} another parent"
                break
            if parent is account or parent in path:
                account.problem = f"the parents of queue {name!r} form a circle"
                account.way_out = f"give queue {name!r} another parent"
                break
            path.append(parent)
            above = parent.queue.parent or ROOT_QUEUE
        if not account.problem:
            account.ancestors = tuple(reversed(path))
            (path[0].children if path else tops).append(account)
    for account in accounts.values():
        if account.children and account.queue.jobs and account is not root:
            account.problem = f"queue {account.queue.name!r} has children, and takes no jobs itself"
            names = ", ".join(repr(child.queue.name) for child in account.children[:CHILDREN_SHOWN])
            account.way_out = f"name a queue below it in the job, such as {names}"
    if root is not None:
        root.children = tops
    _descend(root, tops, total_r)
    return accounts


def _leave_guarantees(
    child: Account, parent: Account, guaranteed_r: FloatArray, total_r: FloatArray
) -> FloatArray:
    """Return what a queue may use of the cluster, whose size limits only what is allocated."""
    limit_r = np.minimum(child.real_r, parent.allocatable_r)
    free_r = np.maximum(np.minimum(parent.allocatable_r, total_r) - guaranteed_r, 0.0)
    left_r: FloatArray = np.minimum(limit_r, free_r + child.guarantee_r)
    return np.where(guaranteed_r > 0, left_r, limit_r)


def _descend(root: Account | None, tops: Sequence[Account], total_r: FloatArray) -> None:
    if root is not None:
        root.problem = f"queue {ROOT_QUEUE!r} takes no jobs"
        root.way_out = "name another queue in the job"
        for child in tops:
            root.guarantee_r = root.guarantee_r + child.guarantee_r
            root.deserved_r = root.deserved_r + child.deserved_r
    levels: list[tuple[Account | None, Sequence[Account]]] = [(root, tops)]
    order: list[Account] = [] if root is None else [root]
    while levels:
        parent, children = levels.pop()
        guaranteed_r: FloatArray | None = None
        for child in children:
            guaranteed_r = child.guarantee_r + (0.0 if guaranteed_r is None else guaranteed_r)
        for child in children:
            assert guaranteed_r is not None
            if parent is not None:
                child.capability_r = np.where(
                    np.isinf(child.capability_r), parent.capability_r, child.capability_r
                )
                child.limit(np.maximum(parent.real_r - guaranteed_r, 0.0))
                child.allocatable_r = _leave_guarantees(child, parent, guaranteed_r, total_r)
            order.append(child)
            levels.append((child, child.children))
    for account in reversed(order):
        if account.children:
            account.leaves = [
                account.queue,
                *(leaf for child in account.children for leaf in child.leaves),
            ]
