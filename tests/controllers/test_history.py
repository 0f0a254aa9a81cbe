"""The history: what a record says, and that each job is recorded once, also over restarts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hekla.api.history import PodUsage, usage_condition
from hekla.api.wellknown import ARRAY_RETRIED
from hekla.controllers.history.accounting import JobView, job_record, pod_account
from hekla.kube.resources import JOBS
from hekla.records.store import HistoryStore, RecordFilter
from hekla.units.objects import Object
from hekla.units.timestamps import format_time, parse_time

from . import manifests
from .builders import NOW, job, pod, recorded
from .cluster import Cluster, running_cluster


def ran(of: Object, index: int, *, code: int = 0, ran_s: float = 60, cpu_s: float | None = None,
        peak: int = 0, uid: str = "") -> Object:  # fmt: skip
    """Return a pod that was placed, ran and ended at NOW."""
    made = pod(of, "worker", index, "Failed" if code else "Succeeded", exit_code=code, ended=NOW)
    status = made["status"]
    ended = status["containerStatuses"][0]["state"]["terminated"]
    ended["startedAt"] = format_time(NOW - ran_s)
    status["conditions"] = [
        {"type": "PodScheduled", "status": "True",
         "lastTransitionTime": format_time(NOW - ran_s - 5)}
    ]  # fmt: skip
    if cpu_s is not None:
        status["conditions"].append(usage_condition(PodUsage(cpu_s, peak), format_time(NOW)))
    if uid:
        made["metadata"]["uid"] = uid
    return made


def view(of: Object, *pods: Object, deleted_at: float | None = None) -> JobView:
    return JobView(of, None, [pod_account(each) for each in pods], NOW + 1, deleted_at)


def test_record_sums_requests_times_exit_codes_and_outcome() -> None:
    made = job(queue="ml", priorityClassName="high", annotations={"hekla.io/submitted-by": "alice"})
    pods = [ran(made, 0), ran(made, 1, code=3)]
    found = job_record(view(recorded(made, pods, "Failed", reason="PodFailed"), *pods))
    assert (found.phase, found.reason) == ("Failed", "PodFailed")
    assert (found.user, found.queue, found.priority_class) == ("alice", "ml", "high")
    assert found.requests == {"cpu": 2.0}
    assert [(each.name, each.pods, each.requests) for each in found.tasks] == [
        ("worker", 2, {"cpu": 1.0})
    ]
    assert found.resource_seconds == {"cpu": 130.0}  # two pods, each held for 65 s
    assert found.exit_codes == {"0": 1, "3": 1}
    assert (found.pods_succeeded, found.pods_failed) == (1, 1)
    assert (found.wait_seconds, found.run_seconds) == (40.0, 60.0)
    assert found.measured is None
    assert found.cpu_efficiency is None


def test_efficiency_compares_only_what_was_measured() -> None:
    made = job()
    pods = [ran(made, 0, cpu_s=30.0, peak=1000), ran(made, 1)]
    found = job_record(view(recorded(made, pods, "Completed"), *pods))
    assert found.measured is not None
    assert found.measured.pods == 1
    assert found.cpu_efficiency == 0.5
    assert found.measured.memory_peak_bytes == 1000
    assert found.memory_efficiency is None  # no memory was requested


@pytest.mark.parametrize(
    ("retried", "want"),
    [('{"1": "3,7-9", "2": "0"}', 6), ("{}", 0), ("nonsense", 0), ('{"x": "1"}', 0), ("[1]", 0)],
)
def test_retries_of_an_array_are_those_of_all_its_indices(retried: str, want: int) -> None:
    made = job()
    made["metadata"].setdefault("annotations", {})[ARRAY_RETRIED] = retried
    pods = [ran(made, 0), ran(made, 1)]
    assert job_record(view(recorded(made, pods, "Completed"), *pods)).retries == want


def test_pods_of_earlier_attempts_count() -> None:
    made = job()
    first = [ran(made, 0, code=1, uid="old-0", ran_s=100), ran(made, 1, uid="old-1", ran_s=100)]
    last = [ran(made, 0), ran(made, 1)]
    found = job_record(view(recorded(made, last, "Completed", retry_count=1), *first, *last))
    assert found.retries == 1
    assert found.resource_seconds == {"cpu": 2 * 105.0 + 2 * 65.0}
    assert found.exit_codes == {"0": 3, "1": 1}


def test_job_deleted_while_it_waits_is_cancelled_with_its_waiting_time() -> None:
    found = job_record(view(recorded(job(), [], "Pending"), deleted_at=NOW))
    assert (found.phase, found.reason) == ("Cancelled", "Deleted")
    assert found.message == "deleted while Pending"
    assert found.started is None
    assert (found.wait_seconds, found.run_seconds) == (100.0, 0.0)
    assert found.resource_seconds == {}


def test_nonsense_in_a_pod_makes_no_record_impossible() -> None:
    made = job()
    odd = ran(made, 0)
    odd["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "many"}}
    odd["status"]["conditions"].append(
        {"type": "hekla.io/ResourceUsage", "message": '{"cpu_seconds": -1}'}
    )
    odd["status"]["startTime"] = "yesterday"
    account = pod_account(odd)
    assert (account.requests, account.cpu_seconds) == ({}, None)
    assert job_record(view(recorded(made, [odd], "Completed"), odd)).phase == "Completed"


def test_job_is_settled_when_none_of_its_pods_holds_resources() -> None:
    made = job()
    running = pod(made, "worker", 1)
    running["status"]["startTime"] = format_time(NOW - 5)
    unplaced = pod(made, "worker", 1, "Pending")
    assert view(made, ran(made, 0), unplaced).is_settled
    assert not view(made, ran(made, 0), running).is_settled


# With controllers


def records(store: HistoryStore) -> dict[str, str]:
    return {each.name: each.phase for each in store.page(RecordFilter(), limit=100).records}


async def submit(cluster: Cluster, name: str, **spec: Any) -> None:
    await cluster.client.create(JOBS, manifests.job(name, manifests.task("worker", 2), **spec))
    await cluster.has_pods(2, "Pending")


async def test_ended_and_cancelled_jobs_are_recorded_once(tmp_path: Path) -> None:
    store = HistoryStore(tmp_path / "history.db")
    async with running_cluster(tmp_path / "data", history=store) as cluster:
        await submit(cluster, "train")
        await cluster.run()
        await cluster.succeed()
        await cluster.reaches("Completed")
        await cluster.until(lambda: records(store), "the job is recorded")
        await cluster.settle()
        assert records(store) == {"train": "Completed"}
        await cluster.client.delete(JOBS, "train", namespace="default")
        await cluster.has_pods(0)
        await submit(cluster, "unwanted")
        await cluster.client.delete(JOBS, "unwanted", namespace="default")
        await cluster.until(lambda: len(records(store)) == 2, "the cancelled job is recorded")
        await cluster.settle()
        assert records(store) == {"train": "Completed", "unwanted": "Cancelled"}


async def test_job_that_ended_while_no_controller_recorded_is_recorded_at_the_next_start(
    tmp_path: Path,
) -> None:
    store = HistoryStore(tmp_path / "history.db")
    async with running_cluster(tmp_path / "data") as cluster:
        await submit(cluster, "train")
        await cluster.run()
        await cluster.succeed()
        ended = await cluster.reaches("Completed")
        await cluster.stop()
        await cluster.start(history=store)
        await cluster.until(lambda: records(store), "the job is recorded")
        (found,) = store.page(RecordFilter(), limit=10).records
        assert found.finished.timestamp() == parse_time(
            ended["status"]["state"]["lastTransitionTime"]
        )
        await cluster.stop()
        await cluster.start(history=store)
        await cluster.settle()
        assert store.page(RecordFilter(), limit=10).records == [found]


async def test_restarted_job_counts_the_pods_of_every_attempt_over_a_restart(
    tmp_path: Path,
) -> None:
    store = HistoryStore(tmp_path / "history.db")
    async with running_cluster(tmp_path / "data", history=store) as cluster:
        policies = [{"event": "PodFailed", "action": "RestartJob"}]
        await submit(cluster, "train", policies=policies, maxRetry=3)
        await cluster.run()
        await cluster.fail("train-worker-0", code=7)
        await cluster.has_pods(2, "Pending")
        await cluster.settle()
        await cluster.stop()
        await cluster.start(history=store)
        await cluster.run()
        await cluster.succeed()
        await cluster.reaches("Completed")
        await cluster.until(lambda: records(store), "the job is recorded")
        (found,) = store.page(RecordFilter(), limit=10).records
        assert found.retries == 1
        assert found.exit_codes["7"] == 1
        assert found.exit_codes["0"] == 2


async def test_broken_history_file_stops_no_controller_and_jobs_are_recorded_later(
    tmp_path: Path,
) -> None:
    path = tmp_path / "history.db"
    path.write_bytes(b"nonsense " * 1000)
    store = HistoryStore(path)
    async with running_cluster(tmp_path / "data", history=store) as cluster:
        await submit(cluster, "train")
        await cluster.run()
        await cluster.succeed()
        await cluster.reaches("Completed")
        await cluster.stop()
        path.unlink()
        await cluster.start(history=store)
        await cluster.until(lambda: records(store), "the job is recorded")
