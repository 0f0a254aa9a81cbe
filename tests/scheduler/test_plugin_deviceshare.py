"""deviceshare: pods share cards, each card is given out at most once, and the pod says which."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hekla.api import wellknown as w
from hekla.api.cards import Ask, decode
from hekla.scheduler.devices import choosing
from hekla.scheduler.devices.asks import Request
from hekla.scheduler.devices.chips import geometries
from hekla.scheduler.devices.inventory import VGPU, Card, cards_of
from hekla.scheduler.devices.ledger import Ledger
from hekla.scheduler.errors import ConfigError
from hekla.scheduler.model import Node
from hekla.testing import GroupBuilder, Result, TestCluster, cluster, gang, node
from hekla.testing.objects import START


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


def gpu_node(name: str, cards: int = 2, memory: int = 8000, **more: Any) -> Any:
    extra = {w.GPU_NUMBER: cards, w.GPU_MEMORY: cards * memory}
    return node(name, cpu=64, extra=extra, **more)


def vgpu_node(
    name: str,
    cards: int = 2,
    memory: int = 16000,
    shares: int = 10,
    kind: str = "NVIDIA-Tesla-V100",
    mode: str = "hami-core",
    **notes: str,
) -> Any:
    text = "".join(f"GPU-{name}-{i},{shares},{memory},{kind},true,{mode}:" for i in range(cards))
    annotations = {w.NODE_VGPU_REGISTER: text, **notes}
    return node(name, cpu=64, annotations=annotations, extra={w.VGPU_NUMBER: cards * shares})


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


def cards(result: Result, key: str = w.VGPU_IDS_NEW) -> dict[str, str]:
    return {bind.pod: bind.annotations.get(key, "") for bind in result.plan.binds}


# --- GPUs by memory and by number -----------------------------------------------------------------


def test_gpu_memory_is_taken_from_the_first_card_with_enough_of_it() -> None:
    # 5000 + 3000 fill card 0; the next 5000 need card 1, and 4000 more fit nowhere.
    jobs = [
        job("a", requests={w.GPU_MEMORY: 5000}),
        job("b", requests={w.GPU_MEMORY: 3000}),
        job("c", requests={w.GPU_MEMORY: 5000}),
        job("d", requests={w.GPU_MEMORY: 3001}),
    ]
    result = cluster([gpu_node("n")], jobs, conf=SHARING).run()
    assert cards(result, w.GPU_INDEX) == {"a-0": "0", "b-0": "0", "c-0": "1"}
    assert result.plan.binds[0].annotations[w.PREDICATE_TIME] == str(int(START * 1e9))


def test_the_sum_of_free_memory_is_not_a_card() -> None:
    jobs = [job("a", 2, requests={w.GPU_MEMORY: 5000}), job("b", requests={w.GPU_MEMORY: 6000})]
    result = cluster([gpu_node("n")], jobs, conf=SHARING).run()
    assert set(result.binds) == {"a-0", "a-1"}  # 3000 are left of each: 6000, and no card
    assert "no gpu cards with enough room" in result.why("b")


def test_a_broken_card_is_given_to_nobody() -> None:
    sick = gpu_node("n", annotations={w.GPU_UNHEALTHY_IDS: "0"})
    result = cluster([sick], [job("a", requests={w.GPU_MEMORY: 10})], conf=SHARING).run()
    assert cards(result, w.GPU_INDEX) == {"a-0": "1"}


def test_whole_gpus_are_cards_that_nobody_uses() -> None:
    jobs = [job("a", requests={w.GPU_NUMBER: 2}), job("b", requests={w.GPU_NUMBER: 2})]
    result = cluster([gpu_node("n", cards=3)], jobs, conf=NUMBER).run()
    assert cards(result, w.GPU_INDEX) == {"a-0": "0,1"}


def test_the_mode_can_change_while_pods_run_and_nothing_is_forgotten() -> None:
    world = cluster([gpu_node("n")], [job("a", requests={w.GPU_MEMORY: 10})], conf=SHARING)
    world.live(world.run())
    world.add(job("b", requests={w.GPU_NUMBER: 1}))
    world.add(job("c", requests={w.GPU_NUMBER: 1}))
    world.config = cluster(conf=NUMBER).config
    assert cards(world.run(), w.GPU_INDEX) == {"b-0": "1"}  # card 0 is a's


def every_way(name: str, cards: int = 2, memory: int = 16000) -> Any:
    """A node whose cards are there in every way, as those of hekla's own agent are."""
    text = "".join(f"GPU-{name}-{i},10,{memory},V100,true,hami-core:" for i in range(cards))
    extra = {
        w.NVIDIA_GPU: cards,
        w.GPU_NUMBER: cards,
        w.GPU_MEMORY: cards * memory,
        w.VGPU_NUMBER: 10 * cards,
    }
    return node(name, cpu=64, annotations={w.NODE_VGPU_REGISTER: text}, extra=extra)


WAYS: dict[str, tuple[str, dict[str, int]]] = {
    "memory": (SHARING, {w.GPU_MEMORY: 100}),
    "number": (NUMBER, {w.GPU_NUMBER: 1}),
    "vgpu": (VIRTUAL, {w.VGPU_NUMBER: 1, w.VGPU_MEMORY: 100}),
}


@pytest.mark.parametrize("second", WAYS)
@pytest.mark.parametrize("first", WAYS)
def test_what_pods_have_in_one_way_nobody_gets_in_another(first: str, second: str) -> None:
    # The only card: pods that ask for 100 MiB in the same way share it, all others wait.
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


def test_after_a_change_of_mode_the_other_cards_are_given_out() -> None:
    world = cluster([every_way("n")], [job("a", requests={w.GPU_NUMBER: 1})], conf=NUMBER)
    world.live(world.run())
    world.config = cluster(conf=PACKED).config
    world.add(job("b", 2, minimum=1, requests=wants(1, 16000)))
    assert cards(world.run()) == {"b-0": "GPU-n-1,NVIDIA,16000,0:"}  # card 0 is a's


def test_gpus_that_a_node_chooses_and_parts_of_gpus_are_not_on_one_node() -> None:
    whole, part = {w.NVIDIA_GPU: 1}, wants(1, 10)
    jobs = [job("a", requests=whole, age=9.0), job("b", requests=part)]
    world = cluster([every_way("n")], jobs, conf=VIRTUAL)
    first = world.run()  # in one cycle
    assert set(first.binds) == {"a-0"}
    assert "have in another way" in first.why("b")
    world.live(first)
    assert world.run().binds == {}  # and in the next
    world.add(job("c", requests=whole))
    second = world.run()
    assert set(second.binds) == {"c-0"}


def test_a_node_with_parts_given_out_takes_no_pod_whose_gpus_it_would_choose() -> None:
    jobs = [job("a", requests=wants(1, 10), age=9.0), job("b", requests={w.NVIDIA_GPU: 1})]
    world = cluster([every_way("n")], jobs, conf=VIRTUAL)
    first = world.run()
    assert set(first.binds) == {"a-0"}
    assert "of which pods have parts" in first.why("b")
    world.live(first)
    assert world.run().binds == {}
    world.state.delete_pod("default-a-0")
    assert set(world.run().binds) == {"b-0"}


def test_who_goes_first_sends_away_who_has_the_gpus_in_another_way() -> None:
    goes_first(every_way("n", 1), {w.NVIDIA_GPU: 1})


def goes_first(machine: Any, requests: dict[str, int]) -> None:
    """One who holds the only card of a node is sent away for a vGPU pod of higher priority."""
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


# --- vGPU -----------------------------------------------------------------------------------------


def test_a_vgpu_is_written_on_the_pod_as_the_device_plugin_reads_it() -> None:
    result = cluster(
        [vgpu_node("n")], [job("a", requests=wants(2, memory=3000, cores=30))], conf=VIRTUAL
    ).run()
    (bind,) = result.plan.binds
    given_cards = "GPU-n-1,NVIDIA,3000,30:GPU-n-0,NVIDIA,3000,30:"  # Volcano begins at the end
    assert bind.annotations == {
        w.VGPU_NODE: "n",
        w.VGPU_TIME: str(int(START)),
        w.VGPU_IDS_NEW: given_cards,
        w.DEVICES_TO_ALLOCATE: given_cards,
        w.BIND_TIME: str(int(START)),
        w.BIND_PHASE: "allocating",
    }


def test_each_container_has_its_own_part_of_the_annotation() -> None:
    containers = [
        {"name": "plain", "resources": {"requests": {"cpu": "1"}}},
        {"name": "gpu", "resources": {"requests": wants(1, percent=50)}},
    ]
    result = cluster(
        [vgpu_node("n", cards=1)], [job("a", spec={"containers": containers})], conf=VIRTUAL
    ).run()
    assert cards(result) == {"a-0": ";GPU-n-0,NVIDIA,8000,0:"}


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
def test_a_second_pod_on_the_only_card(case: str) -> None:
    first, second, fits = CARD_TESTS[case]
    jobs = [job("a", requests=first, age=9.0), job("b", requests=second)]
    result = cluster([vgpu_node("n", cards=1)], jobs, conf=VIRTUAL).run()
    assert ("b-0" in result.binds) == fits


def test_no_more_containers_share_a_card_than_it_is_split_for() -> None:
    result = cluster(
        [vgpu_node("n", cards=1, shares=3)],
        [job("a", 4, minimum=1, requests=wants(1, 1))],
        conf=VIRTUAL,
    ).run()
    assert len(result.binds) == 3


def test_binpack_fills_the_card_that_is_used_most_and_spread_the_one_used_least() -> None:
    jobs = [job("a", 3, requests=wants(1, 4000))]
    packed = cluster([vgpu_node("n")], jobs, conf=PACKED).run()
    assert {text.split(",")[0] for text in cards(packed).values()} == {"GPU-n-0"}
    spread = cluster([vgpu_node("n")], jobs, conf=SPREAD).run()
    assert [text.split(",")[0] for text in cards(spread).values()] == [
        "GPU-n-0", "GPU-n-1", "GPU-n-0",
    ]  # fmt: skip


def test_binpack_goes_to_the_node_whose_card_would_be_fullest() -> None:
    # On `big` a card would be at 100 x 4/16 = 25, on `small` at 100 x 4/8 = 50.
    nodes = [vgpu_node("big", memory=16000), vgpu_node("small", memory=8000)]
    result = cluster(nodes, [job("a", requests=wants(1, 4000))], conf=PACKED).run()
    assert result.binds == {"a-0": "small"}


def test_spread_goes_to_a_node_with_a_card_that_nobody_uses() -> None:
    world = cluster(
        [vgpu_node("a", cards=1), vgpu_node("b", cards=1)],
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
def test_a_pod_chooses_among_cards(case: str) -> None:
    notes, want_card = NOTES[case]
    nodes = [vgpu_node("a"), vgpu_node("b", kind="NVIDIA-A10", mode="mps")]
    asked = job("a", requests=wants(1, 10), pod_annotations=notes)
    result = cluster(nodes, [asked], conf=VIRTUAL).run()
    assert cards(result)["a-0"].split(",")[0] == want_card


def test_a_pod_that_no_card_suits_is_told_so() -> None:
    asked = job("a", requests=wants(1, 10), pod_annotations={w.VGPU_MODE: "mig"})
    result = cluster([vgpu_node("n")], [asked], conf=VIRTUAL).run()
    assert "no card that suits the pod's annotations" in result.why("a")


@pytest.mark.parametrize("mode", w.VGPU_MODES)
def test_members_of_a_group_that_spreads_have_a_card_each(mode: str) -> None:
    notes = {w.VGPU_PODGROUP_POLICY: "spread"}
    asked = job("a", 3, minimum=1, requests=wants(1, 10), pod_annotations=notes)
    machine = vgpu_node("n", memory=40960, kind="A100-SXM4-40GB", mode=mode)
    world = cluster([machine], [asked], conf=PACKED)
    first = world.run()
    names = sorted(text.split(",")[0].partition("[")[0] for text in cards(first).values())
    assert names == ["GPU-n-0", "GPU-n-1"]
    world.live(first)
    assert world.run().binds == {}  # also in the next cycle


def test_pods_of_an_exclusive_rule_share_no_card_with_each_other() -> None:
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
    used = {pod: text.split(",")[0] for pod, text in cards(first).items()}
    assert used["a-0"] == used["b-0"] == "GPU-n-0"
    assert used["c-0"] == "GPU-n-1"
    world.live(first)
    world.add(job("d", requests=wants(1, 10), labels=gold))
    assert world.run().binds == {}


def test_mig_cuts_a_card_once_and_gives_the_smallest_part_that_will_do() -> None:
    # An A100-40: 8000 need a part of 10240, which fixes the cut {3 x 10240, 1 x 5120}.
    mig = vgpu_node("n", cards=1, memory=40960, kind="NVIDIA-A100-SXM4-40GB", mode="mig")
    jobs = [
        job("a", requests=wants(1, 8000), age=9.0),
        job("b", requests=wants(1, 5000), age=8.0),
        job("c", 3, minimum=1, requests=wants(1, 9000), age=7.0),
        job("d", requests=wants(1, 20000)),
    ]
    result = cluster([mig], jobs, conf=PACKED).run()
    assert cards(result) == {
        "a-0": "GPU-n-0[group2-0],NVIDIA,10240,0:",
        "b-0": "GPU-n-0[group2-3],NVIDIA,5120,0:",
        "c-0": "GPU-n-0[group2-1],NVIDIA,10240,0:",
        "c-1": "GPU-n-0[group2-2],NVIDIA,10240,0:",
    }
    assert "no vgpu cards with enough room" in result.why("d")


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
def test_a_model_that_is_not_known_is_not_cut(model: str) -> None:
    assert geometries(model) == ()


def test_a_card_that_changed_its_mode_is_given_to_nobody_until_its_pods_have_left() -> None:
    world = cluster(
        [vgpu_node("n", cards=1, memory=40960)], [job("a", requests=wants(1, 10))], conf=VIRTUAL
    )
    world.live(world.run())
    mig = vgpu_node("n", cards=1, memory=40960, kind="A100-SXM4-40GB", mode="mig")
    world.state.set_node(mig)
    world.add(job("b", requests=wants(1, 10)))
    assert world.run().binds == {}
    world.state.delete_pod("default-a-0")
    assert set(world.run().binds) == {"b-0"}


def test_several_cards_are_taken_from_one_interconnect_group() -> None:
    # Card 0 is taken: of group 0 one card is left, group 1 has two.
    linked = vgpu_node("n", cards=4, **{w.CARD_GROUPS: "0,1;2,3"})
    world = cluster([linked], [job("a", requests=wants(1), pod_annotations={
        w.VGPU_USE_UUID: "GPU-n-0"})], conf=PACKED)  # fmt: skip
    world.live(world.run())
    world.add(job("b", requests=wants(2, percent=50)))
    assert [each.card for each in decode(cards(world.run())["b-0"])] == ["GPU-n-2", "GPU-n-3"]


def test_a_node_with_its_cards_joined_is_preferred() -> None:
    apart = vgpu_node("a", cards=2, **{w.CARD_GROUPS: "0;1"})
    joined = vgpu_node("b", cards=2, **{w.CARD_GROUPS: "0,1"})
    result = cluster([apart, joined], [job("x", requests=wants(2))], conf=PACKED).run()
    assert result.binds == {"x-0": "b"}


def test_a_node_without_a_device_plugin_has_no_cards() -> None:
    gone = vgpu_node("n", **{w.NODE_VGPU_HANDSHAKE: "Deleted_2026.03.04 10:00:00"})
    result = cluster([gone], [job("a", requests=wants(1, 1))], conf=VIRTUAL).run()
    assert "no working vgpu cards" in result.why("a")


def test_a_leaving_pod_keeps_its_card_until_it_is_gone() -> None:
    world = cluster([vgpu_node("n", cards=1)], [job("a", requests=wants(1))], conf=VIRTUAL)
    world.live(world.run())
    world.state.release(world.state.tasks["default-a-0"])
    world.add(job("b", requests=wants(1)))
    result = world.run()
    assert result.binds == {}
    assert result.pipelined == {"b-0": "n"}  # it waits for that very card
    world.state.delete_pod("default-a-0")
    assert set(world.run().binds) == {"b-0"}


def test_who_goes_first_is_promised_the_card_of_who_is_sent_away() -> None:
    goes_first(vgpu_node("n", cards=1, shares=1), wants(1))


def test_with_the_lock_a_node_gives_cards_to_one_pod_at_a_time() -> None:
    locked = conf(VGPUEnable="true", NodeLockEnable="true")
    world = cluster([vgpu_node("n")], [job("a", 2, minimum=1, requests=wants(1, 10))], conf=locked)
    first = world.run()
    assert len(first.binds) == 1
    world.apply(first)
    assert world.run().binds == {}
    assert len(world.run(now=START + 301).binds) == 1  # a plugin that never answers


# --- what is written on running pods --------------------------------------------------------------


def running(name: str, requests: dict[str, Any], **notes: str) -> GroupBuilder:
    """On node n, with these annotations and no others."""
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
def test_a_node_takes_nobody_while_it_is_unclear_which_card_a_pod_has(case: str) -> None:
    first = running("a", wants(1, 16000), **UNREADABLE[case])
    world = cluster([vgpu_node("n")], [first, job("b", requests=wants(1, 10))], conf=VIRTUAL)
    result = world.run()
    assert (result.binds, result.plan.failures) == ({}, [])
    assert "cards that their annotations do not name" in result.why("b")
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
def test_no_annotation_frees_a_card_or_stops_the_others(case: str) -> None:
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
    assert [text.split(",")[0] for text in cards(result).values()] == ["GPU-n-1"]  # 16000 of it


@pytest.mark.parametrize("amount", [2**63 - 1, 2**63, "1e30", "-5"])
@pytest.mark.parametrize("name", [w.VGPU_MEMORY, w.VGPU_CORES, w.VGPU_MEMORY_PERCENTAGE])
def test_amounts_that_no_card_has_are_placed_nowhere(name: str, amount: Any) -> None:
    world = cluster([vgpu_node("n")], [job("a", requests=wants(1, 10))], conf=VIRTUAL)
    world.live(world.run())
    world.add(job("b", requests={w.VGPU_NUMBER: 2, name: amount}))
    world.add(job("c", requests=wants(1, 10)))
    result = world.run()
    assert (set(result.binds), result.plan.failures) == ({"c-0"}, [])


# --- NPUs -----------------------------------------------------------------------------------------


def npu_node(name: str, cards: int = 4) -> Any:
    entries = [
        {"id": f"NPU-{i}", "count": 7, "devmem": 65536, "devcore": 20, "type": "Ascend910B3",
         "health": True, "customInfo": {"NetworkID": i // 2}}
        for i in range(cards)
    ]  # fmt: skip
    notes = {w.HAMI_NODE_REGISTER.format(type="Ascend910B3"): json.dumps(entries)}
    return node(name, cpu=64, annotations=notes, extra={"huawei.com/Ascend910B3": 7 * cards})


NPU = conf(AscendHAMiVNPUEnable="true", SchedulePolicy="binpack")


def test_npu_memory_is_rounded_up_to_a_template() -> None:
    asked = {"huawei.com/Ascend910B3": 1, "huawei.com/Ascend910B3-memory": 20000}
    result = cluster([npu_node("n")], [job("a", requests=asked)], conf=NPU).run()
    notes = result.plan.binds[0].annotations
    assert notes["hami.io/Ascend910B3-devices-allocated"] == "NPU-0,Ascend910B3,32768,50:;"
    assert json.loads(notes["huawei.com/Ascend910B3"]) == [
        {"UUID": "NPU-0", "temp": "vir10_3c_32g"}
    ]
    assert notes["hami.io/bind-phase"] == "allocating"


def test_several_npus_are_whole_and_of_one_network() -> None:
    part = {"huawei.com/Ascend910B3": 1, "huawei.com/Ascend910B3-memory": 10}
    world = cluster([npu_node("n")], [job("a", requests=part)], conf=NPU)
    world.live(world.run())
    world.add(job("b", requests={"huawei.com/Ascend910B3": 2}))
    notes = world.run().plan.binds[0].annotations
    given_cards = decode(notes["hami.io/Ascend910B3-devices-allocated"])
    assert [(each.card, each.cores) for each in given_cards] == [("NPU-2", 100), ("NPU-3", 100)]


def test_parts_of_several_npus_are_refused() -> None:
    asked = {"huawei.com/Ascend910B3": 2, "huawei.com/Ascend910B3-memory": 10}
    result = cluster([npu_node("n")], [job("a", requests=asked)], conf=NPU).run()
    assert "several are only given whole" in result.why("a")


# --- settings -------------------------------------------------------------------------------------

REFUSED = {
    "sharing and number": (
        dict(GPUSharingEnable="true", GPUNumberEnable="true"),
        "contradict each other",
    ),
    "sharing and vGPU": (dict(GPUSharingEnable="true", VGPUEnable="true"), "contradict"),
    "number and vGPU": (dict(GPUNumberEnable="true", VGPUEnable="true"), "contradict"),
    "an unknown policy": (dict(SchedulePolicy="random"), "must be binpack or spread"),
    "MindCluster": (dict(AscendMindClusterVNPUEnable="true"), "not supported"),
    "geometries elsewhere": (dict(KnownGeometriesCMName="mine"), "leave the argument out"),
    "a rule with a number": (dict(GPUExclusiveRules="[{app: 1}]"), "write it in quotes"),
    "a rule that is none": (dict(GPUExclusiveRules="[gold]"), "list of label maps"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_settings_that_cannot_hold_are_refused(case: str) -> None:
    arguments, want_text = REFUSED[case]
    with pytest.raises(ConfigError, match=want_text):
        cluster(conf=conf(**arguments))


def test_the_name_of_a_config_map_that_is_not_read_is_warned_of() -> None:
    given_name = conf(KnownGeometriesCMName="volcano-vgpu-device-config")
    (warning,) = cluster(conf=given_name).config.warnings
    assert "deviceshare.KnownGeometriesCMName has no effect: the ConfigMap is not read" in warning


def container(name: str, **requests: Any) -> dict[str, Any]:
    named = {f"volcano.sh/vgpu-{key.replace('_', '-')}": n for key, n in requests.items()}
    return {"name": name, "resources": {"requests": {"cpu": "1", **named}}}


NO_CARD: dict[str, tuple[dict[str, Any], str]] = {
    "init containers only": (
        {"containers": [container("c")], "initContainers": [container("i", number=1)]},
        "only init containers of the pod ask for vGPUs",
    ),
    "cores only": ({"containers": [container("c", cores=30)]}, "for no vGPU"),
    "a percentage only": ({"containers": [container("c", memory_percentage=30)]}, "for no vGPU"),
    "one container of two": (
        {"containers": [container("c", number=1), container("d", cores=30)]},
        "for no vGPU",
    ),
}


@pytest.mark.parametrize("case", NO_CARD)
def test_a_pod_that_would_get_no_card_for_what_it_asks_is_told_so(case: str) -> None:
    spec, want_text = NO_CARD[case]
    result = cluster([vgpu_node("n")], [job("a", spec=spec)], conf=VIRTUAL).run()
    assert result.binds == {}
    assert want_text in result.why("a")


def test_a_percentage_that_means_unset_asks_for_nothing() -> None:
    spec = {"containers": [container("c", memory_percentage=w.VGPU_PERCENTAGE_UNSET)]}
    assert cluster([vgpu_node("n")], [job("a", spec=spec)], conf=VIRTUAL).run().binds


def test_npus_parted_otherwise_than_by_templates_are_refused() -> None:
    asked = {"huawei.com/Ascend910B3": 1, "huawei.com/Ascend910B3-memory": 10}
    soft = job("a", requests=asked, pod_annotations={w.VNPU_MODE: "hami-core"})
    result = cluster([npu_node("n")], [soft, job("b", requests=asked)], conf=NPU).run()
    assert set(result.binds) == {"b-0"}
    assert "only templates are supported" in result.why("a")


def test_more_whole_gpus_than_a_pod_may_have_are_refused() -> None:
    result = cluster([gpu_node("n")], [job("a", requests={w.GPU_NUMBER: 129})], conf=NUMBER).run()
    assert "a container may have up to 128" in result.why("a")


def test_switched_off_it_looks_at_no_cards() -> None:
    result = cluster([vgpu_node("n")], [job("a", requests=wants(1, 10**6))], conf=conf()).run()
    assert cards(result) == {"a-0": ""}


def test_nonsense_about_cards_is_no_card() -> None:
    notes = {w.NODE_VGPU_REGISTER: "x:GPU-1,a,b,c,true:GPU-2,1,2,T,true,hami-core:,,,,:"}
    found = cards_of(notes, {}, {w.VGPU_NUMBER: "1"})
    assert found == {VGPU: (Card("GPU-2", 2, 1, "T", "hami-core", True, 2),)}
    assert cards_of({"hami.io/node-register-Ascend910B3": "{"}, {}, {}) == {}


def test_a_card_listed_twice_is_one_card() -> None:
    text = "GPU-1,10,16000,V100,true,hami-core:" * 2
    twice = node("n", cpu=64, annotations={w.NODE_VGPU_REGISTER: text}, extra={w.VGPU_NUMBER: 20})
    world = cluster([twice], [job("a", requests=wants(1, 9000))], conf=VIRTUAL)
    world.live(world.run())
    world.add(job("b", requests=wants(1, 9000)))
    assert world.run().binds == {}


ODD_NPUS: dict[str, Any] = {
    "a name with a comma": {"id": "a,b"},
    "a name with a colon": {"id": "a:b"},
    "a name that is no text": {"id": 7},
    "less memory than none": {"devmem": -1},
    "a share that is no number": {"count": True},
}


@pytest.mark.parametrize("case", ODD_NPUS)
def test_an_npu_that_could_not_be_written_on_a_pod_is_no_card(case: str) -> None:
    entry = {"id": "x", "devmem": 10, "count": 1} | ODD_NPUS[case]
    notes = {w.HAMI_NODE_REGISTER.format(type="Ascend910B3"): json.dumps([entry])}
    assert cards_of(notes, {}, {}) == {}


@pytest.mark.parametrize("text", ["[" * 100_000, f'[{{"id":"x","devmem":{"9" * 5000}}}]'])
def test_a_register_that_cannot_be_read_has_no_cards(text: str) -> None:
    assert cards_of({w.HAMI_NODE_REGISTER.format(type="Ascend910B3"): text}, {}, {}) == {}


def test_networks_of_npus_may_have_any_number() -> None:
    numbers = [4e9, 20000, float("nan"), 20000, float("inf"), -3, 10**400, 4e9]
    entries = [
        {"id": f"N{i}", "devmem": 65536, "count": 7, "customInfo": {"NetworkID": number}}
        for i, number in enumerate(numbers)
    ]
    notes = {w.HAMI_NODE_REGISTER.format(type="Ascend910B3"): json.dumps(entries)}
    found = cards_of(notes, {}, {})["Ascend910B3"]
    assert [card.group for card in found] == [1, 0, -1, 0, -1, -1, 2, 1]
    machine = node("n", cpu=64, annotations=notes, extra={"huawei.com/Ascend910B3": 56})
    asked = job("a", requests={"huawei.com/Ascend910B3": 2})
    given_notes = cluster([machine], [asked], conf=NPU).run().plan.binds[0].annotations
    chosen = decode(given_notes["hami.io/Ascend910B3-devices-allocated"])
    assert [each.card for each in chosen] == ["N1", "N3"]


def test_of_many_interconnects_the_one_with_just_enough_cards_is_taken() -> None:
    # 70 groups: 0 to 68 have three cards each, the last one two.
    sizes = [3] * 69 + [2]
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    text = ";".join(
        ",".join(str(start + i) for i in range(size))
        for start, size in zip(starts, sizes, strict=True)
    )
    linked = vgpu_node("n", cards=sum(sizes), **{w.CARD_GROUPS: text})
    result = cluster([linked], [job("a", requests=wants(2, 10))], conf=PACKED).run()
    assert {each.card for each in decode(cards(result)["a-0"])} == {"GPU-n-207", "GPU-n-208"}


def test_a_register_with_absurd_amounts_neither_fails_nor_orders_cards_wrongly() -> None:
    huge = "9" * 30
    text = f"GPU-0,{huge},{huge},A100-SXM4-40GB,true,hami-core:GPU-1,1,9,A100-SXM4-40GB,true,mig:"
    odd = node("n", cpu=64, annotations={w.NODE_VGPU_REGISTER: text}, extra={w.VGPU_NUMBER: 20})
    jobs = [job("a", requests=wants(1, 2**23), age=9.0), job("b", requests=wants(1, 5000))]
    result = cluster([odd], jobs, conf=PACKED).run()
    assert result.plan.failures == []
    assert cards(result) == {
        "a-0": f"GPU-0,NVIDIA,{2**23},0:",
        "b-0": "GPU-0,NVIDIA,5000,0:",  # the card used most
    }


# --- laws -----------------------------------------------------------------------------------------


@given(data=st.data())
@settings(max_examples=60)
def test_pods_with_one_card_get_at_once_what_they_would_get_one_by_one(data: st.DataObject) -> None:
    width = data.draw(st.integers(1, 4))
    machine = Node("n")
    machine.cards = {
        VGPU: tuple(
            Card(f"c{i}", data.draw(st.integers(0, 40)), data.draw(st.integers(1, 5)), whole=i)
            for i in range(width)
        )
    }
    ledger = Ledger(VGPU, [machine], 0)
    used = np.array(
        [
            [[data.draw(st.integers(0, int(ledger.memory_nc[0, c]))) for c in range(width)]],
            [[data.draw(st.integers(0, 3)) for _ in range(width)]],
            [[data.draw(st.sampled_from((0, 30, 50, 100))) for _ in range(width)]],
        ]
    )
    cores = data.draw(st.sampled_from((0, 20, 100)))
    memory, percent = data.draw(st.sampled_from(((1, 0), (7, 0), (0, 10), (0, 100))))
    request = Request(VGPU, (Ask(0), Ask(1, memory, percent, cores)))
    policy = data.draw(st.sampled_from(("", "binpack", "spread")))
    most = data.draw(st.sampled_from((2, 256)))
    rows = np.zeros(1, dtype=np.int64)
    fast, slow = (
        find(choosing._Table(ledger, rows, used.copy(), ledger.usable_nc[rows]), request, policy)
        for find in (
            lambda *a: choosing._at_once(*a, most),
            lambda *a: choosing._step_by_step(*a, False, most),
        )
    )
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


def overbooked(world: TestCluster) -> list[str]:
    """Cards of which more is given than there is, counted anew from the pods' annotations."""
    used: dict[str, list[int]] = {}
    for pod in world.pods.values():
        if pod.spec.node_name and pod.metadata.uid in world.state.tasks:
            for each in decode((pod.metadata.annotations or {}).get(w.VGPU_IDS_NEW, "")):
                sums = used.setdefault(each.card, [0, 0, 0])
                for i, amount in enumerate((each.memory, each.cores, 1)):
                    sums[i] += amount
    wrong = [
        f"{card}: {sums}"
        for card, sums in used.items()
        if "[" not in card and (sums[0] > 16000 or sums[1] > 100 or sums[2] > 4)
    ]
    return wrong + [f"{card}: {used[card]}" for card in wrongly_cut(used)]


def wrongly_cut(used: dict[str, list[int]]) -> list[str]:
    """Instances given twice, of another size, or of two cuts of one card."""
    wrong, cuts = [], {}
    for card in sorted(card for card in used if "[" in card):
        whole, _, name = card.rstrip("]").partition("[")
        cut, _, position = name.partition("-")
        geometry = geometries(MIG_MODEL)[int(cut.removeprefix("group")) - 1]
        sizes = [size for size, count in geometry for _ in range(count)]
        is_right = used[card][0] == sizes[int(position)] and used[card][2] == 1
        if not is_right or cuts.setdefault(whole, cut) != cut:
            wrong.append(card)
    return wrong


@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_no_card_is_overbooked_whatever_leaves_restarts_or_lags(data: st.DataObject) -> None:
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
        if data.draw(st.booleans()):  # the watch lags: what was sent is only assumed
            world.apply(result)
            unseen.append(result)
            _remember(world, result)
        else:
            world.live(result)
        assert overbooked(world) == []
        placed = sorted(uid for uid, p in world.pods.items() if p.spec.node_name)
        for uid in placed:
            if data.draw(st.integers(0, 3)) == 0:
                del world.pods[uid]
                world.state.delete_pod(uid)
        if data.draw(st.booleans()):  # another scheduler takes over, with the pods alone
            world = _restarted(world, nodes, data.draw(st.sampled_from(modes)))
        elif data.draw(st.booleans()):
            for uid, pod in world.pods.items():  # the watch catches up
                if pod.spec.node_name and uid in world.state.tasks:
                    world.state.set_pod(pod)


def _remember(world: TestCluster, result: Result) -> None:
    """The server has the binds, whatever the watch shows."""
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
            fresh.state.set_group(groups[name])
        fresh.pods[uid] = pod
        fresh.state.set_pod(pod)
    return fresh
