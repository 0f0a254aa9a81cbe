"""`vcctl queue top`: the tree of queues, and what each uses of what it is owed.

    root
    ├─ ml          cpu     ██████████▒▒▒▒······  12 of 8 deserved, 4 borrowed, most 16

A bar is as long as the most the queue may use: its capability, or else what it deserves, or else
what all queues use together. `--by namespace` and `--by user` show who had how much over time.
Full blocks are its own, shaded ones are borrowed, dots are free; `|` marks what is guaranteed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import click

from hekla.api import wellknown
from hekla.api.fairshare import Queues, QueueShare
from hekla.cli.vcctl.accounts import account_changes, find_account, queues_of, ranking, shares_of
from hekla.cli.vcctl.commands import Leaf
from hekla.cli.vcctl.errors import CommandFailed
from hekla.cli.vcctl.options import Session, connected, watch_option
from hekla.cli.vcctl.output import named, part
from hekla.cli.vcctl.queues import Counts, counts_of
from hekla.cli.vcctl.watching import changes
from hekla.kube.errors import KubeError
from hekla.kube.resources import QUEUES
from hekla.units.objects import Object
from hekla.units.quantity import Quantity, QuantityError, parse_quantity

Amounts = dict[str, Quantity]


BAR = 24
OWN, BORROWED, FREE, MARK = "█", "▒", "·", "|"
_FIRST = (wellknown.CPU, wellknown.MEMORY)
_CLEAR = "\x1b[H\x1b[2J"


@click.command(
    cls=Leaf,
    additive=True,
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
    help="The tree of queues, or who had how much over time.",
)
@click.option(
    "--scheduler-namespace",
    "place",
    default="",
    metavar="NAME",
    help="Where the scheduler keeps account.  [default: found]",
)
@watch_option
@connected
def top(session: Session, only: tuple[str, ...], by: str, place: str, watch: bool) -> None:
    """Show the tree of queues and what each uses, deserves, is guaranteed and had over time."""
    if only and by != "queue":
        raise click.UsageError(f"--resource is of queues: what a {by} had is of all it requests")
    show = partial(_show_queues, session, only, place)
    if by != "queue":
        show = partial(_show_ranking, session, by, place)
    while True:
        text, changed = show()
        click.echo((_CLEAR if watch and sys.stdout.isatty() else "") + text)
        if not watch:
            return
        sys.stdout.flush()
        next(changed)
        if not sys.stdout.isatty():
            click.echo()


Shown = tuple[str, Iterator[Object]]
"""A picture, and the changes after it."""


def _show_queues(session: Session, only: Sequence[str], place: str) -> Shown:
    listed = session.client.list(QUEUES)
    text = "\n".join(tree(listed.items, counts_of(session), only, _pasts(session, place)))
    # The scheduler writes what a queue uses into its status: any change of a queue counts.
    return text, changes(session.client, QUEUES, listed.resource_version)


def _show_ranking(session: Session, level: str, place: str) -> Shown:
    account = find_account(session, place)
    return "\n".join(ranking(shares_of(account), level)), account_changes(session, account)


def _pasts(session: Session, place: str) -> Queues:
    """What queues had; nothing where nobody keeps account or we may not look, unless told where."""
    try:
        return queues_of(find_account(session, place))
    except (KubeError, CommandFailed):
        if place:
            raise
        return {}


def tree(
    queues: Sequence[Object],
    counts: Counts,
    only: Sequence[str] = (),
    pasts: Queues | None = None,
) -> Iterator[str]:
    """The whole picture, line by line. Queues whose parent is missing hang at the root."""
    names = {named(queue) for queue in queues}
    below: dict[str, list[Object]] = {}
    root: Object = {"metadata": {"name": wellknown.ROOT_QUEUE}}
    for queue in sorted(queues, key=named):
        if named(queue) == wellknown.ROOT_QUEUE:
            root = queue
            continue
        parent = part(queue, "spec", "parent") or wellknown.ROOT_QUEUE
        at = parent if parent in names else wellknown.ROOT_QUEUE
        below.setdefault(at, []).append(queue)
    widest = max((_depth_of(q, queues) * 3 + len(named(q)) for q in queues), default=4)
    whole = _amounts(part(root, "status", "allocated"))
    width = max(widest, 4) + 2
    yield from _branch(root, below, counts, only, whole, pasts or {}, "", "", width, set())


def _depth_of(queue: Object, queues: Sequence[Object]) -> int:
    parents = {named(one): part(one, "spec", "parent") or "" for one in queues}
    depth, at = 0, named(queue)
    while at and at != wellknown.ROOT_QUEUE and depth <= len(queues):
        depth, at = depth + 1, parents.get(at, "")
    return depth


def _branch(
    queue: Object,
    below: dict[str, list[Object]],
    counts: Counts,
    only: Sequence[str],
    whole: Amounts,
    pasts: Queues,
    lead: str,
    trunk: str,
    width: int,
    seen: set[str],
) -> Iterator[str]:
    name = named(queue)
    if name in seen:
        return  # parents in a circle: each is drawn once
    seen.add(name)
    children = below.get(name, [])
    past = pasts.get(name)
    bars = list(resource_bars(queue, only, whole, past))
    label = f"{lead}{name}"
    yield f"{label:<{width}} {_headline(queue, counts, past)}".rstrip()
    stem = trunk + ("│  " if children else "   ")
    for bar in bars:
        yield f"{stem:<{width}} {bar}"
    for index, child in enumerate(children):
        last = index == len(children) - 1
        yield from _branch(
            child,
            below,
            counts,
            only,
            whole,
            pasts,
            trunk + ("└─ " if last else "├─ "),
            trunk + ("   " if last else "│  "),
            width,
            seen,
        )


def _headline(queue: Object, counts: Counts, past: QueueShare | None = None) -> str:
    state = part(queue, "status", "state")
    told = [f"weight {part(queue, 'spec', 'weight')}"] if part(queue, "spec", "weight") else []
    if state and state != "Open":
        told.append(click.style(str(state), fg="red"))
    for phase, count in sorted(counts.get(named(queue), {}).items()):
        told.append(f"{count} {phase.lower()}")
    if past is not None:
        told.append(f"had {past.share:.1%} of the cluster lately")
    return ", ".join(told)


def _amounts(found: Any) -> Amounts:
    amounts: Amounts = {}
    for name, text in (found or {}).items():
        try:
            amounts[name] = parse_quantity(text)
        except QuantityError:
            continue
    return amounts


def resource_bars(
    queue: Object,
    only: Sequence[str] = (),
    whole: Amounts | None = None,
    past: QueueShare | None = None,
) -> Iterator[str]:
    """One line for each resource that the queue uses or is owed; `whole` is what all use."""
    used = _amounts(part(queue, "status", "allocated"))
    deserved = _amounts(part(queue, "spec", "deserved"))
    if not deserved and past is not None:
        deserved = _amounts(past.deserved)  # what its weight is worth now
    guarantee = _amounts(part(queue, "spec", "guarantee", "resource"))
    capability = _amounts(part(queue, "spec", "capability"))
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
            (whole or {}).get(name),
        )


def bar_line(
    name: str,
    used: Quantity,
    deserved: Quantity | None,
    guarantee: Quantity | None,
    capability: Quantity | None,
    whole: Quantity | None = None,
) -> str:
    own = next((one for one in (deserved, capability, whole) if one is not None), None)
    told = f"{used} used"
    if deserved is not None:
        told = f"{used} of {deserved} deserved"
        if used > deserved:
            told += f", {used - deserved} borrowed"
    if guarantee is not None:
        told += f", {guarantee} guaranteed"
    if capability is not None:
        told += f", most {capability}"
    return f"{name:<8} {bar(used, own, guarantee, capability)} {told}"


def bar(
    used: Quantity,
    own: Quantity | None,
    guarantee: Quantity | None = None,
    capability: Quantity | None = None,
) -> str:
    """What is used, in blocks; beyond its own share in shades."""
    most = max(float(amount) for amount in (used, own, guarantee, capability) if amount is not None)
    if most <= 0:
        return FREE * BAR
    filled = _cells(used, most)
    mine = filled if own is None else min(filled, _cells(own, most))
    text = OWN * mine + BORROWED * (filled - mine) + FREE * (BAR - filled)
    if guarantee:
        at = min(BAR - 1, max(0, _cells(guarantee, most) - 1))
        text = text[:at] + (MARK if text[at] == FREE else text[at]) + text[at + 1 :]
    colours = {OWN: "green", BORROWED: "yellow", FREE: None, MARK: "cyan"}
    return "".join(click.style(c, fg=colours[c]) if colours[c] else c for c in text)


def _cells(amount: Quantity, most: float) -> int:
    # Something is never drawn as nothing.
    return min(BAR, max(1 if amount else 0, round(float(amount) / most * BAR)))
