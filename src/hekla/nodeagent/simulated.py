"""Simulated nodes, for demonstrations, tests and benchmarks.

A pod bound to one is Running at once and ends after the seconds in its annotation
`hekla.io/simulated-seconds` (default 0), with the exit code in `hekla.io/simulated-exit-code`. No
process is started.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

from hekla.api.wellknown import LABEL_HOSTNAME, SIMULATED_NODE, PodPhase
from hekla.kube.client import Client
from hekla.kube.errors import AlreadyExists, KubeError
from hekla.kube.informers import Informer
from hekla.kube.resources import NODES, PODS
from hekla.nodeagent.lifecycle import ContainerRun, PodRecord
from hekla.nodeagent.status import pod_status
from hekla.units.clock import Clock, SystemClock
from hekla.units.objects import Object
from hekla.units.timestamps import format_time

log = logging.getLogger("hekla.nodeagent")

SECONDS = "hekla.io/simulated-seconds"
EXIT_CODE = "hekla.io/simulated-exit-code"
CAPACITY = {"cpu": "32", "memory": "256Gi", "nvidia.com/gpu": "8", "pods": "110"}
MAX_PARALLEL_REQUESTS = 64
_METADATA = ("name", "namespace", "uid", "deletionTimestamp")


class SimulatedNodes:
    """`count` nodes of equal capacity."""

    def __init__(
        self,
        client: Client,
        count: int,
        *,
        capacity: dict[str, str] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._client = client
        self._names = [f"sim-{index:05}" for index in range(count)]
        self._capacity = capacity or CAPACITY
        self._clock = clock or SystemClock()
        self._pods: Informer[Object] = Informer(client, PODS, dict, transform=_used_fields)
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._limit = asyncio.Semaphore(MAX_PARALLEL_REQUESTS)

    async def run(self) -> None:
        """Run until cancelled."""
        await asyncio.gather(*map(self._register, self._names))
        here = set(self._names)

        def note(_: str, old: Object | None, new: Object | None) -> None:
            pod = new or old
            assert pod is not None
            uid = pod["metadata"]["uid"]
            if pod["spec"].get("nodeName") not in here:
                return
            if new is None:
                if task := self._tasks.pop(uid, None):
                    task.cancel()
            elif uid not in self._tasks or "deletionTimestamp" in new["metadata"]:
                self._tasks[uid] = asyncio.create_task(self._simulate(new))

        self._pods.add_handler(note)
        async with self._pods:
            try:
                await asyncio.Event().wait()
            finally:
                for task in self._tasks.values():
                    task.cancel()
                await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def finish_pods(self) -> None:
        """Wait until the pods that run here have finished."""
        if self._tasks:
            await asyncio.wait(self._tasks.values())

    @property
    def names(self) -> list[str]:
        return list(self._names)

    async def logs(self, pod: Object, request: Any) -> AsyncIterator[bytes]:
        """Yield a line that explains why there is no output."""
        yield b"(simulated pod: no output)\n"

    def kept_log(self, metadata: Object, request: Any) -> AsyncIterator[bytes] | None:
        """Return None: simulated pods have no output."""
        return None

    async def stream(self, pod: Object, request: Any, channels: Any) -> Object:
        return {"metadata": {}, "status": "Failure", "message": "the pod is simulated"}

    async def _register(self, name: str) -> None:
        now = format_time(self._clock.now())
        ready = {"type": "Ready", "status": "True", "reason": "Simulated",
                 "lastTransitionTime": now, "lastHeartbeatTime": now}  # fmt: skip
        node: Object = {
            "metadata": {"name": name, "labels": {LABEL_HOSTNAME: name, SIMULATED_NODE: "true"}},
            "status": {
                "capacity": self._capacity,
                "allocatable": self._capacity,
                "conditions": [ready],
            },
        }
        async with self._limit:
            try:
                await self._client.create(NODES, node)
            except AlreadyExists:
                await self._client.patch_status(NODES, name, node["status"])

    async def _simulate(self, pod: Object) -> None:
        """Simulate the lifecycle of a pod."""
        metadata = pod["metadata"]
        annotations = metadata.get("annotations") or {}
        try:
            if "deletionTimestamp" in metadata:
                await self._client.delete(
                    PODS, metadata["name"], namespace=metadata["namespace"],
                    grace_period_s=0, uid=metadata["uid"], missing_ok=True,
                )  # fmt: skip
                return
            if pod["status"].get("phase") in (PodPhase.SUCCEEDED, PodPhase.FAILED):
                return
            record = PodRecord(accepted_at=self._clock.now())
            for container in pod["spec"]["containers"]:
                known = record.of(container["name"])
                known.current = ContainerRun(0, record.accepted_at)
                known.started = known.ready = True
            await self._report(pod, record, PodPhase.RUNNING)
            await self._clock.sleep(float(annotations.get(SECONDS, 0)))
            code = int(annotations.get(EXIT_CODE, 0))
            for known in record.containers.values():
                assert known.current is not None
                known.current.exit_code = code
                known.current.finished_at = self._clock.now()
                known.ready = False
            await self._report(pod, record, PodPhase.FAILED if code else PodPhase.SUCCEEDED)
        except (KubeError, ValueError) as error:
            log.warning("simulated pod %s/%s: %s", metadata["namespace"], metadata["name"], error)

    async def _report(self, pod: Object, record: PodRecord, phase: str) -> None:
        metadata = pod["metadata"]
        status = pod_status(pod, record, phase=phase, pod_ip="", host_ip="", now=self._clock.now())
        for empty in ("podIP", "podIPs", "hostIP"):
            del status[empty]
        async with self._limit:
            await self._client.patch_status(
                PODS, metadata["name"], status, namespace=metadata["namespace"]
            )


def _used_fields(pod: Object) -> Object:
    """Return only the fields that are read: tens of thousands of pods of 15 kB are cached."""
    metadata, spec = pod["metadata"], pod["spec"]
    notes = metadata.get("annotations") or {}
    kept = {key: metadata[key] for key in _METADATA if key in metadata}
    kept["annotations"] = {key: notes[key] for key in (SECONDS, EXIT_CODE) if key in notes}
    containers = [{"name": c["name"], "image": c["image"]} for c in spec["containers"]]
    return {
        "metadata": kept,
        "spec": {"nodeName": spec.get("nodeName"), "containers": containers},
        "status": {"phase": pod["status"].get("phase")},
    }
