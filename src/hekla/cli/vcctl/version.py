"""`vcctl version`: six lines that scripts know, on what this is."""

from __future__ import annotations

import os
import platform
import sys

import click

from hekla import __version__
from hekla.cli.vcctl.commands import Leaf

UNSTAMPED = "Not provided."
# As Go names them, since scripts compare with these words.
_MACHINES = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm", "i686": "386"}


def lines() -> list[str]:
    machine = platform.machine()
    runtime = f"{platform.python_implementation().lower()}{platform.python_version()}"
    return [
        "API Version: v1alpha1",
        f"Version: {__version__}",
        f"Git SHA: {os.environ.get('HEKLA_GIT_SHA') or UNSTAMPED}",
        f"Built At: {os.environ.get('HEKLA_BUILT_AT') or UNSTAMPED}",
        f"Go Version: {runtime}",  # the label is Volcano's; what runs here is Python
        f"Go OS/Arch: {sys.platform}/{_MACHINES.get(machine, machine)}",
    ]


@click.command(cls=Leaf, examples=["vcctl version"])
def version() -> None:
    """Show the version of this program."""
    click.echo("\n".join(lines()))
