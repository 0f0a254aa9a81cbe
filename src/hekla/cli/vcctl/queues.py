"""`vcctl queue`: create, list and change queues. -n is the name, as queues have no namespace."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import click

from hekla.api import wellknown
from hekla.api.wellknown import Action, PodGroupPhase, QueueState
from hekla.cli import terminal
from hekla.cli.vcctl import manifests
from hekla.cli.vcctl.commands import VcctlGroup, note, warn
from hekla.cli.vcctl.errors import CommandFailed, did_you_mean, safe_hint
from hekla.cli.vcctl.list_watch import changes
from hekla.cli.vcctl.options import (
    Session,
    complete_names,
    connected,
    label_option,
    pairs,
    queue_name,
    resources,
    watch_option,
)
from hekla.cli.vcctl.output import (
    Column,
    field_at,
    name_of,
    number_at,
    output_option,
    phase_colour,
    show_list,
    show_object,
    text_at,
)
from hekla.kube.errors import Forbidden, NotFound
from hekla.kube.resources import COMMANDS, PODGROUPS, QUEUES
from hekla.units.objects import Object

Counts = dict[str, Counter[str]]

OPEN, CLOSE, UPDATE = "open", "close", "update"


@click.group(cls=VcctlGroup, lazy={"top": "queue_top:top"})
def queue() -> None:
    """Create, list and change queues."""


def group_counts(groups: Iterable[Object]) -> Counts:
    """Count PodGroups by queue and phase, which Volcano's queue status no longer contains."""
    counts: Counts = {}
    for group in groups:
        name = field_at(group, "spec", "queue") or wellknown.DEFAULT_QUEUE
        phase = field_at(group, "status", "phase") or PodGroupPhase.PENDING
        counts.setdefault(name, Counter())[phase] += 1
    return counts


def counts_of(session: Session) -> Counts | None:
    """Count PodGroups of the cluster; None for users who may not list all namespaces."""
    try:
        return group_counts(session.client.list(PODGROUPS))
    except Forbidden:
        warn("you may not list podgroups of all namespaces: the counts below are unknown")
        return None


def count_cell(counts: Counts | None, phase: str) -> Callable[[Object], Any]:
    """Return the cell of a queue's number of PodGroups; `-` if it is unknown."""
    if counts is None:
        return lambda _: "-"
    return lambda queue: counts.get(name_of(queue), Counter())[phase]


def columns(counts: Counts | None) -> tuple[Column, ...]:
    """Return the table of `queue list` and `queue get`."""

    def count(phase: str) -> Callable[[Object], Any]:
        return count_cell(counts, phase)

    return (
        Column("Name", name_of, 25),
        Column("Weight", number_at("spec", "weight"), 8),
        Column("State", text_at("status", "state"), 8, colour=phase_colour),
        Column("Parent", text_at("spec", "parent"), 8),
        Column("Inqueue", count(PodGroupPhase.INQUEUE), 8),
        Column("Pending", count(PodGroupPhase.PENDING), 8),
        Column("Running", count(PodGroupPhase.RUNNING), 8),
        Column("Unknown", count(PodGroupPhase.UNKNOWN), 8),
        Column("Completed", count(PodGroupPhase.COMPLETED), 8),
        Column("Allocated", _amounts("status", "allocated"), gap=2, wide=True),
        Column("Deserved", _amounts("spec", "deserved"), gap=2, wide=True),
        Column("Guarantee", _amounts("spec", "guarantee", "resource"), gap=2, wide=True),
        Column("Capability", _amounts("spec", "capability"), gap=2, wide=True),
    )


def _amounts(*path: str) -> Callable[[Object], str]:
    def cell(queue: Object) -> str:
        amounts = field_at(queue, *path) or {}
        return ",".join(f"{name}={amount}" for name, amount in sorted(amounts.items())) or "<none>"

    return cell


@queue.command("list", examples=["vcctl queue list", "vcctl queue list -o wide --watch"])
@label_option
@output_option
@watch_option
@connected
def list_(session: Session, labels: str, output: str, watch: bool) -> None:
    """List queues."""
    client = session.client
    listed = client.list(QUEUES, label_selector=labels)
    counts = counts_of(session) if output in ("", "wide") else {}
    table = show_list(QUEUES, listed.items, columns(counts), output)
    if not watch:
        return
    for changed in changes(client, QUEUES, listed.resource_version, labels=labels):
        if table is None:
            show_object(QUEUES, changed, output)
            continue
        if counts is not None:
            counts.clear()
            counts.update(counts_of(session) or {})
        terminal.echo(table.row(changed))


def find_queue(session: Session, name: str) -> Object:
    """Return a queue; if it does not exist, fail with a hint."""
    try:
        return session.client.get(QUEUES, name)
    except NotFound as error:
        hint = safe_hint(lambda: _other_queues(session, name))
        raise CommandFailed(error.message, hint=hint) from error


def _other_queues(session: Session, name: str) -> str:
    names = [name_of(one) for one in session.client.list(QUEUES)]
    return did_you_mean(name, names) or f"queues: {', '.join(sorted(names))}"


def _name(name: str | None, word: str | None, missing: str, verb: str) -> str:
    if name and word and name != word:
        raise click.UsageError(f'two queues given: "{name}" and "{word}"; give one')
    chosen = name or word
    if not chosen:
        raise CommandFailed(missing, hint=f"write `vcctl queue {verb} -n NAME`")
    return chosen


_word = click.argument(
    "word", metavar="[NAME]", required=False, shell_complete=complete_names(QUEUES)
)


@queue.command(examples=["vcctl queue get -n ml", "vcctl queue get ml -o yaml"])
@_word
@queue_name()
@output_option
@connected
def get(session: Session, word: str | None, name: str | None, output: str) -> None:
    """Show one queue."""
    missing = "name is mandatory to get the particular queue details"
    queue_object = find_queue(session, _name(name, word, missing, "get"))
    if output not in ("", "wide"):
        show_object(QUEUES, queue_object, output)
        return
    show_list(QUEUES, [queue_object], columns(counts_of(session)), output)


@queue.command(
    examples=[
        "vcctl queue create -n my-queue -w 2",
        "vcctl queue create -n ml --parent research --deserved cpu=16,memory=64Gi \\",
        "    --guarantee cpu=4 --capability cpu=32",
    ]
)
@_word
@queue_name("Name of the queue.  [default: test]", default=None)
@click.option("-w", "--weight", default=1, show_default=True, help="Weight among its siblings.")
@click.option("-S", "--state", default="Open", show_default=True, help="Open or Closed.")
@click.option("--parent", default="", help="Parent queue.", shell_complete=complete_names(QUEUES))
@click.option(
    "--guarantee", default="", callback=resources, help="Guaranteed resources, such as cpu=4."
)
@click.option("--deserved", default="", callback=resources, help="Deserved resources.")
@click.option("--capability", default="", callback=resources, help="Upper limit of resources.")
@click.option(
    "--reclaimable/--not-reclaimable",
    default=None,
    help="Whether other queues may reclaim its resources.",
)
@click.option("--priority", type=int, help="Priority among its siblings.")
@click.option("--dequeue-strategy", default="", help="traverse or fifo.")
@click.option("--type", "kind", default="", help="Type of the queue.")
@click.option("--label", "labels", multiple=True, callback=pairs, help="KEY=VALUE on the queue.")
@click.option("--annotation", "annotations", multiple=True, callback=pairs, help="KEY=VALUE.")
@click.option("--check/--no-check", default=True, help="Validate before sending.  [default: check]")
@output_option
@connected
def create(session: Session, word: str | None, name: str | None, **given: Any) -> None:
    """Create a queue."""
    from hekla.sdk import job_commands
    from hekla.sdk.builders import Queue

    if given["state"] not in (QueueState.OPEN, QueueState.CLOSED):
        raise CommandFailed(f"state {given['state']} invalid, valid states are Open and Closed")
    built = Queue(
        # Volcano's default, which scripts may rely on.
        _name(name, word or (None if name else "test"), "", "create"),
        weight=given["weight"],
        parent=given["parent"],
        guarantee=given["guarantee"],
        deserved=given["deserved"],
        capability=given["capability"],
        reclaimable=given["reclaimable"],
        priority=given["priority"],
        dequeue_strategy=given["dequeue_strategy"],
        type=given["kind"],
        labels=given["labels"],
        annotations=given["annotations"],
    )
    manifest = built.manifest()
    if given["check"]:
        manifests.validate(session.client, manifest)
    created = session.client.create(QUEUES, manifest)
    if given["state"] == QueueState.CLOSED:
        # Volcano sets the state in the new object, where servers ignore it.
        session.client.create(COMMANDS, job_commands.command(created, Action.CLOSE_QUEUE))
    if given["output"] and given["output"] != "wide":
        show_object(QUEUES, created, given["output"])
    else:
        note(f"queue {name_of(created)} created")


@queue.command(examples=["vcctl queue delete -n my-queue", "vcctl queue delete a b --force"])
@click.argument("words", metavar="[NAME]…", nargs=-1, shell_complete=complete_names(QUEUES))
@queue_name()
@click.option("--force", is_flag=True, help="Close the queue and delete its unfinished jobs first.")
@connected
def delete(session: Session, words: tuple[str, ...], name: str | None, force: bool) -> None:
    """Delete queues without unfinished jobs."""
    from hekla.cli.vcctl import queue_deletion

    if name and len(words) > 1:
        raise click.UsageError("give several queues as arguments, without -n")
    for word in dict.fromkeys(words or ("",)):
        wanted = _name(name, word, "queue name must be specified", "delete")
        found = find_queue(session, wanted)
        if force:
            queue_deletion.delete_workloads(session.client, found)
        session.client.delete(QUEUES, wanted)
        note(f"queue {wanted} deleted")


@queue.command(
    examples=[
        "vcctl queue operate -n ml -a close",
        "vcctl queue operate -n ml -a open",
        "vcctl queue operate -n ml -a update -w 4",
    ]
)
@_word
@queue_name()
@click.option("-w", "--weight", default=0, help="New weight, for the action update.")
@click.option("-a", "--action", default="", help="open, close or update.")
@connected
def operate(session: Session, word: str | None, name: str | None, weight: int, action: str) -> None:
    """Open or close a queue, or change its weight."""
    from hekla.sdk import job_commands

    wanted = _name(name, word, "queue name must be specified", "operate")
    if action == UPDATE:
        if weight == 0:
            raise CommandFailed(
                f"when {UPDATE} queue {wanted}, weight must be specified, "
                "the value must be greater than 0",
                hint=f"write `vcctl queue operate -n {wanted} -a update -w 2`",
            )
        find_queue(session, wanted)
        session.client.patch(QUEUES, wanted, {"spec": {"weight": weight}})
    elif action in (OPEN, CLOSE):
        command = Action.OPEN_QUEUE if action == OPEN else Action.CLOSE_QUEUE
        session.client.create(COMMANDS, job_commands.command(find_queue(session, wanted), command))
    elif not action:
        raise CommandFailed("action can not be null", hint="-a open, -a close or -a update")
    else:
        raise CommandFailed(
            f"action {action} invalid, valid actions are {OPEN}, {CLOSE} and {UPDATE}",
            hint=did_you_mean(action, (OPEN, CLOSE, UPDATE)),
        )
    note(f"requested {action} of queue {wanted}")
