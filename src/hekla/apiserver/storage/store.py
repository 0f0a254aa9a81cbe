"""The store: encoded objects in memory for reads and in SQLite for durability.

A write is *staged* on the event loop: it gets the next revision, overlays the committed state (the
next read-modify-write sees it) and goes to the writer thread. The thread commits all staged writes
in one transaction. Then the change becomes visible to readers and watchers and the caller's future
resolves. So a visible change is durable, and under load one commit has many writes.

If a commit fails (disk full), all staged changes are dropped, their callers get `StoreError`, and
the state is the last committed one. Later writes start from there.

Note: `get` and `table` read the committed state, `head` includes staged changes. Decide on a write
from `head`, answer a read from `get`.
"""

import asyncio
import queue
import sqlite3
import threading
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Literal

from hekla.apiserver.storage.watch_cache import Entry, Event, WatchCache
from hekla.units.private_directory import create_private

SCHEMA = """
CREATE TABLE IF NOT EXISTS objects (
    resource TEXT NOT NULL,
    key      TEXT NOT NULL,
    revision INTEGER NOT NULL,
    body     BLOB NOT NULL,
    PRIMARY KEY (resource, key)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
INSERT OR IGNORE INTO facts VALUES ('revision', 1), ('format', 1);
"""
FORMAT = 1

Durability = Literal["process", "power"]


class StoreError(Exception):
    """SQLite failed to write; the message is SQLite's."""


class Stale(Exception):
    """The object changed between reading it and staging a change to it."""


class Table:
    """The committed objects of one resource in key order, and their watch cache."""

    __slots__ = ("entries", "keys", "waiters", "watch_cache")

    def __init__(self, log: WatchCache) -> None:
        self.entries: dict[str, Entry] = {}
        self.keys: list[str] = []
        self.watch_cache = log
        self.waiters: set[asyncio.Future[None]] = set()

    def range(self, prefix: str = "", start_after: str = "") -> list[str]:
        """Return keys with `prefix` that sort after `start_after`."""
        keys = self.keys
        low = bisect_left(keys, prefix) if prefix else 0
        if start_after:
            low = max(low, bisect_left(keys, start_after + "\0"))
        # "0" follows "/" in ASCII: it ends the range of a prefix that ends in "/".
        high = bisect_left(keys, prefix[:-1] + "0") if prefix else len(keys)
        return keys[low:high]

    def at(self, revision: int) -> tuple[list[str], dict[str, Entry]]:
        """Return keys and entries at `revision`, which the watch cache must cover."""
        entries = self.entries
        newer = list(self.watch_cache.undo_until(revision))
        if not newer:
            return self.keys, entries
        entries = dict(entries)
        for event in newer:
            if event.previous is None:
                entries.pop(event.entry.key, None)
            else:
                entries[event.entry.key] = event.previous
        return sorted(entries), entries

    def wake(self) -> None:
        waiters, self.waiters = self.waiters, set()
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


class _Write:
    """A staged transaction for the writer thread."""

    __slots__ = ("changes", "done", "epoch")

    def __init__(
        self, changes: list[tuple[str, Event]], done: asyncio.Future[None], epoch: int
    ) -> None:
        self.changes = changes
        self.done = done
        self.epoch = epoch


class Store:
    """All objects. Create with `Store.open` inside a running event loop."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        *,
        max_events: int,
        max_bytes: int,
    ) -> None:
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        self._limits = {"max_events": max_events, "max_bytes": max_bytes}
        self._tables: dict[str, Table] = {}
        self._overlay: dict[str, dict[str, Entry | None]] = {}
        """Staged changes by resource and key, so that one resource is searched alone."""
        self._queue: queue.SimpleQueue[_Write | None] = queue.SimpleQueue()
        self._epoch = 0
        self._closed = False
        self._last_error = ""
        self._subscribers: list[Callable[[str, Event], None]] = []
        self.commits = 0
        self.writes = 0
        row = connection.execute("SELECT value FROM facts WHERE name='revision'").fetchone()
        self.revision: int = row[0]
        self._next: int = self.revision
        self._load()
        self._writer = threading.Thread(target=self._write_forever, name="hekla-store", daemon=True)
        self._writer.start()

    @classmethod
    def open(
        cls,
        path: Path | str,
        *,
        durability: Durability = "process",
        max_events: int = 16_384,
        max_bytes: int = 16 << 20,
    ) -> "Store":
        """Open or create the database. `durability="power"` syncs each commit to disk."""
        # SQLite creates its other files (`-wal`, `-shm`) with the mode of this one.
        create_private(Path(path))
        connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            # In WAL mode NORMAL survives kill -9 (the kernel has the data); FULL also survives a
            # power cut, at the cost of one fsync per commit.
            mode = "FULL" if durability == "power" else "NORMAL"
            connection.execute(f"PRAGMA synchronous={mode}")
            connection.execute("PRAGMA wal_autocheckpoint=4000")
            connection.executescript(SCHEMA)
            format_ = connection.execute("SELECT value FROM facts WHERE name='format'").fetchone()[
                0
            ]
            if format_ != FORMAT:
                raise StoreError(
                    f"{path} was written by another version of hekla (format {format_}, this one "
                    f"reads {FORMAT}); start that version, or move the file away"
                )
        except sqlite3.Error as error:
            connection.close()
            raise StoreError(f"cannot open {path}: {error}") from error
        except StoreError:
            connection.close()
            raise
        return cls(connection, max_events=max_events, max_bytes=max_bytes)

    def _load(self) -> None:
        rows = self._connection.execute(
            "SELECT resource, key, revision, body FROM objects ORDER BY resource, key"
        )
        for resource, key, revision, body in rows:
            table = self.table(resource)
            table.entries[key] = Entry(key, revision, body)
            table.keys.append(key)
        # SQLite orders by UTF-8 bytes and Python by code points: the same order.

    # Reading

    def table(self, resource: str) -> Table:
        """Return the committed objects of a resource (`pods`, `batch.volcano.sh/jobs`)."""
        table = self._tables.get(resource)
        if table is None:
            # The cache of a new table starts at the current revision: after a restart older
            # positions are unknown.
            table = self._tables[resource] = Table(WatchCache(self.revision, **self._limits))
        return table

    def get(self, resource: str, key: str) -> Entry | None:
        table = self._tables.get(resource)
        return table.entries.get(key) if table else None

    def head(self, resource: str, key: str) -> Entry | None:
        """Return the newest version, staged changes included."""
        staged = self._overlay.get(resource)
        if staged is not None and key in staged:
            return staged[key]
        return self.get(resource, key)

    def heads(self, resource: str, prefix: str = "") -> list[Entry]:
        """Return all objects under `prefix`, staged changes included, in no order."""
        table = self.table(resource)
        heads = {key: table.entries[key] for key in table.range(prefix)}
        for key, entry in self._overlay.get(resource, {}).items():
            if key.startswith(prefix):
                if entry is None:
                    heads.pop(key, None)
                else:
                    heads[key] = entry
        return list(heads.values())

    def resources(self) -> list[str]:
        """Return all resources that have objects, staged ones included."""
        return [*self._tables, *(self._overlay.keys() - self._tables.keys())]

    @property
    def failure(self) -> str:
        """Why writes fail; empty if they do not."""
        if self._closed or not self._writer.is_alive():
            return "the store is closed"
        return self._last_error

    def subscribe(self, callback: Callable[[str, Event], None]) -> None:
        """Call back with (resource, event) when a change becomes visible, before watchers."""
        self._subscribers.append(callback)

    # Writing

    def next_revision(self) -> int:
        """Reserve the revision of the next staged change. Gaps are allowed."""
        self._next += 1
        return self._next

    def stage(self, *changes: tuple[str, Entry, Entry | None, bool]) -> asyncio.Future[None]:
        """Stage `(resource, entry, previous, removed)` changes as one transaction.

        Raises `Stale` unless each `previous` is the newest version. The future resolves when the
        changes are durable and visible.
        """
        if self._closed:
            raise StoreError("the store is closed")
        for resource, entry, previous, _ in changes:
            if self.head(resource, entry.key) is not previous:
                raise Stale(entry.key)
        events: list[tuple[str, Event]] = []
        for resource, entry, previous, removed in changes:
            self._overlay.setdefault(resource, {})[entry.key] = None if removed else entry
            events.append((resource, Event(entry, previous, removed)))
        done = self._loop.create_future()
        self._queue.put(_Write(events, done, self._epoch))
        return done

    def _write_forever(self) -> None:
        """Run the writer thread: gather, commit, report."""
        poisoned = -1
        stopping = False
        while not stopping:
            batch: list[_Write] = []
            item = self._queue.get()
            while True:
                if item is None:
                    stopping = True
                    break
                batch.append(item)
                if len(batch) >= 1024:
                    break
                try:
                    item = self._queue.get_nowait()
                except queue.Empty:
                    break
            # Writes staged on top of a failed one must fail, too.
            good = [write for write in batch if write.epoch > poisoned]
            error: Exception | None = None
            if good:
                try:
                    self._commit(good)
                except sqlite3.Error as failure:
                    error = failure
                    poisoned = good[-1].epoch
            dropped = [write for write in batch if write.epoch <= poisoned]
            if error is None:
                self._report(self._complete, good)
            self._report(self._fail, dropped, error)

    def _report(self, callback: Callable[..., None], *arguments: object) -> None:
        if arguments[0]:
            self._loop.call_soon_threadsafe(callback, *arguments)

    def _commit(self, batch: list[_Write]) -> None:
        connection = self._connection
        puts: list[tuple[str, str, int, bytes]] = []
        last = 0
        connection.execute("BEGIN IMMEDIATE")
        try:
            for write in batch:
                for resource, event in write.changes:
                    entry = event.entry
                    last = entry.revision
                    if event.removed:
                        self._flush(puts)
                        connection.execute(
                            "DELETE FROM objects WHERE resource=? AND key=?", (resource, entry.key)
                        )
                    else:
                        puts.append((resource, entry.key, entry.revision, entry.body))
            self._flush(puts)
            connection.execute("UPDATE facts SET value=? WHERE name='revision'", (last,))
            connection.execute("COMMIT")
        except sqlite3.Error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise

    def _flush(self, puts: list[tuple[str, str, int, bytes]]) -> None:
        if puts:
            self._connection.executemany("INSERT OR REPLACE INTO objects VALUES (?,?,?,?)", puts)
            puts.clear()

    def _complete(self, batch: Iterable[_Write]) -> None:
        """Make committed changes visible, wake watchers, resolve futures."""
        touched: set[str] = set()
        self.commits += 1
        self._last_error = ""
        for write in batch:
            for resource, event in write.changes:
                self._publish(resource, event)
                touched.add(resource)
            if not write.done.done():
                write.done.set_result(None)
        for resource in touched:
            self._tables[resource].wake()

    def _publish(self, resource: str, event: Event) -> None:
        table = self.table(resource)
        entry = event.entry
        if event.removed:
            if table.entries.pop(entry.key, None) is not None:
                del table.keys[bisect_left(table.keys, entry.key)]
        else:
            if entry.key not in table.entries:
                insort(table.keys, entry.key)
            table.entries[entry.key] = entry
        self.writes += 1
        self.revision = entry.revision
        table.watch_cache.append(event)
        staged = self._overlay.get(resource)
        if (
            staged
            and entry.key in staged
            and staged[entry.key] is (None if event.removed else entry)
        ):
            del staged[entry.key]
        for callback in self._subscribers:
            callback(resource, event)

    def _fail(self, batch: Iterable[_Write], error: Exception | None) -> None:
        if error is not None:
            self._last_error = f"the last write failed: {error}"
            self._epoch += 1
            self._overlay.clear()
        for write in batch:
            if not write.done.done():
                why = error or "a write that this one is based on failed"
                write.done.set_exception(StoreError(f"the write could not be stored: {why}"))

    async def close(self) -> None:
        """Commit staged changes, then close the file."""
        if self._closed:
            return
        self._closed = True
        self._queue.put(None)
        await asyncio.to_thread(self._writer.join)
        # Reports of the last commit are queued on the loop: run them before the file closes.
        await asyncio.sleep(0)
        self._connection.close()
        for table in self._tables.values():
            table.wake()
