"""A cluster for controller tests: the embedded server, and a test double for kubelet and scheduler.

`Cluster.settle` returns when the controllers have no work left: no test sleeps for a fixed time.
Pods change state by calls of the test (`run`, `succeed`, `fail`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from typing import Any

from hekla.apiserver.server import ApiServer, Config
from hekla.controllers.informers import MutationCache
from hekla.controllers.runner import Controllers
from hekla.kube import kubeconfig
from hekla.kube.client import Client
from hekla.kube.errors import NotFound
from hekla.kube.resources import COMMANDS, JOBS, PODGROUPS, PODS
from hekla.units.clock import Clock, SystemClock
from hekla.units.objects import Object
from hekla.units.timestamps import format_time

TIMEOUT_S = 120.0
POLL_S = 0.004
POLL_AGAIN_S = 0.5  # the condition may depend on the controllers and not on a stored object


class Crash(BaseException):
    """The controllers' process ends here; nothing may catch this."""


class CountingClient(Client):
    """A client that counts its writes, and can crash the controllers after the n-th one."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.writes: list[str] = []
        self.crash_after: int | None = None
        self.crashed = asyncio.Event()
        send = self.transport.send

        async def counted(call: Any, **options: Any) -> bytes:
            is_write = call.method != "GET" and "/events" not in call.path
            if is_write and self.crashed.is_set():
                await asyncio.Event().wait()  # a crashed process writes nothing
            if is_write:
                self.writes.append(f"{call.method} {call.path}")
                if self.crash_after is not None and len(self.writes) >= self.crash_after:
                    self.crashed.set()
                    await send(call, **options)
                    await asyncio.Event().wait()
            return await send(call, **options)

        self.transport.send = counted  # type: ignore[method-assign]


class Cluster:
    def __init__(self, server: ApiServer, client: Client, clock: Clock) -> None:
        self.server = server
        self.client = client
        self.clock = clock
        self.controllers: Controllers | None = None
        self.control: CountingClient | None = None
        self.select = ["*"]
        self._task: asyncio.Task[None] | None = None
        self.admits = True
        self.namespace = "default"
        self.made: Counter[str] = Counter()
        """How often each pod was created, as `namespace/name`."""
        self.crashes = 0
        self._changed = asyncio.Event()
        server.store.subscribe(self._on_store)

    def _on_store(self, table: str, event: Any) -> None:
        self._changed.set()
        if table == "pods" and event.previous is None and not event.removed:
            self.made[event.entry.key] += 1

    # Controllers

    async def start(self, *, crash_after: int | None = None, **more: Any) -> None:
        self.control = CountingClient(
            kubeconfig.load(self.server.kubeconfig), component="controllers"
        )
        self.control.crash_after = crash_after
        self.controllers = Controllers(
            self.control, clock=self.clock, counts_batch_period_s=0.0, select=self.select, **more
        )
        self._task = asyncio.create_task(self.controllers.run())

    async def stop(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        if self.control is not None:
            await self.control.close()

    # Waiting

    async def until(self, what: Callable[[], Any], message: str = "") -> Any:
        """Wait until `what` returns a true value; it may be asynchronous.

        It is called again whenever the server has stored an object or the controllers crashed.
        """
        deadline = asyncio.get_running_loop().time() + TIMEOUT_S
        while True:
            self._changed.clear()
            found = what()
            if asyncio.iscoroutine(found):
                found = await found
            if found:
                return found
            await self._restart_if_crashed()
            assert asyncio.get_running_loop().time() < deadline, f"timed out: {message}"
            await self.admit()
            await self._wait_for_a_change()

    async def _wait_for_a_change(self) -> None:
        events = [self._changed] if self.control is None else [self._changed, self.control.crashed]
        waits = [asyncio.create_task(event.wait()) for event in events]
        try:
            running = [] if self._task is None else [self._task]
            await asyncio.wait(
                [*waits, *running], timeout=POLL_AGAIN_S, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    async def _restart_if_crashed(self) -> None:
        """Restart controllers that crashed as planned; raise the error of any others."""
        if self.control is not None and self.control.crashed.is_set():
            self.crashes += 1
            await self.stop()
            await self.start()
        elif self._task is not None and self._task.done():
            await self._task

    async def settle(self) -> None:
        """Wait until the controllers have seen all objects and have nothing left to do."""
        quiet = 0
        seen = -1
        deadline = asyncio.get_running_loop().time() + TIMEOUT_S
        while quiet < 4:
            assert asyncio.get_running_loop().time() < deadline, "the controllers do not settle"
            await self.admit()
            await asyncio.sleep(POLL_S)
            now = self.server.store.revision
            busy = self._any_informer_lags() or any(
                len(each.queue) or each.queue.processing
                for each in (self.controllers.controllers if self.controllers else {}).values()
            )
            await self._restart_if_crashed()
            quiet = quiet + 1 if not busy and now == seen else 0
            seen = now

    def _any_informer_lags(self) -> bool:
        """Return whether an informer of the controllers lags behind the store."""
        if self._task is None or self.controllers is None:
            return False
        if self.controllers.not_ready_reason():
            return True
        needs = (cache for each in self.controllers._caches.values() for cache in each)
        return any(map(self._lags, needs))

    def _lags(self, cache: MutationCache) -> bool:
        informer = cache.informer
        if informer._field_selector or informer._namespace:
            return False  # objects that it does not select do not advance it
        kind = informer.resource
        served = self.server.registry.by_kind(kind.api_version, kind.kind)
        if served is None:
            return False
        watch_cache = self.server.store.table(served.storage).watch_cache
        return bool(watch_cache.after(int(informer.resource_version or 0), 1))

    async def admit(self) -> None:
        """Admit every PodGroup, as the scheduler does."""
        if not self.admits:
            return
        for group in (await self.client.list(PODGROUPS)).items:
            if (group.get("status") or {}).get("phase") in (None, "", "Pending"):
                with contextlib.suppress(NotFound):
                    await self.client.patch_status(
                        PODGROUPS,
                        group["metadata"]["name"],
                        {"phase": "Inqueue"},
                        namespace=group["metadata"]["namespace"],
                    )

    # Reading

    async def job(self, name: str = "train") -> Object:
        return await self.client.get(JOBS, name, namespace=self.namespace)

    async def phase(self, name: str = "train") -> str:
        found = await self.client.find(JOBS, name, namespace=self.namespace)
        return str(((found or {}).get("status") or {}).get("state", {}).get("phase", ""))

    async def reaches(self, phase: str, name: str = "train") -> Object:
        async def there() -> bool:
            return await self.phase(name) == phase

        await self.until(there, f"{name} is {phase}")
        return await self.job(name)

    async def pods(self, phase: str | None = None) -> dict[str, Object]:
        """Return pods by name, without terminating ones."""
        found = (await self.client.list(PODS, namespace=self.namespace)).items
        return {
            pod["metadata"]["name"]: pod
            for pod in found
            if "deletionTimestamp" not in pod["metadata"]
            and phase in (None, pod["status"]["phase"])
        }

    async def has_pods(self, count: int, phase: str | None = None) -> dict[str, Object]:
        async def there() -> bool:
            return len(await self.pods(phase)) == count

        await self.until(there, f"{count} pods {phase or ''}")
        return await self.pods(phase)

    # The kubelet

    async def run(self, names: Iterable[str] | None = None) -> None:
        """Set pods to Running."""
        for name in list(names if names is not None else await self.pods("Pending")):
            await self.set_pod(name, "Running", {"running": {}})

    async def succeed(self, *names: str) -> None:
        for name in names or tuple(await self.pods("Running")):
            await self.set_pod(name, "Succeeded", self._ended(0))

    async def fail(self, name: str, code: int = 1) -> None:
        await self.set_pod(name, "Failed", self._ended(code))

    def _ended(self, code: int) -> Object:
        return {"terminated": {"exitCode": code, "finishedAt": format_time(self.clock.now())}}

    async def set_pod(self, name: str, phase: str, state: Object, restarts: int = 0) -> None:
        container = {
            "name": "main",
            "image": "host",
            "imageID": "",
            "restartCount": restarts,
            "ready": phase == "Running",
            "state": state,
        }
        await self.client.patch_status(
            PODS,
            name,
            {"phase": phase, "containerStatuses": [container]},
            namespace=self.namespace,
        )

    # The user

    async def command(self, action: str, job: str = "train") -> None:
        target = await self.job(job)
        reference = {
            "apiVersion": "batch.volcano.sh/v1alpha1",
            "kind": "Job",
            "name": job,
            "uid": target["metadata"]["uid"],
            "controller": True,
        }
        await self.client.create(
            COMMANDS,
            {
                "metadata": {
                    "generateName": f"{job}-{action.lower()}-",
                    "namespace": self.namespace,
                    "ownerReferences": [reference],
                },
                "action": action,
                "target": reference,
            },
        )


@contextlib.asynccontextmanager
async def running_cluster(
    directory: Path, *, clock: Clock | None = None, start: bool = True, **more: Any
) -> AsyncIterator[Cluster]:
    clock = clock or SystemClock()
    async with (
        ApiServer(Config(data_dir=directory, clock=clock)) as server,
        Client(kubeconfig.load(server.kubeconfig), component="test") as client,
    ):
        cluster = Cluster(server, client, clock)
        if start:
            await cluster.start(**more)
        try:
            yield cluster
        finally:
            await cluster.stop()
