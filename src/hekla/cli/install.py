"""The commands `hekla install` and `hekla uninstall`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from hekla import __version__
from hekla.cli import terminal

_CLUSTER_OPTIONS = (
    click.option(
        "--kubeconfig",
        "config",
        type=click.Path(path_type=Path, dir_okay=False),
        help="kubeconfig of the cluster.  [default: as all commands]",
    ),
    click.option(
        "-n",
        "--namespace",
        default="volcano-system",
        show_default=True,
        help="Namespace of the components.",
    ),
)


def _with_cluster_options(function: Callable[..., None]) -> Callable[..., None]:
    for decorate in reversed(_CLUSTER_OPTIONS):
        function = decorate(function)
    return function


@click.command()
@_with_cluster_options
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
@click.option("--skip-crds", is_flag=True, help="Do not apply CRDs.")
@click.option(
    "--force-conflicts", is_flag=True, help="Overwrite fields that another manager has changed."
)
@click.option("--dry-run", is_flag=True, help="Print the objects as YAML; change nothing.")
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

    Applies the objects of the Helm chart without helm. An existing namespace and an existing
    ConfigMap of the scheduler are not changed.
    """
    from hekla.cli import release

    values = release.values_from(files, sets, image)
    objects = release.objects(namespace, values, with_crds=not skip_crds)
    if dry_run:
        click.echo(release.as_yaml(objects), nl=False)
        return
    _check_image(values)
    with release.connect(config) as client:
        release.apply(client, objects, force=force_conflicts, report=terminal.echo)
    terminal.echo(
        f"Watch the rollout: kubectl -n {namespace} rollout status deployment "
        f"-l app.kubernetes.io/instance={release.RELEASE}"
    )


def _check_image(values: Mapping[str, Any]) -> None:
    """Refuse the default image unless it is named: no registry has it, so no pod would start."""
    named = values.get("basic") or {}
    if not (named.get("image") or named.get("image_registry")):
        raise click.ClickException(
            f"no image is given, and the default localhost/hekla:{__version__} is in no registry: "
            "its pods would not start\n"
            f"  build it from the Containerfile, push it, and name it: "
            f"hekla install --image registry.example.org/hekla:{__version__}\n"
            "  if every node has the default image already: --set basic.image_registry=localhost"
        )


@click.command()
@_with_cluster_options
def uninstall(config: Path | None, namespace: str) -> None:
    """Remove hekla's components from a cluster.

    The CRDs are kept, and with them jobs, queues and running pods; so are the namespace and the
    ConfigMap of the scheduler.
    """
    from hekla.cli import release
    from hekla.cli.chart_values import RENDERED_WITH

    with release.connect(config) as client:
        release.remove(client, release.objects(namespace, RENDERED_WITH), report=terminal.echo)


def register(group: click.Group) -> None:
    for command in (install, uninstall):
        group.add_command(command)
