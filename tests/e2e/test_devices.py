"""One machine with eight (pretended) GPUs, shared in parts as docs/guides/devices.md tells it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hekla.kube.resources import PODGROUPS, PODS
from hekla.kube.sync_client import SyncClient
from tests.e2e import stories

EXAMPLES = Path(__file__).parents[2] / "examples" / "devices"


@pytest.fixture
def client(tmp_path: Path) -> Iterator[SyncClient]:
    with stories.cluster(tmp_path, "--pod-network", "host", "--simulated-gpus", "8") as client:
        yield client


def submit(client: SyncClient, file: str) -> None:
    stories.submit(client, EXAMPLES / file)


def succeeded(client: SyncClient, job: str, count: int) -> list[str]:
    """The pods of a job, once so many of them have succeeded."""
    done: set[str] = set()
    with client.watch(PODS, namespace="default", timeout_s=60) as events:
        for event in events:
            pod: dict[str, Any] = event.object
            of = pod["metadata"].get("labels", {}).get("volcano.sh/job-name")
            if of == job and pod["status"].get("phase") == "Succeeded":
                done.add(pod["metadata"]["name"])
            if len(done) == count:
                return sorted(done)
    raise AssertionError(f"of {job}, only {sorted(done)} succeeded")


@pytest.mark.slow
def test_processes_see_the_parts_of_cards_that_their_pods_were_given(client: SyncClient) -> None:
    submit(client, "scheduler.yaml")
    submit(client, "shares.yaml")
    pods = succeeded(client, "shares", 4)
    for name in pods:
        pod = client.get(PODS, name, namespace="default")
        assert pod["metadata"]["annotations"]["volcano.sh/vgpu-ids-new"] == (
            "GPU-simulated-0,NVIDIA,4096,25:"
        )
        with client.logs(name, namespace="default") as chunks:
            said = b"".join(chunks).decode()
        assert said.splitlines() == [
            "CUDA_DEVICE_MEMORY_LIMIT_0=4096m",
            "CUDA_DEVICE_SM_LIMIT=25",
            "CUDA_VISIBLE_DEVICES=0",
            "NVIDIA_VISIBLE_DEVICES=GPU-simulated-0",
        ]
    submit(client, "pair.yaml")
    succeeded(client, "pair", 1)
    with client.watch(PODGROUPS, namespace="default", timeout_s=30) as events:
        for event in events:
            if "too-large" in event.object["metadata"]["name"] and (
                "no vgpu cards with enough room" in str(event.object.get("status"))
            ):
                return
    raise AssertionError("the job that fits on no card was not told so")
