"""`vcctl version`: six lines, as Volcano prints them."""

from __future__ import annotations

import os
import platform
import sys

import click

from hekla import __version__
from hekla.cli import terminal
from hekla.cli.vcctl.commands import VcctlCommand

UNSTAMPED = "Not provided."
# Go's names of platforms, which scripts compare with.
_MACHINES = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm", "i686": "386"}


def lines() -> list[str]:
    machine = platform.machine()
    runtime = f"{platform.python_implementation().lower()}{platform.python_version()}"
    return [
        "API Version: v1alpha1",
        f"Version: {__version__}",
        f"Git SHA: {os.environ.get('HEKLA_GIT_SHA') or UNSTAMPED}",
        f"Built At: {os.environ.get('HEKLA_BUILT_AT') or UNSTAMPED}",
        f"Go Version: {runtime}",  # Volcano's label; the value is Python's version
        f"Go OS/Arch: {sys.platform}/{_MACHINES.get(machine, machine)}",
    ]


@click.command(cls=VcctlCommand, examples=["vcctl version"])
def version() -> None:
    """Show the version of this program."""
    terminal.echo("\n".join(lines()))
