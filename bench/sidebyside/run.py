"""One case on one system, from an empty cluster to the numbers.

Every run has a new API server, etcd and nodes. A system is ready once it has bound a first pod
(created from a Job if the case has Jobs); then the load begins.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import math
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.kube.cluster import KubeCluster, node_manifest

from bench.sidebyside import audit, cases, processes, timeline
from bench.sidebyside.cases import NAMESPACE, Case
from bench.sidebyside.load import Follower, Load, in_flight
from bench.sidebyside.systems import System, filled, words
from hekla.api import crds, wellknown
from hekla.kube import kubeconfig
from hekla.kube.client import Client
from hekla.kube.errors import AlreadyExists, KubeError
from hekla.kube.resources import (
    CUSTOM_RESOURCE_DEFINITIONS,
    JOBS,
    NAMESPACES,
    NODES,
    PODGROUPS,
    PODS,
    PRIORITY_CLASSES,
    QUEUES,
    Resource,
)
from hekla.scheduler.framework import config

READY_LIMIT_S = 120.0
SETTLE_S, SETTLED_BELOW_S, SETTLE_MOST_S = 2.0, 0.05, 30.0
"""After the last bind: the measurement ends when a system uses less CPU than this for this long,
because later status writes and Events are part of its work."""
_POLL_S = 0.1

Json = dict[str, Any]


@dataclass(frozen=True)
class Result:
    """The numbers and curves of one run."""

    system: str
    numbers: Json
    created: list[tuple[float, int]]
    bound: list[tuple[float, int]]


def configuration(case: Case) -> str:
    """Return Volcano's default configuration, with the evicting action of the case."""
    if not case.displaces:
        return config.DEFAULT
    found = config.DEFAULT.replace("allocate, backfill", f"allocate, {case.displaces}, backfill")
    assert found != config.DEFAULT, "the shipped actions have changed"
    return found


class Run:
    """The processes of one run."""

    def __init__(self, case: Case, system: System, cluster: KubeCluster, patience_s: float) -> None:
        # The ceiling creates no pods from Jobs, and binds a backlog as a burst.
        self._case = case
        self._is_late = case.how == "backlog" and not system.is_ceiling
        self._system = system
        self._cluster = cluster
        self._patience_s = patience_s
        self._commands = system.commands(case)
        self._conf = cluster.directory / "scheduler.conf"
        places = {"kubeconfig": cluster.kubeconfig, "directory": cluster.directory}
        self._conf.write_text(filled(system.conf, **places) or configuration(case))
        for name, content in system.files().items():
            (cluster.directory / name).write_bytes(content)
        self._ceiling: asyncio.subprocess.Process | None = None

    async def measure(self) -> Result:
        target = kubeconfig.load(self._cluster.kubeconfig)
        async with Client(target, component="bench") as client:
            await self._prepare(client)
            load = Load(self._case, self._system)
            gc.collect()
            gc.freeze()  # else the client would spend most of its time in garbage collection
            if not self._is_late:
                await self._start(client)
            follower = Follower(client)
            async with follower.following():
                if self._case.displaces:
                    await self._fill(client, follower)
                return await self._load(client, load, follower)

    async def _fill(self, client: Client, follower: Follower) -> None:
        filler = self._case.filler()
        load = Load(filler, self._system)
        await load.send(client, follower, self._on_whole)
        if not await follower.until_bound(filler.pods, self._patience_s):
            raise SystemExit(f"{self._system.name} did not fill the cluster to begin with")
        await self._settle()

    async def _load(self, client: Client, load: Load, follower: Follower) -> Result:
        pids = self._pids()
        before = follower.timeline.bound
        cpu_before = {"client": time.process_time(), **processes.cpu_of(pids)}
        busy = processes.busy_s()
        offset = self._cluster.audit_log.stat().st_size
        asked = began = time.monotonic()
        sending = asyncio.create_task(load.send(client, follower, self._on_whole))
        if self._is_late:
            await sending
            began = time.monotonic()
            await self._start(client, is_probed=False)
        is_whole = await follower.until_bound(before + self._case.pods, self._patience_s)
        together = self._together(cpu_before, busy, time.monotonic() - asked)
        if self._case.how == "churn" and is_whole:
            await sending
        await self._settle()
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=is_whole is False)
        pids = self._pids()
        cpu = {"client": time.process_time(), **processes.cpu_of(pids)}
        cpu = {name: value - cpu_before.get(name, 0.0) for name, value in cpu.items()}
        others = processes.busy_s() - busy - sum(cpu.values())
        memory = {name: processes.peak_mb(pid) for name, pid in pids.items()}
        if self._ceiling is not None and self._ceiling.stdin is not None:
            self._ceiling.stdin.close()
            await self._ceiling.wait()
        calls = audit.read(self._cluster.audit_log, offset, NAMESPACE)
        result = self._result(follower.timeline, began, {**cpu, "others": others}, memory, calls)
        rate = result.numbers.get("pods_per_s", 0.0)
        result.numbers["pods_per_s_alone"] = rate / max(1.0 - together["others_share"], 0.05)
        result.numbers.update(together)
        return result

    def _together(self, before: dict[str, float], busy: float, span_s: float) -> Json:
        """Return the CPU of all components until all is bound, and the share of other processes."""
        now = {"client": time.process_time(), **processes.cpu_of(self._pids())}
        spent = {name: value - before.get(name, 0.0) for name, value in now.items()}
        ours = sum(spent.values())
        others = max(0.0, processes.busy_s() - busy - ours)
        return {
            "all_cpu_ms_per_pod": 1000 * ours / self._case.pods,
            "cpu_s_until_bound": {name: round(value, 2) for name, value in spent.items()},
            "others_share": others / (span_s * (os.cpu_count() or 1)),
        }

    async def _settle(self) -> None:
        deadline = time.monotonic() + SETTLE_MOST_S
        spent = math.inf
        while spent > SETTLED_BELOW_S and time.monotonic() < deadline:
            before = processes.cpu_of(self._pids())
            await asyncio.sleep(SETTLE_S)
            after = processes.cpu_of(self._pids())
            spent = sum(after.get(name, 0.0) - before.get(name, 0.0) for name in self._commands)

    def _result(
        self,
        seen: timeline.Timeline,
        began: float,
        cpu: dict[str, float],
        memory: dict[str, float],
        calls: audit.Calls,
    ) -> Result:
        asked = calls.of(self._system.agent)
        own = sum(cpu[name] for name in self._commands)
        numbers = {
            **timeline.speeds(seen, began),
            "faults": timeline.faults(self._case, seen, calls.bindings),
            "displaced": seen.displaced(),
            "refused_binds": calls.refused_bindings,
            "calls_per_pod": asked.total() / self._case.pods,
            "calls": dict(asked.most_common()),
            "cpu_s": {name: round(value, 2) for name, value in cpu.items()},
            "scheduler_cpu_ms_per_pod": 1000 * cpu.get("scheduler", 0.0) / self._case.pods,
            "own_cpu_ms_per_pod": 1000 * own / self._case.pods,
            "peak_mb": {name: round(value, 1) for name, value in memory.items()},
        }
        pods = seen.load()
        binds = (pod.bound for pod in pods if pod.bound is not None)
        return Result(
            self._system.name,
            numbers,
            timeline.curve((pod.created for pod in pods), began),
            timeline.curve(binds, began),
        )

    # --- the cluster --------------------------------------------------------------------------

    async def _prepare(self, client: Client) -> None:
        for body in [*crds.load(), *self._system.crds()]:
            await client.create(CUSTOM_RESOURCE_DEFINITIONS, body)
        for name in (NAMESPACE, wellknown.SYSTEM_NAMESPACE):
            await client.create(NAMESPACES, {"metadata": {"name": name}})
        await self._until_served(client)
        queues = [wellknown.ROOT_QUEUE, wellknown.DEFAULT_QUEUE]
        if self._case.displaces == "reclaim":
            queues += [cases.LENDER, cases.BORROWER]
        for name in queues:
            await self._open_queue(client, name)
        for value, name in enumerate((cases.LOW, cases.HIGH), start=1):
            body = {"metadata": {"name": name}, "value": value, "globalDefault": False}
            await client.create(PRIORITY_CLASSES, body)
        for kind, body in self._system.objects():
            await client.create(kind, body)
        await in_flight(self._node_requests(client))

    def _node_requests(self, client: Client) -> Iterator[Any]:
        memory = f"{cases.NODE_MEMORY_GIB}Gi"
        for number in range(self._case.nodes):
            body = node_manifest(
                f"node-{number}", cpu=cases.NODE_CPU, memory=memory, pods=cases.NODE_PODS
            )
            yield client.create(NODES, body)

    async def _until_served(self, client: Client) -> None:
        async with asyncio.timeout(READY_LIMIT_S):
            wanted = (kind for kind, _ in self._system.objects())
            for kind in (self._system.dialect.kind, PODGROUPS, QUEUES, JOBS, *wanted):
                while True:
                    try:
                        await client.list(kind)
                        break
                    except KubeError:
                        await asyncio.sleep(_POLL_S)

    async def _open_queue(self, client: Client, name: str) -> None:
        """Without controllers, no other component sets the queue to Open."""
        spec = {"weight": 1, "reclaimable": name != wellknown.ROOT_QUEUE}
        body = {"metadata": {"name": name}, "spec": spec}
        with contextlib.suppress(AlreadyExists):
            await client.create(QUEUES, body)
        await client.patch_status(QUEUES, name, {"state": "Open"})

    # --- the system ---------------------------------------------------------------------------

    async def _start(self, client: Client, *, is_probed: bool = True) -> None:
        if self._system.is_ceiling:
            self._ceiling = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "bench.sidebyside.ceiling",
                str(self._cluster.kubeconfig), self._case.name,
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            )  # fmt: skip
            assert self._ceiling.stdout is not None
            assert await self._ceiling.stdout.readline(), "the ceiling did not start"
            return
        for name, template in self._commands.items():
            command = words(
                template,
                kubeconfig=self._cluster.kubeconfig,
                conf=self._conf,
                directory=self._cluster.directory,
            )
            self._cluster.processes.start(name, command)
        if is_probed:
            await self._probe(client)

    async def _probe(self, client: Client) -> None:
        """Wait until the system binds a pod, and delete the pod."""
        where = wellknown.SYSTEM_NAMESPACE
        for resource, body in self._probe_objects(Case("probe", 1, 1, 1)):
            body["metadata"]["namespace"] = where
            await client.create(resource, body)
        try:
            async with asyncio.timeout(READY_LIMIT_S):
                await self._until_placed(client, where)
        except TimeoutError:
            raise SystemExit(
                f"{self._system.name} bound no pod in {READY_LIMIT_S:g} s; {self._last_words()}"
            ) from None
        if self._case.as_jobs:  # first, or its pods are created again
            kind = self._system.jobs.kind
            await client.delete(kind, "probe", namespace=where, propagation="Background")
        await client.delete_collection(PODS, namespace=where, grace_period_s=0)
        await client.delete_collection(self._system.dialect.kind, namespace=where)
        await asyncio.sleep(1.0)

    def _probe_objects(self, probe: Case) -> Iterator[tuple[Resource[Json], Json]]:
        name, scheduler, dialect = probe.name, self._system.scheduler_name, self._system.dialect
        if self._case.as_jobs:
            jobs = self._system.jobs
            yield jobs.kind, jobs.body(probe, name, scheduler)
            return
        yield dialect.kind, dialect.group(probe, name)
        for pod in cases.pods(probe, name, scheduler):
            yield PODS, dialect.mark(pod, name)

    def _last_words(self) -> str:
        """Return the last lines of the logs."""
        logs = [self._cluster.processes.log(name) for name in self._commands]
        return "\n".join(
            f"{log} ends with:\n{log.read_text(errors='replace')[-3000:]}" for log in logs
        )

    async def _until_placed(self, client: Client, namespace: str) -> None:
        while True:
            found = await client.list(PODS, namespace=namespace)
            if any(pod["spec"].get("nodeName") for pod in found.items):
                return
            await asyncio.sleep(_POLL_S)

    async def _on_whole(self, gang: int) -> None:
        if self._system.is_ceiling and self._ceiling is not None:
            assert self._ceiling.stdin is not None
            self._ceiling.stdin.write(f"{gang}\n".encode())

    def _pids(self) -> dict[str, int]:
        pids = self._cluster.processes.pids()
        if self._ceiling is not None:
            pids["scheduler"] = self._ceiling.pid
        return pids


async def measure(case: Case, system: System, directory: Path, patience_s: float) -> Result:
    """Run a case in a new directory."""
    # Starting and stopping block the loop; no other task runs on it.
    cluster = KubeCluster(directory, node_leases=False, server_flags=system.server_flags)
    cluster.start()
    try:
        return await Run(case, system, cluster, patience_s).measure()
    finally:
        cluster.processes.kill_all()  # its state is not needed any more
