"""`vcctl pod list`: the pods of jobs and queues, as kubectl prints pods."""

from __future__ import annotations

import time
from typing import Any

import click

from hekla.api import wellknown
from hekla.cli import terminal
from hekla.cli.vcctl.commands import VcctlGroup
from hekla.cli.vcctl.errors import CommandFailed
from hekla.cli.vcctl.list_watch import changes
from hekla.cli.vcctl.options import (
    Session,
    all_namespaces_option,
    complete_names,
    connected,
    label_option,
    namespace_option,
    watch_option,
)
from hekla.cli.vcctl.output import (
    Column,
    field_at,
    name_of,
    namespace_of,
    output_option,
    phase_colour,
    show_list,
    show_object,
)
from hekla.kube.resources import JOBS, PODS, QUEUES
from hekla.units.objects import Object


@click.group(cls=VcctlGroup)
def pod() -> None:
    """List the pods of jobs and queues."""


def _cells(pod: Object) -> list[Any]:
    """Return the cells: name, ready, status, restarts, age, address, node, …"""
    from hekla.apiserver.tables.pods import PODS as PRINTER

    return PRINTER.cells(pod, time.time())


def _column(header: str, index: int, *, wide: bool = False) -> Column:
    colour = phase_colour if header == "Status" else None
    width = len(header) + 2
    return Column(header, lambda pod: _cells(pod)[index], width, 8, colour=colour, wide=wide)


NAMESPACE_COLUMN = Column("Namespace", namespace_of, len("Namespace") + 2, 8)
COLUMNS = (
    _column("Name", 0),
    _column("Ready", 1),
    _column("Status", 2),
    _column("Restart", 3),
    _column("Age", 4),
    _column("IP", 5, wide=True),
    _column("Node", 6, wide=True),
)


def _label(pod: Object, key: str) -> str:
    return str((field_at(pod, "metadata", "labels") or {}).get(key) or "")


def _in_queue(pod: Object, queue: str) -> bool:
    annotations = field_at(pod, "metadata", "annotations") or {}
    return queue in (_label(pod, wellknown.QUEUE_NAME), annotations.get(wellknown.POD_QUEUE_NAME))


def _selector(job: str, queue: str, labels: str) -> str:
    any_job = "" if queue else wellknown.JOB_NAME
    own = f"{wellknown.JOB_NAME} in ({job})" if job else any_job
    return ",".join(filter(None, (own, labels)))


@pod.command(
    "list",
    examples=["vcctl pod list -j my-job", "vcctl pod list -q ml -A", "vcctl pod list -o wide -w"],
)
@click.option("-j", "--job", default="", help="Only this job.", shell_complete=complete_names(JOBS))
@click.option(
    "-q", "--queue", default="", help="Only this queue.", shell_complete=complete_names(QUEUES)
)
@namespace_option
@all_namespaces_option
@label_option
@output_option
@watch_option
@connected
def list_(
    session: Session,
    job: str,
    queue: str,
    namespace: str,
    all_namespaces: bool,
    labels: str,
    output: str,
    watch: bool,
) -> None:
    """List pods: those of jobs, of one job, or of one queue."""
    where = None if all_namespaces else namespace or session.namespace
    selector = _selector(job, queue, labels)
    listed = session.client.list(PODS, namespace=where, label_selector=selector)
    pods = sorted(listed, key=lambda one: (namespace_of(one), name_of(one)))
    if job and queue:
        if any(_label(one, wellknown.QUEUE_NAME) != queue for one in pods):
            raise CommandFailed(
                f"the input vcjob {job} does not match the queue {queue}",
                hint="use only one of -j and -q",
            )
    elif queue:
        pods = [one for one in pods if _in_queue(one, queue)]
    columns = (NAMESPACE_COLUMN, *COLUMNS) if all_namespaces else COLUMNS
    table = show_list(PODS, pods, columns, output)
    if not watch:
        return
    for changed in changes(
        session.client, PODS, listed.resource_version, namespace=where, labels=selector
    ):
        if queue and not _in_queue(changed, queue):
            continue
        if table is None:
            show_object(PODS, changed, output)
        else:
            terminal.echo(table.row(changed))
