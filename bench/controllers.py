"""Measure the job controller under load: `python -m bench.controllers [--jobs 1000] [--big 5000]`.

How fast are pods created after jobs are submitted, and with how many writes? The rate is given as a
share of the rate of a bare client that creates the same pods on the same server in the same run,
with the same number of concurrent requests. This program sets PodGroups to Inqueue at once, so no
scheduler is measured; its writes are not counted. Connections are open on both sides, and the bare
pods have an owner reference, too, which the server tracks.

The server is a separate process; bare client, admission and controllers share this one.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import uvloop

from hekla.controllers.job.pods import PodMaker
from hekla.controllers.objects import owner_reference
from hekla.controllers.runner import Controllers
from hekla.kube import kubeconfig
from hekla.kube.calls import Call
from hekla.kube.client import Client
from hekla.kube.informers import Informer
from hekla.kube.resources import CONFIGMAPS, JOBS, NAMESPACES, PODGROUPS, PODS
from hekla.units.objects import Object

IN_FLIGHT = 64
PATIENCE_S = 600.0


@dataclass
class Measured:
    """One load: bare client and controllers."""

    name: str
    jobs: int
    pods: int
    bare_pods_per_s: float
    pods_per_s: float
    writes: int
    """Writes of the controllers without Events."""

    @property
    def share(self) -> float:
        return self.pods_per_s / self.bare_pods_per_s

    @property
    def writes_per_pod(self) -> float:
        return self.writes / self.pods


def job(namespace: str, name: str, replicas: int) -> Object:
    container = {
        "name": "main",
        "image": "registry.example/train:1.2.3",
        "command": ["python", "train.py", "--epochs", "10"],
        "env": [{"name": f"VAR_{i}", "value": str(i)} for i in range(4)],
        "resources": {"requests": {"cpu": "4", "memory": "16Gi"}},
    }
    spec = {"restartPolicy": "Never", "containers": [container]}
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"tasks": [{"name": "worker", "replicas": replicas, "template": {"spec": spec}}]},
    }


async def in_flight(work: Iterable[Callable[[], Awaitable[Any]]]) -> None:
    waiting = iter(work)

    async def worker() -> None:
        for one in waiting:
            await one()

    await asyncio.gather(*(worker() for _ in range(IN_FLIGHT)))


async def warm(client: Client) -> None:
    """Open all connections."""
    await asyncio.gather(*(client.list(NAMESPACES) for _ in range(2 * IN_FLIGHT)))


async def bare(client: Client, jobs: list[Object], namespace: str) -> float:
    """Return the seconds to create the pods of these jobs without a controller."""
    owner = {"metadata": {"name": "owner", "namespace": namespace}}
    owner = await client.create(CONFIGMAPS, owner)
    reference = owner_reference("v1", "ConfigMap", owner)
    await warm(client)
    bodies = []
    for each in jobs:
        stored = {**each, "metadata": {**each["metadata"], "namespace": namespace, "uid": "u"}}
        task = stored["spec"]["tasks"][0]
        for index in range(task["replicas"]):
            body = PodMaker(stored).pod(task, index)
            body["metadata"]["ownerReferences"] = [reference]
            bodies.append(body)
    started = time.perf_counter()
    await in_flight(lambda body=body: client.create(PODS, body) for body in bodies)  # type: ignore[misc]
    return time.perf_counter() - started


class Admission:
    """Sets every PodGroup to Inqueue at once."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._groups: Informer[Object] = Informer(client, PODGROUPS, dict)
        self._groups.add_handler(self._on_group)
        self._tasks: set[asyncio.Task[Any]] = set()

    def _on_group(self, event: str, old: Object | None, new: Object | None) -> None:
        if event == "ADDED" and new is not None:
            metadata = new["metadata"]
            task = asyncio.create_task(
                self._client.patch_status(
                    PODGROUPS,
                    metadata["name"],
                    {"phase": "Inqueue"},
                    namespace=metadata["namespace"],
                )
            )
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def __aenter__(self) -> None:
        await self._groups.__aenter__()
        await self._groups.synced()

    async def __aexit__(self, *_: Any) -> None:
        await self._groups.__aexit__(None, None, None)


def counted(client: Client) -> list[str]:
    """Return a list that grows with each write of the client."""
    writes: list[str] = []
    send = client.transport.send

    async def sending(call: Call, **options: Any) -> bytes:
        if call.method != "GET" and "/events" not in call.path:
            writes.append(f"{call.method} {call.path}")
        return await send(call, **options)

    client.transport.send = sending  # type: ignore[method-assign]
    return writes


async def controlled(
    config: Any, client: Client, jobs: list[Object], pods: int
) -> tuple[float, list[str]]:
    """Return the seconds from the first submission until all pods exist, and the writes."""
    async with Client(config, component="controllers") as control:
        writes = counted(control)
        controllers = Controllers(control, select=["job-controller", "queue-controller"])
        running = asyncio.create_task(controllers.run())
        try:
            await warm(control)
            await asyncio.sleep(0.5)  # queues are reconciled first
            writes.clear()
            started = time.perf_counter()
            await in_flight(lambda body=body: client.create(JOBS, body) for body in jobs)  # type: ignore[misc]
            while controllers.metrics.get("pods_created") < pods:
                if running.done():
                    await running
                if time.perf_counter() - started > PATIENCE_S:
                    raise TimeoutError(f"{controllers.metrics.get('pods_created')} of {pods} pods")
                await asyncio.sleep(0.01)
            took = time.perf_counter() - started
            await asyncio.sleep(1.0)  # include the status writes
            return took, list(writes)
        finally:
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running


async def measure(config: Any, name: str, count: int, size: int, rounds: int) -> Measured:
    """Return the best of several alternating rounds."""
    pods = count * size
    best_bare, best, writes = float("inf"), float("inf"), 0
    async with Client(config, component="bench") as client:
        for number in range(rounds):
            for kind in ("bare", "jobs"):
                space = f"{name}-{kind}-{number}"
                await client.create(NAMESPACES, {"metadata": {"name": space}})
                jobs = [job(space, f"{name}-{i}", size) for i in range(count)]
                if kind == "bare":
                    best_bare = min(best_bare, await bare(client, jobs, space))
                else:
                    async with Admission(client):
                        took, written = await controlled(config, client, jobs, pods)
                    best = min(best, took)
                    writes = len(written)
                await client.delete(NAMESPACES, space)
                await emptied(client, space)
    return Measured(name, count, pods, pods / best_bare, pods / best, writes)


async def emptied(client: Client, namespace: str) -> None:
    while await client.find(NAMESPACES, namespace) is not None:  # noqa: ASYNC110 - no event tells
        await asyncio.sleep(0.1)


async def run(arguments: argparse.Namespace, kubeconfig_path: Path) -> list[Measured]:
    config = kubeconfig.load(kubeconfig_path)
    loads = (("many", arguments.jobs, arguments.size), ("one", 1, arguments.big))
    return [
        await measure(config, name, count, size, arguments.rounds)
        for name, count, size in loads
        if count and size
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=1000, help="jobs in the first load; 0: none")
    parser.add_argument("--size", type=int, default=10, help="pods of each of them")
    parser.add_argument("--big", type=int, default=5000, help="pods of the one big job; 0: none")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        server = subprocess.Popen(
            [sys.executable, "-m", "hekla.apiserver", "--data-dir", directory],
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert server.stdout is not None
            assert server.stdout.readline().strip(), "the server did not start"
            found = uvloop.run(run(arguments, Path(directory) / "kubeconfig"))
        finally:
            server.terminate()
            server.wait(30)
    print(f"{'load':6} {'jobs':>6} {'pods':>7} {'bare/s':>8} {'ours/s':>8} {'share':>6} writes/pod")
    for each in found:
        print(
            f"{each.name:6} {each.jobs:6} {each.pods:7} {each.bare_pods_per_s:8.0f} "
            f"{each.pods_per_s:8.0f} {each.share:6.2f} {each.writes_per_pod:6.2f} "
            f"({(each.writes - each.pods) / each.jobs:.1f} more per job)"
        )
    if arguments.json:
        rows = [
            {**asdict(each), "share": each.share, "writes_per_pod": each.writes_per_pod}
            for each in found
        ]
        arguments.json.write_text(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()
