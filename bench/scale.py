"""Measure the single-machine cluster at scale: `python -m bench.scale`; `--soak 30`: minutes of
churn.

`hekla up --simulated-nodes N` runs server, scheduler, controllers and simulated nodes in one
process. Jobs of 100 pods are submitted as fast as the server accepts them, and run to completion.
Each size has a new cluster.

The soak submits Jobs of ten pods at a steady rate, deletes them when they have finished, and
samples the memory, which must stop growing.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import uvloop

from bench.sidebyside import cases, plot, processes
from bench.sidebyside.cases import NAMESPACE, Case
from bench.sidebyside.load import Follower, in_flight
from bench.sidebyside.timeline import speeds
from hekla.kube import calls, kubeconfig
from hekla.kube.client import Client
from hekla.kube.resources import JOBS, NAMESPACES, NODES, PODS
from hekla.nodeagent.simulated import SECONDS

HEKLA = [sys.executable, "-m", "hekla.cli.main"]
SIZES = tuple(
    [(2000, pods) for pods in (2500, 5000, 10000, 20000)]
    + [(nodes, 10000) for nodes in (500, 1000, 4000)]
)
PER_JOB = 100
PATIENCE_S = 1800.0
SAMPLE_S = 10.0


@dataclass(frozen=True)
class Point:
    """One size."""

    nodes: int
    pods: int
    bound_s: float
    completed_s: float
    cpu_s: float
    memory_mb: float
    peak_mb: float

    def row(self) -> str:
        return (
            f"| {self.nodes:,} | {self.pods:,} | {self.bound_s:.1f} | {self.completed_s:.1f} | "
            f"{self.pods / self.completed_s:.0f} | {1000 * self.cpu_s / self.pods:.1f} | "
            f"{self.memory_mb:.0f} | {self.peak_mb:.0f} |"
        )


HEADER = (
    "| nodes | pods | all bound s | all completed s | pods/s | CPU ms/pod | memory MB | peak MB |"
    "\n|---|---|---|---|---|---|---|---|"
)


@contextlib.contextmanager
def cluster(nodes: int) -> Iterator[tuple[Path, int]]:
    """Start a new cluster; yield its kubeconfig and its process."""
    with tempfile.TemporaryDirectory(prefix="hekla-bench-") as where:
        options = ["--data-dir", where]
        begin = ["up", "--port", "0", "--detach", "--no-agent", "--simulated-nodes", str(nodes)]
        subprocess.run([*HEKLA, *begin, *options], check=True, capture_output=True)
        try:
            yield Path(where) / "kubeconfig", _process(where)
        finally:
            subprocess.run([*HEKLA, "down", *options], check=True, capture_output=True)


def _process(where: str) -> int:
    """Return the process of the cluster in a directory."""
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            words = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdigit() else []
            if b"up" in words and where.encode() in words:
                return int(entry.name)
    raise SystemExit(f"no process of `hekla up --data-dir {where}`")


async def ready(client: Client, nodes: int) -> None:
    await client.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
    listed = await client.list(NODES)
    seen = {node["metadata"]["name"] for node in listed.items}
    watch = client.watch(NODES, resource_version=listed.resource_version)
    async with asyncio.timeout(PATIENCE_S), watch as events:
        while len(seen) < nodes:
            seen.add((await anext(events)).object["metadata"]["name"])


def job(case: Case, name: str, seconds: float, **spec: Any) -> calls.Call:
    body = cases.job(case, name, "volcano")
    body["spec"].update(spec)
    (task,) = body["spec"]["tasks"]
    task["template"]["metadata"] = {"annotations": {SECONDS: str(seconds)}}
    return calls.create(JOBS, body, namespace=NAMESPACE)


async def completed(client: Client, count: int, version: str) -> None:
    """Wait until `count` Jobs are Completed."""
    done: set[str] = set()
    async with client.watch(JOBS, namespace=NAMESPACE, resource_version=version) as events:
        async for event in events:
            if ((event.object.get("status") or {}).get("state") or {}).get("phase") == "Completed":
                done.add(event.object["metadata"]["name"])
            if len(done) == count:
                return


async def size(config: Path, pid: int, nodes: int, pods: int) -> Point:
    """Run all Jobs of one size to completion."""
    case = Case("scale", pods // PER_JOB, PER_JOB, nodes, as_jobs=True)
    async with Client(kubeconfig.load(config), component="bench") as client:
        await ready(client, nodes)
        requests = [job(case, name, 0) for name in case.gang_names()]
        version = (await client.list(JOBS, namespace=NAMESPACE)).resource_version
        follower = Follower(client)
        async with follower.following(), asyncio.timeout(PATIENCE_S):
            cpu, began = processes.cpu_s(pid), time.monotonic()
            async with asyncio.TaskGroup() as group:
                group.create_task(completed(client, case.gangs, version))
                group.create_task(in_flight(client.call(request) for request in requests))
            took = time.monotonic() - began
            await follower.until_bound(case.pods, PATIENCE_S)
        numbers = speeds(follower.timeline, began)
        return Point(
            nodes, case.pods, numbers["last_bind_s"], took, processes.cpu_s(pid) - cpu,
            processes.memory_mb(pid), processes.peak_mb(pid),
        )  # fmt: skip


async def soak(config: Path, pid: int, arguments: argparse.Namespace) -> list[tuple[float, float]]:
    """Return samples of (seconds, megabytes) under steady churn."""
    per_job, interval_s = 10, 10 / arguments.pods_per_s
    case = Case("soak", 1, per_job, arguments.nodes, as_jobs=True)
    samples: list[tuple[float, float]] = []
    async with Client(kubeconfig.load(config), component="bench") as client:
        await ready(client, arguments.nodes)
        began, sent = time.monotonic(), 0
        while (now := time.monotonic() - began) < arguments.soak * 60:
            if now >= len(samples) * SAMPLE_S:
                samples.append((now, processes.memory_mb(pid)))
            await client.call(job(case, f"s{sent}", arguments.lasts, ttlSecondsAfterFinished=1))
            sent += 1
            await asyncio.sleep(max(0.0, began + sent * interval_s - time.monotonic()))
        left = len((await client.list(PODS, namespace=NAMESPACE)).items)
    print(
        f"{sent} jobs, {sent * per_job} pods in {arguments.soak:g} minutes; {left} pods are there"
    )
    return samples


def thirds(samples: list[tuple[float, float]]) -> list[float]:
    """Return the median memory of the first, second and last third."""
    cut = max(1, len(samples) // 3)
    parts = samples[:cut], samples[cut : 2 * cut], samples[2 * cut :]
    return [statistics.median(mb for _, mb in part) for part in parts if part]


def _write_soak(out: Path, machine: str, title: str, samples: list[tuple[float, float]]) -> None:
    (out / "soak.json").write_text(json.dumps({"machine": machine, "samples": samples}))
    plot.lines(out / "soak.png", title, "seconds", {"MB resident": samples})


def _write_sizes(out: Path, machine: str, points: list[Point]) -> None:
    """Write the numbers, and a plot over pods and one over nodes if there are two points."""
    body = {"machine": machine, "sizes": list(map(asdict, points))}
    (out / "scale.json").write_text(json.dumps(body))
    for along, fixed in (("pods", "nodes"), ("nodes", "pods")):
        for value in {getattr(point, fixed) for point in points}:
            found = sorted(
                (p for p in points if getattr(p, fixed) == value),
                key=lambda p: getattr(p, along),
            )
            if len(found) < 2:
                continue
            curves = {
                "seconds to all completed": [(getattr(p, along), p.completed_s) for p in found],
                "MB at the peak": [(getattr(p, along), p.peak_mb) for p in found],
            }
            title = f"One process, {value:,} {fixed}"
            plot.lines(out / f"scale-{along}.png", title, along, curves)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", action="append", metavar="NODESxPODS", help="may repeat")
    parser.add_argument("--soak", type=float, default=0.0, metavar="MINUTES")
    parser.add_argument("--nodes", type=int, default=200, help="of the soak")
    parser.add_argument("--pods-per-s", type=float, default=20.0, help="of the soak")
    parser.add_argument("--lasts", type=float, default=10.0, help="seconds of a pod of the soak")
    parser.add_argument("--out", type=Path, help="where JSON and pictures go")
    arguments = parser.parse_args()
    machine = processes.describe_machine()
    print(machine)
    if arguments.out is not None:
        arguments.out.mkdir(parents=True, exist_ok=True)
    if arguments.soak:
        with cluster(arguments.nodes) as (config, pid):
            samples = uvloop.run(soak(config, pid, arguments))
        print(
            "memory, median of each third: " + ", ".join(f"{mb:.0f} MB" for mb in thirds(samples))
        )
        title = f"Memory under churn, {arguments.pods_per_s:g} pods/s on {arguments.nodes} nodes"
        if arguments.out is not None:
            _write_soak(arguments.out, machine, title, samples)
        return
    wanted = [tuple(map(int, text.split("x"))) for text in arguments.size or ()] or SIZES
    points = []
    print(HEADER)
    for nodes, pods in wanted:
        with cluster(nodes) as (config, pid):
            points.append(uvloop.run(size(config, pid, nodes, pods)))
        print(points[-1].row(), flush=True)
    if arguments.out is not None:
        _write_sizes(arguments.out, machine, points)


if __name__ == "__main__":
    main()
