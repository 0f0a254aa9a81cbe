"""The entry point of `hekla`. Commands import expensive modules when they run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from hekla import __version__
from hekla.cli import component_commands, install
from hekla.cli.vcctl.registration import register


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="hekla")
def main() -> None:
    """Run batch jobs on this machine or on Kubernetes, from the same YAML."""


def _absolute(_: click.Context, __: click.Parameter, path: Path | None) -> Path | None:
    """Return the path for commands that are printed: they are typed in any directory."""
    return None if path is None else path.absolute()


_data_dir = click.option(
    "--data-dir",
    type=click.Path(path_type=Path, file_okay=False),
    callback=_absolute,
    help="Data directory of the cluster.  [default: $XDG_STATE_HOME/hekla]",
)


def _size(_: click.Context, param: click.Parameter, text: str) -> str:
    from hekla.units.quantity import QuantityError, parse_quantity

    try:
        if parse_quantity(text).value() > 0:
            return text
    except QuantityError as error:
        raise click.BadParameter(str(error), param=param) from error
    raise click.BadParameter(f"{text} is not larger than 0", param=param)


@main.command()
@_data_dir
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    help="Port of the API server; 0 selects a free one.  [default: the last one, at first 7443; a "
    "free one if it is taken]",
)
@click.option("--detach", "-d", is_flag=True, help="Run in the background; return when ready.")
@click.option("--no-agent", is_flag=True, help="Control plane only, without a node agent.")
@click.option(
    "--simulated-nodes",
    type=click.IntRange(0, 20_000),
    default=0,
    metavar="N",
    help="Add N simulated nodes; their pods start no processes.",
)
@click.option(
    "--simulated-gpus",
    type=click.IntRange(0, 256),
    default=0,
    metavar="N",
    help="Add N simulated GPUs to this machine.",
)
@click.option(
    "--cpu-manager-policy",
    type=click.Choice(["none", "static"]),
    default="none",
    show_default=True,
    help="static: Guaranteed pods that request whole CPUs get exclusive CPUs.",
)
@click.option(
    "--topology-manager-policy",
    type=click.Choice(["none", "best-effort", "restricted", "single-numa-node"]),
    default="none",
    show_default=True,
    help="NUMA alignment of exclusive CPUs, as kubelet's.",
)
@click.option(
    "--plugins-dir",
    type=click.Path(path_type=Path, file_okay=False, exists=True, resolve_path=True),
    help="Directory of Python files with custom plugins of the scheduler.",
)
@click.option("--host-images", is_flag=True, help="Run images without a mapping on this machine.")
@click.option(
    "--pod-network",
    type=click.Choice(["auto", "bridge", "host"]),
    default="auto",
    show_default=True,
    help="bridge: a network per pod; host: all pods share the machine's.",
)
@click.option(
    "--pod-user",
    type=click.Choice(["auto", "namespace", "owner"]),
    default="auto",
    show_default=True,
    help="namespace: pods run as users of their namespace, who own nothing on this machine (needs "
    "root); owner: as the user who runs hekla; auto: namespace if possible.",
)
@click.option(
    "--durability",
    type=click.Choice(["process", "power"]),
    default="process",
    show_default=True,
    help="What an acknowledged write survives: a process crash, or a power cut too.",
)
@click.option(
    "--multi-user",
    is_flag=True,
    help="Keep users apart (`hekla user add`); refused where this machine cannot.",
)
@click.option(
    "--max-pods-per-job",
    type=click.IntRange(1, 100_000),
    default=10_000,
    show_default=True,
    metavar="N",
    help="Refuse Volcano Jobs with more pods.",
)
@component_commands.history_bounds
@click.option(
    "--image-store-size",
    default="50Gi",
    show_default=True,
    metavar="SIZE",
    callback=_size,
    help="Disk space for images, such as 200Gi; those used longest ago are deleted above it.",
)
@click.option(
    "--install-service",
    "service",
    flag_value="install",
    help="Run it as a systemd service with the given flags, from now on and after restarts of the "
    "machine; again to change them.",
)
@click.option(
    "--uninstall-service", "service", flag_value="uninstall", help="Stop and remove the service."
)
@click.option(
    "--system/--user",
    "is_system",
    default=None,
    help="The service is the machine's or yours.  [default: --system for root]",
)
@click.option("--print", "prints", is_flag=True, help="Only print the unit of the service.")
@click.pass_context
def up(
    ctx: click.Context,
    /,
    data_dir: Path | None,
    detach: bool,
    service: str | None,
    is_system: bool | None,
    prints: bool,
    **options: Any,
) -> None:
    """Start a cluster on this machine.

    It runs until Ctrl-C or `hekla down`, which stop its pods until the next `hekla up`.
    If it is killed, its pods keep running and the next `hekla up` adopts them.
    """
    if service is not None:
        from hekla.cli import service as services

        if detach:
            raise click.UsageError("a service runs in the background: omit --detach")
        given = {name: options[name] for name in options if _is_given(ctx, name)}
        services.run(service, data_dir, given, is_system=is_system, prints=prints)
        return
    if is_system is not None or prints:
        raise click.UsageError("--system, --user and --print apply to --install-service")
    from hekla.cli import local_cluster

    local_cluster.up(data_dir, detach=detach, **options)


def _is_given(ctx: click.Context, name: str) -> bool:
    return ctx.get_parameter_source(name) == ParameterSource.COMMANDLINE


@main.command()
@_data_dir
@click.option("--wait", is_flag=True, help="Start no more pods, and stop when all have finished.")
@click.option("--abort", is_flag=True, help="End the pods for good: their jobs see failures.")
def down(data_dir: Path | None, wait: bool, abort: bool) -> None:
    """Stop the pods and the cluster on this machine.

    The pods get SIGTERM, and start again at the next `hekla up`: their jobs go on.
    """
    from hekla.cli import local_cluster

    if wait and abort:
        raise click.UsageError("give --wait or --abort, not both")
    local_cluster.down(data_dir, "wait" if wait else "abort" if abort else "suspend")


@main.command()
@_data_dir
def status(data_dir: Path | None) -> None:
    """Show the cluster on this machine and which kinds of isolation it provides."""
    from hekla.cli import local_cluster

    raise SystemExit(local_cluster.status(data_dir))


@main.group()
def image() -> None:
    """The container images on this machine, which pods of `hekla up` run."""


@image.command("pull")
@click.argument("names", nargs=-1, required=True, metavar="NAME…")
@_data_dir
def image_pull(data_dir: Path | None, names: tuple[str, ...]) -> None:
    """Pull images from registries, with the logins of `skopeo login` or `docker login`.

    \b
    Images that podman or Docker has here are copied by
        hekla image pull containers-storage:localhost/app:1
        hekla image pull docker-daemon:app:1
    """
    from hekla.cli import images

    images.pull(data_dir, names)


@image.command("list")
@_data_dir
def image_list(data_dir: Path | None) -> None:
    """List the images with their sizes."""
    from hekla.cli import images

    images.show(data_dir)


@image.command("load")
@click.argument("source")
@click.option("--name", "names", multiple=True, metavar="NAME", help="A further name; may repeat.")
@_data_dir
def image_load(data_dir: Path | None, source: str, names: tuple[str, ...]) -> None:
    """Load an image from a file of `docker save`, an OCI archive or layout, or a SIF file.

    \b
        hekla image load app.sif --name app:1
        docker save app:1 -o app.tar && hekla image load app.tar
        hekla image load oci:/srv/layout:app --name app:1
    """
    from hekla.cli import images

    images.load(data_dir, source, names)


@image.command("prune")
@_data_dir
def image_prune(data_dir: Path | None) -> None:
    """Delete the images that no pod uses and that a registry has."""
    from hekla.cli import images

    images.prune(data_dir)


@image.command("rm")
@click.argument("names", nargs=-1, required=True, metavar="NAME…")
@_data_dir
def image_rm(data_dir: Path | None, names: tuple[str, ...]) -> None:
    """Remove images by name or digest."""
    from hekla.cli import images

    images.remove(data_dir, names)


@main.group()
def user() -> None:
    """Let other people use the cluster on this machine (`hekla up --multi-user`)."""


@user.command("add")
@click.argument("name")
@_data_dir
@click.option("-q", "--queue", "queues", multiple=True, help="A queue to submit to; may repeat.")
@click.option(
    "--days",
    type=click.IntRange(1, 3650),
    default=90,
    show_default=True,
    help="Validity of the token.",
)
def user_add(data_dir: Path | None, name: str, queues: tuple[str, ...], days: int) -> None:
    """Add the user NAME, or renew the user's token and queues; print the user's kubeconfig.

    The user gets a namespace of that name, may do there what the role `edit` allows, and may submit
    to the given queues.

    \b
        hekla user add alice --queue research > alice.kubeconfig
    """
    from hekla.cli import users

    users.add(data_dir, name, queues, days)


@user.command("remove")
@click.argument("name")
@_data_dir
def user_remove(data_dir: Path | None, name: str) -> None:
    """Withdraw the rights and tokens of the user NAME; jobs and data stay."""
    from hekla.cli import users

    users.remove(data_dir, name)


@user.command("list")
@_data_dir
def user_list(data_dir: Path | None) -> None:
    """List the users and their queues."""
    from hekla.cli import users

    users.show(data_dir)


class _WithCommand(click.Command):
    """Separates the words after `--` from the other arguments; click would mix them."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" in args:
            at = args.index("--")
            ctx.meta["words"] = args[at + 1 :]
            args = args[:at]
            return super().parse_args(ctx, args)
        from hekla.cli.command_words import meant

        options = [one for one in self.params if isinstance(one, click.Option) and not one.is_flag]
        given, with_value = list(args), {name for one in options for name in one.opts}
        try:
            rest = super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if line := meant(given, with_value):
                raise click.UsageError(f"a command comes after `--`: {line}", ctx) from error
            raise
        if ctx.params.get("files") and (line := meant(given, with_value)):
            raise click.UsageError(f"a command comes after `--`: {line}", ctx)
        return rest


@main.command(cls=_WithCommand)
@_data_dir
@click.option(
    "-k", "--kubeconfig", type=click.Path(path_type=Path), metavar="FILE", help="Kubeconfig to use."
)
@click.option("--context", default="", metavar="NAME", help="Context of the kubeconfig.")
@click.option("-n", "--namespace", default="", help="Namespace.  [default: the context's]")
@click.option(
    "--host-images",
    is_flag=True,
    help="The temporary cluster runs images without a mapping on this machine.",
)
@click.option(
    "--detach", "-d", is_flag=True, help="Return when the jobs are submitted, as sbatch does."
)
@click.option("--replace", is_flag=True, help="Delete a job of the same name first.")
@click.option(
    "--check/--no-check", default=True, help="Refuse unknown fields of manifests.  [default: check]"
)
@click.option("--name", default="", help="Name of the command's job.  [default: derived from it]")
@click.option("-i", "--image", default="host", show_default=True, help="Image of the command.")
@click.option("-r", "--replicas", type=click.IntRange(1), default=1, help="Number of pods.")
@click.option(
    "--array",
    default="",
    metavar="INDICES[%N]",
    help="Run the command for each index, such as 0-99%10: at most 10 at a time; 1,3,5-9:2.",
)
@click.option(
    "--retries",
    type=click.IntRange(0, 100),
    default=0,
    metavar="N",
    help="Retry a failed job, or each failed index of an array, so often.",
)
@click.option(
    "--cpu",
    default=None,
    help="CPU request of each pod, such as 2 or 500m; 0: none.  [default: 1 for each index of an "
    "array, else none]",
)
@click.option(
    "--memory",
    default=None,
    help="Memory request and limit of each pod, such as 4Gi; a pod beyond it is killed.",
)
@click.option("--gpu", default=None, help="GPUs of each pod.")
@click.option("-q", "--queue", default="", help="Queue.")
@click.option(
    "-p", "--plugin", "plugins", multiple=True, help="Job plugin, such as svc or pytorch."
)
@click.option(
    "--ttl",
    default="7d",
    show_default=True,
    metavar="AGE",
    help="Delete the command's job so long after it has ended, such as 12h; none keeps it.",
)
@click.option(
    "-e", "--env", multiple=True, metavar="KEY=VALUE", help="Environment variable; may repeat."
)
@click.option(
    "--requirements",
    default="",
    metavar="FILE",
    help="Run in a virtual environment with these requirements; it is built once.",
)
@click.option(
    "--workdir",
    default="",
    metavar="DIR",
    help="Working directory.  [default: the current one; with another image, the image's]",
)
@click.option("--sync", is_flag=True, help="Run in a read-only snapshot of the working directory.")
@click.option(
    "--input",
    "inputs",
    multiple=True,
    metavar="PATH",
    help="A file or directory that the command reads: $HEKLA_INPUT; may repeat.",
)
@click.option(
    "--output",
    "outputs",
    multiple=True,
    metavar="DIR",
    help="A directory for results, created if it does not exist: $HEKLA_OUTPUT; may repeat.",
)
@click.argument(
    "files",
    nargs=-1,
    type=click.Path(path_type=Path),
    metavar="[FILES]… [-- COMMAND…]",
)
@click.pass_context
def run(ctx: click.Context, /, **given: Any) -> None:
    """Run the jobs in FILES, or a COMMAND as a job, until they finish; the exit code is the result.

    Uses the cluster of --kubeconfig, --data-dir or --context, else of $KUBECONFIG, else of `hekla
    up` if it runs, else a temporary one. On a terminal the state of the jobs is shown below their
    output, and Ctrl-C offers to detach or abort. A COMMAND does not get the standard input.

    \b
        hekla run job.yaml
        hekla run --replicas 4 --gpu 1 --queue ml --plugin pytorch -- python train.py
        hekla run --requirements requirements.txt --sync --output results -- python train.py
        hekla run --array 0-99%10 -- sh -c 'python train.py --seed $HEKLA_ARRAY_INDEX'
    """
    from hekla.cli import run as run_command
    from hekla.cli.vcctl.options import take_cluster_flags

    written = {
        str(param.name): param.opts[-1]
        for param in ctx.command.params
        if _is_given(ctx, str(param.name))
    }
    flags = take_cluster_flags(given)
    words = ctx.meta.get("words", ())
    raise SystemExit(run_command.run(flags, words=words, written=written, **given))


@main.command()
@click.option(
    "--kubeconfig",
    type=click.Path(path_type=Path),
    help="kubeconfig of the cluster.  [default: as all commands]",
)
@click.option("--host", default="0.0.0.0", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=8443, show_default=True)
@click.option("--service", help="NAMESPACE/NAME of the Service in front of this process.")
@click.option("--url", help="URL at which the API server reaches this process.")
@click.option(
    "--client-ca-file",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="Answer only callers with a client certificate of this authority: the API server.",
)
@click.option(
    "--max-pods-per-job",
    type=click.IntRange(1, 2**31 - 1),
    default=100_000,
    show_default=True,
    metavar="N",
    help="Refuse Volcano Jobs with more pods.",
)
def admission(
    kubeconfig: Path | None,
    host: str,
    port: int,
    service: str | None,
    url: str | None,
    client_ca_file: Path | None,
    max_pods_per_job: int,
) -> None:
    """Serve the webhooks that default and validate Volcano's objects on Kubernetes.

    The service creates and renews its certificates and sets them in the webhook configurations.
    """
    from hekla.cli import component_runner

    component_runner.admission(
        kubeconfig,
        host,
        port,
        service,
        url,
        client_ca_file,
        max_pods_per_job=max_pods_per_job,
    )


component_commands.register(main)
install.register(main)
register(main)


if __name__ == "__main__":
    main()
