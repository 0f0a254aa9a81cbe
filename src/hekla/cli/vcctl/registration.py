"""vcctl's commands under `hekla`: `hekla job list`, and `hekla explain`. Imported on demand."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import click

# Name, location below this package, and the text of `hekla --help`.
COMMANDS = (
    (
        "config",
        "scheduler_config:config",
        "Check a scheduler configuration, or show the one in force.",
    ),
    ("explain", "explain:explain", "Explain why a job is pending, running or failed."),
    ("job", "jobs:job", "Run, list, follow and change jobs."),
    ("queue", "queues:queue", "Create, list and change queues."),
    ("podgroup", "podgroups:podgroup", "List and show PodGroups."),
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
        command: click.Command = getattr(import_module(f"hekla.cli.vcctl.{module}"), attribute)
        return command.make_context(info_name, args, parent, **extra)


def register(group: click.Group) -> None:
    for name, where, help in COMMANDS:
        group.add_command(LazyCommand(name, where, help))
