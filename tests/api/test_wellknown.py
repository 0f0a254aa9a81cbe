"""Well-known constants are unique, well-formed and match the CRDs."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from typing import Any

from hekla.api import crds, wellknown

QUALIFIED = re.compile(r"[a-z0-9.-]+/[A-Za-z0-9][A-Za-z0-9._-]*")


def constants() -> Iterator[tuple[str, Any]]:
    for name, value in vars(wellknown).items():
        if name.isupper() and isinstance(value, str):
            yield name, value


def schema_of(group: str, kind: Any, *path: str) -> Any:
    crd = crds.find(group, kind)
    assert crd is not None
    here = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for name in path:
        here = here["items"] if name == "[]" else here["properties"][name]
    return here


def members(cls: type) -> set[str]:
    return {v for k, v in vars(cls).items() if k.isupper() and isinstance(v, str)}


def test_no_key_is_defined_twice() -> None:
    keys = [value for _, value in constants() if QUALIFIED.fullmatch(value) and "v1" not in value]
    assert len(keys) > 100
    assert sorted(keys) == sorted(set(keys))


def test_no_constant_is_assigned_twice() -> None:
    tree = ast.parse(inspect.getsource(wellknown))
    names = [ast.unparse(node.target) for node in tree.body if isinstance(node, ast.AnnAssign)]
    assert len(names) == len(set(names))


def test_api_versions_are_those_of_the_crds() -> None:
    served = {f"{crd['spec']['group']}/{crd['spec']['versions'][0]['name']}" for crd in crds.load()}
    assert served == {value for name, value in constants() if name.endswith("_API")}


def test_phases_are_those_of_the_schemas() -> None:
    for cls, path in {
        wellknown.JobPhase: ("batch.volcano.sh", "Job", "status", "state", "phase"),
        wellknown.PodGroupPhase: ("scheduling.volcano.sh", "PodGroup", "status", "phase"),
        wellknown.QueueState: ("scheduling.volcano.sh", "Queue", "status", "state"),
        wellknown.FlowPhase: ("flow.volcano.sh", "JobFlow", "status", "state", "phase"),
        wellknown.JobEvent: ("batch.volcano.sh", "Job", "spec", "policies", "[]", "event"),
    }.items():
        assert members(cls) == set(schema_of(*path)["enum"]), cls.__name__


def test_policies_may_not_use_internal_events_or_actions() -> None:
    event, action = wellknown.JobEvent, wellknown.Action
    assert members(event) - event.IN_POLICIES == {"OutOfSync", "CommandIssued", "PodRunning"}
    assert members(action) - action.IN_POLICIES == {
        "SyncJob",
        "EnqueueJob",
        "SyncQueue",
        "OpenQueue",
        "CloseQueue",
    }


def test_an_aborted_job_is_not_finished_because_it_can_be_resumed() -> None:
    assert wellknown.JobPhase.ABORTED not in wellknown.JobPhase.FINISHED
