"""The job that retries a failed one: all of it, or the indices of an array that did not succeed.

Pure functions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from copy import deepcopy
from typing import Final

from hekla.api import arrays, wellknown
from hekla.api.wellknown import JobPhase, PodPhase
from hekla.sdk import job_phases
from hekla.units.objects import Object

MAX_RETRIES: Final = 100
"""Names that are tried, until one is free."""
MAX_POD_NAME: Final = 63
_SUFFIX: Final = re.compile(r"-retry-(\d{1,4})$", re.ASCII)
_RETRIED: Final = (JobPhase.FAILED, JobPhase.TERMINATED)
_NOT_COPIED: Final = (
    wellknown.LAST_APPLIED,
    wellknown.SUBMITTED_BY,
    wellknown.ARRAY_RETRIED,
    wellknown.JOB_FORWARDING,
    "volcano.sh/evicted-pods",
)


class CannotRetry(ValueError):
    """A job that cannot be retried; the message says why, and what to do.

    Example:
        try:
            job.retry()
        except CannotRetry as error:
            print(error)
    """


def retry_of(job: Object, pods: Sequence[Object]) -> Object:
    """Return the job that retries one that failed; raise CannotRetry."""
    metadata, phase = job["metadata"], job_phases.phase_of(job)
    name = metadata["name"]
    if phase == JobPhase.COMPLETED:
        raise CannotRetry(f"job {name} has completed: nothing failed that could be retried")
    if phase not in _RETRIED:
        raise CannotRetry(f"job {name} is {phase or JobPhase.PENDING}; {_hint(name, phase)}")
    annotations = {
        key: text for key, text in arrays.annotations_of(job).items() if key not in _NOT_COPIED
    }
    spec = deepcopy(job["spec"])
    array = arrays.array_of(job)
    if array is not None:
        missing = _not_succeeded(job, array, pods)
        annotations[wellknown.ARRAY_INDICES] = arrays.compress(missing)
        annotations[wellknown.ARRAY_WHOLE] = arrays.compress(array.whole)
        spec["tasks"][0]["replicas"] = spec["minSuccess"] = len(missing)
    for volume in spec.get("volumes") or ():
        if volume.get("volumeClaim"):
            volume.pop("volumeClaimName", None)  # the controller named it, for the old job
    given = {"labels": metadata.get("labels") or {}, "annotations": annotations}
    return {
        "apiVersion": job["apiVersion"],
        "kind": job["kind"],
        "metadata": {
            "name": next(names(job)),  # replaced by the next one if it is taken
            "namespace": metadata["namespace"],
            **{key: values for key, values in given.items() if values},
        },
        "spec": spec,
    }


def names(job: Object) -> Iterator[str]:
    """Yield the names of a retry, `NAME-retry-1` first; long names are cut to fit those of pods."""
    name = str(job["metadata"]["name"])
    match = _SUFFIX.search(name)
    stem = name[: match.start()] if match else name
    first = int(match[1]) + 1 if match else 1
    room = MAX_POD_NAME - max(len(_pod_suffix(task, job)) for task in job["spec"]["tasks"])
    for number in range(first, first + MAX_RETRIES):
        suffix = f"-retry-{number}"
        yield stem[: room - len(suffix)].rstrip("-.") + suffix


def no_free_name(job: Object) -> CannotRetry:
    """Return the error after all names were taken."""
    name = job["metadata"]["name"]
    return CannotRetry(
        f"job {name}: all {MAX_RETRIES} names from {next(names(job))} on are taken; delete some of "
        "these jobs"
    )


def _pod_suffix(task: Object, job: Object) -> str:
    array = arrays.array_of(job)
    last = array.indices[-1] if array else max(int(task.get("replicas") or 0) - 1, 0)
    return f"-{task.get('name')}-{last}"


def _not_succeeded(job: Object, array: arrays.Array, pods: Sequence[Object]) -> list[int]:
    succeeded = {
        arrays.index_of_pod(pod)
        for pod in pods
        if (pod.get("status") or {}).get("phase") == PodPhase.SUCCEEDED
    }
    name, counted = job["metadata"]["name"], int((job.get("status") or {}).get("succeeded") or 0)
    if len(succeeded) < counted:
        raise CannotRetry(
            f"job {name}: {counted} indices succeeded and only {len(succeeded)} of their pods "
            "exist, so it is not known which; submit a new job with --array and the indices to run"
        )
    missing = [index for index in array.indices if index not in succeeded]
    if not missing:
        raise CannotRetry(f"job {name}: all {len(array.indices)} indices succeeded")
    return missing


def _hint(name: str, phase: str) -> str:
    if phase in (JobPhase.ABORTING, JobPhase.ABORTED):
        return f"`hekla job resume {name}` starts its missing pods again"
    return f"`hekla job wait {name}` waits for its end"
