"""Run cases with the program of the suite, one process per case, and read the results.

The program enforces the time limit of a case and is killed if it does not, so a case that hangs
costs only its own limit.
"""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from tools.conformance.cases import TAG

CASE_LIMIT_S = 120
_KILL_AFTER_S = 60
_RAN_ONE = re.compile(r"^Ran 1 of \d+ Specs", re.M)


@dataclass(frozen=True, slots=True)
class Outcome:
    state: str
    """passed, failed, or `missing` when the program did not run it."""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Suite:
    """The program and the cluster under test."""

    program: Path
    kubeconfig: Path
    logs: Path

    def run(self, case: str) -> Outcome:
        words = [
            self.program, "--kubeconfig", self.kubeconfig, "--provider=skeleton",
            # A name may be a prefix of another: the tag ends it.
            f"--ginkgo.focus={re.escape(case + TAG)}", f"--ginkgo.timeout={CASE_LIMIT_S}s",
            "--ginkgo.no-color", "--ginkgo.v", "--ginkgo.grace-period=10s", "--disable-log-dump",
        ]  # fmt: skip
        log = self.logs / (re.sub(r"\W+", "-", case).strip("-")[:180] + ".log")
        begun = time.monotonic()
        with log.open("wb") as output:
            process = subprocess.Popen(
                [str(word) for word in words], stdout=output, stderr=subprocess.STDOUT
            )
            try:
                code = process.wait(CASE_LIMIT_S + _KILL_AFTER_S)
            except subprocess.TimeoutExpired:
                process.kill()
                code = process.wait()
        seconds = time.monotonic() - begun
        if not _RAN_ONE.search(log.read_text(errors="replace")):
            return Outcome("missing", seconds)
        return Outcome("failed" if code else "passed", seconds)


def run_all(suite: Suite, cases: Sequence[str], *, together: int) -> dict[str, Outcome]:
    """Run all cases; serial cases run last, one after the other."""
    outcomes: dict[str, Outcome] = {}
    for is_serial, workers in ((False, together), (True, 1)):
        with ThreadPoolExecutor(workers) as pool:
            running = {
                pool.submit(suite.run, name): name
                for name in cases
                if ("[Serial]" in name) is is_serial
            }
            for done in as_completed(running):
                name, outcome = running[done], done.result()
                outcomes[name] = outcome
                print(f"{outcome.state:8} {outcome.seconds:6.1f}s  {name}", flush=True)
    return outcomes
