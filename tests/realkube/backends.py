"""Two servers for one suite: hekla's own and a real kube-apiserver, both with kwok nodes.

On both, hekla's scheduler and controllers run against a kubeconfig, as in a cluster; on Kubernetes
also the admission service, registered as webhooks.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvloop
from tools.kube.cluster import KubeCluster, node_manifest, start_kwok
from tools.kube.processes import Processes
from tools.waiting import until

from hekla.admission.service import AdmissionService
from hekla.api import crds, wellknown
from hekla.controllers.runner import WORKLOADS, Controllers
from hekla.kube import kubeconfig
from hekla.kube.client import Client
from hekla.kube.errors import KubeError
from hekla.kube.resources import (
    CUSTOM_RESOURCE_DEFINITIONS,
    JOBS,
    NAMESPACES,
    NODES,
    PODS,
    QUEUES,
    SERVICE_ACCOUNTS,
)
from hekla.kube.sync_client import SyncClient
from hekla.scheduler.service.scheduler import Scheduler

DEADLINE_S = 180.0
NODE_COUNT, NODE_CPU = 3, 4


def create_namespace(client: SyncClient, name: str) -> None:
    """Create a namespace and wait for its account `default`: kube-apiserver refuses pods before."""
    client.create(NAMESPACES, {"metadata": {"name": name}})
    until(lambda: client.find(SERVICE_ACCOUNTS, "default", namespace=name) is not None)


@dataclass(frozen=True)
class Backend:
    """A running cluster with all components of hekla."""

    name: str
    kubeconfig: Path

    def client(self) -> SyncClient:
        return SyncClient(kubeconfig.load(self.kubeconfig), component="test")


@contextlib.contextmanager
def embedded_server(directory: Path, *flags: str) -> Iterator[Path]:
    """Run hekla's server as a process; yield its kubeconfig."""
    process = subprocess.Popen(
        [sys.executable, "-m", "hekla.apiserver", "--data-dir", str(directory), *flags],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline().strip(), "the server did not start"
    try:
        yield directory / "kubeconfig"
    finally:
        process.terminate()
        process.wait(120)
        process.stdout.close()


@contextlib.contextmanager
def embedded(directory: Path) -> Iterator[Backend]:
    """Hekla's own server; its admission is built in."""
    processes = Processes(directory)
    with embedded_server(directory) as config:
        try:
            start_kwok(processes, config)
            yield from _with_components(Backend("embedded", config), admission=False)
        finally:
            processes.stop_all()


@contextlib.contextmanager
def real(directory: Path) -> Iterator[Backend]:
    """Kubernetes, with hekla's CRDs and webhooks."""
    with KubeCluster(directory, controllers=True) as cluster:
        install(cluster)
        yield from _with_components(Backend("real", cluster.kubeconfig), admission=True)


@contextlib.contextmanager
def real_server(directory: Path) -> Iterator[Path]:
    """Kubernetes with hekla's CRDs and webhooks, without scheduler and controllers."""
    with KubeCluster(directory) as cluster:
        install(cluster)
        with running(cluster.kubeconfig, admission=True, controllers=False):
            with cluster.client() as client:
                for name in (wellknown.ROOT_QUEUE, wellknown.DEFAULT_QUEUE):
                    client.create(QUEUES, {"metadata": {"name": name}, "spec": {"weight": 1}})
                    client.patch_status(QUEUES, name, {"state": "Open"})
            yield cluster.kubeconfig


def install(cluster: KubeCluster) -> None:
    """Define hekla's kinds."""
    with cluster.client() as client:
        for body in crds.load():
            client.create(CUSTOM_RESOURCE_DEFINITIONS, body)
        client.create(NAMESPACES, {"metadata": {"name": wellknown.SYSTEM_NAMESPACE}})
        until(lambda: _serves_our_kinds(client))


def _serves_our_kinds(client: SyncClient) -> bool:
    for found in client.list(CUSTOM_RESOURCE_DEFINITIONS):
        told = (found.get("status") or {}).get("conditions") or ()
        if not any(c["type"] == "Established" and c["status"] == "True" for c in told):
            return False
    try:
        return all(client.list(kind) is not None for kind in (JOBS, QUEUES))
    except KubeError:
        return False


def is_admitting(client: SyncClient) -> bool:
    """Return whether the server calls both types of webhooks, which takes some time."""
    queue: dict[str, Any] = {"metadata": {"name": "asked-for-nothing"}, "spec": {"weight": 1}}
    if "reclaimable" not in client.create(QUEUES, queue, dry_run=True)["spec"]:
        return False
    queue["spec"]["parent"] = "nobody"
    try:
        client.create(QUEUES, queue, dry_run=True)
    except KubeError as refusal:
        return "admission webhook" in str(refusal)
    return False


def _with_components(backend: Backend, *, admission: bool) -> Iterator[Backend]:
    with backend.client() as client:
        for number in range(NODE_COUNT):
            client.create(NODES, node_manifest(f"node-{number}", cpu=NODE_CPU))
        with running(backend.kubeconfig, admission=admission):
            until(lambda: is_open(client))
            yield backend


def is_open(client: SyncClient) -> bool:
    found: Any = client.find(QUEUES, wellknown.DEFAULT_QUEUE)
    return found is not None and (found.get("status") or {}).get("state") == "Open"


@contextlib.contextmanager
def running(config: Path, *, admission: bool, controllers: bool = True) -> Iterator[None]:
    """Run scheduler and controllers, webhooks, or all of them on a thread."""
    ready: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def serve() -> None:
        stop = asyncio.Event()
        async with components(config, admission=admission, controllers=controllers):
            ready.set_result((asyncio.get_running_loop(), stop))
            await stop.wait()

    def run() -> None:
        try:
            uvloop.run(serve())
        except BaseException as error:
            if ready.done():
                raise
            ready.set_exception(error)

    thread = threading.Thread(target=run, name="components", daemon=True)
    thread.start()
    loop, stop = ready.result(DEADLINE_S)
    try:
        if admission:
            with SyncClient(kubeconfig.load(config)) as client:
                until(lambda: is_admitting(client))
        yield
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(DEADLINE_S)


@contextlib.asynccontextmanager
async def components(config: Path, *, admission: bool, controllers: bool) -> AsyncIterator[None]:
    target = kubeconfig.load(config)
    async with contextlib.AsyncExitStack() as stack:
        enter = stack.enter_async_context
        if admission:
            client = await enter(Client(target, component="admission"))
            await enter(AdmissionService(client, port=0).serving())
        parts = []
        if controllers:
            parts.append(Scheduler(await enter(Client(target, component="scheduler"))).run)
            client = await enter(Client(target, component="controllers"))
            # Where admission is built in there is no kube-controller-manager either: `hekla up`.
            select = ("*",) if admission else ("*", *WORKLOADS)
            parts.append(Controllers(client, select=select).run)
        tasks = [asyncio.create_task(part()) for part in parts]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


def finish(client: SyncClient, namespace: str, pod: str, how: str = "Succeeded") -> None:
    """Finish a running pod."""
    note = {"metadata": {"annotations": {"hekla.test/finish": how}}}
    client.patch(PODS, pod, note, namespace=namespace)
