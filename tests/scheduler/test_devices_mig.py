"""MIG: the first pod decides the geometry of a device; models differ in geometries."""

from __future__ import annotations

import pytest

from hekla.scheduler.state.devices.hardware import geometries
from hekla.testing import cluster

from .device_worlds import (
    PACKED,
    VIRTUAL,
    devices,
    job,
    vgpu_node,
    wants,
)


def test_mig_allocates_the_smallest_sufficient_instance() -> None:
    # An A100-40: 8000 need an instance of 10240, which fixes the geometry {3 x 10240, 1 x 5120}.
    mig = vgpu_node("n", devices=1, memory=40960, kind="NVIDIA-A100-SXM4-40GB", mode="mig")
    jobs = [
        job("a", requests=wants(1, 8000), age=9.0),
        job("b", requests=wants(1, 5000), age=8.0),
        job("c", 3, minimum=1, requests=wants(1, 9000), age=7.0),
        job("d", requests=wants(1, 20000)),
    ]
    result = cluster([mig], jobs, conf=PACKED).run()
    assert devices(result) == {
        "a-0": "GPU-n-0[group2-0],NVIDIA,10240,0:",
        "b-0": "GPU-n-0[group2-3],NVIDIA,5120,0:",
        "c-0": "GPU-n-0[group2-1],NVIDIA,10240,0:",
        "c-1": "GPU-n-0[group2-2],NVIDIA,10240,0:",
    }
    assert "no vgpu devices with enough capacity" in result.why("d")


MODELS: dict[str, tuple[int, ...]] = {
    "NVIDIA-NVIDIA A100 80GB PCIe": (9728, 19968, 40192, 80896),
    "NVIDIA-NVIDIA H100 80GB HBM3": (9984, 20090, 40448, 81152),
    "NVIDIA-NVIDIA H100 PCIe": (9984, 20090, 40448, 81152),
    "NVIDIA-NVIDIA H200": (16384, 33280, 66560, 143360),
    "NVIDIA-NVIDIA H200 NVL": (16384, 33280, 66560, 143360),
}


@pytest.mark.parametrize("model", MODELS)
def test_a_large_gpu_is_cut_in_seven_three_two_or_not_at_all(model: str) -> None:
    cuts = geometries(model)
    assert [sum(count for _, count in cut) for cut in cuts] == [7, 4, 2, 1]
    assert tuple(cut[0][0] for cut in cuts) == MODELS[model]


@pytest.mark.parametrize("model", ["NVIDIA-NVIDIA GH200 480GB", "NVIDIA-NVIDIA H100 NVL", ""])
def test_a_gpu_of_an_unknown_model_has_no_mig_instances(model: str) -> None:
    assert geometries(model) == ()


def test_a_device_that_changed_its_mode_is_not_allocated_until_its_pods_terminate() -> None:
    world = cluster(
        [vgpu_node("n", devices=1, memory=40960)], [job("a", requests=wants(1, 10))], conf=VIRTUAL
    )
    world.live(world.run())
    mig = vgpu_node("n", devices=1, memory=40960, kind="A100-SXM4-40GB", mode="mig")
    world.state.set_node(mig)
    world.add(job("b", requests=wants(1, 10)))
    assert world.run().binds == {}
    world.state.delete_pod("default-a-0")
    assert set(world.run().binds) == {"b-0"}
