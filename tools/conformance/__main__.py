"""`make conformance`: run Kubernetes' conformance tests against the single-machine cluster.

Starts `hekla up` in a new directory with nodes simulated by kwok (these cases need pods in phase
Running, not containers), runs every case that docs/conformance.md does not exclude, and prints the
counts. Exits with 1 if the results differ from the document: an unknown or missing case, an
unexpected failure, or an unexpected pass.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from hekla.kube import kubeconfig
from hekla.kube.errors import KubeError
from hekla.kube.resources import NODES
from hekla.kube.retries import RetryPolicy
from hekla.kube.sync_client import SyncClient
from tools.conformance.cases import DOCUMENT, SIGS, listed, sig_of, stale, suite, surprises
from tools.conformance.runs import Outcome, Suite, run_all
from tools.kube.cluster import node_manifest, start_kwok
from tools.kube.gobuild import ensure
from tools.kube.parts import E2E
from tools.kube.processes import Processes

NODE_COUNT = 2
_TOTALS = re.compile(r"(<!-- totals -->\n).*?(<!-- end of totals -->)", re.S)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.conformance", description=__doc__)
    parser.add_argument("--focus", default="", help="only cases whose name has this pattern")
    parser.add_argument("--all", action="store_true", help="also those that are left out")
    parser.add_argument("--check", action="store_true", help="only the document, without a run")
    parser.add_argument("--write", action="store_true", help="put the totals into the document")
    parser.add_argument("--together", type=int, default=2, help="batches at the same time")
    parser.add_argument("--dir", type=Path, help="where logs go; kept")
    arguments = parser.parse_args()
    cases, ours = suite(), listed()
    wrong = stale(cases, ours)
    chosen = [name for name in cases if arguments.all or name not in ours.left_out]
    chosen = [name for name in chosen if re.search(arguments.focus, name)]
    outcomes: dict[str, Outcome] = {}
    if not arguments.check:
        where = arguments.dir or Path(tempfile.mkdtemp(prefix="hekla-conformance-"))
        outcomes = _run(where.resolve(), chosen, arguments.together)
        states = {name: outcome.state for name, outcome in outcomes.items()}
        wrong += surprises(states, ours)
        print(f"\nlogs: {where}\n\n{table(states, ours.left_out)}")
        if arguments.write and not arguments.focus:
            text = DOCUMENT.read_text()
            shown = table(states, ours.left_out)
            DOCUMENT.write_text(_TOTALS.sub(lambda m: f"{m[1]}{shown}\n{m[2]}", text))
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


def table(states: Mapping[str, str], left_out: Iterable[str]) -> str:
    """Return counts by group as Markdown."""
    rows = ["| group | passed | failed | left out |", "|---|---|---|---|"]
    passed = Counter(sig_of(name) for name, state in states.items() if state == "passed")
    failed = Counter(sig_of(name) for name, state in states.items() if state != "passed")
    out = Counter(sig_of(name) for name in left_out if name not in states)
    rows += [f"| {sig} | {passed[sig]} | {failed[sig]} | {out[sig]} |" for sig in SIGS]
    rows.append(f"| all | {passed.total()} | {failed.total()} | {out.total()} |")
    return "\n".join(rows)


def _run(where: Path, cases: list[str], together: int) -> dict[str, Outcome]:
    program = ensure(E2E)
    where.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(where / "data", ignore_errors=True)  # of an earlier run
    with _cluster(where) as config:
        checked = Suite(program, config, where)
        return run_all(checked, cases, together=together)


@contextlib.contextmanager
def _cluster(where: Path) -> Iterator[Path]:
    """Run `hekla up` with nodes simulated by kwok."""
    processes = Processes(where)
    config = where / "data" / "kubeconfig"
    hekla = Path(sys.executable).with_name("hekla")
    try:
        processes.start(
            "hekla", [hekla, "up", "--port", "0", "--no-agent", "--data-dir", where / "data"]
        )
        processes.wait_for("hekla", lambda: config.exists() and _answers(config))
        with SyncClient(kubeconfig.load(config), component="conformance") as client:
            for number in range(NODE_COUNT):
                node = node_manifest(f"node-{number}", labels={"kubernetes.io/os": "linux"})
                client.create(NODES, node)
        start_kwok(processes, config)
        yield config
    finally:
        processes.stop_all()


def _answers(config: Path) -> bool:
    retry = RetryPolicy(attempts=1)
    with SyncClient(kubeconfig.load(config), retry=retry, timeout_s=5) as client:
        try:
            return client.request("GET", "/readyz") == b"ok"
        except (KubeError, OSError):
            return False


if __name__ == "__main__":
    sys.exit(main())
