"""Judge generated clusters, each worker process with an oracle of its own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache

from tools.peers.oracle import Oracle, OracleError

from tests.fidelity.catalogue import Case
from tests.fidelity.generated import compare, rules, story, worlds
from tests.fidelity.generated.compare import Difference, Level
from tests.fidelity.generated.shrink import shrink

AGREES = "agree"
PANICS = "Volcano fails"
UNEXPLAINED = "unexplained"


@dataclass(frozen=True)
class Result:
    seed: int
    why: str
    """How a difference is explained: `agree`, the name of a rule, `unexplained`."""
    level: Level = Level.SAME


@cache
def _oracle() -> Oracle:
    """The oracle of this process; it ends when its input does, with the process."""
    return Oracle()


def judge_all(seeds: Iterable[int]) -> list[Result]:
    return [judge(seed) for seed in seeds]


def judge(seed: int) -> Result:
    """Return how the cluster of a seed compares."""
    case = worlds.draw(seed)
    try:
        found = compare.compare(case, _oracle())
    except OracleError:
        return Result(seed, PANICS)
    return Result(seed, why(case, found), found[0].level)


def why(case: Case, found: Sequence[Difference]) -> str:
    """Return how the difference from one of Volcano's lives is explained, the nearest first.

    Where ties are broken as hekla does it, a difference may begin later than in the nearest life.
    """
    if found[0].level == Level.SAME:
        return AGREES
    explained = (rules.explain(case, difference) for difference in found)
    return next(filter(None, explained), UNEXPLAINED)


def shrunk_story(seed: int) -> str:
    """Return the story of the smallest cluster found that is unexplained at the same level."""
    case = worlds.draw(seed)
    level = compare.compare(case, _oracle())[0].level

    def still_differs(smaller: Case) -> bool:
        try:
            found = compare.compare(smaller, _oracle())
        except OracleError:
            return False
        return found[0].level == level and why(smaller, found) == UNEXPLAINED

    small = shrink(case, still_differs)
    return story.tell(small, compare.compare(small, _oracle())[0])


def replay(seed: int, *, shrunk: bool = False) -> str:
    """Return the story of one seed, and what explains it."""
    if shrunk:
        return shrunk_story(seed)
    case = worlds.draw(seed)
    found = compare.compare(case, _oracle())
    return f"{story.tell(case, found[0])}\n  {why(case, found)}"
