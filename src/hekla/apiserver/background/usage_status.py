"""Status that sums other objects: usage of quotas, and pods of disruption budgets.

A namespace is recounted when an object that counts has changed; one without quotas and budgets
costs two look-ups per change.
"""

from __future__ import annotations

import msgspec

from hekla.apiserver.admission import resource_quota
from hekla.apiserver.registry import disruption
from hekla.apiserver.registry.resources import Resources
from hekla.apiserver.storage.watch_cache import Event


class _Spec(msgspec.Struct):
    spec: msgspec.Raw = msgspec.Raw(b"{}")


def _spec(body: bytes) -> bytes:
    return bytes(msgspec.json.decode(body, type=_Spec).spec)


class UsageStatusController:
    """Updates quota and budget status: `observe` each change, `reconcile` while not idle."""

    def __init__(self, resources: Resources) -> None:
        self._resources = resources
        self._quotas: dict[str, None] = {}
        self._budgets: dict[str, None] = {}
        store = resources.store
        for table, due in (
            (resource_quota.QUOTAS, self._quotas),
            (disruption.BUDGETS, self._budgets),
        ):
            due.update(dict.fromkeys(key.partition("/")[0] for key in store.table(table).keys))

    @property
    def is_idle(self) -> bool:
        return not self._quotas and not self._budgets

    def observe(self, table: str, event: Event) -> None:
        namespace, slash, _ = event.entry.key.partition("/")
        if not slash:
            return
        if table == resource_quota.QUOTAS:
            # A new limit, a new quota or a status written by a client. After the server's own
            # writes a second count changes nothing.
            if not event.removed:
                self._quotas[namespace] = None
            return
        if self._has(resource_quota.QUOTAS, namespace) and (
            event.removed or _finished(table, event)
        ):
            self._quotas[namespace] = None
        counts = table == "pods" or (table == disruption.BUDGETS and _spec_changed(event))
        if counts and self._has(disruption.BUDGETS, namespace):
            self._budgets[namespace] = None

    def _has(self, table: str, namespace: str) -> bool:
        return bool(self._resources.store.table(table).range(f"{namespace}/"))

    async def reconcile(self) -> None:
        for due, recount in (
            (self._quotas, resource_quota.recount),
            (self._budgets, disruption.recount),
        ):
            while due:
                namespace = next(iter(due))
                del due[namespace]
                await self._resources.write_back(recount(self._resources, namespace))


def _spec_changed(event: Event) -> bool:
    return event.previous is None or _spec(event.previous.body) != _spec(event.entry.body)


def _finished(table: str, event: Event) -> bool:
    """Return whether a pod has finished: it releases its quota although it exists."""
    body = event.entry.body
    return table == "pods" and (b'"phase":"Succeeded"' in body or b'"phase":"Failed"' in body)
