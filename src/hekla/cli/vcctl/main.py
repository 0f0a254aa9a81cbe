"""The tree of commands, each imported on demand, and the entry points of all scripts."""

from __future__ import annotations

import sys
from typing import NoReturn

import click

from hekla.cli import terminal
from hekla.cli.vcctl.commands import VcctlGroup, run

# The location of each command: `module:attribute` below this package.
COMMANDS = {
    "job": "jobs:job",
    "queue": "queues:queue",
    "jobflow": "flows:jobflow",
    "jobtemplate": "templates:jobtemplate",
    "pod": "pods:pod",
    "podgroup": "podgroups:podgroup",
    "version": "version:version",
    "completion": "completion:completion",
}
SHORTCUTS = ("vsub", "vjobs", "vqueues", "vcancel", "vsuspend", "vresume")


class RootGroup(VcctlGroup):
    """The root group, with `help` as a command."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] == "help":  # `vcctl help job list`, as in Go's tools
            if len(args) == 1:
                terminal.echo(ctx.get_help())
                ctx.exit(0)
            args = [*args[1:], "--help"]
        return super().resolve_command(ctx, args)


vcctl = RootGroup(
    name="vcctl",
    lazy=COMMANDS,
    help="Jobs and queues of a Volcano or hekla cluster, from the command line.",
    epilog="`vcctl COMMAND --help` shows examples.",
)


def main() -> NoReturn:
    sys.exit(run(vcctl, "vcctl"))


def kubectl_vc() -> NoReturn:
    """Run `kubectl vc …`: kubectl finds plugins by their names on PATH."""
    sys.exit(run(vcctl, "kubectl vc"))


def kubectl_hekla() -> NoReturn:
    """Run `kubectl hekla …`."""
    sys.exit(run(vcctl, "kubectl hekla"))


def _shortcut(name: str) -> NoReturn:
    from hekla.cli.vcctl import shortcuts

    sys.exit(run(getattr(shortcuts, name), name))


def vsub() -> NoReturn:
    _shortcut("vsub")


def vjobs() -> NoReturn:
    _shortcut("vjobs")


def vqueues() -> NoReturn:
    _shortcut("vqueues")


def vcancel() -> NoReturn:
    _shortcut("vcancel")


def vsuspend() -> NoReturn:
    _shortcut("vsuspend")


def vresume() -> NoReturn:
    _shortcut("vresume")


if __name__ == "__main__":
    main()
