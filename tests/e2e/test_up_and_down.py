"""`hekla up`, `status`, `run`, `down`: a cluster that persists across restarts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hekla.kube import kubeconfig
from hekla.kube.resources import PODS
from hekla.kube.sync_client import SyncClient

EXAMPLE = Path(__file__).parents[2] / "examples" / "hello-gang.yaml"


class Hekla:
    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir

    def __call__(self, command: str, *arguments: str, code: int = 0) -> str:
        words = [sys.executable, "-m", "hekla.cli.main", command, "--data-dir", str(self.data_dir)]
        done = subprocess.run(
            [*words, *arguments], capture_output=True, text=True, timeout=600, check=False
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    @property
    def pid(self) -> int:
        return int((self.data_dir / "hekla.pid").read_text())


@pytest.fixture
def hekla(tmp_path: Path) -> Iterator[Hekla]:
    made = Hekla(tmp_path / "state")
    yield made
    made("down")


def test_a_cluster_runs_until_hekla_down(hekla: Hekla) -> None:
    assert "no cluster is running" in hekla("status", code=3)
    assert "export KUBECONFIG=" in hekla("up", "--detach")
    assert "1 process" not in hekla("status")
    second = hekla("up", code=1)
    assert "in use by another hekla at https://127.0.0.1:" in second
    assert "job hello-gang: Completed" in hekla("run", str(EXAMPLE))
    assert "3 Succeeded" in hekla("status")
    assert "hekla is down" in hekla("down")
    assert "no cluster is running" in hekla("down")


def test_objects_survive_kill_9(hekla: Hekla) -> None:
    hekla("up", "--detach")
    hekla("run", str(EXAMPLE))
    os.kill(hekla.pid, signal.SIGKILL)
    hekla("up", "--detach")
    assert "3 Succeeded" in hekla("status")
    assert "hello-gang already exists" in hekla("run", str(EXAMPLE), code=1)


def test_jobs_complete_on_simulated_nodes(hekla: Hekla) -> None:
    hekla("up", "--detach", "--no-agent", "--simulated-nodes", "5")
    shown = hekla("run", str(EXAMPLE))
    assert "job hello-gang: Completed" in shown
    assert "nodes     5" in hekla("status")


def test_a_pod_without_a_scheduler_name_runs(hekla: Hekla) -> None:
    """As `kubectl run` creates it: no other scheduler places it."""
    hekla("up", "--detach")
    container = {"name": "main", "image": "host", "command": ["true"]}
    pod = {
        "metadata": {"name": "plain", "namespace": "default"},
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }
    with SyncClient(kubeconfig.load(hekla.data_dir / "kubeconfig")) as client:
        client.create(PODS, pod)
        with client.watch(PODS, timeout_s=600) as events:
            assert any(e.object["status"].get("phase") == "Succeeded" for e in events)
