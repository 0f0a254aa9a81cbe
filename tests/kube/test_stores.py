"""The informer's store: stale events, lists and notifications."""

from __future__ import annotations

from typing import Any

import pytest

from hekla.kube.calls import Identity
from hekla.kube.stores import Store, version_number


def identity(version: int | str, uid: str = "u1", name: str = "a") -> Identity:
    return Identity(name=name, namespace="ns", uid=uid, resourceVersion=str(version))


@pytest.fixture
def told() -> list[tuple[str, str | None, str | None]]:
    return []


@pytest.fixture
def store(told: list[Any]) -> Store[str]:
    made: Store[str] = Store()
    made.replace({}, "10")
    made.add_handler(lambda event, old, new: told.append((event, old, new)))
    return made


def test_repeated_watch_event_calls_handlers_once(store: Store[Any], told: list[Any]) -> None:
    assert store.upsert(identity(11), "v11")
    assert not store.upsert(identity(11), "v11")
    assert told == [("ADDED", None, "v11")]


def test_older_version_does_not_replace_a_newer_one(store: Store[Any]) -> None:
    store.upsert(identity(13), "v13")
    assert not store.upsert(identity(12), "v12")
    assert store.get("ns", "a") == "v13"


def test_late_event_does_not_restore_a_deleted_object(store: Store[Any], told: list[Any]) -> None:
    store.upsert(identity(11), "v11")
    store.remove(identity(13), "v13")
    assert not store.upsert(identity(12), "v12")
    assert len(store) == 0
    assert told[-1] == ("DELETED", "v13", None)


def test_event_older_than_the_list_is_ignored(store: Store[Any]) -> None:
    store.replace({}, "20")
    assert not store.upsert(identity(15), "v15")
    assert len(store) == 0


def test_late_deletion_does_not_delete_the_recreated_object(store: Store[Any]) -> None:
    store.upsert(identity(15, "u2"), "second")
    assert not store.remove(identity(14, "u1"), "first")
    assert store.get("ns", "a") == "second"


def test_deletion_with_the_stored_version_is_accepted(store: Store[Any]) -> None:
    store.upsert(identity(11), "v11")
    assert store.remove(identity(11), None)
    assert len(store) == 0


def test_another_uid_is_another_object(store: Store[Any], told: list[Any]) -> None:
    store.upsert(identity(11, "u1"), "first")
    store.upsert(identity(12, "u2"), "second")
    assert told[1:] == [("DELETED", "first", None), ("ADDED", None, "second")]


def test_deletion_of_a_later_object_of_the_name_deletes_the_stored_one(
    store: Store[Any], told: list[Any]
) -> None:
    store.upsert(identity(11, "u1"), "first")
    store.remove(identity(14, "u3"), "third")
    assert told[-1] == ("DELETED", "first", None)


def test_list_reports_only_differences(store: Store[Any], told: list[Any]) -> None:
    for name in ("stays", "changes", "goes"):
        store.upsert(identity(11, name=name), f"{name} 11")
    told.clear()
    listed = {"stays": 11, "changes": 12, "comes": 13}
    store.replace(
        {("ns", name): (identity(v, name=name), f"{name} {v}") for name, v in listed.items()}, "20"
    )
    assert told == [
        ("DELETED", "goes 11", None),
        ("MODIFIED", "changes 11", "changes 12"),
        ("ADDED", None, "comes 13"),
    ]


def test_undecodable_list_item_is_not_deleted(store: Store[Any], told: list[Any]) -> None:
    store.upsert(identity(11), "v11")
    store.replace({("ns", "a"): (identity(12), None)}, "20")
    assert store.get("ns", "a") == "v11"
    assert len(told) == 1


def test_a_server_restored_from_a_backup_may_go_back_in_versions(store: Store[Any]) -> None:
    store.upsert(identity(50), "v50")
    store.replace({("ns", "a"): (identity(7), "v7")}, "8")
    assert store.get("ns", "a") == "v7"
    assert store.upsert(identity(9), "v9")


def test_non_numeric_version_is_always_accepted(store: Store[Any]) -> None:
    store.upsert(identity("abc"), "first")
    assert store.upsert(identity("abb"), "second")
    assert store.remove(identity("aba"), None)
    assert version_number("abc") is None


def test_an_indexer_that_fails_leaves_the_object_in_the_store() -> None:
    store: Store[str] = Store({"broken": lambda text: [str(1 // 0)], "first": lambda t: [t[0]]})
    store.upsert(identity(11), "xyz")
    assert store.get("ns", "a") == "xyz"
    assert list(store.by_index("first", "x")) == ["xyz"]
    assert store.remove(identity(12), None)


def test_deletions_are_remembered_in_bounded_number(
    store: Store[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hekla.kube.stores.MAX_TOMBSTONES", 3)
    for number in range(10):
        store.remove(identity(11 + number, name=f"p{number}"), None)
    assert len(store._tombstones) == 3
    assert not store.upsert(identity(20, name="p9"), "late")
