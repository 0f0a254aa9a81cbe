"""Command objects: how `vcctl` asks for a job to be suspended or a queue to be closed.

The controllers of jobs and of queues carry out the commands on their objects themselves: a command
is part of what they decide from. It is carried out at most once: the record that it leaves on its
target names it, and it is deleted right after. Here is what they share, and what becomes of
commands that nobody is there to carry out.
"""

from __future__ import annotations

from typing import Final

from hekla.api import wellknown
from hekla.controllers.keyed import KeyedController
from hekla.controllers.metrics import Metrics
from hekla.controllers.objects import Key, created_at, key_of, uid_of
from hekla.controllers.watched import Watched, World
from hekla.kube.client import Client
from hekla.kube.recorder import EventRecorder
from hekla.kube.resources import COMMANDS, JOBS, QUEUES
from hekla.units.objects import Object

# A target may be on its way through the watch; a command older than this has none.
PATIENCE_S: Final = 30.0


def signature(command: Object) -> str:
    """How the record of a carried-out command names it."""
    return f"command {command['metadata']['name']} ({uid_of(command)})"


async def finish(client: Client, commands: Watched, command: Object) -> None:
    """The command has been carried out, or cannot be: it goes."""
    await client.delete(
        COMMANDS,
        command["metadata"]["name"],
        namespace=command["metadata"].get("namespace"),
        uid=uid_of(command),
        missing_ok=True,
    )
    commands.deleted(command)


class CommandController(KeyedController):
    """Removes commands whose target does not exist."""

    name = "command-controller"
    workers = 1

    def __init__(self, world: World, recorder: EventRecorder, metrics: Metrics) -> None:
        super().__init__(world, recorder, metrics)
        self._commands = world.watch(COMMANDS)
        self._jobs = world.watch(JOBS)
        self._queues = world.watch(QUEUES)
        self._commands.add_handler(self.enqueue)

    async def sync(self, key: Key) -> float | None:
        command = self._commands.get(*key)
        if command is None or self._has_target(command):
            return None
        left_s = created_at(command) + PATIENCE_S - self.clock.now()
        if left_s > 0:
            return left_s
        await finish(self.client, self._commands, command)
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
        return found is not None and target.get("uid") in (None, "", uid_of(found))
