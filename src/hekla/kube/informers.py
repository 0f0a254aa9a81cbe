"""A local cache of all objects of one kind, kept current by list and watch.

    pods = Informer(client, PODS, Pod, indexers={"node": lambda p: [p.spec.nodeName]})
    pods.add_handler(on_pod)            # (event, old, new), in order
    async with pods:
        await pods.synced()
        pods.by_index("node", "n1")

It lists page by page, then watches from the list's version. A watch that ends resumes where it
stopped; bookmarks keep that version recent. After 410 or an unreadable event it lists again, and
handlers get only the differences.

Note: the cache lags behind the server, and behind your own writes. Make writes conditional (uid,
resourceVersion), and expect to be called again.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, contextmanager
from random import Random
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar

import msgspec

from hekla.kube.calls import Identity, identity_of
from hekla.kube.errors import Gone, KubeError, ProtocolError
from hekla.kube.resources import Resource
from hekla.kube.responses import Listing, WatchEvent, decode
from hekla.kube.retries import Backoff
from hekla.kube.stores import Handler, Indexer, Key, Lister, Store, version_number
from hekla.units.clock import Clock, SystemClock

__all__ = ["Handler", "Informer", "InformerStats", "Lister", "Source"]

logger = logging.getLogger(__name__)

T = TypeVar("T")

# The timeout of a watch, randomised so that clients do not reconnect together; client-go's numbers.
WATCH_MIN_S = 300.0
WATCH_MAX_S = 600.0
BACKOFF_BASE_S = 0.5
BACKOFF_CAP_S = 30.0
# After a watch of at least this length the next one starts without back-off.
HEALTHY_WATCH_S = 5.0


class RawWatch(Protocol):
    """The part of `client.Watch` that an informer uses."""

    @property
    def resource_version(self) -> str: ...

    def __aiter__(self) -> AsyncIterator[WatchEvent[msgspec.Raw]]: ...


class Source(Protocol):
    """The part of `client.Client` that an informer uses; simulations implement it."""

    def pages(
        self,
        resource: Resource[msgspec.Raw],
        *,
        namespace: str | None = None,
        label_selector: str = "",
        field_selector: str = "",
        page_size: int = 500,
    ) -> AsyncGenerator[Listing[msgspec.Raw], None]: ...

    def watch(
        self,
        resource: Resource[msgspec.Raw],
        *,
        namespace: str | None = None,
        label_selector: str = "",
        field_selector: str = "",
        resource_version: str = "",
        timeout_s: float | None = None,
    ) -> AbstractAsyncContextManager[RawWatch]: ...


class InformerStats(msgspec.Struct):
    """Counts of lists, watches, events and failures, for metrics."""

    lists: int = 0
    watches: int = 0
    events: int = 0
    old_news: int = 0
    undecodable: int = 0
    failures: int = 0


class Informer(Generic[T]):
    """Lists and watches one kind into a store. Start it with `async with` or `run()`."""

    def __init__(
        self,
        client: Source,
        resource: Resource[Any],
        type: type[T],
        *,
        namespace: str | None = None,
        label_selector: str = "",
        field_selector: str = "",
        indexers: Mapping[str, Indexer[T]] | None = None,
        transform: Callable[[T], T] | None = None,
        resync_s: float | None = None,
        page_size: int = 500,
        on_problem: Callable[[KubeError | None], None] | None = None,
        clock: Clock | None = None,
        random: Random | None = None,
    ) -> None:
        """Create an informer.

        `on_problem` is called with the error when the server cannot be followed any more, and with
        None when it can again; without it, problems are logged.
        """
        self.resource = resource
        self.stats = InformerStats()
        self.problem: KubeError | None = None
        """Why the cache is not current; None while it follows the server."""
        self._client = client
        self._raw: Resource[msgspec.Raw] = resource.into(msgspec.Raw)
        self._type = type
        self._namespace = namespace
        self._label_selector = label_selector
        self._field_selector = field_selector
        self._transform = transform
        self._resync_s = resync_s
        self._on_problem = on_problem
        self._page_size = page_size
        self._clock: Clock = clock or SystemClock()
        self._random = random or Random()
        self._backoff = Backoff(BACKOFF_BASE_S, BACKOFF_CAP_S, self._random)
        self._store: Store[T] = Store(indexers)
        self._synced = asyncio.Event()
        self._version = ""
        self._task: asyncio.Task[None] | None = None

    # Reading

    def get(self, namespace: str, name: str) -> T | None:
        """Return a cached object, or None. Cluster-scoped kinds have namespace ''."""
        return self._store.get(namespace, name)

    def list(self, namespace: str | None = None) -> Iterator[T]:
        """Return all cached objects, or those of one namespace. Do not modify them."""
        return self._store.list(namespace)

    def by_index(self, index: str, key: str) -> Iterator[T]:
        """Return the objects with `key` in the index `index`."""
        return self._store.by_index(index, key)

    def __len__(self) -> int:
        return len(self._store)

    @property
    def resource_version(self) -> str:
        """The resourceVersion that the cache has reached."""
        return self._version

    @property
    def has_synced(self) -> bool:
        """Whether the first list is complete."""
        return self._synced.is_set()

    async def synced(self) -> None:
        """Wait for the first list; `problem` has the reason for a delay."""
        await self._synced.wait()

    # Handlers and the watch loop

    def add_handler(self, handler: Handler[T]) -> None:
        """Call `handler` for all existing objects (as ADDED) and then for each change."""
        self._store.add_handler(handler)

    async def __aenter__(self) -> Self:
        if self._task is not None:
            raise RuntimeError(f"the informer for {self.resource} is already running")
        self._task = asyncio.create_task(self.run(), name=f"informer {self.resource}")
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def run(self) -> None:
        """List and watch until cancelled."""
        if self._resync_s is None:
            await self._follow()
        else:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._resync(self._resync_s))
                group.create_task(self._follow())

    async def _follow(self) -> None:
        while True:
            try:
                if not self._version:
                    await self._list()
                await self._watch()
            except Gone:
                # Normal after a long pause, not a problem; a server that answers 410 repeatedly is
                # listed with back-off.
                logger.info("%s: version %s is too old; listing", self.resource, self._version)
                self._version = ""
                await self._clock.sleep(self._backoff.next_s())
            except ProtocolError as error:
                self._version = ""
                await self._failed(error)
            except KubeError as error:
                await self._failed(error)
            except Exception as error:  # the outermost loop of a task: log and retry
                logger.exception("%s: informer failed", self.resource)
                self._version = ""
                await self._failed(KubeError(f"{type(error).__name__}"))

    async def _list(self) -> None:
        items: dict[Key, tuple[Identity, T | None]] = {}
        version = ""
        self.stats.lists += 1
        for page_size in (self._page_size, 0):
            try:
                version = await self._read_pages(page_size, items)
                break
            except Gone:
                # The pages expired; a single page cannot.
                if page_size == 0:
                    raise
                items.clear()
            except msgspec.DecodeError as error:
                raise ProtocolError(f"{self.resource}: an item has no metadata") from error
        if not version:
            raise ProtocolError(f"{self.resource}: the list has no resourceVersion")
        self._store.replace(items, version)
        self._version = version
        self._synced.set()

    async def _read_pages(self, page_size: int, items: dict[Key, tuple[Identity, T | None]]) -> str:
        version = ""
        pages = self._client.pages(
            self._raw,
            namespace=self._namespace,
            label_selector=self._label_selector,
            field_selector=self._field_selector,
            page_size=page_size,
        )
        async with aclosing(pages):
            async for page in pages:
                with _gc_paused():
                    for raw in page.items:
                        identity = identity_of(raw)
                        obj = self._decode(raw, identity)
                        items[identity.namespace, identity.name] = (identity, obj)
                version = page.resource_version
        return version

    async def _watch(self) -> None:
        self.stats.watches += 1
        started = self._clock.monotonic()
        is_healthy = False
        async with self._client.watch(
            self._raw,
            namespace=self._namespace,
            label_selector=self._label_selector,
            field_selector=self._field_selector,
            resource_version=self._version,
            timeout_s=self._random.uniform(WATCH_MIN_S, WATCH_MAX_S),
        ) as watch:
            self._recovered()
            try:
                async for event in watch:
                    self._apply_event(event)
                    self._advance(event.identity.resourceVersion)
                    is_healthy = True
            finally:
                self._advance(watch.resource_version)
                is_healthy |= self._clock.monotonic() - started >= HEALTHY_WATCH_S
                if is_healthy:
                    self._backoff.reset()
        if not is_healthy:
            # Back off from a server that ends each watch at once.
            await self._clock.sleep(self._backoff.next_s())

    def _apply_event(self, event: WatchEvent[msgspec.Raw]) -> None:
        self.stats.events += 1
        obj = self._decode(event.object, event.identity)
        if event.type == "DELETED":
            is_news = self._store.remove(event.identity, obj)
        elif obj is None:
            return
        else:
            is_news = self._store.upsert(event.identity, obj)
        if not is_news:
            self.stats.old_news += 1

    def _decode(self, raw: msgspec.Raw, identity: Identity) -> T | None:
        try:
            obj = decode(self._type, raw, str(self.resource))
            return obj if self._transform is None else self._transform(obj)
        except ProtocolError as error:
            self.stats.undecodable += 1
            # Its last decodable state stays in the store: see Store.replace.
            logger.error(
                "%s %s/%s cannot be read and is ignored: %s",
                self.resource,
                identity.namespace,
                identity.name,
                error,
            )
            return None

    def _advance(self, version: str) -> None:
        """Advance the version to resume from; a replayed event does not move it back."""
        new, reached = version_number(version), version_number(self._version)
        if version and (new is None or reached is None or new > reached):
            self._version = version

    async def _failed(self, error: KubeError) -> None:
        self.stats.failures += 1
        if self._on_problem is not None:
            if self.problem is None:
                self._on_problem(error)
        elif self.problem is None or str(self.problem) != str(error):
            logger.warning("%s: %s; retrying", self.resource, error)
        self.problem = error
        await self._clock.sleep(self._backoff.next_s())

    def _recovered(self) -> None:
        if self.problem is not None:
            logger.info("%s: watching again", self.resource)
            if self._on_problem is not None:
                self._on_problem(None)
        self.problem = None

    async def _resync(self, period_s: float) -> None:
        while True:
            await self._clock.sleep(period_s)
            self._store.resync()


@contextmanager
def _gc_paused() -> Iterator[None]:
    """Disable garbage collection while thousands of objects are decoded: a third of the time.

    Note: only around code that does not await; the switch is process-wide.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
