"""Volcano's end-to-end suites as programs, and the cases in them."""

from __future__ import annotations

import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tools.kube.gobuild import Part, ensure
from tools.volcano_e2e.ginkgo import read_report

_FOLDER = Path(__file__).parents[1] / "peers" / "volcano_e2e"
_MODULE = "volcano.sh/volcano"


@dataclass(frozen=True, slots=True)
class Suite:
    """How a suite is run."""

    together: int = 1
    """How many cases may run at the same time. Those that fill the cluster run alone."""
    tainted_nodes: int = 0
    """Nodes `kwok-node-0` … that only pods of the suite tolerate."""


SUITES = {
    "admission": Suite(together=4),
    "jobp": Suite(together=4),
    "vcctl": Suite(),
    "cronjob": Suite(together=9),
    "stress": Suite(),
    "hypernode": Suite(tainted_nodes=8),
    "schedulingbase": Suite(),
    "schedulingaction": Suite(),
    "jobseq": Suite(),
}

LEFT_OUT = {
    "dra": (
        "its driver is a pod on every node that offers devices to the kubelet over a socket;"
        " on simulated nodes no driver runs, and no case gets past its set-up"
    ),
}
"""Suites of Volcano that have no meaning on simulated nodes, each with the reason."""


@dataclass(frozen=True, slots=True)
class Case:
    """One spec: the suite, and its texts from the outermost container to the leaf."""

    suite: str
    text: str

    @property
    def name(self) -> str:
        return f"{self.suite}: {self.text}"

    @property
    def focus(self) -> str:
        return f"{re.escape(self.text)}$"


def part(suite: str) -> Part:
    package = f"{_MODULE}/test/e2e/{suite}"
    return Part(f"{suite}.test", _FOLDER, _MODULE, package, is_test=True)


def program(suite: str) -> Path:
    """Return the program of a suite, built on first use."""
    return ensure(part(suite))


def cases(suite: str, kubeconfig: Path) -> list[Case]:
    """Return all cases of a suite. The program reads a kubeconfig even to list them."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        subprocess.run(
            [program(suite), "--ginkgo.dry-run", f"--ginkgo.json-report={report}"],
            env={"KUBECONFIG": str(kubeconfig)},
            check=True,
            capture_output=True,
            cwd=folder,
        )
        texts = [spec.text for spec in read_report(report) if spec.state != "pending"]
    return [Case(suite, text) for text in dict.fromkeys(texts)]
