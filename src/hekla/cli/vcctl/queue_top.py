"""`vcctl queue top`: the tree of queues with their usage.

    root
    ├─ ml          cpu     ██████████▒▒▒▒······  12 of 8 deserved, 4 borrowed, max 16

The length of a bar is the most that a queue may use: its capability, else what the nodes have. Full
blocks are within the deserved share, shaded ones are borrowed, dots are free; `|` marks the
guarantee. `spec.deserved` is shown if the scheduler's plugin `capacity` is in force; `proportion`
divides by weight. `--by namespace` and `--by user` show usage over time.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import click

from hekla.api import wellknown
from hekla.api.fairshare import Queues, QueueShare
from hekla.cli import terminal
from hekla.cli.vcctl.commands import VcctlCommand
from hekla.cli.vcctl.errors import CommandFailed
from hekla.cli.vcctl.fairshare import (
    find_usage_record,
    queues_of,
    ranking,
    shares_of,
    usage_record_changes,
)
from hekla.cli.vcctl.list_watch import changes
from hekla.cli.vcctl.options import Session, connected, watch_option
from hekla.cli.vcctl.output import field_at, name_of
from hekla.cli.vcctl.queues import Counts, counts_of
from hekla.kube.errors import Forbidden, KubeError
from hekla.kube.resources import CONFIGMAPS, NODES, QUEUES
from hekla.kube.sync_client import SyncClient
from hekla.units.objects import Object
from hekla.units.quantity import Quantity, QuantityError, parse_quantity

Amounts = dict[str, Quantity]


BAR = 24
OWN, BORROWED, FREE, MARK = "█", "▒", "·", "|"
_FIRST = (wellknown.CPU, wellknown.MEMORY)
_CAPACITY = re.compile(r"^[^#\n]*\bname:\s*[\"']?capacity\b", re.MULTILINE)
_HIERARCHY = re.compile(r"^[^#\n]*\benableHierarchy:\s*[\"']?true\b", re.MULTILINE)
_CLEAR = terminal.sequence("\x1b[H\x1b[2J")


@click.command(
    cls=VcctlCommand,
    verb="show queues",
    examples=[
        "vcctl queue top",
        "vcctl queue top -r cpu --watch",
        "vcctl queue top --by user",
    ],
)
@click.option("-r", "--resource", "only", multiple=True, help="Only this resource; may repeat.")
@click.option(
    "--by",
    type=click.Choice(["queue", "namespace", "user"]),
    default="queue",
    show_default=True,
    help="Tree of queues, or usage over time.",
)
@click.option(
    "--scheduler-namespace",
    "place",
    default="",
    metavar="NAME",
    help="Namespace of the scheduler's usage record.  [default: detected]",
)
@watch_option
@connected
def top(session: Session, only: tuple[str, ...], by: str, place: str, watch: bool) -> None:
    """Show the tree of queues: usage, deserved share, guarantee, and usage over time."""
    if only and by != "queue":
        raise click.UsageError(
            f"--resource applies to queues: the usage of a {by} covers all resources"
        )
    show = partial(_show_queues, session, only, place)
    if by != "queue":
        show = partial(_show_ranking, session, by, place)
    while True:
        text, changed = show()
        terminal.echo((_CLEAR if watch and sys.stdout.isatty() else "") + text)
        if not watch:
            return
        sys.stdout.flush()
        next(changed)
        if not sys.stdout.isatty():
            terminal.echo()


Shown = tuple[str, Iterator[Object]]
"""A rendering, and the changes after it."""


def _show_queues(session: Session, only: Sequence[str], place: str) -> Shown:
    client = session.client
    listed = client.list(QUEUES)
    text = "\n".join(
        tree(
            listed.items,
            counts_of(session) or {},
            only,
            _usage_of_queues(session, place),
            cluster=cluster_amounts(client),
            has_deserved=uses_deserved(client, place),
        )
    )
    if note := unused_parents(client, place, listed.items):
        text += f"\n{note}"
    # The scheduler writes a queue's usage to its status: redraw on any change of a queue.
    return text, changes(client, QUEUES, listed.resource_version)


def cluster_amounts(client: SyncClient) -> Amounts:
    """Return what the nodes have; nothing for users who may not list nodes."""
    total: Amounts = {}
    try:
        for node in client.list(NODES):
            for name, amount in _amounts(field_at(node, "status", "allocatable")).items():
                total[name] = total[name] + amount if name in total else amount
    except Forbidden:
        return {}
    return total


def uses_deserved(client: SyncClient, place: str) -> bool:
    """Return whether the configuration in the cluster has the plugin that uses `spec.deserved`.

    True for users who may not read it: a field that they see in the queue is then not hidden.
    """
    text = _configuration(client, place)
    return text is None or bool(_CAPACITY.search(text))


def unused_parents(client: SyncClient, place: str, queues: Iterable[Object]) -> str:
    """Return a note if queues have parents that the configuration in the cluster does not use."""
    roots = ("", wellknown.ROOT_QUEUE)
    if all((field_at(queue, "spec", "parent") or "") in roots for queue in queues):
        return ""
    text = _configuration(client, place)
    if text is None or _HIERARCHY.search(text):
        return ""
    return (
        "note: the limits of parent queues have no effect; they need the plugin capacity with "
        "enableHierarchy: true in the scheduler's configuration"
    )


def _configuration(client: SyncClient, place: str) -> str | None:
    """Return the scheduler's configuration in the cluster; None if the user may not read it."""
    try:
        found = client.find(
            CONFIGMAPS,
            wellknown.SCHEDULER_CONFIG_MAP,
            namespace=place or wellknown.SYSTEM_NAMESPACE,
        )
    except Forbidden:
        return None
    return str((field_at(found or {}, "data") or {}).get(wellknown.SCHEDULER_CONFIG_KEY) or "")


def _show_ranking(session: Session, level: str, place: str) -> Shown:
    account = find_usage_record(session, place)
    return "\n".join(ranking(shares_of(account), level)), usage_record_changes(session, account)


def _usage_of_queues(session: Session, place: str) -> Queues:
    """Return queue usage over time; nothing if it is not recorded or not readable, unless
    requested.
    """
    try:
        return queues_of(find_usage_record(session, place))
    except (KubeError, CommandFailed):
        if place:
            raise
        return {}


def tree(
    queues: Sequence[Object],
    counts: Counts,
    only: Sequence[str] = (),
    usages: Queues | None = None,
    *,
    cluster: Amounts | None = None,
    has_deserved: bool = True,
) -> Iterator[str]:
    """Yield the tree. Queues with a missing parent are shown below the root."""
    names = {name_of(queue) for queue in queues}
    below: dict[str, list[Object]] = {}
    root: Object = {"metadata": {"name": wellknown.ROOT_QUEUE}}
    for queue in sorted(queues, key=name_of):
        if name_of(queue) == wellknown.ROOT_QUEUE:
            root = queue
            continue
        parent = field_at(queue, "spec", "parent") or wellknown.ROOT_QUEUE
        at = parent if parent in names else wellknown.ROOT_QUEUE
        below.setdefault(at, []).append(queue)
    widest = max((_depth_of(q, queues) * 3 + len(name_of(q)) for q in queues), default=4)
    width = max(widest, 4) + 2
    bars = partial(resource_bars, only=only, cluster=cluster, has_deserved=has_deserved)
    yield from _branch(root, below, counts, bars, usages or {}, "", "", width, set())


Bars = Callable[..., Iterator[str]]
"""From a queue and its usage over time to its bars."""


def _depth_of(queue: Object, queues: Sequence[Object]) -> int:
    parents = {name_of(one): field_at(one, "spec", "parent") or "" for one in queues}
    depth, at = 0, name_of(queue)
    while at and at != wellknown.ROOT_QUEUE and depth <= len(queues):
        depth, at = depth + 1, parents.get(at, "")
    return depth


def _branch(
    queue: Object,
    below: dict[str, list[Object]],
    counts: Counts,
    bars: Bars,
    usages: Queues,
    lead: str,
    trunk: str,
    width: int,
    seen: set[str],
) -> Iterator[str]:
    name = name_of(queue)
    if name in seen:
        return  # a cycle of parents: draw each queue once
    seen.add(name)
    children = below.get(name, [])
    usage = usages.get(name)
    label = f"{lead}{name}"
    yield f"{label:<{width}} {_headline(queue, counts, usage)}".rstrip()
    stem = trunk + ("│  " if children else "   ")
    for line in bars(queue, usage=usage):
        yield f"{stem:<{width}} {line}"
    for index, child in enumerate(children):
        last = index == len(children) - 1
        yield from _branch(
            child,
            below,
            counts,
            bars,
            usages,
            trunk + ("└─ " if last else "├─ "),
            trunk + ("   " if last else "│  "),
            width,
            seen,
        )


def _headline(queue: Object, counts: Counts, usage: QueueShare | None = None) -> str:
    state = field_at(queue, "status", "state")
    words = (
        [f"weight {field_at(queue, 'spec', 'weight')}"] if field_at(queue, "spec", "weight") else []
    )
    if state and state != "Open":
        words.append(terminal.style(str(state), fg="red"))
    for phase, count in sorted(counts.get(name_of(queue), {}).items()):
        words.append(f"{count} {phase.lower()}")
    if usage is not None:
        words.append(f"usage {usage.share:.1%} of the cluster")
    return ", ".join(words)


def _amounts(texts: Any) -> Amounts:
    amounts: Amounts = {}
    for name, text in (texts or {}).items():
        try:
            amounts[name] = parse_quantity(text)
        except QuantityError:
            continue
    return amounts


def resource_bars(
    queue: Object,
    only: Sequence[str] = (),
    cluster: Amounts | None = None,
    usage: QueueShare | None = None,
    has_deserved: bool = True,
) -> Iterator[str]:
    """Yield one line for each resource that the queue uses or deserves."""
    used = _amounts(field_at(queue, "status", "allocated"))
    deserved = _amounts(field_at(queue, "spec", "deserved")) if has_deserved else {}
    if not deserved and usage is not None:
        deserved = _amounts(usage.deserved)  # the current share of its weight
    guarantee = _amounts(field_at(queue, "spec", "guarantee", "resource"))
    capability = _amounts(field_at(queue, "spec", "capability"))
    names = {n for some in (used, deserved, guarantee, capability) for n, v in some.items() if v}
    names.discard(wellknown.PODS)
    if only:
        names &= set(only)
    zero = Quantity()
    for name in sorted(names, key=lambda n: (_FIRST.index(n) if n in _FIRST else 9, n)):
        yield bar_line(
            name,
            used.get(name, zero),
            deserved.get(name),
            guarantee.get(name),
            capability.get(name),
            (cluster or {}).get(name),
        )


def bar_line(
    name: str,
    used: Quantity,
    deserved: Quantity | None,
    guarantee: Quantity | None,
    capability: Quantity | None,
    cluster: Quantity | None = None,
) -> str:
    words = f"{used} used"
    if deserved is not None:
        words = f"{used} of {deserved} deserved"
        if used > deserved:
            words += f", {used - deserved} borrowed"
    if guarantee is not None:
        words += f", {guarantee} guaranteed"
    if capability is not None:
        words += f", max {capability}"
    elif cluster is not None:
        words += f", {cluster} in the cluster"
    most = cluster if capability is None else capability
    return f"{name:<8} {bar(used, deserved, guarantee, most)} {words}"


def bar(
    used: Quantity,
    deserved: Quantity | None = None,
    guarantee: Quantity | None = None,
    limit: Quantity | None = None,
) -> str:
    """Return the usage in blocks; shaded beyond the deserved share.

    `limit` is the length of the bar, unless more is used.
    """
    scale = (used, limit) if limit is not None else (used, deserved, guarantee)
    most = max(float(amount) for amount in scale if amount is not None)
    if most <= 0:
        return FREE * BAR
    filled = _cells(used, most)
    mine = filled if deserved is None else min(filled, _cells(deserved, most))
    text = OWN * mine + BORROWED * (filled - mine) + FREE * (BAR - filled)
    if guarantee:
        at = min(BAR - 1, max(0, _cells(guarantee, most) - 1))
        text = text[:at] + (MARK if text[at] == FREE else text[at]) + text[at + 1 :]
    colours = {OWN: "green", BORROWED: "yellow", FREE: None, MARK: "cyan"}
    return "".join(terminal.style(c, fg=colours[c]) if colours[c] else c for c in text)


def _cells(amount: Quantity, most: float) -> int:
    # A non-zero value gets at least one block.
    return min(BAR, max(1 if amount else 0, round(float(amount) / most * BAR)))
