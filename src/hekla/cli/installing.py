"""What `hekla install` does: the Helm chart's objects, by server-side apply.

The chart is the one description of an installation; this renders it (hekla.cli.charts), adds the
CRDs and the namespace, and applies. Applying again upgrades. What a newcomer gets wrong: not all
of it is ours to overwrite. A namespace and a scheduler's ConfigMap that exist stay as they are, a
field that somebody else has changed is reported, and removing leaves CRDs, so all jobs and queues.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

import click
import yaml

import hekla
from hekla.api import crds, wellknown
from hekla.cli import charts
from hekla.kube import kubeconfig
from hekla.kube.errors import Conflict, KubeError, NotFound
from hekla.kube.resources import CATALOGUE, Resource, resource
from hekla.kube.sync_client import SyncClient

Json = dict[str, Any]

MANAGER: Final = "hekla-install"
RELEASE: Final = "hekla"
ELSEWHERE: Final = ("training.volcano.sh", "datadependency.volcano.sh")
"""Groups of Volcano Global, which hekla does not serve."""
_SERVICE_MONITORS: Final = resource(
    "monitoring.coreos.com/v1", "servicemonitors", kind="ServiceMonitor"
)
# What others need comes first.
_ORDER: Final = ("Namespace", "CustomResourceDefinition", "ServiceAccount", "Secret", "ConfigMap")
_LAST: Final = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")


def chart_directory() -> Path:
    """Inside an installed package, or beside the sources."""
    inside = Path(hekla.__file__).parent / "chart"
    return inside if inside.is_dir() else Path(hekla.__file__).parents[2] / "charts" / "hekla"


def objects(namespace: str, values: Json, *, with_crds: bool = True) -> list[Json]:
    """Everything that is installed, in the order in which it can be applied."""
    release = charts.Release(RELEASE, namespace)
    chart = chart_directory()
    try:
        charts.check_values(chart, values)
        made = charts.render(chart, release, values)
    except charts.ChartError as error:
        raise click.ClickException(str(error)) from error
    space = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": namespace,
            "labels": {"pod-security.kubernetes.io/enforce": "restricted"},
        },
    }
    kinds = [crd for crd in crds.load() if crd["spec"]["group"] not in ELSEWHERE]
    return sorted([space, *(kinds if with_crds else ()), *made], key=_place)


def _place(obj: Json) -> tuple[int, int]:
    kind = obj["kind"]
    last = _LAST.index(kind) + 1 if kind in _LAST else 0
    return last, _ORDER.index(kind) if kind in _ORDER else len(_ORDER)


def as_yaml(made: Iterable[Json]) -> str:
    # libyaml where there is one: the CRDs are large.
    dumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    return str(yaml.dump_all(made, Dumper=dumper, sort_keys=False, width=200))


def resource_of(obj: Json) -> Resource[Any]:
    for known in (*CATALOGUE, _SERVICE_MONITORS):
        if (known.api_version, known.kind) == (obj["apiVersion"], obj["kind"]):
            return known
    raise click.ClickException(f"{obj['apiVersion']} {obj['kind']} is not known to `hekla install`")


def apply(
    client: SyncClient,
    wanted: Iterable[Json],
    *,
    force: bool = False,
    dry_run: bool = False,
    tell: Callable[[str], None] = lambda _: None,
) -> None:
    """Make each object hold; the first that cannot ends it, and applying again goes on."""
    for obj in wanted:
        name, kind = obj["metadata"]["name"], resource_of(obj)
        what = f"{kind.kind} {name}"
        if _is_users(obj) and _exists_by_others(client, kind, obj):
            tell(f"{what} is there and stays as it is")
            continue
        # Volcano's CRDs belong to whoever applied them; ours hold all that they hold, and more.
        is_crd = kind.kind == "CustomResourceDefinition"
        try:
            client.apply(kind, obj, field_manager=MANAGER, force=force or is_crd, dry_run=dry_run)
        except Conflict as error:
            raise click.ClickException(
                f"{what}: {error}; keep that value with --set or --values, or take it over with "
                "--force-conflicts"
            ) from error
        except KubeError as error:
            raise click.ClickException(f"{what}: {error}") from error
        tell(f"{what} applied")


def _is_users(obj: Json) -> bool:
    """Whether one that exists stays as it is."""
    name: str = obj["metadata"]["name"]
    return obj["kind"] == "Namespace" or name == wellknown.SCHEDULER_CONFIG_MAP


def _exists_by_others(client: SyncClient, kind: Resource[Any], obj: Json) -> bool:
    meta = obj["metadata"]
    found = client.find(kind, meta["name"], namespace=meta.get("namespace"))
    if found is None:
        return False
    # A namespace is the cluster's once it is there. A ConfigMap is ours while only we wrote it.
    managers = {entry.get("manager") for entry in found["metadata"].get("managedFields") or ()}
    return kind.kind == "Namespace" or managers != {MANAGER}


def remove(
    client: SyncClient, made: Iterable[Json], *, tell: Callable[[str], None] = lambda _: None
) -> None:
    """Take away what `apply` made, except what holds users' work or settings."""
    for obj in reversed(list(made)):
        kind, meta = resource_of(obj), obj["metadata"]
        if _is_users(obj) or kind.kind == "CustomResourceDefinition":
            continue
        try:
            done = client.delete(
                kind, meta["name"], namespace=meta.get("namespace"), missing_ok=True
            )
        except NotFound:  # the kind itself is not there
            continue
        except KubeError as error:
            raise click.ClickException(f"{kind.kind} {meta['name']}: {error}") from error
        if done:
            tell(f"{kind.kind} {meta['name']} deleted")


def values_of(files: Iterable[Path], sets: Iterable[str], image: str) -> Json:
    """Values from files, then `--set A.B=C`, then `--image`; later ones win."""
    values: Json = {}
    for path in files:
        try:
            found = yaml.safe_load(path.read_text())
        except yaml.YAMLError as error:
            raise click.UsageError(f"--values: {path} is not YAML: {error}") from error
        if not isinstance(found, dict | None):
            raise click.UsageError(f"--values: {path} is not a map of values")
        values = charts.merged(values, found or {})
    for text in sets:
        key, equals, value = text.partition("=")
        if not (equals and key):
            raise click.UsageError(
                f"--set: {text!r} is not NAME=VALUE, such as custom.x_enable=true"
            )
        change: Any = yaml.safe_load(value) if value else ""
        for part in reversed(key.split(".")):
            change = {part: change}
        values = charts.merged(values, change)
    return charts.merged(values, {"basic": {"image": image}}) if image else values


def connect(config: Path | None) -> SyncClient:
    try:
        return SyncClient(kubeconfig.load(config), component=MANAGER)
    except KubeError as error:
        raise click.ClickException(str(error)) from error
