"""Laws of vGPUs: placing at once equals one by one, and no device is overcommitted."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from hekla.api import wellknown as w
from hekla.api.devices import DeviceRequest, decode
from hekla.scheduler.plugins.deviceshare import selection as choosing
from hekla.scheduler.state.devices.allocations import DeviceAllocations
from hekla.scheduler.state.devices.hardware import geometries
from hekla.scheduler.state.devices.inventory import VGPU, Device
from hekla.scheduler.state.devices.requests import Request
from hekla.scheduler.state.model import Node
from hekla.testing import Result, TestCluster, cluster

from .device_worlds import (
    PACKED,
    SPREAD,
    VIRTUAL,
    job,
    vgpu_node,
    wants,
)


@given(data=st.data())
@settings(max_examples=60)
def test_allocating_devices_at_once_equals_one_by_one(data: st.DataObject) -> None:
    width = data.draw(st.integers(1, 4))
    machine = Node("n")
    machine.devices = {
        VGPU: tuple(
            Device(f"c{i}", data.draw(st.integers(0, 40)), data.draw(st.integers(1, 5)), whole=i)
            for i in range(width)
        )
    }
    allocations = DeviceAllocations(VGPU, [machine], 0)
    used = np.array(
        [
            [[data.draw(st.integers(0, int(allocations.memory_nc[0, c]))) for c in range(width)]],
            [[data.draw(st.integers(0, 3)) for _ in range(width)]],
            [[data.draw(st.sampled_from((0, 30, 50, 100))) for _ in range(width)]],
        ]
    )
    cores = data.draw(st.sampled_from((0, 20, 100)))
    memory, percent = data.draw(st.sampled_from(((1, 0), (7, 0), (0, 10), (0, 100))))
    request = Request(VGPU, (DeviceRequest(0), DeviceRequest(1, memory, percent, cores)))
    policy = data.draw(st.sampled_from(("", "binpack", "spread")))
    most = data.draw(st.sampled_from((2, 256)))
    rows = np.zeros(1, dtype=np.int64)
    tables = [
        choosing._Table(allocations, rows, used.copy(), allocations.usable_nc[rows])
        for _ in range(2)
    ]
    fast = choosing._at_once(tables[0], request, policy, most)
    slow = choosing._one_at_a_time(tables[1], request, policy, False, most)
    assert fast.copies_r.tolist() == slow.copies_r.tolist()
    assert fast.choice_krs.tolist() == slow.choice_krs.tolist()
    assert np.allclose(fast.score_kr, slow.score_kr)


MIG_MODEL = "NVIDIA-A100-SXM4-40GB"


KINDS = (
    wants(1, 3000),
    wants(1, 7000, cores=40),
    wants(2, percent=30),
    wants(1, cores=100),
    wants(2, 5000, cores=10),
)


def overcommitted(world: TestCluster) -> list[str]:
    """Return overcommitted devices, computed from the annotations of the pods."""
    used: dict[str, list[int]] = {}
    for pod in world.pods.values():
        if pod.spec.node_name and pod.metadata.uid in world.state.tasks:
            for each in decode((pod.metadata.annotations or {}).get(w.VGPU_IDS_NEW, "")):
                sums = used.setdefault(each.device, [0, 0, 0])
                for i, amount in enumerate((each.memory, each.cores, 1)):
                    sums[i] += amount
    wrong = [
        f"{device}: {sums}"
        for device, sums in used.items()
        if "[" not in device and (sums[0] > 16000 or sums[1] > 100 or sums[2] > 4)
    ]
    return wrong + [f"{device}: {used[device]}" for device in wrongly_cut(used)]


def wrongly_cut(used: dict[str, list[int]]) -> list[str]:
    """Return MIG instances allocated twice, of a wrong size, or of two geometries of a device."""
    wrong: list[str] = []
    cuts: dict[str, str] = {}
    for device in sorted(device for device in used if "[" in device):
        whole, _, name = device.rstrip("]").partition("[")
        cut, _, position = name.partition("-")
        geometry = geometries(MIG_MODEL)[int(cut.removeprefix("group")) - 1]
        sizes = [size for size, count in geometry for _ in range(count)]
        is_right = used[device][0] == sizes[int(position)] and used[device][2] == 1
        if not is_right or cuts.setdefault(whole, cut) != cut:
            wrong.append(device)
    return wrong


@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_no_device_is_overcommitted_after_evictions_restarts_or_delays(data: st.DataObject) -> None:
    mig = vgpu_node("b", memory=40960, kind=MIG_MODEL, mode="mig")
    nodes = [vgpu_node("a", shares=4), data.draw(st.sampled_from((mig, vgpu_node("b", shares=4))))]
    modes = (VIRTUAL, PACKED, SPREAD)
    world = cluster(nodes, conf=data.draw(st.sampled_from(modes)))
    number = 0
    unseen: list[Any] = []  # binds that the watch has not shown yet
    for _ in range(data.draw(st.integers(1, 7))):
        for _ in range(data.draw(st.integers(0, 3))):
            members = data.draw(st.integers(1, 3))
            minimum = data.draw(st.integers(1, members))
            one = job(
                f"j{number}", members, minimum=minimum, requests=data.draw(st.sampled_from(KINDS))
            )
            number += 1
            world.add(one)
        result = world.run()
        assert result.plan.failures == []
        if data.draw(st.booleans()):  # the watch lags: binds are only assumed
            world.apply(result)
            unseen.append(result)
            _remember(world, result)
        else:
            world.live(result)
        assert overcommitted(world) == []
        placed = sorted(uid for uid, p in world.pods.items() if p.spec.node_name)
        for uid in placed:
            if data.draw(st.integers(0, 3)) == 0:
                del world.pods[uid]
                world.state.delete_pod(uid)
        if data.draw(st.booleans()):  # another scheduler takes over, from the pods
            world = _restarted(world, nodes, data.draw(st.sampled_from(modes)))
        elif data.draw(st.booleans()):
            for uid, pod in world.pods.items():  # the watch catches up
                if pod.spec.node_name and uid in world.state.tasks:
                    world.state.set_pod(pod)


def _remember(world: TestCluster, result: Result) -> None:
    """Apply the binds on the server, independent of the watch."""
    from msgspec.structs import replace

    for bind in result.plan.binds:
        pod = world.pods[bind.uid]
        notes = {**(pod.metadata.annotations or {}), **bind.annotations}
        world.pods[bind.uid] = replace(
            pod,
            metadata=replace(pod.metadata, annotations=notes),
            spec=replace(pod.spec, node_name=bind.node),
        )


def _restarted(world: TestCluster, nodes: list[Any], settings_text: str) -> TestCluster:
    fresh = cluster(nodes, conf=settings_text)
    groups = {}
    for uid, pod in sorted(world.pods.items()):
        name = (pod.metadata.annotations or {})[w.GROUP_NAME]
        if name not in groups:
            groups[name] = job(name).group
            fresh.state.job_table.set_group(groups[name])
        fresh.pods[uid] = pod
        fresh.state.set_pod(pod)
    return fresh
