"""Preemption of devices: the fewest victims, and only with a placement."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from hekla.api import wellknown as w
from hekla.testing import GroupBuilder, TestCluster, cluster, gang, node, queue

CONF = """\
actions: "allocate, {action}"
tiers:
- plugins: [{{name: priority}}, {{name: gang}}, {{name: conformance}}]
- plugins:
  - {{name: predicates}}
  - {{name: proportion}}
  - name: deviceshare
    arguments: {{deviceshare.VGPUEnable: true, deviceshare.SchedulePolicy: binpack}}
"""
PRIORITIES = {"low": 1, "high": 9}


def machine(name: str, devices: int = 2, memory: int = 16000, shares: int = 10) -> Any:
    text = "".join(f"GPU-{name}-{i},{shares},{memory},V100,true,hami-core:" for i in range(devices))
    return node(
        name,
        cpu=64,
        annotations={w.NODE_VGPU_REGISTER: text},
        extra={w.VGPU_NUMBER: devices * shares},
    )


def job(name: str, memory: int, *, number: int = 1, cores: int = 0, **more: Any) -> GroupBuilder:
    wanted = {w.VGPU_NUMBER: number, w.VGPU_MEMORY: memory}
    if cores:
        wanted[w.VGPU_CORES] = cores
    return gang(name, members=1, cpu=1, requests=wanted, **more)


def low(name: str, memory: int, **more: Any) -> GroupBuilder:
    return job(name, memory, minimum=0, priority_class="low", phase="Running", **more)


def high(name: str, memory: int, **more: Any) -> GroupBuilder:
    return job(name, memory, priority_class="high", **more)


def after(nodes: list[Any], first: list[GroupBuilder], action: str = "preempt") -> TestCluster:
    """A cluster on which the first jobs run, placed one after the other."""
    world = cluster(nodes, [], priorities=PRIORITIES, conf=CONF.format(action=action))
    for one in first:
        world.add(one)
        world.live(world.run())
    return world


def devices(world: TestCluster) -> dict[str, str]:
    return {
        task.name: task.devices[0].device for task in world.state.tasks.values() if task.devices
    }


def outcome(world: TestCluster, *jobs: GroupBuilder) -> tuple[list[str], dict[str, str]]:
    for one in jobs:
        world.add(one)
    result = world.run()
    assert result.plan.failures == []
    return result.evictions, result.pipelined


def test_the_pod_that_holds_device_memory_is_evicted_if_only_that_is_short() -> None:
    # 10000 of 16000 MiB are used; CPU, shares and the number of vGPUs suffice.
    world = after([machine("n", devices=1)], [low("a", 10000)])
    assert outcome(world, high("h", 8000)) == (["a-0"], {"h-0": "n"})


def test_the_pod_that_holds_the_device_cores_is_evicted() -> None:
    world = after([machine("n", devices=1)], [low("a", 1000, cores=60)])
    assert outcome(world, high("h", 1000, cores=50)) == (["a-0"], {"h-0": "n"})


def test_one_victim_with_enough_device_memory_is_preferred_to_two() -> None:
    # Device 0 has 8000 + 8000 and device 1 has 12000: 12000 more need two victims on the one, or
    # one on the other.
    world = after([machine("n")], [low("a", 8000), low("b", 8000), low("c", 12000)])
    assert devices(world) == {"a-0": "GPU-n-0", "b-0": "GPU-n-0", "c-0": "GPU-n-1"}
    assert outcome(world, high("h", 12000)) == (["c-0"], {"h-0": "n"})


def test_pods_on_other_devices_are_not_evicted() -> None:
    # A whole device is requested: both pods of one device are evicted, none of the other.
    lows = [low("a", 8000), low("b", 8000), low("c", 8000), low("d", 8000)]
    world = after([machine("n")], lows)
    evicted, pipelined = outcome(world, high("h", 16000))
    assert pipelined == {"h-0": "n"}
    assert len(evicted) == 2
    assert len({devices(world)[name] for name in evicted}) == 1


def test_preemption_frees_both_devices_of_a_pod() -> None:
    world = after([machine("n")], [low("a", 10000), low("b", 10000)])
    evicted, pipelined = outcome(world, high("h", 10000, number=2))
    assert (sorted(evicted), pipelined) == (["a-0", "b-0"], {"h-0": "n"})


def test_the_node_with_fewer_device_victims_is_chosen() -> None:
    lows = [low("a", 8000), low("b", 8000), low("c", 16000)]
    world = after([machine("n1", devices=1), machine("n2", devices=1)], lows)
    assert outcome(world, high("h", 16000)) == (["c-0"], {"h-0": "n2"})


def test_no_pod_is_evicted_for_a_request_larger_than_a_device() -> None:
    world = after([machine("n")], [low("a", 10000), low("b", 10000)])
    assert outcome(world, high("h", 20000)) == ([], {})


def test_no_pod_is_evicted_if_protected_pods_hold_the_device() -> None:
    world = after([machine("n", devices=1)], [high("first", 10000), low("a", 2000)])
    assert outcome(world, high("h", 8000)) == ([], {})


def test_no_pod_is_evicted_for_half_a_gang() -> None:
    # Each member requests a whole device, and there are two devices, not three.
    world = after([machine("n")], [low("a", 10000), low("b", 10000)])
    wanted = {w.VGPU_NUMBER: 1, w.VGPU_MEMORY: 16000}
    whole = gang("h", members=3, cpu=1, requests=wanted, priority_class="high")
    assert outcome(world, whole) == ([], {})


def test_a_queue_reclaims_when_only_device_memory_is_short() -> None:
    # Of 10 vGPUs each queue deserves 5; greedy has 6, which use all memory.
    world = cluster(
        [machine("n", devices=1, memory=12000)],
        [],
        queues=[queue("greedy"), queue("hungry")],
        conf=CONF.format(action="reclaim"),
    )
    wanted = {w.VGPU_NUMBER: 1, w.VGPU_MEMORY: 2000}
    world.add(gang("g", members=6, minimum=1, queue="greedy", cpu=1, requests=wanted))
    world.live(world.run())
    assert len(devices(world)) == 6
    world.add(gang("h", members=5, minimum=1, queue="hungry", cpu=1, requests=wanted))
    result = world.run()
    assert len(result.evictions) == 1
    assert result.pipelined == {"h-0": "n"}


def test_gangpreempt_frees_devices() -> None:
    conf = CONF.format(action="gangpreempt")
    world = cluster([machine("n", devices=1)], [], priorities=PRIORITIES, conf=conf)
    world.add(job("a", 10000, priority_class="low", phase="Running"))
    world.live(world.run())
    assert outcome(world, high("h", 8000)) == (["a-0"], {"h-0": "n"})


@st.composite
def loads(draw: st.DrawFn, prefix: str) -> list[GroupBuilder]:
    found = []
    for i in range(draw(st.integers(1, 7))):
        make = draw(st.sampled_from([low, high]))
        memory = draw(st.sampled_from([3000, 8000, 12000, 16000]))
        number, cores = draw(st.sampled_from([(1, 0), (1, 0), (1, 50), (2, 0)]))
        found.append(make(f"{prefix}{i}", memory, number=number, cores=cores))
    return found


def check_devices(world: TestCluster) -> None:
    """Check that no device is overcommitted, including terminating pods."""
    used: dict[str, list[int]] = {}
    for task in world.state.tasks.values():
        for allocated_device in task.devices:
            sums = used.setdefault(allocated_device.device, [0, 0])
            sums[0] += allocated_device.memory
            sums[1] += allocated_device.cores
    assert all(memory <= 16000 and cores <= 100 for memory, cores in used.values()), used


@settings(deadline=None)
@given(loads("a"), loads("b"), st.integers(1, 2))
def test_no_device_is_allocated_twice_during_preemption(
    first: list[GroupBuilder], second: list[GroupBuilder], nodes: int
) -> None:
    world = after([machine(f"n{i}") for i in range(nodes)], first)
    for one in second:
        world.add(one)
    for _ in range(4):
        result = world.run()
        assert result.plan.failures == []
        assert not result.evictions or result.pipelined, "somebody left for nobody"
        world.live(result)
        check_devices(world)
