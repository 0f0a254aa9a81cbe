"""Admission of job arrays: the annotations, and the spec that fits them.

An array has one task with a replica for each index. Its pods start one by one, so it is no gang:
`minAvailable` is 1. `minSuccess` is by default the number of indices, so that the job completes if
all succeed, and one that fails does not stop the others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from hekla.api import arrays, wellknown
from hekla.api.arrays import ArrayError
from hekla.api.rules import names
from hekla.api.rules.fields import FieldErrors, forbidden, invalid
from hekla.api.volcano.policies import events_of
from hekla.api.wellknown import JobEvent
from hekla.units.objects import Object

_ANNOTATIONS: Final = "metadata.annotations[{}]"
_TOGETHER: Final = frozenset(wellknown.JOB_PLUGINS) - {"env"}
"""Plugins for pods that run at the same time and reach each other."""
_RETRYING_EVENTS: Final = {JobEvent.ANY, JobEvent.POD_FAILED, JobEvent.POD_EVICTED}


def default(job: Object) -> None:
    """Apply the defaults of an array; a text that is wrong is left to the check."""
    text = _text(job, wellknown.ARRAY_INDICES)
    tasks = job["spec"].get("tasks") or []
    if text is None or len(tasks) != 1:
        return
    try:
        count = len(arrays.expand(text))
    except ArrayError:
        return
    if tasks[0].get("replicas") is None:
        tasks[0]["replicas"] = count
    if tasks[0].get("minAvailable") is None:
        tasks[0]["minAvailable"] = 1
    if job["spec"].get("minSuccess") is None:
        job["spec"]["minSuccess"] = count


def check(job: Object, name: str) -> FieldErrors:
    """Yield the errors of a new array."""
    text = _text(job, wellknown.ARRAY_INDICES)
    if text is None:
        yield from _without_indices(job)
        return
    tasks = job["spec"].get("tasks") or []
    if len(tasks) != 1:
        yield invalid(
            "spec.tasks", len(tasks), "a job with array indices has one task; write a job for each"
        )
        return
    try:
        indices = arrays.expand(text)
    except ArrayError as error:
        yield invalid(_ANNOTATIONS.format(wellknown.ARRAY_INDICES), text, str(error))
        return
    longest = f"{name}-{tasks[0].get('name')}-{indices[-1]}"
    if why := names.dns_label(longest):
        yield invalid(
            "metadata.name",
            name,
            f"the pod of index {indices[-1]} would be called {longest!r}, which {why}",
        )
    together = sorted(_TOGETHER & set(job["spec"].get("plugins") or {}))
    if together:
        yield forbidden(
            "spec.plugins",
            f"{', '.join(together)}: the pods of an array do not run at the same time; write a "
            "job without array indices for pods that reach each other",
        )
    yield from _numbers(job, len(indices))
    yield from _size(job, tasks[0], len(indices))


def check_update(job: Object, old: Object) -> FieldErrors:
    """Yield the errors of a changed array: its parallelism and its retries may change."""
    for key in (wellknown.ARRAY_INDICES, wellknown.ARRAY_WHOLE):
        if _text(job, key) != _text(old, key):
            yield forbidden(
                _ANNOTATIONS.format(key), "the indices of a job cannot change; submit a new job"
            )
            return
    indices = arrays.array_of(old)
    if indices is not None:
        yield from _numbers(job, len(indices.indices))
        yield from _size(job, job["spec"]["tasks"][0], len(indices.indices))


def _without_indices(job: Object) -> FieldErrors:
    for key in (wellknown.ARRAY_PARALLELISM, wellknown.ARRAY_RETRIES, wellknown.ARRAY_WHOLE):
        if _text(job, key) is not None:
            yield forbidden(
                _ANNOTATIONS.format(key), f"it needs {wellknown.ARRAY_INDICES}, such as 0-99"
            )


def _numbers(job: Object, count: int) -> FieldErrors:
    limit = _text(job, wellknown.ARRAY_PARALLELISM)
    try:
        if limit is not None:
            arrays.parse_positive(limit)
    except ArrayError as error:
        yield invalid(_ANNOTATIONS.format(wellknown.ARRAY_PARALLELISM), limit, str(error))
    whole = _text(job, wellknown.ARRAY_WHOLE)
    try:
        if whole is not None:
            arrays.expand(whole)
    except ArrayError as error:
        yield invalid(_ANNOTATIONS.format(wellknown.ARRAY_WHOLE), whole, str(error))
    retries = _text(job, wellknown.ARRAY_RETRIES)
    if retries is not None:
        yield from _retries(job, retries, count)


def _retries(job: Object, text: str, count: int) -> FieldErrors:
    where = _ANNOTATIONS.format(wellknown.ARRAY_RETRIES)
    if not re.fullmatch(r"[0-9]{1,3}", text) or int(text) > arrays.MAX_RETRIES:
        yield invalid(where, text, f"must be a number from 0 to {arrays.MAX_RETRIES}")
        return
    if int(text) and count > arrays.MAX_RETRIED_INDICES:
        yield forbidden(
            where,
            f"an array with retries has at most {arrays.MAX_RETRIED_INDICES} indices, and this one "
            f"has {count}; split it",
        )
    if int(text) and any(_restarts(policy) for policy in _policies(job)):
        yield forbidden(
            where,
            "the job has policies for failed or evicted pods too; keep the retries or the policies",
        )


def _policies(job: Object) -> Iterator[Object]:
    yield from job["spec"].get("policies") or ()
    for task in job["spec"].get("tasks") or ():
        yield from task.get("policies") or ()


def _restarts(policy: Object) -> bool:
    return policy.get("exitCode") is not None or bool(_RETRYING_EVENTS & set(events_of(policy)))


def _size(job: Object, task: Object, count: int) -> FieldErrors:
    replicas = task.get("replicas", 0)
    if replicas != count:
        yield invalid(
            "spec.tasks[0].replicas",
            replicas,
            f"the array has {count} indices, and each has one replica; leave replicas out",
        )
    for where, least in (
        ("spec.minAvailable", job["spec"].get("minAvailable")),
        ("spec.tasks[0].minAvailable", task.get("minAvailable")),
    ):
        if least not in (None, 1):
            yield invalid(
                where, least, "must be 1: the indices of an array run independently, not as a gang"
            )


def _text(job: Object, key: str) -> str | None:
    found = arrays.annotations_of(job).get(key)
    return None if found is None else str(found)
