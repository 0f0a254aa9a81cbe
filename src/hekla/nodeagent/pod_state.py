"""What the parts of a pod worker share: the pod, its record on disk, and a change signal."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import msgspec

from hekla.nodeagent.lifecycle import ContainerRun, PodRecord
from hekla.units.objects import Object

log = logging.getLogger("hekla.nodeagent")

RECORD = "record.json"


class PodState:
    """A pod and the record of its containers, which survives the agent."""

    def __init__(self, pod: Object, directory: Path, now: float) -> None:
        self.pod = pod
        self.directory = directory
        self.changed = asyncio.Event()
        """Set when the worker has to sync the pod."""
        self.record = self._load() or PodRecord(accepted_at=now)

    @property
    def uid(self) -> str:
        return str(self.pod["metadata"]["uid"])

    def container(self, name: str) -> Object:
        """Return the spec of a container or init container."""
        spec = self.pod["spec"]
        every = [*spec["containers"], *(spec.get("initContainers") or ())]
        found: Object = next(each for each in every if each["name"] == name)
        return found

    def run_of(
        self, container: str, *, previous: bool = False, number: int | None = None
    ) -> ContainerRun | None:
        """Return a container's current or previous run, or the one with a number if it is kept."""
        known = self.record.of(container)
        if number is None:
            return known.last if previous else known.current
        runs = (known.current, known.last)
        return next((run for run in runs if run is not None and run.attempt == number), None)

    def save(self) -> None:
        """Write the record."""
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = self.directory / RECORD
        temporary = path.with_suffix(".new")
        temporary.write_bytes(msgspec.json.encode(self.record))
        temporary.replace(path)

    def try_to_save(self) -> None:
        """Write the record; on a full disk the pod continues, and a restarted agent knows less."""
        try:
            self.save()
        except OSError as error:
            name = self.pod["metadata"]["name"]
            log.warning("pod %s: the record cannot be written: %s", name, error)

    def _load(self) -> PodRecord | None:
        try:
            return msgspec.json.decode((self.directory / RECORD).read_bytes(), type=PodRecord)
        except (OSError, msgspec.MsgspecError):
            return None
