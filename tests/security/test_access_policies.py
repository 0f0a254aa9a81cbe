"""The chart's admission policies on kube-apiserver refuse what hekla's own server refuses."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tools.kube.cluster import KubeCluster, parts_for
from tools.kube.gobuild import missing
from tools.waiting import until

from hekla.api import crds, wellknown
from hekla.cli import release
from hekla.kube.errors import KubeError
from hekla.kube.resources import CUSTOM_RESOURCE_DEFINITIONS, JOB_FLOWS, JOBS, QUEUES
from tests.apiserver.both.conftest import Api
from tests.security import test_queue_access as submissions
from tests.security.conftest import bind
from tests.security.test_node_name import SPEC
from tests.security.test_queue_access import SUBMISSIONS, allow, submit
from tests.security.test_queue_commands import close

SPACE = "volcano-system"
NAMES = tuple(f"hekla-access-{what}" for what in ("commands", "nodes", "queues", "submitters"))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    if reason := missing(parts_for()):
        pytest.skip(reason)
    objects = release.objects(SPACE, {"custom": {"queue_access_enable": True}})
    wanted = [o for o in objects if o["metadata"]["name"] in (*NAMES, "hekla-edit", "hekla-view")]
    with KubeCluster(tmp_path_factory.mktemp("policies")) as cluster, cluster.client() as client:
        for body in crds.load():
            client.create(CUSTOM_RESOURCE_DEFINITIONS, body)

        def is_served() -> bool:
            try:
                for kind in (JOBS, JOB_FLOWS, QUEUES):
                    client.list(kind)
            except KubeError:
                return False
            return True

        until(is_served)
        release.apply(client, wanted)
        yield cluster.kubeconfig


@pytest.fixture
def is_real() -> bool:
    return True


@pytest.fixture
def tenant(api: Api, tenant: Api, namespace: str) -> Api:
    """A tenant, when the policies are in force."""
    for role in ("hekla-edit", "hekla-view"):
        bind(api, namespace, role, namespace)
    until(lambda: close(tenant, namespace, "missing", "1").status == 403)
    until(lambda: submit(tenant, namespace, "PodGroup", "missing").status == 403)
    return tenant


def _pods(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods?dryRun=All"


def _pod(scheduler: str = wellknown.DEFAULT_SCHEDULER) -> dict[str, Any]:
    return {"metadata": {"name": "p"}, "spec": {**SPEC, "schedulerName": scheduler}}


def test_tenant_cannot_close_a_queue(api: Api, tenant: Api, namespace: str) -> None:
    answer = close(tenant, namespace, "gold", "1")
    assert answer.status == 403
    assert 'target is the queue "gold"' in answer.message
    assert close(tenant, namespace, "gold", "").status in (403, 422)
    close(api, namespace, "gold", "1").ok()


def test_tenant_commands_its_jobs_by_uid(tenant: Api, namespace: str) -> None:
    path = f"/apis/bus.volcano.sh/v1alpha1/namespaces/{namespace}/commands"
    target = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "j", "uid": "1"}
    body = {
        "apiVersion": "bus.volcano.sh/v1alpha1",
        "kind": "Command",
        "metadata": {"generateName": "c-"},
        "action": "AbortJob",
    }
    tenant.post(path, {**body, "target": target}).ok()
    assert tenant.post(path, {**body, "target": {**target, "uid": ""}}).status == 422


def test_tenant_cannot_name_the_node_of_a_pod_of_this_scheduler(
    api: Api, tenant: Api, namespace: str
) -> None:
    allow(api, namespace, "default")
    until(lambda: 'resource "pods/binding"' in tenant.post(_pods(namespace), _pod()).message)
    assert tenant.post(_pods(namespace), _pod()).status == 403
    tenant.post(_pods(namespace), _pod("default-scheduler")).ok()


@pytest.mark.parametrize("what", SUBMISSIONS)
def test_submission_needs_the_right_to_use_the_queue(
    api: Api, tenant: Api, namespace: str, what: str
) -> None:
    answer = submit(tenant, namespace, what, "gold")
    assert answer.status == 403, answer.body
    assert f'user "{namespace}" does not have the right "use"' in answer.message
    allow(api, namespace, "gold")
    submit(tenant, namespace, what, "gold").ok()


def test_bare_pods_and_moved_groups_need_the_right_too(
    api: Api, tenant: Api, namespace: str
) -> None:
    notes = {wellknown.POD_QUEUE_NAME: "gold"}
    named = {"metadata": {"name": "named", "annotations": notes}, "spec": submissions.POD}
    silent = {"metadata": {"name": "silent"}, "spec": submissions.POD}
    assert tenant.post(_pods(namespace), named).status == 403
    assert tenant.post(_pods(namespace), silent).status == 403
    allow(api, namespace, "gold")
    tenant.post(_pods(namespace), named).ok()
    submit(tenant, namespace, "PodGroup", "gold").ok()
    path = f"/apis/scheduling.volcano.sh/v1beta1/namespaces/{namespace}/podgroups/w"
    assert tenant.merge(path, {"spec": {"queue": "default"}}).status == 403
    tenant.merge(path, {"spec": {"minMember": 2}}).ok()


def test_controllers_submit_for_users(api: Api, tenant: Api, namespace: str) -> None:
    controllers = api.acting_as(
        User=f"system:serviceaccount:{SPACE}:hekla-controllers",
        Group=f"system:serviceaccounts:{SPACE}",
    )
    bind(api, f"system:serviceaccount:{SPACE}:hekla-controllers", "hekla-edit", namespace)
    submit(controllers, namespace, "PodGroup", "gold").ok()


@pytest.mark.parametrize("what", ["Job", "CronJob", "PodGroup", "JobFlow"])
def test_tenant_cannot_claim_another_submitter(
    api: Api, tenant: Api, namespace: str, what: str
) -> None:
    allow(api, namespace, "gold")
    other, own = ({wellknown.SUBMITTED_BY: name} for name in ("other", namespace))
    until(lambda: submit(tenant, namespace, what, "gold", **other).status == 403)
    submit(tenant, namespace, what, "gold", **own).ok()
    version, _, plural, _ = SUBMISSIONS[what]
    path = f"/apis/{version}/namespaces/{namespace}/{plural}/w"
    for value in ("other", None):
        patch = {"metadata": {"annotations": {wellknown.SUBMITTED_BY: value}}}
        assert tenant.merge(path, patch).status == 403


def test_role_for_users_has_no_commands_without_the_policy() -> None:
    objects = release.objects(SPACE, {"custom": {"command_policy_enable": False}})
    names = {obj["metadata"]["name"] for obj in objects}
    (role,) = (obj for obj in objects if obj["metadata"]["name"] == "hekla-edit")
    assert "hekla-access-commands" not in names
    assert all("commands" not in rule["resources"] for rule in role["rules"])
