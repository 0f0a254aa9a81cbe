"""Our decisions are Volcano's, or differ for a reason that is written down.

Every case of the catalogue was run through the real Volcano once (`record.py`) and runs through our
core here. One that differs on purpose says why and what we do instead; should it agree one day, the
note is stale and the test says so.
"""

from __future__ import annotations

import pytest

from tests.fidelity import ours
from tests.fidelity.catalogue import Case, cases
from tests.fidelity.outcome import comparable
from tests.fidelity.record import recorded

CASES = cases()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_decision_is_volcanos_or_differs_as_written(case: Case) -> None:
    theirs = recorded(case.file).get(case.name)
    assert theirs is not None, "not recorded yet: python -m tests.fidelity.record"
    want = comparable({key: theirs[key] for key in ("pods", "phases")}, case.compare)
    got = comparable(ours.decide(case), case.compare)
    if case.differs is None:
        assert got == want
        return
    assert case.differs["why"]
    assert got != want, "agrees with Volcano: take the note about a difference out"
    assert got == case.differs["ours"]


def test_the_catalogue_is_broad() -> None:
    """Forty small clusters or more, and nothing recorded for a case that is gone."""
    assert len(CASES) >= 40
    for file in {case.file for case in CASES}:
        assert recorded(file).keys() <= {case.name for case in CASES if case.file == file}
