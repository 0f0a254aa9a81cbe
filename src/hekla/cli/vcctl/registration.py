"""Commands of `hekla` that talk to a cluster, most of them vcctl's. Imported on demand."""

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
    ("explain", "vcctl.explain:explain", "Explain why a job is pending, running or failed."),
    ("history", "history:history", "Show jobs that have ended, also deleted ones."),
    ("usage", "usage:usage", "Show what users, queues or namespaces have used."),
    ("job", "vcctl.jobs:job", "Run, list, follow and change jobs."),
    ("queue", "vcctl.queues:queue", "Create, list and change queues."),
    ("podgroup", "vcctl.podgroups:podgroup", "List and show PodGroups."),
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
        module, attribute = self._where.split(":")
        command: click.Command = getattr(import_module(f"hekla.cli.{module}"), attribute)
        return command.make_context(info_name, args, parent, **extra)


def register(group: click.Group) -> None:
    for name, where, help in COMMANDS:
        group.add_command(LazyCommand(name, where, help))
