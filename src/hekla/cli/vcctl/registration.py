"""vcctl's nouns under `hekla` too: `hekla job list`, and `hekla explain` for the question of all.

Nothing is imported until one of them is named.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import click

# Name, where it lives below this package, and what `hekla --help` says of it.
COMMANDS = (
    ("explain", "explain:explain", "Say why a job waits, runs or failed."),
    ("job", "jobs:job", "Run, list, follow and change jobs."),
    ("queue", "queues:queue", "Create, list and change queues."),
    ("podgroup", "podgroups:podgroup", "List and show pod groups."),
)


class Later(click.Command):
    """Stands for a command that is imported when it is called."""

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
        found: click.Command = getattr(import_module(f"hekla.cli.vcctl.{module}"), attribute)
        return found.make_context(info_name, args, parent, **extra)


def register(group: click.Group) -> None:
    for name, where, help in COMMANDS:
        group.add_command(Later(name, where, help))
