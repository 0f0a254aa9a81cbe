"""The garbage collector: deletes objects whose owners are deleted.

A graph of owner references follows the store. Owners are deleted in one of Kubernetes' three ways:
*background* (the owner first, then its dependents), *foreground* (a finalizer keeps the owner until
its blocking dependents are deleted) and *orphan* (owner references are removed first).

Note: an object is deleted only when its *last* existing owner is deleted. An owner is identified by
its uid, never by its name.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import msgspec

from hekla.apiserver import errors
from hekla.apiserver.registry.options import DeleteOptions
from hekla.apiserver.registry.resources import Resources
from hekla.apiserver.registry.server_metadata import FOREGROUND, ORPHAN
from hekla.apiserver.storage.watch_cache import Entry, Event
from hekla.units.objects import Object

log = logging.getLogger("hekla.apiserver")

# Concurrent writes share a commit.
MAX_CONCURRENT_WRITES = 64

Place = tuple[str, str]
"""Table and key of an object."""


class _Owner(msgspec.Struct):
    uid: str = ""
    kind: str = ""
    api_version: str = msgspec.field(default="", name="apiVersion")
    name: str = ""
    blocks: bool | None = msgspec.field(default=False, name="blockOwnerDeletion")


class _Meta(msgspec.Struct):
    uid: str = ""
    owners: list[_Owner] | None = msgspec.field(default=None, name="ownerReferences")
    finalizers: list[str] | None = None
    deleted: str | None = msgspec.field(default=None, name="deletionTimestamp")


class _Object(msgspec.Struct):
    metadata: _Meta


_decoder = msgspec.json.Decoder(_Object)


@dataclass(slots=True)
class Node:
    """An object in the graph."""

    place: Place
    uid: str
    owners: tuple[_Owner, ...]
    finalizers: tuple[str, ...]
    leaving: bool


class GarbageCollector:
    """Deletes dependents of deleted owners: `observe` each change, `reconcile` while not idle."""

    def __init__(self, resources: Resources) -> None:
        self._resources = resources
        self._nodes: dict[str, Node] = {}
        self._uid_at: dict[Place, str] = {}
        self._dependents: dict[str, set[str]] = {}
        self._due: dict[str, None] = {}
        for table in resources.store.resources():
            for entry in resources.store.table(table).entries.values():
                self._add(table, entry)
        self._due.update(dict.fromkeys(self._nodes))

    def observe(self, table: str, event: Event) -> None:
        """Update the graph by one change of the store."""
        if event.removed:
            self._remove((table, event.entry.key))
        else:
            self._add(table, event.entry)

    def _add(self, table: str, entry: Entry) -> None:
        metadata = _decoder.decode(entry.body).metadata
        node = Node(
            (table, entry.key),
            metadata.uid,
            tuple(metadata.owners or ()),
            tuple(metadata.finalizers or ()),
            metadata.deleted is not None,
        )
        known = self._nodes.get(node.uid)
        if known is not None and known.owners != node.owners:
            self._unlink(known)
        self._nodes[node.uid] = node
        self._uid_at[node.place] = node.uid
        for owner in node.owners:
            self._dependents.setdefault(owner.uid, set()).add(node.uid)
        waits = node.leaving and (FOREGROUND in node.finalizers or ORPHAN in node.finalizers)
        if waits or (node.owners and not any(o.uid in self._nodes for o in node.owners)):
            self._due[node.uid] = None

    def _remove(self, place: Place) -> None:
        uid = self._uid_at.pop(place, None)
        if uid is None:
            return
        node = self._nodes.pop(uid)
        self._unlink(node)
        for dependent in self._dependents.get(uid, ()):
            self._due[dependent] = None
        for owner in node.owners:  # an owner in foreground deletion may be ready now
            if owner.uid in self._nodes:
                self._due[owner.uid] = None

    def _unlink(self, node: Node) -> None:
        for owner in node.owners:
            siblings = self._dependents.get(owner.uid)
            if siblings is not None:
                siblings.discard(node.uid)
                if not siblings:
                    del self._dependents[owner.uid]

    @property
    def is_idle(self) -> bool:
        return not self._due

    async def reconcile(self) -> None:
        """Process everything that is due."""
        while self._due:
            batch = list(islice(self._due, MAX_CONCURRENT_WRITES))
            for uid in batch:
                del self._due[uid]
            await asyncio.gather(*(self._process(uid) for uid in batch))

    async def _process(self, uid: str) -> None:
        node = self._nodes.get(uid)
        if node is None:
            return
        try:
            await self._apply(node)
        except errors.StatusError as error:
            if error.code not in (404, 409):
                raise
            # It changed or was deleted: that event adds it again.

    async def _apply(self, node: Node) -> None:
        if node.leaving and ORPHAN in node.finalizers:
            await self._orphan(node)
        elif node.leaving and FOREGROUND in node.finalizers:
            await self._foreground(node)
        else:
            await self._check_owners(node)

    def _dependents_of(self, node: Node) -> Iterator[Node]:
        for uid in sorted(self._dependents.get(node.uid, ())):
            dependent = self._nodes.get(uid)
            if dependent is not None:
                yield dependent

    async def _orphan(self, node: Node) -> None:
        for dependent in list(self._dependents_of(node)):
            await self._drop_owners(dependent, {node.uid})
        await self._remove_finalizer(node, ORPHAN)

    async def _foreground(self, node: Node) -> None:
        blocking = False
        for dependent in list(self._dependents_of(node)):
            if self._has_live_owner(dependent):
                await self._drop_owners(dependent, {node.uid})
                continue
            blocks = any(o.uid == node.uid and o.blocks for o in dependent.owners)
            if not dependent.leaving:
                if blocks and any(map(_waits, self._dependents_of(dependent))):
                    # A cycle is possible, in which each object would wait for the next forever.
                    await self._unblock(dependent)
                    blocks = False
                # Foreground deletion propagates, so that children are deleted before their parents.
                below = "Foreground" if self._dependents.get(dependent.uid) else "Background"
                await self._delete(dependent, below)
            blocking = blocking or blocks
        if not blocking:
            await self._remove_finalizer(node, FOREGROUND)

    def _has_live_owner(self, node: Node) -> bool:
        """Return whether the object has an owner that is not being deleted."""
        owners = (self._nodes.get(owner.uid) for owner in node.owners)
        return any(owner is not None and not _waits(owner) for owner in owners)

    async def _check_owners(self, node: Node) -> None:
        if not node.owners or node.leaving:
            return
        gone = {owner.uid for owner in node.owners if self._is_absent(node, owner)}
        if not gone:
            return
        if len(gone) == len({owner.uid for owner in node.owners}):
            await self._delete(node, "")
        else:
            await self._drop_owners(node, gone)

    def _is_absent(self, node: Node, owner: _Owner) -> bool:
        """Return whether an owner is known to be absent; unserved kinds are left alone."""
        if owner.uid in self._nodes:
            return False
        return self._resources.registry.by_kind(owner.api_version, owner.kind) is not None

    def _address(self, node: Node) -> tuple[str, str, str]:
        table, key = node.place
        namespace, _, name = key.rpartition("/")
        return table, namespace, name

    async def _delete(self, node: Node, propagation: str) -> None:
        table, namespace, name = self._address(node)
        served = self._resources.registry.of_storage(table)
        if served is not None:
            delete_options = DeleteOptions(propagation=propagation, uid=node.uid)
            await self._resources.delete(served, namespace, name, delete_options=delete_options)

    async def _change(self, node: Node, change: object) -> None:
        table, namespace, name = self._address(node)
        served = self._resources.registry.of_storage(table)
        if served is not None:
            assert callable(change)
            await self._resources.update(served, namespace, name, change)

    async def _drop_owners(self, node: Node, gone: set[str]) -> None:
        def drop(obj: Object) -> Object:
            kept = [o for o in obj["metadata"].get("ownerReferences") or () if o["uid"] not in gone]
            obj["metadata"]["ownerReferences"] = kept
            if not kept:
                del obj["metadata"]["ownerReferences"]
            return obj

        await self._change(node, drop)

    async def _unblock(self, node: Node) -> None:
        def release(obj: Object) -> Object:
            for owner in obj["metadata"].get("ownerReferences") or ():
                owner["blockOwnerDeletion"] = False
            return obj

        await self._change(node, release)

    async def _remove_finalizer(self, node: Node, finalizer: str) -> None:
        def remove(obj: Object) -> Object:
            finalizers = obj["metadata"].get("finalizers") or []
            obj["metadata"]["finalizers"] = [name for name in finalizers if name != finalizer]
            if not obj["metadata"]["finalizers"]:
                del obj["metadata"]["finalizers"]
            return obj

        await self._change(node, remove)


def _waits(node: Node) -> bool:
    """Return whether it is in foreground deletion."""
    return node.leaving and FOREGROUND in node.finalizers
