"""Measure the embedded API server under load: `python -m bench.apiserver [--pods 10000]`.

One server process and one client process. Absolute rates depend on the machine, so each rate is
also given as a share of the *ceiling*: the rate at which the same client gets empty responses from
the same server in the same run. CPU is that of the server, from /proc.

    python -m bench.apiserver --against-kubernetes --rounds 3

sends the same load to kube-apiserver with etcd (tools/kube), alternating, and prints the ratios.
Both servers then sync each commit to the disk. `--json FILE` writes the numbers.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import uvloop
from tools.kube.cluster import KubeCluster

from bench.sidebyside import processes
from hekla.kube import kubeconfig
from hekla.kube.client import Client
from hekla.kube.resources import NODES, PODS

IN_FLIGHT = 64
WATCHERS = 50
WATCHED_WRITES = 1000


@dataclass
class Measured:
    """One operation, repeated."""

    name: str
    count: int
    seconds: float
    server_cpu_s: float
    p50_ms: float = 0.0
    p99_ms: float = 0.0

    @property
    def rate(self) -> float:
        return self.count / self.seconds

    @property
    def per_cpu_second(self) -> float:
        return self.count / self.server_cpu_s if self.server_cpu_s else float("inf")


def pod(index: int) -> dict[str, Any]:
    """A pod as the job controller creates it: about 2.3 kB once stored."""
    job = f"train-{index // 100}"
    labels = {
        "volcano.sh/job-name": job,
        "volcano.sh/job-namespace": "default",
        "volcano.sh/queue-name": "default",
        "volcano.sh/task-index": str(index % 100),
        "volcano.sh/task-spec": "worker",
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{job}-worker-{index % 100}",
            "namespace": "default",
            "labels": labels,
            "annotations": {
                **{key: value for key, value in labels.items() if "namespace" not in key},
                "scheduling.k8s.io/group-name": f"{job}-7ac3c1a0-0f5c-4a0a-9f3e-2f1f0b9e5a11",
                "volcano.sh/job-version": "0",
                "volcano.sh/template-uid": f"{job}-worker",
            },
        },
        "spec": {
            "schedulerName": "volcano",
            "restartPolicy": "Never",
            "containers": [
                {
                    "name": "main",
                    "image": "registry.example/train:1.2.3",
                    "command": ["python", "train.py", "--epochs", "10"],
                    "env": [{"name": f"VAR_{i}", "value": str(i)} for i in range(4)],
                    "resources": {"requests": {"cpu": "4", "memory": "16Gi"}},
                }
            ],
        },
    }


class Server:
    """A server, and the CPU and memory of its processes."""

    name = "hekla"

    def __init__(self, directory: Path, durability: str) -> None:
        started = time.perf_counter()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "hekla.apiserver", "--data-dir", str(directory),
             "--durability", durability],
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self.process.stdout is not None
        self.address = self.process.stdout.readline().strip()
        self.start_s = time.perf_counter() - started
        self.kubeconfig = directory / "kubeconfig"

    def pids(self) -> list[int]:
        return [self.process.pid]

    def cpu_s(self) -> float:
        return sum(map(processes.cpu_s, self.pids()))

    def memory_mb(self, field: str = "VmRSS") -> float:
        return sum(processes.memory_mb(pid, field) for pid in self.pids())

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


class Kubernetes(Server):
    """kube-apiserver with its etcd, measured together."""

    name = "kube-apiserver + etcd"

    def __init__(self, directory: Path) -> None:
        self._cluster = KubeCluster(directory)
        started = time.perf_counter()
        self._cluster.start()
        self.start_s = time.perf_counter() - started
        self._cluster.processes.stop("kwok")  # no nodes are simulated
        self.kubeconfig = self._cluster.kubeconfig

    def pids(self) -> list[int]:
        return list(self._cluster.processes.pids().values())

    def stop(self) -> None:
        self._cluster.processes.kill_all()


async def measure(
    name: str, server: Server, count: int, one: Callable[[int], Awaitable[object]]
) -> Measured:
    """Run `one` for each index, IN_FLIGHT at a time."""
    times: list[float] = []
    indices = iter(range(count))

    async def worker() -> None:
        for index in indices:
            begun = time.perf_counter()
            await one(index)
            times.append(time.perf_counter() - begun)

    cpu, begun = server.cpu_s(), time.perf_counter()
    await asyncio.gather(*(worker() for _ in range(IN_FLIGHT)))
    seconds = time.perf_counter() - begun
    cuts = statistics.quantiles(times, n=100)
    return Measured(name, count, seconds, server.cpu_s() - cpu, cuts[49] * 1e3, cuts[98] * 1e3)


async def watch_cost(client: Client, server: Server) -> Measured:
    """WATCHERS connections that must all see WATCHED_WRITES changes."""
    version = (await client.list(NODES)).resource_version
    ready = asyncio.Semaphore(0)

    async def watcher() -> None:
        seen = 0
        async with client.watch(NODES, resource_version=version) as events:
            ready.release()
            async for _ in events:
                seen += 1
                if seen == WATCHED_WRITES:
                    return

    watchers = [asyncio.create_task(watcher()) for _ in range(WATCHERS)]
    for _ in range(WATCHERS):
        await ready.acquire()
    cpu, begun = server.cpu_s(), time.perf_counter()

    async def mark_changed(index: int) -> object:
        return await client.patch(NODES, "n0", {"metadata": {"labels": {"turn": str(index)}}})

    await measure("", server, WATCHED_WRITES, mark_changed)
    await asyncio.gather(*watchers)
    seconds = time.perf_counter() - begun
    count = WATCHED_WRITES * WATCHERS
    return Measured(f"events to {WATCHERS} watchers", count, seconds, server.cpu_s() - cpu)


async def run(server: Server, pods: int) -> tuple[list[Measured], dict[str, float]]:
    figures: dict[str, float] = {"start_s": server.start_s, "memory_empty_mb": server.memory_mb()}
    results: list[Measured] = []
    target = kubeconfig.load(server.kubeconfig)
    async with Client(target, component="bench", max_connections=WATCHERS + IN_FLIGHT) as client:
        bodies = [pod(i) for i in range(pods)]
        names = [body["metadata"]["name"] for body in bodies]
        await client.create(NODES, {"metadata": {"name": "n0"}})

        async def empty(_: int) -> object:
            return await client.request("GET", "/livez")

        results.append(await measure("ceiling: empty answer", server, pods, empty))
        results.append(
            await measure("create pod", server, pods, lambda i: client.create(PODS, bodies[i]))
        )
        results.append(
            await measure("bind pod", server, pods, lambda i: client.bind(names[i], "n0"))
        )
        status = {
            "phase": "Running",
            "podIP": "10.0.0.1",
            "containerStatuses": [
                {"name": "main", "ready": True, "restartCount": 0, "image": "x", "imageID": ""}
            ],
        }
        results.append(
            await measure(
                "patch pod status",
                server,
                pods,
                lambda i: client.patch_status(PODS, names[i], status),
            )
        )
        figures["memory_mb"] = server.memory_mb()
        cpu, begun = server.cpu_s(), time.perf_counter()
        raw = await client.request("GET", "/api/v1/pods")
        figures["list_s"] = time.perf_counter() - begun
        figures["list_cpu_s"] = server.cpu_s() - cpu
        figures["list_mb"] = len(raw) / 1e6
        figures["pod_bytes"] = len(raw) / pods
        results.append(await watch_cost(client, server))
        figures["memory_peak_mb"] = server.memory_mb("VmHWM")
    return results, figures


def report(results: list[Measured], figures: dict[str, float]) -> str:
    ceiling = results[0].rate
    lines = [
        "| operation | per second | of the ceiling | per server CPU s | P50 ms | P99 ms |",
        "|---|---|---|---|---|---|",
    ]
    for one in results:
        lines.append(
            f"| {one.name} × {one.count:,} | {one.rate:,.0f} | {one.rate / ceiling:.2f} "
            f"| {one.per_cpu_second:,.0f} | {one.p50_ms:.1f} | {one.p99_ms:.1f} |"
        )
    lines.append("")
    lines += [f"- {name}: {value:,.3f}" for name, value in figures.items()]
    return "\n".join(lines)


Round = dict[str, float]


def compare(pods: int, rounds: int) -> str:
    """Alternate between both servers; return medians and ratios."""
    found: dict[str, list[Round]] = {Server.name: [], Kubernetes.name: []}
    for number in range(rounds):
        for kind in (Server, Kubernetes)[:: 1 if number % 2 == 0 else -1]:
            with tempfile.TemporaryDirectory(prefix="hekla-bench-") as directory:
                where = Path(directory)
                server = Kubernetes(where) if kind is Kubernetes else Server(where, "power")
                try:
                    found[kind.name].append(_round(*uvloop.run(run(server, pods))))
                finally:
                    server.stop()
    return _table(found[Server.name], found[Kubernetes.name])


def _round(results: list[Measured], figures: dict[str, float]) -> Round:
    rates = {f"{one.name}, a second": one.rate for one in results[1:]}
    per_cpu = {f"{one.name}, a CPU second": one.per_cpu_second for one in results[1:]}
    kept = ("start_s", "memory_empty_mb", "memory_mb", "memory_peak_mb", "list_s", "list_cpu_s")
    return {**rates, **per_cpu, **{name: figures[name] for name in kept}}


def _table(ours: list[Round], theirs: list[Round]) -> str:
    lines = [f"| | {Server.name} | {Kubernetes.name} | ratio |", "|---|---|---|---|"]
    for key in ours[0]:
        mine, other = ([one[key] for one in rounds] for rounds in (ours, theirs))
        ratio = statistics.median(mine) / (statistics.median(other) or float("nan"))
        lines.append(f"| {key} | {_cell(mine)} | {_cell(other)} | {ratio:.2f} |")
    return "\n".join(lines)


def _cell(values: list[float]) -> str:
    form = ",.0f" if max(values) >= 10 else ".2f"
    low, high = format(min(values), form), format(max(values), form)
    median = format(statistics.median(values), form)
    return median if low == high else f"{median} ({low} to {high})"


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="bench.apiserver",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--against-kubernetes", action="store_true")
    parser.add_argument("--rounds", type=int, default=1, help="of the comparison")
    parser.add_argument("--pods", type=int, default=10_000)
    parser.add_argument("--durability", choices=("process", "power"), default="process")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    given = parser.parse_args()
    if given.against_kubernetes:
        print(compare(given.pods, given.rounds))
        return
    with tempfile.TemporaryDirectory(prefix="hekla-bench-") as directory:
        server = Server(Path(directory), given.durability)
        try:
            results, figures = uvloop.run(run(server, given.pods))
        finally:
            server.stop()
        again = Server(Path(directory), given.durability)
        figures["restart_with_all_pods_s"] = again.start_s
        figures["memory_after_restart_mb"] = again.memory_mb()
        again.stop()
    print(report(results, figures))
    if given.json:
        given.json.write_text(
            json.dumps({"results": [asdict(r) for r in results], "figures": figures}, indent=1)
        )


if __name__ == "__main__":
    main()
