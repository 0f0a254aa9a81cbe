"""vGPUs: annotations of pods, the choice of device and node, and pending pods."""

from __future__ import annotations

import pytest

from hekla.api import wellknown as w
from hekla.api.devices import decode
from hekla.testing import cluster
from hekla.testing.objects import START

from .device_worlds import (
    PACKED,
    SPREAD,
    VIRTUAL,
    conf,
    devices,
    goes_first,
    job,
    vgpu_node,
    wants,
)


def test_a_vgpu_is_written_on_the_pod_as_the_device_plugin_reads_it() -> None:
    result = cluster(
        [vgpu_node("n")], [job("a", requests=wants(2, memory=3000, cores=30))], conf=VIRTUAL
    ).run()
    (bind,) = result.plan.binds
    allocated = "GPU-n-1,NVIDIA,3000,30:GPU-n-0,NVIDIA,3000,30:"  # Volcano begins at the end
    assert bind.annotations == {
        w.VGPU_NODE: "n",
        w.VGPU_TIME: str(int(START)),
        w.VGPU_IDS_NEW: allocated,
        w.DEVICES_TO_ALLOCATE: allocated,
        w.BIND_TIME: str(int(START)),
        w.BIND_PHASE: "allocating",
    }


def test_each_container_has_its_own_part_of_the_annotation() -> None:
    containers = [
        {"name": "plain", "resources": {"requests": {"cpu": "1"}}},
        {"name": "gpu", "resources": {"requests": wants(1, percent=50)}},
    ]
    result = cluster(
        [vgpu_node("n", devices=1)], [job("a", spec={"containers": containers})], conf=VIRTUAL
    ).run()
    assert devices(result) == {"a-0": ";GPU-n-0,NVIDIA,8000,0:"}


CARD_TESTS: dict[str, tuple[dict[str, int], dict[str, int], bool]] = {
    "memory that is left is enough": (wants(1, 10000), wants(1, 6000), True),
    "memory that is left is too little": (wants(1, 10000), wants(1, 6001), False),
    "neither memory nor a percentage is the whole card": (wants(1, 1), wants(1), False),
    "cores that are left are enough": (wants(1, 1, cores=60), wants(1, 1, cores=40), True),
    "cores that are left are too few": (wants(1, 1, cores=60), wants(1, 1, cores=41), False),
    "all cores want a card for themselves": (wants(1, 1), wants(1, 1, cores=100), False),
    "a card without cores left takes nobody": (wants(1, 1, cores=100), wants(1, 1), False),
}


@pytest.mark.parametrize("case", CARD_TESTS)
def test_two_pods_share_one_device(case: str) -> None:
    first, second, fits = CARD_TESTS[case]
    jobs = [job("a", requests=first, age=9.0), job("b", requests=second)]
    result = cluster([vgpu_node("n", devices=1)], jobs, conf=VIRTUAL).run()
    assert ("b-0" in result.binds) == fits


def test_a_device_is_shared_by_at_most_its_split_count() -> None:
    result = cluster(
        [vgpu_node("n", devices=1, shares=3)],
        [job("a", 4, minimum=1, requests=wants(1, 1))],
        conf=VIRTUAL,
    ).run()
    assert len(result.binds) == 3


def test_binpack_uses_the_fullest_device_and_spread_the_emptiest() -> None:
    jobs = [job("a", 3, requests=wants(1, 4000))]
    packed = cluster([vgpu_node("n")], jobs, conf=PACKED).run()
    assert {text.split(",")[0] for text in devices(packed).values()} == {"GPU-n-0"}
    spread = cluster([vgpu_node("n")], jobs, conf=SPREAD).run()
    assert [text.split(",")[0] for text in devices(spread).values()] == [
        "GPU-n-0", "GPU-n-1", "GPU-n-0",
    ]  # fmt: skip


def test_binpack_uses_the_node_whose_device_would_be_fullest() -> None:
    # On `big` a device would score 100 x 4/16 = 25, on `small` 100 x 4/8 = 50.
    nodes = [vgpu_node("big", memory=16000), vgpu_node("small", memory=8000)]
    result = cluster(nodes, [job("a", requests=wants(1, 4000))], conf=PACKED).run()
    assert result.binds == {"a-0": "small"}


def test_spread_uses_a_node_with_an_unused_device() -> None:
    world = cluster(
        [vgpu_node("a", devices=1), vgpu_node("b", devices=1)],
        [job("one", requests=wants(1, 10))],
        conf=SPREAD,
    )
    world.live(world.run())
    world.add(job("two", requests=wants(1, 10)))
    assert world.run().binds == {"two-0": "b"}


NOTES: dict[str, tuple[dict[str, str], str]] = {
    "only these cards": ({w.VGPU_USE_UUID: "GPU-b-1, GPU-x"}, "GPU-b-1"),
    "never these cards": ({w.VGPU_NOUSE_UUID: "GPU-a-0,GPU-a-1,GPU-b-1"}, "GPU-b-0"),
    "only these models": ({w.USE_GPU_TYPE: "a10"}, "GPU-b-1"),
    "never these models": ({w.NOUSE_GPU_TYPE: "V100"}, "GPU-b-1"),
    "this mode": ({w.VGPU_MODE: "mps"}, "GPU-b-1"),
}


@pytest.mark.parametrize("case", NOTES)
def test_a_pod_selects_devices_by_annotations(case: str) -> None:
    notes, want_device = NOTES[case]
    nodes = [vgpu_node("a"), vgpu_node("b", kind="NVIDIA-A10", mode="mps")]
    asked = job("a", requests=wants(1, 10), pod_annotations=notes)
    result = cluster(nodes, [asked], conf=VIRTUAL).run()
    assert devices(result)["a-0"].split(",")[0] == want_device


def test_a_pod_without_matching_device_has_a_reason() -> None:
    asked = job("a", requests=wants(1, 10), pod_annotations={w.VGPU_MODE: "mig"})
    result = cluster([vgpu_node("n")], [asked], conf=VIRTUAL).run()
    assert "no device that matches the pod's annotations" in result.why("a")


@pytest.mark.parametrize("mode", w.VGPU_MODES)
def test_members_of_a_spreading_group_use_different_devices(mode: str) -> None:
    notes = {w.VGPU_PODGROUP_POLICY: "spread"}
    asked = job("a", 3, minimum=1, requests=wants(1, 10), pod_annotations=notes)
    machine = vgpu_node("n", memory=40960, kind="A100-SXM4-40GB", mode=mode)
    world = cluster([machine], [asked], conf=PACKED)
    first = world.run()
    names = sorted(text.split(",")[0].partition("[")[0] for text in devices(first).values())
    assert names == ["GPU-n-0", "GPU-n-1"]
    world.live(first)
    assert world.run().binds == {}  # also in the next cycle


def test_pods_of_an_exclusive_rule_share_no_device() -> None:
    rules = conf(VGPUEnable="true", SchedulePolicy="binpack", GPUExclusiveRules="[{tier: gold}]")
    gold, plain = {"tier": "gold"}, {"tier": "tin"}
    world = cluster(
        [vgpu_node("n")],
        [
            job("a", requests=wants(1, 10), labels=gold),
            job("b", requests=wants(1, 10), labels=plain),
            job("c", requests=wants(1, 10), labels=gold),
        ],
        conf=rules,
    )
    first = world.run()
    used = {pod: text.split(",")[0] for pod, text in devices(first).items()}
    assert used["a-0"] == used["b-0"] == "GPU-n-0"
    assert used["c-0"] == "GPU-n-1"
    world.live(first)
    world.add(job("d", requests=wants(1, 10), labels=gold))
    assert world.run().binds == {}


def test_several_devices_are_allocated_from_one_interconnect_group() -> None:
    # Device 0 is in use: group 0 has one idle device, group 1 two.
    linked = vgpu_node("n", devices=4, annotations={w.CARD_GROUPS: "0,1;2,3"})
    world = cluster([linked], [job("a", requests=wants(1), pod_annotations={
        w.VGPU_USE_UUID: "GPU-n-0"})], conf=PACKED)  # fmt: skip
    world.live(world.run())
    world.add(job("b", requests=wants(2, percent=50)))
    assert [each.device for each in decode(devices(world.run())["b-0"])] == ["GPU-n-2", "GPU-n-3"]


def test_a_node_with_interconnected_devices_is_preferred() -> None:
    apart = vgpu_node("a", devices=2, annotations={w.CARD_GROUPS: "0;1"})
    joined = vgpu_node("b", devices=2, annotations={w.CARD_GROUPS: "0,1"})
    result = cluster([apart, joined], [job("x", requests=wants(2))], conf=PACKED).run()
    assert result.binds == {"x-0": "b"}


def test_a_node_without_a_device_plugin_has_no_devices() -> None:
    gone = vgpu_node("n", annotations={w.NODE_VGPU_HANDSHAKE: "Deleted_2026.03.04 10:00:00"})
    result = cluster([gone], [job("a", requests=wants(1, 1))], conf=VIRTUAL).run()
    assert "no healthy vgpu devices" in result.why("a")


def test_a_releasing_pod_keeps_its_device_until_it_is_deleted() -> None:
    world = cluster([vgpu_node("n", devices=1)], [job("a", requests=wants(1))], conf=VIRTUAL)
    world.live(world.run())
    world.state.release(world.state.tasks["default-a-0"])
    world.add(job("b", requests=wants(1)))
    result = world.run()
    assert result.binds == {}
    assert result.pipelined == {"b-0": "n"}  # pipelined to that device
    world.state.delete_pod("default-a-0")
    assert set(world.run().binds) == {"b-0"}


def test_a_preemptor_is_nominated_for_the_victims_device() -> None:
    goes_first(vgpu_node("n", devices=1, shares=1), wants(1))


def test_with_the_node_lock_devices_are_allocated_to_one_pod_at_a_time() -> None:
    locked = conf(VGPUEnable="true", NodeLockEnable="true")
    world = cluster([vgpu_node("n")], [job("a", 2, minimum=1, requests=wants(1, 10))], conf=locked)
    first = world.run()
    assert len(first.binds) == 1
    world.apply(first)
    assert world.run().binds == {}
    assert len(world.run(now=START + 301).binds) == 1  # a device plugin that never responds


def test_the_interconnect_with_just_enough_devices_is_used() -> None:
    # 70 groups: 0 to 68 have three devices each, the last one two.
    sizes = [3] * 69 + [2]
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    text = ";".join(
        ",".join(str(start + i) for i in range(size))
        for start, size in zip(starts, sizes, strict=True)
    )
    linked = vgpu_node("n", devices=sum(sizes), annotations={w.CARD_GROUPS: text})
    result = cluster([linked], [job("a", requests=wants(2, 10))], conf=PACKED).run()
    assert {each.device for each in decode(devices(result)["a-0"])} == {"GPU-n-207", "GPU-n-208"}
