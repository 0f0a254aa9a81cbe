"""`hekla`: the entry point. Heavy imports live inside the commands."""

from __future__ import annotations

from pathlib import Path

import click

from hekla import __version__


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
@click.option("--no-agent", is_flag=True, help="Control plane only: bring your own nodes.")
def up(data_dir: Path | None, port: int, no_agent: bool) -> None:
    """Start a cluster on this machine and keep it running until Ctrl-C."""
    from hekla.cli import local

    local.up(data_dir, port, agent=not no_agent)


@main.command()
@_data_dir
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True))
def run(data_dir: Path | None, files: tuple[Path, ...]) -> None:
    """Run the jobs in FILES to their end; the exit code is their outcome."""
    from hekla.cli import local

    raise SystemExit(local.run(data_dir, files))


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


if __name__ == "__main__":
    main()
