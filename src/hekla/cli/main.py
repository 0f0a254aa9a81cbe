"""`hekla`: the entry point. Heavy imports live inside the commands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from hekla import __version__
from hekla.cli import component_commands, install
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
@click.option(
    "--simulated-gpus",
    type=click.IntRange(0, 256),
    default=0,
    metavar="N",
    help="Pretend that this machine has N GPUs.",
)
@click.option(
    "--cpu-manager-policy",
    type=click.Choice(["none", "static"]),
    default="none",
    show_default=True,
    help="static: Guaranteed pods that ask for whole CPUs get them alone.",
)
@click.option(
    "--topology-manager-policy",
    type=click.Choice(["none", "best-effort", "restricted", "single-numa-node"]),
    default="none",
    show_default=True,
    help="How close together the CPUs of such a pod must be.",
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
    from hekla.cli import local_cluster

    local_cluster.up(data_dir, detach=detach, **options)


@main.command()
@_data_dir
def down(data_dir: Path | None) -> None:
    """Stop the cluster on this machine: its pods first, then the rest."""
    from hekla.cli import local_cluster

    local_cluster.down(data_dir)


@main.command()
@_data_dir
def status(data_dir: Path | None) -> None:
    """Show the cluster on this machine, and what it can promise here."""
    from hekla.cli import local_cluster

    raise SystemExit(local_cluster.status(data_dir))


class _WithCommand(click.Command):
    """Keeps the words after `--` apart from the other arguments; click would mix them."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" in args:
            at = args.index("--")
            ctx.meta["words"] = args[at + 1 :]
            args = args[:at]
        return super().parse_args(ctx, args)


@main.command(cls=_WithCommand)
@_data_dir
@click.option("--host-images", is_flag=True, help="Run images nobody has mapped on this machine.")
@click.option("--replace", is_flag=True, help="Delete a job of the same name first.")
@click.option("--name", default="", help="Name of the command's job.  [default: after the command]")
@click.option("-i", "--image", default="host", show_default=True, help="Where the command runs.")
@click.option("-r", "--replicas", type=click.IntRange(1), default=1, help="How many at once.")
@click.option("--cpu", default=None, help="CPU of each, such as 2 or 500m.")
@click.option("--memory", default=None, help="Memory of each, such as 4Gi.")
@click.option("--gpu", default=None, help="GPUs of each.")
@click.option("-q", "--queue", default="", help="Queue.")
@click.option(
    "-p", "--plugin", "plugins", multiple=True, help="Job plugin, such as svc or pytorch."
)
@click.option("-e", "--env", multiple=True, metavar="KEY=VALUE", help="Variable; may repeat.")
@click.argument(
    "files",
    nargs=-1,
    type=click.Path(path_type=Path, exists=True),
    metavar="[FILES]… [-- COMMAND…]",
)
@click.pass_context
def run(ctx: click.Context, /, **given: Any) -> None:
    """Run the jobs in FILES, or a COMMAND as a job, to their end; the exit code is their outcome.

    Uses the cluster on this machine if one is up, else one made for the occasion. On a terminal
    the state of the jobs stays in view below their output, and Ctrl-C asks whether to detach or
    abort.

    \b
    hekla run job.yaml
    hekla run --replicas 4 --gpu 1 --queue ml --plugin pytorch -- python train.py
    """
    from hekla.cli import run as run_command

    raise SystemExit(run_command.run(words=ctx.meta.get("words", ()), **given))


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
    from hekla.cli import component_runner

    component_runner.admission(kubeconfig, host, port, service, url)


component_commands.register(main)
install.register(main)
register(main)


if __name__ == "__main__":
    main()
