"""What all workload controllers share: one object at a time, its decision, and carrying it out.

Everything is safe to repeat. Our own writes count as seen at once (`Watched`), so a late watch
makes nobody create twice; a controller that starts lists before it acts, so a restart does not
either; an answer that was lost is found again by the name that was drawn for it.

What a newcomer gets wrong: creation is a slow start (1, 2, 4, … at once) that ends with the first
failure. A set of a thousand pods that a quota refuses costs one request a try, not a thousand.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, ClassVar, Final

from hekla.controllers.keyed import KeyedController
from hekla.controllers.metrics import Metrics
from hekla.controllers.objects import (
    Key,
    controller_of,
    is_controlled_by,
    is_deleting,
    key_of,
    labels_of,
    owner_reference,
    uid_of,
)
from hekla.controllers.watched import OWNER, Watched, World
from hekla.controllers.workloads import effects as do
from hekla.controllers.workloads.pods import SAFE_LETTERS, matcher
from hekla.kube.errors import AlreadyExists, Conflict, Forbidden, Invalid
from hekla.kube.recorder import EventRecorder
from hekla.kube.resources import PODS, Resource
from hekla.units.objects import Object
from hekla.units.selectors import LabelSelector

MAX_BURST: Final = 500
"""Pods that one look at an object may make or remove; the next look goes on."""
MAX_TOGETHER: Final = 64
SUFFIX_CHARS: Final = 5
MAX_GENERATED: Final = 63
FOREIGN_RETRY_S: Final = 5.0
FIRST_RETRY_S: Final = 0.25
MAX_RETRY_S: Final = 120.0
ORPHANS: Final = "orphans"


class _Refusal(Exception):
    """The server does not want what we want to make: a quota, a rule."""


class WorkloadController(KeyedController):
    """Looks after one kind. Subclasses watch what they make (`follow`) and `decide`."""

    resource: ClassVar[Resource[Any]]

    def __init__(self, world: World, recorder: EventRecorder, metrics: Metrics) -> None:
        super().__init__(world, recorder, metrics)
        self.owners = world.watch(self.resource)
        self.owners.add_handler(self.enqueue)
        self.failures: dict[str, str] = {}
        """Why the last creation for an owner failed, by its UID: for a condition."""
        self._tries: dict[str, int] = {}
        self._children: dict[str, Watched] = {}
        self._world = world

    def follow(self, kind: Resource[Any]) -> Watched:
        """Watch a kind that this one owns; changes wake the owner."""
        watched = self._children[str(kind)] = self._world.watch(kind)
        watched.add_handler(self._on_child)
        return watched

    def decide(self, owner: Object) -> Sequence[do.Effect]:
        raise NotImplementedError

    def selector(self, owner: Object) -> LabelSelector | None:
        """Which objects without a controller are this owner's."""
        return matcher((owner.get("spec") or {}).get("selector"))

    async def sync(self, key: Key) -> float | None:
        owner = self.owners.get(*key)
        return None if owner is None else await self.perform(owner, self.decide(owner))

    def enqueue(self, event: str, old: Object | None, new: Object | None) -> None:
        if new is None and old is not None:
            self.failures.pop(uid_of(old), None)
            self._tries.pop(uid_of(old), None)
        super().enqueue(event, old, new)

    # Waking

    def _on_child(self, event: str, old: Object | None, new: Object | None) -> None:
        for obj in (old, new):
            if obj is None:
                continue
            owner = controller_of(obj)
            if owner is None:
                if obj is new and event != "DELETED":
                    self._on_orphan(obj)
            elif self.is_ours(owner):
                self.queue.add((key_of(obj)[0], owner["name"]))

    def is_ours(self, owner: Object) -> bool:
        return (
            owner.get("kind") == self.resource.kind
            and owner.get("apiVersion") == self.resource.api_version
        )

    def _on_orphan(self, obj: Object) -> None:
        namespace = key_of(obj)[0]
        for owner in self.owners.all():
            if key_of(owner)[0] == namespace:
                selector = self.selector(owner)
                if selector is not None and selector.matches(labels_of(obj)):
                    self.queue.add(key_of(owner))

    def owned(self, kind: Resource[Any], owner: Object) -> list[Object]:
        return self._children[str(kind)].by_index(OWNER, uid_of(owner))

    def orphans(self, kind: Resource[Any], owner: Object) -> list[Object]:
        return self._children[str(kind)].by_index(ORPHANS, key_of(owner)[0])

    # Doing

    async def perform(self, owner: Object, effects: Iterable[do.Effect]) -> float | None:
        """Do them in order; seconds until the owner must be looked at again, if at all."""
        wakes: list[float] = []
        for (kind, _), several in groupby(effects, key=_sort):
            if kind is do.Create:
                wakes += await self._create_all(owner, list(several))
            elif kind in (do.Delete, do.Patch, do.Adopt):
                await self._together(owner, list(several))
            else:
                for effect in several:
                    await self._one(owner, effect, wakes)
        return min(wakes) if wakes else None

    async def _one(self, owner: Object, effect: do.Effect, wakes: list[float]) -> None:
        match effect:
            case do.SetStatus(patch):
                written = await self.client.patch_status(
                    self.resource,
                    owner["metadata"]["name"],
                    patch,
                    namespace=owner["metadata"]["namespace"],
                    expect=str(owner["metadata"]["resourceVersion"]),
                )
                self.owners.wrote(written)
            case do.Tell(type, reason, message):
                self.tell(self.resource, owner, type, reason, message)
            case do.Wake(after_s):
                wakes.append(after_s)

    # Creating

    async def _create_all(self, owner: Object, effects: list[do.Effect]) -> list[float]:
        wakes: list[float] = []
        start, size = 0, 1
        while start < len(effects):
            batch = effects[start : start + size]
            results = await asyncio.gather(
                *(self._create(owner, each) for each in batch), return_exceptions=True
            )
            failures = [each for each in results if isinstance(each, BaseException)]
            wakes += [each for each in results if isinstance(each, float)]
            if failures:
                return [*wakes, self._refused(owner, failures[0])]
            start, size = start + size, min(size * 2, MAX_TOGETHER)
        self.failures.pop(uid_of(owner), None)
        self._tries.pop(uid_of(owner), None)
        return wakes

    def _refused(self, owner: Object, failure: BaseException) -> float:
        """A refusal is no mistake of ours: it is told, shown in the status, and tried again."""
        if not isinstance(failure, _Refusal):
            raise failure
        uid, told = uid_of(owner), str(failure)
        if self.failures.get(uid) != told:
            self.failures[uid] = told
            self.tell(self.resource, owner, "Warning", "FailedCreate", f"Error creating: {told}")
            self.queue.add(key_of(owner))  # once, for the status
        tries = self._tries[uid] = min(self._tries.get(uid, 0) + 1, 16)
        return min(FIRST_RETRY_S * float(1 << (tries - 1)), MAX_RETRY_S)

    async def _create(self, owner: Object, effect: do.Effect) -> float | None:
        assert isinstance(effect, do.Create)
        body = self._named(effect.body)
        namespace, name = key_of(body)
        try:
            made = await self.client.create(effect.resource, body, namespace=namespace)
        except AlreadyExists:
            if effect.is_shared:
                return None
            found = await self.client.find(effect.resource, name, namespace=namespace)
            if found is None:
                return 0.05
            if is_controlled_by(found, uid_of(owner)) and self.is_same(found, body):
                self._wrote(effect.resource, found)
                return None
            return await self.name_taken(owner, effect.resource, found)
        except (Forbidden, Invalid) as error:
            # Without the drawn name: the same refusal is the same text.
            shown = effect.body["metadata"].get("generateName") or name
            raise _Refusal(str(error).replace(name, shown)) from error
        self._wrote(effect.resource, made)
        if effect.resource is PODS:
            self.metrics.count("pods_created")
        self.tell(
            self.resource, owner, "Normal", "SuccessfulCreate",
            f"Created {effect.resource.kind.lower()}: {name}",
        )  # fmt: skip
        return None

    def is_same(self, found: Object, wanted: Object) -> bool:
        """Whether an object of ours that has the name is the one we meant to make."""
        return True

    async def name_taken(self, owner: Object, kind: Resource[Any], found: Object) -> float | None:
        """Somebody else's object has a name that we need."""
        told = f"{kind.kind.lower()} {found['metadata']['name']} exists and is not ours; delete it"
        self.tell(self.resource, owner, "Warning", "FailedCreate", told)
        return FOREIGN_RETRY_S

    def _named(self, body: Object) -> Object:
        """Names are drawn here and not by the server: a lost answer does not make a second one."""
        metadata = body["metadata"]
        if metadata.get("name"):
            return body
        base = str(metadata["generateName"])[: MAX_GENERATED - SUFFIX_CHARS]
        letters = "".join(self.client.random.choices(SAFE_LETTERS, k=SUFFIX_CHARS))
        return {**body, "metadata": {**metadata, "name": base + letters}}

    # Changing

    async def _together(self, owner: Object, effects: list[do.Effect]) -> None:
        slots = asyncio.Semaphore(MAX_TOGETHER)

        async def one(effect: do.Effect) -> None:
            async with slots:
                await self._change(owner, effect)

        results = await asyncio.gather(*(one(each) for each in effects), return_exceptions=True)
        for each in results:
            if isinstance(each, BaseException):
                raise each

    async def _change(self, owner: Object, effect: do.Effect) -> None:
        assert isinstance(effect, do.Delete | do.Patch | do.Adopt)
        namespace, name = key_of(effect.obj)
        match effect:
            case do.Delete(kind, obj):
                try:
                    await self.client.delete(
                        kind, name, namespace=namespace, uid=uid_of(obj),
                        propagation="Background", missing_ok=True,
                    )  # fmt: skip
                except Conflict:
                    return  # another one has the name by now; it is not the one we meant
                self._gone(kind, obj)
                if kind is PODS:
                    self.metrics.count("pods_deleted")
                    told = f"Deleted pod: {name}"
                    self.tell(self.resource, owner, "Normal", "SuccessfulDelete", told)
            case do.Patch(kind, obj, patch):
                version = str(obj["metadata"]["resourceVersion"])
                written = await self.client.patch(
                    kind, name, patch, namespace=namespace, expect=version
                )
                self._wrote(kind, written)
            case do.Adopt(kind, obj):
                await self._adopt(owner, kind, obj)

    async def _adopt(self, owner: Object, kind: Resource[Any], obj: Object) -> None:
        """Our cache may be late: an owner that is going must not take anything with it."""
        namespace, name = key_of(obj)
        fresh = await self.client.find(self.resource, key_of(owner)[1], namespace=namespace)
        if fresh is None or uid_of(fresh) != uid_of(owner) or is_deleting(fresh):
            return
        mine = owner_reference(self.resource.api_version, self.resource.kind, owner)
        owners = [*(obj["metadata"].get("ownerReferences") or ()), mine]
        patch = {"metadata": {"uid": uid_of(obj), "ownerReferences": owners}}
        version = str(obj["metadata"]["resourceVersion"])
        self._wrote(
            kind, await self.client.patch(kind, name, patch, namespace=namespace, expect=version)
        )

    def _watched(self, kind: Resource[Any]) -> Watched | None:
        return self.owners if kind is self.resource else self._children.get(str(kind))

    def _wrote(self, kind: Resource[Any], obj: Object) -> None:
        if (watched := self._watched(kind)) is not None:
            watched.wrote(obj)

    def _gone(self, kind: Resource[Any], obj: Object) -> None:
        if (watched := self._watched(kind)) is not None:
            watched.deleted(obj)


def _sort(effect: do.Effect) -> tuple[type, str]:
    """Effects of one sort on one kind go side by side."""
    return type(effect), str(getattr(effect, "resource", ""))


def wakes(*waits: float | None) -> Iterator[do.Effect]:
    """One wish to look again, for the earliest of several reasons."""
    known = [wait for wait in waits if wait is not None]
    if known:
        yield do.Wake(min(known) + 0.01)
