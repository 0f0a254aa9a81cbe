"""Runs of a pod's containers: each restart begins a new log.

Note: the API serves only the logs of the latest run and the one before it, so a run must be read as
soon as it is seen; it may have ended by then. hekla's server can also serve a run by its number.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from hekla.api.wellknown import PodPhase
from hekla.units.objects import Object


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a container: the latest, or the one before it."""

    namespace: str
    pod: str
    uid: str
    container: str
    number: int | None = None
    """Counted from 0; None means the latest, whichever that is."""
    is_previous: bool = False
    is_restart: bool = False
    """Whether an earlier run of the container was read before it."""
    is_of_several: bool = False
    """Whether the pod has other containers."""
    owner: str = ""
    """The controller of deleted pods, whose runs `number` counts."""
    attempt: int = 0
    """Counted from 1; 0 if no attempt was asked for."""

    @property
    def key(self) -> tuple[str, str]:
        """The container. Its runs are read in order."""
        return self.uid, self.container


class Runs:
    """Remembers which runs have been read, and returns new ones."""

    def __init__(self, *, from_the_start: bool = False) -> None:
        """Create an empty record.

        With `from_the_start`, a pod that restarted before it was first seen is read from the run
        before the latest; otherwise from the latest, as kubectl does.
        """
        self._from_the_start = from_the_start
        self._latest: dict[tuple[str, str], int] = {}

    def new_runs(self, pod: Object, only: str = "") -> list[Run]:
        """Return the runs that began since the last call, of all containers or of one."""
        metadata = pod["metadata"]
        runs: list[Run] = []
        for container, number in latest_runs(pod).items():
            key = (metadata["uid"], container)
            taken = self._latest.get(key, -1)
            if number <= taken or (only and container != only):
                continue
            self._latest[key] = number
            is_known = taken >= 0
            where = (metadata["namespace"], metadata["name"], *key)
            run = Run(*where, number, is_restart=is_known, is_of_several=has_several(pod))
            if number > taken + 1 and (is_known or self._from_the_start):
                runs.append(replace(run, number=number - 1, is_previous=True))
            runs.append(run)
        return runs


def has_several(pod: Object) -> bool:
    """Return whether a pod has several containers, so that a line names its container."""
    return len((pod.get("spec") or {}).get("containers") or ()) > 1


def is_started(pod: Object) -> bool:
    return (pod.get("status") or {}).get("phase") not in (None, "", PodPhase.PENDING)


def latest_runs(pod: Object) -> dict[str, int]:
    """Return the number of the latest run of each started container; the first run is 0."""
    if not is_started(pod):
        return {}
    statuses = {one["name"]: one for one in pod["status"].get("containerStatuses") or ()}
    begun: dict[str, int] = {}
    for container in (pod.get("spec") or {}).get("containers") or ():
        status = statuses.get(container["name"], {"state": {"running": {}}})
        if _has_output(status):
            begun[container["name"]] = int(status.get("restartCount") or 0)
    return begun


def _has_output(status: Object) -> bool:
    state = status.get("state") or {}
    was_run = "terminated" in (status.get("lastState") or {})
    return "running" in state or "terminated" in state or was_run
