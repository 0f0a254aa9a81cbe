"""The law of devices: none is overcommitted, in any mode and with any annotations.

The allocation of each pod is recorded when it is bound; afterwards modes change, schedulers restart
and annotations of running pods become invalid. Invalid annotations that name another device of the
node in valid form are excluded: only the agent of the node can detect them.
"""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from hekla.api import wellknown as w
from hekla.api.devices import decode
from hekla.testing import Result, TestCluster, cluster, node

from .device_worlds import conf, job, wants

NPU = "Ascend910B3"
MEMORY, NPU_MEMORY = 16000, 65536
NPUS_NOTE = w.HAMI_ALLOCATED.format(type=NPU)
MODES = [
    conf(AscendHAMiVNPUEnable="true", SchedulePolicy=policy, ScheduleWeight=1, **{way: "true"})
    for way in ("GPUSharingEnable", "GPUNumberEnable", "VGPUEnable")
    for policy in ("binpack", "spread")
]
ASKED: tuple[dict[str, Any], ...] = (
    {w.GPU_MEMORY: 7000},
    {w.GPU_MEMORY: 16000},
    {w.GPU_NUMBER: 1},
    {w.GPU_NUMBER: 2},
    wants(1, 7000, cores=40),
    wants(2, percent=60),
    wants(1, cores=100),
    wants(2, 2**63 - 1),
    {w.NVIDIA_GPU: 1},
    {f"huawei.com/{NPU}": 1, f"huawei.com/{NPU}-memory": 20000},
    {f"huawei.com/{NPU}": 2},
)
NONSENSE: tuple[str | None, ...] = (
    None,
    "",
    "garbage",
    "9,9,9",
    "GPU-b-9,NVIDIA,1,0:",
    "OWN,NVIDIA,1,0:",
    f"OWN,NVIDIA,{'9' * 30},{'9' * 5000}:",
    "OWN,NVIDIA,1,0:" * 500,
)
Had = tuple[str, str, int, int]
"""(device, way, memory, cores)"""


def machine(name: str, devices: int = 2) -> Any:
    vgpus = "".join(f"GPU-{name}-{i},10,{MEMORY},V100,true,hami-core:" for i in range(devices))
    npus = [{"id": f"NPU-{name}-{i}", "count": 7, "devmem": NPU_MEMORY} for i in range(devices)]
    extra = {
        w.NVIDIA_GPU: devices,
        w.GPU_NUMBER: devices,
        w.GPU_MEMORY: devices * MEMORY,
        w.VGPU_NUMBER: 10 * devices,
        f"huawei.com/{NPU}": 7 * devices,
    }
    notes = {w.NODE_VGPU_REGISTER: vgpus, w.HAMI_NODE_REGISTER.format(type=NPU): json.dumps(npus)}
    return node(name, cpu=64, annotations=notes, extra=extra)


def given_by(bind: Any, asked: dict[str, Any]) -> list[Had]:
    """Return the allocation of a pod, with the same device names in all ways."""
    notes = bind.annotations
    if w.NVIDIA_GPU in asked:
        return [(f"GPU-{bind.node}", "whole", 0, 0)]
    if w.GPU_INDEX in notes:
        memory = asked.get(w.GPU_MEMORY, MEMORY)
        cores = 100 if w.GPU_NUMBER in asked else 0
        devices = notes[w.GPU_INDEX].split(",")
        return [(f"GPU-{bind.node}-{i}", "gpu", memory, cores) for i in devices]
    text = notes.get(w.VGPU_IDS_NEW) or notes.get(NPUS_NOTE) or ""
    return [(each.device, "vgpu", each.memory, each.cores) for each in decode(text)]


def overcommitted(had: dict[str, list[Had]]) -> list[str]:
    wrong: list[str] = []
    everything = [each for devices in had.values() for each in devices]
    for device in sorted({each[0] for each in everything}):
        here = [each for each in everything if each[0] == device]
        memory, cores = sum(each[2] for each in here), sum(each[3] for each in here)
        size = NPU_MEMORY if device.startswith("NPU") else MEMORY
        is_whole = any(each[3] == 100 for each in here) and len(here) > 1
        ways = {each[1] for each in here}
        if memory > size or cores > 100 or is_whole or len(ways) > 1:
            wrong.append(f"{device}: {here}")
        if "whole" in ways and any(each[0].startswith(f"{device}-") for each in everything):
            wrong.append(f"{device}: whole and in parts")
    return wrong


def spoil(world: TestCluster, uid: str, text: str | None, devices: list[Had]) -> None:
    """Make annotations of a running pod invalid, or remove them."""
    pod = world.pods[uid]
    names = (w.GPU_INDEX, w.VGPU_IDS_NEW, NPUS_NOTE)
    kept = {k: v for k, v in (pod.metadata.annotations or {}).items() if k not in names}
    if text is not None:
        own = devices[0][0] if devices else "GPU-x"
        kept |= dict.fromkeys(names, text.replace("OWN", own))
    world.pods[uid] = replace(pod, metadata=replace(pod.metadata, annotations=kept))
    world.state.set_pod(world.pods[uid])


def remember(had: dict[str, list[Had]], result: Result, asked: dict[str, dict[str, Any]]) -> None:
    for bind in result.plan.binds:
        had[bind.uid] = given_by(bind, asked[bind.uid])


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_no_device_is_overcommitted_in_any_mode_with_invalid_annotations(
    data: st.DataObject,
) -> None:
    world = cluster([machine("a"), machine("b")], conf=data.draw(st.sampled_from(MODES)))
    had: dict[str, list[Had]] = {}
    asked: dict[str, dict[str, Any]] = {}
    for cycle in range(data.draw(st.integers(1, 6))):
        for number in range(data.draw(st.integers(0, 3))):
            wanted = data.draw(st.sampled_from(ASKED))
            one = job(
                f"j{cycle}-{number}", data.draw(st.integers(1, 3)), minimum=1, requests=wanted
            )
            asked |= {pod.metadata.uid: wanted for pod in one.pods}
            world.add(one)
        result = world.run()
        assert result.plan.failures == []
        remember(had, result, asked)
        world.live(result)
        assert overcommitted(had) == []
        for uid in sorted(had):
            what = data.draw(st.sampled_from(("stays", "stays", "leaves", "spoilt")))
            if what == "leaves":
                del had[uid], world.pods[uid]
                world.state.delete_pod(uid)
            elif what == "spoilt":
                spoil(world, uid, data.draw(st.sampled_from(NONSENSE)), had[uid])
        if data.draw(st.booleans()):
            world.config = cluster(conf=data.draw(st.sampled_from(MODES))).config
