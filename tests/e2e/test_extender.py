"""An HTTP extender, as in docs/guides/extender.md."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hekla.kube.resources import PODGROUPS, PODS
from hekla.kube.sync_client import SyncClient
from tests.e2e import stories

EXAMPLES = Path(__file__).parents[2] / "examples" / "extender"
GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "extender.md"


@pytest.fixture
def client(tmp_path: Path) -> Iterator[SyncClient]:
    with stories.cluster(tmp_path, "--no-agent", "--simulated-nodes", "3") as client:
        yield client


def test_the_extender_decides_placements_and_messages(client: SyncClient) -> None:
    with stories.program(EXAMPLES / "prices.py", 0) as policy:
        stories.submit(client, EXAMPLES / "scheduler.yaml", {"http://127.0.0.1:8888": policy.url})
        stories.submit(client, EXAMPLES / "thrifty.yaml")
        want = {"sim-00001": 1, "sim-00002": 1}
        stories.seen(client, PODS, lambda pods: stories.nodes_of(pods) == want)
        stories.submit(client, EXAMPLES / "third.yaml")
        stories.seen(client, PODGROUPS, lambda groups: "cost too much" in str(groups))


def test_the_guide_quotes_the_program() -> None:
    (shown,) = GUIDE.read_text().split("```python\n")[1:]
    assert shown.partition("```")[0].strip() in (EXAMPLES / "prices.py").read_text()
