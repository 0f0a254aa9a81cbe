"""What the parts of a pod worker share: the pod, its record on disk, and a change signal."""

from __future__ import annotations

import asyncio
import logging
import shutil
from pathlib import Path

import msgspec

from hekla.nodeagent.lifecycle import ContainerRun, PodRecord
from hekla.units.objects import Object

log = logging.getLogger("hekla.nodeagent")

RECORD = "record.json"


def controller_uid(pod: Object) -> str:
    """Return the uid of the controller of a pod; empty if it has none."""
    owners = pod["metadata"].get("ownerReferences") or ()
    return next((str(owner["uid"]) for owner in owners if owner.get("controller")), "")


class PodState:
    """A pod and the record of its containers, which survives the agent."""

    def __init__(self, pod: Object, directory: Path, now: float) -> None:
        self.pod = pod
        self.directory = directory
        self.changed = asyncio.Event()
        """Set when the worker has to sync the pod."""
        self.record = self._load() or PodRecord(accepted_at=now)
        self.record.namespace = pod["metadata"]["namespace"] or self.record.namespace
        self.record.name = pod["metadata"]["name"] or self.record.name
        self.record.owner = controller_uid(pod) or self.record.owner

    @property
    def uid(self) -> str:
        return str(self.pod["metadata"]["uid"])

    def container(self, name: str) -> Object:
        """Return the spec of a container or init container."""
        spec = self.pod["spec"]
        every = [*spec["containers"], *(spec.get("initContainers") or ())]
        found: Object = next(each for each in every if each["name"] == name)
        return found

    def is_of(self, namespace: str, name: str) -> bool:
        """Return whether the pod has this name."""
        return (self.record.namespace, self.record.name) == (namespace, name)

    def run_of(
        self, container: str, *, previous: bool = False, number: int | None = None
    ) -> ContainerRun | None:
        """Return a container's current or previous run, or the one with a number if it is kept."""
        known = self.record.containers.get(container)  # not `of`: any name may be requested
        if known is None:
            return None
        if number is None:
            return known.previous if previous else known.current
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

    def remove_data(self) -> None:
        """Remove the data of a finished pod: volumes, its own directories, checkpoints.

        The record and the files of its runs stay. What has to be unmounted is unmounted.
        """
        containers = self.directory / "containers"
        for path in (*self.directory.glob("*"), *containers.glob("*/*")):
            if path.is_dir() and not path.is_symlink():
                if path != containers:
                    shutil.rmtree(path, ignore_errors=True)
            elif path.parent == self.directory and path.name != RECORD:
                path.unlink(missing_ok=True)

    def _load(self) -> PodRecord | None:
        try:
            return msgspec.json.decode((self.directory / RECORD).read_bytes(), type=PodRecord)
        except (OSError, msgspec.MsgspecError):
            return None
