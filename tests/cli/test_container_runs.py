"""Which runs of containers there are to be read, from what is heard of their pods."""

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


def run(number: int, **more: bool) -> Run:
    return Run("ns", "p", "u", "main", number, **more)


def test_a_run_is_taken_up_once() -> None:
    runs = Runs()
    assert runs.new_runs(pod(0, RUNNING)) == [run(0)]
    assert runs.new_runs(pod(0, ENDED)) == []


def test_a_restart_is_a_run_of_its_own() -> None:
    runs = Runs()
    runs.new_runs(pod(0, RUNNING))
    assert runs.new_runs(pod(0, WAITING, ENDED)) == []
    assert runs.new_runs(pod(1, RUNNING, ENDED)) == [run(1, is_restart=True)]


def test_a_run_that_nobody_heard_of_is_read_before_the_latest() -> None:
    runs = Runs()
    runs.new_runs(pod(0, RUNNING))
    assert runs.new_runs(pod(2, ENDED, ENDED)) == [
        run(1, is_previous=True, is_restart=True),
        run(2, is_restart=True),
    ]


def test_a_pod_that_restarted_before_it_is_seen_is_read_from_the_latest_run_as_by_kubectl() -> None:
    assert Runs().new_runs(pod(1, RUNNING, ENDED)) == [run(1)]


def test_from_the_start_also_the_run_before_is_read() -> None:
    runs = Runs(from_the_start=True)
    assert runs.new_runs(pod(1, RUNNING, ENDED)) == [run(0, is_previous=True), run(1)]


def test_a_container_that_never_ran_has_nothing_to_be_read() -> None:
    assert Runs().new_runs(pod(0, {"waiting": {"reason": "ContainerCreating"}})) == []
    assert Runs().new_runs({**pod(0, RUNNING), "status": {"phase": "Pending"}}) == []


def test_where_a_node_tells_nothing_of_containers_their_first_run_is_read() -> None:
    assert Runs().new_runs({**pod(0, RUNNING), "status": {"phase": "Running"}}) == [run(0)]


def test_one_container_can_be_asked_for() -> None:
    assert Runs().new_runs(pod(0, RUNNING), only="other") == []
