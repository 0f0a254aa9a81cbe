"""The base of the controllers of Kubernetes' own workloads.

A subclass watches the kinds that it owns (`follow`) and decides (`decide`); `writer` applies.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Final

from hekla.controllers.informers import ORPHANS, OWNER, InformerFactory, MutationCache
from hekla.controllers.metrics import Metrics
from hekla.controllers.objects import Key, OwnerReference, controller_of, key_of, labels_of, uid_of
from hekla.controllers.reconciler import Reconciler
from hekla.controllers.workloads.effects import Effect
from hekla.controllers.workloads.pods import label_selector
from hekla.controllers.workloads.writer import WorkloadWriter
from hekla.kube.recorder import EventRecorder
from hekla.kube.resources import Resource
from hekla.units.objects import Object
from hekla.units.selectors import LabelSelector

FOREIGN_RETRY_S: Final = 5.0


class WorkloadReconciler(Reconciler):
    """Reconciles one kind and the objects that it owns."""

    resource: ClassVar[Resource[Any]]

    def __init__(
        self, informers: InformerFactory, recorder: EventRecorder, metrics: Metrics
    ) -> None:
        super().__init__(informers, recorder, metrics)
        self._informers = informers
        self.owners = informers.cache(self.resource)
        self.owners.add_handler(self.enqueue)
        self._caches: dict[str, MutationCache] = {str(self.resource): self.owners}
        self.writer = WorkloadWriter(
            self.resource,
            self.client,
            metrics,
            self._caches,
            emit_event=self._emit,
            requeue=self.queue.add,
            is_same=self.is_same,
            on_name_taken=self.on_name_taken,
        )

    def follow(self, kind: Resource[Any]) -> MutationCache:
        """Watch a kind that this one owns; a change reconciles the owner."""
        cache = self._caches[str(kind)] = self._informers.cache(kind)
        cache.add_handler(self._on_child)
        return cache

    def decide(self, owner: Object) -> Sequence[Effect]:
        """Return the effects that reconcile an object."""
        raise NotImplementedError

    def selector(self, owner: Object) -> LabelSelector | None:
        """Return the selector of the orphans that an owner adopts."""
        return label_selector((owner.get("spec") or {}).get("selector"))

    def is_same(self, found: Object, wanted: Object) -> bool:
        """Return whether an owned object of the wanted name is the wanted object."""
        return True

    async def on_name_taken(
        self, owner: Object, kind: Resource[Any], found: Object
    ) -> float | None:
        """Handle another object with a name that is needed; return the seconds to the retry."""
        name = found["metadata"]["name"]
        message = f"{kind.kind.lower()} {name} exists and has another owner; delete it"
        self._emit(owner, "Warning", "FailedCreate", message)
        return FOREIGN_RETRY_S

    async def reconcile(self, key: Key) -> float | None:
        owner = self.owners.get(*key)
        return None if owner is None else await self.apply_effects(owner, self.decide(owner))

    async def apply_effects(self, owner: Object, effects: Iterable[Effect]) -> float | None:
        """Apply effects in order; return the seconds after which to reconcile again, if any."""
        return await self.writer.apply(owner, effects)

    def enqueue(self, event: str, old: Object | None, new: Object | None) -> None:
        if new is None and old is not None:
            self.writer.forget(uid_of(old))
        super().enqueue(event, old, new)

    def is_ours(self, owner: OwnerReference) -> bool:
        """Return whether an owner reference names an object of this kind."""
        return (
            owner.get("kind") == self.resource.kind
            and owner.get("apiVersion") == self.resource.api_version
        )

    def owned(self, kind: Resource[Any], owner: Object) -> list[Object]:
        """Return the objects of a kind that an owner controls."""
        return self._caches[str(kind)].by_index(OWNER, uid_of(owner))

    def orphans(self, kind: Resource[Any], owner: Object) -> list[Object]:
        """Return the objects of a kind in the owner's namespace that have no controller."""
        return self._caches[str(kind)].by_index(ORPHANS, key_of(owner)[0])

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

    def _on_orphan(self, obj: Object) -> None:
        namespace = key_of(obj)[0]
        for owner in self.owners.all():
            if key_of(owner)[0] == namespace:
                selector = self.selector(owner)
                if selector is not None and selector.matches(labels_of(obj)):
                    self.queue.add(key_of(owner))

    def _emit(self, owner: Object, type: Any, reason: str, message: str) -> None:
        self.emit_event(self.resource, owner, type, reason, message)
