"""Job arrays on both servers: parallelism, retries, and the indices that failed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tools.waiting import until

from hekla.kube.errors import KubeError
from hekla.kube.resources import JOBS
from hekla.kube.sync_client import SyncClient
from tests.realkube.backends import finish
from tests.realkube.test_jobs import job, phase, pods

Vcctl = Callable[..., str]


def array(indices: str, **marks: str) -> dict[str, Any]:
    made = job("sweep")
    del made["spec"]["tasks"][0]["replicas"]
    annotations = {f"hekla.io/array-{key}": value for key, value in marks.items()}
    made["metadata"]["annotations"] = {"hekla.io/array-indices": indices, **annotations}
    return made


def running(client: SyncClient, namespace: str) -> set[str]:
    found = pods(client, namespace)
    assert sum(p["status"]["phase"] in ("Pending", "Running") for p in found) <= 2
    return {p["metadata"]["name"] for p in found if p["status"]["phase"] == "Running"}


def test_two_pods_run_at_a_time_and_a_failed_index_is_retried_once(
    client: SyncClient, namespace: str, vcctl: Vcctl
) -> None:
    made = array("1,3,7-8", parallelism="2", retries="1")
    stored = client.create(JOBS, made, namespace=namespace)
    assert (stored["spec"]["minAvailable"], stored["spec"]["minSuccess"]) == (1, 4)
    until(lambda: running(client, namespace) == {"sweep-worker-1", "sweep-worker-3"})
    first = {p["metadata"]["name"]: p["metadata"]["uid"] for p in pods(client, namespace)}
    finish(client, namespace, "sweep-worker-1", "Failed")

    def is_retried() -> bool:
        now = {p["metadata"]["name"]: p["metadata"]["uid"] for p in pods(client, namespace)}
        return now.get("sweep-worker-1") not in (None, first["sweep-worker-1"])

    until(is_retried)
    until(lambda: running(client, namespace) == {"sweep-worker-1", "sweep-worker-3"})
    finish(client, namespace, "sweep-worker-1", "Failed")
    until(lambda: running(client, namespace) == {"sweep-worker-3", "sweep-worker-7"})
    for name in ("sweep-worker-3", "sweep-worker-7"):
        finish(client, namespace, name)
    until(lambda: running(client, namespace) == {"sweep-worker-8"})
    finish(client, namespace, "sweep-worker-8")
    until(lambda: phase(client, namespace, "sweep") == "Failed")
    shown = vcctl("job", "view", "sweep", "-n", namespace)
    assert "Array:\t4/4 done, 1 failed" in shown
    assert "  Succeeded:\t3,7-8" in shown
    assert "run job sweep-retry-1 successfully" in vcctl("job", "retry", "sweep", "-n", namespace)
    until(lambda: phase(client, namespace, "sweep-retry-1") == "Running")
    finish(client, namespace, "sweep-retry-1-worker-1")
    until(lambda: phase(client, namespace, "sweep-retry-1") == "Completed")


def test_array_that_is_no_array_is_refused(client: SyncClient, namespace: str) -> None:
    with pytest.raises(KubeError, match="ends before it starts; write 3-9"):
        client.create(JOBS, array("9-3"), namespace=namespace)
    with pytest.raises(KubeError, match="not a positive number"):
        client.create(JOBS, array("0-9", parallelism="0"), namespace=namespace)
