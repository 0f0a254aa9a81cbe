"""The state of each index of an array, from its pods. Pure functions."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

from hekla.api import arrays, wellknown
from hekla.api.wellknown import PodPhase
from hekla.sdk.exit_codes import signal_of
from hekla.units.objects import Object

NOT_STARTED: Final = "not started"
STATES: Final = ("succeeded", "failed", "running", "pending", NOT_STARTED)
MAX_RANGES: Final = 50
_STATE_OF: Final = {
    PodPhase.SUCCEEDED: "succeeded",
    PodPhase.FAILED: "failed",
    PodPhase.RUNNING: "running",
}


@dataclass(frozen=True, slots=True)
class ArrayStatus:
    """The indices of an array by state; `str()` is `37/100 done, 2 failed, 10 running`.

    Example:
        status = ArrayStatus(2, {"failed": (7,)}, {"exit code 1": (7,)})
        print(status.by_state["failed"], status.failures)
    """

    size: int
    by_state: Mapping[str, tuple[int, ...]]
    failures: Mapping[str, tuple[int, ...]]
    """The failed indices by reason, such as `exit code 1` or `exit code 137, OOMKilled`."""

    def __str__(self) -> str:
        counts = {state: len(indices) for state, indices in self.by_state.items()}
        return summary(self.size, counts)


def summary(size: int, counts: Mapping[str, int]) -> str:
    """Return `37/100 done, 2 failed, 10 running`."""
    done = counts.get("succeeded", 0) + counts.get("failed", 0)
    words = [f"{done}/{size} done"]
    words += [f"{counts[state]} {state}" for state in ("failed", "running") if counts.get(state)]
    return ", ".join(words)


def array_status(job: Object, pods: Iterable[Object]) -> ArrayStatus | None:
    """Return the state of each index; None for a job that is no array."""
    array = arrays.array_of(job)
    if array is None:
        return None
    states = dict.fromkeys(array.indices, NOT_STARTED)
    failures: dict[str, list[int]] = {}
    for pod in pods:
        index = arrays.index_of_pod(pod)
        if index not in states or pod["metadata"].get("deletionTimestamp"):
            continue
        state = _STATE_OF.get((pod.get("status") or {}).get("phase") or "", "pending")
        states[index] = state
        if state == "failed":
            failures.setdefault(failure_of(pod), []).append(index)
    return ArrayStatus(
        len(array.indices),
        {state: tuple(i for i in states if states[i] == state) for state in STATES},
        {why: tuple(sorted(indices)) for why, indices in by_first_index(failures)},
    )


def failure_of(pod: Object) -> str:
    """Return why a pod failed, such as `exit code 1`."""
    status = pod.get("status") or {}
    lists = status.get("initContainerStatuses") or (), status.get("containerStatuses") or ()
    for one in chain(*lists):
        ended = (one.get("state") or {}).get("terminated") or {}
        if ended.get("exitCode"):
            reason = ended.get("reason") or ""
            if reason in ("", "Error"):
                reason = signal_of(ended["exitCode"])
            return ", ".join(filter(None, (f"exit code {ended['exitCode']}", reason)))
    return str(status.get("reason") or "unknown reason")


def by_first_index(failures: Mapping[str, Sequence[int]]) -> list[tuple[str, Sequence[int]]]:
    """Return the reasons in the order of their first index: as text, 13 would come before 3."""
    return sorted(failures.items(), key=lambda item: min(item[1]))


def failure_lines(failures: Mapping[str, Sequence[int]]) -> Iterator[str]:
    """Yield `3,7-9: exit code 1` for each reason."""
    for why, indices in by_first_index(failures):
        yield f"{arrays.compress(indices, limit=MAX_RANGES)}: {why}"


def retries_by_count(job: Object) -> dict[int, str]:
    """Return the indices by how often they were retried, from the record of the controller."""
    try:
        found = json.loads(arrays.annotations_of(job).get(wellknown.ARRAY_RETRIED) or "{}")
        return {int(count): str(indices) for count, indices in found.items()}
    except (ValueError, AttributeError):
        return {}
