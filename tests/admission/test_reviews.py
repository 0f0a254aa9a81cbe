"""Reviews as pure functions, without a server."""

from __future__ import annotations

import base64
from copy import deepcopy
from typing import Any

import jsonpatch
import msgspec

from hekla.admission import reviews
from hekla.api import volcano
from tests.api.test_volcano_jobs import Cluster, job, task

Json = dict[str, Any]


def request(obj: Json, operation: str = "CREATE", old: Json | None = None) -> Json:
    return {"uid": "u", "operation": operation, "object": obj, "oldObject": old}


def patched(obj: Json, answer: Json) -> Json:
    encoded = msgspec.to_builtins(answer)["response"].get("patch")
    operations = msgspec.json.decode(base64.b64decode(encoded)) if encoded else []
    made: Json = jsonpatch.apply_patch(obj, operations)
    return made


def test_job_applied_again_with_another_size_is_defaulted_and_allowed() -> None:
    view = Cluster()
    old = job(task(replicas=2))
    volcano.default(old, view)
    again = job(task(replicas=4), minAvailable=2)  # as kubectl sends it: without defaults
    for field in ("queue", "schedulerName", "maxRetry"):
        again["spec"][field] = old["spec"][field]
    refused = reviews.validate(request(deepcopy(again), "UPDATE", old), view)
    assert refused["response"]["allowed"] is False
    completed = patched(again, reviews.mutate(request(deepcopy(again), "UPDATE", old), view))
    assert reviews.validate(request(completed, "UPDATE", old), view)["response"]["allowed"]


def test_object_being_deleted_is_allowed() -> None:
    view = Cluster()
    old = job(task(replicas=2))
    volcano.default(old, view)
    leaving = deepcopy(old)
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    leaving["spec"]["queue"] = "other"
    answer = reviews.validate(request(leaving, "UPDATE", old), view)
    assert answer["response"]["allowed"]


def test_complete_object_gets_no_patch() -> None:
    view = Cluster()
    one = job(task())
    volcano.default(one, view)
    assert "patch" not in reviews.mutate(request(one), view)["response"]
