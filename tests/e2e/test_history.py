"""The history over kill -9: each job has one record, with what really happened."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from hekla import JobHandle
from hekla.kube.resources import JOBS
from hekla.records.store import HISTORY_FILE, HistoryStore, RecordFilter
from hekla.sdk.job_history import history
from tests.e2e.test_kills import Cluster
from tests.faults.waiting import until


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path / "state")
    yield made
    made.hekla("down")


def job(name: str, script: str) -> dict[str, Any]:
    container = {
        "name": "main",
        "image": "host",
        "command": ["sh", "-c", script],
        "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}},
    }
    task = {
        "name": "w",
        "replicas": 2,
        "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
    }
    spec = {"minAvailable": 2, "maxRetry": 1, "tasks": [task]}
    return {"metadata": {"name": name, "namespace": "default"}, "spec": spec}


def test_history_is_right_after_a_kill_in_the_middle(cluster: Cluster, tmp_path: Path) -> None:
    go = tmp_path / "go"
    with cluster.up() as client:
        client.create(JOBS, job("first", "exit 3"))
        client.create(JOBS, job("second", f"until [ -e {go} ]; do sleep 0.05; done"))
        JobHandle.of("second", client=client).wait("Running", timeout_s=300)
        JobHandle.of("first", client=client).wait(timeout_s=300)
        cluster.kill()
    go.touch()  # the pods end while no cluster runs
    with cluster.up() as client:
        JobHandle.of("second", client=client).wait(timeout_s=300)
        until(lambda: len(history(client=client)) == 2)
        for name in ("first", "second"):
            JobHandle.of(name, client=client).delete()
        found = {record.name: record for record in history(client=client)}
    with closing(HistoryStore(tmp_path / "state" / HISTORY_FILE)) as store:
        until(lambda: all(store.is_settled(record.uid) for record in found.values()))
        assert len(store.page(RecordFilter(), limit=10).records) == 2
        found = {record.name: record for record in store.page(RecordFilter(), limit=10).records}
    assert found["first"].phase == "Failed"
    assert found["first"].exit_codes["3"] >= 1
    assert found["second"].phase == "Completed"
    assert found["second"].exit_codes == {"0": 2}
    assert found["second"].requests == {"cpu": 0.2, "memory": 128.0 * 2**20}
    assert found["second"].resource_seconds["cpu"] > 0
