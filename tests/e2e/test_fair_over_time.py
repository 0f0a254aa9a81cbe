"""Two users and one simulated node, as in docs/guides/fair-over-time.md."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hekla.kube.resources import JOBS, NODES, PODGROUPS, PODS
from hekla.kube.sync_client import SyncClient
from tests.e2e import stories

EXAMPLES = Path(__file__).parents[2] / "examples" / "fair-over-time"


@pytest.fixture
def client(tmp_path: Path) -> Iterator[SyncClient]:
    with stories.cluster(tmp_path, "--no-agent", "--simulated-nodes", "1") as client:
        yield client


def submit(client: SyncClient, file: str, changed: dict[str, str] | None = None) -> None:
    stories.submit(client, EXAMPLES / file, changed)


def bound(pods: list[Any]) -> set[str]:
    """Return the jobs of the bound pods."""
    there = (pod for pod in pods if pod["spec"].get("nodeName"))
    return {pod["metadata"]["labels"]["volcano.sh/job-name"] for pod in there}


def test_a_user_without_past_usage_goes_first(client: SyncClient) -> None:
    stories.seen(client, NODES, lambda nodes: len(nodes) == 1)
    # Shorter than in the guide: the history is shorter, and the node is released as soon as the
    # other jobs are pending.
    hasty = "half-life: 60s\n          fairshare.ahead: 1s"
    submit(client, "scheduler.yaml", {"half-life: 1h": hasty})
    submit(client, "alice-1.yaml", {'"15"': '"3600"'})
    stories.seen(client, PODS, lambda pods: bound(pods) == {"alice-1"})
    submit(client, "alice-2.yaml")
    submit(client, "bob-1.yaml")
    stories.seen(client, PODGROUPS, lambda groups: str(groups).count("insufficient cpu;") == 2)
    before = client.list(PODS)
    assert bound(list(before)) == {"alice-1"}
    client.delete(JOBS, "alice-1", namespace="default")
    order: list[str] = []
    with client.watch(PODS, resource_version=before.resource_version, timeout_s=600) as events:
        for event in events:
            for name in bound([event.object]) - {"alice-1", *order}:
                order.append(name)
            if len(order) == 2:
                break
    assert order == ["bob-1", "alice-2"]
