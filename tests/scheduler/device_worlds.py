"""Nodes with devices and pods that request them, for the tests of `deviceshare`."""

from __future__ import annotations

from typing import Any

from hekla.api import wellknown as w
from hekla.testing import GroupBuilder, Result, cluster, gang, node


def conf(**arguments: Any) -> str:
    lines = "".join(f"\n      deviceshare.{key}: {value}" for key, value in arguments.items())
    return f"""\
actions: "allocate, preempt"
tiers:
- plugins: [{{name: priority}}, {{name: gang}}]
- plugins:
  - {{name: predicates}}
  - name: deviceshare
    arguments: {lines or "{}"}
"""


SHARING = conf(GPUSharingEnable="true")


NUMBER = conf(GPUNumberEnable="true")


VIRTUAL = conf(VGPUEnable="true")


PACKED = conf(VGPUEnable="true", SchedulePolicy="binpack", ScheduleWeight=10)


SPREAD = conf(VGPUEnable="true", SchedulePolicy="spread", ScheduleWeight=10)


def gpu_node(name: str, devices: int = 2, memory: int = 8000, **more: Any) -> Any:
    extra = {w.GPU_NUMBER: devices, w.GPU_MEMORY: devices * memory}
    return node(name, cpu=64, extra=extra, **more)


def vgpu_node(
    name: str,
    devices: int = 2,
    memory: int = 16000,
    shares: int = 10,
    kind: str = "NVIDIA-Tesla-V100",
    mode: str = "hami-core",
    annotations: dict[str, str] | None = None,
) -> Any:
    text = "".join(f"GPU-{name}-{i},{shares},{memory},{kind},true,{mode}:" for i in range(devices))
    registered = {w.NODE_VGPU_REGISTER: text, **(annotations or {})}
    return node(name, cpu=64, annotations=registered, extra={w.VGPU_NUMBER: devices * shares})


def wants(number: int = 1, memory: int = 0, percent: int = 0, cores: int = 0) -> dict[str, int]:
    asked = {
        w.VGPU_NUMBER: number,
        w.VGPU_MEMORY: memory,
        w.VGPU_MEMORY_PERCENTAGE: percent,
        w.VGPU_CORES: cores,
    }
    return {name: amount for name, amount in asked.items() if amount}


def job(name: str, members: int = 1, **more: Any) -> GroupBuilder:
    return gang(name, members=members, cpu=1, **more)


def devices(result: Result, key: str = w.VGPU_IDS_NEW) -> dict[str, str]:
    return {bind.pod: bind.annotations.get(key, "") for bind in result.plan.binds}


def every_way(name: str, devices: int = 2, memory: int = 16000) -> Any:
    """Return a node that offers its devices in every way, as hekla's agent does."""
    text = "".join(f"GPU-{name}-{i},10,{memory},V100,true,hami-core:" for i in range(devices))
    extra = {
        w.NVIDIA_GPU: devices,
        w.GPU_NUMBER: devices,
        w.GPU_MEMORY: devices * memory,
        w.VGPU_NUMBER: 10 * devices,
    }
    return node(name, cpu=64, annotations={w.NODE_VGPU_REGISTER: text}, extra=extra)


def goes_first(machine: Any, requests: dict[str, int]) -> None:
    """Check that the user of the only device of a node is evicted for a preemptor."""
    low = job("low", minimum=0, requests=requests, priority_class="low", phase="Running")
    world = cluster(
        [machine],
        [low],
        priorities={"low": 1, "high": 9},
        conf=VIRTUAL.replace("{name: gang}", "{name: gang}, {name: conformance}"),
    )
    world.live(world.run())
    world.add(job("high", requests=wants(1), priority_class="high"))
    result = world.run()
    assert (result.evictions, result.pipelined) == (["low-0"], {"high-0": "n"})
    assert result.plan.failures == []
