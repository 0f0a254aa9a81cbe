"""The right to use a queue, and the recorded submitter of a job."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest

from hekla.api import wellknown
from hekla.api.volcano import access
from hekla.controllers.cronjob.schedule import job_for_run
from hekla.controllers.jobflow.flow import job_of
from hekla.controllers.podgroup import build
from tests.apiserver.both.conftest import Api
from tests.security.conftest import RBAC, bind

QUEUES = "/apis/scheduling.volcano.sh/v1beta1/queues"
POD = {"containers": [{"name": "a", "image": "x"}], "schedulerName": "volcano"}
BATCH, FLOW = "batch.volcano.sh/v1alpha1", "flow.volcano.sh/v1alpha1"
GROUPS = "scheduling.volcano.sh/v1beta1"
NOTE = {wellknown.POD_QUEUE_NAME: "QUEUE"}
TASKS = {"tasks": [{"name": "w", "replicas": 1, "template": {"spec": POD}}], "queue": "QUEUE"}
TEMPLATE = {"metadata": {"labels": {"a": "b"}, "annotations": NOTE}, "spec": POD}
SELECTED = {"selector": {"matchLabels": {"a": "b"}}, "template": TEMPLATE}
ONCE = {"template": {**TEMPLATE, "spec": {**POD, "restartPolicy": "Never"}}}
SUBMISSIONS: dict[str, tuple[str, str, str, dict[str, Any]]] = {
    "Job": (BATCH, "Job", "jobs", TASKS),
    "CronJob": (BATCH, "CronJob", "cronjobs",
                {"schedule": "@daily", "jobTemplate": {"spec": TASKS}}),
    "PodGroup": (GROUPS, "PodGroup", "podgroups", {"minMember": 1, "queue": "QUEUE"}),
    "JobTemplate": (FLOW, "JobTemplate", "jobtemplates", TASKS),
    "JobFlow": (FLOW, "JobFlow", "jobflows",
                {"flows": [{"name": "a", "patch": {"jobSpec": {"queue": "QUEUE"}}}]}),
    "Deployment": ("apps/v1", "Deployment", "deployments", SELECTED),
    "StatefulSet": ("apps/v1", "StatefulSet", "statefulsets", {**SELECTED, "serviceName": "s"}),
    "batch Job": ("batch/v1", "Job", "jobs", ONCE),
    "batch CronJob": ("batch/v1", "CronJob", "cronjobs",
                      {"schedule": "@daily", "jobTemplate": {"spec": ONCE}}),
}  # fmt: skip

_SERVER = """
import asyncio, sys
from pathlib import Path
from hekla.apiserver.__main__ import serve
from hekla.apiserver.server import Config
asyncio.run(serve(Config(Path(sys.argv[1]), queue_access=True)))
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    directory = tmp_path_factory.mktemp("server") / "data"
    words = [sys.executable, "-c", _SERVER, str(directory)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().strip(), "the server did not start"
        yield directory / "kubeconfig"
        process.terminate()


@pytest.fixture
def is_real() -> bool:
    return False


@pytest.fixture
def queue(api: Api, namespace: str) -> str:
    body = {
        "apiVersion": GROUPS,
        "kind": "Queue",
        "metadata": {"name": f"{namespace}-q"},
        "spec": {"weight": 1},
    }
    api.post(QUEUES, body).ok()
    path = f"{QUEUES}/{namespace}-q/status"
    api.merge(path, {"status": {"state": "Open"}}).ok()
    return f"{namespace}-q"


def _named(value: Any, queue: str) -> Any:
    """Return a copy in which the placeholder is the queue's name."""
    if isinstance(value, dict):
        return {key: _named(inner, queue) for key, inner in value.items()}
    if isinstance(value, list):
        return [_named(inner, queue) for inner in value]
    return queue if value == "QUEUE" else value


def submit(user: Api, namespace: str, what: str, queue: str, **notes: str) -> Any:
    version, kind, plural, spec = SUBMISSIONS[what]
    metadata = {"name": "w", "annotations": notes}
    body = {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": _named(spec, queue)}
    return user.post(f"/apis/{version}/namespaces/{namespace}/{plural}", body)


def allow(api: Api, user: str, queue: str) -> None:
    rule = {
        "apiGroups": ["scheduling.volcano.sh"],
        "resources": ["queues"],
        "resourceNames": [queue],
        "verbs": ["use"],
    }
    name = f"{user}-uses-{queue}"
    api.post(f"{RBAC}/clusterroles", {"metadata": {"name": name}, "rules": [rule]}).ok()
    bind(api, user, name)


@pytest.mark.parametrize("what", SUBMISSIONS)
def test_submission_needs_the_right_to_use_the_queue(
    api: Api, tenant: Api, namespace: str, queue: str, what: str
) -> None:
    answer = submit(tenant, namespace, what, queue)
    assert answer.status == 403, answer.body
    assert f'user "{namespace}" does not have the right "use"' in answer.message
    assert f"kubectl create clusterrolebinding use-queue-{queue}-{namespace}" in answer.message
    allow(api, namespace, queue)
    submit(tenant, namespace, what, queue).ok()


def test_bare_pod_needs_the_right_to_use_its_queue(
    api: Api, tenant: Api, namespace: str, queue: str
) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods"
    notes = {wellknown.POD_QUEUE_NAME: queue}
    named = {"metadata": {"name": "named", "annotations": notes}, "spec": POD}
    silent = {"metadata": {"name": "silent"}, "spec": POD}
    foreign = {"metadata": {"name": "foreign"}, "spec": {**POD, "schedulerName": "other"}}
    plain = {"metadata": {"name": "plain"}, "spec": {**POD, "schedulerName": "default-scheduler"}}
    assert tenant.post(path, named).status == 403
    assert '"default"' in tenant.post(path, silent).message
    assert '"default"' in tenant.post(path, plain).message
    tenant.post(path, foreign).ok()
    allow(api, namespace, queue)
    tenant.post(path, named).ok()
    api.merge(f"/api/v1/namespaces/{namespace}", {"metadata": {"annotations": notes}}).ok()
    tenant.post(path, silent).ok()
    tenant.post(path, plain).ok()


def test_group_cannot_move_to_a_queue_without_the_right(
    api: Api, tenant: Api, namespace: str, queue: str
) -> None:
    allow(api, namespace, queue)
    submit(tenant, namespace, "PodGroup", queue).ok()
    path = f"/apis/{GROUPS}/namespaces/{namespace}/podgroups/w"
    assert tenant.merge(path, {"spec": {"queue": "default"}}).status == 403
    tenant.merge(path, {"spec": {"minMember": 2}}).ok()


def test_administrator_needs_no_such_right(api: Api, namespace: str, queue: str) -> None:
    submit(api, namespace, "Job", queue).ok()


# The submitter


@pytest.mark.parametrize("what", ["Job", "CronJob", "PodGroup", "JobFlow"])
def test_submitter_is_recorded_and_a_claim_is_overwritten(
    api: Api, tenant: Api, namespace: str, queue: str, what: str
) -> None:
    allow(api, namespace, queue)
    claim = {wellknown.SUBMITTED_BY: "somebody-else"}
    made = submit(tenant, namespace, what, queue, **claim).ok()
    assert made["metadata"]["annotations"][wellknown.SUBMITTED_BY] == namespace
    version, _, plural, _ = SUBMISSIONS[what]
    path = f"/apis/{version}/namespaces/{namespace}/{plural}/w"
    for value in ("somebody-else", None):
        patch = {"metadata": {"annotations": {wellknown.SUBMITTED_BY: value}}}
        made = tenant.merge(path, patch).ok()
        assert made["metadata"]["annotations"][wellknown.SUBMITTED_BY] == namespace


def test_job_of_a_cron_job_names_the_submitter_of_the_cron_job() -> None:
    cron: dict[str, Any] = {
        "metadata": {
            "name": "c", "namespace": "x", "uid": "1",
            "annotations": {wellknown.SUBMITTED_BY: "alice"},
        },
        "spec": {"jobTemplate": {
            "metadata": {"annotations": {wellknown.SUBMITTED_BY: "bob"}}, "spec": {}}},
    }  # fmt: skip
    made = job_for_run(cron, 0.0, UTC)
    assert made["metadata"]["annotations"][wellknown.SUBMITTED_BY] == "alice"
    del cron["metadata"]["annotations"]
    made = job_for_run(cron, 0.0, UTC)
    assert wellknown.SUBMITTED_BY not in made["metadata"]["annotations"]


def test_job_of_a_flow_names_the_submitter_of_the_flow() -> None:
    notes = {wellknown.SUBMITTED_BY: "alice"}
    flow = {"metadata": {"name": "f", "namespace": "x", "uid": "1", "annotations": notes}}
    template = {"metadata": {"name": "t", "namespace": "x"}, "spec": {}}
    made = job_of(flow, {"name": "t"}, template)
    assert made["metadata"]["annotations"][wellknown.SUBMITTED_BY] == "alice"


def test_group_of_a_pod_takes_the_submitter_only_from_a_bare_pod() -> None:
    notes = {wellknown.SUBMITTED_BY: "alice"}
    pod = {"metadata": {"name": "p", "namespace": "x", "uid": "1", "annotations": notes},
           "spec": POD}  # fmt: skip
    assert build(pod, None)["metadata"]["annotations"] == notes
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "2",
             "controller": True}  # fmt: skip
    pod["metadata"]["ownerReferences"] = [owner]  # type: ignore[index]
    assert "annotations" not in build(pod, None)["metadata"]


def test_refusal_names_the_command_for_a_service_account() -> None:
    text = access.refusal("system:serviceaccount:team:bot", "gold", "spec.queue")
    assert "--serviceaccount=team:bot" in text
