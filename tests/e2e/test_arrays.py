"""Job arrays with real processes: `hekla run --array`, a retry, and a cluster that is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tools.waiting import until

from hekla.kube import kubeconfig
from hekla.kube.data_dir import running_pid
from hekla.kube.resources import PODS
from hekla.kube.sync_client import SyncClient

HEKLA = [sys.executable, "-m", "hekla.cli.main"]


def hekla(*words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*HEKLA, *words], capture_output=True, text=True, timeout=600, check=False, cwd=cwd
    )


def up(where: Path) -> None:
    started = hekla("up", "--port", "0", "-d", "--pod-user", "owner", "--data-dir", str(where))
    assert started.returncode == 0, started.stderr


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Path]:
    where = tmp_path / "cluster"
    up(where)
    yield where
    hekla("down", "--data-dir", str(where))


def test_array_runs_each_index_once_and_a_retry_only_those_that_failed(
    cluster: Path, tmp_path: Path
) -> None:
    script = (
        "echo $SLURM_ARRAY_TASK_ID of $SLURM_ARRAY_TASK_COUNT >> ran; "
        "test -e repaired || test $HEKLA_ARRAY_INDEX != 3 || exit 9"
    )
    where = ("--data-dir", str(cluster))
    words = ("run", *where, "--name", "sweep", "--array", "1-9:2%2", "--cpu", "10m")
    done = hekla(*words, "--", "sh", "-c", script, cwd=tmp_path)
    assert done.returncode == 9, done.stdout + done.stderr
    assert sorted((tmp_path / "ran").read_text().splitlines()) == [
        f"{n} of 5" for n in (1, 3, 5, 7, 9)
    ]
    assert "failed indices 3: exit code 9" in done.stdout
    assert "job sweep: 5/5 done, 1 failed" in done.stdout
    (tmp_path / "repaired").touch()
    (tmp_path / "ran").unlink()
    retried = hekla("job", "retry", "sweep", *where)
    assert retried.stdout == "run job sweep-retry-1 successfully\n", retried.stderr
    waited = hekla("job", "wait", "sweep-retry-1", *where)
    assert waited.stdout == "job sweep-retry-1 is Completed\n"
    assert (tmp_path / "ran").read_text() == "3 of 5\n"


def test_array_goes_on_after_the_cluster_is_killed(cluster: Path, tmp_path: Path) -> None:
    """At most two at a time, and no index twice."""
    script = "echo $HEKLA_ARRAY_INDEX >> ran; until test -e go; do sleep 0.05; done"
    manifest = hekla(
        "job", "submit", "sweep", "--image", "host", "--array", "0-5%2", "--cpu", "10m",
        "--workdir", str(tmp_path), "-k", f"{cluster}/kubeconfig", "-c", script,
    )  # fmt: skip
    assert manifest.returncode == 0, manifest.stderr
    ran = tmp_path / "ran"
    until(lambda: ran.exists() and len(ran.read_text().split()) == 2)
    pid = running_pid(cluster)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    until(lambda: running_pid(cluster) is None)
    up(cluster)
    with SyncClient(kubeconfig.load(cluster / "kubeconfig")) as client:
        assert len(client.list(PODS, namespace="default").items) == 2
    (tmp_path / "go").touch()
    waited = hekla("job", "wait", "sweep", "-k", f"{cluster}/kubeconfig")
    assert waited.stdout == "job sweep is Completed\n", waited.stderr
    assert sorted(ran.read_text().split()) == ["0", "1", "2", "3", "4", "5"]
