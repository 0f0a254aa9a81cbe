"""Reports of the suites of Volcano are read correctly, and differences from known.py reported."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from tools.volcano_e2e.compare import Outcome, Totals, outcome_of, stale, surprises, table
from tools.volcano_e2e.ginkgo import Spec, read_report
from tools.volcano_e2e.known import KNOWN
from tools.volcano_e2e.suites import LEFT_OUT, SUITES, Case

KNOWN_CASES = {"admission: a": "a reason"}


def entry(*texts: str, state: str = "passed", attempts: int = 1, **more: Any) -> dict[str, Any]:
    """Return a case as ginkgo reports it."""
    return {
        "ContainerHierarchyTexts": list(texts[:-1]) or None,
        "LeafNodeType": "It",
        "LeafNodeText": texts[-1],
        "State": state,
        "NumAttempts": attempts,
        **more,
    }


def written(tmp_path: Path, *entries: dict[str, Any]) -> Path:
    file = tmp_path / "report.json"
    file.write_text(json.dumps([{"SuiteDescription": "a suite", "SpecReports": entries}]))
    return file


def test_a_report_names_a_case_by_all_its_texts(tmp_path: Path) -> None:
    report = written(
        tmp_path,
        {"LeafNodeType": "BeforeSuite", "LeafNodeText": "", "State": "passed"},
        entry("Queues", "are deleted", "in order"),
        entry("alone", state="skipped", attempts=0),
        entry("Jobs", "end", state="failed", Failure={"Message": "Expected true"}),
    )
    assert read_report(report) == [
        Spec("Queues are deleted in order", "passed", was_chosen=True),
        Spec("alone", "skipped", was_chosen=False),
        Spec("Jobs end", "failed", was_chosen=True, message="Expected true"),
    ]


def test_a_program_that_wrote_no_report_ran_nothing(tmp_path: Path) -> None:
    assert read_report(tmp_path / "report.json") == []
    assert outcome_of([], "a", 1.5) == Outcome("missing", 1.5)


@pytest.mark.parametrize(
    ("told", "state"),
    [
        (["passed"], "passed"),
        (["failed"], "failed"),
        (["panicked"], "failed"),
        (["skipped"], "skipped"),
        (["timedout"], "stopped"),
        (["passed", "passed"], "passed"),
        (["passed", "failed"], "failed"),
        (["skipped", "passed"], "passed"),
        ([], "missing"),
    ],
)
def test_the_outcome_of_a_case(told: list[str], state: str) -> None:
    """Several cases of one name count as one."""
    others = [Spec("b", "failed", was_chosen=True), Spec("a", "skipped", was_chosen=False)]
    specs = [Spec("a", said, was_chosen=True) for said in told]
    assert outcome_of([*others, *specs], "a", 1.5).state == state


def test_a_program_that_was_killed_is_stopped_whatever_it_reported() -> None:
    specs = [Spec("a", "passed", was_chosen=True)]
    assert outcome_of(specs, "a", 9.0, was_stopped=True).state == "stopped"


def test_the_outcome_of_a_failed_case_has_its_message() -> None:
    specs = [Spec("a", "failed", was_chosen=True, message="Expected true")]
    assert outcome_of(specs, "a", 1.5) == Outcome("failed", 1.5, "Expected true")


def test_a_run_in_which_only_the_known_cases_fail_has_no_surprises() -> None:
    outcomes = {
        "admission: a": Outcome("failed"),
        "admission: b": Outcome("passed"),
        "admission: c": Outcome("skipped"),
    }
    assert surprises(outcomes, KNOWN_CASES) == {}


@pytest.mark.parametrize(
    ("name", "state", "told"),
    [
        ("admission: a", "passed", "passed, and known.py says that it fails"),
        ("admission: a", "skipped", "skipped, and known.py says that it fails"),
        ("admission: a", "missing", "was not run by its program"),
        ("admission: b", "missing", "was not run by its program"),
        ("admission: b", "failed", "failed, and known.py has no reason"),
        ("admission: b", "stopped", "stopped, and known.py has no reason"),
    ],
)
def test_every_difference_is_reported(name: str, state: str, told: str) -> None:
    assert surprises({name: Outcome(state)}, KNOWN_CASES) == {name: told}


def test_a_known_case_that_left_its_suite_is_reported() -> None:
    known = {**KNOWN_CASES, "jobp: c": "a reason"}
    assert stale("admission", {"admission: b"}, known) == {
        "admission: a": "is in known.py, and not in the suite"
    }
    assert stale("jobp", {"jobp: c"}, known) == {}


def test_the_table_counts_each_case_once() -> None:
    outcomes = {
        "admission: a": Outcome("failed"),
        "admission: b": Outcome("passed"),
        "admission: c": Outcome("skipped"),
        "admission: d": Outcome("failed"),
    }
    wrong = surprises(outcomes, KNOWN_CASES)
    assert table([Totals("admission", outcomes, wrong, 90.0)]).splitlines() == [
        "| suite | passed | known | skips itself | unexpected | minutes |",
        "| --- | --- | --- | --- | --- | --- |",
        "| admission | 1 | 1 | 1 | 1 | 1.5 |",
    ]


def test_a_focus_chooses_no_case_whose_name_only_begins_alike() -> None:
    assert Case("jobp", "Queue (a) is open").focus == r"Queue\ \(a\)\ is\ open$"


def test_every_known_case_has_a_suite_and_a_reason() -> None:
    assert {name.split(": ")[0] for name in KNOWN} <= set(SUITES)
    assert all(KNOWN.values())


def test_a_reason_that_is_a_decision_names_a_record_that_exists() -> None:
    records = Path(__file__).parents[2] / "docs" / "decisions"
    named = {
        number for reason in KNOWN.values() for number in re.findall(r"decisions/(\d+)", reason)
    }
    assert named
    assert all(list(records.glob(f"{number}-*.md")) for number in named)


def test_a_suite_is_run_or_left_out() -> None:
    assert not set(SUITES) & set(LEFT_OUT)
    assert all(LEFT_OUT.values())
