"""Ordinary Kubernetes manifests on one machine, with kubectl and real processes."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tools.waiting import PATIENCE_S, until

from hekla.units.objects import Object
from tests.apiserver.kubectl.conftest import as_text, find_kubectl
from tests.e2e.test_up_and_down import Hekla

pytestmark = [pytest.mark.kubectl, pytest.mark.slow]
Kubectl = Callable[..., str]
SERVER = """
import http.server, os, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers()
        self.wfile.write((os.environ["HOSTNAME"] + " " + os.environ["VERSION"]).encode())
    def log_message(self, *_): pass
http.server.HTTPServer((os.environ["POD_IP"], 18080), Handler).serve_forever()
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hekla]:
    made = Hekla(tmp_path_factory.mktemp("workloads") / "state")
    made("up", "--port", "0", "--detach", "--pod-user", "owner")
    yield made
    made("down")


@pytest.fixture(scope="module")
def kubectl(cluster: Hekla, tmp_path_factory: pytest.TempPathFactory) -> Kubectl:
    program = find_kubectl()
    if program is None:
        pytest.skip("kubectl is not installed")
    home = tmp_path_factory.mktemp("home")
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "KUBECONFIG": str(cluster.data_dir / "kubeconfig"),
    }

    def run(*words: str, given: Any = None) -> str:
        done = subprocess.run(
            [program, *words], input="" if given is None else as_text(given), env=environment,
            capture_output=True, text=True, timeout=PATIENCE_S, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def found(kubectl: Kubectl, *words: str) -> Any:
    return json.loads(kubectl("get", *words, "-o", "json"))


def names(kubectl: Kubectl, selector: str) -> list[str]:
    items = found(kubectl, "pods", "-l", selector)["items"]
    return sorted(e["metadata"]["name"] for e in items if "deletionTimestamp" not in e["metadata"])


def pod(command: list[str], app: str, policy: str = "Always", **more: Any) -> Object:
    container = {"name": "main", "image": "host", "command": command, **more}
    return {
        "metadata": {"labels": {"app": app}},
        "spec": {
            "restartPolicy": policy,
            "terminationGracePeriodSeconds": 1,
            "containers": [container],
        },
    }


def serving(app: str, version: str) -> Object:
    env = [
        {"name": "VERSION", "value": version},
        {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
    ]
    # A process runs before it listens: only listening pods are ready and in the endpoints.
    listens = {"tcpSocket": {"port": 18080}, "periodSeconds": 1}
    return pod(["python3", "-c", SERVER], app, env=env, readinessProbe=listens)


def deployment(version: str = "1", replicas: int = 2) -> Object:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "web"}},
            "template": serving("web", version),
        },
    }


def test_a_deployment_rolls_out_scales_and_is_undone(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", given=deployment())
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web"},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 18080}]},
    }
    kubectl("apply", "-f", "-", given=service)
    assert "successfully rolled out" in kubectl("rollout", "status", "deployment/web")
    ask = ["python3", "-c", "import urllib.request as u;"
           "print(u.urlopen('http://web:18080').read().decode())"]  # fmt: skip
    until(lambda: found(kubectl, "endpoints", "web").get("subsets"), "endpoints")
    client = pod(ask, "client", "Never")
    client |= {"apiVersion": "v1", "kind": "Pod"}
    client["metadata"]["name"] = "client"
    kubectl("apply", "-f", "-", given=client)
    kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/client", "--timeout=170s")
    assert kubectl("logs", "client").endswith(" 1\n")

    kubectl("scale", "deployment/web", "--replicas=3")
    kubectl("rollout", "status", "deployment/web")
    first = names(kubectl, "app=web")
    assert len(first) == 3
    kubectl("set", "env", "deployment/web", "VERSION=2")
    kubectl("rollout", "status", "deployment/web")
    assert not set(first) & set(names(kubectl, "app=web"))
    kubectl("rollout", "restart", "deployment/web")
    kubectl("rollout", "status", "deployment/web")
    history = kubectl("rollout", "history", "deployment/web")
    assert [line.split()[0] for line in history.splitlines()[2:] if line] == ["1", "2", "3"]
    kubectl("rollout", "undo", "deployment/web", "--to-revision=1")
    kubectl("rollout", "status", "deployment/web")
    env = found(kubectl, "deployment", "web")["spec"]["template"]["spec"]["containers"][0]["env"]
    assert {"name": "VERSION", "value": "1"} in env
    kubectl("delete", "deployment/web", "service/web")
    until(lambda: not names(kubectl, "app=web"), "the pods go")
    until(lambda: not found(kubectl, "replicasets")["items"], "the sets go")
    until(lambda: not found(kubectl, "endpointslices")["items"], "the slices go")


def test_a_batch_job_completes_each_index(kubectl: Kubectl) -> None:
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "squares"},
        "spec": {
            "completions": 3,
            "parallelism": 2,
            "completionMode": "Indexed",
            "template": pod(["sh", "-c", "echo index $JOB_COMPLETION_INDEX"], "squares", "Never"),
        },
    }
    kubectl("apply", "-f", "-", given=job)
    kubectl("wait", "--for=condition=Complete", "job/squares", "--timeout=170s")
    said = kubectl("logs", "-l", "job-name=squares", "--prefix=false")
    assert sorted(said.split("\n"))[-3:] == ["index 0", "index 1", "index 2"]
    status = found(kubectl, "job", "squares")["status"]
    assert (status["succeeded"], status["completedIndexes"]) == (3, "0-2")
    assert "3/3" in kubectl("get", "job", "squares")
    kubectl("delete", "job/squares")
    until(lambda: not found(kubectl, "pods", "-l", "job-name=squares")["items"], "pods go")


def test_a_job_can_be_created_from_a_cron_job(kubectl: Kubectl) -> None:
    cron = {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": "yearly"},
        "spec": {
            "schedule": "0 0 1 1 *",
            "jobTemplate": {"spec": {"template": pod(["true"], "yearly", "Never")}},
        },
    }
    kubectl("apply", "-f", "-", given=cron)
    kubectl("create", "job", "now", "--from=cronjob/yearly")
    kubectl("wait", "--for=condition=Complete", "job/now", "--timeout=170s")
    kubectl("delete", "cronjob/yearly")
    until(lambda: not found(kubectl, "jobs.batch")["items"], "the run goes with it")


def test_pods_of_a_stateful_set_come_up_in_order(kubectl: Kubectl, tmp_path: Path) -> None:
    order = tmp_path / "order"
    order.touch()
    claim = {
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}},
    }
    command = ["sh", "-c", f"echo $HOSTNAME >> {order}; exec sleep 1000"]
    # A process starts before its first line runs: a ready pod has written.
    check = ["sh", "-c", f"grep -qx $HOSTNAME {order}"]
    wrote = {"exec": {"command": check}, "periodSeconds": 1}
    mounts = [{"name": "data", "mountPath": "/data"}]
    template = pod(command, "db", volumeMounts=mounts, readinessProbe=wrote)
    body = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "db"},
        "spec": {
            "replicas": 3,
            "serviceName": "db",
            "selector": {"matchLabels": {"app": "db"}},
            "template": template,
            "volumeClaimTemplates": [claim],
        },
    }
    kubectl("apply", "-f", "-", given=body)
    assert "roll out complete" in kubectl("rollout", "status", "statefulset/db")
    assert names(kubectl, "app=db") == ["db-0", "db-1", "db-2"]
    assert order.read_text().split() == ["db-0", "db-1", "db-2"]
    claims = sorted(e["metadata"]["name"] for e in found(kubectl, "pvc")["items"])
    assert claims == ["data-db-0", "data-db-1", "data-db-2"]
    kubectl("scale", "statefulset/db", "--replicas=1")
    until(lambda: names(kubectl, "app=db") == ["db-0"], "the others go")
    kubectl("delete", "statefulset/db")
    until(lambda: not names(kubectl, "app=db"), "the last goes")
