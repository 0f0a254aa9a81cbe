"""Which cases the suite has, and what docs/conformance.md says of those that do not pass.

The suite's own list is data in the Go module k8s.io/kubernetes. The document holds ours: below
`## Left out` and `## Known failures`, a `###` heading is a reason and each `- ` line under it one
case. What a newcomer gets wrong: there is no second list. A case that is in neither section runs
and has to pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from tools.schemas import kubernetes
from tools.schemas.generate import module_dir

DOCUMENT = Path(__file__).parents[2] / "docs" / "conformance.md"
SIGS = ("sig-api-machinery", "sig-auth", "sig-apps", "sig-node")
TAG = " [Conformance]"
_LIST = Path("test/conformance/testdata/conformance.yaml")
_SECTIONS = {"## Left out": "left_out", "## Known failures": "failing"}


@dataclass(frozen=True, slots=True)
class Listed:
    """Cases of the document, each with its reason."""

    left_out: Mapping[str, str] = field(default_factory=dict)
    failing: Mapping[str, str] = field(default_factory=dict)


def suite() -> list[str]:
    """Every conformance case of our groups, without the tag they all carry."""
    text = (module_dir(kubernetes.MODULE, kubernetes.VERSION) / _LIST).read_text()
    names = (" ".join(entry["codename"].split()) for entry in yaml.safe_load(text))
    return sorted(name.removesuffix(TAG) for name in names if sig_of(name) in SIGS)


def sig_of(name: str) -> str:
    """`sig-node` of `[sig-node] Pods should …`."""
    return name.partition("]")[0].removeprefix("[")


def listed(document: Path = DOCUMENT) -> Listed:
    found: dict[str, dict[str, str]] = {"left_out": {}, "failing": {}}
    section, reason = "", ""
    for line in document.read_text().splitlines():
        if line.startswith("## "):
            section, reason = _SECTIONS.get(line.strip(), ""), ""
        elif line.startswith("### "):
            reason = line.removeprefix("### ").strip()
        elif section and line.startswith("- "):
            name = line.removeprefix("- ").strip()
            if name in found[section]:
                raise ValueError(f"{document.name} lists twice: {name}")
            found[section][name] = reason
    return Listed(found["left_out"], found["failing"])


def stale(cases: Iterable[str], ours: Listed) -> list[str]:
    """What is wrong with the document's lists, whatever a run may say."""
    known = set(cases)
    told = [
        f"listed, but not in the suite: {name}"
        for name in [*ours.left_out, *ours.failing]
        if name not in known
    ]
    told += [f"listed both ways: {name}" for name in ours.left_out if name in ours.failing]
    reasons = {**ours.left_out, **ours.failing}
    return told + [f"listed without a reason: {name}" for name, why in reasons.items() if not why]


def surprises(results: Mapping[str, str], ours: Listed) -> list[str]:
    """Where a run's outcomes are not what the document says."""
    told = []
    for name, state in sorted(results.items()):
        if state == "passed" and name in ours.failing:
            told.append(f"passes now; take it off the list: {name}")
        elif state != "passed" and name not in ours.failing:
            told.append(f"{state}: {name}")
    return told
