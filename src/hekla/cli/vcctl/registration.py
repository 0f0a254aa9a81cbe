"""Commands of `hekla` that use a cluster, such as `hekla job list`. Imported on demand."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import click

# Name, location below `hekla.cli`, and the text of `hekla --help`.
COMMANDS = (
    (
        "config",
        "vcctl.scheduler_config:config",
        "Check a scheduler configuration, or show the one in force.",
    ),
    ("drain", "capacity.drain:drain", "Take nodes out of service: no new pods."),
    ("history", "history:history", "Show jobs that have ended, also deleted ones."),
    ("usage", "usage:usage", "Show what users, queues or namespaces have used."),
    ("explain", "vcctl.explain:explain", "Explain why a job is pending, running or failed."),
    ("job", "vcctl.jobs:job", "Run, list, follow and change jobs."),
    ("queue", "vcctl.queues:queue", "Create, list and change queues."),
    ("logs", "vcctl.job_runtime:logs", "Show the output of all pods of a job."),
    ("nodes", "capacity.nodes:nodes", "List the nodes, and what they have allocated."),
    ("podgroup", "vcctl.podgroups:podgroup", "List and show PodGroups."),
    ("prune", "prune:prune", "Delete jobs that ended long ago, and what they left."),
    ("top", "capacity.top:top", "Show nodes, queues, running and waiting jobs on one screen."),
    ("undrain", "capacity.drain:undrain", "Return drained nodes to service."),
)


class LazyCommand(click.Command):
    """A placeholder for a command that is imported when it is called."""

    def __init__(self, name: str, where: str, help: str) -> None:
        super().__init__(name, help=help)
        self._where = where

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        command = load(self._where)
        return command.make_context(info_name, args, parent, **extra)


def load(where: str) -> click.Command:
    """Import a command from its location."""
    module, attribute = where.split(":")
    command: click.Command = getattr(import_module(f"hekla.cli.{module}"), attribute)
    return command


def register(group: click.Group) -> None:
    for name, where, help in COMMANDS:
        group.add_command(LazyCommand(name, where, help))
