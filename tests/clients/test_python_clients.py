"""Programs written with the official client, kopf and hera."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml
from tools.waiting import until

from hekla.kube.resources import EVENTS, JOBS
from hekla.kube.sync_client import SyncClient
from tests.clients.conftest import LIMIT_S, Run
from tests.clients.standing import RUNS, installed, stands_for
from tests.realkube.backends import finish
from tests.realkube.test_jobs import job, phase, pods

pytestmark = pytest.mark.clients
PROGRAMS = Path(__file__).parent / "programs"


@stands_for(
    "kubernetes (official Python client)",
    version=installed("kubernetes"),
    how=RUNS,
    kinds=("Job", "Pod"),
    note="CustomObjectsApi, watch.Watch",
)
def test_the_official_client_watches_a_job_until_it_completes(run: Run, namespace: str) -> None:
    lines = run("python", str(PROGRAMS / "watching.py"), namespace).splitlines()
    assert lines[0].startswith("ADDED ")
    assert "MODIFIED Running" in lines
    assert lines[-2:] == ["MODIFIED Completed", "pods watched-worker-0 watched-worker-1"]


@stands_for(
    "kopf",
    version=installed("kopf"),
    how=RUNS,
    kinds=("Job", "Event"),
    note="an operator for Volcano Jobs",
)
def test_an_operator_written_with_kopf_follows_a_job(
    environment: dict[str, str], client: SyncClient, namespace: str, tmp_path: Path
) -> None:
    words = ["python", str(PROGRAMS / "operating.py"), namespace]
    log = tmp_path / "operator.log"
    with log.open("wb") as said:
        operator = subprocess.Popen(
            words, env=environment, cwd=tmp_path, stdout=said, stderr=subprocess.STDOUT
        )
    try:
        client.create(JOBS, job("followed"), namespace=namespace)
        until(lambda: phase(client, namespace, "followed") == "Running")
        until(lambda: "example.com/saw-running" in _marks(client, namespace))
        for pod in pods(client, namespace):
            finish(client, namespace, pod["metadata"]["name"])
        assert operator.wait(LIMIT_S) == 0, log.read_text()[-4000:]
    finally:
        operator.kill()
        operator.wait()
    marks = _marks(client, namespace)
    assert marks["example.com/greeted"] == "yes"
    assert marks["example.com/saw-completed"] == "yes"
    until(lambda: "Greeted" in {e["reason"] for e in client.list(EVENTS, namespace=namespace)})


def _marks(client: SyncClient, namespace: str) -> dict[str, str]:
    found = client.get(JOBS, "followed", namespace=namespace)
    marks: dict[str, str] = found["metadata"].get("annotations") or {}
    return marks


@stands_for(
    "hera",
    version=installed("hera"),
    how=RUNS,
    kinds=("Job",),
    note="its manifest, created as Argo's resource step does",
)
def test_the_job_in_a_workflow_of_hera_is_accepted(
    run: Run, client: SyncClient, namespace: str
) -> None:
    workflow = yaml.safe_load(run("python", str(PROGRAMS / "workflow.py")))
    assert workflow["spec"]["schedulerName"] == "volcano"
    (step,) = [t["resource"] for t in workflow["spec"]["templates"] if "resource" in t]
    made = client.create(JOBS, yaml.safe_load(step["manifest"]), namespace=namespace)
    name = made["metadata"]["name"]
    until(lambda: phase(client, namespace, name) == "Running")
    for pod in pods(client, namespace):
        finish(client, namespace, pod["metadata"]["name"])
    until(lambda: phase(client, namespace, name) == "Completed")
    assert step["successCondition"] == f"status.state.phase = {phase(client, namespace, name)}"
