"""`hekla nodes`: the nodes of the cluster, what they have allocated and which take no pods."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time

import click

from hekla.cli import terminal
from hekla.cli.capacity import node_table
from hekla.cli.capacity.cluster import NODE_KIND, POD_KIND, Watched, watch
from hekla.cli.capacity.usage import NodeUse, node_info, node_uses, pod_use
from hekla.cli.vcctl.commands import VcctlCommand, warn
from hekla.cli.vcctl.errors import CommandFailed, did_you_mean, safe_hint
from hekla.cli.vcctl.options import Session, complete_names, connected, watch_option
from hekla.cli.vcctl.output import NONE_FOUND, as_yaml, name_of
from hekla.kube.client import Client
from hekla.kube.errors import Forbidden, NotFound
from hekla.kube.resources import NODES, PODS
from hekla.units.objects import Object

FORMATS = ("wide", "json", "yaml", "name")
PRINT_PAUSE_S = 0.5
"""Changes within this time are one: a gang that is placed changes a node many times."""


@click.command(
    cls=VcctlCommand,
    verb="list nodes",
    examples=[
        "hekla nodes",
        "hekla nodes -o wide --watch",
        "hekla nodes n1",
        "hekla nodes -o json",
    ],
)
@click.argument("name", metavar="[NAME]", required=False, shell_complete=complete_names(NODES))
@click.option(
    "-o",
    "--output",
    type=click.Choice(FORMATS),
    metavar="FORMAT",
    help="wide, json, yaml or name; json and yaml have exact amounts.",
)
@watch_option
@connected
def nodes(session: Session, name: str | None, output: str | None, watch: bool) -> None:
    """List the nodes: state, and allocated of allocatable CPU, memory and GPUs.

    With NAME, show the node's pods and what keeps new ones away. Allocated is what the pods
    request; their use is not measured. A drained node takes no pods; draining means that pods still
    run there.
    """
    if name and watch:
        raise click.UsageError("--watch lists all nodes: omit NAME")
    if not watch:  # a watch reports on stderr that it waits for the server
        logging.getLogger("hekla").addHandler(logging.NullHandler())
    if name:
        _show_one(session, name, output)
        return
    asyncio.run(_show_all(session, output or "", follow=watch))


def find_node(session: Session, name: str) -> Object:
    """Return a node; if it does not exist, fail with similar names."""
    try:
        return session.client.get(NODES, name)
    except NotFound as error:
        hint = safe_hint(lambda: _other_nodes(session, name))
        raise CommandFailed(f"node {name!r} does not exist", hint=hint) from error


def _other_nodes(session: Session, name: str) -> str:
    return did_you_mean(name, map(name_of, session.client.list(NODES))) or (
        "`hekla nodes` lists them"
    )


def _show_one(session: Session, name: str, output: str | None) -> None:
    info = node_info(find_node(session, name))
    try:
        listed = session.client.list(PODS, field_selector=f"spec.nodeName={name}").items
    except Forbidden as error:
        warn(f"its pods are hidden: {error.message}")
        listed = []
    pods = [pod_use(pod) for pod in listed]
    (use,) = node_uses([info], pods)
    if output in ("json", "yaml"):
        here = [{"namespace": p.namespace, "name": p.name, "phase": p.phase} for p in pods]
        _print_document({**node_table.as_json(use), "podsOnNode": here}, output)
    elif output == "name":
        click.echo(f"node/{name}")
    else:
        terminal.echo("\n".join(node_table.description(use, pods, time.time())))


async def _show_all(session: Session, output: str, *, follow: bool) -> None:
    kinds = (NODE_KIND, POD_KIND)
    async with (
        Client(session.config, component="hekla") as client,
        watch(client, kinds, session.namespace) as watched,
    ):
        if not watched.sees(NODE_KIND):
            refusal = watched.scope.hidden[NODES.plural]
            raise CommandFailed(refusal, hint="`hekla top` shows what you may see")
        if hidden := str(watched.scope):
            warn(f"{hidden}, so more may be allocated")
        uses = node_uses(watched.nodes, watched.pods)
        _print(uses, output)
        if follow:
            await _print_changes(watched, uses, output)


def _print(uses: list[NodeUse], output: str) -> None:
    if output in ("json", "yaml"):
        _print_document({"items": [node_table.as_json(use) for use in uses]}, output)
    elif output == "name":
        for use in uses:
            click.echo(f"node/{use.info.name}")
    elif not uses:
        terminal.echo(NONE_FOUND)
    else:
        terminal.echo("\n".join(node_table.table(uses, time.time(), wide=output == "wide")))
    sys.stdout.flush()


def _print_document(document: Object, output: str) -> None:
    as_text = json.dumps(document, indent=4, ensure_ascii=False) if output == "json" else None
    click.echo(as_text if as_text is not None else as_yaml(document).rstrip("\n"))


async def _print_changes(watched: Watched, uses: list[NodeUse], output: str) -> None:
    """Print the nodes that change, until Ctrl-C."""
    before = {use.info.name: node_table.as_json(use) for use in uses}
    while True:
        watched.changed.clear()
        await watched.changed.wait()
        await asyncio.sleep(PRINT_PAUSE_S)
        uses = node_uses(watched.nodes, watched.pods)
        now = {use.info.name: node_table.as_json(use) for use in uses}
        changed = [name for name in now if before.get(name) != now[name]]
        if output in ("json", "yaml", "name"):
            for name in changed:
                _print([use for use in uses if use.info.name == name], output)
        else:
            lines = node_table.table(uses, time.time(), wide=output == "wide")[1:]
            shown = [line for name, line in zip(now, lines, strict=True) if name in changed]
            shown += [f"{name}  deleted" for name in sorted(before.keys() - now.keys())]
            terminal.echo("\n".join(shown), nl=bool(shown))
            sys.stdout.flush()
        before = now
