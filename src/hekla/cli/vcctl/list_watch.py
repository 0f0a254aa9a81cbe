"""Lists with --watch: print the objects, then a line for every change, until Ctrl-C."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence

import click

from hekla.cli import terminal
from hekla.cli.vcctl.output import Column, Table, formatted, show_list
from hekla.kube.errors import Gone
from hekla.kube.resources import Resource
from hekla.kube.sync_client import SyncClient
from hekla.units.objects import Object


def changes(
    client: SyncClient,
    resource: Resource[Object],
    version: str,
    *,
    namespace: str | None = None,
    labels: str = "",
    fields: str = "",
) -> Iterator[Object]:
    """Yield every state after `version`; a deleted object is its last state."""
    while True:
        try:
            with client.watch(
                resource,
                namespace=namespace,
                label_selector=labels,
                field_selector=fields,
                resource_version=version,
            ) as events:
                for event in events:
                    yield event.object
                version = events.resource_version
        except Gone:
            # The server's history no longer has our version: list again and continue from there.
            listed = client.list(
                resource, namespace=namespace, label_selector=labels, field_selector=fields
            )
            yield from listed
            version = listed.resource_version


def show(
    client: SyncClient,
    resource: Resource[Object],
    columns: Sequence[Column],
    output: str,
    *,
    namespace: str | None = None,
    labels: str = "",
    wanted: Callable[[Object], bool] = lambda _: True,
    watch: bool = False,
) -> None:
    """Show a list once, or with every change."""
    listed = client.list(resource, namespace=namespace, label_selector=labels)
    objects = [obj for obj in listed if wanted(obj)]
    if watch and not objects and output in ("", "wide"):
        table: Table | None = None
    else:
        table = show_list(resource, objects, columns, output)
    if not watch:
        return
    for obj in changes(
        client, resource, listed.resource_version, namespace=namespace, labels=labels
    ):
        if not wanted(obj):
            continue
        if output in ("", "wide"):
            if table is None:
                table = Table([c for c in columns if output == "wide" or not c.wide], [obj])
                terminal.echo(table.header())
            terminal.echo(table.row(obj))
        else:
            click.echo(formatted(resource, obj, output))
        sys.stdout.flush()
