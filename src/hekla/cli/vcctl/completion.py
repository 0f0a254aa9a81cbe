"""`vcctl completion`: shell completion for commands, flags and names of objects."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from hekla.cli.vcctl.commands import VcctlCommand

SHELLS = ("bash", "zsh", "fish")


@click.command(
    cls=VcctlCommand,
    examples=[
        "source <(vcctl completion bash)",
        "vcctl completion zsh > ~/.zfunc/_vcctl",
        "vcctl completion fish > ~/.config/fish/completions/vcctl.fish",
    ],
)
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print the completion script of a shell."""
    from hekla.cli.vcctl.main import vcctl

    completion_class = get_completion_class(shell)
    assert completion_class is not None, shell
    script = completion_class(vcctl, {}, "vcctl", "_VCCTL_COMPLETE")
    # Not `source()`: for bash it starts one to read its version.
    click.echo(script.source_template % script.source_vars())
