"""The objects that controllers follow, each kind once for all of them.

`Watched` is an informer that also believes our own writes: until the watch has caught up with a
write, the written object counts. So a controller never decides on a state that it has itself left
behind, and does not try to create twice what it has just created.

What a newcomer gets wrong: this is no lock. Two controllers can still be at work for a moment, so
writes that carry a decision name the resourceVersion they were decided on.
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

OWNER: Final = "owner"


def owner_uid(obj: Object) -> list[str]:
    """Indexer: objects by the UID of their controller."""
    owner = controller_of(obj)
    return [] if owner is None else [str(owner.get("uid"))]


def is_volcano_job_ref(owner: Object | None) -> bool:
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


def _without_controller(obj: Object) -> Iterable[str]:
    if controller_of(obj) is None:
        yield key_of(obj)[0]


INDEXES: Final[Mapping[str, Mapping[str, Indexer[Object]]]] = {
    str(COMMANDS): {"target": _target},
    str(PODGROUPS): {"queue": _queue},
    str(QUEUES): {"parent": _parent},
    str(JOBS): {"template": _template},
    str(PODS): {"orphans": _without_controller},
    str(REPLICA_SETS): {"orphans": _without_controller},
    str(CONTROLLER_REVISIONS): {"orphans": _without_controller},
}
"""Indexes by kind; all kinds are also filed under the UID of their controller."""


class Watched:
    """All objects of one kind, as the watch and our own writes tell."""

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
        self._filed: dict[tuple[str, str], set[Key]] = {}
        self._leaving: set[str] = set()
        self.informer.add_handler(self._on_change)

    def add_handler(self, handler: Handler[Object]) -> None:
        self.informer.add_handler(handler)

    def get(self, namespace: str, name: str) -> Object | None:
        ours = self._ours((namespace, name))
        found = ours if ours is not None else self.informer.get(namespace, name)
        return None if found is None else self._as_leaving(found)

    def all(self) -> Iterator[Object]:
        return self.informer.list()

    def by_index(self, index: str, key: str) -> list[Object]:
        """The objects under an index key, our own writes included."""
        found = {key_of(each): each for each in self.informer.by_index(index, key)}
        for place in tuple(self._filed.get((index, key), ())):
            ours = self._ours(place)
            if ours is not None:
                found[place] = ours
        if self._leaving:
            return [self._as_leaving(each) for each in found.values()]
        return list(found.values())

    def wrote(self, obj: Object) -> None:
        """The server has answered our write with this."""
        if version_number(obj) > self._reached():
            place = key_of(obj)
            self._drop(place)
            self._written[place] = obj
            for index in self._filed_under(obj):
                self._filed.setdefault(index, set()).add(place)

    def deleted(self, obj: Object) -> None:
        """The server has accepted that this goes; the watch will say so."""
        known = self.informer.get(*key_of(obj))
        if known is not None and uid_of(known) == uid_of(obj):
            self._leaving.add(uid_of(obj))
        self._drop(key_of(obj))

    def _filed_under(self, obj: Object) -> Iterator[tuple[str, str]]:
        for name, indexer in self._indexers.items():
            for key in indexer(obj):
                yield name, key

    def _drop(self, place: Key) -> None:
        obj = self._written.pop(place, None)
        if obj is None:
            return
        for index in self._filed_under(obj):
            filed = self._filed.get(index)
            if filed is not None:
                filed.discard(place)
                if not filed:
                    del self._filed[index]

    def _as_leaving(self, obj: Object) -> Object:
        if uid_of(obj) not in self._leaving or obj["metadata"].get("deletionTimestamp"):
            return obj
        return {**obj, "metadata": {**obj["metadata"], "deletionTimestamp": "asked for"}}

    def _ours(self, key: Key) -> Object | None:
        ours = self._written.get(key)
        if ours is not None and version_number(ours) <= self._reached():
            self._drop(key)
            return None
        return ours

    def _reached(self) -> int:
        text = self.informer.resource_version
        return int(text) if text.isdecimal() else 0

    def _on_change(self, event: str, old: Object | None, new: Object | None) -> None:
        obj = new or old
        assert obj is not None
        if event == "DELETED":
            self._leaving.discard(uid_of(obj))
        if self._written:
            ours = self._written.get(key_of(obj))
            if ours is not None and version_number(obj) >= version_number(ours):
                self._drop(key_of(obj))


def _without_managed_fields(obj: Object) -> Object:
    obj["metadata"].pop("managedFields", None)  # nobody here reads them, and they are half of it
    return obj


class World:
    """Every kind that some controller follows, watched once; started together."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self.client = client
        self.clock = clock
        self._kinds: dict[str, Watched] = {}
        self._asked: list[Watched] = []

    def watch(self, resource: Resource[Any]) -> Watched:
        """The one watch of this kind."""
        name = str(resource)
        if name not in self._kinds:
            self._kinds[name] = Watched(
                self.client, resource, clock=self.clock, indexers=INDEXES.get(name)
            )
        self._asked.append(self._kinds[name])
        return self._kinds[name]

    def watch_part(
        self,
        resource: Resource[Any],
        *,
        namespace: str | None = None,
        name: str = "",
        transform: Callable[[Object], Object] | None = None,
    ) -> Watched:
        """A watch of one object of a kind, or of only a part of each: not shared with others.

        Nobody waits for a single object: its place may be closed to us.
        """
        watched = Watched(
            self.client,
            resource,
            clock=self.clock,
            namespace=namespace,
            name=name,
            transform=transform,
        )
        self._kinds[f"{resource} {namespace}/{name} {len(self._kinds)}"] = watched
        if not name:
            self._asked.append(watched)
        return watched

    def asked_for(self) -> list[Watched]:
        """What has been asked for since this was last called: the kinds of one controller."""
        asked, self._asked = self._asked, []
        return asked

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Follow everything. A kind that the server does not know keeps only those waiting
        who need it.
        """
        async with AsyncExitStack() as stack:
            for watched in self._kinds.values():
                await stack.enter_async_context(watched.informer)
            yield
