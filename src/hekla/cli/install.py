"""`hekla install` and `hekla uninstall`: their flags. What they do is in hekla.cli.installing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click

_cluster = (
    click.option(
        "--kubeconfig",
        "config",
        type=click.Path(path_type=Path, dir_okay=False),
        help="Which cluster.  [default: as kubectl]",
    ),
    click.option(
        "-n",
        "--namespace",
        default="volcano-system",
        show_default=True,
        help="Where the components run.",
    ),
)


def _on_a_cluster(function: Callable[..., None]) -> Callable[..., None]:
    for decorate in reversed(_cluster):
        function = decorate(function)
    return function


@click.command()
@_on_a_cluster
@click.option("--image", default="", help="Image of all components.")
@click.option(
    "-f",
    "--values",
    "files",
    multiple=True,
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="YAML file of values, as for the Helm chart; may repeat.",
)
@click.option("--set", "sets", multiple=True, metavar="NAME=VALUE", help="One value; may repeat.")
@click.option("--skip-crds", is_flag=True, help="Leave the cluster's CRDs as they are.")
@click.option("--force-conflicts", is_flag=True, help="Take over fields that others have changed.")
@click.option("--dry-run", is_flag=True, help="Print the objects as YAML, and send nothing.")
def install(
    config: Path | None,
    namespace: str,
    image: str,
    files: tuple[Path, ...],
    sets: tuple[str, ...],
    skip_crds: bool,
    force_conflicts: bool,
    dry_run: bool,
) -> None:
    """Install hekla on a Kubernetes cluster, or upgrade it.

    The same as the Helm chart, without helm. A namespace and a scheduler's ConfigMap that are
    there already stay as they are.
    """
    from hekla.cli import installing

    values = installing.values_of(files, sets, image)
    wanted = installing.objects(namespace, values, with_crds=not skip_crds)
    if dry_run:
        click.echo(installing.as_yaml(wanted), nl=False)
        return
    with installing.connect(config) as client:
        installing.apply(client, wanted, force=force_conflicts, tell=click.echo)
    click.echo(
        f"Follow it: kubectl -n {namespace} rollout status deployment "
        f"-l app.kubernetes.io/instance={installing.RELEASE}"
    )


@click.command()
@_on_a_cluster
def uninstall(config: Path | None, namespace: str) -> None:
    """Take hekla's components off a cluster.

    CRDs stay, and with them jobs, queues and running pods; so do the namespace and the scheduler's
    ConfigMap.
    """
    from hekla.cli import installing

    optional = {"service_monitor_enable": True, "grafana_dashboard_enable": True}
    with installing.connect(config) as client:
        installing.remove(
            client, installing.objects(namespace, {"custom": optional}), tell=click.echo
        )


def register(group: click.Group) -> None:
    for command in (install, uninstall):
        group.add_command(command)
