"""Migration from Volcano to hekla: running pods are not disturbed, and jobs continue.

`recorded`: objects of a real Volcano, recorded by tools/peers/handover.py. `live`: if Volcano's
programs are built (it takes minutes), Volcano runs first, and again at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tools.kube.cluster import KubeCluster, parts_for
from tools.kube.gobuild import missing
from tools.peers import handover, volcano
from tools.waiting import until

from hekla.api import crds, wellknown
from hekla.cli import release
from hekla.kube.resources import (
    COMMANDS,
    CONFIGMAPS,
    CUSTOM_RESOURCE_DEFINITIONS,
    JOB_FLOWS,
    JOBS,
    NAMESPACES,
    QUEUES,
)
from hekla.kube.sync_client import SyncClient
from hekla.units.objects import Object
from tests.install.component_processes import ComponentProcesses
from tests.install.permissions import requests
from tests.install.restore_objects import load, restore
from tests.realkube.backends import finish
from tests.realkube.test_jobs import job, phase, pods

TEAM = handover.NAMESPACE
SPACE = wellknown.SYSTEM_NAMESPACE
IS_BUILT = all(part.program.exists() for part in (volcano.SCHEDULER, volcano.CONTROLLER_MANAGER))
OURS = {"volcano-scheduler.conf": handover.CONF}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[KubeCluster]:
    if reason := missing(parts_for(controllers=True)):
        pytest.skip(reason)
    with KubeCluster(tmp_path / "cluster", controllers=True) as started:
        started.add_nodes(handover.NODES, cpu=handover.CPU)
        yield started


def _as_recorded(cluster: KubeCluster, client: SyncClient) -> None:
    record = load()
    _define(client, record["crds"])
    restore(cluster, record["objects"], TEAM)


def _by_volcano(cluster: KubeCluster, client: SyncClient) -> None:
    _define(client, handover.crds())
    client.create(NAMESPACES, {"metadata": {"name": TEAM}})
    handover.start(cluster)
    handover.give_work(client)
    handover.stop(cluster)


def _define(client: SyncClient, definitions: list[Object]) -> None:
    for crd in definitions:
        client.create(CUSTOM_RESOURCE_DEFINITIONS, crd)
    until(lambda: handover.serves(client))
    client.create(NAMESPACES, {"metadata": {"name": SPACE}})
    body = {"metadata": {"name": wellknown.SCHEDULER_CONFIG_MAP}, "data": OURS}
    client.create(CONFIGMAPS, body, namespace=SPACE)


STATES: dict[str, Callable[[KubeCluster, SyncClient], None]] = {"recorded": _as_recorded}
if IS_BUILT:
    STATES["live"] = _by_volcano


@pytest.mark.parametrize("state", STATES)
def test_hekla_takes_over_without_disturbing_a_pod(cluster: KubeCluster, state: str) -> None:
    with cluster.client() as client:
        STATES[state](cluster, client)
        before, phases = _pods(client), _phases(client)
        objects = release.objects(SPACE, {})
        component_processes = ComponentProcesses(cluster, objects, SPACE)
        release.apply(client, map(component_processes.reachable, objects))
        try:
            for component in ("admission", "scheduler", "controllers"):
                component_processes.start(component)
            _everything_was_looked_at(client)
            assert (_pods(client), _phases(client)) == (before, phases)
            assert (
                client.get(CONFIGMAPS, wellknown.SCHEDULER_CONFIG_MAP, namespace=SPACE)["data"]
                == OURS
            )
            _work_goes_on(client)
            if state == "live":
                component_processes.stop()
                release.remove(client, objects)
                _and_back(cluster, client)
        except BaseException:
            print(component_processes.logs())
            raise
        finally:
            component_processes.stop()
    touched = [
        f"{right.verb} {address}"
        for right, _, address in requests(cluster.audit_log, SPACE)
        if f"/{TEAM}/pods/" in address
        and right.resource in ("pods", "pods/eviction")
        and any(name in address for name in before)
        and right.verb != "get"
    ]
    assert not touched


def _pods(client: SyncClient) -> dict[str, tuple[Any, ...]]:
    return {
        pod["metadata"]["name"]: (
            pod["metadata"]["uid"],
            pod["spec"].get("nodeName"),
            pod["status"]["phase"],
            pod["metadata"].get("deletionTimestamp"),
        )
        for pod in pods(client, TEAM)
    }


def _phases(client: SyncClient) -> dict[str, str]:
    names = [found["metadata"]["name"] for found in client.list(JOBS, namespace=TEAM)]
    states = {queue["metadata"]["name"]: queue["status"]["state"] for queue in client.list(QUEUES)}
    return states | {f"job {name}": phase(client, TEAM, name) for name in names}


def _everything_was_looked_at(client: SyncClient) -> None:
    """Run a new job through all components; they have handled the earlier objects by then."""
    name = "after"
    client.create(NAMESPACES, {"metadata": {"name": name}})
    until(lambda: _accepts(client, name))
    until(lambda: phase(client, name, name) == "Running")
    finish(client, name, f"{name}-worker-0")
    until(lambda: phase(client, name, name) == "Completed")


def _accepts(client: SyncClient, name: str) -> bool:
    try:
        client.create(JOBS, job(name, replicas=1, cpu="100m"), namespace=name)
    except Exception:
        return False  # the webhook server is not up yet
    return True


def _work_goes_on(client: SyncClient) -> None:
    for number in range(4):
        finish(client, TEAM, f"train-worker-{number}")
    until(lambda: phase(client, TEAM, "train") == "Completed")
    until(lambda: phase(client, TEAM, "waits") == "Running")
    finish(client, TEAM, "flow-first-worker-0")
    until(lambda: client.find(JOBS, "flow-second", namespace=TEAM))
    for number in range(9):
        finish(client, TEAM, f"waits-worker-{number}")
    until(lambda: phase(client, TEAM, "waits") == "Completed")
    until(lambda: phase(client, TEAM, "flow-second") == "Running")
    _resume(client, "stopped")
    until(lambda: phase(client, TEAM, "stopped") == "Running")


def _resume(client: SyncClient, name: str) -> None:
    found = client.get(JOBS, name, namespace=TEAM)
    target = {
        "apiVersion": wellknown.BATCH_API,
        "kind": "Job",
        "name": name,
        "uid": found["metadata"]["uid"],
        "controller": True,
    }
    body = {"metadata": {"generateName": "c-"}, "action": "ResumeJob", "target": target}
    client.create(COMMANDS, body, namespace=TEAM)


def _and_back(cluster: KubeCluster, client: SyncClient) -> None:
    """Check that Volcano continues with its objects and finishes hekla's jobs."""
    before = _pods(client)
    handover.start(cluster)
    client.create(JOBS, handover.job("back", 1), namespace=TEAM)
    until(lambda: phase(client, TEAM, "back") == "Running")
    now = _pods(client)
    assert {name: now.get(name) for name in before} == before
    finish(client, TEAM, "flow-second-worker-0")
    until(lambda: phase(client, TEAM, "flow-second") == "Completed")
    flow = client.get(JOB_FLOWS, "flow", namespace=TEAM)
    assert flow["status"]["state"]["phase"] in ("Running", "Succeed")
    handover.stop(cluster)


def test_crds_contain_every_field_of_volcanos() -> None:
    theirs = {crd["metadata"]["name"]: crd for crd in load()["crds"]}
    ours = {crd["metadata"]["name"]: crd for crd in crds.load()}
    assert len(theirs) == 11
    for name, crd in theirs.items():
        (their,), (our,) = crd["spec"]["versions"], ours[name]["spec"]["versions"]
        assert their["name"] == our["name"]
        missing = _fields(their["schema"]["openAPIV3Schema"]) - _fields(
            our["schema"]["openAPIV3Schema"]
        )
        assert sorted(missing) == [], name


def _fields(schema: Object, path: str = "") -> set[str]:
    found: set[str] = set()
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        return found
    for name, below in (schema.get("properties") or {}).items():
        found |= {f"{path}.{name}", *_fields(below, f"{path}.{name}")}
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            found |= _fields(schema[key], f"{path}[]")
    return found
