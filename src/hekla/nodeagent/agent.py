"""The node agent: registers this machine as a node and runs the pods bound to it as processes.

One worker a pod (`worker`); the agent hands pods to workers, writes their statuses, keeps the hosts
files, and answers the API server's requests for logs and for commands inside pods.

What a newcomer gets wrong: when the agent stops, pods do not. `run` detaches from them, and the
next agent on the same directory takes them up again; `drain` is what ends them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Literal

from hekla.api.numa import NONE
from hekla.api.wellknown import PodPhase
from hekla.kube.client import Client
from hekla.kube.errors import AlreadyExists, KubeError, NotFound
from hekla.kube.informers import Informer
from hekla.kube.recorder import EventRecorder, reference
from hekla.kube.resources import CONFIGMAPS, ENDPOINTS, NODES, NUMA_TOPOLOGIES, PODS, SECRETS
from hekla.nodeagent import sandbox
from hekla.nodeagent.cgroups import Cgroups
from hekla.nodeagent.cpus import Cpus
from hekla.nodeagent.environment import Sources
from hekla.nodeagent.images import Images
from hekla.nodeagent.logs import LogFile
from hekla.nodeagent.machine import (
    MPS_DIRECTORY,
    Addresses,
    Gpus,
    NotEnough,
    found_cards,
    hosts_file,
    node_object,
    parts_of,
    simulated_cards,
)
from hekla.nodeagent.network import BridgeNetwork, fingerprint
from hekla.nodeagent.preparing import Surroundings
from hekla.nodeagent.streams import feed_pipe, forward_ports, run_stream
from hekla.nodeagent.topology import cpu_places, numa_topology
from hekla.nodeagent.volumes import decode_config_map, decode_secret, references
from hekla.nodeagent.worker import PodWorker
from hekla.units.clock import Clock, SystemClock
from hekla.units.cpusets import format_cpuset
from hekla.units.objects import Object
from hekla.units.timestamps import format_time, parse_time

log = logging.getLogger("hekla.nodeagent")

REPORT_RETRY_S = 1.0
FOLLOW_S = 0.05
SUCCESS: Object = {"metadata": {}, "status": "Success"}


class Agent:
    """Runs the pods of one node."""

    def __init__(
        self,
        client: Client,
        node: str,
        directory: Path,
        *,
        images: Images | None = None,
        clock: Clock | None = None,
        isolate: sandbox.Way | None = None,
        network: BridgeNetwork | None = None,
        simulated_gpus: int = 0,
        cpu_policy: str = NONE,
        topology_policy: str = NONE,
    ) -> None:
        self._client = client
        self.node = node
        self._directory = directory
        self._clock = clock or SystemClock()
        self._images = images or Images()
        self.isolates = sandbox.abilities().way if isolate is None else isolate
        self._workers: dict[str, PodWorker] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._network = network
        first = (127, fingerprint(directory)[1], 0, 1)
        self._addresses = Addresses(first if network is None else network.first)
        self._gpus = Gpus(
            simulated_cards(simulated_gpus) or found_cards(),
            mps_directory=os.environ.get(MPS_DIRECTORY, ""),
        )
        usable = frozenset(os.sched_getaffinity(0))
        self._cpus = Cpus(usable, cpu_places(), cpu_policy, topology_policy)
        self._cpus_moved = asyncio.Event()
        self._pods: Informer[Object] = Informer(
            client, PODS, dict, field_selector=f"spec.nodeName={node}"
        )
        self._endpoints: Informer[Object] = Informer(client, ENDPOINTS, dict)
        self._recorder = EventRecorder(client, component="hekla-agent", host=node)

    # Life

    async def run(self) -> None:
        """Until cancelled. Pods go on without us."""
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        if self._network is not None:
            self._network.set_up()
            self._addresses.first = self._network.first
        self._gpus.recall(self._directory / "pods")
        self._cpus.recall(self._directory / "pods")
        node = await self._registered()
        self._around = Surroundings(
            directory=self._directory,
            clock=self._clock,
            images=self._images,
            cgroups=Cgroups(),
            isolate=self.isolates,
            network=self._network,
            gpus=self._gpus,
            cpus=self._cpus,
            cpus_changed=self._on_cpus,
            address_of=self._address_of,
            node=node,
            report=self._report,
            fetch_sources=self._fetch_sources,
            event=self._event,
        )
        self._endpoints.add_handler(self._on_endpoints)
        async with self._recorder, self._endpoints, self._pods:
            self._pods.add_handler(self._note)
            await self._pods.synced()
            self._forget_strangers()
            try:
                await self._tell_topology()
            finally:
                for worker in self._workers.values():
                    worker.detach()
                for task in self._tasks.values():
                    task.cancel()
                await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def drain(self, grace_s: float) -> None:
        """End every pod here, each within its grace period; the pod objects stay."""
        for worker in self._workers.values():
            worker.stop(grace_s)
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        if self._network is not None:
            self._network.tear_down()

    async def _registered(self) -> Object:
        """The node, as soon as the server answers: it may be starting, as we are."""
        while True:
            try:
                return await self._register()
            except KubeError as error:
                log.warning("node %s cannot be registered: %s; trying again", self.node, error)
                await self._clock.sleep(REPORT_RETRY_S)

    async def _register(self) -> Object:
        now = format_time(self._clock.now())
        node = node_object(self.node, now, self._gpus.cards, self._gpus.mode)
        try:
            return await self._client.create(NODES, node)
        except AlreadyExists:
            ours = {key: node["metadata"][key] for key in ("labels", "annotations")}
            await self._client.patch(NODES, self.node, {"metadata": ours})
            return await self._client.patch_status(NODES, self.node, node["status"])

    async def _tell_topology(self) -> None:
        """The layout of this machine's CPUs and who has them, again whenever that changes.

        It runs pods without having told it, too.
        """
        while True:
            self._cpus_moved.clear()
            pods = {uid: worker.pod for uid, worker in self._workers.items()}
            layout = numa_topology(self.node, self._cpus, pods)
            if layout is not None:
                try:
                    await self._client.apply(
                        NUMA_TOPOLOGIES, layout, field_manager="hekla-agent", force=True
                    )
                except KubeError as error:
                    log.info("the NUMA layout of node %s is not told: %s", self.node, error)
            await self._cpus_moved.wait()

    def _on_cpus(self) -> None:
        """Some CPUs are somebody's own now, or no longer: the others make do with the rest."""
        shared = format_cpuset(self._cpus.shared())
        for worker in self._workers.values():
            worker.share_cpus(shared)
        self._cpus_moved.set()

    def _take_back(self, uid: str) -> None:
        """The devices and CPUs of a pod that has ended."""
        self._gpus.take_back(uid)
        if self._cpus.take_back(uid):
            self._on_cpus()

    def _forget_strangers(self) -> None:
        """Directories of pods that went while no agent was here."""
        if self._network is not None:
            self._network.forget_all_but(self._workers)
        pods = self._directory / "pods"
        for path in list(pods.iterdir()) if pods.is_dir() else ():
            if path.name not in self._workers:
                PodWorker(_ghost(path.name), self._around, "").remove()
                self._take_back(path.name)

    # Pods

    def _note(self, _: str, old: Object | None, new: Object | None) -> None:
        pod = new or old
        assert pod is not None
        uid = pod["metadata"]["uid"]
        worker = self._workers.get(uid)
        if new is None:
            self._removed(uid, worker)
            return
        if worker is None:
            worker = self._accept(new)
            if worker is None:
                return
        else:
            worker.pod = new
        if "deletionTimestamp" in new["metadata"]:
            worker.stop(float(new["metadata"].get("deletionGracePeriodSeconds") or 0))

    def _accept(self, pod: Object) -> PodWorker | None:
        uid = pod["metadata"]["uid"]
        over = (pod.get("status") or {}).get("phase") in (PodPhase.SUCCEEDED, PodPhase.FAILED)
        known = (self._directory / "pods" / uid / "record.json").exists()
        if over and not known:
            if "deletionTimestamp" in pod["metadata"]:
                self._tasks[uid] = asyncio.create_task(self._confirm(pod))
            return None
        address = (pod.get("status") or {}).get("podIP") or ""
        if address:
            self._addresses.taken[uid] = address
        with contextlib.suppress(NotEnough):  # it says so itself when it cannot start
            self._gpus.share(uid, parts_of(pod, self._gpus))
        worker = PodWorker(pod, self._around, self._addresses.give(uid, _full_name(pod)))
        self._workers[uid] = worker
        self._write_hosts(pod["metadata"]["namespace"])
        self._tasks[uid] = asyncio.create_task(self._look_after(worker))
        return worker

    async def _look_after(self, worker: PodWorker) -> None:
        metadata = worker.pod["metadata"]
        try:
            await worker.run()
        except Exception:
            log.exception("pod %s/%s: its worker failed", metadata["namespace"], metadata["name"])
            raise
        self._take_back(metadata["uid"])
        if worker.record.stop_asked_at is not None:
            await self._confirm(worker.pod)

    async def _confirm(self, pod: Object) -> None:
        """Tell the API that a pod to be deleted has ended here."""
        metadata = pod["metadata"]
        if "deletionTimestamp" not in metadata:
            return
        with contextlib.suppress(KubeError):
            await self._client.delete(
                PODS,
                metadata["name"],
                namespace=metadata["namespace"],
                grace_period_s=0,
                uid=metadata["uid"],
                missing_ok=True,
            )

    def _removed(self, uid: str, worker: PodWorker | None) -> None:
        """The object is gone: so must be everything here."""
        if worker is None:
            return
        worker.stop(0)
        task = self._tasks.pop(uid)

        def forget(_: object) -> None:
            worker.remove()
            self._workers.pop(uid, None)
            self._addresses.take_back(uid)
            self._take_back(uid)
            self._write_hosts(worker.pod["metadata"]["namespace"])

        task.add_done_callback(forget)

    def _address_of(self, namespace: str, host: str) -> str:
        """Of a pod by its host name; of one that is not here yet, what it will most likely get."""
        for uid, worker in self._workers.items():
            metadata, spec = worker.pod["metadata"], worker.pod["spec"]
            if metadata["namespace"] == namespace and host == (
                spec.get("hostname") or metadata["name"]
            ):
                return self._addresses.taken[uid]
        return self._addresses.expected(f"{namespace}/{host}")

    def _on_endpoints(self, _: str, old: Object | None, new: Object | None) -> None:
        """Services are known by name to pods of all namespaces."""
        if (old or {}).get("subsets") != (new or {}).get("subsets"):
            for namespace in {w.pod["metadata"]["namespace"] for w in self._workers.values()}:
                self._write_hosts(namespace)

    def _write_hosts(self, namespace: str) -> None:
        """In place: the file is bound into containers, which would keep an old one.

        Written over before it is cut to length: whoever reads it meanwhile finds names in it.
        """
        path = self._directory / "hosts" / namespace
        path.parent.mkdir(exist_ok=True)
        here = [
            (worker.pod, self._addresses.taken[uid])
            for uid, worker in self._workers.items()
            if worker.pod["metadata"]["namespace"] == namespace
        ]
        text = hosts_file(here, self._endpoints.list(), namespace).encode()
        path.touch()
        with path.open("r+b", buffering=0) as file:
            if file.read() != text:
                os.pwrite(file.fileno(), text, 0)
                file.truncate(len(text))

    # What workers ask of the API

    async def _report(self, pod: Object, status: Object) -> None:
        metadata = pod["metadata"]
        while True:
            try:
                await self._client.patch_status(
                    PODS, metadata["name"], status, namespace=metadata["namespace"]
                )
            except NotFound:
                return
            except KubeError as error:
                log.warning("status of pod %s: %s; trying again", metadata["name"], error)
                await self._clock.sleep(REPORT_RETRY_S)
            else:
                return

    async def _fetch_sources(self, pod: Object) -> Sources:
        namespace = pod["metadata"]["namespace"]
        maps, secrets = references(pod)
        found_maps: dict[str, dict[str, str] | None] = {}
        for name in maps:
            found = await self._client.find(CONFIGMAPS, name, namespace=namespace)
            found_maps[name] = decode_config_map(found)
        found_secrets: dict[str, dict[str, str] | None] = {}
        for name in secrets:
            found = await self._client.find(SECRETS, name, namespace=namespace)
            found_secrets[name] = decode_secret(found)
        return Sources(found_maps, found_secrets)

    def _event(
        self, pod: Object, kind: Literal["Normal", "Warning"], reason: str, message: str
    ) -> None:
        self._recorder.event(reference(PODS, pod), kind, reason, message)

    # What the API server asks of us

    async def logs(self, pod: Object, request: Any) -> AsyncIterator[bytes]:
        """A container's output in one run, to its end when `request.follow` is set."""
        worker = self._workers.get(pod["metadata"]["uid"])
        if worker is None:
            return
        run = worker.run_of(request.container, previous=request.previous, number=request.run)
        if run is None:
            return
        file = worker.log_of(request.container, run)
        position = _begin(file, request, self._clock.now())
        left = request.limit_bytes if request.limit_bytes is not None else sys.maxsize
        at_line_start = True
        while True:
            process = worker.process_of(request.container)
            is_latest = worker.run_of(request.container) is run
            writing = is_latest and process is not None and process.is_alive
            for chunk in file.read(position):
                shown = file.stamp(chunk, position, at_line_start) if request.timestamps else chunk
                at_line_start = chunk.endswith(b"\n")
                position += len(chunk)
                yield shown[:left]
                left -= len(shown)
                if left <= 0:
                    return
            if not request.follow or not writing:
                return
            await self._clock.sleep(FOLLOW_S)

    async def stream(self, pod: Object, request: Any, channels: Any) -> Object:
        """exec, attach and portforward."""
        worker = self._workers.get(pod["metadata"]["uid"])
        if request.verb == "portforward":
            if worker is not None:
                await forward_ports(worker.hosts, request.ports, channels)
            return SUCCESS
        if worker is None or worker.process_of(request.container) is None:
            return _failure(f"container {request.container!r} is not running")
        if request.verb == "attach":
            return await self._attach(worker, request, channels)
        line, variables = await worker.inside(request.container, list(request.command))
        return await run_stream(line, variables, request, channels)

    async def _attach(self, worker: PodWorker, request: Any, channels: Any) -> Object:
        """Output from now on, and input for a container that asked for some."""
        feeding = None
        if request.tty:
            return _failure("containers have no terminal here; `kubectl exec -it` gives one")
        if request.stdin:
            descriptor = worker.input_of(request.container)
            if descriptor is None:
                return _failure("the container takes no input: its spec needs `stdin: true`")
            feeding = asyncio.create_task(
                self._feed(worker, request.container, descriptor, channels)
            )
        try:
            async for chunk in self.logs(worker.pod, _Follow(request.container)):
                await channels.send(1, chunk)
        finally:
            if feeding is not None:
                feeding.cancel()
        return SUCCESS

    async def _feed(
        self, worker: PodWorker, container: str, descriptor: int, channels: Any
    ) -> None:
        await feed_pipe(descriptor, channels)
        spec = next(c for c in worker.pod["spec"]["containers"] if c["name"] == container)
        if spec.get("stdinOnce"):
            worker.close_input(container)


class _Follow:
    """A request for output as `attach` sees it: from now on."""

    follow, previous, timestamps, run = True, False, False, None
    tail_lines, since_s, since_time, limit_bytes = 0, None, "", None

    def __init__(self, container: str) -> None:
        self.container = container


def _begin(file: LogFile, request: Any, now: float) -> int:
    positions = [file.first()] if file.size() else [0]
    if request.since_s is not None:
        positions.append(file.since(now - request.since_s))
    if request.since_time:
        positions.append(file.since(parse_time(request.since_time)))
    if request.tail_lines is not None:
        positions.append(file.tail(request.tail_lines) if file.size() else 0)
    return max(positions)


def _failure(message: str) -> Object:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "reason": "InternalError",
        "message": message,
        "code": 500,
    }


def _full_name(pod: Object) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def _ghost(uid: str) -> Object:
    """A pod of which only its directory is left."""
    return {"metadata": {"uid": uid, "name": "", "namespace": ""}, "spec": {"containers": []}}
