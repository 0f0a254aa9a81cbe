"""NPUs: templates, and whole chips of one network."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hekla.api import wellknown as w
from hekla.api.devices import decode
from hekla.scheduler.state.devices.inventory import devices_of
from hekla.testing import cluster, node

from .device_worlds import (
    conf,
    job,
)


def npu_node(name: str, devices: int = 4) -> Any:
    entries = [
        {"id": f"NPU-{i}", "count": 7, "devmem": 65536, "devcore": 20, "type": "Ascend910B3",
         "health": True, "customInfo": {"NetworkID": i // 2}}
        for i in range(devices)
    ]  # fmt: skip
    notes = {w.HAMI_NODE_REGISTER.format(type="Ascend910B3"): json.dumps(entries)}
    return node(name, cpu=64, annotations=notes, extra={"huawei.com/Ascend910B3": 7 * devices})


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
    allocated = decode(notes["hami.io/Ascend910B3-devices-allocated"])
    assert [(each.device, each.cores) for each in allocated] == [("NPU-2", 100), ("NPU-3", 100)]


def test_fractions_of_several_npus_are_refused() -> None:
    asked = {"huawei.com/Ascend910B3": 2, "huawei.com/Ascend910B3-memory": 10}
    result = cluster([npu_node("n")], [job("a", requests=asked)], conf=NPU).run()
    assert "several are only given whole" in result.why("a")


def test_npus_parted_otherwise_than_by_templates_are_refused() -> None:
    asked = {"huawei.com/Ascend910B3": 1, "huawei.com/Ascend910B3-memory": 10}
    soft = job("a", requests=asked, pod_annotations={w.VNPU_MODE: "hami-core"})
    result = cluster([npu_node("n")], [soft, job("b", requests=asked)], conf=NPU).run()
    assert set(result.binds) == {"b-0"}
    assert "only templates are supported" in result.why("a")


ODD_NPUS: dict[str, Any] = {
    "a name with a comma": {"id": "a,b"},
    "a name with a colon": {"id": "a:b"},
    "a name that is no text": {"id": 7},
    "less memory than none": {"devmem": -1},
    "a share that is no number": {"count": True},
}


@pytest.mark.parametrize("case", ODD_NPUS)
def test_an_npu_with_an_unusable_name_is_no_device(case: str) -> None:
    entry = {"id": "x", "devmem": 10, "count": 1} | ODD_NPUS[case]
    notes = {w.HAMI_NODE_REGISTER.format(type="Ascend910B3"): json.dumps([entry])}
    assert devices_of(notes, {}, {}) == {}


@pytest.mark.parametrize("text", ["[" * 100_000, f'[{{"id":"x","devmem":{"9" * 5000}}}]'])
def test_an_invalid_device_register_has_no_devices(text: str) -> None:
    assert devices_of({w.HAMI_NODE_REGISTER.format(type="Ascend910B3"): text}, {}, {}) == {}


def test_networks_of_npus_may_have_any_number() -> None:
    numbers = [4e9, 20000, float("nan"), 20000, float("inf"), -3, 10**400, 4e9]
    entries = [
        {"id": f"N{i}", "devmem": 65536, "count": 7, "customInfo": {"NetworkID": number}}
        for i, number in enumerate(numbers)
    ]
    notes = {w.HAMI_NODE_REGISTER.format(type="Ascend910B3"): json.dumps(entries)}
    found = devices_of(notes, {}, {})["Ascend910B3"]
    assert [device.group for device in found] == [1, 0, -1, 0, -1, -1, 2, 1]
    machine = node("n", cpu=64, annotations=notes, extra={"huawei.com/Ascend910B3": 56})
    asked = job("a", requests={"huawei.com/Ascend910B3": 2})
    given_notes = cluster([machine], [asked], conf=NPU).run().plan.binds[0].annotations
    chosen = decode(given_notes["hami.io/Ascend910B3-devices-allocated"])
    assert [each.device for each in chosen] == ["N1", "N3"]
