"""Command objects, by which `vcctl` suspends a job or closes a queue.

The job and queue controllers carry out the commands on their objects. A command is carried out at
most once: the status of its target names it, and it is deleted right after. This module has what
both share, and deletes commands without a target.
"""

from __future__ import annotations

from typing import Final

from hekla.api import wellknown
from hekla.controllers.informers import InformerFactory, MutationCache
from hekla.controllers.metrics import Metrics
from hekla.controllers.objects import Key, created_at, key_of, uid_of
from hekla.controllers.reconciler import Reconciler
from hekla.kube.client import Client
from hekla.kube.recorder import EventRecorder
from hekla.kube.resources import COMMANDS, JOBS, QUEUES
from hekla.units.objects import Object

# The cache of targets may lag behind that of commands by this much.
TARGET_TIMEOUT_S: Final = 30.0


async def delete_command(client: Client, commands: MutationCache, command: Object) -> None:
    """Delete a command that was carried out or cannot be."""
    await client.delete(
        COMMANDS,
        command["metadata"]["name"],
        namespace=command["metadata"].get("namespace"),
        uid=uid_of(command),
        missing_ok=True,
    )
    commands.record_delete(command)


class CommandController(Reconciler):
    """Deletes commands whose target does not exist."""

    name = "command-controller"
    workers = 1

    def __init__(
        self, informers: InformerFactory, recorder: EventRecorder, metrics: Metrics
    ) -> None:
        super().__init__(informers, recorder, metrics)
        self._commands = informers.cache(COMMANDS)
        self._jobs = informers.cache(JOBS)
        self._queues = informers.cache(QUEUES)
        self._commands.add_handler(self.enqueue)

    async def reconcile(self, key: Key) -> float | None:
        command = self._commands.get(*key)
        if command is None or self._has_target(command):
            return None
        left_s = created_at(command) + TARGET_TIMEOUT_S - self.clock.now()
        if left_s > 0:
            return left_s
        await delete_command(self.client, self._commands, command)
        self.metrics.count("commands_without_target")
        return None

    def _has_target(self, command: Object) -> bool:
        target = command.get("target") or {}
        found: Object | None = None
        match target.get("apiVersion"), target.get("kind"):
            case wellknown.BATCH_API, "Job":
                found = self._jobs.get(key_of(command)[0], target["name"])
            case wellknown.SCHEDULING_API, "Queue":
                found = self._queues.get("", target["name"])
        return found is not None and is_for(command, found)


def is_for(command: Object, target: Object) -> bool:
    """Return whether a command names this very object. A name alone may mean another one."""
    return bool((command.get("target") or {}).get("uid") == uid_of(target))
