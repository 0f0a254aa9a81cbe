"""Revocable nodes and node groups, as in docs/guides/time-and-place.md."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from hekla.kube.resources import NODES, PODS
from hekla.kube.sync_client import SyncClient
from tests.e2e import stories

EXAMPLES = Path(__file__).parents[2] / "examples" / "time-and-place"
LABELS = {
    "sim-00000": {"volcano.sh/nodegroup-name": "gold"},
    "sim-00001": {"volcano.sh/nodegroup-name": "silver"},
    "sim-00002": {"volcano.sh/revocable-zone": "night"},
}


@pytest.fixture
def client(tmp_path: Path) -> Iterator[SyncClient]:
    with stories.cluster(tmp_path, "--no-agent", "--simulated-nodes", "3") as client:
        yield client


def submit(client: SyncClient, *files: str) -> None:
    for file in files:
        stories.submit(client, EXAMPLES / file)


def places(pods: list[Any]) -> list[tuple[str, str]]:
    return sorted(
        (pod["metadata"]["labels"]["volcano.sh/job-name"], pod["spec"]["nodeName"])
        for pod in pods
        if pod["spec"].get("nodeName") and "deletionTimestamp" not in pod["metadata"]
    )


def closed_now(tmp_path: Path) -> Path:
    """Return `closed.yaml` with a revocable zone that is closed now."""
    text = (EXAMPLES / "closed.yaml").read_text()
    hour = (datetime.now().astimezone().hour + 12) % 24
    assert "04:00-04:01" in text
    changed = tmp_path / "closed.yaml"
    changed.write_text(text.replace("04:00-04:01", f"{hour:02}:00-{hour:02}:01"))
    return changed


def test_jobs_run_in_their_node_group_and_are_evicted_from_revoked_nodes(
    client: SyncClient, tmp_path: Path
) -> None:
    stories.seen(client, NODES, lambda nodes: len(nodes) == 3)
    for name, labels in LABELS.items():
        client.patch(NODES, name, {"metadata": {"labels": labels}})
    submit(client, "scheduler.yaml", "research.yaml", "on-gold.yaml", "on-night.yaml")
    gold = [("on-gold", "sim-00000")] * 2
    stories.seen(
        client, PODS, lambda pods: places(pods) == [*gold, *[("on-night", "sim-00002")] * 2]
    )
    stories.submit(client, closed_now(tmp_path))
    stories.seen(client, PODS, lambda pods: places(pods) == gold)
