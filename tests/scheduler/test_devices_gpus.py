"""GPUs by memory and by number, and devices that are offered in several ways."""

from __future__ import annotations

import pytest

from hekla.api import wellknown as w
from hekla.testing import cluster
from hekla.testing.objects import START

from .device_worlds import (
    NUMBER,
    PACKED,
    SHARING,
    VIRTUAL,
    devices,
    every_way,
    goes_first,
    gpu_node,
    job,
    wants,
)


def test_gpu_memory_is_allocated_on_the_first_device_with_enough() -> None:
    # 5000 + 3000 fill device 0; the next 5000 need device 1, and 4000 more fit nowhere.
    jobs = [
        job("a", requests={w.GPU_MEMORY: 5000}),
        job("b", requests={w.GPU_MEMORY: 3000}),
        job("c", requests={w.GPU_MEMORY: 5000}),
        job("d", requests={w.GPU_MEMORY: 3001}),
    ]
    result = cluster([gpu_node("n")], jobs, conf=SHARING).run()
    assert devices(result, w.GPU_INDEX) == {"a-0": "0", "b-0": "0", "c-0": "1"}
    assert result.plan.binds[0].annotations[w.PREDICATE_TIME] == str(int(START * 1e9))


def test_free_memory_of_several_devices_does_not_add_up() -> None:
    jobs = [job("a", 2, requests={w.GPU_MEMORY: 5000}), job("b", requests={w.GPU_MEMORY: 6000})]
    result = cluster([gpu_node("n")], jobs, conf=SHARING).run()
    assert set(result.binds) == {
        "a-0",
        "a-1",
    }  # 3000 are idle on each device
    assert "no gpu devices with enough capacity" in result.why("b")


def test_an_unhealthy_device_is_not_allocated() -> None:
    sick = gpu_node("n", annotations={w.GPU_UNHEALTHY_IDS: "0"})
    result = cluster([sick], [job("a", requests={w.GPU_MEMORY: 10})], conf=SHARING).run()
    assert devices(result, w.GPU_INDEX) == {"a-0": "1"}


def test_whole_gpus_are_unused_devices() -> None:
    jobs = [job("a", requests={w.GPU_NUMBER: 2}), job("b", requests={w.GPU_NUMBER: 2})]
    result = cluster([gpu_node("n", devices=3)], jobs, conf=NUMBER).run()
    assert devices(result, w.GPU_INDEX) == {"a-0": "0,1"}


def test_the_mode_can_change_while_pods_run() -> None:
    world = cluster([gpu_node("n")], [job("a", requests={w.GPU_MEMORY: 10})], conf=SHARING)
    world.live(world.run())
    world.add(job("b", requests={w.GPU_NUMBER: 1}))
    world.add(job("c", requests={w.GPU_NUMBER: 1}))
    world.config = cluster(conf=NUMBER).config
    assert devices(world.run(), w.GPU_INDEX) == {"b-0": "1"}  # a uses device 0


WAYS: dict[str, tuple[str, dict[str, int]]] = {
    "memory": (SHARING, {w.GPU_MEMORY: 100}),
    "number": (NUMBER, {w.GPU_NUMBER: 1}),
    "vgpu": (VIRTUAL, {w.VGPU_NUMBER: 1, w.VGPU_MEMORY: 100}),
}


@pytest.mark.parametrize("second", WAYS)
@pytest.mark.parametrize("first", WAYS)
def test_a_device_allocated_in_one_way_is_not_allocated_in_another(first: str, second: str) -> None:
    # The only device: pods that request 100 MiB in the same way share it, others stay pending.
    settings_text, asked = WAYS[first]
    world = cluster([every_way("n", 1)], [job("a", requests=asked)], conf=settings_text)
    world.live(world.run())
    settings_text, asked = WAYS[second]
    world.config = cluster(conf=settings_text).config
    world.add(job("b", requests=asked))
    result = world.run()
    assert bool(result.binds) == (first == second != "number")
    assert result.plan.failures == []
    world.state.delete_pod("default-a-0")
    world.pods.pop("default-a-0")
    world.live(result)
    assert result.binds or set(world.run().binds) == {"b-0"}


def test_after_a_mode_change_the_other_devices_are_allocated() -> None:
    world = cluster([every_way("n")], [job("a", requests={w.GPU_NUMBER: 1})], conf=NUMBER)
    world.live(world.run())
    world.config = cluster(conf=PACKED).config
    world.add(job("b", 2, minimum=1, requests=wants(1, 16000)))
    assert devices(world.run()) == {"b-0": "GPU-n-1,NVIDIA,16000,0:"}  # a uses device 0


def test_whole_gpus_chosen_by_the_node_and_shared_gpus_are_on_different_nodes() -> None:
    whole, part = {w.NVIDIA_GPU: 1}, wants(1, 10)
    jobs = [job("a", requests=whole, age=9.0), job("b", requests=part)]
    world = cluster([every_way("n")], jobs, conf=VIRTUAL)
    first = world.run()  # in one cycle
    assert set(first.binds) == {"a-0"}
    assert "allocated in another way" in first.why("b")
    world.live(first)
    assert world.run().binds == {}  # and in the next
    world.add(job("c", requests=whole))
    second = world.run()
    assert set(second.binds) == {"c-0"}


def test_a_node_with_shared_gpus_takes_no_pod_with_whole_gpus_of_its_choice() -> None:
    jobs = [job("a", requests=wants(1, 10), age=9.0), job("b", requests={w.NVIDIA_GPU: 1})]
    world = cluster([every_way("n")], jobs, conf=VIRTUAL)
    first = world.run()
    assert set(first.binds) == {"a-0"}
    assert "GPUs that are shared" in first.why("b")
    world.live(first)
    assert world.run().binds == {}
    world.state.delete_pod("default-a-0")
    assert set(world.run().binds) == {"b-0"}


def test_a_high_priority_pod_preempts_pods_that_hold_the_gpu_in_another_mode() -> None:
    goes_first(every_way("n", 1), {w.NVIDIA_GPU: 1})
