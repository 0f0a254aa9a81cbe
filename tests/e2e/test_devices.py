"""Eight simulated GPUs and exclusive CPUs on one machine, as in docs/guides/devices.md."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hekla.kube.resources import PODGROUPS, PODS
from hekla.kube.sync_client import SyncClient
from hekla.nodeagent.cgroups import Cgroups
from hekla.nodeagent.topology import cpu_locations
from hekla.units.cpusets import parse_cpuset
from tests.e2e import stories

EXAMPLES = Path(__file__).parents[2] / "examples" / "devices"


@pytest.fixture
def client(tmp_path: Path) -> Iterator[SyncClient]:
    with stories.cluster(tmp_path, "--pod-network", "host", "--simulated-gpus", "8") as client:
        yield client


def submit(client: SyncClient, file: str) -> None:
    stories.submit(client, EXAMPLES / file)


def succeeded(client: SyncClient, job: str, count: int) -> list[str]:
    """Wait until so many pods of a job have succeeded; return its pods."""
    done: set[str] = set()
    with client.watch(PODS, namespace="default", timeout_s=600) as events:
        for event in events:
            pod: dict[str, Any] = event.object
            of = pod["metadata"].get("labels", {}).get("volcano.sh/job-name")
            if of == job and pod["status"].get("phase") == "Succeeded":
                done.add(pod["metadata"]["name"])
            if len(done) == count:
                return sorted(done)
    raise AssertionError(f"of {job}, only {sorted(done)} succeeded")


@pytest.mark.slow
def test_processes_see_the_device_shares_of_their_pods(client: SyncClient) -> None:
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
    with client.watch(PODGROUPS, namespace="default", timeout_s=600) as events:
        for event in events:
            if "too-large" in event.object["metadata"]["name"] and (
                "no vgpu devices with enough capacity" in str(event.object.get("status"))
            ):
                return
    raise AssertionError("the job that fits on no device has no such condition")


@pytest.mark.slow
def test_a_guaranteed_job_gets_an_exclusive_cpu(tmp_path: Path) -> None:
    if not Cgroups().can_pin() or not cpu_locations():
        pytest.skip("needs cgroups that bind to CPUs (root), and NUMA nodes in sysfs")
    flags = "--cpu-manager-policy=static", "--topology-manager-policy=single-numa-node"
    with stories.cluster(tmp_path, "--pod-network", "host", *flags) as client:
        submit(client, "own-cpus.yaml")
        (name,) = succeeded(client, "own-cpus", 1)
        with client.logs(name, namespace="default") as chunks:
            said = b"".join(chunks).decode()
        decided = client.get(PODS, name, namespace="default")["metadata"]["annotations"]
    own = parse_cpuset(said.split()[-1])
    assert len(own) == 1
    assert own < os.sched_getaffinity(0) or len(os.sched_getaffinity(0)) == 1
    numa = {cpu_locations()[cpu].numa for cpu in own}
    assert decided["volcano.sh/topology-decision"] == (
        f'{{"numa":{{"{numa.pop()}":{{"cpu":"1"}}}}}}'
    )
