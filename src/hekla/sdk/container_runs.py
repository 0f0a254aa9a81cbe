"""Which output of a pod's containers is there to be read: that of every run, each for itself.

A container that fails and is started again begins a new log, and a reader who follows the old one
hears of its end and no more. What a newcomer gets wrong: the API shows the log of the latest run
and of the one before it, and no others, so a run must be taken up when it is heard of; and it may
be over by then, and the next one the latest. hekla's server can be asked for a run by its number.
"""

from __future__ import annotations

from dataclasses import dataclass

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
    """Counted from 0; none where the latest is meant, whichever that is."""
    is_previous: bool = False
    is_restart: bool = False
    """Whether an earlier one was taken up before it."""

    @property
    def place(self) -> tuple[str, str]:
        """Of whose runs it is one; they are to be read in turn."""
        return self.uid, self.container


class Runs:
    """Remembers which runs were taken up, and so tells which are new."""

    def __init__(self, *, from_the_start: bool = False) -> None:
        """`from_the_start`: a pod that has restarted before it is first seen is read from the run
        before the latest; otherwise, as kubectl does it, from the latest.
        """
        self._from_the_start = from_the_start
        self._taken: dict[tuple[str, str], int] = {}

    def news(self, pod: Object, only: str = "") -> list[Run]:
        """Runs that have begun since the last time, of all containers or of one; taken up now."""
        metadata = pod["metadata"]
        found: list[Run] = []
        for container, number in runs_begun(pod).items():
            place = (metadata["uid"], container)
            taken = self._taken.get(place, -1)
            if number <= taken or (only and container != only):
                continue
            self._taken[place] = number
            is_known = taken >= 0
            where = (metadata["namespace"], metadata["name"], *place)
            if number > taken + 1 and (is_known or self._from_the_start):
                found.append(Run(*where, number - 1, is_previous=True, is_restart=is_known))
            found.append(Run(*where, number, is_restart=is_known))
        return found


def is_started(pod: Object) -> bool:
    return (pod.get("status") or {}).get("phase") not in (None, "", PodPhase.PENDING)


def runs_begun(pod: Object) -> dict[str, int]:
    """The number of the latest run of each container that has begun one; the first is 0."""
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
