"""Eight simulated GPUs on one machine, shared as in docs/guides/share-one-gpu-box.md."""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hekla.kube.resources import JOBS, PODS
from hekla.kube.sync_client import SyncClient
from tests.e2e import stories

SHARED = Path(__file__).parents[2] / "examples" / "share-one-box"


@pytest.fixture
def client(tmp_path: Path) -> Iterator[SyncClient]:
    with stories.cluster(
        tmp_path / "state", "--pod-network", "host", "--simulated-gpus", "8", "--pod-user", "owner"
    ) as client:
        yield client


def submit(client: SyncClient, file: str, changed: dict[str, str] | None = None) -> None:
    stories.submit(client, SHARED / file, changed)


def until(client: SyncClient, holds: Callable[[Counter[str]], bool]) -> Counter[str]:
    """Watch until the condition holds; return the running pods of each job."""
    running: dict[str, str] = {}
    with client.watch(PODS, timeout_s=600) as events:
        for event in events:
            pod: dict[str, Any] = event.object
            metadata = pod["metadata"]
            running.pop(metadata["uid"], None)
            gone = event.type == "DELETED" or "deletionTimestamp" in metadata
            if not gone and pod["status"].get("phase") == "Running":
                running[metadata["uid"]] = metadata["labels"]["volcano.sh/job-name"]
            if holds(Counter(running.values())):
                return Counter(running.values())
    raise AssertionError(f"the condition never held; running: {Counter(running.values())}")


@pytest.mark.slow
def test_idle_gpus_are_borrowed_and_reclaimed_and_priority_preempts(
    client: SyncClient, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    submit(client, "scheduler.yaml")
    submit(client, "queues.yaml")
    submit(client, "sweep.yaml")
    until(client, lambda running: running == {"sweep": 8})  # sweep borrows Bob's two idle GPUs
    submit(client, "evaluation.yaml")
    until(client, lambda running: running == {"sweep": 6, "evaluation": 2})  # three to one
    until_told = f"until [ -e {gate} ]; do sleep 0.1; done"
    submit(client, "deadline.yaml", {"sleep 5": until_told})
    until(client, lambda running: running == {"deadline": 4, "sweep": 2, "evaluation": 2})
    gate.touch()
    until(client, lambda running: running == {"sweep": 6, "evaluation": 2})  # and back again
    client.delete(JOBS, "evaluation", namespace="default")
    until(client, lambda running: running == {"sweep": 8})
