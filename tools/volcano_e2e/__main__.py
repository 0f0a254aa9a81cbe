"""`make volcano-e2e`: run Volcano's own end-to-end suites against hekla on a real kube-apiserver.

Exits with 1 if the results differ from `known.py`: a case fails without a known reason, a known
one passes, or a known one is no longer in its suite.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
from pathlib import Path

from tools.volcano_e2e.cluster import clean, hekla_on_kubernetes
from tools.volcano_e2e.compare import Outcome, Totals, stale, surprises, table
from tools.volcano_e2e.known import KNOWN
from tools.volcano_e2e.runs import Runner, run_all
from tools.volcano_e2e.suites import LEFT_OUT, SUITES, Case, cases


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.volcano_e2e", description=__doc__)
    parser.add_argument(
        "--suite", action="append", choices=SUITES, help="a suite; may repeat [default: all]"
    )
    parser.add_argument("--focus", default="", help="only cases whose name has this pattern")
    parser.add_argument("--limit", type=int, default=1200, help="seconds for one case")
    parser.add_argument("--dir", type=Path, help="where logs go; kept")
    arguments = parser.parse_args()
    where = (arguments.dir or Path(tempfile.mkdtemp(prefix="hekla-volcano-e2e-"))).resolve()
    print(f"logs: {where}", flush=True)
    totals = [
        run_suite(suite, where / suite, arguments.focus, arguments.limit)
        for suite in arguments.suite or SUITES
    ]
    for suite, reason in LEFT_OUT.items():
        print(f"left out: {suite}: {reason}")
    print(table(totals))
    return 1 if any(total.wrong for total in totals) else 0


def run_suite(name: str, where: Path, focus: str, limit_s: int) -> Totals:
    """Run a suite on a cluster of its own, and print what differs from `known.py`."""
    where.mkdir(parents=True, exist_ok=True)
    suite = SUITES[name]
    begun = time.monotonic()
    print(f"{name}:", flush=True)
    with hekla_on_kubernetes(where / "cluster", suite) as cluster:
        found = cases(name, cluster.kubeconfig)
        chosen = [case for case in found if re.search(focus, case.name)]
        runner = Runner(cluster.kubeconfig, where, limit_s)
        outcomes = run_all(runner, chosen, together=suite.together, clean=lambda: clean(cluster))
    wrong = stale(name, {case.name for case in found}, KNOWN) | surprises(outcomes, KNOWN)
    for case, line in wrong.items():
        print(f"{case}\n    {line}", *_evidence(runner, chosen, case, outcomes), sep="\n")
    return Totals(name, outcomes, wrong, time.monotonic() - begun)


def _evidence(
    runner: Runner, cases: list[Case], name: str, outcomes: dict[str, Outcome]
) -> list[str]:
    """Return the first lines of a failure, and where its log is."""
    logs = [runner.log(case) for case in cases if case.name == name]
    told = outcomes[name].message.strip().splitlines()[:4] if name in outcomes else []
    return [*(f"    {line}" for line in told), *(f"    {log}" for log in logs)]


if __name__ == "__main__":
    sys.exit(main())
