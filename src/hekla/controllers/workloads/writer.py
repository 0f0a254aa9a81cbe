"""Apply the effects of workload controllers.

Every write can be repeated. Our own writes are in the cache at once (`MutationCache`), so a late
watch does not lead to a second creation; a controller lists before it decides, so neither does a
restart; names are generated here, so an object whose creation was not answered is found again.

Note: creation is a slow start (1, 2, 4, … in parallel) that ends with the first failure. A set of a
thousand pods that a quota refuses costs one request per try.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from itertools import groupby
from typing import Any, Final

from hekla.controllers.effects import EventType
from hekla.controllers.informers import MutationCache
from hekla.controllers.metrics import Metrics
from hekla.controllers.objects import (
    Key,
    is_controlled_by,
    is_deleting,
    key_of,
    owner_reference,
    uid_of,
)
from hekla.controllers.workloads.effects import (
    Adopt,
    Create,
    Delete,
    Effect,
    EmitEvent,
    Patch,
    RequeueAfter,
    SetStatus,
)
from hekla.controllers.workloads.pods import SAFE_LETTERS
from hekla.kube.client import Client
from hekla.kube.errors import AlreadyExists, Conflict, Forbidden, Invalid
from hekla.kube.resources import PODS, Resource
from hekla.units.objects import Object

MAX_PARALLEL_WRITES: Final = 64
SUFFIX_CHARS: Final = 5
MAX_GENERATED: Final = 63
FIRST_RETRY_S: Final = 0.25
MAX_RETRY_S: Final = 120.0


class _CreationRefused(Exception):
    """The server refuses a creation: a quota, an admission rule."""


class WorkloadWriter:
    """Applies the effects that were decided for an owner of one kind."""

    def __init__(
        self,
        resource: Resource[Any],
        client: Client,
        metrics: Metrics,
        caches: Mapping[str, MutationCache],
        *,
        emit_event: Callable[[Object, EventType, str, str], None],
        requeue: Callable[[Key], None],
        is_same: Callable[[Object, Object], bool],
        on_name_taken: Callable[[Object, Resource[Any], Object], Awaitable[float | None]],
    ) -> None:
        self._resource = resource
        self._client = client
        self._metrics = metrics
        self._caches = caches
        self._emit_event = emit_event
        self._requeue = requeue
        self._is_same = is_same
        self._on_name_taken = on_name_taken
        self.failures: dict[str, str] = {}
        """Why the last creation for an owner failed, by its UID: for a condition."""
        self._tries: dict[str, int] = {}

    def forget(self, uid: str) -> None:
        """Forget the failures of an owner."""
        self.failures.pop(uid, None)
        self._tries.pop(uid, None)

    async def apply(self, owner: Object, effects: Iterable[Effect]) -> float | None:
        """Apply effects in order; return the seconds after which to reconcile again, if any."""
        waits_s: list[float] = []
        for (kind, _), several in groupby(effects, key=_batch):
            if kind is Create:
                waits_s += await self._create_all(owner, list(several))
            elif kind in (Delete, Patch, Adopt):
                await self._write_in_parallel(owner, list(several))
            else:
                for effect in several:
                    waits_s += await self._apply_one(owner, effect)
        return min(waits_s) if waits_s else None

    async def _apply_one(self, owner: Object, effect: Effect) -> list[float]:
        match effect:
            case SetStatus(patch):
                written = await self._client.patch_status(
                    self._resource,
                    owner["metadata"]["name"],
                    patch,
                    namespace=owner["metadata"]["namespace"],
                    expect=str(owner["metadata"]["resourceVersion"]),
                )
                self._record_write(self._resource, written)
            case EmitEvent(type, reason, message):
                self._emit_event(owner, type, reason, message)
            case RequeueAfter(after_s):
                return [after_s]
        return []

    async def _create_all(self, owner: Object, effects: list[Effect]) -> list[float]:
        waits_s: list[float] = []
        start, size = 0, 1
        while start < len(effects):
            batch = effects[start : start + size]
            results = await asyncio.gather(
                *(self._create(owner, each) for each in batch), return_exceptions=True
            )
            failures = [each for each in results if isinstance(each, BaseException)]
            waits_s += [each for each in results if isinstance(each, float)]
            if failures:
                return [*waits_s, self._refused(owner, failures[0])]
            start, size = start + size, min(size * 2, MAX_PARALLEL_WRITES)
        self.forget(uid_of(owner))
        return waits_s

    def _refused(self, owner: Object, failure: BaseException) -> float:
        """Emit an Event, have the status show it, and return the seconds to the retry."""
        if not isinstance(failure, _CreationRefused):
            raise failure
        uid, message = uid_of(owner), str(failure)
        if self.failures.get(uid) != message:
            self.failures[uid] = message
            self._emit_event(owner, "Warning", "FailedCreate", f"Error creating: {message}")
            self._requeue(key_of(owner))  # once, for the condition
        tries = self._tries[uid] = min(self._tries.get(uid, 0) + 1, 16)
        return min(FIRST_RETRY_S * float(1 << (tries - 1)), MAX_RETRY_S)

    async def _create(self, owner: Object, effect: Effect) -> float | None:
        assert isinstance(effect, Create)
        body = self._named(effect.body)
        namespace, name = key_of(body)
        try:
            created = await self._client.create(effect.resource, body, namespace=namespace)
        except AlreadyExists:
            if effect.is_shared:
                return None
            found = await self._client.find(effect.resource, name, namespace=namespace)
            if found is None:
                return 0.05
            if is_controlled_by(found, uid_of(owner)) and self._is_same(found, body):
                self._record_write(effect.resource, found)
                return None
            return await self._on_name_taken(owner, effect.resource, found)
        except (Forbidden, Invalid) as error:
            # Without the generated name, so that equal refusals have equal texts.
            shown = effect.body["metadata"].get("generateName") or name
            raise _CreationRefused(str(error).replace(name, shown)) from error
        self._record_write(effect.resource, created)
        if effect.resource is PODS:
            self._metrics.count("pods_created")
        message = f"Created {effect.resource.kind.lower()}: {name}"
        self._emit_event(owner, "Normal", "SuccessfulCreate", message)
        return None

    def _named(self, body: Object) -> Object:
        """Generate the name here, not in the server: a lost answer leads to no second object."""
        metadata = body["metadata"]
        if metadata.get("name"):
            return body
        base = str(metadata["generateName"])[: MAX_GENERATED - SUFFIX_CHARS]
        letters = "".join(self._client.random.choices(SAFE_LETTERS, k=SUFFIX_CHARS))
        return {**body, "metadata": {**metadata, "name": base + letters}}

    async def _write_in_parallel(self, owner: Object, effects: list[Effect]) -> None:
        slots = asyncio.Semaphore(MAX_PARALLEL_WRITES)

        async def one(effect: Effect) -> None:
            async with slots:
                await self._change(owner, effect)

        results = await asyncio.gather(*(one(each) for each in effects), return_exceptions=True)
        for each in results:
            if isinstance(each, BaseException):
                raise each

    async def _change(self, owner: Object, effect: Effect) -> None:
        assert isinstance(effect, Delete | Patch | Adopt)
        namespace, name = key_of(effect.obj)
        match effect:
            case Delete(kind, obj):
                try:
                    await self._client.delete(
                        kind, name, namespace=namespace, uid=uid_of(obj),
                        propagation="Background", missing_ok=True,
                    )  # fmt: skip
                except Conflict:
                    return  # the name belongs to a newer object
                self._record_delete(kind, obj)
                if kind is PODS:
                    self._metrics.count("pods_deleted")
                    message = f"Deleted pod: {name}"
                    self._emit_event(owner, "Normal", "SuccessfulDelete", message)
            case Patch(kind, obj, patch):
                version = str(obj["metadata"]["resourceVersion"])
                written = await self._client.patch(
                    kind, name, patch, namespace=namespace, expect=version
                )
                self._record_write(kind, written)
            case Adopt(kind, obj):
                await self._adopt(owner, kind, obj)

    async def _adopt(self, owner: Object, kind: Resource[Any], obj: Object) -> None:
        """Become the controller of an orphan.

        The owner is read from the server: one that is being deleted would delete the orphan too.
        """
        namespace, name = key_of(obj)
        fresh = await self._client.find(self._resource, key_of(owner)[1], namespace=namespace)
        if fresh is None or uid_of(fresh) != uid_of(owner) or is_deleting(fresh):
            return
        mine = owner_reference(self._resource.api_version, self._resource.kind, owner)
        owners = [*(obj["metadata"].get("ownerReferences") or ()), mine]
        patch = {"metadata": {"uid": uid_of(obj), "ownerReferences": owners}}
        version = str(obj["metadata"]["resourceVersion"])
        self._record_write(
            kind, await self._client.patch(kind, name, patch, namespace=namespace, expect=version)
        )

    def _record_write(self, kind: Resource[Any], obj: Object) -> None:
        if (cache := self._caches.get(str(kind))) is not None:
            cache.record_write(obj)

    def _record_delete(self, kind: Resource[Any], obj: Object) -> None:
        if (cache := self._caches.get(str(kind))) is not None:
            cache.record_delete(obj)


def _batch(effect: Effect) -> tuple[type, str]:
    """Return a key that is equal for effects that are applied in parallel."""
    return type(effect), str(getattr(effect, "resource", ""))
