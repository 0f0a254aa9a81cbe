"""torchx run, status, list, cancel and log with its Kubernetes scheduler."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tools.waiting import until

from hekla.kube.resources import JOBS
from hekla.kube.sync_client import SyncClient
from tests.clients.conftest import LIMIT_S, Run
from tests.clients.standing import RUNS, installed, stands_for
from tests.realkube.backends import finish
from tests.realkube.test_jobs import phase, pods

pytestmark = pytest.mark.clients
HANDLE = re.compile(r"kubernetes://\S+/(\S+):(\S+)")
VERSION = installed("torchx")


def handle(printed: str) -> tuple[str, str]:
    """Return the app handle and the name of the job."""
    found = HANDLE.search(printed)
    assert found is not None, printed
    return found[0], found[2]


@stands_for("torchx", version=VERSION, how=RUNS, kinds=("Job", "Pod"), note="run, status, list")
def test_an_app_runs_and_its_status_is_reported(
    run: Run, client: SyncClient, namespace: str
) -> None:
    options = f"queue=default,namespace={namespace}"
    printed = run("torchx", "run", "-s", "kubernetes", "--workspace=", "-cfg", options, "dist.ddp",
                  "--script", "train.py", "-j", "2x1", "--image", "none",
                  "--cpu", "1", "--memMB", "100")  # fmt: skip
    app, job = handle(printed)
    made = client.get(JOBS, job, namespace=namespace)
    assert [task["replicas"] for task in made["spec"]["tasks"]] == [1, 1]
    assert made["spec"]["minAvailable"] == 2  # torchx does not set it: admission sums the replicas
    until(lambda: phase(client, namespace, job) == "Running")
    assert "RUNNING" in run("torchx", "status", app)
    assert re.search(rf"{job}\s+RUNNING", run("torchx", "list", "-s", "kubernetes"))
    members = pods(client, namespace)
    variables = [e["name"] for p in members for e in p["spec"]["containers"][0]["env"]]
    assert any(re.fullmatch(r"VC_\w+_0_HOSTS", name) for name in variables)
    for pod in members:
        assert re.fullmatch(rf"{job}-\S+-\d-0", pod["metadata"]["name"])
        finish(client, namespace, pod["metadata"]["name"])
    until(lambda: phase(client, namespace, job) == "Completed")
    assert "SUCCEEDED" in run("torchx", "status", app)


@stands_for("torchx", version=VERSION, how=RUNS, kinds=("Job",), note="cancel")
def test_an_app_is_cancelled(run: Run, client: SyncClient, namespace: str) -> None:
    options = f"queue=default,namespace={namespace}"
    words = ("utils.echo", "--image", "none", "--msg", "hello")
    app, job = handle(
        run("torchx", "run", "-s", "kubernetes", "--workspace=", "-cfg", options, *words)
    )
    until(lambda: phase(client, namespace, job) == "Running")
    run("torchx", "cancel", app)
    until(lambda: client.find(JOBS, job, namespace=namespace) is None)
    until(lambda: not pods(client, namespace))


@pytest.fixture
def machine(clients: Path, tmp_path: Path) -> Iterator[dict[str, str]]:
    """`hekla up` with a node that runs processes, so that logs exist."""
    data = tmp_path / "data"
    hekla = [sys.executable, "-m", "hekla.cli.main"]
    words = ["--data-dir", str(data)]
    subprocess.run(
        [*hekla, "up", "--port", "0", "--detach", "--host-images", *words],
        check=True,
        timeout=LIMIT_S,
    )
    yield {
        **os.environ,
        "HOME": str(tmp_path),
        "KUBECONFIG": str(data / "kubeconfig"),
        "PATH": f"{clients}{os.pathsep}{os.environ['PATH']}",
    }
    subprocess.run([*hekla, "down", *words], check=True, timeout=LIMIT_S)


@stands_for(
    "torchx",
    version=VERSION,
    how=RUNS,
    kinds=("Job", "Pod"),
    servers=("embedded",),
    note="log, of programs that `hekla up` runs",
)
def test_the_log_of_an_app_that_ran_is_shown(machine: dict[str, str], tmp_path: Path) -> None:
    def torchx(*words: str) -> str:
        done = subprocess.run(
            ["torchx", *words],
            env=machine,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    options = "queue=default,namespace=default"
    words = ("utils.echo", "--image", "any", "--msg", "hello from torchx", "--num_replicas", "2")
    app, _ = handle(
        torchx("run", "-s", "kubernetes", "--workspace=", "-cfg", options, "--wait", *words)
    )
    assert "SUCCEEDED" in torchx("status", app)
    shown = torchx("log", f"{app}/echo/0")
    assert "hello from torchx" in shown
    assert "hello from torchx" in torchx("log", f"{app}/echo/1")
