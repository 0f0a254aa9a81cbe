"""The store: durability, visibility and order of writes."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest

from hekla.apiserver.storage.store import Stale, Store, StoreError
from hekla.apiserver.storage.watch_cache import Entry


def put(store: Store, name: str, body: bytes = b"{}") -> asyncio.Future[None]:
    entry = Entry(name, store.next_revision(), body)
    return store.stage(("things", entry, store.head("things", name), False))


def remove(store: Store, name: str) -> asyncio.Future[None]:
    previous = store.head("things", name)
    assert previous is not None
    entry = Entry(name, store.next_revision(), previous.body)
    return store.stage(("things", entry, previous, True))


async def test_write_becomes_visible_after_it_is_durable(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "s.db")
    done = put(store, "a")
    assert store.get("things", "a") is None
    assert store.head("things", "a") is not None
    await done
    assert store.get("things", "a") is store.head("things", "a")
    reader = sqlite3.connect(tmp_path / "s.db")
    assert reader.execute("SELECT key FROM objects").fetchall() == [("a",)]
    reader.close()
    await store.close()


async def test_revisions_continue_after_reopening_an_empty_store(
    tmp_path: Path,
) -> None:
    store = Store.open(tmp_path / "s.db")
    await put(store, "a")
    await remove(store, "a")
    reached = store.revision
    await store.close()
    again = Store.open(tmp_path / "s.db")
    assert again.revision == reached
    assert again.get("things", "a") is None
    assert again.next_revision() == reached + 1
    await again.close()


async def test_keys_are_listed_in_order_and_by_prefix(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "s.db")
    names = ["b/2", "a/1", "a-b/1", "a/10", "a/2", "b/1"]
    await asyncio.gather(*(put(store, name) for name in names))
    table = store.table("things")
    assert table.range() == sorted(names)
    assert table.range("a/") == ["a/1", "a/10", "a/2"]
    assert table.range("a/", start_after="a/1") == ["a/10", "a/2"]
    await store.close()


async def test_change_of_a_stale_version_is_refused(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "s.db")
    await put(store, "a")
    old = store.get("things", "a")
    await put(store, "a", b"[1]")
    with pytest.raises(Stale):
        store.stage(("things", Entry("a", store.next_revision(), b"[2]"), old, False))
    await store.close()


async def test_concurrent_writes_share_commits(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "s.db")
    await asyncio.gather(*(put(store, f"n{i}") for i in range(500)))
    assert store.writes == 500
    assert store.commits < 100
    await store.close()


async def test_failed_commit_drops_dependent_writes_and_the_store_recovers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store.open(tmp_path / "s.db")
    await put(store, "kept", b"[1]")
    real = store._commit

    def full(batch: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(store, "_commit", full)
    first, second = put(store, "kept", b"[2]"), put(store, "new")
    with pytest.raises(StoreError, match="disk is full"):
        await first
    with pytest.raises(StoreError):
        await second
    assert store.head("things", "new") is None
    kept = store.head("things", "kept")
    assert kept is not None
    assert kept.body == b"[1]"
    monkeypatch.setattr(store, "_commit", real)
    await put(store, "new")
    assert store.get("things", "new") is not None
    await store.close()


async def test_watch_cache_is_bounded_by_events_and_bytes(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "s.db", max_events=100, max_bytes=1 << 20)
    for _ in range(40):
        await asyncio.gather(*(put(store, f"n{i}") for i in range(50)))
    cache = store.table("things").watch_cache
    kept = cache.after(cache.floor)
    assert 100 <= len(kept) <= 1200
    assert not cache.reaches(cache.floor - 1)
    for _ in range(40):
        await put(store, "big", b"x" * 100_000)
    assert sum(len(event.entry.body) for event in cache.after(cache.floor)) <= 1.3 * (1 << 20)
    await store.close()


async def test_past_state_is_restored_as_far_as_the_watch_cache_reaches(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "s.db")
    snapshots = {}
    for step in range(30):
        name = f"n{step % 7}"
        if step % 5 == 4 and store.get("things", name):
            await remove(store, name)
        else:
            await put(store, name, f"[{step}]".encode())
        table = store.table("things")
        snapshots[store.revision] = {key: table.entries[key].body for key in table.keys}
    for revision, expected in snapshots.items():
        keys, entries = store.table("things").at(revision)
        assert {key: entries[key].body for key in keys} == expected
    await store.close()


async def test_a_file_of_another_format_is_refused_with_the_reason(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    await Store.open(path).close()
    changed = sqlite3.connect(path)
    changed.execute("UPDATE facts SET value=99 WHERE name='format'")
    changed.commit()
    changed.close()
    with pytest.raises(StoreError, match="format 99"):
        Store.open(path)


async def test_file_that_is_not_a_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    path.write_bytes(b"not a database, not at all" * 100)
    with pytest.raises(StoreError, match="cannot open"):
        Store.open(path)


async def test_staged_first_object_of_a_resource_is_visible_to_heads(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "s.db")
    done = put(store, "a")
    assert store.resources() == ["things"]
    assert [entry.key for entry in store.heads("things")] == ["a"]
    await done
    assert store.resources() == ["things"]
    await store.close()
