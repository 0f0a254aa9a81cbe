"""The cases of the suite, and the exceptions in docs/conformance.md.

The list of the suite is data in the Go module k8s.io/kubernetes. The exceptions are in the
document: below `## Left out` and `## Known failures`, a `###` heading is a reason and each `- `
line under it one case.

Note: a case that is in neither section runs and must pass.
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
    """Return every conformance case of the supported groups, without the common tag."""
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
    """Return errors of the document that do not depend on a run."""
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
    """Return differences between the results of a run and the document."""
    told = []
    for name, state in sorted(results.items()):
        if state == "passed" and name in ours.failing:
            told.append(f"passes now; take it off the list: {name}")
        elif state != "passed" and name not in ours.failing:
            told.append(f"{state}: {name}")
    return told
