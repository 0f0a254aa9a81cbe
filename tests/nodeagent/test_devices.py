"""Pod addresses, hosts files and GPU allocation."""

from __future__ import annotations

from typing import Any

import pytest

from hekla.api import wellknown
from hekla.kube.resources import NODES
from hekla.nodeagent.device_manager import DeviceManager, requested_shares
from hekla.nodeagent.errors import AllocationError
from hekla.nodeagent.gpus import Gpu, GpuShare, simulate_gpus, visible_devices
from hekla.nodeagent.hosts import hosts_file
from hekla.nodeagent.node_status import node_object
from hekla.nodeagent.pod_addresses import PodAddresses
from hekla.units.objects import Object
from tests.nodeagent.conftest import NODE, Machine


def test_hosts_file_has_pods_by_name_and_subdomain() -> None:
    pod: Object = {
        "metadata": {"name": "train-worker-0", "namespace": "ml"},
        "spec": {"hostname": "w0", "subdomain": "train"},
    }
    text = hosts_file([(pod, "127.64.0.7")])
    assert "127.64.0.7 w0.train.ml.svc.cluster.local w0.train w0 train-worker-0\n" in text


def test_addresses_and_gpus_are_allocated_once_and_released() -> None:
    addresses = PodAddresses((127, 64, 0, 1))
    first = addresses.allocate("a", "ns/w-0")
    assert first == addresses.expected("ns/w-0")
    assert addresses.allocate("a", "ns/w-0") == first
    second = addresses.allocate("b", "ns/w-0")  # the next w-0, while the last one still exists
    assert second != first
    addresses.release("a")
    assert addresses.allocate("c", "ns/w-0") == first
    assert {a.split(".")[1] for a in addresses.allocated.values()} == {"64"}
    devices = DeviceManager(simulate_gpus(4))
    assert (devices.allocate("a", 2), devices.allocate("b", 1), devices.allocate("a", 2)) == (
        [0, 1],
        [2],
        [0, 1],
    )
    devices.release("a")
    assert devices.allocate("c", 3) == [0, 1, 3]
    with pytest.raises(AllocationError, match="needs 2 GPUs, and 0 are free"):
        devices.allocate("d", 2)


def _pod(limits: dict[str, str], **notes: str) -> dict[str, Any]:
    annotations = {f"volcano.sh/{name.replace('_', '-')}": text for name, text in notes.items()}
    return {
        "metadata": {"uid": "u", "annotations": annotations},
        "spec": {"containers": [{"name": "c", "resources": {"limits": limits}}]},
    }


def test_annotations_name_the_gpus_and_limits_their_number_and_size() -> None:
    devices = DeviceManager(simulate_gpus(4))  # of 16384 MiB
    half = _pod(
        {"volcano.sh/vgpu-number": "1", "volcano.sh/vgpu-memory-percentage": "50"},
        vgpu_ids_new="GPU-simulated-3,NVIDIA,99999,100:",
    )
    assert requested_shares(half, devices) == [GpuShare("c", 3, 8192, 0)]
    numbered = {"volcano.sh/gpu-number": "2"}
    assert requested_shares(_pod(numbered, gpu_index="1,2"), devices) == [
        GpuShare("", 1, 16384, 100),
        GpuShare("", 2, 16384, 100),
    ]
    for nonsense in ("1", "1,2,3", ""):
        with pytest.raises(AllocationError, match="requests 2 GPUs"):
            requested_shares(_pod(numbered, gpu_index=nonsense), devices)
    with pytest.raises(AllocationError, match="requests 1 GPUs"):
        requested_shares(_pod({"volcano.sh/vgpu-memory": "5"}, vgpu_ids_new="garbage"), devices)


def test_gpus_are_visible_by_their_uuids_because_a_container_counts_its_own() -> None:
    ids = [f"GPU-{number}2345678-1234-1234-1234-123456789abc" for number in range(4)]
    devices = DeviceManager([Gpu(each, 16384, "A100") for each in ids])
    devices.share("u", [GpuShare("c", 3, 8192, 0)])
    pod = _pod({"volcano.sh/vgpu-number": "1", "volcano.sh/vgpu-memory": "8192"})
    assert devices.variables(pod, "c")["CUDA_VISIBLE_DEVICES"] == ids[3]
    assert visible_devices([(1, devices.gpus[1]), (3, devices.gpus[3])]) == f"{ids[1]},{ids[3]}"
    unnamed = Gpu("GPU-0", 16384, "NVIDIA")  # nvidia-smi is missing
    assert visible_devices([(1, devices.gpus[1]), (0, unnamed)]) == "1,0"


def test_with_mps_the_environment_has_mps_limits() -> None:
    devices = DeviceManager(simulate_gpus(3), mps_directory="/run/mps")
    pod = _pod(
        {
            "volcano.sh/vgpu-number": "2",
            "volcano.sh/vgpu-memory": "3000",
            "volcano.sh/vgpu-cores": "30",
        },
        vgpu_ids_new="GPU-simulated-2,NVIDIA,3000,30:GPU-simulated-0,NVIDIA,3000,30:",
    )
    assert devices.variables(pod, "c") == {
        "CUDA_VISIBLE_DEVICES": "",
        "NVIDIA_VISIBLE_DEVICES": "void",
    }, "nothing is allocated yet"
    devices.share("u", requested_shares(pod, devices))
    variables = devices.variables(pod, "c")
    assert {key: text for key, text in variables.items() if "MPS" in key} == {
        "CUDA_MPS_PIPE_DIRECTORY": "/run/mps",
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=3000M,1=3000M",
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "30",
    }
    node = node_object("n", "now", devices.gpus, devices.mode)
    register = node["metadata"]["annotations"]["volcano.sh/node-vgpu-register"]
    assert register.startswith("GPU-simulated-0,10,16384,Simulated-GPU,true,mps:")
    without = DeviceManager(simulate_gpus(3), shared=devices.shared)
    assert not any("MPS" in key for key in without.variables(pod, "c"))


def test_gpu_shares_never_exceed_the_gpu() -> None:
    devices = DeviceManager(simulate_gpus(2))
    devices.share("a", [GpuShare("", 0, 10000, 0)])  # by volcano.sh/gpu-memory
    devices.share("b", [GpuShare("c", 0, 6384, 50)])  # a vGPU fills it
    for more in (GpuShare("c", 0, 1, 0), GpuShare("", 0, 16384, 100)):
        with pytest.raises(AllocationError, match="a share of GPU 0"):
            devices.share("d", [more])
    devices.share("e", [GpuShare("", 1, 16384, 100)])
    with pytest.raises(AllocationError, match="a share of GPU 1"):
        devices.share("f", [GpuShare("c", 1, 0, 0)])


def test_gpus_that_are_gone_are_replaced_or_named() -> None:
    """Allocations are kept over a restart, after which a machine may have fewer GPUs."""
    kept = {"a": [3], "b": [0]}
    devices = DeviceManager(simulate_gpus(2), dict(kept))
    assert devices.allocate("b", 1) == [0]
    assert devices.allocate("a", 1) == [1]
    empty = DeviceManager(simulate_gpus(0), dict(kept))
    with pytest.raises(AllocationError, match="needs 1 GPUs, and 0 are free"):
        empty.allocate("a", 1)
    share = GpuShare("", 3, 1000, 10)
    shared = DeviceManager(simulate_gpus(2), shared={"a": [share]})
    with pytest.raises(AllocationError, match="GPU 3, which this machine does not have any more"):
        shared.share("a", [share])


async def test_gpus_that_are_gone_at_the_next_start_are_no_longer_offered(
    machine: Machine,
) -> None:
    """Resources and annotations of others stay."""
    await machine.stop_agent()
    machine.start_agent(gpus=2)
    await machine.run_pod("p", "true")
    await machine.ended("p")
    others = {"capacity": {"example.com/fpga": "1"}}
    await machine.client.patch_status(NODES, NODE, others)
    node = await machine.client.get(NODES, NODE)
    assert node["status"]["allocatable"]["nvidia.com/gpu"] == "2"
    await machine.stop_agent()
    machine.start_agent()
    await machine.run_pod("q", "true")
    await machine.ended("q")
    node = await machine.client.get(NODES, NODE)
    for amounts in (node["status"]["capacity"], node["status"]["allocatable"]):
        assert [name for name in amounts if "gpu" in name] == []
    assert node["status"]["capacity"]["example.com/fpga"] == "1"
    assert wellknown.NODE_VGPU_REGISTER not in node["metadata"]["annotations"]
