"""Lent nodes and groups of nodes, as docs/guides/time-and-place.md tells it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from hekla.kube import kubeconfig
from hekla.kube.resources import CONFIGMAPS, JOBS, NODES, PODS, QUEUES, Resource
from hekla.kube.sync_client import SyncClient

EXAMPLES = Path(__file__).parents[2] / "examples" / "time-and-place"
HEKLA = [sys.executable, "-m", "hekla.cli.main"]
KINDS: dict[str, Resource[Any]] = {"ConfigMap": CONFIGMAPS, "Queue": QUEUES, "Job": JOBS}
LABELS = {
    "sim-00000": {"volcano.sh/nodegroup-name": "gold"},
    "sim-00001": {"volcano.sh/nodegroup-name": "silver"},
    "sim-00002": {"volcano.sh/revocable-zone": "night"},
}


@pytest.fixture
def client(tmp_path: Path) -> Iterator[SyncClient]:
    where = ["--data-dir", str(tmp_path)]
    up = [*HEKLA, "up", *where, "--detach", "--no-agent", "--simulated-nodes", "3"]
    subprocess.run(up, check=True, capture_output=True)
    with SyncClient(kubeconfig.load(tmp_path / "kubeconfig")) as client:
        yield client
    subprocess.run([*HEKLA, "down", *where], check=True, capture_output=True)


def apply(client: SyncClient, *files: str) -> None:
    for file in files:
        body = yaml.safe_load((EXAMPLES / file).read_text())
        client.apply(KINDS[body["kind"]], body, field_manager="test", force=True)


def seen(client: SyncClient, kind: Resource[Any], holds: Callable[[list[Any]], bool]) -> None:
    """Follow a kind until what is there is as it should be."""
    listed = client.list(kind)
    there = {each["metadata"]["uid"]: each for each in listed.items}
    if holds(list(there.values())):
        return
    with client.watch(kind, resource_version=listed.resource_version, timeout_s=90) as events:
        for event in events:
            there[event.object["metadata"]["uid"]] = event.object
            if event.type == "DELETED":
                del there[event.object["metadata"]["uid"]]
            if holds(list(there.values())):
                return
    raise AssertionError(f"{kind} never came to be as they should: {list(there.values())}")


def places(pods: list[Any]) -> list[tuple[str, str]]:
    return sorted(
        (pod["metadata"]["labels"]["volcano.sh/job-name"], pod["spec"]["nodeName"])
        for pod in pods
        if pod["spec"].get("nodeName") and "deletionTimestamp" not in pod["metadata"]
    )


def test_work_goes_to_its_group_and_leaves_lent_nodes_when_they_are_taken_back(
    client: SyncClient,
) -> None:
    seen(client, NODES, lambda nodes: len(nodes) == 3)
    for name, labels in LABELS.items():
        client.patch(NODES, name, {"metadata": {"labels": labels}})
    apply(client, "scheduler.yaml", "research.yaml", "on-gold.yaml", "on-night.yaml")
    gold = [("on-gold", "sim-00000")] * 2
    seen(client, PODS, lambda pods: places(pods) == [*gold, *[("on-night", "sim-00002")] * 2])
    apply(client, "closed.yaml")
    seen(client, PODS, lambda pods: places(pods) == gold)
