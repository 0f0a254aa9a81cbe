"""`hekla`: the entry point. Heavy imports live inside the commands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from hekla import __version__
from hekla.cli.vcctl.registration import register


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="hekla")
def main() -> None:
    """Run batch jobs on this machine or on Kubernetes, from the same YAML."""


_data_dir = click.option(
    "--data-dir",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where the cluster keeps its state.  [default: $XDG_STATE_HOME/hekla]",
)


@main.command()
@_data_dir
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="0 takes a free one.")
@click.option("--detach", "-d", is_flag=True, help="Go to the background; return when ready.")
@click.option("--no-agent", is_flag=True, help="Control plane only: bring your own nodes.")
@click.option(
    "--simulated-nodes",
    type=click.IntRange(0, 20_000),
    default=0,
    metavar="N",
    help="Add N nodes whose pods only pretend.",
)
@click.option("--host-images", is_flag=True, help="Run images nobody has mapped on this machine.")
@click.option(
    "--pod-network",
    type=click.Choice(["auto", "bridge", "host"]),
    default="auto",
    show_default=True,
    help="A network for each pod, or the machine's for all.",
)
@click.option(
    "--durability",
    type=click.Choice(["process", "power"]),
    default="process",
    show_default=True,
    help="What a finished write survives: the death of the process, or a power cut too.",
)
def up(data_dir: Path | None, detach: bool, **options: Any) -> None:
    """Start a cluster on this machine.

    It runs until Ctrl-C or `hekla down`. Pods that run when it is killed are taken up again by the
    next `hekla up`.
    """
    from hekla.cli import local

    local.up(data_dir, detach=detach, **options)


@main.command()
@_data_dir
def down(data_dir: Path | None) -> None:
    """Stop the cluster on this machine: its pods first, then the rest."""
    from hekla.cli import local

    local.down(data_dir)


@main.command()
@_data_dir
def status(data_dir: Path | None) -> None:
    """Show the cluster on this machine, and what it can promise here."""
    from hekla.cli import local

    raise SystemExit(local.status(data_dir))


@main.command()
@_data_dir
@click.option("--host-images", is_flag=True, help="Run images nobody has mapped on this machine.")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True))
def run(data_dir: Path | None, files: tuple[Path, ...], host_images: bool) -> None:
    """Run the jobs in FILES to their end; the exit code is their outcome.

    Uses the cluster on this machine if one is up, else one made for the occasion.
    """
    from hekla.cli import run as running

    raise SystemExit(running.run(data_dir, files, host_images=host_images))


@main.command()
@click.option("--kubeconfig", type=click.Path(path_type=Path), help="Which cluster to serve.")
@click.option("--host", default="0.0.0.0", show_default=True, help="Where to listen.")
@click.option("--port", type=click.IntRange(0, 65535), default=8443, show_default=True)
@click.option("--service", help="NAMESPACE/NAME of the Service that leads here.")
@click.option("--url", help="The address at which the API server reaches this process.")
def admission(
    kubeconfig: Path | None, host: str, port: int, service: str | None, url: str | None
) -> None:
    """Serve the webhooks that complete and check Volcano's objects on Kubernetes.

    Certificates are made, put into the webhook configurations and renewed by the service itself.
    """
    from hekla.cli import components

    components.admission(kubeconfig, host, port, service, url)


register(main)


if __name__ == "__main__":
    main()
