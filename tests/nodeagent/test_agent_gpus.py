"""GPUs and the topology of this machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hekla.api.wellknown import GPU_INDEX, VGPU_CORES, VGPU_IDS_NEW, VGPU_MEMORY, VGPU_NUMBER
from hekla.kube.resources import NUMA_TOPOLOGIES, PODS
from hekla.nodeagent.topology import cpu_locations
from tests.nodeagent.conftest import NODE, Machine, state


async def test_gpus_stay_allocated_when_the_agent_restarts(
    machine: Machine, tmp_path: Path
) -> None:
    await machine.stop_agent()
    machine.start_agent(gpus=2)
    one = {"resources": {"limits": {"nvidia.com/gpu": "1"}}}
    gate = tmp_path / "gate"
    hold = f"echo $CUDA_VISIBLE_DEVICES; until [ -e {gate} ]; do sleep 0.05; done"
    await machine.run_pod("first", "true", container=one)
    await machine.ended("first")
    await machine.run_pod("zeroth", "sh", "-c", hold, container=one)
    await machine.run_pod("running", "sh", "-c", hold, container=one)
    await machine.running("zeroth")
    await machine.running("running")
    await machine.stop_agent()
    await machine.run_pod("another", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES", container=one)
    machine.start_agent(gpus=2)
    refused = await machine.ended("another")
    assert refused["status"]["reason"] == "OutOfnvidia.com/gpu"
    gate.touch()
    for name in ("zeroth", "running"):
        await machine.ended(name)
    seen = {await machine.logs("zeroth"), await machine.logs("running")}
    assert seen == {"0\n", "1\n"}


async def test_numatopology_is_reported(machine: Machine) -> None:
    if not cpu_locations():
        pytest.skip("needs NUMA nodes in sysfs")
    async with machine.client.watch(NUMA_TOPOLOGIES) as events:
        found = (await anext(events)).object
    assert found["metadata"]["name"] == NODE
    assert found["spec"]["numares"]["cpu"]["capacity"] >= len(os.sched_getaffinity(0))


async def test_gpu_shares_are_visible_only_to_their_containers(
    machine: Machine, tmp_path: Path
) -> None:
    await machine.stop_agent()
    machine.start_agent(gpus=3)
    given = "GPU-simulated-2,NVIDIA,3000,30:GPU-simulated-0,NVIDIA,3000,30:"
    notes = {"annotations": {"volcano.sh/vgpu-ids-new": given}}
    gate = tmp_path / "gate"
    show = "env | grep -E '^(CUDA|NVIDIA)_' | sort; "
    hold = f"until [ -e {gate} ]; do sleep 0.05; done"
    parts = {"resources": {"limits": {VGPU_NUMBER: "2", VGPU_MEMORY: "3000", VGPU_CORES: "30"}}}
    await machine.run_pod("shares", "sh", "-c", show + hold, metadata=notes, container=parts)
    await machine.running("shares")
    whole = {"resources": {"limits": {"nvidia.com/gpu": "2"}}}
    await machine.run_pod("whole", "true", container=whole)
    held = await machine.until("whole", lambda p: "are free" in str(p["status"]))
    assert "needs 2 GPUs, and 1 are free" in state(held)["state"]["waiting"]["message"]
    gate.touch()
    await machine.ended("whole")
    assert (await machine.logs("shares")).splitlines() == [
        "CUDA_DEVICE_MEMORY_LIMIT_0=3000m",
        "CUDA_DEVICE_MEMORY_LIMIT_1=3000m",
        "CUDA_DEVICE_SM_LIMIT=30",
        "CUDA_VISIBLE_DEVICES=2,0",
        "NVIDIA_VISIBLE_DEVICES=GPU-simulated-2,GPU-simulated-0",
    ]


async def test_annotations_give_no_gpu_to_a_pod_without_gpu_limits(machine: Machine) -> None:
    await machine.stop_agent()
    machine.start_agent(gpus=2)
    lies = {GPU_INDEX: "0,1", VGPU_IDS_NEW: "GPU-simulated-0,NVIDIA,1,1:"}
    show = "env | grep -E '^(CUDA|NVIDIA)_'; sleep 600"
    await machine.run_pod("liar", "sh", "-c", show, metadata={"annotations": lies})
    await machine.running("liar")
    whole = {"resources": {"limits": {"nvidia.com/gpu": "2"}}}
    await machine.run_pod("whole", "true", container=whole)
    assert (await machine.ended("whole"))["status"]["phase"] == "Succeeded"
    while len(seen := (await machine.logs("liar")).splitlines()) < 2:
        pass
    assert sorted(seen) == ["CUDA_VISIBLE_DEVICES=", "NVIDIA_VISIBLE_DEVICES=void"]


async def test_gpu_shares_do_not_change_after_the_first_start(
    machine: Machine, tmp_path: Path
) -> None:
    await machine.stop_agent()
    machine.start_agent(gpus=2)
    notes = {"annotations": {VGPU_IDS_NEW: "GPU-simulated-0,NVIDIA,3000,0:"}}
    part = {"resources": {"limits": {VGPU_NUMBER: "1", VGPU_MEMORY: "3000"}}}
    gate, again = tmp_path / "gate", tmp_path / "again"
    wait = f"until [ -e {gate} ]; do sleep 0.05; done"
    show = f"echo $CUDA_VISIBLE_DEVICES; {wait}; [ -e {again} ] || {{ touch {again}; exit 1; }}"
    await machine.run_pod(
        "p", "sh", "-c", show, metadata=notes, container=part, restartPolicy="OnFailure"
    )
    await machine.running("p")
    more = {VGPU_IDS_NEW: "GPU-simulated-1,NVIDIA,16384,0:"}
    await machine.client.patch(PODS, "p", {"metadata": {"annotations": more}}, namespace="default")
    await machine.stop_agent()
    machine.start_agent(gpus=2)
    gate.touch()
    assert state(await machine.ended("p"))["restartCount"] == 1
    assert await machine.logs("p") == "0\n"
