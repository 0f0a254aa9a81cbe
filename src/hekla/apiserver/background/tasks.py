"""Background tasks of the server.

One task follows the store and runs the garbage collector, the termination of namespaces and
CustomResourceDefinitions, the default objects of namespaces and the usage status. Another deletes
expired Events.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable

import msgspec

from hekla.apiserver import errors
from hekla.apiserver.background.garbage_collector import GarbageCollector
from hekla.apiserver.background.namespace_defaults import NamespaceDefaults
from hekla.apiserver.background.usage_status import UsageStatusController
from hekla.apiserver.registry.options import DeleteOptions, Options
from hekla.apiserver.registry.resources import Resources
from hekla.apiserver.schema.crds import CLEANUP, CRDS
from hekla.apiserver.schema.kinds import Served
from hekla.apiserver.storage.watch_cache import Entry, Event
from hekla.units.objects import Object
from hekla.units.timestamps import parse_time

log = logging.getLogger("hekla.apiserver")

RETRY_S = 1.0
SWEEP_INTERVAL_S = 60.0
EVENT_TTL_S = 3600.0
MAX_EVENTS = 20_000


class BackgroundTasks:
    """Start after the store is populated; stop before it closes."""

    def __init__(self, resources: Resources, authority: str) -> None:
        self._resources = resources
        self._namespace_defaults = NamespaceDefaults(resources, authority)
        self._garbage = GarbageCollector(resources)
        self._changed = asyncio.Event()
        self._changed.set()
        # Terminating namespaces and CustomResourceDefinitions.
        self._terminating_namespaces: dict[str, None] = {}
        self._terminating_crds: dict[str, None] = {}
        self._orphaned_pods: dict[str, None] = {}
        self._usage_status = UsageStatusController(resources)
        self._tasks: list[asyncio.Task[None]] = []
        store = resources.store
        for name, table in (("namespaces", self._on_namespace), (CRDS, self._on_crd)):
            for entry in store.table(name).entries.values():
                table(Event(entry, None, False))
        for entry in store.table("namespaces").entries.values():
            self._namespace_defaults.observe("namespaces", Event(entry, None, False))
        store.subscribe(self._observe)

    def start(self) -> None:
        self._tasks = [
            asyncio.create_task(self._run(), name="background"),
            asyncio.create_task(self._sweep(), name="event sweeper"),
        ]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # Store events

    def _observe(self, table: str, event: Event) -> None:
        self._garbage.observe(table, event)
        self._namespace_defaults.observe(table, event)
        if table == "namespaces":
            self._on_namespace(event)
        elif table == CRDS:
            self._on_crd(event)
        elif table == "pods" and b'"deletionTimestamp"' in event.entry.body and not event.removed:
            self._orphaned_pods[event.entry.key] = None
        elif table == "nodes" and event.removed:
            self._orphaned_pods.update(dict.fromkeys(self._resources.store.table("pods").keys))
        self._usage_status.observe(table, event)
        has_work = (
            self._terminating_namespaces
            or self._terminating_crds
            or self._orphaned_pods
            or not self._garbage.is_idle
            or not self._namespace_defaults.is_idle
            or not self._usage_status.is_idle
        )
        if has_work:
            self._changed.set()

    def _on_namespace(self, event: Event) -> None:
        name = event.entry.key
        self._terminating_namespaces.pop(name, None)
        if not event.removed and event.entry.is_terminating:
            self._terminating_namespaces[name] = None

    def _on_crd(self, event: Event) -> None:
        name = event.entry.key
        self._terminating_crds.pop(name, None)
        if not event.removed and event.entry.is_terminating:
            self._terminating_crds[name] = None

    # Reconciling

    async def _run(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            for reconcile in (
                self._garbage.reconcile,
                self._namespace_defaults.reconcile,
                self._empty_namespaces,
                self._empty_crds,
                self._release_orphaned_pods,
                self._usage_status.reconcile,
            ):
                await self._run_once(reconcile)

    async def _run_once(self, reconcile: Callable[[], Awaitable[None]]) -> None:
        try:
            await reconcile()
        except Exception:
            log.exception("background task failed; retrying")
            loop = asyncio.get_running_loop()
            loop.call_later(RETRY_S, self._changed.set)

    def _served(self, api_version: str, kind: str) -> Served:
        served = self._resources.registry.by_kind(api_version, kind)
        assert served is not None
        return served

    async def _empty_namespaces(self) -> None:
        for namespace in list(self._terminating_namespaces):
            if not await self._delete_all(f"{namespace}/"):
                await self._finalize(namespace)

    async def _delete_all(self, prefix: str, tables: list[str] | None = None) -> bool:
        """Start to delete everything under `prefix`; return whether anything remains."""
        store, registry = self._resources.store, self._resources.registry
        remains = False
        for table in tables if tables is not None else store.resources():
            served = registry.of_storage(table)
            if served is None or (prefix and not served.kind.namespaced):
                continue
            for key in store.table(table).range(prefix):
                namespace, _, name = key.rpartition("/")
                with contextlib.suppress(errors.StatusError):
                    await self._resources.delete(
                        served,
                        namespace,
                        name,
                        delete_options=DeleteOptions(propagation="Background"),
                    )
            remains = remains or bool(store.table(table).range(prefix))
        return remains

    async def _finalize(self, namespace: str) -> None:
        def release(obj: Object) -> Object:
            finalizers = (obj.get("spec") or {}).get("finalizers") or []
            obj["spec"]["finalizers"] = [name for name in finalizers if name != "kubernetes"]
            return obj

        with contextlib.suppress(errors.StatusError):
            await self._resources.update(
                self._served("v1", "Namespace"),
                "",
                namespace,
                release,
                Options(subresource="finalize"),
            )

    async def _empty_crds(self) -> None:
        served = self._served("apiextensions.k8s.io/v1", "CustomResourceDefinition")
        for name in list(self._terminating_crds):
            plural, _, group = name.partition(".")
            if await self._delete_all("", [f"{group}/{plural}"]):
                continue

            def release(obj: Object) -> Object:
                finalizers = obj["metadata"].get("finalizers") or []
                obj["metadata"]["finalizers"] = [f for f in finalizers if f != CLEANUP]
                return obj

            with contextlib.suppress(errors.StatusError):
                await self._resources.update(served, "", name, release)

    async def _release_orphaned_pods(self) -> None:
        """Delete terminating pods of deleted nodes: no node agent can finish them."""
        served = self._served("v1", "Pod")
        store = self._resources.store
        while self._orphaned_pods:
            key = next(iter(self._orphaned_pods))
            del self._orphaned_pods[key]
            entry = store.get("pods", key)
            if entry is None:
                continue
            pod: Object = msgspec.json.decode(entry.body)
            node = pod["spec"].get("nodeName")
            if "deletionTimestamp" in pod["metadata"] and node and not store.get("nodes", node):
                namespace, _, name = key.rpartition("/")
                delete_options = DeleteOptions(grace_s=0, uid=pod["metadata"]["uid"])
                with contextlib.suppress(errors.StatusError):
                    await self._resources.delete(
                        served, namespace, name, delete_options=delete_options
                    )

    async def _sweep(self) -> None:
        """Delete expired Events."""
        served = self._served("v1", "Event")
        store, clock = self._resources.store, self._resources.clock
        while True:
            await clock.sleep(SWEEP_INTERVAL_S)
            for key in expired_events(store.table("events").entries.values(), clock.now()):
                namespace, _, name = key.rpartition("/")
                with contextlib.suppress(errors.StatusError):
                    await self._resources.delete(served, namespace, name)


class _Series(msgspec.Struct):
    lastObservedTime: str | None = None


class _EventMeta(msgspec.Struct):
    creationTimestamp: str


class _Times(msgspec.Struct):
    metadata: _EventMeta
    series: _Series | None = None
    lastTimestamp: str | None = None
    eventTime: str | None = None


_times = msgspec.json.Decoder(_Times)


def expired_events(entries: Iterable[Entry], now: float) -> list[str]:
    """Return the keys of Events older than EVENT_TTL_S, and of the oldest beyond MAX_EVENTS."""
    seen = sorted((_last_seen(_times.decode(entry.body)), entry.key) for entry in entries)
    excess = max(len(seen) - MAX_EVENTS, 0)
    return [
        key for number, (at, key) in enumerate(seen) if number < excess or at < now - EVENT_TTL_S
    ]


def _last_seen(event: _Times) -> float:
    times = (
        event.series.lastObservedTime if event.series else None,
        event.lastTimestamp,
        event.eventTime,
        event.metadata.creationTimestamp,
    )
    return max(parse_time(text) for text in times if text)
