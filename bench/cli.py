"""Measure the start-up cost of the command line: `python -m bench.cli [--runs 15]`.

CPU time (user and system) of whole processes: the median of several runs, and its ratio to an empty
Python process. The aim is 250 ms for `vcctl version` and for `vcctl job list`.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

COMMANDS: dict[str, list[str]] = {
    "python -c pass": ["-c", "pass"],
    "vcctl version": ["-m", "hekla.cli.vcctl.main", "version"],
    "vcctl job list": ["-m", "hekla.cli.vcctl.main", "job", "list"],
    "vcctl queue list": ["-m", "hekla.cli.vcctl.main", "queue", "list"],
    "vcctl pod list": ["-m", "hekla.cli.vcctl.main", "pod", "list"],
}


def cpu_ms(arguments: list[str], env: dict[str, str]) -> float:
    """Return the CPU milliseconds of one process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], env=env, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    user, system = after.ru_utime - before.ru_utime, after.ru_stime - before.ru_stime
    return (user + system) * 1000


def measure(runs: int) -> dict[str, dict[str, float]]:
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "server"
        server = subprocess.Popen(
            [sys.executable, "-m", "hekla.apiserver", "--data-dir", str(data)],
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert server.stdout is not None
            server.stdout.readline()
            # Keep compiled modules, as an installation does.
            env = {
                **os.environ,
                "KUBECONFIG": str(data / "kubeconfig"),
                "PYTHONPYCACHEPREFIX": f"{folder}/compiled",
            }
            env.pop("PYTHONDONTWRITEBYTECODE", None)
            found: dict[str, dict[str, float]] = {}
            for name, arguments in COMMANDS.items():
                cpu_ms(arguments, env)
                found[name] = {
                    "cpu_ms": statistics.median(cpu_ms(arguments, env) for _ in range(runs))
                }
            empty = found["python -c pass"]["cpu_ms"]
            for one in found.values():
                one["times_empty_python"] = one["cpu_ms"] / empty
            return found
        finally:
            server.terminate()
            server.communicate()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    found = measure(given.runs)
    if given.json:
        print(json.dumps(found, indent=2))
        return
    for name, one in found.items():
        print(f"{name:<20} {one['cpu_ms']:6.0f} ms CPU  {one['times_empty_python']:5.1f} ×")


if __name__ == "__main__":
    main()
