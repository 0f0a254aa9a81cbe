"""The objects of a hekla release on Kubernetes: build, apply and delete them.

The objects are those of the Helm chart, plus the CRDs and the namespace. They are applied by
server-side apply; applying again upgrades.

Note: an existing namespace and an existing scheduler ConfigMap are not changed, a field that
another manager has changed is reported as a conflict, and removal keeps the CRDs, and with them all
jobs and queues.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any, Final

import click
import yaml

import hekla
from hekla.admission.webhooks import change_of_address
from hekla.api import crds, wellknown
from hekla.cli import chart_values, terminal
from hekla.kube import cluster_choice
from hekla.kube.cluster_choice import Flags
from hekla.kube.errors import Conflict, Invalid, KubeError, NotFound
from hekla.kube.resources import CATALOGUE, Resource, resource
from hekla.kube.sync_client import SyncClient
from hekla.units import bounded_yaml
from hekla.units.objects import Object

MANAGER: Final = "hekla-install"
RELEASE: Final = chart_values.RELEASE
NOT_SERVED: Final = ("training.volcano.sh", "datadependency.volcano.sh")
"""Groups of Volcano Global, which hekla does not serve."""
_SERVICE_MONITORS: Final = resource(
    "monitoring.coreos.com/v1", "servicemonitors", kind="ServiceMonitor"
)
# Objects that others depend on come first; webhooks come last, when their service is there.
MANIFESTS: Final = Path(__file__).parent / "data" / "manifests.yaml"
"""The chart, rendered by helm (`python -m tools.chart`)."""
_ORDER: Final = ("Namespace", "CustomResourceDefinition", "ServiceAccount", "Secret", "ConfigMap")
_LAST: Final = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")


def chart_directory() -> Path:
    """Return the chart of the installed package, or of the source tree."""
    inside = Path(hekla.__file__).parent / "chart"
    return inside if inside.is_dir() else Path(hekla.__file__).parents[2] / "charts" / "hekla"


@cache
def manifests() -> tuple[Object, ...]:
    """Return the shipped manifests. Note: they are shared; copy one before changing it."""
    documents = bounded_yaml.load_all(MANIFESTS.read_text(), bounded_yaml.FILE)
    return tuple(obj for obj in documents if obj)


def objects(namespace: str, values: Object, *, with_crds: bool = True) -> list[Object]:
    """Return all objects of a release, in the order in which they can be applied."""
    chart = chart_directory()
    try:
        chart_values.check_values(chart, values)
        rendered = chart_values.configure(manifests(), chart, namespace, values)
    except chart_values.ChartError as error:
        raise click.ClickException(str(error)) from error
    namespace_object = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": namespace,
            "labels": {"pod-security.kubernetes.io/enforce": "restricted"},
        },
    }
    served = [crd for crd in crds.load() if crd["spec"]["group"] not in NOT_SERVED]
    return sorted([namespace_object, *(served if with_crds else ()), *rendered], key=_apply_order)


def _apply_order(obj: Object) -> tuple[int, int]:
    kind = obj["kind"]
    last = _LAST.index(kind) + 1 if kind in _LAST else 0
    return last, _ORDER.index(kind) if kind in _ORDER else len(_ORDER)


def as_yaml(objects: Iterable[Object]) -> str:
    """Return the objects as YAML documents."""
    # The CRDs are large: use libyaml if it is available.
    dumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    return str(yaml.dump_all(objects, Dumper=dumper, sort_keys=False, width=200))


def resource_of(obj: Object) -> Resource[Any]:
    """Return the API resource of an object of a release."""
    for known in (*CATALOGUE, _SERVICE_MONITORS):
        if (known.api_version, known.kind) == (obj["apiVersion"], obj["kind"]):
            return known
    raise click.ClickException(f"{obj['apiVersion']} {obj['kind']} is not known to `hekla install`")


def apply(
    client: SyncClient,
    wanted: Iterable[Object],
    *,
    force: bool = False,
    dry_run: bool = False,
    report: Callable[[str], None] = lambda _: None,
) -> None:
    """Apply the objects in order; stop at the first error. Applying again continues."""
    for obj in wanted:
        name, kind = obj["metadata"]["name"], resource_of(obj)
        what = f"{kind.kind} {name}"
        if _is_user_owned(obj) and _is_managed_by_others(client, kind, obj):
            report(f"{what} exists and is not changed")
            continue
        # Volcano's CRDs have another field manager; hekla's CRDs are a superset of them.
        is_crd = kind.kind == "CustomResourceDefinition"
        try:
            _apply(client, kind, obj, force=force or is_crd, dry_run=dry_run)
        except Conflict as error:
            raise click.ClickException(
                f"{what}: {error}; keep that value with --set or --values, or overwrite it with "
                "--force-conflicts"
            ) from error
        except KubeError as error:
            raise click.ClickException(f"{what}: {error}") from error
        report(f"{what} applied")


def _apply(
    client: SyncClient, kind: Resource[Any], obj: Object, *, force: bool, dry_run: bool
) -> None:
    """Apply an object. Webhooks that were called by URL are called by service from now on."""
    try:
        client.apply(kind, obj, field_manager=MANAGER, force=force, dry_run=dry_run)
    except Invalid:
        if kind.kind not in _LAST:
            raise
        patch = change_of_address(obj)
        client.patch(kind, obj["metadata"]["name"], patch, kind="strategic", dry_run=dry_run)
        if not dry_run:
            client.apply(kind, obj, field_manager=MANAGER, force=force)


def _is_user_owned(obj: Object) -> bool:
    """Return whether an existing object of this name is the user's, and is never deleted."""
    name: str = obj["metadata"]["name"]
    return obj["kind"] == "Namespace" or name == wellknown.SCHEDULER_CONFIG_MAP


def _is_managed_by_others(client: SyncClient, kind: Resource[Any], obj: Object) -> bool:
    meta = obj["metadata"]
    existing = client.find(kind, meta["name"], namespace=meta.get("namespace"))
    if existing is None:
        return False
    # An existing namespace is never changed. A ConfigMap is ours while we are its only manager.
    managers = {entry.get("manager") for entry in existing["metadata"].get("managedFields") or ()}
    return kind.kind == "Namespace" or managers != {MANAGER}


def remove(
    client: SyncClient, objects: Iterable[Object], *, report: Callable[[str], None] = lambda _: None
) -> None:
    """Delete the objects, except CRDs, the namespace and the scheduler ConfigMap."""
    for obj in reversed(list(objects)):
        kind, meta = resource_of(obj), obj["metadata"]
        if _is_user_owned(obj) or kind.kind == "CustomResourceDefinition":
            continue
        try:
            done = client.delete(
                kind, meta["name"], namespace=meta.get("namespace"), missing_ok=True
            )
        except NotFound:  # the cluster does not have the kind
            continue
        except KubeError as error:
            raise click.ClickException(f"{kind.kind} {meta['name']}: {error}") from error
        if done:
            report(f"{kind.kind} {meta['name']} deleted")


def values_from(files: Iterable[Path], sets: Iterable[str], image: str) -> Object:
    """Merge values from files, then `--set A.B=C`, then `--image`; later ones win."""
    values: Object = {}
    for path in files:
        try:
            loaded = bounded_yaml.load(path.read_text(), bounded_yaml.CONFIG)
        except bounded_yaml.YAMLError as error:
            raise click.UsageError(f"--values: {path} is not YAML: {error}") from error
        if not isinstance(loaded, dict | None):
            raise click.UsageError(f"--values: {path} is not a map of values")
        values = chart_values.merged(values, loaded or {})
    for text in sets:
        key, equals, value = text.partition("=")
        if not (equals and key):
            raise click.UsageError(
                f"--set: {text!r} is not NAME=VALUE, such as custom.x_enable=true"
            )
        try:
            change: Any = bounded_yaml.load(value, bounded_yaml.CONFIG) if value else ""
        except bounded_yaml.YAMLError as error:
            raise click.UsageError(f"--set: {key} is not YAML: {error}") from error
        for part in reversed(key.split(".")):
            change = {part: change}
        values = chart_values.merged(values, change)
    return chart_values.merged(values, {"basic": {"image": image}}) if image else values


def connect(config: Path | None) -> SyncClient:
    """Return a client of the cluster in a kubeconfig, or by the rule of all commands."""
    try:
        target = cluster_choice.find(Flags(kubeconfig=config))
    except KubeError as error:
        raise click.ClickException(str(error)) from error
    terminal.echo(f"using the cluster {target.server} of {target.source}", err=True)
    return SyncClient(target, component=MANAGER)
