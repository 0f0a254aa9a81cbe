"""`vcctl podgroup`: list and show PodGroups."""

from __future__ import annotations

from collections.abc import Iterator

import click

from hekla.cli import terminal
from hekla.cli.vcctl import list_watch
from hekla.cli.vcctl.commands import VcctlGroup
from hekla.cli.vcctl.errors import CommandFailed, did_you_mean, safe_hint
from hekla.cli.vcctl.job_view import event_lines, event_time
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
    age,
    age_of,
    field_at,
    name_of,
    namespace_of,
    number_at,
    output_option,
    phase_colour,
    show_object,
    text_at,
)
from hekla.kube.errors import NotFound
from hekla.kube.resources import EVENTS, PODGROUPS, QUEUES
from hekla.units.objects import Object

NAMESPACE_COLUMN = Column("Namespace", namespace_of, gap=3)
COLUMNS = (
    Column("Name", name_of, gap=3),
    Column("Phase", text_at("status", "phase"), 12, colour=phase_colour),
    Column("MinMember", number_at("spec", "minMember"), 12),
    Column("Running", number_at("status", "running"), 10),
    Column("Succeeded", number_at("status", "succeeded"), 12),
    Column("Failed", number_at("status", "failed"), 10),
    Column("Queue", text_at("spec", "queue"), gap=3),
    Column("Age", age_of, 8),
    Column("Priority", text_at("spec", "priorityClassName"), gap=3, wide=True),
)


@click.group(cls=VcctlGroup)
def podgroup() -> None:
    """List and show PodGroups."""


@podgroup.command(
    "list",
    examples=["vcctl podgroup list -A --phase Pending", "vcctl podgroup list -q ml -w"],
)
@namespace_option
@all_namespaces_option
@click.option(
    "-q", "--queue", default="", help="Only this queue.", shell_complete=complete_names(QUEUES)
)
@label_option
@click.option("--phase", default="", help="Only these phases, such as Pending,Inqueue.")
@output_option
@watch_option
@connected
def list_(
    session: Session,
    namespace: str,
    all_namespaces: bool,
    queue: str,
    labels: str,
    phase: str,
    output: str,
    watch: bool,
) -> None:
    """List PodGroups."""
    phases = {word.strip().lower() for word in phase.split(",") if word.strip()}

    def wanted(group: Object) -> bool:
        return (not queue or field_at(group, "spec", "queue") == queue) and (
            not phases or text_at("status", "phase")(group).lower() in phases
        )

    list_watch.show(
        session.client,
        PODGROUPS,
        (NAMESPACE_COLUMN, *COLUMNS) if all_namespaces else COLUMNS,
        output,
        namespace=None if all_namespaces else namespace or session.namespace,
        labels=labels,
        wanted=wanted,
        watch=watch,
    )


@podgroup.command(examples=["vcctl podgroup view my-group -n ml"])
@click.argument("word", metavar="[NAME]", required=False, shell_complete=complete_names(PODGROUPS))
@click.option(
    "-N",
    "--name",
    default="",
    help="Name of the PodGroup.",
    shell_complete=complete_names(PODGROUPS),
)
@namespace_option
@output_option
@connected
def view(session: Session, word: str | None, name: str, namespace: str, output: str) -> None:
    """Show a PodGroup, its conditions and its events."""
    wanted, where = name or word or "", namespace or session.namespace
    if not wanted:
        raise CommandFailed("podgroup name must be specified", hint="vcctl podgroup view NAME")
    try:
        group = session.client.get(PODGROUPS, wanted, namespace=where)
    except NotFound as error:
        hint = safe_hint(lambda: _near(session, wanted, where))
        raise CommandFailed(error.message, hint=hint) from error
    if output and output != "wide":
        show_object(PODGROUPS, group, output)
        return
    events = session.client.list(
        EVENTS,
        namespace=where,
        field_selector=f"involvedObject.name={wanted},involvedObject.kind=PodGroup",
    )
    terminal.echo("\n".join(report(group, sorted(events, key=event_time))))


def _near(session: Session, wanted: str, where: str) -> str:
    names = [name_of(one) for one in session.client.list(PODGROUPS, namespace=where)]
    return did_you_mean(wanted, names) or f"`vcctl podgroup list -n {where}` lists them"


def report(group: Object, events: list[Object]) -> Iterator[str]:
    """Yield a PodGroup as text."""
    spec, status = group.get("spec") or {}, group.get("status") or {}
    yield f"Name:\t{name_of(group)}"
    yield f"Namespace:\t{namespace_of(group)}"
    for owner in field_at(group, "metadata", "ownerReferences") or ():
        yield f"Owner:\t{owner.get('kind')}/{owner.get('name')}"
    yield f"Queue:\t{spec.get('queue', '')}"
    yield f"Min Member:\t{spec.get('minMember', 0)}"
    for task, minimum in sorted((spec.get("minTaskMember") or {}).items()):
        yield f"  {task}:\t{minimum}"
    if spec.get("minResources"):
        yield "Min Resources:"
        for name, amount in sorted(spec["minResources"].items()):
            yield f"  {name}:\t{amount}"
    if spec.get("priorityClassName"):
        yield f"Priority Class:\t{spec['priorityClassName']}"
    yield f"Phase:\t{status.get('phase') or 'Pending'}"
    for word in ("running", "succeeded", "failed"):
        if status.get(word):
            yield f"  {word.capitalize()}:\t{status[word]}"
    if status.get("conditions"):
        yield "Conditions:"
        for one in status["conditions"]:
            why = ": ".join(filter(None, (one.get("reason"), one.get("message"))))
            since = age(one.get("lastTransitionTime"))
            yield f"  {one.get('type')}={one.get('status')}\t{since} ago\t{why}"
    yield from event_lines(events)
