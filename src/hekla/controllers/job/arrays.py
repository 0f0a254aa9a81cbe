"""Job arrays in the controller: free slots, retries of failed indices, variables of pods.

Note: a retry is recorded in an annotation of the job before the failed pod is deleted. The record
tells a restarted controller which pods to delete and how many retries an index has left.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Final

from hekla.api import arrays, wellknown
from hekla.api.arrays import Array, ArrayError
from hekla.api.wellknown import PodPhase
from hekla.controllers.objects import annotations_of, is_deleting
from hekla.units.objects import Object

_CONTAINERS: Final = ("initContainers", "containers")


def array_index(job: Object, position: int) -> int:
    """Return what the name of a pod ends with: its array index, or its position in the task."""
    array = arrays.array_of(job)
    if array is None or position >= len(array.indices):
        return position
    return array.indices[position]


def free_slots(
    array: Array | None, so_far: Mapping[int, int], pods: Iterable[Object]
) -> int | None:
    """Return how many pods the parallelism allows to create; None for no limit.

    A failed pod that is retried keeps its slot, so that the retry comes before the next index.
    """
    if array is None or array.parallelism is None:
        return None
    unfinished = sum(
        1
        for pod in pods
        if is_deleting(pod)
        or _phase(pod) not in (PodPhase.SUCCEEDED, PodPhase.FAILED)
        or is_replaced(pod, so_far)
    )
    return max(0, array.parallelism - unfinished)


def retries_so_far(job: Object) -> dict[int, int]:
    """Return how often each index was retried, from the record in the job's annotation."""
    try:
        found = json.loads(annotations_of(job).get(wellknown.ARRAY_RETRIED) or "{}")
        return {
            index: int(count) for count, text in found.items() for index in arrays.expand(str(text))
        }
    except (ArrayError, ValueError, AttributeError):
        return {}


def record_of(retries: Mapping[int, int]) -> str:
    """Return the annotation that records the retries."""
    by_count: dict[int, list[int]] = {}
    for index, count in retries.items():
        by_count.setdefault(count, []).append(index)
    texts = {str(count): arrays.compress(by_count[count]) for count in sorted(by_count)}
    return json.dumps(texts)


def is_replaced(pod: Object, so_far: Mapping[int, int]) -> bool:
    """Return whether a failed pod is one that the record says to retry."""
    index = arrays.index_of_pod(pod)
    if index is None or index not in so_far or _phase(pod) != PodPhase.FAILED:
        return False
    return attempt_of(pod) < so_far[index]


def new_retries(
    array: Array | None, so_far: Mapping[int, int], pods: Iterable[Object]
) -> dict[int, int]:
    """Return the record with the failed indices that have retries left; empty if none has."""
    if array is None or not array.retries:
        return {}
    found: dict[int, int] = {}
    for pod in pods:
        index = arrays.index_of_pod(pod)
        if index is None or _phase(pod) != PodPhase.FAILED or is_deleting(pod):
            continue
        done = so_far.get(index, 0)
        if attempt_of(pod) >= done and done < array.retries:
            found[index] = done + 1
    return {**so_far, **found} if found else {}


def attempt_of(pod: Object) -> int:
    """Return the number of the attempt that a pod is; 0 is the first one."""
    text = annotations_of(pod).get(wellknown.ARRAY_ATTEMPT, "")
    return int(text) if text.isdecimal() else 0


def with_environment(spec: Object, job: str, array: Array, index: int) -> Object:
    """Return a pod spec whose containers have the variables of an index.

    They come first, so that other variables can refer to them. The template's own values win.
    """
    values = arrays.environment(job, array, index)
    changed = dict(spec)
    for kind in _CONTAINERS:
        if spec.get(kind):
            changed[kind] = [_with_variables(container, values) for container in spec[kind]]
    return changed


def _with_variables(container: Object, values: Mapping[str, str]) -> Object:
    own = container.get("env") or []
    known = {variable["name"] for variable in own}
    added = [{"name": name, "value": text} for name, text in values.items() if name not in known]
    return {**container, "env": [*added, *own]}


def _phase(pod: Object) -> str:
    return str((pod.get("status") or {}).get("phase") or PodPhase.PENDING)
