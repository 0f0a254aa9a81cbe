"""The first manifests of the documentation work as written."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from hekla.apiserver.server import ApiServer, Config
from hekla.kube import kubeconfig
from hekla.kube.client import Client
from hekla.kube.resources import JOBS, PODGROUPS, QUEUES

FOUNDING = Path(__file__).parents[2] / "examples" / "founding"
KINDS = {"Queue": QUEUES, "PodGroup": PODGROUPS, "Job": JOBS}


def objects(name: str) -> list[dict[str, object]]:
    return list(yaml.safe_load_all((FOUNDING / name).read_text()))


async def test_every_manifest_is_accepted(tmp_path: Path) -> None:
    async with (
        ApiServer(Config(data_dir=tmp_path)) as server,
        Client(kubeconfig.load(server.kubeconfig)) as client,
    ):
        for name in ("compute", "data-processing"):  # queues that the jobs use
            await client.create(QUEUES, {"metadata": {"name": name}, "spec": {}})
        first = ["queues.yaml", "podgroup.yaml"]
        rest = sorted(path.name for path in FOUNDING.glob("*.yaml") if path.name not in first)
        for name in [*first, *rest]:
            for obj in objects(name):
                made = await client.create(KINDS[str(obj["kind"])], obj)
                assert made["metadata"]["uid"], name


def need_mpi() -> None:
    """Open MPI and an ssh server, installed if possible."""
    if shutil.which("mpirun") and Path("/usr/sbin/sshd").exists():
        return
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        pytest.skip("needs openmpi-bin and openssh-server, and root with apt-get to install them")
    with Path("/tmp/hekla-apt.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        for words in (
            ["apt-get", "update", "-qq"],
            ["apt-get", "install", "-qq", "-y", "--no-install-recommends", "openmpi-bin",
             "openssh-server"],
        ):  # fmt: skip
            subprocess.run(words, env=environment, check=True, capture_output=True, timeout=600)


def need_networks() -> None:
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("needs root and the command ip (iproute2) for networks of pods")


@pytest.mark.slow
def test_real_mpi_runs_over_ssh_between_pods(tmp_path: Path) -> None:
    need_mpi()
    need_networks()
    (tmp_path / "config" / "hekla").mkdir(parents=True)
    (tmp_path / "config" / "hekla" / "images.toml").write_text(
        '[images]\n"mpi-app:*" = { host = true }\n'
    )
    environment = {**os.environ, "XDG_CONFIG_HOME": str(tmp_path / "config")}

    def hekla(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "hekla.cli.main", *words[:1], "--data-dir",
             str(tmp_path / "state"), *words[1:]],
            capture_output=True, text=True, timeout=600, check=False, env=environment,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    hekla("up", "--port", "0", "--detach", "--pod-network", "bridge")
    try:
        shown = hekla("run", str(FOUNDING / "mpi-ssh.yaml"))
    finally:
        hekla("down")
    assert "job mpi-ssh: Completed" in shown
    for worker in ("mpi-ssh-mpiworker-0", "mpi-ssh-mpiworker-1"):
        assert f"mpi-ssh-mpimaster-0 | {worker}" in shown, "each worker printed its own name"
