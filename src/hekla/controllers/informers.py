"""The informers that all controllers share, one for each kind.

`MutationCache` is client-go's: an informer's store overlaid with our own writes. A written object
counts until the watch has caught up with it, so a controller does not decide on a state that it has
itself replaced, and does not create an object twice.

Note: this is no lock. Two controllers can run for a moment, so a write that carries a decision
names the resourceVersion that the decision was made on.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

from hekla.api import wellknown
from hekla.controllers.objects import Key, controller_of, key_of, uid_of, version_number
from hekla.kube.client import Client
from hekla.kube.informers import Informer
from hekla.kube.resources import (
    COMMANDS,
    CONTROLLER_REVISIONS,
    JOBS,
    PODGROUPS,
    PODS,
    QUEUES,
    REPLICA_SETS,
    Resource,
)
from hekla.kube.stores import Handler, Indexer
from hekla.units.clock import Clock
from hekla.units.objects import Object

# Names of indexes.
OWNER: Final = "owner"
TARGET: Final = "target"
QUEUE: Final = "queue"
PARENT: Final = "parent"
TEMPLATE: Final = "template"
ORPHANS: Final = "orphans"
NODE: Final = "node"


def owner_uid(obj: Object) -> list[str]:
    """Index objects by the UID of their controller."""
    owner = controller_of(obj)
    return [] if owner is None else [str(owner.get("uid"))]


def is_volcano_job_ref(owner: Mapping[str, object] | None) -> bool:
    """Return whether a reference names a Volcano Job."""
    return (
        owner is not None
        and owner.get("kind") == "Job"
        and owner.get("apiVersion") == wellknown.BATCH_API
    )


def _target(command: Object) -> Iterable[str]:
    target = command.get("target")
    if target:
        namespace = key_of(command)[0] if target.get("kind") == "Job" else ""
        yield f"{target.get('kind')}/{namespace}/{target.get('name')}"


def _queue(group: Object) -> Iterable[str]:
    yield (group.get("spec") or {}).get("queue") or wellknown.DEFAULT_QUEUE


def _parent(queue: Object) -> Iterable[str]:
    yield (queue.get("spec") or {}).get("parent") or wellknown.ROOT_QUEUE


def _template(job: Object) -> Iterable[str]:
    annotations = job["metadata"].get("annotations") or {}
    if wellknown.CREATED_BY_JOB_TEMPLATE in annotations:
        yield annotations[wellknown.CREATED_BY_JOB_TEMPLATE]


def _orphan_namespace(obj: Object) -> Iterable[str]:
    if controller_of(obj) is None:
        yield key_of(obj)[0]


def _node(pod: Object) -> Iterable[str]:
    node = (pod.get("spec") or {}).get("nodeName")
    if node:
        yield node


INDEXES: Final[Mapping[str, Mapping[str, Indexer[Object]]]] = {
    str(COMMANDS): {TARGET: _target},
    str(PODGROUPS): {QUEUE: _queue},
    str(QUEUES): {PARENT: _parent},
    str(JOBS): {TEMPLATE: _template},
    str(PODS): {ORPHANS: _orphan_namespace, NODE: _node},
    str(REPLICA_SETS): {ORPHANS: _orphan_namespace},
    str(CONTROLLER_REVISIONS): {ORPHANS: _orphan_namespace},
}
"""Indexes by kind; every kind is also indexed by the UID of its controller."""


class MutationCache:
    """The objects of one kind: the informer's store overlaid with our own writes."""

    def __init__(
        self,
        client: Client,
        resource: Resource[Any],
        *,
        clock: Clock,
        indexers: Mapping[str, Indexer[Object]] | None = None,
        namespace: str | None = None,
        name: str = "",
        transform: Callable[[Object], Object] | None = None,
    ) -> None:
        self._indexers = {OWNER: owner_uid, **(indexers or {})}
        self.informer: Informer[Object] = Informer(
            client,
            resource,
            dict,
            indexers=self._indexers,
            namespace=namespace,
            field_selector=f"metadata.name={name}" if name else "",
            transform=transform or _without_managed_fields,
            clock=clock,
        )
        self._written: dict[Key, Object] = {}
        self._indexed: dict[tuple[str, str], set[Key]] = {}
        self._deleting: set[str] = set()
        self.informer.add_handler(self._on_change)

    def add_handler(self, handler: Handler[Object]) -> None:
        self.informer.add_handler(handler)

    def get(self, namespace: str, name: str) -> Object | None:
        own_write = self._own_write((namespace, name))
        found = own_write if own_write is not None else self.informer.get(namespace, name)
        return None if found is None else self._mark_deleting(found)

    def all(self) -> Iterator[Object]:
        return self.informer.list()

    def by_index(self, index: str, key: str) -> list[Object]:
        """Return the objects under an index key, our own writes included."""
        found = {key_of(each): each for each in self.informer.by_index(index, key)}
        for object_key in tuple(self._indexed.get((index, key), ())):
            own_write = self._own_write(object_key)
            if own_write is not None:
                found[object_key] = own_write
        if self._deleting:
            return [self._mark_deleting(each) for each in found.values()]
        return list(found.values())

    def record_write(self, obj: Object) -> None:
        """Overlay the object with which the server answered our write."""
        if version_number(obj) > self._synced_version():
            object_key = key_of(obj)
            self._discard(object_key)
            self._written[object_key] = obj
            for index in self._index_keys(obj):
                self._indexed.setdefault(index, set()).add(object_key)

    def record_delete(self, obj: Object) -> None:
        """Mark an object as deleting until the watch reports its deletion."""
        known = self.informer.get(*key_of(obj))
        if known is not None and uid_of(known) == uid_of(obj):
            self._deleting.add(uid_of(obj))
        self._discard(key_of(obj))

    def _index_keys(self, obj: Object) -> Iterator[tuple[str, str]]:
        for name, indexer in self._indexers.items():
            for key in indexer(obj):
                yield name, key

    def _discard(self, object_key: Key) -> None:
        obj = self._written.pop(object_key, None)
        if obj is None:
            return
        for index in self._index_keys(obj):
            entries = self._indexed.get(index)
            if entries is not None:
                entries.discard(object_key)
                if not entries:
                    del self._indexed[index]

    def _mark_deleting(self, obj: Object) -> Object:
        if uid_of(obj) not in self._deleting or obj["metadata"].get("deletionTimestamp"):
            return obj
        return {**obj, "metadata": {**obj["metadata"], "deletionTimestamp": "requested"}}

    def _own_write(self, key: Key) -> Object | None:
        own_write = self._written.get(key)
        if own_write is not None and version_number(own_write) <= self._synced_version():
            self._discard(key)
            return None
        return own_write

    def _synced_version(self) -> int:
        text = self.informer.resource_version
        return int(text) if text.isdecimal() else 0

    def _on_change(self, event: str, old: Object | None, new: Object | None) -> None:
        obj = new or old
        assert obj is not None
        if event == "DELETED":
            self._deleting.discard(uid_of(obj))
        if self._written:
            own_write = self._written.get(key_of(obj))
            if own_write is not None and version_number(obj) >= version_number(own_write):
                self._discard(key_of(obj))


def _without_managed_fields(obj: Object) -> Object:
    obj["metadata"].pop("managedFields", None)  # unused here, and half of the memory
    return obj


class InformerFactory:
    """One `MutationCache` for each kind that a controller needs; all are started together."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self.client = client
        self.clock = clock
        self._caches: dict[str, MutationCache] = {}
        self._requested: list[MutationCache] = []

    def cache(self, resource: Resource[Any]) -> MutationCache:
        """Return the shared cache of a kind."""
        name = str(resource)
        if name not in self._caches:
            self._caches[name] = MutationCache(
                self.client, resource, clock=self.clock, indexers=INDEXES.get(name)
            )
        self._requested.append(self._caches[name])
        return self._caches[name]

    def partial_cache(
        self,
        resource: Resource[Any],
        *,
        namespace: str | None = None,
        name: str = "",
        transform: Callable[[Object], Object] | None = None,
    ) -> MutationCache:
        """Return an unshared cache of one object of a kind, or of a part of each object.

        A controller does not wait for the cache of a single object to sync: reading that object
        may be forbidden.
        """
        cache = MutationCache(
            self.client,
            resource,
            clock=self.clock,
            namespace=namespace,
            name=name,
            transform=transform,
        )
        self._caches[f"{resource} {namespace}/{name} {len(self._caches)}"] = cache
        if not name:
            self._requested.append(cache)
        return cache

    def take_requested(self) -> list[MutationCache]:
        """Return the caches requested since the last call: those of one controller."""
        requested, self._requested = self._requested, []
        return requested

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run all informers. A kind that the server does not serve blocks only its controllers."""
        async with AsyncExitStack() as stack:
            for cache in self._caches.values():
                await stack.enter_async_context(cache.informer)
            yield
