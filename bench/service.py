"""Measure the overhead of the scheduler service: `python -m bench.service`.

First: the latency of one pod on an idle cluster, from the create request to the watch event that
shows it bound, with the embedded API server in the same process. Second: how long the event loop is
blocked by a large cycle, in a thread as in the service, and on the loop for comparison.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from bench.core import build
from hekla.apiserver.server import ApiServer, Config
from hekla.kube import kubeconfig
from hekla.kube.client import Client
from hekla.kube.resources import NODES, PODGROUPS, PODS
from hekla.scheduler.core import decide
from hekla.scheduler.framework import config
from hekla.scheduler.plugins import builtin
from hekla.scheduler.service.scheduler import Scheduler
from hekla.testing.objects import START

ROUNDS = 30


async def one_pod(directory: Path) -> None:
    async with ApiServer(Config(data_dir=directory)) as server:
        target = kubeconfig.load(server.kubeconfig)
        async with Client(target) as mine, Client(target) as theirs:
            scheduler = asyncio.create_task(Scheduler(theirs).run())
            await mine.create(NODES, {"metadata": {"name": "n1"}})
            amounts = {"cpu": "64", "memory": "64Gi", "pods": "110"}
            await mine.patch_status(NODES, "n1", {"allocatable": amounts, "capacity": amounts})
            waits = [await _bound(mine, number) for number in range(ROUNDS)]
            scheduler.cancel()
            await asyncio.gather(scheduler, return_exceptions=True)
    waits_ms = sorted(wait * 1000 for wait in waits[3:])
    print(
        f"one pod on an idle cluster: median {statistics.median(waits_ms):.1f} ms, "
        f"fastest {waits_ms[0]:.1f}, slowest {waits_ms[-1]:.1f}"
    )


async def _bound(client: Client, number: int) -> float:
    name = f"p{number}"
    meta = {"name": name, "namespace": "default"}
    await client.create(PODGROUPS, {"metadata": meta, "spec": {"minMember": 1}})
    await asyncio.sleep(0.1)  # the PodGroup becomes Inqueue
    container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}
    pod = {
        "metadata": {**meta, "annotations": {"scheduling.k8s.io/group-name": name}},
        "spec": {"schedulerName": "volcano", "containers": [container]},
    }
    version = (await client.list(PODS)).resource_version
    async with client.watch(PODS, resource_version=version) as events:
        began = time.perf_counter()
        await client.create(PODS, pod)
        async for event in events:
            if event.object["metadata"]["name"] == name and event.object["spec"].get("nodeName"):
                return time.perf_counter() - began
    raise RuntimeError("the watch ended")


async def lag(name: str, work: Callable[[], object], *, in_thread: bool) -> None:
    """Return the longest delay of a task that wakes every millisecond."""
    worst, stop = 0.0, False

    async def tick() -> None:
        nonlocal worst
        while not stop:
            before = time.perf_counter()
            await asyncio.sleep(0.001)
            worst = max(worst, time.perf_counter() - before - 0.001)

    ticking = asyncio.create_task(tick())
    await asyncio.sleep(0.01)
    began = time.perf_counter()
    if in_thread:
        await asyncio.get_running_loop().run_in_executor(None, work)
    else:
        work()
    took = time.perf_counter() - began
    await asyncio.sleep(0)
    stop = True
    await ticking
    where = "in a thread" if in_thread else "on the loop"
    print(
        f"{name}, {where:12} decided in {took * 1000:7.0f} ms, "
        f"others wait up to {worst * 1000:7.1f} ms"
    )


async def lags() -> None:
    settings = config.parse(config.DEFAULT, builtin())
    for name, sizes in (
        ("100 gangs of 100 on 5,000 nodes", (5000, 100, 100)),
        ("1 gang of 10,000 on 1,000 nodes", (1000, 1, 10_000)),
        ("500 gangs of 20 on 1,000 nodes", (1000, 500, 20)),
        ("1,000 gangs of 100 on 10,000 nodes", (10_000, 1000, 100)),
    ):
        for in_thread in (False, True):
            state = build(*sizes)
            state.refresh()
            await lag(name, partial(decide, state, settings, START), in_thread=in_thread)


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(one_pod(Path(directory)))
    asyncio.run(lags())


if __name__ == "__main__":
    main()
