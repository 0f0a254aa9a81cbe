"""Run cases, one process each, and read the outcomes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from tools.volcano_e2e.compare import Outcome, outcome_of
from tools.volcano_e2e.ginkgo import read_report
from tools.volcano_e2e.suites import Case, program

KILL_AFTER_S = 20


@dataclass(frozen=True, slots=True)
class Runner:
    """Runs cases against a cluster; logs go into a directory."""

    kubeconfig: Path
    logs: Path
    limit_s: int

    def log(self, case: Case) -> Path:
        return self.logs / (re.sub(r"\W+", "-", case.text).strip("-")[:180] + ".log")

    def run(self, case: Case) -> Outcome:
        log = self.log(case)
        report = log.with_suffix(".json")
        words = [
            program(case.suite), f"--ginkgo.focus={case.focus}", "--ginkgo.no-color", "--ginkgo.v",
            f"--ginkgo.timeout={self.limit_s}s", "--ginkgo.grace-period=10s",
            f"--ginkgo.json-report={report}",
        ]  # fmt: skip
        environment = {
            **os.environ,
            "KUBECONFIG": str(self.kubeconfig),
            "VC_BIN": str(Path(sys.executable).parent),
        }
        begun = time.monotonic()
        was_stopped = False
        with log.open("wb") as output:
            process = subprocess.Popen(
                [str(word) for word in words],
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd=self.logs,
            )
            try:
                process.wait(self.limit_s + KILL_AFTER_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                was_stopped = True
        seconds = time.monotonic() - begun
        return outcome_of(read_report(report), case.text, seconds, was_stopped=was_stopped)


def run_all(
    runner: Runner, cases: Sequence[Case], *, together: int, clean: Callable[[], None]
) -> dict[str, Outcome]:
    """Run the cases of a suite. What others left behind is deleted before one that runs alone."""

    def run(case: Case) -> Outcome:
        outcome = runner.run(case)
        if together == 1 and outcome.state in ("failed", "stopped", "missing"):
            clean()
        return outcome

    outcomes: dict[str, Outcome] = {}
    with ThreadPoolExecutor(together) as pool:
        running = {pool.submit(run, case): case for case in cases}
        for number, done in enumerate(as_completed(running), 1):
            outcome = outcomes[running[done].name] = done.result()
            count = f"{number}/{len(cases)}"
            print(
                f"{count:>7} {outcome.state:8} {outcome.seconds:6.1f}s  {running[done].name}",
                flush=True,
            )
    return outcomes
