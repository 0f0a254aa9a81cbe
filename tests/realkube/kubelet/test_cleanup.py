"""A cluster with kubelets leaves nothing on the machine: no process, mount, cgroup or interface."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tools.kube import guard, images
from tools.kube.kubelets import KubeletCluster, missing
from tools.waiting import until

from hekla.kube.resources import PODS
from tests.realkube.backends import create_namespace
from tests.realkube.kubelet.jobs import FOREVER, IMAGE

pytestmark = pytest.mark.kubelet
ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def needs_kubelets() -> None:
    if reason := missing():
        pytest.skip(reason)


def run_a_pod(cluster: KubeletCluster, directory: Path) -> None:
    """Run a container with a volume, so that mounts, cgroups and a network exist."""
    archive = directory / "image.tar"
    archive.write_bytes(images.busybox_archive(IMAGE))
    cluster.import_image(archive)
    container = {
        "name": "main",
        "image": IMAGE,
        "command": ["sh", "-c", FOREVER],
        "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
    }
    volume = {"name": "scratch", "emptyDir": {"medium": "Memory"}}
    spec = {"nodeName": "node-0", "containers": [container], "volumes": [volume]}
    with cluster.client() as client:
        create_namespace(client, "t")
        client.create(PODS, {"metadata": {"name": "p"}, "spec": spec}, namespace="t")
        until(lambda: client.get(PODS, "p", namespace="t")["status"].get("phase") == "Running")


def left(directory: Path) -> Iterator[str]:
    """Yield what is on the machine of a cluster in this directory."""
    mark = str(directory)
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if mark in words and int(process.name) != os.getpid():
            yield words
    yield from (line for line in Path("/proc/mounts").read_text().splitlines() if mark in line)
    for top in guard.hierarchies():
        for path in (each for each in (top / guard.TOP).glob("*") if each.is_dir()):
            with guard.locked(path.name) as is_unused:
                if is_unused:
                    yield str(path)


def addresses() -> list[str]:
    """Return what this machine has of the address ranges of a cluster."""
    said = subprocess.run(
        ["ip", "-oneline", "address"], capture_output=True, text=True, check=True
    ).stdout
    return [line for line in said.splitlines() if re.search(r" 10\.(77|96|99)\.", line)]


def test_a_stopped_cluster_leaves_nothing(tmp_path: Path) -> None:
    before = addresses()
    with KubeletCluster(tmp_path / "cluster", kubelets=1) as cluster:
        run_a_pod(cluster, tmp_path)
        cgroups = [top / cluster.cgroup for top in guard.hierarchies()]
        assert all(path.is_dir() for path in cgroups)
        assert list(left(tmp_path))
    assert list(left(tmp_path)) == []
    assert not any(path.exists() for path in cgroups)
    assert addresses() == before


def test_a_killed_runner_leaves_nothing(tmp_path: Path) -> None:
    before = addresses()
    runner = f"""
import signal, sys
from pathlib import Path
from tests.realkube.kubelet.test_cleanup import KubeletCluster, run_a_pod
where = Path({str(tmp_path)!r})
cluster = KubeletCluster(where / "cluster", kubelets=1)
cluster.start()
run_a_pod(cluster, where)
print(cluster.cgroup, flush=True)
signal.pause()
"""
    with subprocess.Popen(
        [sys.executable, "-c", runner], stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as killed:
        assert killed.stdout is not None
        cgroup = killed.stdout.readline().strip()
        assert cgroup
        killed.send_signal(signal.SIGKILL)
    until(lambda: not list(left(tmp_path)))
    until(lambda: not any((top / cgroup).exists() for top in guard.hierarchies()))
    assert addresses() == before


def test_cgroups_of_a_killed_guard_are_removed_by_the_next(tmp_path: Path) -> None:
    cluster = KubeletCluster(tmp_path / "cluster", kubelets=1)
    cluster.start()
    run_a_pod(cluster, tmp_path)
    os.kill(cluster.processes.pids()["guard"], signal.SIGKILL)
    until(lambda: not [line for line in left(tmp_path) if "containerd" in line])
    cluster.stop()
    until(lambda: list(left(tmp_path)))  # its cgroups
    guard.remove_leftovers()
    until(lambda: not list(left(tmp_path)))
