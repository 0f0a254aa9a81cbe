"""Runs of containers, from pod events."""

from __future__ import annotations

from typing import Any

from hekla.sdk.container_runs import Run, Runs
from hekla.units.objects import Object

RUNNING: Object = {"running": {}}
ENDED: Object = {"terminated": {"exitCode": 1}}
WAITING = {"waiting": {"reason": "CrashLoopBackOff"}}


def pod(restarts: int, state: dict[str, Any], last: dict[str, Any] | None = None) -> dict[str, Any]:
    status = {"name": "main", "restartCount": restarts, "state": state, "lastState": last or {}}
    return {
        "metadata": {"name": "p", "namespace": "ns", "uid": "u"},
        "spec": {"containers": [{"name": "main"}]},
        "status": {"phase": "Running", "containerStatuses": [status]},
    }


def run(number: int, **more: Any) -> Run:
    return Run("ns", "p", "u", "main", number, **more)


def test_run_is_returned_once() -> None:
    runs = Runs()
    assert runs.new_runs(pod(0, RUNNING)) == [run(0)]
    assert runs.new_runs(pod(0, ENDED)) == []


def test_restart_is_a_new_run() -> None:
    runs = Runs()
    runs.new_runs(pod(0, RUNNING))
    assert runs.new_runs(pod(0, WAITING, ENDED)) == []
    assert runs.new_runs(pod(1, RUNNING, ENDED)) == [run(1, is_restart=True)]


def test_missed_run_is_read_before_the_latest() -> None:
    runs = Runs()
    runs.new_runs(pod(0, RUNNING))
    assert runs.new_runs(pod(2, ENDED, ENDED)) == [
        run(1, is_previous=True, is_restart=True),
        run(2, is_restart=True),
    ]


def test_pod_restarted_before_the_first_event_is_read_from_the_latest_run() -> None:
    assert Runs().new_runs(pod(1, RUNNING, ENDED)) == [run(1)]


def test_from_the_start_also_reads_the_previous_run() -> None:
    runs = Runs(from_the_start=True)
    assert runs.new_runs(pod(1, RUNNING, ENDED)) == [run(0, is_previous=True), run(1)]


def test_container_that_never_ran_has_no_run() -> None:
    assert Runs().new_runs(pod(0, {"waiting": {"reason": "ContainerCreating"}})) == []
    assert Runs().new_runs({**pod(0, RUNNING), "status": {"phase": "Pending"}}) == []


def test_missing_container_status_counts_as_the_first_run() -> None:
    assert Runs().new_runs({**pod(0, RUNNING), "status": {"phase": "Running"}}) == [run(0)]


def test_runs_can_be_limited_to_one_container() -> None:
    assert Runs().new_runs(pod(0, RUNNING), only="other") == []
