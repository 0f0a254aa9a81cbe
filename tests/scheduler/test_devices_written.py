"""Annotations of nodes and running pods: an invalid one frees no device and stops no pod."""

from __future__ import annotations

from typing import Any

import pytest

from hekla.api import wellknown as w
from hekla.scheduler.state.devices.inventory import VGPU, Device, devices_of
from hekla.testing import GroupBuilder, cluster, node

from .device_worlds import (
    PACKED,
    VIRTUAL,
    devices,
    job,
    vgpu_node,
    wants,
)


def running(name: str, requests: dict[str, Any], **notes: str) -> GroupBuilder:
    """Return a pod on node n with exactly these annotations."""
    annotations = {f"volcano.sh/{key.replace('_', '-')}": text for key, text in notes.items()}
    return job(
        name, phase="Running", running_on=["n"], requests=requests, pod_annotations=annotations
    )


UNREADABLE: dict[str, dict[str, str]] = {
    "nothing, as somebody else bound it": {},
    "garbage": {"vgpu_ids_new": "garbage"},
    "fewer cards than it asks for": {"vgpu_ids_new": ";"},
    "more cards than it asks for": {
        "vgpu_ids_new": "GPU-n-0,NVIDIA,16000,0:GPU-n-1,NVIDIA,16000,0:"
    },
    "a card that the node does not have": {"vgpu_ids_new": "GPU-x,NVIDIA,16000,0:"},
}


@pytest.mark.parametrize("case", UNREADABLE)
def test_a_node_with_unclear_device_allocations_is_infeasible(case: str) -> None:
    first = running("a", wants(1, 16000), **UNREADABLE[case])
    world = cluster([vgpu_node("n")], [first, job("b", requests=wants(1, 10))], conf=VIRTUAL)
    result = world.run()
    assert (result.binds, result.plan.failures) == ({}, [])
    assert "devices that their annotations do not name" in result.why("b")
    world.state.delete_pod("default-a-0")
    assert set(world.run().binds) == {"b-0"}


NONSENSE: dict[str, tuple[dict[str, Any], str]] = {
    "less than it asks for": (wants(1, 16000), "GPU-n-0,NVIDIA,1,0:"),
    "less than its share": (wants(1, percent=100), "GPU-n-0,NVIDIA,1,0:"),
    "memory of 30 digits": (wants(1, 10), f"GPU-n-0,NVIDIA,{10**29},0:"),
    "memory of 5000 digits": (wants(1, 10), f"GPU-n-0,NVIDIA,{'9' * 5000},0:"),
    "cores of 30 digits": (wants(1, 10), f"GPU-n-0,NVIDIA,10,{10**29}:"),
    "sums past 64 bits": (wants(2, 10), f"GPU-n-0,NVIDIA,{2**63 - 1},0:" * 2),
}


@pytest.mark.parametrize("case", NONSENSE)
def test_changed_annotations_free_no_device_and_stop_no_other_pod(case: str) -> None:
    requests, text = NONSENSE[case]
    world = cluster(
        [vgpu_node("n")],
        [
            running("a", requests, vgpu_ids_new=text),
            job("b", 2, minimum=1, requests=wants(1, 9000)),
        ],
        conf=VIRTUAL,
    )
    result = world.run()
    assert result.plan.failures == []
    assert [text.split(",")[0] for text in devices(result).values()] == ["GPU-n-1"]  # 16000 of it


@pytest.mark.parametrize("amount", [2**63 - 1, 2**63, "1e30", "-5"])
@pytest.mark.parametrize("name", [w.VGPU_MEMORY, w.VGPU_CORES, w.VGPU_MEMORY_PERCENTAGE])
def test_a_request_beyond_any_device_is_infeasible(name: str, amount: Any) -> None:
    world = cluster([vgpu_node("n")], [job("a", requests=wants(1, 10))], conf=VIRTUAL)
    world.live(world.run())
    world.add(job("b", requests={w.VGPU_NUMBER: 2, name: amount}))
    world.add(job("c", requests=wants(1, 10)))
    result = world.run()
    assert (set(result.binds), result.plan.failures) == ({"c-0"}, [])


def test_invalid_device_annotations_are_no_device() -> None:
    notes = {w.NODE_VGPU_REGISTER: "x:GPU-1,a,b,c,true:GPU-2,1,2,T,true,hami-core:,,,,:"}
    found = devices_of(notes, {}, {w.VGPU_NUMBER: "1"})
    assert found == {VGPU: (Device("GPU-2", 2, 1, "T", "hami-core", True, 2),)}
    assert devices_of({"hami.io/node-register-Ascend910B3": "{"}, {}, {}) == {}


def test_a_device_listed_twice_is_one_device() -> None:
    text = "GPU-1,10,16000,V100,true,hami-core:" * 2
    twice = node("n", cpu=64, annotations={w.NODE_VGPU_REGISTER: text}, extra={w.VGPU_NUMBER: 20})
    world = cluster([twice], [job("a", requests=wants(1, 9000))], conf=VIRTUAL)
    world.live(world.run())
    world.add(job("b", requests=wants(1, 9000)))
    assert world.run().binds == {}


def test_a_device_register_with_absurd_amounts_is_handled() -> None:
    huge = "9" * 30
    text = f"GPU-0,{huge},{huge},A100-SXM4-40GB,true,hami-core:GPU-1,1,9,A100-SXM4-40GB,true,mig:"
    odd = node("n", cpu=64, annotations={w.NODE_VGPU_REGISTER: text}, extra={w.VGPU_NUMBER: 20})
    jobs = [job("a", requests=wants(1, 2**23), age=9.0), job("b", requests=wants(1, 5000))]
    result = cluster([odd], jobs, conf=PACKED).run()
    assert result.plan.failures == []
    assert devices(result) == {
        "a-0": f"GPU-0,NVIDIA,{2**23},0:",
        "b-0": "GPU-0,NVIDIA,5000,0:",  # the most used device
    }
