"""Job arrays: a job of one task whose pods run the same command with different indices. Pure.

    parse("0-99%10")      -> ArraySpec(indices="0-99", parallelism=10)
    expand("1,3,5-9:2")   -> (1, 3, 5, 7, 9)
    compress((3, 7, 8, 9)) -> "3,7-9"

The syntax is that of `sbatch --array`. The indices and the parallelism are annotations of the job.

Note: the pods of an array are named by their array index, so index 7 runs in pod JOB-TASK-7; the
position of an index, 0 to replicas - 1, is the task index of Volcano.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Any, Final

from hekla.api import wellknown
from hekla.units.objects import Object

MAX_INDEX: Final = 4_000_000
"""As in Slurm, whose largest MaxArraySize is one more."""
MAX_INDICES: Final = 100_000
MAX_TEXT: Final = 64 * 1024
MAX_RETRIES: Final = 100
MAX_RETRIED_INDICES: Final = 10_000
"""Indices of an array with retries: the number of retries of each is recorded in an annotation."""
_PART: Final = re.compile(r"(\d{1,9})(?:-(\d{1,9})(?::(\d{1,9}))?)?", re.ASCII)


class ArrayError(ValueError):
    """A text that is not an array; the message says what is wrong and how to write it."""


@dataclass(frozen=True, slots=True)
class ArraySpec:
    """The parts of a text such as `0-99%10`."""

    indices: str
    parallelism: int | None = None
    """How many pods may be unfinished at a time; None for no limit."""

    def annotations(self) -> dict[str, str]:
        """Return the annotations of the job."""
        found = {wellknown.ARRAY_INDICES: self.indices}
        if self.parallelism is not None:
            found[wellknown.ARRAY_PARALLELISM] = str(self.parallelism)
        return found


def parse(text: str) -> ArraySpec:
    """Return the parts of `INDICES` or `INDICES%PARALLELISM`; raise ArrayError."""
    indices, percent, limit = text.replace(" ", "").partition("%")
    expand(indices)
    return ArraySpec(indices, parse_positive(limit) if percent else None)


def parse_positive(text: str) -> int:
    """Return a parallelism; raise ArrayError."""
    if not re.fullmatch(r"[0-9]{1,9}", text) or int(text) == 0:
        raise ArrayError(f"the parallelism {text!r} is not a positive number, such as %10")
    return int(text)


@lru_cache(maxsize=64)
def expand(text: str) -> tuple[int, ...]:
    """Return the indices of a text such as `1,3,5-9:2`, ascending; raise ArrayError."""
    if not text:
        raise ArrayError("no indices; write them as 0-99, 1,3,5 or 0-98:2")
    if len(text) > MAX_TEXT:
        raise ArrayError(f"more than {MAX_TEXT} characters; write ranges such as 0-99")
    found: set[int] = set()
    count = 0
    for part in text.split(","):
        indices = _range(part)
        count += len(indices)  # with repeated ones, which cost time too
        if count > MAX_INDICES:
            raise ArrayError(f"more than {MAX_INDICES} indices; split the array")
        found.update(indices)
    return tuple(sorted(found))


def _range(part: str) -> range:
    match = _PART.fullmatch(part)
    if match is None:
        raise ArrayError(f"{part!r} is not an index or a range; write 7, 0-99 or 0-98:2")
    first = int(match[1])
    last = first if match[2] is None else int(match[2])
    step = 1 if match[3] is None else int(match[3])
    if last < first:
        raise ArrayError(f"{part!r} ends before it starts; write {last}-{first}")
    if step == 0:
        raise ArrayError(f"{part!r} has step 0; the step is at least 1")
    if last > MAX_INDEX:
        raise ArrayError(f"index {last} is larger than {MAX_INDEX}, the largest one")
    return range(first, last + 1, step)


def compress(indices: Iterable[int], *, limit: int | None = None) -> str:
    """Return ranges such as `3,7-9`; with `limit` so many, and how many more indices there are."""
    ordered = sorted(set(indices))
    runs = list(islice(_runs(ordered), limit))
    shown = sum(last - first + 1 for first, last in runs)
    texts = [str(first) if first == last else f"{first}-{last}" for first, last in runs]
    more = [f"… and {len(ordered) - shown} more"] if shown < len(ordered) else []
    return ",".join(texts + more)


def _runs(ordered: list[int]) -> Iterator[tuple[int, int]]:
    start = 0
    for at in range(1, len(ordered) + 1):
        if at == len(ordered) or ordered[at] != ordered[at - 1] + 1:
            yield ordered[start], ordered[at - 1]
            start = at


@dataclass(frozen=True, slots=True)
class Array:
    """The array of a job."""

    indices: tuple[int, ...]
    parallelism: int | None
    retries: int
    """How often a failed index is retried."""
    whole: tuple[int, ...]
    """The indices of the array of which this job retries a part; else `indices`."""


def array_of(job: Object) -> Array | None:
    """Return the array of a job; None if it is none, or if its annotations contradict its spec.

    Admission refuses such jobs; without it they run as plain jobs.
    """
    given = annotations_of(job)
    text = given.get(wellknown.ARRAY_INDICES)
    tasks = (job.get("spec") or {}).get("tasks") or []
    if text is None or len(tasks) != 1:
        return None
    try:
        indices = expand(text)
        limit = given.get(wellknown.ARRAY_PARALLELISM)
        parallelism = None if limit is None else parse_positive(limit)
        whole = expand(given.get(wellknown.ARRAY_WHOLE) or text)
    except ArrayError:
        return None
    if len(indices) != int(tasks[0].get("replicas") or 0):
        return None
    return Array(indices, parallelism, retries_of(given), whole)


def retries_of(annotations: Mapping[str, str]) -> int:
    """Return how often a failed index is retried; 0 for a value that is no number."""
    text = annotations.get(wellknown.ARRAY_RETRIES, "")
    return int(text) if re.fullmatch(r"[0-9]{1,3}", text) else 0


def index_of_pod(pod: Object) -> int | None:
    """Return the array index of a pod; None for a pod of another job."""
    text = (pod["metadata"].get("labels") or {}).get(wellknown.ARRAY_INDEX, "")
    return int(text) if re.fullmatch(r"[0-9]{1,9}", text) else None


def annotations_of(obj: Object) -> dict[str, Any]:
    """Return the annotations of an object."""
    return (obj.get("metadata") or {}).get("annotations") or {}


def environment(job: str, array: Array, index: int) -> dict[str, str]:
    """Return the variables of the pod of an index: hekla's, Slurm's and Kubernetes' names.

    Note: count, minimum and maximum are those of the whole array in a retry of some indices too: a
    script that divides its work by them does the same in each attempt.
    """
    return {
        wellknown.ENV_ARRAY_INDEX: str(index),
        "SLURM_ARRAY_TASK_ID": str(index),
        "SLURM_ARRAY_TASK_COUNT": str(len(array.whole)),
        "SLURM_ARRAY_TASK_MIN": str(array.whole[0]),
        "SLURM_ARRAY_TASK_MAX": str(array.whole[-1]),
        "SLURM_ARRAY_JOB_ID": job,
        "JOB_COMPLETION_INDEX": str(index),
    }
