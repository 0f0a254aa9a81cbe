"""The node agent: registers this machine as a node and runs the pods bound to it as processes.

Like the kubelet it has one worker per pod (`worker`). The agent assigns pods to workers, allocates
addresses, maintains hosts files, and serves the API server's requests (`server`).

Note: when the agent stops, its pods continue. `run` detaches from them, and the next agent on the
same directory adopts them. `suspend` stops their containers, and the next agent starts them again;
`drain` ends the pods.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from hekla.api.numa import NONE
from hekla.api.wellknown import PodPhase
from hekla.images.store import ImageStore
from hekla.images.transfer import Puller
from hekla.kube.client import Client
from hekla.kube.errors import AlreadyExists, KubeError
from hekla.kube.informers import Informer
from hekla.kube.recorder import EventRecorder
from hekla.kube.resources import ENDPOINTS, NODES, NUMA_TOPOLOGIES, PODS
from hekla.nodeagent import cdi, sandbox
from hekla.nodeagent.admission import Rejection, reject
from hekla.nodeagent.background_tasks import BackgroundTasks
from hekla.nodeagent.cgroups import Cgroups
from hekla.nodeagent.container_setup import NodeContext, node_abilities
from hekla.nodeagent.cpu_manager import CpuManager
from hekla.nodeagent.device_manager import MPS_DIRECTORY, DeviceManager, requested_shares
from hekla.nodeagent.errors import AllocationError
from hekla.nodeagent.finished_pods import FinishedPod, surplus
from hekla.nodeagent.gpus import discover_gpus, simulate_gpus
from hekla.nodeagent.host_files import open_for_pods
from hekla.nodeagent.hosts import HostsFiles
from hekla.nodeagent.image_pulls import NodeImages
from hekla.nodeagent.images import Images, ImageTable
from hekla.nodeagent.kept_logs import KeptLogs
from hekla.nodeagent.network import BridgeNetwork, fingerprint
from hekla.nodeagent.node_lease import NodeLease
from hekla.nodeagent.node_status import node_object, update_patches
from hekla.nodeagent.pod_addresses import PodAddresses
from hekla.nodeagent.pod_api import PodApi
from hekla.nodeagent.pod_state import RECORD
from hekla.nodeagent.pull_secrets import own_login_file
from hekla.nodeagent.security_context import PodUser
from hekla.nodeagent.server import PodServer
from hekla.nodeagent.topology import cpu_locations, numa_topology
from hekla.nodeagent.uid_ranges import FIRST, UidRanges, UserNamespaces
from hekla.nodeagent.warm_starts import WarmStarts
from hekla.nodeagent.worker import PodWorker
from hekla.units.clock import Clock, SystemClock
from hekla.units.cpusets import format_cpuset
from hekla.units.objects import Object
from hekla.units.timestamps import format_time

log = logging.getLogger("hekla.nodeagent")

REGISTER_RETRY_S = 1.0
GARBAGE_INTERVAL_S = 60.0
ADOPTION_S = 30.0
"""How long requests for output wait for a restarted agent to know its pods."""
COMPONENT = "hekla-agent"


class Agent:
    """Runs the pods of one node."""

    def __init__(
        self,
        client: Client,
        node: str,
        directory: Path,
        *,
        images: ImageTable | None = None,
        image_store: ImageStore | None = None,
        skopeo: str = "skopeo",
        clock: Clock | None = None,
        isolate: sandbox.Isolation | None = None,
        pod_user: PodUser = "owner",
        hidden: Path | None = None,
        network: BridgeNetwork | None = None,
        simulated_gpus: int = 0,
        cpu_policy: str = NONE,
        topology_policy: str = NONE,
        labels: Mapping[str, str] | None = None,
        cdi_directories: Sequence[Path] = cdi.DIRECTORIES,
    ) -> None:
        """`hidden` is the directory that containers do not see, by default `directory`.

        Without `image_store` only images of the table `images` run.

        `labels` are labels of the node beside the usual ones.
        """
        self._client = client
        self.node = node
        self._directory = directory
        self._clock = clock or SystemClock()
        self._labels = labels or {}
        self._is_stopping = False
        """Whether pods that are new here have to wait for the next agent."""
        self._images: ImageTable = images or Images()
        self.isolates = sandbox.isolation_support().isolation if isolate is None else isolate
        if pod_user == "namespace" and self.isolates != "root":
            raise ValueError("pods can run as users of their namespace only if root isolates them")
        self.pod_user: PodUser = pod_user
        self._hidden = hidden or directory
        self._user_namespaces = UserNamespaces()
        self._workers: dict[str, PodWorker] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._adopted = asyncio.Event()
        self._network = network
        first = (127, fingerprint(directory)[1], 0, 1)
        self._addresses = PodAddresses(first if network is None else network.first)
        self._hosts = HostsFiles(directory / "hosts")
        self._devices = DeviceManager(
            simulate_gpus(simulated_gpus) or discover_gpus(),
            mps_directory=os.environ.get(MPS_DIRECTORY, ""),
        )
        self._cdi = cdi.CdiSpecs(cdi_directories)
        usable = frozenset(os.sched_getaffinity(0))
        self._cpus = CpuManager(usable, cpu_locations(), cpu_policy, topology_policy)
        self._cpus_changed = asyncio.Event()
        self._pods: Informer[Object] = Informer(
            client, PODS, dict, field_selector=f"spec.nodeName={node}"
        )
        self._nodes: Informer[Object] = Informer(
            client, NODES, dict, field_selector=f"metadata.name={node}"
        )
        self._endpoints: Informer[Object] = Informer(client, ENDPOINTS, dict)
        self._recorder = EventRecorder(client, component=COMPONENT, host=node)
        self._api = PodApi(client, self._recorder, self._clock)
        self._node_images = None if image_store is None else self._make_images(image_store, skopeo)
        self._kept_logs = KeptLogs(directory / "logs", self._clock)
        self._server = PodServer(self._workers, self._clock, self._kept_logs)

    async def run(self) -> None:
        """Run until cancelled. The pods continue."""
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        if self._network is not None:
            self._network.set_up()
            self._addresses.first = self._network.first
        self._devices.restore(self._directory / "pods")
        self._cpus.restore(self._directory / "pods")
        self._warm = WarmStarts(self._directory / "warm", self.isolates)
        node = await self._register_with_retry()
        self._context = self._node_context(node)
        lease = NodeLease(self._client, self._clock, node)
        self._warm.fill()
        self._endpoints.add_handler(self._on_endpoints)
        async with self._recorder, self._endpoints, self._nodes, self._pods:
            await self._nodes.synced()
            await self._pods.synced()
            # Only now: whether a new pod is admitted depends on all that run here.
            self._pods.add_handler(self._on_pod)
            self._remove_unknown_pods()
            await asyncio.sleep(0)  # the first step of each worker adopts its processes
            self._adopted.set()
            tasks = BackgroundTasks()
            tasks.start(self._collect_garbage())
            tasks.start(lease.renew_forever(self._report_ready))
            try:
                await self._report_topology()
            finally:
                tasks.cancel()
                for worker in self._workers.values():
                    worker.detach()
                for task in self._tasks.values():
                    task.cancel()
                await asyncio.gather(*self._tasks.values(), return_exceptions=True)
                if self._node_images is not None:
                    await self._node_images.end_pulls()
                self._warm.close()

    async def finish_pods(self) -> None:
        """Start no more pods, and wait until those that run here have finished."""
        self._is_stopping = True
        await self._until_pods_end()

    async def suspend(self, grace_period_s: float) -> None:
        """Stop all containers, each within the grace period; the next agent starts them again."""
        self._is_stopping = True
        for worker in self._workers.values():
            worker.suspend(grace_period_s)
        await self._until_pods_end()
        self._tear_down_network()

    async def abort(self, grace_period_s: float) -> None:
        """End all pods here as failed, each within the grace period; the pod objects stay."""
        self._is_stopping = True
        for worker in self._workers.values():
            worker.abort(grace_period_s)
        await self._until_pods_end()
        self._tear_down_network()

    async def _until_pods_end(self) -> None:
        if self._tasks:
            await asyncio.wait(self._tasks.values())  # unlike gather, it does not cancel them

    def _tear_down_network(self) -> None:
        if self._network is not None:
            self._network.tear_down()

    async def logs(self, pod: Object, request: Any) -> AsyncIterator[bytes]:
        """Yield a container's output; see `server`."""
        await self._until_adopted()
        async for chunk in self._server.logs(pod, request):
            yield chunk

    def kept_log(self, metadata: Object, request: Any) -> AsyncIterator[bytes] | None:
        """Return the output of a container of a deleted pod; None if it is not kept."""
        return self._server.kept_log(metadata, request)

    async def stream(self, pod: Object, request: Any, channels: Any) -> Object:
        """Run exec, attach or portforward; see `server`."""
        await self._until_adopted()
        return await self._server.stream(pod, request, channels)

    async def _until_adopted(self) -> None:
        """Wait for a while until the pods of the last agent are known here, after a restart."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ADOPTION_S):
                await self._adopted.wait()

    def _make_images(self, store: ImageStore, skopeo: str) -> NodeImages:
        def own_login() -> Path | None:
            is_owner = self.pod_user == "owner"
            return own_login_file(os.environ, Path.home()) if is_owner else None

        def probe() -> str:
            is_owner = self.pod_user == "owner"
            namespace = None if is_owner else self._user_namespaces.open(FIRST)
            return sandbox.image_support(store.directory, self.isolates, namespace)

        return NodeImages(
            store,
            Puller(store, program=skopeo),
            self._clock,
            fetch_secrets=self._api.fetch_pull_secrets,
            own_login=own_login,
            open_file=partial(
                open_for_pods,
                is_owner=self.pod_user == "owner",
                off_limits=self._hidden.resolve(),
            ),
            probe=probe,
            program=skopeo,
        )

    # Node

    def _node_context(self, node: Object) -> NodeContext:
        return NodeContext(
            directory=self._directory,
            clock=self._clock,
            images=self._images,
            node_images=self._node_images,
            cgroups=Cgroups(),
            warm=self._warm,
            isolate=self.isolates,
            hidden=self._hidden.resolve(),
            kept_logs=self._kept_logs,
            pod_user=self.pod_user,
            uid_ranges=UidRanges(self._directory, in_use=self._uses_ids),
            user_namespaces=self._user_namespaces,
            network=self._network,
            devices=self._devices,
            cdi=self._cdi,
            cpus=self._cpus,
            on_cpus_changed=self._on_cpus_changed,
            address_of=self._address_of,
            node=node,
            report=self._api.report_status,
            fetch_sources=self._api.fetch_sources,
            fetch_handler=self._api.fetch_handler,
            event=self._api.emit_event,
        )

    def _uses_ids(self, namespace: str) -> bool:
        """Return whether files or pods of a namespace are on this machine."""
        workers = self._workers.values()
        has_pods = any(worker.pod["metadata"]["namespace"] == namespace for worker in workers)
        return has_pods or (self._directory / "claims" / namespace).exists()

    async def _register_with_retry(self) -> Object:
        """Register the node; retry, as the server may still be starting."""
        while True:
            try:
                return await self._register()
            except KubeError as error:
                log.warning("node %s cannot be registered: %s; trying again", self.node, error)
                await self._clock.sleep(REGISTER_RETRY_S)

    async def _register(self) -> Object:
        now = format_time(self._clock.now())
        gpus, mode = self._devices.gpus, self._devices.mode
        has_network = self._network is not None
        has_limits = bool(Cgroups().version)
        node = node_object(self.node, now, gpus, mode, self.pod_user, has_network, has_limits)
        node["metadata"]["labels"].update(self._labels)
        try:
            return await self._client.create(NODES, node)
        except AlreadyExists:
            metadata, status = update_patches(node)
            await self._client.patch(NODES, self.node, metadata)
            return await self._client.patch_status(NODES, self.node, status)

    async def _report_ready(self) -> None:
        """Report the node as ready again, after it counted as lost."""
        known = self._nodes.get("", self.node)
        conditions = ((known or {}).get("status") or {}).get("conditions") or ()
        if any(c.get("type") == "Ready" and c.get("status") != "True" for c in conditions):
            await self._register()
            for worker in self._workers.values():
                worker.report_again()

    async def _report_topology(self) -> None:
        """Apply the Numatopology whenever CPU assignments change; a failure is only logged."""
        while True:
            self._cpus_changed.clear()
            pods = {uid: worker.pod for uid, worker in self._workers.items()}
            topology = numa_topology(self.node, self._cpus, pods)
            if topology is not None:
                try:
                    await self._client.apply(
                        NUMA_TOPOLOGIES, topology, field_manager=COMPONENT, force=True
                    )
                except KubeError as error:
                    log.info("Numatopology of node %s is not reported: %s", self.node, error)
            await self._cpus_changed.wait()

    def _on_cpus_changed(self) -> None:
        """Restrict containers without exclusive CPUs to the new shared pool."""
        shared = format_cpuset(self._cpus.shared_pool())
        for worker in self._workers.values():
            worker.runtime.use_shared_cpus(shared)
        self._cpus_changed.set()

    def _release_devices(self, uid: str) -> None:
        """Release the devices and CPUs of a pod."""
        self._devices.release(uid)
        if self._cpus.release(uid):
            self._on_cpus_changed()

    # Pods

    def _on_pod(self, _: str, old: Object | None, new: Object | None) -> None:
        pod = new or old
        assert pod is not None
        uid = pod["metadata"]["uid"]
        worker = self._workers.get(uid)
        if new is None:
            self._on_pod_deleted(uid, worker)
            return
        if worker is None:
            worker = self._accept(new)
            if worker is None:
                return
        else:
            worker.state.pod = new
        if "deletionTimestamp" in new["metadata"]:
            worker.stop(float(new["metadata"].get("deletionGracePeriodSeconds") or 0))
            if worker.is_finished and self._tasks[uid].done():
                # It ended before the deletion, and the server did not know that yet.
                self._tasks[uid] = asyncio.create_task(self._api.finish_deletion(new))

    def _accept(self, pod: Object) -> PodWorker | None:
        """Start a worker for a pod, unless it has finished elsewhere or the agent stops."""
        if self._is_stopping:
            return None
        uid = pod["metadata"]["uid"]
        is_known = (self._directory / "pods" / uid / RECORD).exists()
        if _has_ended(pod) and not is_known:
            if "deletionTimestamp" in pod["metadata"]:
                self._tasks[uid] = asyncio.create_task(self._api.finish_deletion(pod))
            return None
        address = (pod.get("status") or {}).get("podIP") or ""
        if address:
            self._addresses.allocated[uid] = address
        rejection = None if is_known else self._reject(pod)
        if rejection is None:
            with contextlib.suppress(AllocationError):  # reported when the container cannot start
                self._devices.share(uid, requested_shares(pod, self._devices))
        full_name = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
        worker = PodWorker(pod, self._context, self._addresses.allocate(uid, full_name))
        if rejection is not None:
            worker.reject(rejection)
        self._workers[uid] = worker
        self._write_hosts(pod["metadata"]["namespace"])
        self._tasks[uid] = asyncio.create_task(self._run_worker(worker))
        return worker

    def _reject(self, pod: Object) -> Rejection | None:
        """Return why a new pod is not admitted beside those that run here, or will again.

        Others count as the scheduler counts them: until they have finished or are deleted.
        """
        others = [each for each in self._pods.list() if self._is_admitted(each)]
        node = self._nodes.get("", self.node) or self._context.node
        return reject(pod, node, others, node_abilities(self._context))

    def _is_admitted(self, pod: Object) -> bool:
        """Return whether a pod was admitted here, by this agent or the last, and is not over."""
        uid = str(pod["metadata"]["uid"])
        if _has_ended(pod):
            return False
        if (worker := self._workers.get(uid)) is not None:
            return not worker.is_finished
        return (self._directory / "pods" / uid / RECORD).exists()

    async def _run_worker(self, worker: PodWorker) -> None:
        metadata = worker.pod["metadata"]
        try:
            await worker.run()
        except Exception:
            log.exception("pod %s/%s: the worker failed", metadata["namespace"], metadata["name"])
            raise
        self._release_devices(metadata["uid"])
        if worker.is_stopped:
            await self._api.finish_deletion(worker.pod)

    def _on_pod_deleted(self, uid: str, worker: PodWorker | None) -> None:
        """Kill a pod without an object, and remove everything of it."""
        if worker is None:
            return
        worker.stop(0)
        task = self._tasks.pop(uid)

        def remove(_: object) -> None:
            worker.remove()
            self._workers.pop(uid, None)
            self._addresses.release(uid)
            self._release_devices(uid)
            self._write_hosts(worker.pod["metadata"]["namespace"])

        task.add_done_callback(remove)

    def _remove_unknown_pods(self) -> None:
        """Remove the directories of pods that were deleted while no agent ran."""
        if self._network is not None:
            self._network.remove_all_except(self._workers)
        used = {worker.pod["metadata"]["namespace"] for worker in self._workers.values()}
        for path in self._directory.glob("hosts/*"):
            if path.name not in used:
                self._hosts.remove(path.name)
        if self._node_images is not None:
            self._node_images.unpin_all_except(set(self._workers))
        for path in list(self._directory.glob("pods/*")):
            if path.name not in self._workers:
                PodWorker(_unknown_pod(path.name), self._context, "").remove()
                self._release_devices(path.name)

    async def _collect_garbage(self) -> None:
        while True:
            try:
                workers = [each for each in self._workers.values() if each.is_finished]
                finished = [each.state.directory / "containers" for each in workers]
                await asyncio.to_thread(self._kept_logs.collect_garbage, finished)
                await self._forget_surplus_pods()
            except OSError as error:
                log.warning("kept logs cannot be removed: %s", error)
            await self._clock.sleep(GARBAGE_INTERVAL_S)

    async def _forget_surplus_pods(self) -> None:
        """Remove what is left of ended pods beyond the bounds; their objects stay."""
        ended = [
            FinishedPod(uid, worker.ended_at)
            for uid, worker in self._workers.items()
            # Only what the watch has shown as ended: an older state would run the pod again.
            if self._tasks[uid].done() and _has_ended(worker.pod)
        ]
        namespaces = set()
        for uid in surplus(ended, self._clock.now()):
            worker = self._workers.pop(uid, None)
            if worker is None:
                continue  # deleted in the meantime
            del self._tasks[uid]
            (worker.state.directory / RECORD).unlink(missing_ok=True)  # else it is accepted again
            self._addresses.release(uid)
            namespaces.add(worker.pod["metadata"]["namespace"])
            await asyncio.to_thread(worker.remove)
        for namespace in namespaces:
            self._write_hosts(namespace)

    # Names

    def _address_of(self, namespace: str, host: str) -> str:
        """Return the address of a pod by its host name; of an absent pod the expected one."""
        for uid, worker in self._workers.items():
            metadata, spec = worker.pod["metadata"], worker.pod["spec"]
            if metadata["namespace"] == namespace and host == (
                spec.get("hostname") or metadata["name"]
            ):
                return self._addresses.allocated[uid]
        return self._addresses.expected(f"{namespace}/{host}")

    def _on_endpoints(self, _: str, old: Object | None, new: Object | None) -> None:
        """Update all hosts files: pods of every namespace resolve all services."""
        if (old or {}).get("subsets") != (new or {}).get("subsets"):
            for namespace in {w.pod["metadata"]["namespace"] for w in self._workers.values()}:
                self._write_hosts(namespace)

    def _write_hosts(self, namespace: str) -> None:
        pods = [
            (worker.pod, self._addresses.allocated[uid])
            for uid, worker in self._workers.items()
            if worker.pod["metadata"]["namespace"] == namespace
        ]
        if pods:
            self._hosts.write(namespace, pods, self._endpoints.list())
        else:
            self._hosts.remove(namespace)


def _has_ended(pod: Object) -> bool:
    return (pod.get("status") or {}).get("phase") in (PodPhase.SUCCEEDED, PodPhase.FAILED)


def _unknown_pod(uid: str) -> Object:
    """Return a pod of which only the directory exists."""
    return {"metadata": {"uid": uid, "name": "", "namespace": ""}, "spec": {"containers": []}}
