"""Our decisions equal Volcano's, or differ for a documented reason.

Every case of the catalogue was recorded with the real Volcano (`record.py`) and runs through our
core here. A case with an intended difference states the reason and our outcome; if it agrees, the
statement is stale and the test fails. The outcome of a case about a plugin must depend on that
plugin, or the case is marked indifferent.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from tests.fidelity import ours
from tests.fidelity.catalogue import Case, cases
from tests.fidelity.outcome import comparable
from tests.fidelity.record import recorded

CASES = cases()
ROOT = Path(__file__).parents[2]
RECORD = "docs/decisions/0005-scheduling-where-we-differ-from-volcano.md"
GUIDE = "docs/guides/from-volcano.md"


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_decision_equals_volcanos_or_differs_as_documented(case: Case) -> None:
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


@pytest.mark.parametrize("case", [case for case in CASES if case.about], ids=str)
def test_a_case_about_a_plugin_needs_it(case: Case) -> None:
    with_it = comparable(ours.decide(case), case.compare)
    without_it = replace(case, conf=_without(case.conf, case.about))
    is_same = comparable(ours.decide(without_it), case.compare) == with_it
    assert is_same == case.is_indifferent


def _without(conf: str, plugin: str) -> str:
    stated = yaml.safe_load(conf)
    for tier in stated["tiers"]:
        tier["plugins"] = [one for one in tier["plugins"] if one["name"] != plugin]
    return yaml.safe_dump(stated)


def test_the_catalogue_is_broad() -> None:
    """At least two hundred cases, and no recording without a case."""
    assert len(CASES) >= 200
    for file in {case.file for case in CASES}:
        assert recorded(file).keys() <= {case.name for case in CASES if case.file == file}


@pytest.mark.parametrize("path", ["tests/fidelity/README.md", RECORD, GUIDE])
def test_documents_state_the_numbers_of_cases_and_differences(path: str) -> None:
    text = (ROOT / path).read_text()
    differing = sum(case.differs is not None for case in CASES)
    assert f"{len(CASES)} " in text
    assert f"{differing} " in text


def test_the_readme_states_the_number_of_recorded_decisions() -> None:
    assert f"{len(CASES)} recorded decisions" in (ROOT / "README.md").read_text()
