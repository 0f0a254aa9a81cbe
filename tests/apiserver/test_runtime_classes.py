"""RuntimeClasses: those that exist, and what they change in pods at admission."""

from __future__ import annotations

from typing import Any

import pytest

from hekla.api.runtime_classes import merge_tolerations
from hekla.kube.client import Client
from hekla.kube.errors import ApiError, Forbidden
from hekla.kube.resources import PODS, RUNTIME_CLASSES
from hekla.units.objects import Object
from tests.apiserver.objects import pod

HEAVY: Object = {
    "metadata": {"name": "heavy"},
    "handler": "oci",
    "overhead": {"podFixed": {"cpu": "250m", "memory": "120Mi"}},
    "scheduling": {
        "nodeSelector": {"kind": "sandboxed"},
        "tolerations": [{"key": "sandbox", "operator": "Exists", "effect": "NoSchedule"}],
    },
}


async def create(client: Client, name: str, **spec: Any) -> Object:
    made: Object = (await client.create(PODS, pod(name, **spec)))["spec"]
    return made


async def test_runtimes_of_the_node_agent_have_classes(client: Client) -> None:
    found = (await client.list(RUNTIME_CLASSES)).items
    handlers = {each["metadata"]["name"]: each["handler"] for each in found}
    assert handlers == {"oci": "oci", "process": "process", "sif": "sif"}


async def test_pod_of_an_unknown_class_is_rejected(client: Client) -> None:
    with pytest.raises(Forbidden, match='pod rejected: RuntimeClass "gvisor" not found'):
        await create(client, "p", runtimeClassName="gvisor")


async def test_pod_takes_overhead_and_scheduling_of_its_class(client: Client) -> None:
    await client.create(RUNTIME_CLASSES, HEAVY)
    spec = await create(client, "p", runtimeClassName="heavy", nodeSelector={"zone": "a"})
    assert spec["overhead"] == {"cpu": "250m", "memory": "120Mi"}
    assert spec["nodeSelector"] == {"zone": "a", "kind": "sandboxed"}
    assert HEAVY["scheduling"]["tolerations"][0] in spec["tolerations"]
    same = {"cpu": "0.25", "memory": "120Mi"}
    assert (await create(client, "same", runtimeClassName="heavy", overhead=same))["overhead"]


async def test_pod_that_contradicts_its_class_is_rejected(client: Client) -> None:
    await client.create(RUNTIME_CLASSES, HEAVY)
    cases: dict[str, Object] = {
        "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead": {
            "runtimeClassName": "heavy",
            "overhead": {"cpu": "1"},
        },
        r"conflict: runtimeClass.scheduling.nodeSelector\[kind\] = sandboxed; "
        r"pod.spec.nodeSelector\[kind\] = other": {
            "runtimeClassName": "heavy",
            "nodeSelector": {"kind": "other"},
        },
        "Pod Overhead set without corresponding RuntimeClass defined Overhead": {
            "overhead": {"cpu": "1"}
        },
    }
    for message, spec in cases.items():
        with pytest.raises(Forbidden, match=message):
            await create(client, "p", **spec)


async def test_handler_stays_and_fields_are_checked(client: Client) -> None:
    await client.create(RUNTIME_CLASSES, HEAVY)
    with pytest.raises(ApiError, match="handler"):
        await client.patch(RUNTIME_CLASSES, "heavy", {"handler": "process"})
    wrong = {"metadata": {"name": "w"}, "handler": "x"}
    for field, more in (
        ("handler", {"handler": "No Label"}),
        ("overhead.podFixed", {"overhead": {"podFixed": {"cpu": "-1"}}}),
        ("scheduling.nodeSelector", {"scheduling": {"nodeSelector": {"a b": "c"}}}),
        ("scheduling.tolerations", {"scheduling": {"tolerations": [{"operator": "Is"}]}}),
    ):
        with pytest.raises(ApiError, match=field):
            await client.create(RUNTIME_CLASSES, {**wrong, **more})


def test_tolerations_that_another_one_includes_are_left_out() -> None:
    key: Object = {"key": "a", "operator": "Exists"}
    narrow = {**key, "effect": "NoSchedule"}
    value = {"key": "a", "operator": "Equal", "value": "1"}
    short = {**key, "effect": "NoExecute", "tolerationSeconds": 5}
    long = {**key, "effect": "NoExecute", "tolerationSeconds": 50}
    cases: dict[str, tuple[list[Object], list[Object]]] = {
        "equal ones": ([key, dict(key)], [key]),
        "a later one is wider": ([narrow, value, key], [key]),
        "an earlier one is wider": ([{"operator": "Exists"}, narrow], [{"operator": "Exists"}]),
        "other keys": ([key, {**key, "key": "b"}], [key, {**key, "key": "b"}]),
        "a longer time": ([short, long], [long]),
        "without a value": ([value, {**value, "value": "2"}], [value, {**value, "value": "2"}]),
    }
    for name, (given, want) in cases.items():
        assert merge_tolerations(given) == want, name
