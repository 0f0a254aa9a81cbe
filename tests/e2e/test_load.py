"""Measured load, as in docs/guides/load.md."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from hekla.kube.resources import PODS
from hekla.kube.sync_client import SyncClient
from tests.e2e import stories

EXAMPLES = Path(__file__).parents[2] / "examples" / "load"
GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "load.md"


@pytest.fixture
def client(tmp_path: Path) -> Iterator[SyncClient]:
    with stories.cluster(tmp_path / "state", "--no-agent", "--simulated-nodes", "3") as client:
        yield client


def test_pods_are_placed_on_idle_nodes_and_evicted_from_overloaded_ones(
    client: SyncClient, tmp_path: Path
) -> None:
    loads = tmp_path / "loads.json"
    loads.write_text((EXAMPLES / "loads.json").read_text())
    with stories.program(EXAMPLES / "prometheus.py", 0, loads) as source:
        stories.submit(client, EXAMPLES / "scheduler.yaml", {"http://127.0.0.1:9090": source.url})
        source.is_asked(2)  # the second request follows the use of the first response
        stories.submit(client, EXAMPLES / "service.yaml")
        stories.seen(client, PODS, lambda pods: stories.nodes_of(pods) == {"sim-00001": 4})
        (line,) = [line for line in GUIDE.read_text().splitlines() if "echo '" in line]
        new = line.split("'")[1]
        assert json.loads(new)["sim-00001"] == [90, 30]
        loads.write_text(new)
        want = {"sim-00000": 3, "sim-00001": 1}
        stories.seen(client, PODS, lambda pods: stories.nodes_of(pods) == want)
