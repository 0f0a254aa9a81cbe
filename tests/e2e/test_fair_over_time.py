"""Two users and one simulated node, as docs/guides/fair-over-time.md tells it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from hekla.kube.resources import NODES, PODS
from hekla.kube.sync_client import SyncClient
from tests.e2e import stories

EXAMPLES = Path(__file__).parents[2] / "examples" / "fair-over-time"


@pytest.fixture
def client(tmp_path: Path) -> Iterator[SyncClient]:
    with stories.cluster(tmp_path, "--no-agent", "--simulated-nodes", "1") as client:
        yield client


def submit(client: SyncClient, file: str) -> None:
    stories.submit(client, EXAMPLES / file)


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
