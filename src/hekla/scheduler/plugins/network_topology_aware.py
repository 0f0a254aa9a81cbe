"""network-topology-aware: place a gang within the smallest network domain that holds it.

A job (`spec.networkTopology` of its PodGroup) or a sub-group defines how close its members must be.
`hard` with a highest tier is never violated, by no action. `soft` prefers lower tiers and accepts
any. Domains are tried from the lowest tier up, in each tier the fullest that fits first, so that
large domains stay free. A replaced member is placed near the others. A gang that restarts is placed
where it was, as its PodGroup records (`job-allocated-hypernode`).

Differs from Volcano (decision 0005): a hard topology whose tier does not exist stays pending with a
verdict, instead of being ignored; and the capacity of domains is current.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final

import numpy as np

from hekla.api.scheduling import NetworkTopology
from hekla.scheduler.framework.arguments import Key
from hekla.scheduler.framework.plugin import Plugin
from hekla.scheduler.plugins.weights import by_row, read_weights
from hekla.scheduler.state.classes import TaskClass
from hekla.scheduler.state.dimensions import EPSILON, BoolArray, FloatArray, IntArray
from hekla.scheduler.state.model import Job, Task
from hekla.scheduler.state.status import ALLOCATED_CLASS, PIPELINED
from hekla.scheduler.state.subgroups import SubGroup
from hekla.scheduler.state.topology import NOBODY, Choice, Domain, Tally

if TYPE_CHECKING:
    from hekla.scheduler.session.session import Session

PREFIX: Final = "hypernode.binpack.resources."
DEFAULT_FADING: Final = 0.8
LACKING_SHOWN: Final = 3
_HERE: Final = tuple(sorted((*ALLOCATED_CLASS, PIPELINED)))


class NetworkTopologyAware(Plugin, name="network-topology-aware"):
    """Network domains for gangs with a topology, and fuller domains for all other pods."""

    essential: ClassVar[bool] = True
    by_class: ClassVar[bool] = True
    free_arguments: ClassVar[tuple[str, ...]] = (PREFIX,)

    weight: Annotated[int, Key("weight")] = 1
    cpu: Annotated[int, Key("hypernode.binpack.cpu")] = 1
    memory: Annotated[int, Key("hypernode.binpack.memory")] = 1
    resources: Annotated[str, Key("hypernode.binpack.resources")] = ""
    """Additional resources, separated by commas; weights: hypernode.binpack.resources.NAME."""
    packs_normal: Annotated[bool, Key("hypernode.binpack.normal-pod.enable")] = True
    """Whether pods without a topology fill domains too."""
    fading: Annotated[float, Key("hypernode.binpack.normal-pod.fading")] = DEFAULT_FADING
    """The factor by which each tier counts less than the one below, for such pods."""
    most_cleared: Annotated[int, Key("hypernode.gradient.evict.max-hypernodes")] = 8

    def configure(self, raw: Mapping[str, Any], switches: Mapping[str, bool]) -> None:
        super().configure(raw, switches)
        self._weights = {"cpu": self.cpu, "memory": self.memory}
        self._weights |= read_weights(raw, PREFIX, self.resources)

    def open(self, session: Session) -> None:
        self._session = session
        self._tree = session.cluster.tree
        weights = getattr(self, "_weights", {"cpu": self.cpu, "memory": self.memory})
        self._by_row = by_row(weights, session.dimensions)
        self._offered: dict[int, FloatArray] = {}
        """Allocatable amounts of each domain, by resource."""
        self._used: dict[int, Tally] = {}
        self._rooms: dict[TaskClass, Tally] = {}
        self._bounds: dict[tuple[str, SubGroup | None], tuple[int, IntArray | None]] = {}
        self._surroundings: dict[TaskClass, tuple[int, FloatArray]] = {}

    # --- topology of jobs ---------------------------------------------------------------------

    def _limit(self, topology: NetworkTopology) -> tuple[int, str]:
        """Return the highest allowed tier, and the problem if there is none."""
        tree = self._tree
        top = int(tree.tier_d[tree.root])
        if topology.mode.lower() == "soft":
            return top, ""
        name, limit = topology.highest_tier_name, topology.highest_tier_allowed
        if limit is None and not name:
            return top, ""  # as in Volcano: hard without a tier restricts nothing
        if not tree:
            return -1, "there are no HyperNodes"
        if limit is None:
            if name not in tree.tier_names:
                known = ", ".join(sorted(tree.tier_names)) or "none has a name"
                return -1, f"no HyperNode has the tier name {name!r} (there are: {known})"
            limit = tree.tier_names[name]
        if limit < tree.tiers[0]:
            return -1, f"no HyperNode is of tier {limit} or lower; the lowest is {tree.tiers[0]}"
        return min(limit, top), ""

    def _members(self, job: Job, subgroup: SubGroup | None) -> IntArray:
        """Return the columns of nodes with members, pipelined ones included."""
        nodes, found = self._session.cluster.nodes, []
        for status in _HERE:
            for task in job.by_status[status].values():
                if subgroup is None or task.subgroup is subgroup:
                    node = nodes.get(task.node_name)
                    if node is not None and node.is_known:
                        found.append(node.index)
        return np.asarray(found, dtype=np.int64) if found else NOBODY

    def _around(self, members: IntArray, limit: int) -> list[int]:
        """Return the allowed domains that contain all members, from the inside out."""
        tree = self._tree
        chain = tree.ancestors(tree.around(members))
        return [number for number in chain if tree.tier_d[number] <= limit]

    # --- hooks --------------------------------------------------------------------------------

    def restrict_nodes(self, task: Task) -> IntArray | None:
        job, subgroup = task.job, task.subgroup
        if job is None or (job.topology is None and not job.policies):
            return None
        known = self._bounds.get((job.key, subgroup))
        if known is None or known[0] != self._session.version:
            allowed_nodes = self._within(job, None, job.topology)
            if subgroup is not None:
                own = self._within(job, subgroup, subgroup.policy.topology)
                if allowed_nodes is None or own is None:
                    allowed_nodes = own if allowed_nodes is None else allowed_nodes
                else:
                    allowed_nodes = np.intersect1d(allowed_nodes, own, assume_unique=True)
            known = self._bounds[job.key, subgroup] = (self._session.version, allowed_nodes)
        return known[1]

    def _within(
        self, job: Job, subgroup: SubGroup | None, topology: NetworkTopology | None
    ) -> IntArray | None:
        if topology is None:
            return None
        limit, problem = self._limit(topology)
        if problem:
            return NOBODY
        tree = self._tree
        if limit >= tree.tier_d[tree.root]:
            return None
        members = self._members(job, subgroup)
        if len(members) == 0:
            return np.flatnonzero(tree.tier_d[tree.leaf_n] <= limit)
        chain = self._around(members, limit)
        return tree.nodes(chain[-1]) if chain else NOBODY

    def domains(
        self,
        job: Job,
        subgroup: SubGroup | None,
        tasks: Sequence[Task],
        missing: int,
        inside: Domain | None,
    ) -> Choice | None:
        topology = job.topology if subgroup is None else subgroup.policy.topology
        if topology is None:
            return None
        limit, problem = self._limit(topology)
        rule = f"tier {limit} or lower"
        if problem:
            return Choice(self._tree, (), missing, problem=problem)
        tree, members = self._tree, self._members(job, subgroup)
        root = tree.root if inside is None else inside.number
        allowed_d = (tree.tier_d <= limit) & tree.inside(root)
        if len(members):
            chain_d = np.zeros_like(allowed_d)
            chain_d[self._around(members, limit)] = True
            allowed_d &= chain_d
            if not allowed_d.any():
                where = tree.name(tree.around(members))
                problem = f"its members are spread over {where}, wider than {rule}"
                return Choice(self._tree, (), missing, problem=problem)
            rule += " around its other members"
        was = tree.number(job.domain) if job.domain and len(members) == 0 else None
        return self._choice(allowed_d, self._room(tasks), missing, tasks, rule, was)

    def _choice(
        self,
        allowed_d: BoolArray,
        room_d: FloatArray,
        missing: int,
        tasks: Sequence[Task],
        rule: str,
        was: int | None,
    ) -> Choice:
        """Sort domains from the lowest tier up; in each, where the gang `was`, then the fullest."""
        tree = self._tree
        score_d = self._packing_score(_kinds(tasks))
        fits = np.flatnonzero(allowed_d & (room_d >= missing))
        elsewhere_d = np.zeros(tree.root + 1, dtype=bool) if was is None else ~tree.inside(was)
        order = np.lexsort((fits, -score_d[fits], elsewhere_d[fits], tree.tier_d[fits]))
        small = np.flatnonzero(allowed_d & (room_d < missing))
        most = np.lexsort((small, tree.tier_d[small], -room_d[small]))[:LACKING_SHOWN]
        lacking = [
            (tree.name(number), int(tree.tier_d[number]), int(room_d[number]))
            for number in small[most].tolist()
        ]
        total = int(np.count_nonzero(allowed_d))
        return Choice(tree, fits[order].tolist(), missing, lacking, total, rule)

    def domains_to_clear(self, job: Job, tasks: Sequence[Task]) -> list[Domain] | None:
        if job.topology is None:
            return None
        limit, problem = self._limit(job.topology)
        tree = self._tree
        if problem:
            return []
        if limit >= tree.tier_d[tree.root]:
            return None
        allowed_d = tree.tier_d <= limit
        members = self._members(job, None)
        if len(members):
            chain_d = np.zeros_like(allowed_d)
            chain_d[self._around(members, limit)] = True
            allowed_d &= chain_d
        enough = np.flatnonzero(allowed_d & (self._room(tasks, empty=True) >= len(tasks)))
        free_d = self._room(tasks)
        order = np.lexsort((enough, -free_d[enough], -tree.tier_d[enough]))
        return [tree.domain(number) for number in enough[order][: self.most_cleared].tolist()]

    def prefer_nodes(self, task: Task, count: int, capacity_n: IntArray) -> IntArray | None:
        """Return the placed members' domain, or the smallest that fits all, or the largest."""
        job, tree = task.job, self._tree
        if job is None or not tree:
            return None
        topologies = (job.topology, task.subgroup.policy.topology if task.subgroup else None)
        if topologies == (None, None):
            return None
        number = tree.around(np.flatnonzero(capacity_n))
        if not tree.children(number):
            return None
        room_d = tree.sums(capacity_n)
        subgroup = task.subgroup if topologies[1] is not None else None
        members = self._members(job, subgroup)
        here_d = np.zeros(tree.root + 1)
        if len(members):
            here_d = tree.sums(np.bincount(members, minlength=len(capacity_n)))
            near = (each for each in tree.ancestors(tree.around(members)) if room_d[each] > 0)
            closest = next(near, number)
            number = closest if tree.inside(number)[closest] else number
        return self._descend(number, count, room_d, here_d)

    def _descend(self, number: int, count: int, room_d: FloatArray, here_d: FloatArray) -> IntArray:
        tree = self._tree
        while children := tree.children(number):
            parts = [(child, room_d[child], here_d[child]) for child in children]
            rest = (room_d[number] - sum(p[1] for p in parts), here_d[number])
            parts.append((number, rest[0], rest[1] - sum(p[2] for p in parts)))
            best = min(
                (part for part in parts if part[1] > 0),
                key=lambda p: (p[2] <= 0, p[1] < count, p[1] if p[1] >= count else -p[1], p[0]),
            )[0]
            if best == number:
                return tree.own_nodes(number)
            number = best
        return tree.nodes(number)

    def domain_order(self, task: Task) -> FloatArray | None:
        job, tree = task.job, self._tree
        if not self.packs_normal or not tree or self.weight == 0 or job is None:
            return None
        if job.topology is not None or task.subgroup is not None:
            return None
        known, changes = self._surroundings.get(task.klass), len(self._session.placer.changes)
        if known is None or known[0] != changes:
            score_d = self._packing_score({task.klass: 1})
            score_d[tree.root] = 1.0  # nodes outside the domains of a tier count as full there
            fading = DEFAULT_FADING if self.fading < 0 else self.fading
            shares = [fading ** (tier - 1) for tier in tree.tiers]
            total_n = np.zeros(len(tree.leaf_n))
            for tier, share in zip(tree.tiers, shares, strict=True):
                total_n += share * score_d[tree.at_tier(tier)]
            if sum(shares):
                total_n *= 100.0 * self.weight / sum(shares)
            known = self._surroundings[task.klass] = (changes, total_n)
        return known[1]

    # --- capacity of domains ------------------------------------------------------------------

    def _room(self, tasks: Sequence[Task], *, empty: bool = False) -> FloatArray:
        """Return how many of the tasks fit in each domain, now or if it were empty.

        Task classes are counted separately, so the result may be too large, never too small.
        """
        room_d = np.zeros(self._tree.root + 1)
        for klass, count in _kinds(tasks).items():
            task = next(task for task in tasks if task.klass is klass)
            if empty:
                holds_d = self._tree.sums(self._empty(task))
            else:
                tally = self._rooms.setdefault(klass, Tally(self._tree))
                holds_d = tally.of(self._session.placer.capacity(task))
            room_d += np.minimum(holds_d, count)
        return room_d

    def _empty(self, task: Task) -> IntArray:
        """Return how many tasks like this fit on each node if it were empty."""
        columns, passing_n = self._session.columns, self._session.placer.feasible(task)
        room_n = np.where(passing_n, float(2**31), 0.0)
        for row, amount in zip(task.klass.rows, task.klass.amounts, strict=True):
            if row >= columns.allocatable_rn.shape[0]:
                return np.zeros(len(passing_n), dtype=np.int64)
            offered_n = columns.allocatable_rn[row]
            np.minimum(room_n, np.floor((offered_n + EPSILON) / amount), out=room_n)
        return room_n.astype(np.int64)

    def _packing_score(self, kinds: Mapping[TaskClass, int]) -> FloatArray:
        """Return the used fraction of each domain with these tasks; 0 where they do not fit."""
        tree, columns = self._tree, self._session.columns
        need: dict[int, float] = {}
        for klass, count in kinds.items():
            for row, amount in zip(klass.rows, klass.amounts, strict=True):
                if row in self._by_row and amount >= EPSILON and row < len(columns.used_rn):
                    need[row] = need.get(row, 0.0) + count * amount
        total_d, weights = np.zeros(tree.root + 1), 0.0
        over_d = np.zeros(tree.root + 1, dtype=bool)
        for row, amount in sorted(need.items()):  # a fixed order of summation
            offered_d = self._offered.get(row)
            if offered_d is None:
                offered_d = self._offered[row] = tree.sums(columns.allocatable_rn[row])
            used = self._used.setdefault(row, Tally(tree))
            after_d = used.of(columns.used_rn[row]) + amount
            over_d |= after_d > offered_d
            weights += self._by_row[row]
            total_d += self._by_row[row] * after_d / np.where(offered_d > 0, offered_d, np.inf)
        total_d[over_d] = 0.0
        return total_d / weights if weights else total_d


def _kinds(tasks: Sequence[Task]) -> dict[TaskClass, int]:
    counts: dict[TaskClass, int] = {}
    for task in tasks:
        counts[task.klass] = counts.get(task.klass, 0) + 1
    return counts
