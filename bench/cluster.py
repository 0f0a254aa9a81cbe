"""Compare schedulers on a real Kubernetes: `python -m bench.cluster --case 10x100@1000`.

The same load on kube-apiserver, etcd and kwok nodes (built by tools/kube when first used) for
hekla, Volcano, kube-scheduler, Kueue with kube-scheduler, any other scheduler given by --peer, and
the ceiling: a client that only creates the same pods and posts the same bindings. One system runs
at a time, in alternating order. `bench/README.md` explains the numbers.

    python -m bench.cluster --case 10x100@1000 --rounds 3
    python -m bench.cluster --case all --out docs/images              # some hours
    python -m bench.cluster --case 4x10@20 --systems hekla,ceiling
    python -m bench.cluster --peer "mine@my-name=/opt/mine --kubeconfig {kubeconfig}"
"""

from __future__ import annotations

import argparse
import json
import tempfile
from dataclasses import asdict
from pathlib import Path

import uvloop

from bench.sidebyside import cases, plot, report, run, systems
from bench.sidebyside.cases import Case
from bench.sidebyside.processes import describe_machine, wait_for_quiet
from bench.sidebyside.run import Result
from bench.sidebyside.systems import System

WARM_UPS = ("4x10@20", "jobs-4x10@20")
"""A system warms up with the first of these cases that it supports."""
Rounds = dict[str, list[Result]]


def compare(case: Case, wanted: list[System], keep: Path, arguments: argparse.Namespace) -> Rounds:
    """Run every system in every round, in alternating order."""
    found: Rounds = {system.name: [] for system in wanted}
    for number in range(arguments.rounds):
        for system in wanted if number % 2 == 0 else reversed(wanted):
            if not system.plays(case):
                continue
            directory = keep / case.name / f"{number}-{system.name}"
            if directory.exists():
                raise SystemExit(f"{directory} is left from before; remove it or choose another")
            wait_for_quiet(arguments.wait_for_quiet)
            result = uvloop.run(run.measure(case, system, directory, arguments.patience))
            found[system.name].append(result)
            print(f"  round {number + 1}: {_line(result)}", flush=True)
    return {name: results for name, results in found.items() if results}


def find(name: str) -> list[Case]:
    """Return the case of this name, or all cases of the table."""
    return list(cases.CASES.values()) if name == "all" else [cases.find(name)]


def warm_up(wanted: list[System], keep: Path, arguments: argparse.Namespace) -> None:
    """Run each system once without measuring: the first run reads the programs from disk."""
    for system in wanted:
        directory = keep / "warm-up" / system.name
        case = next(case for case in map(cases.find, WARM_UPS) if system.plays(case))
        uvloop.run(run.measure(case, system, directory, arguments.patience))


def _line(result: Result) -> str:
    numbers = result.numbers
    faults = {key: count for key, count in numbers["faults"].items() if count}
    return (
        f"{result.system}: {numbers['bound']} of {numbers['pods']} bound, "
        f"{numbers.get('pods_per_s', 0):.0f} pods/s, "
        f"CPU {numbers['scheduler_cpu_ms_per_pod']:.2f} ms/pod, "
        f"{numbers['calls_per_pod']:.2f} calls/pod, "
        f"others' share {numbers['others_share']:.2f}, "
        f"faults {faults or 'none'}"
    )


def write(out: Path, case: Case, rounds: Rounds, machine: str) -> None:
    """Write the JSON and the plot of a case."""
    out.mkdir(parents=True, exist_ok=True)
    body = {
        "case": asdict(case),
        "machine": machine,
        "rounds": {name: [asdict(r) for r in results] for name, results in rounds.items()},
    }
    stem = f"cluster-{case.name.replace('@', '-on-')}"
    (out / f"{stem}.json").write_text(json.dumps(body))
    plot.draw(out / f"{stem}.png", case.title(), rounds)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    known = ", ".join(cases.CASES)
    parser.add_argument(
        "--case", action="append", help=f"may repeat; GANGSxSIZE@NODES, all, or one of: {known}"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--systems", default="hekla,volcano,ceiling", help="in order")
    parser.add_argument("--peer", action="append", default=[], help="NAME[@SCHEDULER]=COMMAND")
    parser.add_argument("--out", type=Path, help="where JSON and pictures go")
    parser.add_argument("--keep", type=Path, help="keep logs of servers and schedulers there")
    parser.add_argument("--patience", type=float, default=600.0, help="seconds a run may take")
    parser.add_argument(
        "--cold", action="store_true", help="no unmeasured run of each system to begin with"
    )
    parser.add_argument(
        "--wait-for-quiet",
        type=float,
        default=0.0,
        metavar="S",
        help="before each run, wait up to this long for idle CPUs",
    )
    return parser.parse_args()


def main() -> None:
    arguments = _arguments()
    try:
        chosen = [case for name in arguments.case or ["10x100@1000"] for case in find(name)]
        names = [name for name in arguments.systems.split(",") if name]
        wanted = [systems.built_in(name) for name in names]
        wanted += [systems.peer(text) for text in arguments.peer]
    except ValueError as error:
        raise SystemExit(str(error)) from None
    machine = describe_machine()
    print(machine)
    with tempfile.TemporaryDirectory(prefix="hekla-bench-") as directory:
        if not arguments.cold:
            warm_up(wanted, arguments.keep or Path(directory), arguments)
        for case in chosen:
            print(f"\n{case.name}: {case.title()}", flush=True)
            keep = arguments.keep or Path(directory)
            rounds = compare(case, wanted, keep, arguments)
            print(report.table(rounds))
            print(report.FOOTNOTE)
            print("\n".join(report.ratios(rounds)), flush=True)
            if arguments.out is not None:
                write(arguments.out, case, rounds, machine)


if __name__ == "__main__":
    main()
