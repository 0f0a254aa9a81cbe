"""The tree of HyperNodes: network domains as numbers, each with its nodes in one range.

Nodes are ordered so that those of every domain are consecutive. A running sum over that order gives
the sum of every domain of all tiers as a difference of two entries. The last domain is the whole
cluster, one tier above all HyperNodes.

Note: HyperNodes may contradict each other. Volcano then stops scheduling all jobs with a topology.
Here contradicting parts are left out and reported in `problems`. A domain may become smaller than
declared, never larger.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hekla.api.pods import NodeSelectorRequirement, NodeSelectorTerm
from hekla.api.topology import HyperNode, Member
from hekla.scheduler.state.dimensions import BoolArray, FloatArray, IntArray
from hekla.scheduler.state.labels import NodeLabels
from hekla.units.patterns import PatternError, compile_pattern

CLUSTER = "the whole cluster"
NOBODY: IntArray = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Domain:
    """A network domain."""

    number: int
    name: str
    tier: int
    nodes: IntArray
    """The columns of its nodes in ascending order."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The domains to try for a gang, the best first, and why others are left out."""

    tree: Tree
    numbers: Sequence[int]
    missing: int
    """The number of members to place."""
    lacking: Sequence[tuple[str, int, int]] = ()
    """Domains that are too small now: name, tier and the number of members that fit."""
    total: int = 0
    """The number of allowed domains."""
    rule: str = ""
    problem: str = ""
    """Why no domain is allowed."""

    @property
    def domains(self) -> Iterator[Domain]:
        return (self.tree.domain(number) for number in self.numbers)


class Patterns:
    """Caches which node names match which regular expressions."""

    def __init__(self) -> None:
        self._known: dict[str, dict[str, bool]] = {}

    def matching(self, pattern: str, names: Mapping[str, int]) -> list[int]:
        """Return the matching names; PatternError for an invalid expression."""
        compiled = compile_pattern(pattern)
        known = self._known.setdefault(pattern, {})
        for name in names.keys() - known.keys():
            known[name] = compiled.found_in(name)
        return sorted(index for name, index in names.items() if known[name])

    def forget_others(self, patterns: set[str], names: Mapping[str, int]) -> None:
        """Drop patterns that are no longer used."""
        self._known = {
            pattern: {name: hit for name, hit in known.items() if name in names}
            for pattern, known in self._known.items()
            if pattern in patterns
        }


class Tree:
    """All HyperNodes and nodes of a cluster."""

    def __init__(
        self,
        hypernodes: Iterable[HyperNode] = (),
        labels: NodeLabels | None = None,
        patterns: Patterns | None = None,
    ) -> None:
        ordered = sorted(hypernodes, key=lambda one: (one.spec.tier, one.name))
        labels = labels or NodeLabels([], [], [])
        self.names = [one.name for one in ordered]
        self.root = len(ordered)
        tiers = [one.spec.tier for one in ordered]
        self.tier_d: IntArray = np.asarray([*tiers, max(tiers, default=0) + 1], dtype=np.int64)
        self.tiers = sorted(set(tiers))
        self.problems: dict[str, list[str]] = {}
        self.tier_names = self._name_tiers(ordered)
        self.parent_d: IntArray = np.full(len(ordered) + 1, self.root, dtype=np.int64)
        self._number = {name: number for number, name in enumerate(self.names)}
        self._adopt(ordered)
        self.leaf_n: IntArray = np.full(len(labels.names), self.root, dtype=np.int64)
        """The closest domain of each node."""
        self._settle(ordered, labels, patterns or Patterns())
        self._arrange()
        self._nodes: dict[int, IntArray] = {}
        self._levels: dict[int, IntArray] = {}

    def __bool__(self) -> bool:
        return bool(self.names)

    # --- building -----------------------------------------------------------------------------

    def _name_tiers(self, ordered: Sequence[HyperNode]) -> dict[str, int]:
        """Map tier names to the lowest tier, so that a limit is never wider than declared."""
        names: dict[str, int] = {}
        for one in ordered:
            name, tier = one.spec.tier_name, one.spec.tier
            if name and names.setdefault(name, tier) != tier:
                self.problems.setdefault(one.name, []).append(
                    f"its tierName {name} is that of tier {names[name]} too, and means that one"
                )
        return names

    def _adopt(self, ordered: Sequence[HyperNode]) -> None:
        """Set the parent of every HyperNode: the first, from below, that names it."""
        for number, one in enumerate(ordered):
            for member in one.spec.members:
                if member.type != "HyperNode":
                    continue
                if member.selector.exact_match is None:
                    self._note(one.name, "names HyperNodes otherwise than by exactMatch")
                    continue
                name = member.selector.exact_match.name
                child = self._number.get(name)
                if child is None:
                    self._note(one.name, f"its member {name} does not exist")
                elif self.tier_d[child] >= self.tier_d[number]:
                    self._note(
                        one.name,
                        f"its member {name} is of tier {self.tier_d[child]}, which is not below "
                        f"its own {self.tier_d[number]}",
                    )
                elif self.parent_d[child] not in (self.root, number):
                    parent = self.names[self.parent_d[child]]
                    self._note(one.name, f"its member {name} is one of {parent} already")
                else:
                    self.parent_d[child] = number

    def _settle(self, ordered: Sequence[HyperNode], labels: NodeLabels, patterns: Patterns) -> None:
        """Set the closest domain of every node."""
        columns = {name: index for index, name in enumerate(labels.names)}
        used: set[str] = set()
        for number, one in enumerate(ordered):
            found: list[IntArray] = []
            missing: list[str] = []
            for member in one.spec.members:
                if member.type == "HyperNode":
                    continue
                exact, pattern = member.selector.exact_match, member.selector.regex_match
                if exact is not None:
                    index = columns.get(exact.name)
                    if index is None:
                        missing.append(exact.name)
                    else:
                        found.append(np.asarray([index]))
                elif pattern is not None:
                    used.add(pattern.pattern)
                    try:
                        matching = patterns.matching(pattern.pattern, columns)
                    except PatternError as error:
                        self._note(one.name, f"pattern {pattern.pattern!r}: {error}")
                        continue
                    found.append(np.asarray(matching, dtype=np.int64))
                else:
                    found.append(np.flatnonzero(_labelled(member, labels)))
            if missing:
                more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
                self._note(one.name, f"there is no node {missing[0]}{more}")
            if found:
                self._claim(number, np.unique(np.concatenate(found)), labels.names)
        patterns.forget_others(used, columns)

    def _claim(self, number: int, index: IntArray, names: Sequence[str]) -> None:
        owners = self.leaf_n[index]
        self.leaf_n[index[owners == self.root]] = number
        for owner in np.unique(owners[owners != self.root]).tolist():
            if number not in self.ancestors(owner):
                node = names[index[owners == owner][0]]
                count = int(np.count_nonzero(owners == owner))
                what = f"node {node} is" if count == 1 else f"{count} nodes, as {node}, are"
                self._note(self.names[number], f"{what} in {self.names[owner]} already")

    def _arrange(self) -> None:
        """Number the domains from the top down, children after their parents, and sort nodes."""
        children: dict[int, list[int]] = {}
        for number in range(self.root):
            children.setdefault(int(self.parent_d[number]), []).append(number)
        self._children = children
        rank_d = np.zeros(self.root + 1, dtype=np.int64)
        size_d = np.ones(self.root + 1, dtype=np.int64)
        stack, rank, visited = [self.root], 0, []
        while stack:
            number = stack.pop()
            rank_d[number] = rank
            rank += 1
            visited.append(number)
            stack += reversed(children.get(number, []))
        for number in reversed(visited[1:]):
            size_d[self.parent_d[number]] += size_d[number]
        ranks_n = rank_d[self.leaf_n]
        self._order_n = np.argsort(ranks_n, kind="stable")
        in_order_n = ranks_n[self._order_n]
        self._first_d = np.searchsorted(in_order_n, rank_d)
        self._last_d = np.searchsorted(in_order_n, rank_d + size_d)
        self._rank_d, self._size_d = rank_d, size_d
        self._place_n = np.empty(len(self._order_n), dtype=np.int64)
        self._place_n[self._order_n] = np.arange(len(self._order_n))
        self._chains_dt = self._chains()

    def _chains(self) -> IntArray:
        """Return each domain with its ancestors as a row, padded with one number past the root."""
        chains = [list(self.ancestors(number)) for number in range(self.root + 1)]
        chains_dt = np.full((len(chains), max(map(len, chains))), self.root + 1, dtype=np.int64)
        for number, chain in enumerate(chains):
            chains_dt[number, : len(chain)] = chain
        return chains_dt

    def _note(self, name: str, text: str) -> None:
        self.problems.setdefault(name, []).append(text)

    # --- queries ------------------------------------------------------------------------------

    def sums(self, values_n: IntArray | FloatArray) -> FloatArray:
        """Return the sum over the nodes of every domain."""
        running = np.zeros(len(values_n) + 1)
        np.cumsum(values_n[self._order_n], out=running[1:])
        sums_d: FloatArray = running[self._last_d] - running[self._first_d]
        return sums_d

    def add(self, sums_d: FloatArray, index: IntArray, values: FloatArray) -> None:
        """Add changes of nodes to the sums of their domains."""
        chains = self._chains_dt[self.leaf_n[index]]
        more = np.bincount(
            chains.ravel(), np.repeat(values, chains.shape[1]), minlength=self.root + 2
        )
        sums_d += more[: self.root + 1]

    def ancestors(self, number: int) -> Iterator[int]:
        """Return a domain and its ancestors, from the inside out."""
        while number != self.root:
            yield number
            number = int(self.parent_d[number])
        yield self.root

    def around(self, index: IntArray) -> int:
        """Return the smallest domain that contains these nodes."""
        places = self._place_n[index]
        first, last = int(places.min()), int(places.max())
        for number in self.ancestors(int(self.leaf_n[index[0]])):
            if self._first_d[number] <= first and last < self._last_d[number]:
                return number
        return self.root

    def inside(self, number: int) -> BoolArray:
        """Return the mask of a domain and its descendants."""
        rank, size = self._rank_d[number], self._size_d[number]
        mask_d: BoolArray = (self._rank_d >= rank) & (self._rank_d < rank + size)
        return mask_d

    def children(self, number: int) -> Sequence[int]:
        return self._children.get(number, ())

    def nodes(self, number: int) -> IntArray:
        known = self._nodes.get(number)
        if known is None:
            known = np.sort(self._order_n[self._first_d[number] : self._last_d[number]])
            self._nodes[number] = known
        return known

    def own_nodes(self, number: int) -> IntArray:
        """Return the nodes of a domain that are in none of its children."""
        return np.flatnonzero(self.leaf_n == number)

    def number(self, name: str) -> int | None:
        return self._number.get(name)

    def name(self, number: int) -> str:
        return CLUSTER if number == self.root else self.names[number]

    def domain(self, number: int) -> Domain:
        return Domain(number, self.name(number), int(self.tier_d[number]), self.nodes(number))

    def at_tier(self, tier: int) -> IntArray:
        """Return the domain of each node at a tier; the root for none."""
        known = self._levels.get(tier)
        if known is None:
            of_d = np.full(self.root + 1, self.root, dtype=np.int64)
            for number in range(self.root):
                for each in self.ancestors(number):
                    if self.tier_d[each] == tier:
                        of_d[number] = each
                        break
            known = self._levels[tier] = of_d[self.leaf_n]
        return known


class Tally:
    """Sums over every domain, updated incrementally."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._values_n: FloatArray = np.zeros(len(tree.leaf_n))
        self._sums_d: FloatArray = np.zeros(tree.root + 1)

    def of(self, values_n: FloatArray | IntArray) -> FloatArray:
        """Return the sum over every domain; valid until the next call."""
        changed = np.flatnonzero(values_n != self._values_n)
        if 8 * len(changed) > len(values_n):
            self._values_n[:] = values_n
            self._sums_d = self._tree.sums(values_n)
        elif len(changed):
            more = values_n[changed] - self._values_n[changed]
            self._tree.add(self._sums_d, changed, more)
            self._values_n[changed] = values_n[changed]
        return self._sums_d


def _labelled(member: Member, labels: NodeLabels) -> BoolArray:
    """Return the nodes that match a label selector; none for an empty one."""
    selector = member.selector.label_match
    if selector is None or not (selector.match_labels or selector.match_expressions):
        return np.zeros(len(labels.names), dtype=bool)
    found = labels.matches_selector(selector.match_labels)
    if selector.match_expressions:
        term = NodeSelectorTerm(
            match_expressions=tuple(
                NodeSelectorRequirement(key=each.key, operator=each.operator, values=each.values)
                for each in selector.match_expressions
            )
        )
        found &= labels.matches_term(term)
    return found
