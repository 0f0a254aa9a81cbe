"""`hekla config`: check a scheduler configuration, and show the one in force."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import click
import msgspec

from hekla.api import wellknown
from hekla.api.scheduler_state import SCHEDULER_STATE_CONFIG_MAP, SchedulerState
from hekla.cli import terminal
from hekla.cli.vcctl import manifests
from hekla.cli.vcctl.commands import VcctlGroup, warn
from hekla.cli.vcctl.errors import CommandFailed
from hekla.cli.vcctl.options import Session, connected
from hekla.kube.resources import CONFIGMAPS
from hekla.kube.sync_client import SyncClient


@click.group(cls=VcctlGroup)
def config() -> None:
    """Check a scheduler configuration, or show the one in force."""


@config.command(
    examples=["hekla config check volcano-scheduler.conf", "hekla config check configmap.yaml"]
)
@click.argument("path", metavar="FILE")
@click.option(
    "--plugins-dir",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="Directory of custom plugins, as of `hekla scheduler`.",
)
def check(path: str, plugins_dir: Path | None) -> None:
    """Check a scheduler configuration: the file, a ConfigMap with it, or stdin for `-`."""
    from hekla.scheduler.errors import ConfigError
    from hekla.scheduler.framework.config import parse
    from hekla.scheduler.plugins.discovery import discover

    text = _text(path)
    try:
        parsed = parse(text, discover(plugins_dir))
    except ConfigError as error:
        raise CommandFailed(
            f"{path} is not valid: {error}", hint="the scheduler would refuse it; correct this line"
        ) from error
    for warning in parsed.warnings:
        warn(warning)
    tiers = "; ".join(", ".join(option.plugin.name for option in tier) for tier in parsed.tiers)
    terminal.echo(
        f"{path} is valid: actions {', '.join(parsed.actions)}; plugins {tiers or 'none'}"
    )


def _text(path: str) -> str:
    """Return the configuration in a file, which may be a ConfigMap."""
    try:
        text = sys.stdin.read() if path == manifests.STDIN else Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise CommandFailed(f"open {path}: {reason.lower()}") from error
    return _of_config_map(text) or text


def _of_config_map(text: str) -> str:
    """Return the configuration in a ConfigMap; its lines are counted from its own first line."""
    from hekla.units import bounded_yaml

    try:
        document = bounded_yaml.load(text, bounded_yaml.FILE)
    except bounded_yaml.YAMLError:
        return ""  # the parser of configurations reports it
    if not isinstance(document, dict) or document.get("kind") != "ConfigMap":
        return ""
    found = (document.get("data") or {}).get(wellknown.SCHEDULER_CONFIG_KEY)
    if not isinstance(found, str):
        raise CommandFailed(f"the ConfigMap has no data[{wellknown.SCHEDULER_CONFIG_KEY}]")
    return found


@config.command(examples=["hekla config show", "hekla config show --scheduler-name volcano"])
@click.option(
    "--scheduler-namespace",
    "place",
    default=wellknown.SYSTEM_NAMESPACE,
    show_default=True,
    metavar="NAME",
    help="Namespace of the scheduler's configuration.",
)
@click.option(
    "--scheduler-name",
    "name",
    default="",
    metavar="NAME",
    help="One of several schedulers.  [default: the only one]",
)
@connected
def show(session: Session, place: str, name: str) -> None:
    """Show the configuration that the scheduler uses, and where it is from."""
    states = read_states(session.client, place)
    if not states:
        raise CommandFailed(
            f"no scheduler has recorded its configuration in namespace {place}",
            hint="it records it when it runs as leader; --scheduler-namespace names another",
        )
    if name and name not in states:
        raise CommandFailed(f"no scheduler {name!r}", hint=f"schedulers: {', '.join(states)}")
    chosen = {name: states[name]} if name else states
    for each, state in chosen.items():
        terminal.echo("\n".join(_description(each, state)))


def _description(name: str, state: SchedulerState) -> Iterator[str]:
    yield f"# scheduler {name}, from: {state.source}"
    if state.refused:
        yield f"# refused, so this one stays in force: {state.refused}"
    for warning in state.warnings:
        yield f"# warning: {warning}"
    yield state.configuration.rstrip("\n")


def read_states(client: SyncClient, namespace: str) -> dict[str, SchedulerState]:
    """Return what the schedulers of a namespace recorded, by name; without unreadable ones."""
    found = client.find(CONFIGMAPS, SCHEDULER_STATE_CONFIG_MAP, namespace=namespace)
    states: dict[str, SchedulerState] = {}
    for name, text in sorted(((found or {}).get("data") or {}).items()):
        try:
            states[name] = msgspec.json.decode(text, type=SchedulerState)
        except (msgspec.DecodeError, RecursionError):
            continue
    return states


def problems(states: dict[str, SchedulerState]) -> Iterator[str]:
    """Yield what an administrator should look at: a refused configuration, failing plugins."""
    for state in states.values():
        if state.refused:
            yield f"configuration refused, the last valid one stays: {state.refused}"
        for broken in state.left_out:
            yield f"plugin left out: {broken}"
        for failed in state.failed_plugins:
            times = "once" if failed.times == 1 else f"{failed.times} times"
            text = (
                f"plugin {failed.plugin} failed {times} and lost its vote each time, last in "
                f"{failed.hook}: {failed.error}"
            )
            yield "\n".join([text, *failed.traceback.splitlines()])
