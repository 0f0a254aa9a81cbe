"""The store of an informer: objects, indexes and handlers. No I/O and no tasks.

A property test holds its law: for any order, repetition or loss of events, after a list the store
equals that list, and a handler that replays its notifications equals the store.

Note: servers replay events after a reconnect. A change is accepted only if its resourceVersion is
newer than the stored object, the last full list and the object's deletion. Versions are compared as
integers (guaranteed since Kubernetes 1.35); one that is not an integer is always accepted.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Generic, Literal, Protocol, TypeVar

from hekla.kube.calls import Identity

logger = logging.getLogger(__name__)

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
T_contra = TypeVar("T_contra", contravariant=True)

Key = tuple[str, str]
"""Namespace (empty for cluster-scoped kinds) and name."""

Event = Literal["ADDED", "MODIFIED", "DELETED"]

# Deletions remembered against late events. A server that replays from before more deletions could
# restore an object until the next list; none is known to.
MAX_TOMBSTONES = 4096


class Handler(Protocol[T_contra]):
    """Called for each change, in order: (event, old, new). It must not block or await.

    ADDED has no old, DELETED no new (old is the last known state). A resync is MODIFIED with
    the same object as old and new.
    """

    def __call__(self, event: Event, old: T_contra | None, new: T_contra | None, /) -> None: ...


Indexer = Callable[[T], Iterable[str]]
"""The index keys of an object: `lambda pod: [pod.spec.node_name]`."""


class Lister(Protocol[T_co]):
    """Read access to the cached objects of one kind. Do not modify them."""

    def get(self, namespace: str, name: str) -> T_co | None:
        """Return an object, or None."""
        ...

    def list(self, namespace: str | None = None) -> Iterable[T_co]:
        """Return all objects, or those of one namespace."""
        ...

    def by_index(self, index: str, key: str) -> Iterable[T_co]:
        """Return the objects with `key` in the index `index`."""
        ...


class _Entry(Generic[T]):
    __slots__ = ("index_keys", "object", "uid", "version")

    def __init__(self, object: T, uid: str, version: int | None) -> None:
        self.object = object
        self.uid = uid
        self.version = version
        self.index_keys: tuple[tuple[str, ...], ...] = ()


class Store(Generic[T]):
    """Objects by namespace and name, indexes, and handlers."""

    def __init__(self, indexers: Mapping[str, Indexer[T]] | None = None) -> None:
        self._entries: dict[Key, _Entry[T]] = {}
        self._indexers = dict(indexers or {})
        self._indexes: dict[str, dict[str, dict[Key, T]]] = {name: {} for name in self._indexers}
        self._tombstones: OrderedDict[Key, int] = OrderedDict()
        self._listed_at = -1
        self._handlers: list[Handler[T]] = []

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: Key) -> bool:
        return key in self._entries

    def get(self, namespace: str, name: str) -> T | None:
        entry = self._entries.get((namespace, name))
        return None if entry is None else entry.object

    def list(self, namespace: str | None = None) -> Iterator[T]:
        for key, entry in tuple(self._entries.items()):
            if namespace is None or key[0] == namespace:
                yield entry.object

    def by_index(self, index: str, key: str) -> Iterator[T]:
        if index not in self._indexes:
            known = ", ".join(self._indexes) or "none"
            raise KeyError(f"no index {index!r}; there are: {known}")
        return iter(tuple(self._indexes[index].get(key, {}).values()))

    def add_handler(self, handler: Handler[T]) -> None:
        """Call `handler` for all existing objects and then for each change."""
        for entry in tuple(self._entries.values()):
            _notify((handler,), "ADDED", None, entry.object)
        self._handlers.append(handler)

    def resync(self) -> None:
        """Call all handlers for all objects again."""
        for entry in tuple(self._entries.values()):
            self._call_handlers("MODIFIED", entry.object, entry.object)

    def upsert(self, identity: Identity, new: T) -> bool:
        """Add or update an object; return False for a stale event."""
        key = (identity.namespace, identity.name)
        version = version_number(identity.resourceVersion)
        if version is not None and self._is_old(key, version):
            return False
        self._put(key, identity.uid, version, new)
        return True

    def remove(self, identity: Identity, last: T | None) -> bool:
        """Delete an object; `last` is its final state, if known. Return False for a stale event."""
        key = (identity.namespace, identity.name)
        version = version_number(identity.resourceVersion)
        entry = self._entries.get(key)
        if version is not None:
            if version <= self._listed_at or version <= self._tombstones.get(key, -1):
                return False
            # An equal version is accepted: some servers use the last stored one for a deletion.
            if entry is not None and entry.version is not None and version < entry.version:
                return False
            self._remember_deletion(key, version)
        if entry is None:
            return False
        if last is None or entry.uid != identity.uid:
            # The deletion of a later object of that name implies the deletion of this one.
            last = entry.object
        self._drop(key, entry, last)
        return True

    def replace(
        self,
        items: Mapping[Key, tuple[Identity, T | None]],
        resource_version: str,
    ) -> None:
        """Replace all objects by a full list; handlers get only the differences.

        An item whose object is None exists but could not be decoded: its last state is kept,
        because
        a controller must not act on a deletion that did not happen.
        """
        for key in [key for key in self._entries if key not in items]:
            entry = self._entries[key]
            self._drop(key, entry, entry.object)
        self._tombstones.clear()
        listed_at = version_number(resource_version)
        self._listed_at = -1 if listed_at is None else listed_at
        for key, (identity, new) in items.items():
            if new is not None:
                self._put(key, identity.uid, version_number(identity.resourceVersion), new)

    def _is_old(self, key: Key, version: int) -> bool:
        if version <= self._listed_at or version <= self._tombstones.get(key, -1):
            return True
        entry = self._entries.get(key)
        return entry is not None and entry.version is not None and version <= entry.version

    def _put(self, key: Key, uid: str, version: int | None, new: T) -> None:
        entry = self._entries.get(key)
        if entry is not None and entry.uid != uid:
            # Deleted and recreated in the meantime: two notifications.
            self._drop(key, entry, entry.object)
            entry = None
        if entry is None:
            entry = self._entries[key] = _Entry(new, uid, version)
            self._index(key, entry)
            self._call_handlers("ADDED", None, new)
            return
        if version is not None and version == entry.version:
            return  # a list may repeat a watch event
        old = entry.object
        self._unindex(key, entry)
        entry.object, entry.version = new, version
        self._index(key, entry)
        self._call_handlers("MODIFIED", old, new)

    def _drop(self, key: Key, entry: _Entry[T], last: T) -> None:
        self._unindex(key, entry)
        del self._entries[key]
        self._call_handlers("DELETED", last, None)

    def _remember_deletion(self, key: Key, version: int) -> None:
        self._tombstones[key] = version
        self._tombstones.move_to_end(key)
        if len(self._tombstones) > MAX_TOMBSTONES:
            self._tombstones.popitem(last=False)

    def _index(self, key: Key, entry: _Entry[T]) -> None:
        found = []
        for name, indexer in self._indexers.items():
            try:
                keys = tuple(dict.fromkeys(indexer(entry.object)))
            except Exception:
                logger.exception("indexer %s failed on %s/%s; it is not indexed", name, *key)
                keys = ()
            for index_key in keys:
                self._indexes[name].setdefault(index_key, {})[key] = entry.object
            found.append(keys)
        entry.index_keys = tuple(found)

    def _unindex(self, key: Key, entry: _Entry[T]) -> None:
        for name, keys in zip(self._indexers, entry.index_keys, strict=True):
            index = self._indexes[name]
            for index_key in keys:
                index[index_key].pop(key, None)
                if not index[index_key]:
                    del index[index_key]

    def _call_handlers(self, event: Event, old: T | None, new: T | None) -> None:
        _notify(self._handlers, event, old, new)


def _notify(handlers: Iterable[Handler[T]], event: Event, old: T | None, new: T | None) -> None:
    for handler in handlers:
        try:
            handler(event, old, new)
        except Exception:
            # An error in one handler must not affect the others.
            logger.exception("a handler failed on %s", event)


def version_number(resource_version: str) -> int | None:
    """Return a resourceVersion as an integer, or None if it is not one."""
    return int(resource_version) if resource_version.isdecimal() else None
