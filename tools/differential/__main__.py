"""`python -m tools.differential --requests 10000`: compare both servers on the same requests.

Sequences are drawn from a seed, so a finding can be reproduced. Exits with 1 if the servers differ
in anything that `known` does not list.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tools.differential.run import Comparison, Totals
from tools.differential.servers import both


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.differential", description=__doc__)
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    totals = Totals()
    with (
        tempfile.TemporaryDirectory(prefix="hekla-differential-") as directory,
        both(Path(directory)) as (real, ours),
    ):
        Comparison(real, ours, totals).run(arguments.seed, arguments.requests)
    print(report(totals))
    return 1 if totals.findings else 0


def report(totals: Totals) -> str:
    lines = [
        f"{totals.requests} requests in {totals.episodes} episodes, "
        f"{totals.watched} events replayed; "
        f"{totals.excused.total()} lasting differences, {totals.findings.total()} others"
    ]
    lines += [f"  lasting: {count:5} {title}" for title, count in totals.excused.most_common()]
    for signature, count in totals.findings.most_common():
        finding = totals.examples[signature][0]
        lines.append(f"{count:5} {signature}\n      {finding.found}\n      {finding.where}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
