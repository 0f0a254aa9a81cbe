"""`hekla nodes`, `hekla drain`, `hekla undrain`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hekla.api.drain import drain_of
from hekla.api.wellknown import DRAIN_REASON, DRAINED_AT, DRAINED_BY, SIMULATED_NODE
from hekla.cli.capacity.eviction import NodeEmptier, TookTooLong
from hekla.kube.resources import NODES, POD_DISRUPTION_BUDGETS, PODS
from hekla.kube.sync_client import SyncClient
from hekla.units.objects import Object
from tests.cli.conftest import Run

MakeNode = Callable[..., str]
MakePod = Callable[..., Object]
READY = {"type": "Ready", "status": "True", "reason": "Simulated"}


@pytest.fixture
def make_node(admin: SyncClient, unique: str) -> Iterator[MakeNode]:
    """Create a node with 8 cores, 16Gi and 2 GPUs; its name starts with the test's."""
    made = []

    def make(suffix: str, ready: bool = True, **metadata: Any) -> str:
        name = f"{unique}-{suffix}"
        admin.create(NODES, {"metadata": {"name": name, **metadata}})
        made.append(name)
        amounts = {"cpu": "8", "memory": "16Gi", "nvidia.com/gpu": "2", "pods": "10"}
        condition = READY if ready else {**READY, "status": "False", "message": "disk is full"}
        status = {"capacity": amounts, "allocatable": amounts, "conditions": [condition]}
        admin.patch_status(NODES, name, status)
        return name

    yield make
    for name in made:
        admin.delete(NODES, name)


@pytest.fixture
def make_pod(admin: SyncClient, namespace: str) -> MakePod:
    """Create a pod on a node, with a controller unless `owned` is false."""

    def make(
        name: str, node: str, *, owned: bool = True, kind: str = "Job", **requests: str
    ) -> Object:
        owner = {"apiVersion": "v1", "kind": kind, "name": "x", "uid": "u-x", "controller": True}
        amounts = {key.replace("gpu", "nvidia.com/gpu"): value for key, value in requests.items()}
        limits = {key: value for key, value in amounts.items() if key == "nvidia.com/gpu"}
        resources = {"requests": amounts, "limits": limits}
        container = {"name": "main", "image": "busybox", "resources": resources}
        metadata = {
            "name": name,
            "labels": {"app": name},
            "ownerReferences": [owner] if owned else [],
        }
        spec = {"nodeName": node, "containers": [container], "terminationGracePeriodSeconds": 0}
        return admin.create(PODS, {"metadata": metadata, "spec": spec}, namespace=namespace)

    return make


@pytest.fixture
def hekla(tool: Run) -> Run:
    return lambda *args: tool("hekla", *args)


def row(hekla: Run, name: str, *flags: str) -> list[str]:
    (line,) = (line for line in hekla("nodes", *flags).lines if line.startswith(f"{name} "))
    return line.split()


def test_node_shows_what_its_pods_request(
    hekla: Run, make_node: MakeNode, make_pod: MakePod, admin: SyncClient, namespace: str
) -> None:
    name = make_node("n1")
    make_pod("a", name, cpu="1500m", memory="3Gi", gpu="1")
    make_pod("b", name, cpu="1", memory="512Mi")
    make_pod("done", name, cpu="4")
    admin.patch_status(PODS, "done", {"phase": "Succeeded"}, namespace=namespace)
    assert row(hekla, name)[:6] == [name, "Ready", "2.5/8", "3.5/16Gi", "1/2", "2/10"]


def test_node_that_is_not_ready_shows_why(hekla: Run, make_node: MakeNode) -> None:
    name = make_node("n1", ready=False, labels={SIMULATED_NODE: "true"})
    assert "NotReady,simulated" in row(hekla, name)
    assert " ".join(row(hekla, name)[-3:]) == "disk is full"


def test_json_has_exact_amounts(hekla: Run, make_node: MakeNode, make_pod: MakePod) -> None:
    name = make_node("n1")
    make_pod("a", name, cpu="1500m", memory="3Gi")
    listed = json.loads(hekla("nodes", "-o", "json").out)["items"]
    (found,) = (one for one in listed if one["name"] == name)
    assert found["allocated"] == {"cpu": "1500m", "memory": "3Gi"}
    assert found["allocatable"]["nvidia.com/gpu"] == "2"
    assert found["takesPods"]


def test_drained_node_has_reason_user_and_time(
    hekla: Run, make_node: MakeNode, admin: SyncClient
) -> None:
    name = make_node("n1", labels={"rack": "r1"})
    done = hekla("drain", name, "--reason", "new  disk")
    assert done.lines == [f"node {name} is drained"]
    node = admin.get(NODES, name)
    notes = node["metadata"]["annotations"]
    assert node["spec"]["unschedulable"] is True
    assert notes[DRAIN_REASON] == "new disk"
    assert notes[DRAINED_BY]
    assert notes[DRAINED_AT].endswith("Z")
    assert f"drained by {notes[DRAINED_BY]}" in hekla("nodes", name).out
    assert "new disk" in " ".join(row(hekla, name))

    assert hekla("undrain", name).lines == [f"node {name} takes pods again"]
    node = admin.get(NODES, name)
    assert drain_of(node) is None
    assert DRAIN_REASON not in node["metadata"].get("annotations", {})
    assert node["metadata"]["labels"]["rack"] == "r1"
    assert hekla("undrain", name).lines == [f"node {name} is not drained"]


def test_node_is_draining_while_pods_of_jobs_run_there(
    hekla: Run, make_node: MakeNode, make_pod: MakePod
) -> None:
    name = make_node("n1")
    make_pod("a", name)
    make_pod("d", name, kind="DaemonSet")
    said = hekla("drain", name, "-r", "fan").out
    assert "is draining: it takes no new pods, and 1 pod still runs there" in said
    assert "draining" in row(hekla, name)


def test_evicted_node_is_drained_and_pods_of_daemon_sets_stay(
    hekla: Run, make_node: MakeNode, make_pod: MakePod, admin: SyncClient, namespace: str
) -> None:
    name = make_node("n1")
    make_pod("a", name)
    make_pod("d", name, kind="DaemonSet")
    done = hekla("drain", name, "-r", "fan", "--evict", "--grace-period", "0", "--wait")
    assert done.lines[-2:] == [f"pod {namespace}/a is evicted", f"node {name} is drained"]
    assert [pod["metadata"]["name"] for pod in admin.list(PODS, namespace=namespace)] == ["d"]


def test_eviction_that_would_lose_a_pod_is_refused_before_anything_changes(
    hekla: Run, make_node: MakeNode, make_pod: MakePod, admin: SyncClient, namespace: str
) -> None:
    name = make_node("n1")
    make_pod("bare", name, owned=False)
    done = hekla("drain", name, "-r", "fan", "--evict")
    assert done.code == 255
    assert f"again: {namespace}/bare" in done.err
    assert drain_of(admin.get(NODES, name)) is None
    assert hekla("drain", name, "-r", "fan", "--evict", "--force", "--grace-period", "0").code == 0


def test_disruption_budget_holds_up_an_eviction_until_the_timeout(
    hekla: Run, make_node: MakeNode, make_pod: MakePod, admin: SyncClient, namespace: str
) -> None:
    name = make_node("n1")
    make_pod("a", name)
    admin.patch_status(
        PODS,
        "a",
        {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
        namespace=namespace,
    )
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "a"}}}
    admin.create(
        POD_DISRUPTION_BUDGETS, {"metadata": {"name": "keep"}, "spec": spec}, namespace=namespace
    )
    clock = iter([0.0, 0.0, 9.0])
    said: list[str] = []
    emptier = NodeEmptier(admin, name, said.append, timeout_s=0.01, monotonic=lambda: next(clock))
    with pytest.raises(TookTooLong, match=f"{namespace}/a .*disruption"):
        emptier.evict()
    assert said[0].startswith(f"pod {namespace}/a is not evicted yet: ")


NONSENSE = {
    "no node": (["drain"], "no node to drain is given"),
    "no reason": (["drain", "NODE"], "needs a reason"),
    "a blank reason": (["drain", "NODE", "-r", "  "], "needs a reason"),
    "a reason that is too long": (["drain", "NODE", "-r", "x" * 201], "201 characters"),
    "a wrong name": (["drain", "NODEx", "-r", "fan"], 'did you mean "NODE"?'),
    "one wrong name among several": (["drain", "NODE", "NODEx", "-r", "fan"], "does not exist"),
    "force without evict": (["drain", "NODE", "-r", "fan", "--force"], "apply to --evict"),
    "timeout without wait": (["drain", "NODE", "-r", "a", "--timeout", "1s"], "applies to"),
    "a wrong name to show": (["nodes", "NODEx"], 'did you mean "NODE"?'),
    "watching one node": (["nodes", "NODE", "--watch"], "omit NAME"),
}


@pytest.mark.parametrize("case", NONSENSE)
def test_nonsense_is_refused_and_the_node_keeps_taking_pods(
    case: str, hekla: Run, make_node: MakeNode, admin: SyncClient
) -> None:
    name = make_node("n1")
    words, want = NONSENSE[case]
    done = hekla(*(word.replace("NODE", name) for word in words))
    assert done.code != 0
    assert want.replace("NODE", name) in done.err
    assert drain_of(admin.get(NODES, name)) is None
