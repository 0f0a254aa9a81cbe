"""deviceshare: its settings, and pods with device requests that cannot be met."""

from __future__ import annotations

from typing import Any

import pytest

from hekla.api import wellknown as w
from hekla.scheduler.errors import ConfigError
from hekla.testing import cluster

from .device_worlds import (
    NUMBER,
    VIRTUAL,
    conf,
    devices,
    gpu_node,
    job,
    vgpu_node,
    wants,
)

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
def test_contradicting_settings_are_refused(case: str) -> None:
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
def test_a_pod_with_an_impossible_device_request_has_a_reason(case: str) -> None:
    spec, want_text = NO_CARD[case]
    result = cluster([vgpu_node("n")], [job("a", spec=spec)], conf=VIRTUAL).run()
    assert result.binds == {}
    assert want_text in result.why("a")


def test_an_unset_memory_percentage_requests_nothing() -> None:
    spec = {"containers": [container("c", memory_percentage=w.VGPU_PERCENTAGE_UNSET)]}
    assert cluster([vgpu_node("n")], [job("a", spec=spec)], conf=VIRTUAL).run().binds


def test_more_whole_gpus_than_a_pod_may_have_are_refused() -> None:
    result = cluster([gpu_node("n")], [job("a", requests={w.GPU_NUMBER: 129})], conf=NUMBER).run()
    assert "a container may have up to 128" in result.why("a")


def test_deviceshare_ignores_devices_if_disabled() -> None:
    result = cluster([vgpu_node("n")], [job("a", requests=wants(1, 10**6))], conf=conf()).run()
    assert devices(result) == {"a-0": ""}
