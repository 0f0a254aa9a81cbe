"""docs/conformance.md lists only existing cases, and every accepted difference."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tools.conformance.__main__ import table
from tools.conformance.cases import DOCUMENT, Listed, listed, stale, suite, surprises
from tools.differential.known import KNOWN


def test_every_case_of_the_document_is_in_the_suite() -> None:
    if shutil.which("go") is None:
        pytest.skip("needs go, which has the suite's list among its modules: install go")
    assert stale(suite(), listed()) == []


def test_every_lasting_difference_has_its_reason() -> None:
    text = DOCUMENT.read_text()
    assert [known.title for known in KNOWN if f"### {known.title}\n" not in text] == []


def test_a_missing_or_duplicate_case_is_reported(tmp_path: Path) -> None:
    document = tmp_path / "conformance.md"
    document.write_text(
        "## Left out\n\n### no engine\n\n- [sig-node] a\n- [sig-node] gone\n\n"
        "## Known failures\n\n- [sig-node] a\n"
    )
    ours = listed(document)
    assert ours == Listed({"[sig-node] a": "no engine", "[sig-node] gone": "no engine"},
                          {"[sig-node] a": ""})  # fmt: skip
    told = stale(["[sig-node] a"], ours)
    assert told == [
        "listed, but not in the suite: [sig-node] gone",
        "listed both ways: [sig-node] a",
        "listed without a reason: [sig-node] a",
    ]


def test_unexpected_failures_and_passes_are_reported() -> None:
    ours = Listed(failing={"[sig-apps] b": "why"})
    states = {"[sig-apps] a": "failed", "[sig-apps] b": "passed", "[sig-apps] c": "passed"}
    assert surprises(states, ours) == [
        "failed: [sig-apps] a",
        "passes now; take it off the list: [sig-apps] b",
    ]
    assert "| sig-apps | 2 | 1 | 1 |" in table(states, ["[sig-apps] d"])
