"""The webhook records the submitting user."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import jsonpatch
import pytest

from hekla.admission import reviews
from hekla.api import wellknown

TRUSTED = ("system:masters", "system:serviceaccounts:volcano-system")
VIEW: Any = SimpleNamespace(
    job_plugins=(), scheduler_names=("volcano",), queue=lambda name: None, queues=list,
    namespace=lambda name: None,
)  # fmt: skip


def _mutated(claimed: str | None, old: str | None, *groups: str) -> str | None:
    """Return the recorded user of a group that alice writes."""
    notes = {} if claimed is None else {wellknown.SUBMITTED_BY: claimed}
    metadata = {"name": "g", "namespace": "x", "annotations": notes}
    obj = {
        "apiVersion": wellknown.SCHEDULING_API,
        "kind": "PodGroup",
        "metadata": metadata,
        "spec": {"minMember": 1, "queue": "default"},
    }
    request = {
        "uid": "1",
        "kind": {"group": "scheduling.volcano.sh", "version": "v1beta1", "kind": "PodGroup"},
        "operation": "CREATE" if old is None else "UPDATE",
        "userInfo": {"username": "alice", "groups": list(groups)},
        "object": obj,
    }
    if old is not None:
        before = {wellknown.SUBMITTED_BY: old} if old else {}
        request["oldObject"] = {**obj, "metadata": {**metadata, "annotations": before}}
    response = reviews.mutate(request, VIEW, TRUSTED)["response"]
    patch = json.loads(response.get("patch", b"[]"))
    changed = jsonpatch.apply_patch(obj, patch)
    found = (changed["metadata"].get("annotations") or {}).get(wellknown.SUBMITTED_BY)
    return None if found is None else str(found)


@pytest.mark.parametrize("claimed", [None, "bob", "alice"])
def test_new_object_names_the_user_of_the_request(claimed: str | None) -> None:
    assert _mutated(claimed, None, "system:authenticated") == "alice"


@pytest.mark.parametrize("claimed", [None, "bob", "carol"])
def test_update_keeps_the_recorded_user(claimed: str | None) -> None:
    assert _mutated(claimed, "carol", "system:authenticated") == "carol"


@pytest.mark.parametrize("group", TRUSTED)
def test_trusted_writer_may_name_another_user(group: str) -> None:
    assert _mutated("bob", None, group) == "bob"
    assert _mutated(None, None, group) is None
