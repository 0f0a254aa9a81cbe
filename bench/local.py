"""Measure a trivial job on one machine: its latency, and jobs per second.

    python -m bench.local [--jobs 1000]

A cluster is started in a temporary directory. A job is one pod that runs `true`; its time runs from
the create request to the event with phase Completed. For comparison, in the same run: GNU parallel,
task-spooler, a shell loop, and Slurm if its daemons run.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from hekla.kube import kubeconfig
from hekla.kube.client import Client
from hekla.kube.resources import JOBS
from hekla.sdk.builders import Job, Task

HEKLA = [sys.executable, "-m", "hekla.cli.main"]
AT_ONCE = 64
SINGLE_RUNS = 20


def job(name: str) -> dict[str, Any]:
    task = Task("main", image="host", command=["true"], cpu="10m")
    return Job(name, [task], namespace="default").manifest()


async def completed(client: Client, names: set[str], version: str) -> None:
    """Wait until all jobs are Completed."""
    left = set(names)
    async with client.watch(JOBS, namespace="default", resource_version=version) as events:
        async for event in events:
            phase = ((event.object.get("status") or {}).get("state") or {}).get("phase")
            if phase == "Completed":
                left.discard(event.object["metadata"]["name"])
            elif phase in ("Failed", "Aborted", "Terminated"):
                raise SystemExit(f"{event.object['metadata']['name']} ended as {phase}")
            if not left:
                return


async def singles(client: Client) -> list[float]:
    """Run one job after the other on an idle cluster."""
    times = []
    for number in range(SINGLE_RUNS):
        listed = await client.list(JOBS, namespace="default")
        began = time.perf_counter()
        await client.create(JOBS, job(f"single-{number}"))
        await completed(client, {f"single-{number}"}, listed.resource_version)
        times.append(time.perf_counter() - began)
    return times


async def many(client: Client, count: int) -> float:
    """Return jobs per second, from the first request to the last Completed."""
    names = [f"many-{number}" for number in range(count)]
    listed = await client.list(JOBS, namespace="default")
    gate = asyncio.Semaphore(AT_ONCE)

    async def submit(name: str) -> None:
        async with gate:
            await client.create(JOBS, job(name))

    began = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        group.create_task(completed(client, set(names), listed.resource_version))
        for name in names:
            group.create_task(submit(name))
    return count / (time.perf_counter() - began)


def commands(where: str) -> list[float]:
    """Time `hekla run`."""
    times = []
    for _ in range(5):
        began = time.perf_counter()
        subprocess.run(
            [*HEKLA, "run", "--data-dir", where, "--", "true"], check=True, capture_output=True
        )
        times.append(time.perf_counter() - began)
    return times


def others(count: int) -> dict[str, float | None]:
    """Return jobs per second of other programs; None if not installed."""

    def timed(line: str) -> float:
        began = time.perf_counter()
        subprocess.run(["bash", "-c", line], check=True, capture_output=True)
        return count / (time.perf_counter() - began)

    numbers = f"$(seq {count})"
    found: dict[str, float | None] = {
        "a loop of the shell": timed(f"for i in {numbers}; do /bin/true; done")
    }
    found["GNU parallel, 8 at once"] = (
        timed(f"parallel -j 8 /bin/true ::: {numbers}") if shutil.which("parallel") else None
    )
    found["task-spooler, 8 at once"] = (
        timed(f"tsp -S 8; for i in {numbers}; do tsp /bin/true; done; tsp -w; tsp -C; tsp -K")
        if shutil.which("tsp")
        else None
    )
    found["slurm (sbatch --wait)"] = (
        timed(f"sbatch --wait --array=1-{count} --wrap=/bin/true")
        if shutil.which("sbatch") and not subprocess.call(["scontrol", "ping"])
        else None
    )
    return found


async def measure(where: str, count: int) -> None:
    async with Client(kubeconfig.load(Path(where) / "kubeconfig")) as client:
        times = await singles(client)
        print(f"one job, submission to Completed: median {statistics.median(times) * 1e3:.0f} ms, "
              f"{min(times) * 1e3:.0f} to {max(times) * 1e3:.0f}")  # fmt: skip
        print(f"{count} jobs: {await many(client, count):.0f} a second")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--jobs", type=int, default=1000)
    count = parser.parse_args().jobs
    with tempfile.TemporaryDirectory(prefix="hekla-bench-") as where:
        subprocess.run(
            [*HEKLA, "up", "--port", "0", "--detach", "--data-dir", where],
            check=True,
            capture_output=True,
        )
        try:
            asyncio.run(measure(where, count))
            times = commands(where)
            print(f"`hekla run -- true`: median {statistics.median(times) * 1e3:.0f} ms")
        finally:
            subprocess.run([*HEKLA, "down", "--data-dir", where], check=True, capture_output=True)
    for name, rate in others(count).items():
        print(f"{name}: {'not here' if rate is None else f'{rate:.0f} a second'}")


if __name__ == "__main__":
    main()
