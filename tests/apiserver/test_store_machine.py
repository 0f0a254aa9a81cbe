"""Laws of store and watch, over random histories with crashes at any point.

- Acknowledged writes survive a crash; unacknowledged ones survive as a prefix or not at all.
- A watcher that starts anywhere, reads at any pace and reconnects ends with exactly the list,
  never gets a revision twice, and never gets one that a crash reverted.
- A paginated list during writes is the state at one revision.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from hekla.apiserver.endpoints.watch import Watch
from hekla.apiserver.errors import StatusError
from hekla.apiserver.storage import pagination
from hekla.apiserver.storage.selection import Fields, matcher
from hekla.apiserver.storage.store import Store
from hekla.apiserver.storage.watch_cache import Entry
from hekla.units.selectors import LabelSelector

RESOURCE = "things"
NAMES = st.sampled_from([f"{ns}/{name}" for ns in ("a", "a-b", "b") for name in ("x", "y", "z")])
COLORS = st.sampled_from(["red", "blue"])
RED = LabelSelector.parse("color=red")


def body(key: str, revision: int, color: str) -> bytes:
    namespace, _, name = key.partition("/")
    metadata = {
        "name": name,
        "namespace": namespace,
        "resourceVersion": str(revision),
        "labels": {"color": color},
    }
    return msgspec.json.encode({"metadata": metadata})


@dataclass
class Watcher:
    """A watching client: its objects and its resume version."""

    selects_red: bool
    known: dict[str, str] = field(default_factory=dict)
    version: int | None = None

    def matches(self) -> Any:
        return matcher(RED, None, Fields()) if self.selects_red else None

    def take(self, line: bytes) -> bool:
        """Apply one line; False if the version is too old."""
        event = msgspec.json.decode(line)
        obj = event["object"]
        if event["type"] == "ERROR":
            assert obj["code"] == 410
            self.version = None
            return False
        metadata = obj["metadata"]
        revision = int(metadata["resourceVersion"])
        if self.version is not None:
            assert revision > self.version, "a revision came twice, or out of order"
        self.version = revision
        if event["type"] == "BOOKMARK":
            return True
        key = f"{metadata['namespace']}/{metadata['name']}"
        if event["type"] == "DELETED":
            assert key in self.known
            del self.known[key]
        else:
            assert (event["type"] == "MODIFIED") == (key in self.known)
            self.known[key] = metadata["labels"]["color"]
        return True


class StoreMachine(RuleBasedStateMachine):
    """Drives a store step by step."""

    @initialize()
    def open(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.directory = Path(tempfile.mkdtemp(prefix="hekla-machine-"))
        self.generation = 0
        self.acknowledged: dict[str, str] = {}
        self.staged: list[tuple[str, str | None, asyncio.Future[None]]] = []
        self.watchers: list[Watcher] = []
        self._open()

    @property
    def path(self) -> Path:
        return self.directory / str(self.generation) / "s.db"

    def _open(self) -> None:
        self.path.parent.mkdir(exist_ok=True)
        self.may_commit = threading.Event()
        self.may_commit.set()
        self.store = self.run(self._make())
        real = self.store._commit

        def gated(batch: Any) -> None:
            self.may_commit.wait()
            real(batch)

        self.store._commit = gated

    async def _make(self) -> Store:
        return Store.open(self.path, max_events=20, max_bytes=4096)

    def run(self, work: Any) -> Any:
        return self.loop.run_until_complete(work)

    # Writing

    def _stage(self, key: str, color: str | None) -> None:
        previous = self.store.head(RESOURCE, key)
        revision = self.store.next_revision()
        entry = Entry(key, revision, body(key, revision, color or "gone"))
        removed = color is None
        change = (RESOURCE, entry, previous, removed)

        async def stage() -> asyncio.Future[None]:
            staged: asyncio.Future[None] = self.store.stage(change)
            return staged

        self.staged.append((key, color, self.run(stage())))

    @rule(key=NAMES, color=COLORS)
    def put(self, key: str, color: str) -> None:
        self._stage(key, color)

    @rule(key=NAMES)
    def remove(self, key: str) -> None:
        if self.store.head(RESOURCE, key) is not None:
            self._stage(key, None)

    @rule()
    def hold_the_writer(self) -> None:
        self.may_commit.clear()

    @rule()
    def let_everything_commit(self) -> None:
        self.may_commit.set()
        for key, color, done in self.staged:
            self.run(done)
            self._acknowledge(key, color)
        self.staged.clear()

    def _acknowledge(self, key: str, color: str | None) -> None:
        if color is None:
            self.acknowledged.pop(key, None)
        else:
            self.acknowledged[key] = color

    # Crashing

    @rule()
    def crash(self) -> None:
        """Continue with a copy of the files, as after a crash."""
        before, self.generation = self.path, self.generation + 1
        self.path.parent.mkdir()
        # The writer is held before its commit, idle, or racing: all are valid instants.
        held = not self.may_commit.is_set()
        if not held:
            self.let_everything_commit()
        for suffix in ("", "-wal"):
            with contextlib.suppress(FileNotFoundError):
                shutil.copy(f"{before}{suffix}", f"{self.path}{suffix}")
        unacknowledged = [(key, color) for key, color, _ in self.staged]
        self._abandon()
        self._open()
        found = self._contents()
        allowed = [dict(self.acknowledged)]
        for key, color in unacknowledged:
            after = dict(allowed[-1])
            if color is None:
                after.pop(key, None)
            else:
                after[key] = color
            allowed.append(after)
        assert found in allowed, "an acknowledged write was lost or reordered"
        self.acknowledged = found
        for watcher in self.watchers:
            if watcher.version is not None:
                assert watcher.version <= self.store.revision, (
                    "a watcher got an uncommitted revision"
                )

    def _abandon(self) -> None:
        self.may_commit.set()
        self.run(self.store.close())
        for _, _, done in self.staged:
            if done.done():
                done.exception()
        self.staged.clear()

    def _contents(self) -> dict[str, str]:
        entries = self.store.table(RESOURCE).entries.values()
        decoded = [msgspec.json.decode(entry.body)["metadata"] for entry in entries]
        return {f"{m['namespace']}/{m['name']}": m["labels"]["color"] for m in decoded}

    # Watching

    @rule(selects_red=st.booleans())
    @precondition(lambda self: len(self.watchers) < 4)
    def new_watcher(self, selects_red: bool) -> None:
        self.watchers.append(Watcher(selects_red))

    @rule(data=st.data(), batches=st.integers(1, 4))
    @precondition(lambda self: self.watchers)
    def read_on(self, data: st.DataObject, batches: int) -> None:
        """Connect, read a few batches, disconnect."""
        self.run(self._read(data.draw(st.sampled_from(self.watchers)), batches))

    async def _read(self, watcher: Watcher, batches: int) -> None:
        if watcher.version is None:
            self._list(watcher)
        watch = Watch(self.store, RESOURCE, matches=watcher.matches())
        lines = watch.lines(watcher.version, closing=asyncio.Event(), timeout_s=0)
        async for batch in lines:
            for line in batch.splitlines():
                if not watcher.take(line):
                    break
            batches -= 1
            if not batches or watcher.version is None:
                break
        await lines.aclose()  # type: ignore[attr-defined]

    def _list(self, watcher: Watcher) -> None:
        """Recover from 410: list page by page, then watch from there."""
        known: dict[str, str] = {}
        token = ""
        while True:
            page = pagination.page(
                self.store, RESOURCE, matches=watcher.matches(), limit=2, continue_token=token
            )
            for entry in page.entries:
                metadata = msgspec.json.decode(entry.body)["metadata"]
                known[entry.key] = metadata["labels"]["color"]
            token = page.continue_token
            if not token:
                break
        watcher.known, watcher.version = known, page.revision

    @invariant()
    def a_watcher_that_catches_up_knows_exactly_the_list(self) -> None:
        if not hasattr(self, "watchers"):
            return
        for watcher in self.watchers:
            self.run(self._check(watcher))

    async def _check(self, watcher: Watcher) -> None:
        """Read until the store is idle (the writer is a thread), then compare."""
        while True:
            revision = self.store.revision
            await self._read(watcher, 1000)
            if watcher.version is not None and revision == self.store.revision:
                break
        contents = self._contents()
        want = {k: c for k, c in contents.items() if not watcher.selects_red or c == "red"}
        assert watcher.known == want

    @rule()
    def page_through_while_others_write(self) -> None:
        """Pages at one revision stay at that revision during writes."""
        self.let_everything_commit()
        expected, found = self._contents(), {}
        page = pagination.page(self.store, RESOURCE, limit=2)
        while True:
            for entry in page.entries:
                found[entry.key] = msgspec.json.decode(entry.body)["metadata"]["labels"]["color"]
            if not page.continue_token:
                break
            self._stage("a/x", "blue")
            self._stage("b/new", "red")
            self.let_everything_commit()
            try:
                page = pagination.page(
                    self.store, RESOURCE, limit=2, continue_token=page.continue_token
                )
            except StatusError as error:
                if error.code != 410:
                    raise
                return
        assert found == expected

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self._abandon()
            self.loop.close()
            shutil.rmtree(self.directory)


TestStoreMachine = StoreMachine.TestCase
TestStoreMachine.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
