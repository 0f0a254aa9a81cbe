"""Other client libraries, unmodified, with the kubeconfig that the server writes.

Each runs one session: create, list, watch, patch, delete, on a built-in kind and on Volcano's.
"""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable, Iterator
from typing import Any

import kr8s
import kr8s.asyncio
import kr8s.asyncio.objects
import kr8s.objects
import kubernetes
import lightkube
import pytest
from kubernetes import dynamic
from lightkube.core.exceptions import ApiError
from lightkube.generic_resource import create_global_resource, create_namespaced_resource
from lightkube.models.core_v1 import Container, PodSpec
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import ConfigMap, Pod

from hekla.units.objects import Object
from tests.apiserver.threads import ServerThread, running_server
from tests.clients.standing import RUNS, installed, stands_for

# These libraries leave sockets to the garbage collector, and kr8s warns about this version.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore:Kubernetes version .* is not supported"),
]
WATCH_S = 60
BATCH, SCHEDULING = "batch.volcano.sh", "scheduling.volcano.sh"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerThread]:
    with running_server(tmp_path_factory.mktemp("clients") / "data") as running:
        yield running


@pytest.fixture
def namespace(cluster: ServerThread, request: pytest.FixtureRequest) -> Iterator[str]:
    name = request.node.name.removeprefix("test_").replace("_", "-")[:50].rstrip("-")
    cluster.create("v1", "Namespace", {"metadata": {"name": name}})
    yield name
    gc.collect()  # collect here, where warnings about open sockets are expected


def pod(name: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": "x"}},
        "spec": {"containers": [{"name": "main", "image": "busybox"}]},
    }


def vcjob(name: str) -> Object:
    template = {"spec": {"containers": [{"name": "main", "image": "busybox"}]}}
    return {
        "apiVersion": f"{BATCH}/v1alpha1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {
            "minAvailable": 1,
            "tasks": [{"name": "w", "replicas": 1, "template": template}],
        },
    }


class Doing:
    """Runs actions in a thread while the test watches."""

    def __init__(self, *steps: Callable[[], object]) -> None:
        self._steps = steps
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        try:
            for step in self._steps:
                step()
        except BaseException as error:
            self._error = error

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._thread.join(WATCH_S)
        if self._error is not None:
            raise self._error


# The official client


@pytest.fixture
def official(cluster: ServerThread) -> Iterator[kubernetes.client.ApiClient]:
    connect: Any = kubernetes.config.new_client_from_config
    with connect(str(cluster.kubeconfig)) as api:
        yield api
        api.rest_client.pool_manager.clear()


def test_the_official_client_with_typed_objects(
    official: kubernetes.client.ApiClient, namespace: str
) -> None:
    core: Any = kubernetes.client.CoreV1Api(official)
    made = core.create_namespaced_pod(namespace, pod("a"))
    assert made.status.phase == "Pending"
    assert made.metadata.creation_timestamp.tzinfo is not None
    assert [p.metadata.name for p in core.list_namespaced_pod(namespace).items] == ["a"]
    assert core.list_pod_for_all_namespaces(label_selector="app=y").items == []

    core.patch_namespaced_pod("a", namespace, {"metadata": {"labels": {"tier": "front"}}})
    core.patch_namespaced_pod_status("a", namespace, {"status": {"phase": "Running"}})
    read = core.read_namespaced_pod("a", namespace)
    assert read.metadata.labels == {"app": "x", "tier": "front"}
    assert read.status.phase == "Running"

    read.metadata.labels = {"only": "this"}
    assert core.replace_namespaced_pod("a", namespace, read).metadata.labels == {"only": "this"}
    with pytest.raises(kubernetes.client.ApiException) as caught:
        core.replace_namespaced_pod("a", namespace, read)
    assert caught.value.status == 409

    core.delete_namespaced_pod("a", namespace)
    with pytest.raises(kubernetes.client.ApiException) as caught:
        core.read_namespaced_pod("a", namespace)
    assert caught.value.status == 404


def test_the_official_client_watches(official: kubernetes.client.ApiClient, namespace: str) -> None:
    core: Any = kubernetes.client.CoreV1Api(official)
    seen = []
    start = core.list_namespaced_config_map(namespace).metadata.resource_version
    changes = (
        lambda: core.create_namespaced_config_map(namespace, {"metadata": {"name": "c"}}),
        lambda: core.patch_namespaced_config_map("c", namespace, {"data": {"a": "1"}}),
        lambda: core.delete_namespaced_config_map("c", namespace),
    )
    new_watch: Any = kubernetes.watch.Watch
    watch = new_watch()
    with Doing(*changes):
        for event in watch.stream(
            core.list_namespaced_config_map,
            namespace,
            resource_version=start,
            timeout_seconds=WATCH_S,
        ):
            seen.append((event["type"], event["object"].data))
            if event["type"] == "DELETED":
                watch.stop()
    assert seen == [("ADDED", None), ("MODIFIED", {"a": "1"}), ("DELETED", {"a": "1"})]


def test_the_official_client_with_custom_objects(
    official: kubernetes.client.ApiClient, namespace: str
) -> None:
    api: Any = kubernetes.client.CustomObjectsApi(official)
    where = (BATCH, "v1alpha1", namespace, "jobs")
    api.create_namespaced_custom_object(*where, vcjob("j"))
    listed = api.list_namespaced_custom_object(*where)
    assert [item["metadata"]["name"] for item in listed["items"]] == ["j"]
    status = {"status": {"state": {"phase": "Running"}}}
    api.patch_namespaced_custom_object_status(*where, "j", status)
    found = api.get_namespaced_custom_object(*where, "j")
    assert found["status"]["state"]["phase"] == "Running"
    queue = {"metadata": {"name": namespace}, "spec": {"weight": 2}}
    queue |= {"apiVersion": f"{SCHEDULING}/v1beta1", "kind": "Queue"}
    api.create_cluster_custom_object(SCHEDULING, "v1beta1", "queues", queue)
    read = api.get_cluster_custom_object(SCHEDULING, "v1beta1", "queues", namespace)
    assert read["spec"]["weight"] == 2
    gone = api.delete_namespaced_custom_object(*where, "j")
    assert gone["status"] == "Success"


def test_the_official_client_finds_kinds_by_discovery(
    official: kubernetes.client.ApiClient, namespace: str, tmp_path: Any
) -> None:
    new_client: Any = dynamic.DynamicClient
    client = new_client(official, cache_file=str(tmp_path / "discovery"))
    jobs = client.resources.get(api_version=f"{BATCH}/v1alpha1", kind="Job")
    jobs.create(body=vcjob("j"), namespace=namespace)
    assert [item.metadata.name for item in jobs.get(namespace=namespace).items] == ["j"]
    patch = {"metadata": {"labels": {"x": "y"}}}
    merge = "application/merge-patch+json"
    jobs.patch(body=patch, name="j", namespace=namespace, content_type=merge)
    applied = jobs.server_side_apply(
        body={**vcjob("j"), "spec": {"priorityClassName": "low"}},
        name="j",
        namespace=namespace,
        field_manager="test",
    )
    assert applied.spec.priorityClassName == "low"
    for event in jobs.watch(namespace=namespace, timeout=WATCH_S):
        assert event["type"] == "ADDED"
        assert event["object"].metadata.labels.x == "y"
        break
    jobs.delete(name="j", namespace=namespace)
    assert jobs.get(namespace=namespace).items == []


# kr8s


def test_kr8s_runs_a_session(cluster: ServerThread, namespace: str) -> None:
    api: Any = kr8s.api(kubeconfig=str(cluster.kubeconfig), namespace=namespace)
    made = kr8s.objects.Pod(pod("a"), namespace=namespace, api=api)
    made.create()
    assert made.exists()
    assert [p.name for p in api.get("pods", namespace=namespace)] == ["a"]
    made.label({"tier": "front"})
    made.patch({"status": {"phase": "Running"}}, subresource="status")
    assert [p.name for p in api.get("pods", label_selector={"tier": "front"})] == ["a"]
    assert made.status.phase == "Running"
    for event, found in api.watch("pods", namespace=namespace):
        assert (event, found.name) == ("ADDED", "a")
        break
    made.delete()
    made.wait("delete", timeout=WATCH_S)
    assert not made.exists()


@stands_for(
    "kr8s",
    version=installed("kr8s", "dev.txt"),
    how=RUNS,
    kinds=("Job", "ConfigMap"),
    servers=("embedded",),
    note="sessions, waiting, kinds by discovery",
)
def test_kr8s_handles_volcano_kinds(cluster: ServerThread, namespace: str) -> None:
    api: Any = kr8s.api(kubeconfig=str(cluster.kubeconfig), namespace=namespace)
    kind = kr8s.objects.new_class(kind="Job", version=f"{BATCH}/v1alpha1", namespaced=True)
    job = kind(vcjob("j"), namespace=namespace, api=api)
    job.create()
    assert [j.name for j in api.get("jobs.batch.volcano.sh", namespace=namespace)] == ["j"]
    job.patch({"status": {"state": {"phase": "Completed"}}}, subresource="status")
    job.wait("jsonpath='{.status.state.phase}'=Completed", timeout=WATCH_S)
    job.delete()


async def test_kr8s_runs_an_async_session(cluster: ServerThread, namespace: str) -> None:
    api = await kr8s.asyncio.api(kubeconfig=str(cluster.kubeconfig), namespace=namespace)
    events: asyncio.Queue[tuple[str, str]] = asyncio.Queue()

    async def watch() -> None:
        watched = api.async_watch(
            "configmaps", namespace=namespace, field_selector="metadata.name=c"
        )
        async for event, found in watched:
            events.put_nowait((event, found.name))

    body = {"metadata": {"name": "c", "namespace": namespace}, "data": {"a": "1"}}
    made = await kr8s.asyncio.objects.ConfigMap(body, api=api)
    await made.create()
    async with asyncio.timeout(WATCH_S):
        watching = asyncio.create_task(watch())
        assert await events.get() == ("ADDED", "c")
        await made.patch({"data": {"b": "2"}})
        assert made.raw["data"] == {"a": "1", "b": "2"}
        assert await events.get() == ("MODIFIED", "c")
        await made.delete()
        assert await events.get() == ("DELETED", "c")
    watching.cancel()
    await asyncio.wait([watching])


# lightkube


def test_lightkube_runs_a_session(cluster: ServerThread, namespace: str) -> None:
    config = lightkube.KubeConfig.from_file(str(cluster.kubeconfig))
    client: Any = lightkube.Client(config=config, namespace=namespace, field_manager="test")
    spec = PodSpec(containers=[Container(name="main", image="busybox")])
    client.create(Pod(metadata=ObjectMeta(name="a", labels={"app": "x"}), spec=spec))
    (listed,) = client.list(Pod, labels={"app": "x"})
    assert listed.metadata.name == "a"
    client.patch(Pod, "a", {"metadata": {"labels": {"tier": "front"}}})
    client.patch(Pod.Status, "a", {"status": {"phase": "Running"}})
    found = client.get(Pod, "a")
    assert (found.status.phase, found.metadata.labels["tier"]) == ("Running", "front")
    client.apply(ConfigMap(metadata=ObjectMeta(name="c"), data={"a": "1"}))
    applied = client.apply(ConfigMap(metadata=ObjectMeta(name="c"), data={"b": "2"}))
    assert applied.data == {"b": "2"}
    for event, obj in client.watch(Pod):
        assert (event, obj.metadata.name) == ("ADDED", "a")
        break
    client.delete(Pod, "a")
    with pytest.raises(ApiError) as caught:
        client.get(Pod, "a")
    assert caught.value.status.reason == "NotFound"


@stands_for(
    "lightkube",
    version=installed("lightkube", "dev.txt"),
    how=RUNS,
    kinds=("Job", "Queue", "Pod", "ConfigMap"),
    servers=("embedded",),
    note="sessions, generic resources, server-side apply",
)
def test_lightkube_handles_volcano_kinds(cluster: ServerThread, namespace: str) -> None:
    config = lightkube.KubeConfig.from_file(str(cluster.kubeconfig))
    client: Any = lightkube.Client(config=config, namespace=namespace)
    job_kind = create_namespaced_resource(BATCH, "v1alpha1", "Job", "jobs")
    queue_kind = create_global_resource(SCHEDULING, "v1beta1", "Queue", "queues")
    client.create(job_kind(metadata=ObjectMeta(name="j"), spec=vcjob("j")["spec"]))
    client.create(queue_kind(metadata=ObjectMeta(name=namespace), spec={"weight": 3}))
    assert client.get(queue_kind, namespace).spec["weight"] == 3
    status = {"status": {"state": {"phase": "Running"}}}
    merge = lightkube.types.PatchType.MERGE
    client.patch(job_kind.Status, "j", status, patch_type=merge)
    assert client.get(job_kind, "j").status["state"]["phase"] == "Running"
    client.delete(job_kind, "j")
    assert list(client.list(job_kind)) == []


async def test_lightkube_runs_an_async_session(cluster: ServerThread, namespace: str) -> None:
    config = lightkube.KubeConfig.from_file(str(cluster.kubeconfig))
    client: Any = lightkube.AsyncClient(config=config, namespace=namespace)
    await client.create(ConfigMap(metadata=ObjectMeta(name="c"), data={"a": "1"}))
    names = [found.metadata.name async for found in client.list(ConfigMap)]
    assert names == ["c", "kube-root-ca.crt"]
    async for event, obj in client.watch(ConfigMap):
        assert (event, obj.data) == ("ADDED", {"a": "1"})
        break
    await client.patch(ConfigMap, "c", {"data": {"b": "2"}})
    assert (await client.get(ConfigMap, "c")).data == {"a": "1", "b": "2"}
    await client.delete(ConfigMap, "c")
    await client.close()
