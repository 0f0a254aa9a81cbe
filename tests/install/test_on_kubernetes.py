"""Installation by helm and by hekla on a real API server, and work with least privileges."""

from __future__ import annotations

import asyncio
import base64
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from tools.kube.cluster import KubeCluster
from tools.waiting import until

from hekla.admission.service import MANAGER, AdmissionService
from hekla.admission.webhooks import WebhookAddress, configurations
from hekla.api import wellknown
from hekla.api.volcano import groups
from hekla.cli import release
from hekla.cli.main import main
from hekla.controllers import gangs
from hekla.controllers.job.managed_objects import POLICY
from hekla.kube import kubeconfig
from hekla.kube.client import Client
from hekla.kube.errors import Forbidden, Invalid
from hekla.kube.resources import (
    CLUSTER_ROLE_BINDINGS,
    CONFIGMAPS,
    CUSTOM_RESOURCE_DEFINITIONS,
    DEPLOYMENTS,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    PODS,
    QUEUES,
    SECRETS,
    SERVICE_ACCOUNTS,
    VALIDATING_WEBHOOKS,
    Resource,
)
from hekla.kube.sync_client import SyncClient
from hekla.units.objects import Object
from hekla.web.certificates import new_authority
from tests.install.component_processes import ComponentProcesses
from tests.install.conftest import CHART, Helm
from tests.install.permissions import COMPONENTS, Permission, granted_permissions, requests
from tests.install.workload import Workload

SPACE = wellknown.SYSTEM_NAMESPACE
KUBECTL = Path(sys.executable).with_name("kubectl")

_NETWORK = "topology.volcano.sh"
RARELY_USED = {
    **{
        Permission("controllers", _NETWORK, "hypernodes", verb): "HyperNodes follow labels of nodes"
        for verb in ("create", "patch", "delete")
    },
    Permission("controllers", _NETWORK, "hypernodes/status", "patch"): "there are HyperNodes",
    Permission("scheduler", "", "pods", "get"): "a bind or an eviction was left without an answer",
    Permission("controllers", "", "pods", "get"): "the name of a pod is taken",
    Permission("scheduler", "", "events", "patch"): "the same thing happens again",
    Permission("controllers", "", "events", "patch"): "the same thing happens again",
    Permission("scheduler", "", "configmaps", "get"): "the plugin fairshare is configured",
    Permission("scheduler", "metrics.k8s.io", "nodes", "list"): "loads are read from there",
    **{
        Permission("controllers", group, workload.plural, "get"): f"a {kind} has pods"
        for (group, kind), workload in gangs.WORKLOADS.items()
    },
    **{
        Permission(
            "scheduler", "custom.metrics.k8s.io", f"nodes/node_{what}_usage_avg", "get"
        ): "loads are read from there"
        for what in ("cpu", "memory")
    },
}
"""Permissions that only the recovery from a failure needs."""
_RBAC_KINDS = ("Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")
ASKED_BY_ADMISSION = "finalizers"
"""Kubernetes checks these permissions when an owner reference is set, without a logged request."""


@pytest.fixture
def client(cluster: KubeCluster) -> Iterator[SyncClient]:
    with cluster.client() as made:
        yield made


def _established(client: SyncClient) -> bool:
    found = client.list(CUSTOM_RESOURCE_DEFINITIONS).items
    unset: Object = {}
    return len(found) >= 11 and all(
        {"type": "Established", "status": "True"}.items() <= condition.items()
        for crd in found
        for condition in (crd.get("status") or {}).get("conditions") or (unset,)
        if condition.get("type") == "Established"
    )


def _pods_of_components(client: SyncClient) -> list[Object]:
    return [pod for pod in client.list(PODS, namespace=SPACE) if "hekla" in pod["metadata"]["name"]]


def test_helm_installs_upgrades_and_removes(
    helm: Helm, cluster: KubeCluster, client: SyncClient
) -> None:
    words = ("--kubeconfig", cluster.kubeconfig, "--namespace", SPACE)

    def call(*verb: str | Path) -> None:
        done = helm(*verb, *words)
        assert done.returncode == 0, done.stderr
        assert not [line for line in done.stderr.splitlines() if "walk.go" not in line]

    call("install", "hekla", CHART, "--dry-run=server", "--create-namespace")
    call("install", "hekla", CHART, "--create-namespace")
    until(lambda: _established(client))
    _as_the_service_does(client)
    only_ours = "custom.webhooks_namespace_selector_expressions[0]"
    chosen = f"{only_ours}.key=batch,{only_ours}.operator=Exists"
    call("upgrade", "hekla", CHART, "--set", f"custom.scheduler_replicas=3,{chosen}")
    live = client.get(DEPLOYMENTS, "hekla-scheduler", namespace=SPACE)
    assert live["spec"]["replicas"] == 3
    _as_the_service_does(client)
    for webhook in _webhooks(client):
        assert _has_certificate(webhook), "an upgrade took the certificate away"
        assert webhook["namespaceSelector"]["matchExpressions"], "the service took a value away"
    assert client.get(SECRETS, "hekla-admission-certificates", namespace=SPACE)["data"]
    done = helm("uninstall", "hekla", *words)
    assert done.returncode == 0, done.stderr
    assert client.find(CONFIGMAPS, wellknown.SCHEDULER_CONFIG_MAP, namespace=SPACE)
    for obj in release.objects(SPACE, {}):
        if obj["kind"].endswith("WebhookConfiguration"):
            name = obj["metadata"]["name"]
            assert client.find(release.resource_of(obj), name) is None, name
    assert client.list(QUEUES) is not None, "the kinds stay"
    client.delete(CONFIGMAPS, wellknown.SCHEDULER_CONFIG_MAP, namespace=SPACE)
    until(lambda: not _pods_of_components(client))


def _as_the_service_does(client: SyncClient) -> None:
    """Check that the certificates are stored in the chart's Secret."""
    authority = base64.b64encode(new_authority(time.time(), "test").certificate).decode()
    patch = {"data": {"ca.crt": authority}}
    client.patch(SECRETS, "hekla-admission-certificates", patch, namespace=SPACE)
    address = WebhookAddress(namespace=SPACE, service="hekla-admission-service")
    for body in configurations(address, base64.b64decode(authority)):
        client.apply(release.resource_of(body), body, field_manager=MANAGER, force=True)


def test_kubectl_applies_the_printed_objects_without_a_warning(
    cluster: KubeCluster, client: SyncClient, tmp_path: Path
) -> None:
    file = tmp_path / "hekla.yaml"
    file.write_text(release.as_yaml(release.objects(SPACE, {})))
    if client.find(NAMESPACES, SPACE) is None:
        client.create(NAMESPACES, {"metadata": {"name": SPACE}})
    words = ["apply", "--server-side", "--force-conflicts", "--dry-run=server", "-f", str(file)]
    done = subprocess.run(
        [KUBECTL, "--kubeconfig", cluster.kubeconfig, *words],
        env={**os.environ, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_reinstall_changes_nothing_and_keeps_user_objects(
    cluster: KubeCluster, client: SyncClient
) -> None:
    ours = {"volcano-scheduler.conf": "# of our own\n"}
    if client.find(NAMESPACES, SPACE) is None:
        client.create(NAMESPACES, {"metadata": {"name": SPACE}})
    name = wellknown.SCHEDULER_CONFIG_MAP
    client.create(CONFIGMAPS, {"metadata": {"name": name}, "data": ours}, namespace=SPACE)
    words = ["install", "--kubeconfig", str(cluster.kubeconfig), "--image", "none"]
    first = CliRunner().invoke(main, words)
    assert first.exit_code == 0, first.output
    assert f"ConfigMap {name} exists and is not changed" in first.output
    before = client.get(DEPLOYMENTS, "hekla-controllers", namespace=SPACE)["metadata"]["generation"]
    assert CliRunner().invoke(main, words).exit_code == 0
    live = client.get(DEPLOYMENTS, "hekla-controllers", namespace=SPACE)
    assert live["metadata"]["generation"] == before
    assert client.get(CONFIGMAPS, name, namespace=SPACE)["data"] == ours

    client.patch(DEPLOYMENTS, "hekla-controllers", {"spec": {"replicas": 5}}, namespace=SPACE)
    third = CliRunner().invoke(main, words)
    assert third.exit_code == 1
    assert "--force-conflicts" in third.output
    assert CliRunner().invoke(main, [*words, "--force-conflicts"]).exit_code == 0

    gone = CliRunner().invoke(main, ["uninstall", "--kubeconfig", str(cluster.kubeconfig)])
    assert gone.exit_code == 0, gone.output
    assert client.find(DEPLOYMENTS, "hekla-controllers", namespace=SPACE) is None
    assert client.get(CONFIGMAPS, name, namespace=SPACE)["data"] == ours
    assert _established(client)
    client.delete(CONFIGMAPS, name, namespace=SPACE)
    until(lambda: not _pods_of_components(client))


def test_install_and_an_admission_service_by_url_work_in_any_order(
    cluster: KubeCluster, client: SyncClient
) -> None:
    words = ["install", "--kubeconfig", str(cluster.kubeconfig), "--image", "none"]
    name = "hekla-admission-jobs-mutate"

    def install() -> Object:
        done = CliRunner().invoke(main, words)
        assert done.exit_code == 0, done.output
        config: Object = client.get(MUTATING_WEBHOOKS, name)["webhooks"][0]["clientConfig"]
        return config

    async def serve() -> None:
        address = WebhookAddress(url="https://127.0.0.1:9443")
        async with (
            Client(kubeconfig.load(cluster.kubeconfig)) as connection,
            AdmissionService(connection, port=0, address=address).serving(),
        ):
            found = await connection.get(MUTATING_WEBHOOKS, name)
            assert set(found["webhooks"][0]["clientConfig"]) == {"url", "caBundle"}

    assert "service" in install()
    for _ in range(2):
        asyncio.run(serve())
        asyncio.run(serve())
        for _ in range(2):
            config = install()
            assert set(config) == {"service", "caBundle"}, "the authority stays the same"
    gone = CliRunner().invoke(main, ["uninstall", "--kubeconfig", str(cluster.kubeconfig)])
    assert gone.exit_code == 0, gone.output
    until(lambda: not _pods_of_components(client))


def test_each_component_uses_exactly_its_permissions(
    cluster: KubeCluster, client: SyncClient
) -> None:
    objects = release.objects(SPACE, {})
    component_processes = ComponentProcesses(cluster, objects, SPACE)
    release.apply(client, map(component_processes.reachable, objects))
    until(lambda: _established(client))
    # The namespace enforces the restricted standard, and accepts our pods.
    restricted = {"pod-security.kubernetes.io/enforce": "restricted"}
    client.patch(NAMESPACES, SPACE, {"metadata": {"labels": restricted}})
    until(lambda: len(_pods_of_components(client)) == 6)
    try:
        _begin(component_processes, client)
        reader = _metrics_reader(component_processes, client)
        for component in COMPONENTS:
            answers = until(partial(_healthy_answers, component_processes, component, reader))
            assert answers is not None
            assert ("/metrics" in answers) == (component != "admission")
        for component in ("scheduler", "controllers"):
            other = component_processes.token("hekla-admission")
            assert component_processes.answers(component)["/metrics"] == 401
            assert component_processes.answers(component, "forged")["/metrics"] == 401
            assert component_processes.answers(component, other)["/metrics"] == 403
        client.create(NAMESPACES, {"metadata": {"name": "work"}})
        Workload(client, "work").run_all()
    except BaseException:
        print(component_processes.logs())
        raise
    finally:
        component_processes.stop()
        release.remove(client, objects)
    asked = list(requests(cluster.audit_log, SPACE))
    refused = [f"{right} {address}" for right, code, address in asked if code in (401, 403)]
    assert not refused, "a permission is missing"
    may = {
        right
        for right in granted_permissions(objects)
        if not right.resource.endswith(ASKED_BY_ADMISSION)
    }
    unused = may - {right for right, _, _ in asked} - RARELY_USED.keys()
    assert sorted(unused) == [], "a permission is granted and not needed"
    assert RARELY_USED.keys() <= may


def _begin(component_processes: ComponentProcesses, client: SyncClient) -> None:
    """Start the webhook server last: the others wait for it."""
    for component in ("scheduler", "controllers"):
        component_processes.start(component)
        until(partial(_logs, component_processes, component, "cannot be created yet"))
    component_processes.start("admission")
    until(lambda: all(map(_has_certificate, _webhooks(client))))
    until(lambda: _is_open(client, "root") and _is_open(client, "default"))


def _logs(component_processes: ComponentProcesses, component: str, text: str) -> bool:
    return text in component_processes.log(component)


def _metrics_reader(component_processes: ComponentProcesses, client: SyncClient) -> str:
    """Return the token of an account that is bound as the chart says."""
    subject = {"kind": "ServiceAccount", "name": "prometheus", "namespace": SPACE}
    role = {
        "apiGroup": "rbac.authorization.k8s.io",
        "kind": "ClusterRole",
        "name": "hekla-metrics-reader",
    }
    client.create(SERVICE_ACCOUNTS, {"metadata": {"name": "prometheus"}}, namespace=SPACE)
    binding = {"metadata": {"name": "prometheus"}, "subjects": [subject], "roleRef": role}
    client.create(CLUSTER_ROLE_BINDINGS, binding)
    return component_processes.token("prometheus")


def _healthy_answers(
    component_processes: ComponentProcesses, component: str, reader: str
) -> dict[str, int] | None:
    answers = component_processes.answers(component, reader)
    return answers if set(answers.values()) == {200} else None


def _is_open(client: SyncClient, queue: str) -> bool:
    found = client.find(QUEUES, queue)
    return found is not None and (found.get("status") or {}).get("state") == "Open"


def _webhooks(client: SyncClient) -> list[Object]:
    kinds = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
    found: list[Object] = []
    for kind in kinds:
        answer = client.request("GET", f"/apis/admissionregistration.k8s.io/v1/{kind}")
        found += yaml.safe_load(answer)["items"]
    return [webhook for configuration in found for webhook in configuration["webhooks"]]


def _has_certificate(webhook: Object) -> bool:
    return bool(webhook["clientConfig"].get("caBundle"))


def _policies(name: str) -> list[Object]:
    """Return a ValidatingAdmissionPolicy of the release, and its binding."""
    found = [
        obj
        for obj in release.objects(SPACE, {})
        if obj["kind"].startswith("ValidatingAdmissionPolicy") and obj["metadata"]["name"] == name
    ]
    assert len(found) == 2
    return found


def test_controllers_neither_read_nor_change_secrets_that_no_job_owns(
    cluster: KubeCluster, client: SyncClient
) -> None:
    if client.find(NAMESPACES, SPACE) is None:
        client.create(NAMESPACES, {"metadata": {"name": SPACE}})
    objects = release.objects(SPACE, {})
    applied = [obj for obj in objects if obj["metadata"]["name"] == "hekla-controllers"]
    applied = [obj for obj in applied if obj["kind"] in ("ServiceAccount", *_RBAC_KINDS)]
    applied += _policies(POLICY)
    release.apply(client, applied)
    job = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "j", "uid": "u"}
    owners = [{**job, "controller": True}]
    # The finalizer holds the object that the garbage collector deletes: its job does not exist.
    kept = {"ownerReferences": owners, "finalizers": ["example.org/keep"]}
    secrets: dict[str, Object] = {"foreign": {}, "owned": kept}
    for name, metadata in secrets.items():
        body = {"metadata": {"name": name, **metadata}, "stringData": {"key": "secret"}}
        client.create(SECRETS, body, namespace="default")
        client.create(CONFIGMAPS, {"metadata": body["metadata"]}, namespace="default")
    config = cluster.directory / "controllers.kubeconfig"
    target = kubeconfig.load(cluster.kubeconfig)
    token = client.create_token("hekla-controllers", namespace=SPACE).value
    kubeconfig.write_kubeconfig(config, target.server, target.ca_pem, token, "controllers")
    change = {"metadata": {"labels": {"a": "b"}}}
    with SyncClient(kubeconfig.load(config)) as controllers:

        def is_refused(call: Callable[[], object]) -> bool:
            try:
                call()
            except Forbidden:
                return True
            return False

        until(lambda: is_refused(partial(_patch, controllers, SECRETS, "foreign", change)))
        for resource in (SECRETS, CONFIGMAPS):
            assert is_refused(partial(controllers.list, resource, namespace="default"))
            assert is_refused(partial(controllers.get, resource, "owned", namespace="default"))
            assert is_refused(partial(_patch, controllers, resource, "foreign", {}))
            assert is_refused(partial(controllers.delete, resource, "foreign", namespace="default"))
            steal = {"metadata": {"ownerReferences": owners}}
            assert is_refused(partial(_patch, controllers, resource, "foreign", steal))
            body = {"metadata": {"name": "planted"}}
            assert is_refused(partial(controllers.create, resource, body, namespace="default"))
            assert _patch(controllers, resource, "owned", change)["metadata"]["labels"]
            controllers.delete(resource, "owned", namespace="default")
            release_it = {"metadata": {"finalizers": None}}
            client.patch(resource, "owned", release_it, namespace="default")
            client.delete(resource, "foreign", namespace="default")
    release.remove(client, applied)


def _patch(client: SyncClient, resource: Resource[Object], name: str, body: Object) -> Object:
    return client.patch(resource, name, body, namespace="default")


BUDGETS: list[dict[str, str]] = [
    {wellknown.JDB_MIN_AVAILABLE: text}
    for text in ("1", "007", "50%", "99%", "0", "-1", "0%", "100%", "1.5", "x", "", "1 ", "9" * 30)
]
BUDGETS += [{wellknown.JDB_MAX_UNAVAILABLE: text} for text in ("1", "50%", "0", "all")]
BUDGETS += [{wellknown.JDB_MIN_AVAILABLE: "1", wellknown.JDB_MAX_UNAVAILABLE: "1"}]


def test_pod_policy_refuses_what_the_embedded_server_refuses(client: SyncClient) -> None:
    if client.find(NAMESPACES, SPACE) is None:
        client.create(NAMESPACES, {"metadata": {"name": SPACE}})
    policies = _policies("hekla-admission-pods")
    release.apply(client, policies)
    until(lambda: client.find(SERVICE_ACCOUNTS, "default", namespace="default"))
    try:
        until(lambda: not _accepts_pod(client, {wellknown.JDB_MIN_AVAILABLE: "0"}))
        assert _accepts_pod(client, {wellknown.JDB_MIN_AVAILABLE: "0"}, scheduler="other")
        assert _accepts_pod(client, {})
        view: Any = SimpleNamespace(scheduler_names=(wellknown.DEFAULT_SCHEDULER,))
        for annotations in BUDGETS:
            expected = not list(groups.check_pod(_pod(annotations), view))
            assert _accepts_pod(client, annotations) == expected, annotations
    finally:
        release.remove(client, policies)


def _pod(annotations: dict[str, str], scheduler: str = wellknown.DEFAULT_SCHEDULER) -> Object:
    container = {"name": "main", "image": "x"}
    return {
        "metadata": {"name": "budgeted", "annotations": annotations},
        "spec": {"schedulerName": scheduler, "containers": [container]},
    }


def _accepts_pod(client: SyncClient, annotations: dict[str, str], **spec: str) -> bool:
    try:
        client.create(PODS, _pod(annotations, **spec), namespace="default", dry_run=True)
    except (Forbidden, Invalid) as error:
        if "volcano.sh/jdb" in str(error):
            return False
        raise
    return True


def test_volcanos_webhooks_are_removed_and_restored_as_in_the_guide(
    cluster: KubeCluster, client: SyncClient, tmp_path: Path
) -> None:
    name = "volcano-admission-service-jobs-validate"
    webhook = {
        "name": "validatejob.volcano.sh",
        "admissionReviewVersions": ["v1"],
        "clientConfig": {"url": "https://127.0.0.1:9/jobs/validate"},
        "sideEffects": "None",
        "failurePolicy": "Ignore",
        "rules": [
            {
                "apiGroups": ["batch.volcano.sh"],
                "apiVersions": ["v1alpha1"],
                "resources": ["jobs"],
                "operations": ["CREATE"],
            }
        ],
    }
    client.create(VALIDATING_WEBHOOKS, {"metadata": {"name": name}, "webhooks": [webhook]})
    before = client.get(VALIDATING_WEBHOOKS, name)["webhooks"]
    guide = (CHART.parents[1] / "docs" / "guides" / "from-volcano.md").read_text()
    commands = [line.strip() for line in guide.splitlines() if "webhooks.txt" in line]
    assert len(commands) == 3
    _shell(cluster, tmp_path, *commands)
    assert client.find(VALIDATING_WEBHOOKS, name) is None
    (apply,) = (line.strip() for line in guide.splitlines() if "-f volcano-webhooks.yaml" in line)
    _shell(cluster, tmp_path, apply)
    assert client.get(VALIDATING_WEBHOOKS, name)["webhooks"] == before
    client.delete(VALIDATING_WEBHOOKS, name)


def _shell(cluster: KubeCluster, where: Path, *commands: str) -> None:
    done = subprocess.run(
        ["bash", "-ec", "\n".join(commands)],
        cwd=where,
        env={
            "PATH": f"{KUBECTL.parent}:{os.environ['PATH']}",
            "HOME": str(where),
            "KUBECONFIG": str(cluster.kubeconfig),
        },
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
