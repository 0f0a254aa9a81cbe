"""Read the reports that a ginkgo suite writes with --ginkgo.json-report."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Spec:
    """One case of a report."""

    text: str
    """Its texts, from the outermost container to the leaf."""
    state: str
    """As ginkgo says: passed, failed, panicked, timedout, interrupted, skipped, pending."""
    was_chosen: bool
    """The case was started; otherwise it is only in the list."""
    message: str = ""
    """Why it failed, or why it skipped itself."""


def read_report(file: Path) -> list[Spec]:
    """Return the cases of a report; none if the program ended before it wrote one."""
    if not file.exists():
        return []
    (told,) = json.loads(file.read_text())
    return [_spec(entry) for entry in told["SpecReports"] if entry["LeafNodeType"] == "It"]


def _spec(entry: dict[str, Any]) -> Spec:
    texts = [*(entry["ContainerHierarchyTexts"] or ()), entry["LeafNodeText"]]
    return Spec(
        # A container without a text adds a space to the name, but not to what a focus matches.
        " ".join(texts).strip(),
        entry["State"],
        entry["NumAttempts"] > 0,
        (entry.get("Failure") or {}).get("Message", ""),
    )
