"""The memory of an informer: the objects of one kind as last heard, and the handlers that follow.

No sockets and no tasks: lists and events go in, notifications come out, in order and at once. Its
law, held by a property test: whatever the order, repetition or loss on the way, after a list the
store equals that list, and a handler that replays its notifications equals the store.

What a newcomer gets wrong: an event may be old news. Servers replay after a reconnect, so a change
is believed only if its resourceVersion is newer than what is stored, than the last full list, and
than the object's own deletion. Versions are compared as the integers they are on every API server
(Kubernetes made that a promise in 1.35); one that is no integer is always believed.
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

# Deletions remembered against late events. A server that replays from further back than this many
# deletions ago could bring one object back until the next list; none is known to.
MAX_TOMBSTONES = 4096


class Handler(Protocol[T_contra]):
    """Called for every change, in order: (event, old, new). It must not block or await.

    ADDED has no old, DELETED no new (old is the last known state). A resync is MODIFIED with
    old and new the same object.
    """

    def __call__(self, event: Event, old: T_contra | None, new: T_contra | None, /) -> None: ...


Indexer = Callable[[T], Iterable[str]]
"""The keys under which an object is to be found: `lambda pod: [pod.spec.node_name]`."""


class Lister(Protocol[T_co]):
    """Read access to the objects of one kind, as last heard of. They are shared: do not change."""

    def get(self, namespace: str, name: str) -> T_co | None:
        """One object, or None."""
        ...

    def list(self, namespace: str | None = None) -> Iterable[T_co]:
        """Every object, or those of one namespace."""
        ...

    def by_index(self, index: str, key: str) -> Iterable[T_co]:
        """The objects filed under `key` by the indexer `index`."""
        ...


class _Entry(Generic[T]):
    __slots__ = ("index_keys", "object", "uid", "version")

    def __init__(self, object: T, uid: str, version: int | None) -> None:
        self.object = object
        self.uid = uid
        self.version = version
        self.index_keys: tuple[tuple[str, ...], ...] = ()


class Store(Generic[T]):
    """Objects by namespace and name, indexes over them, and who is told of changes."""

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
        """Tell `handler` of every object there is, and then of every change."""
        for entry in tuple(self._entries.values()):
            _notify((handler,), "ADDED", None, entry.object)
        self._handlers.append(handler)

    def resync(self) -> None:
        """Show every object to every handler again."""
        for entry in tuple(self._entries.values()):
            self._tell("MODIFIED", entry.object, entry.object)

    def upsert(self, identity: Identity, new: T) -> bool:
        """An object was added or changed; False if that was old news."""
        key = (identity.namespace, identity.name)
        version = version_number(identity.resourceVersion)
        if version is not None and self._is_old(key, version):
            return False
        self._put(key, identity.uid, version, new)
        return True

    def remove(self, identity: Identity, last: T | None) -> bool:
        """An object was deleted; `last` is its final state, if known. False if it was old news."""
        key = (identity.namespace, identity.name)
        version = version_number(identity.resourceVersion)
        entry = self._entries.get(key)
        if version is not None:
            if version <= self._listed_at or version <= self._tombstones.get(key, -1):
                return False
            # An equal version is believed: some servers stamp a deletion with the last one stored.
            if entry is not None and entry.version is not None and version < entry.version:
                return False
            self._bury(key, version)
        if entry is None:
            return False
        if last is None or entry.uid != identity.uid:
            # The deletion of a later bearer of the name says that ours is gone too.
            last = entry.object
        self._drop(key, entry, last)
        return True

    def replace(
        self,
        items: Mapping[Key, tuple[Identity, T | None]],
        resource_version: str,
    ) -> None:
        """A full list as of `resource_version`: handlers are told only of the differences.

        An item whose object is None exists but could not be decoded: its last state is kept. A
        controller told that it was deleted would act on a falsehood.
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
            # Deleted and made again while we were not looking: two objects, so two notifications.
            self._drop(key, entry, entry.object)
            entry = None
        if entry is None:
            entry = self._entries[key] = _Entry(new, uid, version)
            self._file(key, entry)
            self._tell("ADDED", None, new)
            return
        if version is not None and version == entry.version:
            return  # a list may repeat what a watch has told
        old = entry.object
        self._unfile(key, entry)
        entry.object, entry.version = new, version
        self._file(key, entry)
        self._tell("MODIFIED", old, new)

    def _drop(self, key: Key, entry: _Entry[T], last: T) -> None:
        self._unfile(key, entry)
        del self._entries[key]
        self._tell("DELETED", last, None)

    def _bury(self, key: Key, version: int) -> None:
        self._tombstones[key] = version
        self._tombstones.move_to_end(key)
        if len(self._tombstones) > MAX_TOMBSTONES:
            self._tombstones.popitem(last=False)

    def _file(self, key: Key, entry: _Entry[T]) -> None:
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

    def _unfile(self, key: Key, entry: _Entry[T]) -> None:
        for name, keys in zip(self._indexers, entry.index_keys, strict=True):
            index = self._indexes[name]
            for index_key in keys:
                index[index_key].pop(key, None)
                if not index[index_key]:
                    del index[index_key]

    def _tell(self, event: Event, old: T | None, new: T | None) -> None:
        _notify(self._handlers, event, old, new)


def _notify(handlers: Iterable[Handler[T]], event: Event, old: T | None, new: T | None) -> None:
    for handler in handlers:
        try:
            handler(event, old, new)
        except Exception:
            # One handler's mistake must not make the others miss a change.
            logger.exception("a handler failed on %s", event)


def version_number(resource_version: str) -> int | None:
    """A resourceVersion as the number it is, or None for one of another make."""
    return int(resource_version) if resource_version.isdecimal() else None
