"""kill -9 of the whole cluster under load: every job still finishes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hekla.kube import kubeconfig
from hekla.kube.resources import JOBS, PODS
from hekla.kube.sync_client import SyncClient

JOB_COUNT, KILLS, REPLICAS = 12, 3, 2


class Cluster:
    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def hekla(self, *words: str) -> None:
        line = [sys.executable, "-m", "hekla.cli.main", words[0], "--data-dir"]
        subprocess.run(
            [*line, str(self._directory), *words[1:]], check=True, timeout=600, capture_output=True
        )

    def up(self) -> SyncClient:
        self.hekla("up", "--port", "0", "--detach", "--pod-network", "host", "--pod-user", "owner")
        self._is_up = True
        return self.client()

    def up_again(self) -> SyncClient:
        """Start the cluster unless it runs."""
        return self.client() if self._is_up else self.up()

    def client(self) -> SyncClient:
        return SyncClient(kubeconfig.load(self._directory / "kubeconfig"))

    def kill(self) -> None:
        os.kill(int((self._directory / "hekla.pid").read_text()), signal.SIGKILL)
        self._is_up = False


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path / "state")
    yield made
    made.hekla("down")


def job(number: int, notes: Path) -> dict[str, Any]:
    script = f"echo run >> {notes}/{number}-$HOSTNAME; sleep 0.2; exit {number % 4 == 3:d}"
    container = {
        "name": "main",
        "image": "host",
        "command": ["sh", "-c", script],
        "resources": {"requests": {"cpu": "50m"}},
    }
    task = {
        "name": "w",
        "replicas": REPLICAS,
        "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
    }
    metadata = {"name": f"j{number}", "namespace": "default"}
    return {"metadata": metadata, "spec": {"minAvailable": REPLICAS, "tasks": [task]}}


def started(client: SyncClient, count: int) -> None:
    """Wait until so many pods have started (or finished)."""
    seen: set[str] = set()
    with client.watch(PODS, timeout_s=600) as events:
        for event in events:
            if event.object["status"].get("phase") != "Pending":
                seen.add(event.object["metadata"]["uid"])
            if len(seen) >= count:
                return
    raise AssertionError(f"only {len(seen)} pods began")


@pytest.mark.slow
def test_jobs_finish_after_the_cluster_is_killed_and_no_pod_runs_twice(
    cluster: Cluster, tmp_path: Path
) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    with cluster.up() as client:
        for number in range(JOB_COUNT):
            client.create(JOBS, job(number, notes))
    for turn in range(KILLS):
        with cluster.up_again() as client:
            started(client, (turn + 1) * JOB_COUNT * REPLICAS // (KILLS + 2))
        cluster.kill()
    phases: dict[str, str] = {}
    with cluster.up() as client, client.watch(JOBS, timeout_s=600) as events:
        for event in events:
            phase = (event.object.get("status") or {}).get("state", {}).get("phase", "")
            phases[event.object["metadata"]["name"]] = phase
            ended = [p for p in phases.values() if p in ("Completed", "Failed")]
            if len(ended) == JOB_COUNT:
                break
    want = {f"j{n}": "Failed" if n % 4 == 3 else "Completed" for n in range(JOB_COUNT)}
    assert phases == want
    runs = {path.name: path.read_text().count("run") for path in notes.iterdir()}
    assert len(runs) == JOB_COUNT * REPLICAS
    assert set(runs.values()) == {1}, "each pod ran exactly once"
