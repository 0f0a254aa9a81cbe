"""A cluster whose scheduler, controllers and webhooks can be stopped one by one."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, TypeVar

import uvloop
from tools.kube.cluster import KubeCluster, node_manifest, start_kwok
from tools.kube.processes import Processes
from tools.waiting import until

from hekla.admission.service import AdmissionService
from hekla.api import wellknown
from hekla.controllers.runner import WORKLOADS, Controllers
from hekla.kube import kubeconfig
from hekla.kube.client import Client
from hekla.kube.resources import CONFIGMAPS, JOBS, NODES, PODGROUPS, PODS, QUEUES
from hekla.kube.sync_client import SyncClient
from hekla.scheduler.plugins.discovery import discover
from hekla.scheduler.service.decision_log import DecisionLog
from hekla.scheduler.service.replay import Outcome, replay
from hekla.scheduler.service.scheduler import Scheduler
from tests.realkube import backends

Json = dict[str, Any]
Serving = Callable[[], AbstractAsyncContextManager[Any]]
T = TypeVar("T")
STOP_S = 60.0
HERE = {"zone": "here"}
AT_HERE = {"nodeSelector": HERE}

# Everything that evicts is on: that is where most of the pains come from.
CONF = """\
actions: "enqueue, allocate, preempt, reclaim, backfill"
tiers:
- plugins:
  - name: priority
  - name: gang
  - name: conformance
- plugins:
  - name: drf
  - name: predicates
  - name: {shares}
  - name: nodeorder
{more}"""


class Part:
    """A component on a thread of its own."""

    def __init__(self, serving: Serving) -> None:
        ready: Future[Any] = Future()

        async def serve() -> None:
            self._stop = asyncio.Event()
            self.loop = asyncio.get_running_loop()
            async with serving() as made:
                ready.set_result(made)
                await self._stop.wait()

        def run() -> None:
            try:
                uvloop.run(serve())
            except BaseException as error:
                if ready.done():
                    raise
                ready.set_exception(error)

        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()
        self.made: Any = ready.result(backends.DEADLINE_S)

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(STOP_S)


@contextlib.asynccontextmanager
async def _task(work: Any) -> Any:
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


class Site:
    """A server with all components of hekla."""

    def __init__(self, name: str, config: Path) -> None:
        self.name = name
        self.kubeconfig = config
        self.decisions = config.parent / "decisions.log"
        self._target = kubeconfig.load(config)
        self.client = SyncClient(self._target, component="test")
        self.admission = Part(self._admission) if name == "real" else None
        if self.admission is not None:
            until(lambda: backends.is_admitting(self.client))
        self.controllers = Part(self._controllers)
        self._scheduler = Part(self._schedule)

    @property
    def scheduler(self) -> Scheduler:
        scheduler: Scheduler = self._scheduler.made
        return scheduler

    @contextlib.asynccontextmanager
    async def _admission(self) -> Any:
        async with (
            Client(self._target, component="admission") as client,
            AdmissionService(client, port=0).serving(),
        ):
            yield None

    @contextlib.asynccontextmanager
    async def _controllers(self) -> Any:
        select = ("*",) if self.name == "real" else ("*", *WORKLOADS)
        async with (
            Client(self._target, component="controllers") as client,
            _task(Controllers(client, select=select).run()),
        ):
            yield None

    @contextlib.asynccontextmanager
    async def _schedule(self) -> Any:
        async with Client(self._target, component="scheduler") as client:
            self._log = DecisionLog(self.decisions)
            made = Scheduler(client, check_invariants=True, decision_log=self._log)
            async with _task(made.run()):
                yield made

    def restart_scheduler(self) -> None:
        self._scheduler.stop()
        self._log.close()
        self._scheduler = Part(self._schedule)

    def recorded(self, conf: str | None = None) -> Iterator[Outcome]:
        """Decide again what the scheduler recorded since it was started."""
        self._log.flush()
        return replay(self.decisions, discover(None), conf=conf)

    def on_loop(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something on the loop of the scheduler."""
        return asyncio.run_coroutine_threadsafe(work, self._scheduler.loop).result(STOP_S)

    def restart_admission(self) -> None:
        self.admission = Part(self._admission)
        until(lambda: backends.is_admitting(self.client))

    def stop(self) -> None:
        for part in (self._scheduler, self.controllers, self.admission):
            if part is not None:
                part.stop()
        self.client.close()

    # --- objects --------------------------------------------------------------------------------

    def configure(self, text: str) -> None:
        """Write the scheduler's configuration and wait until it was read."""
        body = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": wellknown.SCHEDULER_CONFIG_MAP,
                "namespace": wellknown.SYSTEM_NAMESPACE,
            },
            "data": {wellknown.SCHEDULER_CONFIG_KEY: text},
        }
        self.client.apply(CONFIGMAPS, body, field_manager="test", force=True)
        until(lambda: self.scheduler._tried_text == text)

    def nodes(self, count: int, *, cpu: int = 4, **shape: Any) -> list[str]:
        names = [f"node-{len(self.client.list(NODES).items)}-{n}" for n in range(count)]
        for name in names:
            self.client.create(NODES, node_manifest(name, cpu=cpu, **shape))
        until(lambda: all(self._is_usable(name) for name in names))
        return names

    def _is_usable(self, name: str) -> bool:
        """Tell whether the scheduler may use a node: Kubernetes taints it until it is ready."""
        node = self.scheduler.cluster.nodes.get(name)
        return node is not None and node.is_ready and not node.taints

    def queue(self, name: str, **spec: Any) -> str:
        self.client.create(QUEUES, {"metadata": {"name": name}, "spec": {"weight": 1, **spec}})
        until(lambda: (self.client.get(QUEUES, name).get("status") or {}).get("state") == "Open")
        return name

    def cycles(self, count: int = 6) -> None:
        """Let the scheduler decide so many more times, each after a change of a node."""
        for number in range(count):
            before = self.scheduler.cycles
            for node in self.client.list(NODES).items[:1]:
                note = {"metadata": {"labels": {"seen": f"{before}-{number}"}}}
                self.client.patch(NODES, node["metadata"]["name"], note)
            until(lambda before=before: self.scheduler.cycles > before)  # type: ignore[misc]


class Place:
    """One namespace of a site."""

    def __init__(self, site: Site, namespace: str) -> None:
        self.site = site
        self.client = site.client
        self.namespace = namespace

    def submit(self, body: Json) -> None:
        self.client.create(JOBS, body, namespace=self.namespace)

    def pods(self, job: str = "") -> list[Json]:
        found = self.client.list(PODS, namespace=self.namespace).items
        return [p for p in found if not job or p["metadata"]["name"].startswith(f"{job}-")]

    def running(self, job: str = "") -> dict[str, str]:
        """The nodes of the running pods by uid."""
        return {
            pod["metadata"]["uid"]: pod["spec"]["nodeName"]
            for pod in self.pods(job)
            if pod["spec"].get("nodeName")
            and pod["status"].get("phase") == "Running"
            and "deletionTimestamp" not in pod["metadata"]
        }

    def runs(self, job: str, count: int) -> dict[str, str]:
        """Wait until so many pods of a job run; return them."""
        return until(
            lambda: found if len(found := self.running(job)) == count else None,
            f"{job}: {count} running pods",
        )

    def phase(self, job: str) -> str:
        found = self.client.get(JOBS, job, namespace=self.namespace)
        return str(((found.get("status") or {}).get("state") or {}).get("phase", ""))

    def group(self, job: str) -> Json:
        for found in self.client.list(PODGROUPS, namespace=self.namespace).items:
            if found["metadata"]["name"].startswith(f"{job}-"):
                return found
        return {}

    def key(self, job: str) -> str:
        """The key of a job in the scheduler."""
        return f"{self.namespace}/{self.group(job)['metadata']['name']}"

    def reason(self, job: str) -> str:
        """The newest message of why a job is pending."""
        told = (self.group(job).get("status") or {}).get("conditions") or ()
        messages = [c.get("message", "") for c in told if c["type"] == "Unschedulable"]
        return messages[-1] if messages else ""

    def is_pending(self, job: str) -> str:
        return until(lambda: self.reason(job), f"{job} has no reason")

    def finish(self, job: str, how: str = "Succeeded", count: int | None = None) -> None:
        for pod in [p for p in self.pods(job) if p["status"].get("phase") == "Running"][:count]:
            backends.finish(self.client, self.namespace, pod["metadata"]["name"], how)


def job(name: str, replicas: int, cpu: str = "1", **spec: Any) -> Json:
    pod: Json = spec.pop("pod", {})
    requests = {"cpu": cpu, **spec.pop("requests", {})}
    container: Json = {"name": "c", "image": "none", "resources": {"requests": requests}}
    if limits := spec.pop("limits", None):
        container["resources"]["limits"] = limits
    template = {"spec": {"restartPolicy": "Never", "containers": [container], **pod}}
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {
            "tasks": [{"name": "w", "replicas": replicas, "template": template}],
            **spec,
        },
    }


@contextlib.contextmanager
def embedded(directory: Path) -> Iterator[Site]:
    processes = Processes(directory)
    with backends.embedded_server(directory) as config:
        try:
            start_kwok(processes, config)
            site = Site("embedded", config)
            try:
                yield site
            finally:
                site.stop()
        finally:
            processes.stop_all()


@contextlib.contextmanager
def real(directory: Path) -> Iterator[Site]:
    with KubeCluster(directory, controllers=True) as cluster:
        backends.install(cluster)
        site = Site("real", cluster.kubeconfig)
        try:
            yield site
        finally:
            site.stop()
