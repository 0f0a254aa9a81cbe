"""Compare two lives of a cluster, up to what Volcano leaves to chance.

Equal nodes are interchangeable, and so are equal pods. Volcano breaks ties at random and walks
over maps, so a cluster may have several lives under it: hekla's must be one of them. `LUCK` says
how often Volcano is asked before its life counts as different.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum

from tools.peers.oracle import Oracle

from tests.fidelity.catalogue import Case
from tests.fidelity.generated import lives
from tests.fidelity.generated.lives import Cycle, Life

LUCK = ("first", "last", "first", "", "", "first", "", "")
"""How ties are broken in each attempt; empty is at random."""


class Level(IntEnum):
    """How much differs: nodes, phases, what happens on the way, or what runs at the end."""

    SAME = 0
    NODES = 1
    PHASES = 2
    WAY = 3
    EVICTIONS = 4
    END = 5


@dataclass(frozen=True)
class Difference:
    """The level, with the life under Volcano that is nearest to hekla's."""

    level: Level
    theirs: Life
    ours: Life

    @property
    def cycle(self) -> int:
        """The first cycle that differs: in numbers of pods, else in phases, else in nodes."""
        for key in (_numbers, _phases, _where):
            for number, (one, other) in enumerate(zip(self.theirs, self.ours, strict=True)):
                if key(one) != key(other):
                    return number
        return max(len(self.ours) - 1, 0)


def level(theirs: Life, ours: Life) -> Level:
    """Return the highest level at which two lives differ."""
    if lives.running(theirs) != lives.running(ours):
        return Level.END
    if lives.evicted(theirs) != lives.evicted(ours):
        return Level.EVICTIONS
    for key, found in ((_numbers, Level.WAY), (_phases, Level.PHASES), (_where, Level.NODES)):
        if [key(cycle) for cycle in theirs] != [key(cycle) for cycle in ours]:
            return found
    return Level.SAME


def _numbers(cycle: Cycle) -> object:
    return cycle.numbers


def _phases(cycle: Cycle) -> object:
    return cycle.phases


def _where(cycle: Cycle) -> object:
    return cycle.where


def compare(case: Case, oracle: Oracle) -> list[Difference]:
    """Return the differences from Volcano's lives; OracleError if Volcano does not decide."""
    return differences(lives.hekla(case), _lucky(case, oracle))


def differences(ours: Life, theirs: Iterable[Life]) -> list[Difference]:
    """Return how hekla's life differs from each of Volcano's, the nearest first.

    That is only the nearest one if it is the same.
    """
    found: list[Difference] = []
    for life in theirs:
        difference = Difference(level(life, ours), life, ours)
        if difference.level == Level.SAME:
            return [difference]
        if difference not in found:
            found.append(difference)
    return sorted(found, key=lambda each: each.level)


def _lucky(case: Case, oracle: Oracle) -> Iterator[Life]:
    for ties in LUCK:
        yield lives.volcano(case, oracle, ties)
