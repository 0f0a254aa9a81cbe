"""Two users and one simulated node, as docs/guides/fair-over-time.md tells it."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from hekla.kube import kubeconfig
from hekla.kube.resources import CONFIGMAPS, JOBS, NODES, PODS
from hekla.kube.sync_client import SyncClient

EXAMPLES = Path(__file__).parents[2] / "examples" / "fair-over-time"
HEKLA = [sys.executable, "-m", "hekla.cli.main"]


@pytest.fixture
def client(tmp_path: Path) -> Iterator[SyncClient]:
    where = ["--data-dir", str(tmp_path)]
    up = [*HEKLA, "up", *where, "--detach", "--no-agent", "--simulated-nodes", "1"]
    subprocess.run(up, check=True, capture_output=True)
    with SyncClient(kubeconfig.load(tmp_path / "kubeconfig")) as client:
        yield client
    subprocess.run([*HEKLA, "down", *where], check=True, capture_output=True)


def submit(client: SyncClient, file: str) -> None:
    body = yaml.safe_load((EXAMPLES / file).read_text())
    if body["kind"] == "ConfigMap":
        client.apply(CONFIGMAPS, body, field_manager="test", force=True)
    else:
        client.create(JOBS, body)


def bound_in_order(client: SyncClient, count: int) -> list[str]:
    """The first so many pods that are given a node, in that order."""
    order: list[str] = []
    with client.watch(PODS, timeout_s=90) as events:
        for event in events:
            name = event.object["metadata"]["labels"]["volcano.sh/job-name"]
            if event.object["spec"].get("nodeName") and name not in order:
                order.append(name)
            if len(order) == count:
                return order
    raise AssertionError(f"bound: {order}")


def test_who_had_nothing_goes_before_who_just_had_the_node(client: SyncClient) -> None:
    with client.watch(NODES, timeout_s=90) as events:
        assert next(iter(events)).object["metadata"]["name"].startswith("sim-")
    submit(client, "scheduler.yaml")
    submit(client, "alice-1.yaml")
    assert bound_in_order(client, 1) == ["alice-1"]
    submit(client, "alice-2.yaml")
    submit(client, "bob-1.yaml")
    assert bound_in_order(client, 3) == ["alice-1", "bob-1", "alice-2"]
