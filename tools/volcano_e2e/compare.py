"""The outcome of a case, and the comparison of the outcomes of a run with `known.py`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from tools.volcano_e2e.ginkgo import Spec


@dataclass(frozen=True, slots=True)
class Outcome:
    state: str
    """passed, failed, skipped by itself, `stopped` at the limit, or `missing` if it never ran."""
    seconds: float = 0.0
    message: str = ""


def outcome_of(
    specs: Sequence[Spec], text: str, seconds: float, *, was_stopped: bool = False
) -> Outcome:
    """Return the outcome of a program that ran one case, from its report."""
    ran = [spec for spec in specs if spec.was_chosen and spec.text == text]
    wrong = [spec for spec in ran if spec.state not in ("passed", "skipped")]
    if was_stopped or any(spec.state == "timedout" for spec in wrong):
        return Outcome("stopped", seconds, "not done at the time limit")
    if not ran:
        return Outcome("missing", seconds)
    if wrong:
        return Outcome("failed", seconds, wrong[0].message)
    # Several cases may have one name: it passes if each of them does.
    return Outcome(min(spec.state for spec in ran), seconds, ran[0].message)


def surprises(outcomes: Mapping[str, Outcome], known: Mapping[str, str]) -> dict[str, str]:
    """Return what is wrong with every outcome that differs from the known ones, by case.

    A case that never ran is a surprise even if it is known to fail: nothing was learned of it. One
    that skips itself is none, but a reason for it is.
    """
    found = {}
    for name, outcome in sorted(outcomes.items()):
        if outcome.state in ("passed", "skipped"):
            if name in known:
                found[name] = f"{outcome.state}, and known.py says that it fails"
        elif outcome.state == "missing":
            found[name] = "was not run by its program"
        elif name not in known:
            found[name] = f"{outcome.state}, and known.py has no reason"
    return found


def stale(suite: str, names: Collection[str], known: Mapping[str, str]) -> dict[str, str]:
    """Return every known failure of a suite that is no longer in it."""
    return {
        name: "is in known.py, and not in the suite"
        for name in sorted(known)
        if name.startswith(f"{suite}: ") and name not in names
    }


@dataclass(frozen=True, slots=True)
class Totals:
    """The counts of one suite."""

    suite: str
    outcomes: Mapping[str, Outcome]
    wrong: Mapping[str, str]
    seconds: float

    def row(self) -> tuple[str, ...]:
        right = [outcome for name, outcome in self.outcomes.items() if name not in self.wrong]
        passed = sum(outcome.state == "passed" for outcome in right)
        skipped = sum(outcome.state == "skipped" for outcome in right)
        numbers = (passed, len(right) - passed - skipped, skipped, len(self.wrong))
        return (self.suite, *map(str, numbers), f"{self.seconds / 60:.1f}")


def table(totals: Sequence[Totals]) -> str:
    """Return the counts as a table in Markdown."""
    heads = ("suite", "passed", "known", "skips itself", "unexpected", "minutes")
    rows = [heads, ("---",) * len(heads), *(total.row() for total in totals)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)
