"""The history file: one row for each job, bounds, paging, and files that cannot be used."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from hekla.records.requests import BadRequest, list_object, parse_list, read_page
from hekla.records.store import HistoryError, HistoryStore, PodAccount, RecordFilter
from hekla.units.clock import ManualClock
from tests.records.builders import NOW, record

DAY_S = 24 * 3600.0


@pytest.fixture
def store(tmp_path: Path) -> HistoryStore:
    return HistoryStore(tmp_path / "history.db", clock=ManualClock(NOW))


def names(store: HistoryStore, **wanted: object) -> list[str]:
    found = store.page(RecordFilter(**wanted), limit=100)  # type: ignore[arg-type]
    return [each.name for each in found.records]


def test_record_is_read_as_it_was_written_and_only_its_owner_may_read_the_file(
    store: HistoryStore,
) -> None:
    written = record(user="alice", resource_seconds={"cpu": 12.5}, exit_codes={"3": 2})
    store.put(written, settled=True)
    assert store.page(RecordFilter(), limit=1).records == [written]
    for path in store.path.parent.glob("history.db*"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_jobs_without_a_submitter_are_those_of_the_default_user(tmp_path: Path) -> None:
    store = HistoryStore(tmp_path / "h.db", clock=ManualClock(NOW), default_user="ada")
    store.put(record("own", user=""), settled=True)
    store.put(record("other", user="bob"), settled=True)
    assert names(store, user="ada") == ["own"]
    (found,) = store.page(RecordFilter(user="ada"), limit=1).records
    assert found.user == "ada"
    assert names(store, user="bob") == ["other"]


def test_job_is_recorded_once_and_a_settled_record_does_not_change(store: HistoryStore) -> None:
    store.put(record(pods_failed=1), settled=False)
    store.put(record(pods_failed=2), settled=True)
    store.put(record(pods_failed=3), settled=False)
    (found,) = store.page(RecordFilter(), limit=10).records
    assert found.pods_failed == 2
    assert store.is_settled("uid-train")
    assert not store.is_settled("uid-other")


def test_accounts_of_deleted_pods_are_kept_until_their_job_is_settled(store: HistoryStore) -> None:
    account = PodAccount("pod-1", "Failed", exit_code=3, requests={"cpu": 2.0})
    store.add_pods([("uid-train", account), ("uid-train", account)])
    assert store.pods_of("uid-train") == [account]
    store.put(record(), settled=True)
    assert store.pods_of("uid-train") == []
    store.add_pods([("uid-train", account)])
    assert store.pods_of("uid-train") == []


def test_filters_select_by_user_queue_phase_namespace_name_and_end(store: HistoryStore) -> None:
    store.put(record("a", user="alice", queue="ml", namespace="x"), settled=True)
    store.put(record("b", user="bob", phase="Failed", ended=NOW - DAY_S), settled=True)
    assert names(store, user="alice") == ["a"]
    store.put(record("c", user="system:serviceaccount:carol:carol", ended=NOW - 1), settled=True)
    assert names(store, user="carol") == names(store, user="system:serviceaccount:carol:carol")
    assert names(store, user="carol") == ["c"]
    assert names(store, queue="ml") == ["a"]
    assert names(store, phases=("failed",)) == ["b"]
    assert names(store, namespace="x") == ["a"]
    assert names(store, name="b") == ["b"]
    assert names(store, since=NOW - 60) == ["a", "c"]
    assert names(store, user="' OR 1=1 --") == []


def test_pages_continue_where_the_last_one_ended_also_between_equal_times(
    store: HistoryStore,
) -> None:
    for number in range(7):
        store.put(record(f"j{number}"), settled=True)
    seen: list[str] = []
    token = ""
    while True:
        asked = parse_list("", {"limit": "3", "continue": token})
        body = list_object(read_page(store, asked))
        seen += [item["record"]["name"] for item in body["items"]]
        token = body["metadata"].get("continue", "")
        if not token:
            break
    assert seen == [f"j{number}" for number in reversed(range(7))]


@pytest.mark.parametrize(
    "query",
    [
        {"limit": "-1"},
        {"limit": "x"},
        {"continue": "nonsense"},
        {"continue": "W10="},
        {"since": "yesterday"},
        {"labelSelector": "a=b"},
        {"fieldSelector": "metadata.name=x"},
        {"user": "x" * 2000},
    ],
    ids=str,
)
def test_nonsense_in_a_request_is_refused(query: dict[str, str]) -> None:
    with pytest.raises(BadRequest):
        parse_list("", query)


def test_a_page_is_bounded_whatever_is_requested() -> None:
    assert parse_list("", {}).limit == parse_list("", {"limit": "1000000"}).limit == 500
    assert parse_list("", {"limit": "0"}).limit == 500


def test_oldest_records_beyond_number_and_age_are_removed(tmp_path: Path) -> None:
    clock = ManualClock(NOW)
    store = HistoryStore(tmp_path / "h.db", max_jobs=2, max_age_days=10, clock=clock)
    for number in range(5):
        store.put(record(f"j{number}", ended=NOW - number), settled=True)
    clock.skip(3600)
    store.put(record("last", ended=NOW + 1), settled=True)
    assert names(store) == ["last", "j0"]
    clock.skip(11 * DAY_S)
    store.put(record("new", ended=clock.now()), settled=True)
    assert names(store) == ["new"]


def test_broken_file_is_named_with_the_way_out_and_works_once_it_is_moved_away(
    store: HistoryStore,
) -> None:
    store.path.write_bytes(b"nonsense " * 1000)
    with pytest.raises(HistoryError, match=r"history\.db .*not a database.*mv "):
        store.put(record(), settled=True)
    store.path.rename(store.path.with_suffix(".broken"))
    store.put(record(), settled=True)
    assert names(store) == ["train"]


def test_file_of_a_newer_version_is_refused_and_not_changed(store: HistoryStore) -> None:
    import sqlite3

    with sqlite3.connect(store.path) as connection:
        connection.execute("PRAGMA user_version = 99")
    with pytest.raises(HistoryError, match="format 99 of a newer hekla"):
        store.put(record(), settled=True)


def test_missing_directory_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(HistoryError, match=r"check that .*gone exists"):
        HistoryStore(tmp_path / "gone" / "h.db").put(record(), settled=True)
